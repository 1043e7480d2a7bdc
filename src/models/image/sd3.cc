// Stable Diffusion 3 and 3.5: separate weights for text and image, joint attention (Esser et al. 2024,
// arXiv:2403.03206). SD3.5 normalizes queries and keys; its medium size has a second self attention of the image in the
// first blocks. diffusers' SD3Transformer2DModel names the tensors.
#include <algorithm>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/joint_attention.h"
#include "graph/ops/rms_norm.h"
#include "models/blocks/dit_blocks.h"
#include "models/checkpoint/config_reader.h"
#include "models/image/image_registry.h"

namespace redline {
namespace {

struct Sd3Config {
  DitShape shape;
  int64_t in_channels = 0, out_channels = 0, num_layers = 0, patch = 0;
  int64_t text_width = 0, pooled_width = 0;
  int64_t sample_size = 0, max_positions = 0;  ///< max_positions: side of the position table
  bool qk_norm = false;
  std::vector<bool> is_dual;  ///< [num_layers]
};

Result<Sd3Config> read_sd3_config(const nlohmann::json& json) {
  constexpr int64_t kMaxLayers = 1000, kMaxWidth = int64_t{1} << 20;
  ConfigReader r(json);
  Sd3Config c;
  c.sample_size = r.integer("sample_size", 1, 1 << 14, 128);
  c.patch = r.integer("patch_size", 1, 16, 2);
  c.in_channels = r.integer("in_channels", 1, 1024, 16);
  c.out_channels = r.integer("out_channels", 1, 1024, 16);
  c.num_layers = r.integer("num_layers", 1, kMaxLayers, 18);
  c.shape.head_dim = r.integer("attention_head_dim", 2, 512, 64);
  c.shape.num_heads = r.integer("num_attention_heads", 1, 1024, 18);
  c.text_width = r.integer("joint_attention_dim", 1, kMaxWidth, 4096);
  c.pooled_width = r.integer("pooled_projection_dim", 1, kMaxWidth, 2048);
  c.max_positions = r.integer("pos_embed_max_size", 1, 1 << 14, 96);
  const int64_t text_stream = r.integer("caption_projection_dim", 1, kMaxWidth, 1152);
  const std::string norm = r.text("qk_norm", "");
  REDLINE_TRY(r.status());
  if (text_stream != c.shape.width())
    return invalid_argument("config: caption_projection_dim is {}, {} heads of {} make {}", text_stream,
                            c.shape.num_heads, c.shape.head_dim, c.shape.width());
  if (c.shape.width() % 4 != 0)
    return invalid_argument("config: {} columns are not a multiple of 4, as sines and cosines of two axes need",
                            c.shape.width());
  if (!norm.empty() && norm != "rms_norm") return unsupported("config: qk_norm \"{}\"; known is rms_norm", norm);
  c.qk_norm = !norm.empty();
  c.is_dual.resize(static_cast<size_t>(c.num_layers));
  if (const auto dual = json.find("dual_attention_layers"); dual != json.end() && !dual->is_null()) {
    if (!dual->is_array()) return invalid_argument("config: dual_attention_layers must be a list of layers");
    for (const auto& layer : *dual) {
      if (!layer.is_number_integer() || layer.get<int64_t>() < 0 || layer.get<int64_t>() >= c.num_layers)
        return invalid_argument("config: dual_attention_layers must hold numbers of the {} layers", c.num_layers);
      c.is_dual[layer.get<size_t>()] = true;
    }
  }
  return c;
}

struct Sd3Streams {
  Value image, text;  ///< no text after the last block
};

class Sd3Builder : public DitBuilder {
 public:
  Sd3Builder(GraphBuilder& g, WeightReader& w, const Sd3Config& c) : DitBuilder(g, w, c.shape), c_(c) {}

  /// Adds silu of the sum of the embeddings of timestep and pooled text: [batch, width].
  Value conditioning() {
    const Value time = embed_number("timestep", "time_text_embed.timestep_embedder");
    const Value pooled = g_.input("pooled", DType::kF32, {kBatch, c_.pooled_width});
    const Value sum = add(g_, time, embed(pooled, "time_text_embed.text_embedder", c_.pooled_width));
    return activation(g_, sum, Activation::kSilu);
  }

  void blocks(Sd3Streams& s, int64_t begin, int64_t end, Value conditioning) {
    for (int64_t i = begin; i < end; ++i) block(s, i, conditioning);
  }

  /// Adds the image input of the first block's attention.
  Value first_modulated(Value image, Value conditioning) {
    const int64_t parts = c_.is_dual[0] ? 9 : 6;
    const Value table = project(conditioning, "transformer_blocks.0.norm1.linear", parts * width(), width());
    return modulated(image, table, 0, 1, kImage);
  }

 private:
  /// Adds queries or keys, with their norm if the model has it.
  Value normed_heads(Value x, const std::string& name, const std::string& norm) {
    const Value y = project(x, name, width(), width());
    if (!c_.qk_norm) return y;
    g_.set_scope(norm);
    return rms_norm(g_, y, w_.take(norm + ".weight", {shape_.head_dim}), {shape_.eps});
  }
  /// Adds the self attention of the image.
  Value attend_image(Value x, const std::string& scope) {
    const Value q = normed_heads(x, scope + "to_q", scope + "norm_q"),
                k = normed_heads(x, scope + "to_k", scope + "norm_k");
    const Value v = project(x, scope + "to_v", width(), width());
    g_.set_scope(scope);
    const Value keys = pack_kv(g_, {{k, v, kImage}}, kBatch, shape_.num_heads, shape_.head_dim);
    return joint_attention(g_, q, kBatch, kImage, keys, attention());
  }

  void block(Sd3Streams& s, int64_t layer, Value conditioning) {
    const std::string scope = fmt::format("transformer_blocks.{}.", layer), attn = scope + "attn.";
    const bool is_last = layer + 1 == c_.num_layers, is_dual = c_.is_dual[static_cast<size_t>(layer)];
    const int64_t D = width();
    // Parts: shift, scale, gate of attention; of the feed-forward; of the second attention. The last block's text,
    // which only provides keys and values, has scale and shift.
    const Value image_table = project(conditioning, scope + "norm1.linear", (is_dual ? 9 : 6) * D, D);
    const Value text_table = project(conditioning, scope + "norm1_context.linear", (is_last ? 2 : 6) * D, D);
    g_.set_scope(scope + "norm1");
    const Value image = modulated(s.image, image_table, 0, 1, kImage);
    const Value image2 = is_dual ? modulated(s.image, image_table, 6, 7, kImage) : Value{};
    g_.set_scope(scope + "norm1_context");
    const Value text =
        is_last ? modulated(s.text, text_table, 1, 0, kText) : modulated(s.text, text_table, 0, 1, kText);

    const Value image_q = normed_heads(image, attn + "to_q", attn + "norm_q");
    const Value image_k = normed_heads(image, attn + "to_k", attn + "norm_k");
    const Value image_v = project(image, attn + "to_v", D, D);
    const Value text_k = normed_heads(text, attn + "add_k_proj", attn + "norm_added_k");
    const Value text_v = project(text, attn + "add_v_proj", D, D);
    g_.set_scope(scope + "attn");
    const Value keys =
        pack_kv(g_, {{image_k, image_v, kImage}, {text_k, text_v, kText}}, kBatch, shape_.num_heads, shape_.head_dim);
    const Value image_seen = joint_attention(g_, image_q, kBatch, kImage, keys, attention());
    s.image = gated(s.image, project(image_seen, attn + "to_out.0", D, D), image_table, 2, kImage);
    if (is_dual) {
      const Value seen = attend_image(image2, scope + "attn2.");
      s.image = gated(s.image, project(seen, scope + "attn2.to_out.0", D, D), image_table, 8, kImage);
    }
    s.image = feed_forward(s.image, image_table, kImage, scope + "norm2", scope + "ff");

    if (is_last) {
      // Checkpoints have text queries of the last block, which are not used.
      for (const char* name : {"add_q_proj.weight", "add_q_proj.bias", "norm_added_q.weight"}) w_.ignore(attn + name);
      s.text = {};
      return;
    }
    const Value text_q = normed_heads(text, attn + "add_q_proj", attn + "norm_added_q");
    g_.set_scope(scope + "attn");
    const Value text_seen = joint_attention(g_, text_q, kBatch, kText, keys, attention());
    s.text = gated(s.text, project(text_seen, attn + "to_add_out", D, D), text_table, 2, kText);
    s.text = feed_forward(s.text, text_table, kText, scope + "norm2_context", scope + "ff_context");
  }

  const Sd3Config& c_;
};

/// Returns the center of the checkpoint's square position table.
Result<std::vector<float>> crop_positions(const Sd3Config& c, const WeightSource& table, int64_t height,
                                          int64_t width) {
  const int64_t most = c.max_positions, D = c.shape.width();
  if (height > most || width > most)
    return invalid_argument(
        "{} x {} tokens are more than the {} x {} that the network has positions for: at most {} "
        "latent pixels each way",
        height, width, most, most, most * c.patch);
  if (!table.view.data) {  // random weights
    const auto all = sincos_positions(D, most, most, c.sample_size / c.patch, 1);
    std::vector<float> rows;
    for (int64_t y = 0; y < height; ++y) {
      const auto from = all.begin() + (((most - height) / 2 + y) * most + (most - width) / 2) * D;
      rows.insert(rows.end(), from, from + width * D);
    }
    return rows;
  }
  std::vector<float> rows(static_cast<size_t>(height * width * D));
  for (int64_t y = 0; y < height; ++y) {
    const int64_t from = ((most - height) / 2 + y) * most + (most - width) / 2;
    unpack_row(table.view.dtype, static_cast<const uint8_t*>(table.view.data) + row_bytes(table.view.dtype, from * D),
               rows.data() + y * width * D, width * D);
  }
  return rows;
}

Result<DenoiserModel> build_sd3(const Checkpoint& checkpoint, BlockSplit blocks) {
  REDLINE_ASSIGN(const Sd3Config c, read_sd3_config(checkpoint.config));
  const BlockSplit parts = blocks.within(c.num_layers);
  const int64_t split = parts.front, tail = c.num_layers - parts.tail, D = c.shape.width();
  DenoiserModel model;
  model.family = "sd3";
  model.patch = c.patch;
  model.latent_channels = c.in_channels;
  model.in_channels = c.in_channels * c.patch * c.patch;
  model.out_channels = c.out_channels * c.patch * c.patch;
  model.channels_last_patch = true;
  model.idle_modules = {fmt::format("transformer_blocks.{}.attn.add_q_proj", c.num_layers - 1)};
  model.text_width = c.text_width;
  model.pooled_width = c.pooled_width;

  DenoiserGraphs graphs("sd3", checkpoint);
  WeightSource table;
  if (!checkpoint.make_tensor) {
    REDLINE_ASSIGN(table, graphs.front_weights.find("pos_embed.pos_embed", {1, c.max_positions * c.max_positions, D}));
    // Positions are cut out of the table in every run, so a table in the caller's memory is copied.
    if (!table.file) {
      const std::string_view bytes(static_cast<const char*>(table.view.data), static_cast<size_t>(table.view.bytes()));
      table.file = MappedFile::from_bytes("pos_embed", bytes);
      table.view.data = table.file->data();
    }
  }
  model.position_table = [c, table](const TokenGrid& tokens) {
    return crop_positions(c, table, tokens.height, tokens.width);
  };
  {
    GraphBuilder& g = graphs.front;
    Sd3Builder b(g, graphs.front_weights, c);
    const Value conditioning = b.conditioning();
    const Value text = g.input("text", DType::kF32, {b.kBatch * b.kText, c.text_width});
    Sd3Streams s = {b.embed_patches(c.in_channels, c.patch), b.project(text, "context_embedder", D, c.text_width)};
    const Value embedded = s.image;
    if (split > 0) g.output("embedded", embedded);  // else it is "image"
    b.blocks(s, 0, split, conditioning);
    g.output("image", s.image);
    g.output("text", s.text);
    g.output("carry.conditioning", conditioning);
    if (split == 0 || parts.modulated) g.output("modulated", b.first_modulated(embedded, conditioning));
  }
  {
    GraphBuilder& g = graphs.middle;
    Sd3Builder b(g, graphs.middle_weights, c);
    const Value conditioning = g.input("carry.conditioning", DType::kF32, {b.kBatch, D});
    Sd3Streams s = {g.input("image", DType::kF32, {b.kBatch * b.kImage, D}),
                    g.input("text", DType::kF32, {b.kBatch * b.kText, D})};
    b.blocks(s, split, tail, conditioning);
    g.output("image", s.image);
    if (tail < c.num_layers) g.output("text", s.text);
  }
  {
    GraphBuilder& g = graphs.tail;
    Sd3Builder b(g, graphs.tail_weights, c);
    const Value conditioning = g.input("carry.conditioning", DType::kF32, {b.kBatch, D});
    Value image = g.input("image", DType::kF32, {b.kBatch * b.kImage, D});
    if (tail < c.num_layers) {
      Sd3Streams s = {image, g.input("text", DType::kF32, {b.kBatch * b.kText, D})};
      b.blocks(s, tail, c.num_layers, conditioning);
      image = s.image;
    }
    const Value table_out = b.project(conditioning, "norm_out.linear", 2 * D, D);
    g.set_scope("norm_out");
    g.output("model_output",
             b.project(b.modulated(image, table_out, 1, 0, b.kImage), "proj_out", model.out_channels, D));
  }
  REDLINE_TRY(graphs.finish(model));
  return model;
}

// Returns the conditions: the hidden states of both CLIPs, concatenated and padded with zeros, then T5's tokens, or
// zeros in a pipeline without T5.
Result<PromptConditions> sd3_conditions(const PromptEncoders& encoders, const DenoiserModel& model,
                                        std::span<const std::string> prompts, int64_t text_tokens) {
  REDLINE_ASSIGN(PromptEncoder * clip_l, encoders.find("text_encoder"));
  REDLINE_ASSIGN(PromptEncoder * clip_g, encoders.find("text_encoder_2"));
  REDLINE_ASSIGN(const EncodedText l, clip_l->encode(prompts, 0, /*mask_padding=*/false));
  REDLINE_ASSIGN(const EncodedText g, clip_g->encode(prompts, 0, /*mask_padding=*/false));
  const int64_t width = model.text_width;
  if (l.tokens != g.tokens || l.width + g.width > width)
    return invalid_argument("the text encoders give {} tokens of {} and {} of {}; the transformer takes {} columns",
                            l.tokens, l.width, g.tokens, g.width, width);
  PromptConditions c;
  c.prompts = l.prompts;
  c.values["pooled"] =
      concat_columns(l.pooled, l.pooled_width, g.pooled, g.pooled_width, l.pooled_width + g.pooled_width);
  const std::vector<float> clip = concat_columns(l.penultimate, l.width, g.penultimate, g.width, width);
  EncodedText t5;
  if (encoders.has("text_encoder_3")) {
    REDLINE_ASSIGN(PromptEncoder * third, encoders.find("text_encoder_3"));
    REDLINE_ASSIGN(t5, third->encode(prompts, text_tokens, /*mask_padding=*/false));
    if (t5.width != width)
      return invalid_argument("text_encoder_3 gives {} columns, the transformer takes {}", t5.width, width);
    c.add_warnings(t5);
  } else {
    t5.tokens = text_tokens;
    t5.hidden.resize(static_cast<size_t>(c.prompts * text_tokens * width));
    c.add_warnings(g);
  }
  c.tokens = l.tokens + t5.tokens;
  std::vector<float>& text = c.values["text"];
  for (int64_t p = 0; p < c.prompts; ++p) {
    text.insert(text.end(), clip.begin() + p * l.tokens * width, clip.begin() + (p + 1) * l.tokens * width);
    text.insert(text.end(), t5.hidden.begin() + p * t5.tokens * width, t5.hidden.begin() + (p + 1) * t5.tokens * width);
  }
  return c;
}

/// Returns the location of a module of SD3 in the original files, such as rows of "joint_blocks.3.x_block.attn.qkv".
std::vector<StoredModule> sd3_stored_modules(const std::string& module) {
  struct Row {
    std::string_view diffusers, stored;
    int64_t first = 0;
    bool swaps_halves = false;
  };
  static constexpr Row kTop[] = {{"pos_embed.proj", "x_embedder.proj"},
                                 {"time_text_embed.timestep_embedder.linear_1", "t_embedder.mlp.0"},
                                 {"time_text_embed.timestep_embedder.linear_2", "t_embedder.mlp.2"},
                                 {"time_text_embed.text_embedder.linear_1", "y_embedder.mlp.0"},
                                 {"time_text_embed.text_embedder.linear_2", "y_embedder.mlp.2"},
                                 {"norm_out.linear", "final_layer.adaLN_modulation.1", 0, true},
                                 {"proj_out", "final_layer.linear"}};
  static constexpr Row kBlock[] = {{"attn.to_q", "x_block.attn.qkv", 0},
                                   {"attn.to_k", "x_block.attn.qkv", 1},
                                   {"attn.to_v", "x_block.attn.qkv", 2},
                                   {"attn.to_out.0", "x_block.attn.proj"},
                                   {"attn2.to_q", "x_block.attn2.qkv", 0},
                                   {"attn2.to_k", "x_block.attn2.qkv", 1},
                                   {"attn2.to_v", "x_block.attn2.qkv", 2},
                                   {"attn2.to_out.0", "x_block.attn2.proj"},
                                   {"attn.add_q_proj", "context_block.attn.qkv", 0},
                                   {"attn.add_k_proj", "context_block.attn.qkv", 1},
                                   {"attn.add_v_proj", "context_block.attn.qkv", 2},
                                   {"attn.to_add_out", "context_block.attn.proj"},
                                   {"norm1.linear", "x_block.adaLN_modulation.1"},
                                   // The last block has two parts, of which diffusers swaps the order.
                                   {"norm1_context.linear", "context_block.adaLN_modulation.1", 0, true},
                                   {"ff.net.0.proj", "x_block.mlp.fc1"},
                                   {"ff.net.2", "x_block.mlp.fc2"},
                                   {"ff_context.net.0.proj", "context_block.mlp.fc1"},
                                   {"ff_context.net.2", "context_block.mlp.fc2"}};
  const auto find = [](std::span<const Row> rows, std::string_view name,
                       std::string_view scope) -> std::vector<StoredModule> {
    for (const Row& row : rows)
      if (row.diffusers == name) return {{fmt::format("{}{}", scope, row.stored), row.first, 1, row.swaps_halves}};
    return {};
  };
  constexpr std::string_view kBlocks = "transformer_blocks.";
  if (!module.starts_with(kBlocks)) return find(kTop, module, "");
  const size_t dot = module.find('.', kBlocks.size());
  if (dot == std::string::npos) return {};
  const std::string scope = fmt::format("joint_blocks.{}.", module.substr(kBlocks.size(), dot - kBlocks.size()));
  return find(kBlock, std::string_view(module).substr(dot + 1), scope);
}

constexpr std::string_view kSd3DenoiserClasses[] = {"SD3Transformer2DModel"};
constexpr std::string_view kSd3PipelineClasses[] = {"StableDiffusion3Pipeline", "StableDiffusion3Img2ImgPipeline",
                                                    "StableDiffusion3InpaintPipeline"};

}  // namespace

extern const DenoiserRow kSd3Denoiser = {
    .class_names = kSd3DenoiserClasses,
    .build = build_sd3,
    .adapter_names = sd3_stored_modules,
};

extern const PipelineRow kSd3Pipeline = {
    .class_names = kSd3PipelineClasses,
    .denoiser_component = "transformer",
    .denoiser_class = "SD3Transformer2DModel",
    .condition = sd3_conditions,
    .side = 1024,
    .num_inference_steps = 28,
    .guidance_scale = 7,
    .max_sequence_length = 256,
};

}  // namespace redline
