// PixArt-Sigma: one modulation table from the timestep, to which each block adds its own; self attention of the image,
// then cross attention to the text (Chen et al. 2023, arXiv:2310.00426; 2024, arXiv:2403.04692). diffusers'
// PixArtTransformer2DModel names the tensors.
#include <algorithm>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/concat.h"
#include "graph/ops/joint_attention.h"
#include "models/blocks/dit_blocks.h"
#include "models/checkpoint/config_reader.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

struct PixartConfig {
  DitShape shape;
  int64_t in_channels = 0, out_channels = 0, num_layers = 0, patch = 0;
  int64_t text_width = 0, cross_width = 0;  ///< widths of the input "text" and of the text after the caption projection
  bool has_caption_projection = false, attention_bias = true;
  Activation activation = Activation::kGeluTanh;
  int64_t base_size = 0;  ///< tokens each way of the base resolution of the positions
  double position_scale = 1;
};

Result<PixartConfig> read_pixart_config(const nlohmann::json& json) {
  constexpr int64_t kMaxLayers = 1000, kMaxWidth = int64_t{1} << 20;
  ConfigReader r(json);
  PixartConfig c;
  c.patch = r.integer("patch_size", 1, 16, 2);
  c.in_channels = r.integer("in_channels", 1, 1024, 4);
  c.out_channels = r.integer("out_channels", 1, 1024, r.has("out_channels") ? 8 : c.in_channels);
  c.num_layers = r.integer("num_layers", 1, kMaxLayers, 28);
  c.shape.head_dim = r.integer("attention_head_dim", 2, 512, 72);
  c.shape.num_heads = r.integer("num_attention_heads", 1, 1024, 16);
  c.shape.eps = static_cast<float>(r.number("norm_eps", 0, 1, 1e-6));
  c.cross_width = r.integer("cross_attention_dim", 1, kMaxWidth, 1152);
  c.has_caption_projection = r.has("caption_channels");
  c.text_width = r.integer("caption_channels", 1, kMaxWidth, c.cross_width);
  c.attention_bias = r.boolean("attention_bias", true);
  const int64_t sample_size = r.integer("sample_size", 1, 1 << 14, 128);
  c.base_size = sample_size / c.patch;
  c.position_scale =
      r.number("interpolation_scale", 1e-3, 1e6, static_cast<double>(std::max<int64_t>(sample_size / 64, 1)));
  const std::string norm = r.text("norm_type", "ada_norm_single"), kind = r.text("activation_fn", "gelu-approximate");
  if (r.boolean("use_additional_conditions", sample_size == 128))
    r.fail(
        unsupported("config: use_additional_conditions: resolution and aspect ratio are inputs of PixArt-Alpha, not of "
                    "PixArt-Sigma"));
  if (r.boolean("norm_elementwise_affine", false))
    r.fail(unsupported("config: norm_elementwise_affine: norms have no weights of their own in PixArt"));
  REDLINE_TRY(r.status());
  if (norm != "ada_norm_single") return unsupported("config: norm_type \"{}\"; known is ada_norm_single", norm);
  if (kind != "gelu" && kind != "gelu-approximate")
    return unsupported("config: activation_fn \"{}\"; known are gelu, gelu-approximate", kind);
  REDLINE_ASSIGN(c.activation, activation_from_name(kind));
  if (c.has_caption_projection && c.cross_width != c.shape.width())
    return invalid_argument("config: cross_attention_dim is {}, projected captions have {} columns", c.cross_width,
                            c.shape.width());
  if (c.shape.width() % 4 != 0 || c.base_size < 1)
    return invalid_argument("config: {} columns, sample_size {}: positions need a multiple of 4 and at least a patch",
                            c.shape.width(), sample_size);
  return c;
}

class PixartBuilder : public DitBuilder {
 public:
  PixartBuilder(GraphBuilder& g, WeightReader& w, const PixartConfig& c) : DitBuilder(g, w, c.shape), c_(c) {}

  Value key_lengths() { return g_.input("key_lengths", DType::kI32, {kBatch}); }

  void blocks(Value& image, int64_t begin, int64_t end, Value text, Value table, Value lengths) {
    for (int64_t i = begin; i < end; ++i) block(image, fmt::format("transformer_blocks.{}.", i), text, table, lengths);
  }

  /// Adds `table` plus a table of the checkpoint, [parts, width].
  Value own_table(Value table, const std::string& scope, int64_t parts) {
    g_.set_scope(scope + "scale_shift_table");
    return add_row(g_, table, w_.take_as(scope + "scale_shift_table", {parts, width()}, {parts * width()}));
  }

 private:
  Value attend(Value q_from, Value kv_from, int64_t kv_width, const Dim& keys, const std::string& scope,
               Value lengths) {
    const int64_t D = width();
    const Value q = project(q_from, scope + "to_q", D, D, c_.attention_bias);
    const Value k = project(kv_from, scope + "to_k", D, kv_width, c_.attention_bias);
    const Value v = project(kv_from, scope + "to_v", D, kv_width, c_.attention_bias);
    g_.set_scope(scope);
    const Value packed = pack_kv(g_, {{k, v, keys}}, kBatch, shape_.num_heads, shape_.head_dim);
    const Value seen = joint_attention(g_, q, kBatch, kImage, packed, attention(), lengths);
    return project(seen, scope + "to_out.0", D, D);
  }

  void block(Value& x, const std::string& scope, Value text, Value base_table, Value lengths) {
    // Parts: shift, scale, gate of self attention, then of the feed-forward. Cross attention has no modulation and no
    // norm.
    const Value table = own_table(base_table, scope, 6);
    g_.set_scope(scope + "norm1");
    const Value normed = modulated(x, table, 0, 1, kImage);
    x = gated(x, attend(normed, normed, width(), kImage, scope + "attn1.", {}), table, 2, kImage);
    x = add(g_, x, attend(x, text, c_.cross_width, kText, scope + "attn2.", lengths));
    x = feed_forward(x, table, kImage, scope + "norm2", scope + "ff", c_.activation);
  }

  const PixartConfig& c_;
};

Result<DenoiserModel> build_pixart(const Checkpoint& checkpoint, BlockSplit blocks) {
  REDLINE_ASSIGN(const PixartConfig c, read_pixart_config(checkpoint.config));
  const BlockSplit parts = blocks.within(c.num_layers);
  const int64_t split = parts.front, tail = c.num_layers - parts.tail, D = c.shape.width();
  DenoiserModel model;
  model.family = "pixart";
  model.patch = c.patch;
  model.latent_channels = c.in_channels;
  model.in_channels = c.in_channels * c.patch * c.patch;
  model.out_channels = c.out_channels * c.patch * c.patch;
  model.channels_last_patch = true;
  model.text_width = c.text_width;
  model.masks_text = true;
  model.position_table = [c](const TokenGrid& tokens) -> Result<std::vector<float>> {
    const int64_t height = tokens.height, width = tokens.width;
    return sincos_positions(c.shape.width(), height, width, c.base_size, c.position_scale);
  };

  DenoiserGraphs graphs("pixart", checkpoint);
  {
    GraphBuilder& g = graphs.front;
    PixartBuilder b(g, graphs.front_weights, c);
    graphs.front_weights.ignore("pos_embed.pos_embed");  // older checkpoints store the table of one size
    const Value time = b.embed_number("timestep", "adaln_single.emb.timestep_embedder");
    const Value table = b.project(activation(g, time, Activation::kSilu), "adaln_single.linear", 6 * D, D);
    Value text = g.input("text", DType::kF32, {b.kBatch * b.kText, c.text_width});
    if (c.has_caption_projection) text = b.embed(text, "caption_projection", c.text_width, Activation::kGeluTanh);
    Value image = b.embed_patches(c.in_channels, c.patch);
    const Value embedded = image;
    if (split > 0) g.output("embedded", embedded);  // else it is "image"
    b.blocks(image, 0, split, text, table, b.key_lengths());
    g.output("image", image);
    if (split == 0 || parts.modulated)
      g.output("modulated", b.modulated(embedded, b.own_table(table, "transformer_blocks.0.", 6), 0, 1, b.kImage));
    // Without a projection the text is an input of the middle anyway; a graph cannot have one value as input and
    // output.
    if (c.has_caption_projection) g.output("text", text);
    g.output("carry.table", table);
    g.output("carry.time", time);
  }
  {
    GraphBuilder& g = graphs.middle;
    PixartBuilder b(g, graphs.middle_weights, c);
    const Value table = g.input("carry.table", DType::kF32, {b.kBatch, 6 * D});
    Value image = g.input("image", DType::kF32, {b.kBatch * b.kImage, D});
    const Value text = g.input("text", DType::kF32, {b.kBatch * b.kText, c.cross_width});
    b.blocks(image, split, tail, text, table, b.key_lengths());
    g.output("image", image);
  }
  {
    GraphBuilder& g = graphs.tail;
    PixartConfig fixed = c;
    fixed.shape.eps = 1e-6f;  // independent of norm_eps, which applies to the blocks
    PixartBuilder b(g, graphs.tail_weights, fixed);
    const Value time = g.input("carry.time", DType::kF32, {b.kBatch, D});
    Value image = g.input("image", DType::kF32, {b.kBatch * b.kImage, D});
    if (tail < c.num_layers) {
      PixartBuilder last(g, graphs.tail_weights, c);
      const Value table = g.input("carry.table", DType::kF32, {b.kBatch, 6 * D});
      const Value text = g.input("text", DType::kF32, {b.kBatch * b.kText, c.cross_width});
      last.blocks(image, tail, c.num_layers, text, table, last.key_lengths());
    }
    g.set_scope("norm_out");
    // The table is [shift, scale]; the timestep is added to both.
    const Value table = b.own_table(concat_cols(g, time, time), "", 2);
    g.output("model_output", b.project(b.modulated(image, table, 0, 1, b.kImage), "proj_out", model.out_channels, D));
  }
  REDLINE_TRY(graphs.finish(model));
  return model;
}

// Returns the conditions: T5 with its padding masked. Prompts are lowercased and stripped, as in the original pipeline.
Result<PromptConditions> pixart_conditions(const PromptEncoders& encoders, const DenoiserModel&,
                                           std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(PromptEncoder * t5, encoders.find("text_encoder"));
  std::vector<std::string> cleaned;
  for (const std::string& prompt : prompts) {
    const size_t begin = prompt.find_first_not_of(" \t\r\n"), end = prompt.find_last_not_of(" \t\r\n");
    cleaned.push_back(begin == std::string::npos ? "" : prompt.substr(begin, end - begin + 1));
    for (char& letter : cleaned.back())
      if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  REDLINE_ASSIGN(EncodedText text, t5->encode(cleaned, text_tokens, /*mask_padding=*/true));
  PromptConditions c;
  c.prompts = text.prompts;
  c.tokens = text.tokens;
  c.add_warnings(text);
  c.values["text"] = std::move(text.hidden);
  c.integers["key_lengths"] = std::move(text.lengths);
  return c;
}

constexpr std::string_view kPixartDenoiserClasses[] = {"PixArtTransformer2DModel", "Transformer2DModel"};
constexpr std::string_view kPixartPipelineClasses[] = {"PixArtSigmaPipeline"};

}  // namespace

extern const DenoiserRow kPixartDenoiser = {
    .class_names = kPixartDenoiserClasses,
    .build = build_pixart,
};

extern const PipelineRow kPixartPipeline = {
    .class_names = kPixartPipelineClasses,
    .denoiser_component = "transformer",
    .denoiser_class = "PixArtTransformer2DModel",
    .condition = pixart_conditions,
    .side = 1024,
    .num_inference_steps = 20,
    .guidance_scale = 4.5,
    .max_sequence_length = 300,
};

}  // namespace redline
