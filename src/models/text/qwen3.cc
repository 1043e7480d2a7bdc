// Qwen3: RMS norm of queries and keys per head before rope (Yang et al. 2025, arXiv:2505.09388).
#include "graph/ops/add.h"
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_with_head_norms(const char* name, const nlohmann::json& config,
                                            const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.head_dim = 128, .max_positions = 32768}));
  REDLINE_ASSIGN(c.window, read_layer_windows(config, c.num_layers));
  ConfigReader r(config);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());

  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    x = add(b.graph(), x, self_attention(b, h, {.qkv_bias = bias, .output_bias = bias, .norm = QkNorm::kHead}));
    return add(b.graph(), x, b.gated_mlp(b.norm(x, "post_attention_layernorm", c.hidden_size), false));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder(name, c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

Result<LanguageModel> build_qwen3(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  return build_with_head_norms("qwen3", checkpoint.config, checkpoint, outputs);
}

/// The text part of Qwen3-VL: without images the three axes of its rope are one.
nlohmann::json qwen3_vl_common_config(const nlohmann::json& config) { return with_rope_theta(config, 5e5); }

Result<LanguageModel> build_qwen3_vl(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  return build_with_head_norms("qwen3_vl",
                               checkpoint.gguf_names ? checkpoint.config : qwen3_vl_common_config(checkpoint.config),
                               checkpoint, outputs);
}

// "cls.output": rows of the output matrix, in files of rerankers.
constexpr GgufName kQwen3GgufTop[] = {{"token_embd", "model.embed_tokens"},
                                      {"output_norm", "model.norm"},
                                      {"output", "lm_head"},
                                      {"cls.output", "score"}};

}  // namespace

extern const ModelFamily kQwen3Family = {
    .model_type = "qwen3",
    .architecture = "Qwen3ForCausalLM",
    .gguf = {.architecture = "qwen3", .top = kQwen3GgufTop, .layer = kLlamaGgufLayer, .more_layer = kGgufHeadNorms},
    .build = build_qwen3,
};

extern const ModelFamily kQwen3VlFamily = {
    .model_type = "qwen3_vl_text",
    .architecture = "Qwen3VLForConditionalGeneration",
    .gguf = {.architecture = "qwen3vl",
             .top = kQwen3GgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kGgufHeadNorms,
             .export_architecture = "qwen3"},
    .build = build_qwen3_vl,
    .common_config = qwen3_vl_common_config,
};

}  // namespace redline
