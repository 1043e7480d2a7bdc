// Command R of Cohere: attention and feed-forward of a layer in parallel, layer norm without bias, scaled logits, rope
// with neighbouring elements as pairs.
#include <cstring>

#include "graph/ops/add.h"
#include "models/blocks/rope_config.h"
#include "models/checkpoint/gguf_keys.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Adds the norms of Command R+: a layer norm of each head. Its weight [heads, head_dim] has the order of the file, in
/// which neighbouring elements rotate together.
Value norm_of_heads(LayerBuilder& b, Value heads, bool is_query) {
  const DecoderConfig& c = b.config();
  const int64_t count = is_query ? c.num_heads : c.num_kv_heads, d = c.head_dim;
  const std::string name = b.scope() + (is_query ? "self_attn.q_norm" : "self_attn.k_norm");
  b.graph().set_scope(name);
  const auto gather = [=, element = undo_interleave(d, d)](const TensorView& from, uint8_t* to) {
    const auto size = static_cast<size_t>(row_bytes(from.dtype, 1));
    for (int64_t n = 0; n < count * d; ++n)
      std::memcpy(to + static_cast<size_t>(n) * size,
                  static_cast<const uint8_t*>(from.data) + static_cast<size_t>(element(n)) * size, size);
  };
  return head_layer_norm(b, heads,
                         b.weights().take_made(name + ".weight", name + ".heads", {count, d}, {count * d}, gather), {});
}

/// Adds attention and feed-forward in parallel.
Value cohere_layer(LayerBuilder& b, Value x, bool bias, bool norms_heads = false) {
  const Value h = b.norm(x, "input_layernorm", b.config().hidden_size);
  SelfAttention attention = {.qkv_bias = bias, .output_bias = bias};
  if (norms_heads) attention.own_norm = norm_of_heads;
  x = add(b.graph(), x, self_attention(b, h, attention));
  return add(b.graph(), x, b.gated_mlp(h, false));
}

Result<LanguageModel> build_cohere(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(
      DecoderConfig c,
      read_decoder_config(with_rope_theta(checkpoint.config, 5e5),
                          {.max_positions = 8192, .tied = true, .norm_eps = "layer_norm_eps", .norm_eps_value = 1e-5}));
  c.norm.layer = true;
  c.interleaved_rope = true;
  ConfigReader r(checkpoint.config);
  c.logit_scale = static_cast<float>(r.number("logit_scale", 1e-6, 1e6, 0.0625));
  const bool bias = r.boolean("attention_bias", false);
  const bool norms_heads = checkpoint.gguf_names
                               ? checkpoint.tensors.count("model.layers.0.self_attn.q_norm.weight") > 0
                               : r.boolean("use_qk_norm", false);
  REDLINE_TRY(r.status());

  auto layer = [&](LayerBuilder& b, Value x) { return cohere_layer(b, x, bias, norms_heads); };
  REDLINE_ASSIGN(Graph graph, build_decoder("cohere", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

/// Command R7B and Command A: windows in three of four layers, and rope in these layers only.
Result<LanguageModel> build_cohere2(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(
      DecoderConfig c,
      read_decoder_config(checkpoint.config,
                          {.max_positions = 8192, .tied = true, .norm_eps = "layer_norm_eps", .norm_eps_value = 1e-5}));
  c.norm.layer = true;
  c.interleaved_rope = true;
  ConfigReader r(checkpoint.config);
  c.logit_scale = static_cast<float>(r.number("logit_scale", 1e-6, 1e6, 0.0625));
  const bool bias = r.boolean("attention_bias", false);
  const int64_t window = r.integer("sliding_window", 1, int64_t{1} << 40, 4096),
                pattern = r.integer("sliding_window_pattern", 1, 1000, 4);
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(c.window, windows_of_layers(checkpoint.config, c.num_layers, window,
                                             [&](int64_t layer) { return (layer + 1) % pattern != 0; }));
  for (const int64_t own : c.window) c.unrotated.push_back(own == 0);
  auto layer = [&](LayerBuilder& b, Value x) { return cohere_layer(b, x, bias); };
  REDLINE_ASSIGN(Graph graph, build_decoder("cohere2", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kCohereGgufNorms[] = {
    {"attn_norm", "input_layernorm"}, {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"}};

void cohere_gguf_numbers(const DecoderConfig& c, const ModelFamily::SetNumber& set) {
  set("logit_scale", double{c.logit_scale});
}

}  // namespace

extern const ModelFamily kCohereFamily = {
    .model_type = "cohere",
    .architecture = "CohereForCausalLM",
    .gguf = {.architecture = "command-r",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .more_layer = kCohereGgufNorms,
             .read_keys = [](GgufKeyReader& keys) { keys.number("logit_scale", "logit_scale"); }},
    .build = build_cohere,
    .gguf_numbers = cohere_gguf_numbers,
};

extern const ModelFamily kCohere2Family = {
    .model_type = "cohere2",
    .architecture = "Cohere2ForCausalLM",
    .gguf = {.architecture = "cohere2",
             .top = kLlamaGgufTop,
             .layer = kGgufProjections,
             .more_layer = kCohereGgufNorms,
             .window_every = 4,
             .read_keys = [](GgufKeyReader& keys) { keys.number("logit_scale", "logit_scale"); }},
    .build = build_cohere2,
    .gguf_numbers = cohere_gguf_numbers,
};

}  // namespace redline
