// Mixture of experts in place of an MLP: settings, names of tensors, and the block.
#pragma once

#include "graph/ops/expert_linear.h"
#include "models/decoder.h"
#include "models/gguf_names.h"
#include "models/registry.h"

namespace redline {

struct MoeConfig {
  RouterAttrs router;
  int64_t intermediate_size = 0;         ///< of an expert
  int64_t shared_intermediate_size = 0;  ///< of an expert of all tokens; 0: none
  bool has_shared_gate = false;          ///< the shared expert is multiplied by the sigmoid of a product
  bool has_router_bias = false;          ///< of the router's logits
  bool has_correction_bias = false;      ///< of the scores that the choice is made by
  Activation activation = Activation::kSilu;
  float limit = 0;  ///< ExpertLinearAttrs::limit
};

/// Names of tensors within a layer, and of their parts.
struct MoeNames {
  std::string router = "mlp.gate", correction = "mlp.gate.e_score_correction";
  std::string experts = "mlp.experts", gate = "gate_proj", up = "up_proj", down = "down_proj";
  std::string joint = "gate_up_proj", joint_down = "down_proj";  ///< of all experts: gate and up in one, and down
  std::string shared = "mlp.shared_expert", shared_gate = "mlp.shared_expert_gate";
  std::string shared_joint, shared_down;  ///< of a shared expert with gate and up in one weight; "": it has two
};

/// The matrices of all experts of a layer, and their biases [experts, features] (all or none).
struct ExpertWeights {
  std::vector<Value> gate, up, down;
  Value gate_bias, up_bias, down_bias;
};

/// Number of experts and of those of a token, intermediate size, normalization and scale of the weights, under the
/// names that config.json files have for them.
MoeConfig read_moe_config(ConfigReader& r, bool normalizes);

/// Whether layers have experts, of models with mlp_only_layers and decoder_sparse_step (Qwen).
Result<std::vector<bool>> read_sparse_layers(const nlohmann::json& config, int64_t num_layers);

/// The experts as checkpoints store them, each a view of the file: one tensor per expert (EXPERTS.3.gate_proj.weight);
/// one with an axis of experts (EXPERTS.gate_proj.weight, as GGUF); or gate and up of all experts in one
/// (EXPERTS.gate_up_proj, or as `joint` says).
ExpertWeights take_experts(LayerBuilder& b, const MoeConfig& c, const MoeNames& names = {});

/// Router, experts, their weighted sum, and the shared expert.
Value moe_block(LayerBuilder& b, Value x, const MoeConfig& c, const MoeNames& names = {});
Value moe_block(LayerBuilder& b, Value x, const MoeConfig& c, const MoeNames& names, const ExpertWeights& experts);

/// Metadata of experts in GGUF files: their number and sizes.
void set_moe_keys(const MoeConfig& c, const GgufKeys& set);
/// unsupported: some layers of the model have no experts, which GGUF files do not state.
Status expect_all_sparse(const Checkpoint& checkpoint, const DecoderConfig& config, std::string_view model_type);
/// ModelFamily::gguf_parts of a tensor of an MLP with experts.
std::vector<GgufForm> moe_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& config, std::string_view name);

/// The experts of a model: number, those of a token, and the parameters that a token is multiplied with, everything
/// else included. num_experts is 0 where there are none.
struct ExpertCounts {
  int64_t num_experts = 0, experts_per_token = 0, active_parameters = 0;
};
ExpertCounts count_experts(const Graph& graph);

/// GGUF's names of the tensors that MoeNames has by default.
inline constexpr GgufName kGgufExperts[] = {{"ffn_gate_inp", "mlp.gate"},
                                            {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                            {"ffn_up_exps", "mlp.experts.up_proj"},
                                            {"ffn_down_exps", "mlp.experts.down_proj"},
                                            {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                            {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                            {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                            {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};

}  // namespace redline
