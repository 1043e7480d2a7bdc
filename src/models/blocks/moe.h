// Mixture of experts in place of an MLP: settings, names of tensors, and the block.
#pragma once

#include "graph/ops/expert_linear.h"
#include "models/blocks/decoder.h"
#include "models/checkpoint/gguf_names.h"
#include "models/registry.h"

namespace redline {

struct MoeConfig {
  RouterAttrs router;
  int64_t intermediate_size = 0;         ///< width of an expert
  int64_t shared_intermediate_size = 0;  ///< width of the shared expert, which all tokens use; 0: none
  bool has_shared_gate = false;          ///< the shared expert's output is multiplied by the sigmoid of a gate
  bool has_router_bias = false;          ///< the router's logits have a bias
  bool has_correction_bias = false;      ///< the scores that select the experts have a bias
  Activation activation = Activation::kSilu;
  float limit = 0;  ///< ExpertLinearAttrs::limit
};

/// Names of the tensors of a layer's experts.
struct MoeNames {
  std::string router = "mlp.gate", correction = "mlp.gate.e_score_correction";
  std::string experts = "mlp.experts", gate = "gate_proj", up = "up_proj", down = "down_proj";
  /// tensors with all experts: gate and up together, and down
  std::string joint = "gate_up_proj", joint_down = "down_proj";
  std::string shared = "mlp.shared_expert", shared_gate = "mlp.shared_expert_gate";
  std::string shared_joint, shared_down;  ///< shared expert with gate and up in one weight; "": they are two weights
};

/// The matrices of all experts of a layer, and their biases [experts, features] (all or none).
struct ExpertWeights {
  std::vector<Value> gate, up, down;
  Value gate_bias, up_bias, down_bias;
};

/// Reads the number of experts and of experts per token, the intermediate size, and the normalization and scale of the
/// weights, under the various names that config.json files use. `normalizes`: default of the normalization.
MoeConfig read_moe_config(ConfigReader& r, bool normalizes);

/// Reads the experts of DeepSeek-V3 and its successors: n_shared_experts for all tokens, and a choice by sigmoid
/// scores with a correction bias, limited to groups of experts. `normalizes`: default of the normalization.
MoeConfig read_balanced_moe_config(ConfigReader& r, bool normalizes);
/// Counts the tensors of layers beyond the last one as used: they predict further tokens, which is not run.
void ignore_layers_beyond(LayerBuilder& b, const Checkpoint& checkpoint);

/// Returns, for each layer, whether it has experts, in models with mlp_only_layers and decoder_sparse_step (Qwen).
Result<std::vector<bool>> read_sparse_layers(const nlohmann::json& config, int64_t num_layers);

/// Reads the experts as views of the file. Checkpoints store them in one of three ways: one tensor per expert
/// (EXPERTS.3.gate_proj.weight); one tensor with an axis of experts (EXPERTS.gate_proj.weight, as in GGUF); or gate and
/// up of all experts in one tensor (EXPERTS.gate_up_proj, or the name in `joint`).
ExpertWeights take_experts(LayerBuilder& b, const MoeConfig& c, const MoeNames& names = {});

/// Adds the router, the experts, their weighted sum, and the shared expert.
Value moe_block(LayerBuilder& b, Value x, const MoeConfig& c, const MoeNames& names = {});
Value moe_block(LayerBuilder& b, Value x, const MoeConfig& c, const MoeNames& names, const ExpertWeights& experts);

/// Reads the keys of experts in a GGUF file.
void read_moe_keys(GgufKeyReader& keys);
/// Sets the metadata of experts for a GGUF file: their number and sizes.
void set_moe_keys(const MoeConfig& c, const GgufKeys& set);
/// Sets the metadata of read_balanced_moe_config() and the number of layers without experts.
void set_balanced_moe_keys(const MoeConfig& c, int64_t dense_layers, const GgufKeys& set);
/// Returns unsupported if some layers of the model have no experts, which GGUF files cannot express.
Status expect_all_sparse(const Checkpoint& checkpoint, const DecoderConfig& config, std::string_view model_type);
/// Implements ModelFamily::gguf_parts for the tensors of an MLP with experts.
std::vector<GgufForm> moe_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& config, std::string_view name);

/// Counts for a model with experts: the experts, the experts per token, and all parameters that one token is multiplied
/// with, including those outside the experts. num_experts is 0 for a model without experts.
struct ExpertCounts {
  int64_t num_experts = 0, experts_per_token = 0, active_parameters = 0;
};
ExpertCounts count_experts(const Graph& graph);

/// GGUF's names of the experts of read_balanced_moe_config().
inline constexpr GgufName kGgufBalancedExperts[] = {{"ffn_gate_inp", "mlp.gate"},
                                                    {"exp_probs_b", "mlp.gate.e_score_correction"},
                                                    {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                                    {"ffn_up_exps", "mlp.experts.up_proj"},
                                                    {"ffn_down_exps", "mlp.experts.down_proj"},
                                                    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
                                                    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
                                                    {"ffn_down_shexp", "mlp.shared_experts.down_proj"}};

/// GGUF's names of the default tensors of MoeNames.
inline constexpr GgufName kGgufExperts[] = {{"ffn_gate_inp", "mlp.gate"},
                                            {"ffn_gate_exps", "mlp.experts.gate_proj"},
                                            {"ffn_up_exps", "mlp.experts.up_proj"},
                                            {"ffn_down_exps", "mlp.experts.down_proj"},
                                            {"ffn_gate_inp_shexp", "mlp.shared_expert_gate"},
                                            {"ffn_gate_shexp", "mlp.shared_expert.gate_proj"},
                                            {"ffn_up_shexp", "mlp.shared_expert.up_proj"},
                                            {"ffn_down_shexp", "mlp.shared_expert.down_proj"}};

}  // namespace redline
