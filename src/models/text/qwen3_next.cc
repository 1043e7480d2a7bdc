// Qwen3-Next: gated delta networks, gated attention in every fourth layer, and a mixture of experts with a gated expert
// of all tokens (Qwen3-Next-80B-A3B; the delta rule: arXiv:2412.06464).
#include "models/blocks/gated_delta.h"
#include "models/blocks/moe.h"
#include "models/text/llama.h"

namespace redline {
namespace {

MoeConfig read_qwen3_next_experts(ConfigReader& r) {
  MoeConfig moe = read_moe_config(r, true);
  moe.shared_intermediate_size = r.integer("shared_expert_intermediate_size", 1, int64_t{1} << 24, 512);
  moe.has_shared_gate = true;
  return moe;
}

Result<LanguageModel> build_qwen3_next(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_gated_delta_decoder(checkpoint));
  REDLINE_ASSIGN(const GatedDeltaConfig delta, read_gated_delta_config(checkpoint, c.num_layers));
  ConfigReader r(checkpoint.config);
  const MoeConfig moe = read_qwen3_next_experts(r);
  REDLINE_TRY(r.status());
  REDLINE_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(checkpoint.config, c.num_layers));
  LayerParts parts;
  parts.mixer = [&](LayerBuilder& b, int64_t layer, Value x) {
    if (layer == 0) ignore_prediction_heads(b.weights(), checkpoint);
    return gated_delta_mixer(b, x, delta);
  };
  parts.mlp = [&](LayerBuilder& b, int64_t layer, Value x) {
    // GGUF files do not state which layers have experts.
    const bool is_sparse = checkpoint.gguf_names ? b.weights().has(b.scope() + "mlp.gate.weight")
                                                 : bool{sparse[static_cast<size_t>(layer)]};
    return is_sparse ? moe_block(b, x, moe) : b.gated_mlp(x, false);
  };
  return build_llama_decoder("qwen3_next", std::move(c), checkpoint, outputs, {}, parts);
}

Status set_qwen3_next_keys(const Checkpoint& checkpoint, const DecoderConfig& c, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  const MoeConfig moe = read_qwen3_next_experts(r);
  REDLINE_TRY(r.status());
  if (!moe.router.normalizes) return unsupported("GGUF has no key for norm_topk_prob of qwen3_next");
  set_moe_keys(moe, set);
  return set_gated_delta_keys(checkpoint, c, set);
}

}  // namespace

extern const ModelFamily kQwen3NextFamily = {
    .model_type = "qwen3_next",
    .architecture = "Qwen3NextForCausalLM",
    .gguf = {.architecture = "qwen3next",
             .top = kLlamaGgufTop,
             .layer = kGatedDeltaGgufLayer,
             .more_layer = kGgufExperts,
             .is_recurrent = true,
             .has_experts = true,
             .read_keys = read_gated_delta_keys},
    .build = build_qwen3_next,
    .gguf_parts = [](const Checkpoint& checkpoint, const DecoderConfig& c,
                     std::string_view name) { return gated_delta_gguf_parts(checkpoint, c, name, false); },
    .gguf_keys = set_qwen3_next_keys,
};

}  // namespace redline
