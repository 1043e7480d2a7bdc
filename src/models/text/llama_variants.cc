// Variations of Llama by settings: Seed-OSS (a bias on queries, keys and values), Helium (rope with neighbouring
// elements as pairs), ERNIE 4.5 (the same, with biases by one setting) and CWM (windows in three of four layers).
#include "models/blocks/rope_config.h"
#include "models/text/llama.h"

namespace redline {
namespace {

Result<LanguageModel> build_seed_oss(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(checkpoint.config, {.head_dim = 128, .num_kv_heads = 8, .max_positions = 524288}));
  ConfigReader r(checkpoint.config);
  const LlamaBiases biases = {.qkv = r.boolean("attention_bias", true),
                              .output = r.boolean("attention_out_bias", false),
                              .mlp = r.boolean("mlp_bias", false)};
  REDLINE_TRY(r.status());
  return build_llama_decoder("seed_oss", std::move(c), checkpoint, outputs, biases);
}

Result<LanguageModel> build_helium(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(with_rope_theta(checkpoint.config, 1e5),
                                     {.head_dim = 128, .max_positions = 4096, .norm_eps_value = 1e-8}));
  c.interleaved_rope = true;
  ConfigReader r(checkpoint.config);
  const LlamaBiases biases = {.qkv = r.boolean("attention_bias", false), .mlp = r.boolean("mlp_bias", false)};
  REDLINE_TRY(r.status());
  return build_llama_decoder("helium", std::move(c), checkpoint, outputs, biases);
}

Result<LanguageModel> build_ernie4_5(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(
      DecoderConfig c,
      read_decoder_config(
          with_rope_theta(checkpoint.config, 5e5),
          {.head_dim = 128, .num_kv_heads = 2, .max_positions = 131072, .tied = true, .norm_eps_value = 1e-5}));
  c.interleaved_rope = true;
  ConfigReader r(checkpoint.config);
  const bool bias = r.boolean("use_bias", false);
  REDLINE_TRY(r.status());
  return build_llama_decoder("ernie4_5", std::move(c), checkpoint, outputs, {bias, bias, bias});
}

Result<LanguageModel> build_cwm(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  nlohmann::json config = with_rope_theta(checkpoint.config, 1e6);
  if (!config.contains("rope_parameters") && !config.contains("rope_scaling"))
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 16.0},
                              {"high_freq_factor", 4.0},
                              {"low_freq_factor", 1.0},
                              {"original_max_position_embeddings", 8192}};
  REDLINE_ASSIGN(DecoderConfig c,
                 read_decoder_config(
                     config, {.head_dim = 128, .num_kv_heads = 8, .max_positions = 131072, .norm_eps_value = 1e-5}));
  ConfigReader r(config);
  const bool is_null = config.contains("sliding_window") && !r.has("sliding_window");
  const int64_t window = is_null ? 0 : r.integer("sliding_window", 1, int64_t{1} << 40, 8192);
  const bool mlp_bias = r.boolean("mlp_bias", false);
  REDLINE_TRY(r.status());
  constexpr int64_t kFullEvery = 4;
  REDLINE_ASSIGN(
      c.window, windows_of_layers(config, c.num_layers, window, [](int64_t layer) { return layer % kFullEvery != 0; }));
  return build_llama_decoder("cwm", std::move(c), checkpoint, outputs, {.mlp = mlp_bias});
}

constexpr GgufName kSeedOssGgufLayer[] = {
    {"attn_norm", "input_layernorm"},    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},      {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"}, {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

}  // namespace

extern const ModelFamily kSeedOssFamily = {
    .model_type = "seed_oss",
    .architecture = "SeedOssForCausalLM",
    .gguf = {.architecture = "seed_oss", .top = kLlamaGgufTop, .layer = kSeedOssGgufLayer},
    .build = build_seed_oss,
};

extern const ModelFamily kHeliumFamily = {
    .model_type = "helium",
    .architecture = "HeliumForCausalLM",
    .gguf = {},
    .build = build_helium,
};

extern const ModelFamily kErnie45Family = {
    .model_type = "ernie4_5",
    .architecture = "Ernie4_5ForCausalLM",
    .gguf = {.architecture = "ernie4_5", .top = kLlamaGgufTop, .layer = kLlamaGgufLayer},
    .build = build_ernie4_5,
};

extern const ModelFamily kCwmFamily = {
    .model_type = "cwm",
    .architecture = "CwmForCausalLM",
    .gguf = {},
    .build = build_cwm,
};

}  // namespace redline
