// Phi-3 and Phi-4: a Llama whose queries, keys and values are one projection, gate and up another, with long rope
// (Abdin et al. 2024, arXiv:2404.14219).
#include "graph/ops/add.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_phi3(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(checkpoint.config, {.max_positions = 4096, .norm_eps_value = 1e-5}));
  ConfigReader r(checkpoint.config);
  if (r.has("sliding_window")) c.window.assign(c.window.size(), r.integer("sliding_window", 1, int64_t{1} << 40));
  REDLINE_TRY(r.status());

  auto layer = [&](LayerBuilder& b, Value x) {
    const Value h = b.norm(x, "input_layernorm", c.hidden_size);
    const int64_t q_size = c.num_heads * c.head_dim, kv_size = c.num_kv_heads * c.head_dim;
    const auto part = [&](const char* name, int64_t begin, int64_t rows) {
      return b.project_part(h, "self_attn.qkv_proj", name, q_size + 2 * kv_size, begin, rows, c.hidden_size, false);
    };
    const Value q = b.rotate(part("self_attn.q_proj", 0, q_size));
    const Value k = b.rotate(part("self_attn.k_proj", q_size, kv_size));
    const Value v = part("self_attn.v_proj", q_size + kv_size, kv_size);
    x = add(b.graph(), x, b.project(b.attend(q, k, v), "self_attn.o_proj", c.hidden_size, q_size, false));
    return add(b.graph(), x, b.joint_gated_mlp(b.norm(x, "post_attention_layernorm", c.hidden_size)));
  };
  REDLINE_ASSIGN(Graph graph, build_decoder("phi3", c, checkpoint, outputs, layer));
  return LanguageModel{std::move(c), std::move(graph)};
}

constexpr GgufName kPhi3GgufLayer[] = {{"attn_norm", "input_layernorm"},    {"attn_qkv", "self_attn.qkv_proj"},
                                       {"attn_output", "self_attn.o_proj"}, {"ffn_norm", "post_attention_layernorm"},
                                       {"ffn_up", "mlp.gate_up_proj"},      {"ffn_down", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily kPhi3Family = {
    .model_type = "phi3",
    .architecture = "Phi3ForCausalLM",
    .gguf = {.architecture = "phi3", .top = kLlamaGgufTop, .layer = kPhi3GgufLayer, .window_every = 1},
    .build = build_phi3,
};

}  // namespace redline
