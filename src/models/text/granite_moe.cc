// GraniteMoe and GraniteMoeShared: a Granite whose MLP is a mixture of experts, with or without an expert of all tokens
// (IBM 2024, granite-3.0-1b-a400m and granite-3.0-3b-a800m).
#include "models/text/granite.h"

namespace redline {

int64_t granite_num_experts(ConfigReader& r) {
  int64_t experts = 0;
  for (const char* key : {"num_local_experts", "num_experts"})
    if (r.has(key)) experts = r.integer(key, 0, 4096);
  return experts;
}

Result<std::optional<MoeConfig>> read_granite_moe(const Checkpoint& checkpoint) {
  ConfigReader r(checkpoint.config);
  const int64_t experts = granite_num_experts(r);
  REDLINE_TRY(r.status());
  if (experts == 0) return std::optional<MoeConfig>();
  // A softmax over the chosen logits equals the softmax over all logits, divided by the sum of the chosen weights.
  MoeConfig moe = read_moe_config(r, true);
  const char* shared = checkpoint.gguf_names ? "shared_expert_intermediate_size" : "shared_intermediate_size";
  moe.shared_intermediate_size = r.integer(shared, 0, int64_t{1} << 24, 0);
  REDLINE_TRY(r.status());
  return std::optional<MoeConfig>(moe);
}

Value granite_moe_block(LayerBuilder& b, Value x, const MoeConfig& moe) {
  static const MoeNames kOfFolders = {.router = "block_sparse_moe.router.layer",
                                      .experts = "block_sparse_moe",
                                      .joint = "input_linear.weight",
                                      .joint_down = "output_linear.weight",
                                      .shared_joint = "shared_mlp.input_linear",
                                      .shared_down = "shared_mlp.output_linear"};
  return b.weights().has(b.scope() + kOfFolders.router + ".weight") ? moe_block(b, x, moe, kOfFolders)
                                                                    : moe_block(b, x, moe);
}

void set_granite_moe_keys(const MoeConfig& moe, const GgufKeys& set) {
  set.integer("expert_count", moe.router.num_experts);
  set.integer("expert_used_count", moe.router.experts_per_token);
  if (moe.shared_intermediate_size > 0) set.integer("expert_shared_feed_forward_length", moe.shared_intermediate_size);
}

std::optional<std::vector<GgufForm>> granite_moe_gguf_parts(const Checkpoint& checkpoint, bool has_experts,
                                                            std::string_view name) {
  size_t at = name.find("block_sparse_moe.");
  const bool is_shared = at == std::string_view::npos;
  if (is_shared) at = name.find("shared_mlp.");
  if (at == std::string_view::npos) return std::nullopt;
  const auto one = [](GgufForm form) { return std::vector<GgufForm>{std::move(form)}; };
  const std::string mlp = std::string(name.substr(0, at)) + "mlp.";
  const std::string stem = mlp + (!is_shared ? "experts." : has_experts ? "shared_expert." : "");
  if (name.ends_with(".router.layer.weight")) return one({.name = mlp + "gate.weight"});
  if (name.ends_with("output_linear.weight")) return one({.name = stem + "down_proj.weight"});
  // The tensor has gate, then up, for each expert if there is an axis of experts.
  std::vector<int64_t> shape = checkpoint.tensors.at(std::string(name)).view.shape;
  if (shape.size() < 2) return one({});
  int64_t& rows = shape[shape.size() - 2];
  rows /= 2;
  const auto half = [&](const char* part, int64_t first) {
    return GgufForm{
        .stored_row = [rows = rows, first](int64_t row) { return row / rows * 2 * rows + first + row % rows; },
        .name = stem + part,
        .shape = shape};
  };
  return std::vector<GgufForm>{half("gate_proj.weight", 0), half("up_proj.weight", rows)};
}

namespace {

Result<MoeConfig> expect_granite_moe(const Checkpoint& checkpoint) {
  REDLINE_ASSIGN(const std::optional<MoeConfig> moe, read_granite_moe(checkpoint));
  if (!moe) return invalid_argument("config: num_local_experts is missing or 0; a granitemoe has experts");
  return *moe;
}

Result<LanguageModel> build_granite_moe(const Checkpoint& checkpoint, const DecoderOutputs& outputs) {
  REDLINE_ASSIGN(DecoderConfig c, read_decoder_config(checkpoint.config));
  REDLINE_TRY(read_granite_factors(checkpoint.config, c));
  REDLINE_ASSIGN(MoeConfig moe, expect_granite_moe(checkpoint));
  moe.activation = c.activation;
  ConfigReader r(checkpoint.config);
  const bool bias = r.boolean("attention_bias", false);
  REDLINE_TRY(r.status());
  const LayerParts parts = {.mixer = {},
                            .mlp = [&](LayerBuilder& b, int64_t, Value x) { return granite_moe_block(b, x, moe); }};
  return build_llama_decoder("granitemoe", std::move(c), checkpoint, outputs, {.qkv = bias, .output = bias}, parts);
}

std::vector<GgufForm> gguf_parts_of_granite_moe(const Checkpoint& checkpoint, const DecoderConfig&,
                                                std::string_view name) {
  return granite_moe_gguf_parts(checkpoint, true, name).value_or(std::vector<GgufForm>{{}});
}

Status set_keys_of_granite_moe(const Checkpoint& checkpoint, const DecoderConfig&, const GgufKeys& set) {
  REDLINE_ASSIGN(const MoeConfig moe, expect_granite_moe(checkpoint));
  set_granite_moe_keys(moe, set);
  return {};
}

void read_granite_moe_keys(GgufKeyReader& keys) {
  read_granite_keys(keys);
  read_moe_keys(keys);
}

constexpr ModelFamily family_of(std::string_view model_type, std::string_view architecture) {
  return {
      .model_type = model_type,
      .architecture = architecture,
      .gguf = {.architecture = "granitemoe",
               .top = kLlamaGgufTop,
               .layer = kLlamaGgufLayer,
               .more_layer = kGgufExperts,
               .interleaves_rope = true,
               .read_keys = read_granite_moe_keys},
      .build = build_granite_moe,
      .gguf_numbers = granite_gguf_numbers,
      .gguf_parts = gguf_parts_of_granite_moe,
      .gguf_keys = set_keys_of_granite_moe,
  };
}

}  // namespace

extern const ModelFamily kGraniteMoeFamily = family_of("granitemoe", "GraniteMoeForCausalLM");
extern const ModelFamily kGraniteMoeSharedFamily = family_of("granitemoeshared", "GraniteMoeSharedForCausalLM");

}  // namespace redline
