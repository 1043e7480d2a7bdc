// Phi-1, 1.5 and 2: attention and feed-forward in parallel with one layer norm, biases everywhere, rope on a part of
// each head (Li et al. 2023, arXiv:2309.05463).
#include "graph/ops/add.h"
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

/// Adds a layer norm of each head; all heads have the same weight and bias.
Value norm_of_phi_heads(LayerBuilder& b, Value heads, bool is_query) {
  if (!heads.valid()) return heads;  // the projection does not fit: the graph keeps its error
  const DecoderConfig& c = b.config();
  const std::string name = b.scope() + (is_query ? "self_attn.q_layernorm" : "self_attn.k_layernorm");
  b.graph().set_scope(name);
  const auto count = static_cast<size_t>(is_query ? c.num_heads : c.num_kv_heads);
  const auto repeated = [&](const char* kind) {
    return b.weights().take_joined(std::vector<std::string>(count, name + kind), c.head_dim, name + ".heads" + kind);
  };
  const Value weight = repeated(".weight"), bias = repeated(".bias");
  return head_layer_norm(b, heads, weight, bias);
}

Status set_phi_keys(const Checkpoint& checkpoint, const DecoderConfig&, const GgufKeys&) {
  ConfigReader r(checkpoint.config);
  if (r.boolean("qk_layernorm", false)) return unsupported("GGUF has no place for qk_layernorm of phi");
  return r.status();
}

Result<LanguageModel> build_phi(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  const nlohmann::json config =
      checkpoint.gguf_names ? checkpoint.config : with_partial_rotary_factor(checkpoint.config, 0.5);
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(config, {.max_positions = 2048,
                                                               .activation = Activation::kGeluTanh,
                                                               .any_activation = true,
                                                               .norm_eps = "layer_norm_eps",
                                                               .norm_eps_value = 1e-5}));
  c.norm = {.layer = true, .bias = true};
  c.names.norm = "model.final_layernorm";
  c.has_head_bias = true;
  ConfigReader r(config);
  const bool norms_heads = r.boolean("qk_layernorm", false);
  REDLINE_TRY(r.status());
  SelfAttention attention = {.qkv_bias = true, .output_bias = true, .output = "self_attn.dense"};
  if (norms_heads) attention.own_norm = norm_of_phi_heads;
  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    x = add(b.graph(), x, self_attention(b, h, attention));
    return add(b.graph(), x, b.plain_mlp(h, "mlp.fc1", "mlp.fc2", true));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("phi", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kPhiGgufTop[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.final_layernorm"}, {"output", "lm_head"}};
constexpr GgufName kPhiGgufLayer[] = {
    {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"},     {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},   {"attn_output", "self_attn.dense"}, {"ffn_up", "mlp.fc1"},
    {"ffn_down", "mlp.fc2"}};

}  // namespace

extern const ModelFamily kPhiFamily = {
    .model_type = "phi",
    .architecture = "PhiForCausalLM",
    .gguf = {.architecture = "phi2", .top = kPhiGgufTop, .layer = kPhiGgufLayer},
    .build = build_phi,
    .gguf_keys = set_phi_keys,
};

}  // namespace redline
