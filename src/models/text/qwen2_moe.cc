// Qwen2-MoE: a Qwen2 with a mixture of experts and a gated expert of all tokens in most layers (Qwen1.5-MoE-A2.7B,
// Qwen2-57B-A14B; Yang et al. 2024, arXiv:2407.10671).
#include "models/blocks/moe.h"
#include "models/text/llama.h"

namespace redline {
namespace {

MoeConfig read_qwen2_moe(ConfigReader& r) {
  MoeConfig moe = read_moe_config(r, false);
  moe.shared_intermediate_size = r.integer("shared_expert_intermediate_size", 1, int64_t{1} << 24);
  moe.has_shared_gate = true;
  return moe;
}

Result<LanguageModel> build_qwen2_moe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config, {.max_positions = 32768}));
  ConfigReader r(checkpoint.config);
  const MoeConfig moe = read_qwen2_moe(r);
  const bool bias = r.boolean("qkv_bias", true);
  if (r.boolean("use_sliding_window", false)) {
    // Without a list only the first layers alternate, which Redline does not support.
    if (!r.has("layer_types")) r.fail(unsupported("config: use_sliding_window of qwen2_moe without layer_types"));
    REDLINE_TRY(r.status());
    REDLINE_ASSIGN(c.window, read_layer_windows(checkpoint.config, c.num_layers));
  }
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(checkpoint.config, c.num_layers));
  const LayerParts parts = {.mixer = {}, .mlp = [&](LayerBuilder& b, int64_t layer, Value x) {
                              return sparse[static_cast<size_t>(layer)] ? moe_block(b, x, moe) : b.gated_mlp(x, false);
                            }};
  return build_llama_decoder("qwen2_moe", std::move(c), checkpoint, outputs, {.qkv = bias}, parts);
}

Status set_qwen2_moe_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  const MoeConfig moe = read_qwen2_moe(r);
  if (moe.router.normalizes) return unsupported("GGUF has no key for norm_topk_prob of qwen2_moe");
  set_moe_keys(moe, set);
  return expect_all_sparse(checkpoint, c, "qwen2_moe");
}

}  // namespace

extern const ModelFamily kQwen2MoeFamily = {
    .model_type = "qwen2_moe",
    .architecture = "Qwen2MoeForCausalLM",
    .gguf = {.architecture = "qwen2moe",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kGgufExperts,
             .has_experts = true,
             .read_keys = read_moe_keys},
    .build = build_qwen2_moe,
    .gguf_parts = moe_gguf_parts,
    .gguf_keys = set_qwen2_moe_keys,
};

}  // namespace redline
