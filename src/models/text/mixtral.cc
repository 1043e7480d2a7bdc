// Mixtral: a Mistral whose MLP is a mixture of experts (Jiang et al. 2024, arXiv:2401.04088).
#include "models/blocks/moe.h"
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_mixtral(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config = with_rope_theta(checkpoint.config, 1e6);
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(config, {.num_kv_heads = 8, .max_positions = 131072, .norm_eps_value = 1e-5}));
  ConfigReader r(checkpoint.config);
  if (r.has("sliding_window")) c.window.assign(c.window.size(), r.integer("sliding_window", 1, int64_t{1} << 40));
  const MoeConfig moe = read_moe_config(r, true);
  REDLINE_TRY(r.status());
  const MoeNames names = {
      .router = "block_sparse_moe.gate", .experts = "block_sparse_moe.experts", .gate = "w1", .up = "w3", .down = "w2"};
  const LayerParts parts = {.mixer = {},
                            .mlp = [&](LayerBuilder& b, int64_t, Value x) { return moe_block(b, x, moe, names); }};
  return build_llama_decoder("mixtral", std::move(c), checkpoint, outputs, {}, parts);
}

Status set_mixtral_keys(const Checkpoint& checkpoint, const DecoderConfig&, const GgufKeys& set) {
  ConfigReader r(checkpoint.config);
  const MoeConfig moe = read_moe_config(r, true);
  set.integer("expert_count", moe.router.num_experts);
  set.integer("expert_used_count", moe.router.experts_per_token);
  return r.status();
}

constexpr GgufName kGgufExpertsOfMixtral[] = {{"ffn_gate_inp", "block_sparse_moe.gate"},
                                              {"ffn_gate_exps", "block_sparse_moe.experts.w1"},
                                              {"ffn_up_exps", "block_sparse_moe.experts.w3"},
                                              {"ffn_down_exps", "block_sparse_moe.experts.w2"}};

}  // namespace

extern const ModelFamily kMixtralFamily = {
    .model_type = "mixtral",
    .architecture = "MixtralForCausalLM",
    .gguf = {.architecture = "llama",
             .top = kLlamaGgufTop,
             .layer = kLlamaGgufLayer,
             .more_layer = kGgufExpertsOfMixtral,
             .interleaves_rope = true,
             .window_every = 1,
             .has_experts = true,
             .quantize = {.is_large_at_80_layers = true},
             .read_keys = read_moe_keys},
    .build = build_mixtral,
    .gguf_parts = moe_gguf_parts,
    .gguf_keys = set_mixtral_keys,
};

}  // namespace redline
