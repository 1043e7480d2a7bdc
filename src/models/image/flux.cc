// FLUX.1 dev and schnell: double blocks (separate weights for text and image, joint attention), then single
// blocks over the concatenated stream. Black Forest Labs 2024; diffusers' FluxTransformer2DModel names the tensors.
//
// Checkpoints rotate neighbouring pairs of a head. Rows of the query and key projections and their norms are permuted
// to the half-split order of `rope`; attention scores are sums over a head and do not depend on the order.
#include <algorithm>
#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/concat.h"
#include "graph/ops/joint_attention.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "models/blocks/dit_blocks.h"
#include "models/checkpoint/config_reader.h"
#include "models/image/flux_file.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

struct FluxConfig {
  DitShape shape;
  int64_t in_channels = 0, out_channels = 0, num_layers = 0, num_single_layers = 0;
  int64_t text_width = 0, pooled_width = 0;
  bool guidance_embeds = false;
  std::vector<int64_t> axes;  ///< elements of a head that each position axis (text, row, column) rotates

  int64_t num_blocks() const { return num_layers + num_single_layers; }
};

Result<FluxConfig> read_flux_config(const nlohmann::json& json) {
  constexpr int64_t kMaxLayers = 1000, kMaxWidth = int64_t{1} << 20;
  ConfigReader r(json);
  FluxConfig c;
  c.in_channels = r.integer("in_channels", 1, kMaxWidth, 64);
  c.out_channels = r.integer("out_channels", 1, kMaxWidth, c.in_channels);
  c.num_layers = r.integer("num_layers", 0, kMaxLayers, 19);
  c.num_single_layers = r.integer("num_single_layers", 0, kMaxLayers, 38);
  c.shape.head_dim = r.integer("attention_head_dim", 2, 512, 128);
  c.shape.num_heads = r.integer("num_attention_heads", 1, 1024, 24);
  c.text_width = r.integer("joint_attention_dim", 1, kMaxWidth, 4096);
  c.pooled_width = r.integer("pooled_projection_dim", 1, kMaxWidth, 768);
  c.guidance_embeds = r.boolean("guidance_embeds", false);
  // The pipeline packs latents 2 x 2; the network's own patch is 1 in every FLUX.1 checkpoint.
  if (const int64_t patch = r.integer("patch_size", 1, 16, 1); patch != 1)
    r.fail(unsupported("config: patch_size {}; FLUX transformers have 1", patch));
  REDLINE_TRY(r.status());
  c.axes = {16, 56, 56};
  if (const auto axes = json.find("axes_dims_rope"); axes != json.end() && !axes->is_null()) {
    c.axes.clear();
    if (!axes->is_array()) return invalid_argument("config: axes_dims_rope must be a list of three sizes");
    for (const auto& axis : *axes) {
      if (!axis.is_number_integer() || axis.get<int64_t>() < 0 || axis.get<int64_t>() % 2 != 0)
        return invalid_argument("config: axes_dims_rope must hold even numbers");
      c.axes.push_back(axis.get<int64_t>());
    }
  }
  if (c.axes.size() != 3) return invalid_argument("config: axes_dims_rope has {} axes, not 3", c.axes.size());
  if (c.axes[0] + c.axes[1] + c.axes[2] != c.shape.head_dim)
    return invalid_argument("config: axes_dims_rope adds up to {}, a head has {} elements",
                            c.axes[0] + c.axes[1] + c.axes[2], c.shape.head_dim);
  if (c.num_blocks() < 1) return invalid_argument("config: a transformer without blocks");
  return c;
}

/// Returns cosines, then sines, of the text rows and then of height * width image rows. All text tokens are at position
/// 0.
std::vector<float> rope_table_of(const FluxConfig& c, int64_t text_tokens, int64_t height, int64_t width) {
  const int64_t half = c.shape.head_dim / 2;
  std::vector<float> table(static_cast<size_t>((text_tokens + height * width) * c.shape.head_dim));
  for (int64_t t = 0; t < text_tokens + height * width; ++t) {
    const int64_t pixel = t - text_tokens;
    const int64_t place[3] = {0, pixel < 0 ? 0 : pixel / width, pixel < 0 ? 0 : pixel % width};
    float* row = table.data() + t * c.shape.head_dim;
    int64_t at = 0;
    for (size_t axis = 0; axis < 3; ++axis)
      for (int64_t i = 0; i < c.axes[axis]; i += 2, ++at) {
        const double frequency = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(c.axes[axis]));
        const double angle = static_cast<double>(place[axis]) * frequency;
        row[at] = static_cast<float>(std::cos(angle));
        row[half + at] = static_cast<float>(std::sin(angle));
      }
  }
  return table;
}

/// Hidden states between blocks: text and image separate before the single blocks, joined (text first) within them.
struct FluxStreams {
  Value image, text, joined;
};

class FluxBuilder : public DitBuilder {
 public:
  FluxBuilder(GraphBuilder& g, WeightReader& w, const FluxConfig& c) : DitBuilder(g, w, c.shape), c_(c) {}

  /// Adds silu of the sum of the embeddings of timestep, guidance and pooled text: [batch, width].
  Value conditioning() {
    Value sum = embed_number("timestep", "time_text_embed.timestep_embedder", 1000);
    if (c_.guidance_embeds) sum = add(g_, sum, embed_number("guidance", "time_text_embed.guidance_embedder", 1000));
    const Value pooled = g_.input("pooled", DType::kF32, {kBatch, c_.pooled_width});
    sum = add(g_, sum, embed(pooled, "time_text_embed.text_embedder", c_.pooled_width));
    return activation(g_, sum, Activation::kSilu);
  }

  /// Adds blocks [begin, end); double and single blocks are numbered consecutively.
  void blocks(FluxStreams& s, int64_t begin, int64_t end, Value conditioning, Value rope) {
    conditioning_ = conditioning;
    rope_joined_ = rope;
    g_.set_scope("rope");
    if (begin < c_.num_layers && begin < end) {
      rope_text_ = slice_rows(g_, rope, kBatch, kAll, 0, kText);
      rope_image_ = slice_rows(g_, rope, kBatch, kAll, kText, kImage);
    }
    for (int64_t i = begin; i < end; ++i) {
      if (i < c_.num_layers) {
        double_block(s, fmt::format("transformer_blocks.{}.", i));
        continue;
      }
      if (!s.joined.valid()) {
        g_.set_scope("join");
        s.joined = concat_rows(g_, s.text, s.image, kBatch, kText, kImage);
      }
      single_block(s, fmt::format("single_transformer_blocks.{}.", i - c_.num_layers));
    }
    if (!s.joined.valid()) return;
    g_.set_scope("split");
    s.image = slice_rows(g_, s.joined, kBatch, kAll, kText, kImage);
    s.text = slice_rows(g_, s.joined, kBatch, kAll, 0, kText);
  }

  /// Adds the image input of the first block's attention.
  Value first_modulated(Value image, Value conditioning) {
    const Value table = project(conditioning, "transformer_blocks.0.norm1.linear", 6 * width(), width());
    return modulated(image, table, 0, 1, kImage);
  }

  const Dim kAll = kText + kImage;

 private:
  struct Heads {
    Value q, k, v;
  };

  /// Adds queries or keys: the projection, then the norm and rope of each head.
  Value rotated(Value x, const std::string& name, const std::string& norm, Value rope_table) {
    const int64_t D = width(), head_dim = shape_.head_dim;
    const auto half_split = [head_dim](int64_t row) {
      const int64_t i = row % head_dim;
      return row - i + (i < head_dim / 2 ? 2 * i : 2 * (i - head_dim / 2) + 1);
    };
    g_.set_scope(name);
    const Value weight = w_.take(name + ".weight", {D, D}, half_split);
    Value y = linear(g_, x, weight, w_.take(name + ".bias", {D}, half_split));
    g_.set_scope(norm);
    y = rms_norm(g_, y, w_.take(norm + ".weight", {head_dim}, half_split), {shape_.eps});
    return rope(g_, y, rope_table, {head_dim});
  }
  Heads heads(Value x, const std::string& scope, const char* q, const char* k, const char* v, const char* q_norm,
              const char* k_norm, Value rope_table) {
    return {rotated(x, scope + q, scope + q_norm, rope_table), rotated(x, scope + k, scope + k_norm, rope_table),
            project(x, scope + v, width(), width())};
  }

  void double_block(FluxStreams& s, const std::string& scope) {
    const int64_t D = width();
    // Parts of a table: shift, scale, gate of attention, then of the feed-forward.
    const Value image_table = project(conditioning_, scope + "norm1.linear", 6 * D, D);
    const Value text_table = project(conditioning_, scope + "norm1_context.linear", 6 * D, D);
    g_.set_scope(scope + "norm1");
    const Value image_in = modulated(s.image, image_table, 0, 1, kImage);
    const Value text_in = modulated(s.text, text_table, 0, 1, kText);
    const Heads image = heads(image_in, scope + "attn.", "to_q", "to_k", "to_v", "norm_q", "norm_k", rope_image_);
    const Heads text = heads(text_in, scope + "attn.", "add_q_proj", "add_k_proj", "add_v_proj", "norm_added_q",
                             "norm_added_k", rope_text_);
    g_.set_scope(scope + "attn");
    const Value keys =
        pack_kv(g_, {{text.k, text.v, kText}, {image.k, image.v, kImage}}, kBatch, shape_.num_heads, shape_.head_dim);
    const Value image_seen = joint_attention(g_, image.q, kBatch, kImage, keys, attention());
    const Value text_seen = joint_attention(g_, text.q, kBatch, kText, keys, attention());
    s.image = gated(s.image, project(image_seen, scope + "attn.to_out.0", D, D), image_table, 2, kImage);
    s.image = feed_forward(s.image, image_table, kImage, scope + "norm2", scope + "ff");
    s.text = gated(s.text, project(text_seen, scope + "attn.to_add_out", D, D), text_table, 2, kText);
    s.text = feed_forward(s.text, text_table, kText, scope + "norm2_context", scope + "ff_context");
  }

  void single_block(FluxStreams& s, const std::string& scope) {
    const int64_t D = width();
    const Value table = project(conditioning_, scope + "norm.linear", 3 * D, D);
    g_.set_scope(scope + "norm");
    const Value in = modulated(s.joined, table, 0, 1, kAll);
    const Heads h = heads(in, scope + "attn.", "to_q", "to_k", "to_v", "norm_q", "norm_k", rope_joined_);
    g_.set_scope(scope + "attn");
    const Value keys = pack_kv(g_, {{h.k, h.v, kAll}}, kBatch, shape_.num_heads, shape_.head_dim);
    const Value seen = joint_attention(g_, h.q, kBatch, kAll, keys, attention());
    const Value hidden = activation(g_, project(in, scope + "proj_mlp", 4 * D, D), Activation::kGeluTanh);
    g_.set_scope(scope + "join");
    const Value both = concat_cols(g_, seen, hidden);
    s.joined = gated(s.joined, project(both, scope + "proj_out", D, 5 * D), table, 2, kAll);
  }

  const FluxConfig& c_;
  Value conditioning_, rope_joined_, rope_text_, rope_image_;
};

Result<DenoiserModel> build_flux(const Checkpoint& checkpoint, BlockSplit blocks) {
  REDLINE_ASSIGN(const FluxConfig c, read_flux_config(checkpoint.config));
  const BlockSplit parts = blocks.within(c.num_blocks());
  const int64_t split = parts.front, tail = c.num_blocks() - parts.tail, D = c.shape.width();
  DenoiserModel model;
  model.family = "flux";
  model.in_channels = c.in_channels;
  model.out_channels = c.out_channels;
  model.patch = 2;  // the pipeline packs latents 2 x 2
  model.latent_channels = c.in_channels / 4;
  if (c.in_channels % 4 != 0)
    return invalid_argument("config: in_channels {} is not a multiple of 4: latents are packed 2 x 2", c.in_channels);
  model.text_width = c.text_width;
  model.pooled_width = c.pooled_width;
  model.takes_guidance = c.guidance_embeds;
  model.timestep_scale = 1e-3;
  model.rotary_dim = c.shape.head_dim;
  model.rope_table = [c](int64_t text, const TokenGrid& tokens) {
    return rope_table_of(c, text, tokens.height, tokens.width);
  };

  DenoiserGraphs graphs("flux", checkpoint);
  {
    GraphBuilder& g = graphs.front;
    FluxBuilder b(g, graphs.front_weights, c);
    const Value latents = g.input("latents", DType::kF32, {b.kBatch * b.kImage, c.in_channels});
    const Value text = g.input("text", DType::kF32, {b.kBatch * b.kText, c.text_width});
    const Value rope = split > 0 ? g.input("rope", DType::kF32, {b.kBatch * b.kAll, c.shape.head_dim}) : Value{};
    const Value conditioning = b.conditioning();
    FluxStreams s;
    s.image = b.project(latents, "x_embedder", D, c.in_channels);
    s.text = b.project(text, "context_embedder", D, c.text_width);
    const Value embedded = s.image;
    if (split > 0) g.output("embedded", embedded);  // else it is "image"
    b.blocks(s, 0, split, conditioning, rope);
    g.output("image", s.image);
    g.output("text", s.text);
    g.output("carry.conditioning", conditioning);
    if ((split == 0 || parts.modulated) && c.num_layers > 0)
      g.output("modulated", b.first_modulated(embedded, conditioning));
  }
  {
    GraphBuilder& g = graphs.middle;
    FluxBuilder b(g, graphs.middle_weights, c);
    const Value conditioning = g.input("carry.conditioning", DType::kF32, {b.kBatch, D});
    FluxStreams s;
    s.image = g.input("image", DType::kF32, {b.kBatch * b.kImage, D});
    s.text = g.input("text", DType::kF32, {b.kBatch * b.kText, D});
    const Value rope = g.input("rope", DType::kF32, {b.kBatch * b.kAll, c.shape.head_dim});
    b.blocks(s, split, tail, conditioning, rope);
    g.output("image", s.image);
    g.output("text", s.text);
  }
  {
    GraphBuilder& g = graphs.tail;
    FluxBuilder b(g, graphs.tail_weights, c);
    const Value conditioning = g.input("carry.conditioning", DType::kF32, {b.kBatch, D});
    Value image = g.input("image", DType::kF32, {b.kBatch * b.kImage, D});
    if (tail < c.num_blocks()) {
      const Value rope = g.input("rope", DType::kF32, {b.kBatch * b.kAll, c.shape.head_dim});
      FluxStreams s = {image, g.input("text", DType::kF32, {b.kBatch * b.kText, D}), {}};
      b.blocks(s, tail, c.num_blocks(), conditioning, rope);
      image = s.image;
    }
    // The table is [scale, shift] here.
    const Value table = b.project(conditioning, "norm_out.linear", 2 * D, D);
    g.set_scope("norm_out");
    g.output("model_output", b.project(b.modulated(image, table, 1, 0, b.kImage), "proj_out", c.out_channels, D));
  }
  REDLINE_TRY(graphs.finish(model));
  return model;
}

// Returns the conditions: T5's tokens, and CLIP's pooled vector, which is added to the timestep embedding. Tokens
// attend to the padding, as in training.
Result<PromptConditions> flux_conditions(const PromptEncoders& encoders, const DenoiserModel&,
                                         std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(PromptEncoder * clip, encoders.find("text_encoder"));
  REDLINE_ASSIGN(PromptEncoder * t5, encoders.find("text_encoder_2"));
  PromptConditions c;
  REDLINE_ASSIGN(EncodedText pooled, clip->encode(prompts, 0, /*mask_padding=*/false));
  REDLINE_ASSIGN(EncodedText text, t5->encode(prompts, text_tokens, /*mask_padding=*/false));
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  // T5 still reads the part of a long prompt that CLIP truncates, so only T5's truncation is reported.
  c.add_warnings(text);
  c.values["pooled"] = std::move(pooled.pooled);
  c.values["text"] = std::move(text.hidden);
  return c;
}

constexpr std::string_view kFluxDenoiserClasses[] = {"FluxTransformer2DModel"};
// The original name, and that of diffusers with its folder left out.
constexpr std::string_view kFluxStoredNames[] = {"double_blocks.0.", "single_transformer_blocks.0."};
constexpr std::string_view kFluxPipelineClasses[] = {"FluxPipeline", "FluxImg2ImgPipeline", "FluxInpaintPipeline"};

}  // namespace

extern const DenoiserRow kFluxDenoiser = {
    .class_names = kFluxDenoiserClasses,
    .build = build_flux,
    .single_file = {.gguf_architecture = "flux", .safetensors_names = kFluxStoredNames, .open = open_flux_file},
    .adapter_names = flux_stored_modules,
};

extern const PipelineRow kFluxPipeline = {
    .class_names = kFluxPipelineClasses,
    .denoiser_component = "transformer",
    .denoiser_class = "FluxTransformer2DModel",
    .condition = flux_conditions,
    .even_sigmas = true,
    .is_distilled = true,
    .side = 1024,
    .num_inference_steps = 28,
    .guidance_scale = 3.5,
    .max_sequence_length = 512,
};

}  // namespace redline
