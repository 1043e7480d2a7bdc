#include "models/blocks/moe.h"

#include <algorithm>

#include "graph/ops/linear.h"
#include "models/checkpoint/gguf_keys.h"

namespace redline {

MoeConfig read_moe_config(ConfigReader& r, bool normalizes) {
  constexpr int64_t kMaxExperts = 4096, kMaxWidth = int64_t{1} << 24;
  MoeConfig c;
  const auto first_of = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (r.has(key)) return key;
    return *keys.begin();
  };
  c.router.num_experts = r.integer(first_of({"num_experts", "num_local_experts", "n_routed_experts"}), 1, kMaxExperts);
  c.router.experts_per_token = r.integer("num_experts_per_tok", 1, kMaxExperts);
  c.intermediate_size = r.integer(first_of({"moe_intermediate_size", "intermediate_size"}), 1, kMaxWidth);
  c.router.normalizes = r.boolean("norm_topk_prob", normalizes);
  c.router.scale = static_cast<float>(r.number("routed_scaling_factor", 0, 1e6, 1.0));
  if (r.status().ok() && c.router.experts_per_token > c.router.num_experts)
    r.fail(invalid_argument("config: num_experts_per_tok is {}, of {} experts", c.router.experts_per_token,
                            c.router.num_experts));
  return c;
}

MoeConfig read_balanced_moe_config(ConfigReader& r, bool normalizes) {
  MoeConfig moe = read_moe_config(r, normalizes);
  moe.intermediate_size = r.integer("moe_intermediate_size", 1, int64_t{1} << 24);
  moe.shared_intermediate_size = r.integer("n_shared_experts", 0, 1000, 0) * moe.intermediate_size;
  moe.router.score = RouterScore::kSigmoid;
  moe.has_correction_bias = true;
  moe.router.num_groups = r.integer("n_group", 1, moe.router.num_experts, 1);
  moe.router.groups_per_token = r.integer("topk_group", 1, moe.router.num_groups, moe.router.num_groups);
  moe.router.groups_by_two_best = true;
  return moe;
}

void ignore_layers_beyond(LayerBuilder& b, const Checkpoint& checkpoint) {
  const std::string beyond = fmt::format("{}{}.", b.config().names.layers, b.config().num_layers);
  for (const auto& [name, source] : checkpoint.tensors)
    if (name.starts_with(beyond)) b.weights().ignore(name);
}

Result<std::vector<bool>> read_sparse_layers(const nlohmann::json& config, int64_t num_layers) {
  ConfigReader r(config);
  const int64_t step = r.integer("decoder_sparse_step", 1, 1000, 1);
  REDLINE_TRY(r.status());
  std::vector<bool> sparse(static_cast<size_t>(num_layers));
  for (int64_t i = 0; i < num_layers; ++i) sparse[static_cast<size_t>(i)] = (i + 1) % step == 0;
  const auto dense = config.find("mlp_only_layers");
  if (dense == config.end() || dense->is_null()) return sparse;
  if (!dense->is_array()) return invalid_argument("config: mlp_only_layers must be a list of layers");
  for (const auto& layer : *dense) {
    if (!layer.is_number_integer() || layer.get<int64_t>() < 0 || layer.get<int64_t>() >= num_layers)
      return invalid_argument("config: mlp_only_layers has {}, of {} layers", layer.dump(), num_layers);
    sparse[static_cast<size_t>(layer.get<int64_t>())] = false;
  }
  return sparse;
}

namespace {

/// Reads one matrix [rows, cols] of each expert.
std::vector<Value> take_matrices(LayerBuilder& b, const std::string& experts, const std::string& part, int64_t count,
                                 int64_t rows, int64_t cols) {
  WeightReader& w = b.weights();
  const std::string together = fmt::format("{}{}.{}.weight", b.scope(), experts, part);
  const bool is_one = w.has(together);
  std::vector<Value> matrices;
  matrices.reserve(static_cast<size_t>(count));
  for (int64_t e = 0; e < count; ++e) {
    const std::string own = fmt::format("{}{}.{}.{}.weight", b.scope(), experts, e, part);
    matrices.push_back(is_one ? w.take_slice(together, {count, rows, cols}, e, 0, rows, own)
                              : w.take(own, {rows, cols}));
    if (!matrices.back().valid()) break;  // the graph keeps the error
  }
  return matrices;
}

}  // namespace

ExpertWeights take_experts(LayerBuilder& b, const MoeConfig& c, const MoeNames& names) {
  const int64_t count = c.router.num_experts, inner = c.intermediate_size, hidden = b.config().hidden_size;
  WeightReader& w = b.weights();
  ExpertWeights experts;
  const std::string stem = b.scope() + names.experts + ".", fused = stem + names.joint;
  if (w.has(fused)) {
    const std::string down = stem + names.joint_down;
    // Files of Qwen3-VL have the matrices transposed.
    const std::vector<int64_t> transposed = {count, hidden, 2 * inner};
    const bool is_transposed = w.shape(fused) == transposed && hidden != 2 * inner;
    for (int64_t e = 0; e < count; ++e) {
      const auto own = [&](const std::string& part) {
        return fmt::format("{}{}.{}.{}.weight", b.scope(), names.experts, e, part);
      };
      if (is_transposed) {
        const auto take = [&](const std::string& name, const std::vector<int64_t>& stored, int64_t begin, int64_t rows,
                              const std::string& part) {
          return w.take_transposed_slice(name, stored, e, begin, rows, own(part));
        };
        experts.gate.push_back(take(fused, transposed, 0, inner, names.gate));
        experts.up.push_back(take(fused, transposed, inner, inner, names.up));
        experts.down.push_back(take(down, {count, inner, hidden}, 0, hidden, names.down));
        if (!experts.down.back().valid()) break;
        continue;
      }
      experts.gate.push_back(w.take_slice(fused, {count, 2 * inner, hidden}, e, 0, inner, own(names.gate)));
      experts.up.push_back(w.take_slice(fused, {count, 2 * inner, hidden}, e, inner, inner, own(names.up)));
      experts.down.push_back(w.take_slice(down, {count, hidden, inner}, e, 0, hidden, own(names.down)));
      if (!experts.down.back().valid()) break;
    }
    return experts;
  }
  experts.gate = take_matrices(b, names.experts, names.gate, count, inner, hidden);
  experts.up = take_matrices(b, names.experts, names.up, count, inner, hidden);
  experts.down = take_matrices(b, names.experts, names.down, count, hidden, inner);
  return experts;
}

void read_moe_keys(GgufKeyReader& keys) {
  keys.integer("expert_count", "num_experts");
  keys.integer("expert_used_count", "num_experts_per_tok");
  keys.integer("expert_feed_forward_length", "moe_intermediate_size");
  keys.integer("expert_shared_feed_forward_length", "shared_expert_intermediate_size");
  keys.integer("expert_shared_count", "n_shared_experts");
  keys.integer("expert_group_count", "n_group");
  keys.integer("expert_group_used_count", "topk_group");
  keys.integer("expert_gating_func", "expert_gating_func");
  keys.integer("leading_dense_block_count", "first_k_dense_replace");
  keys.number("expert_weights_scale", "routed_scaling_factor");
  keys.boolean("expert_weights_norm", "norm_topk_prob");
}

void set_moe_keys(const MoeConfig& c, const GgufKeys& set) {
  set.integer("expert_count", c.router.num_experts);
  set.integer("expert_used_count", c.router.experts_per_token);
  set.integer("expert_feed_forward_length", c.intermediate_size);
  if (c.shared_intermediate_size > 0) set.integer("expert_shared_feed_forward_length", c.shared_intermediate_size);
}

void set_balanced_moe_keys(const MoeConfig& c, int64_t dense_layers, const GgufKeys& set) {
  constexpr int64_t kGgufSigmoid = 2;
  set.integer("leading_dense_block_count", dense_layers);
  set.integer("expert_count", c.router.num_experts);
  set.integer("expert_used_count", c.router.experts_per_token);
  set.integer("expert_feed_forward_length", c.intermediate_size);
  set.integer("expert_shared_count", c.shared_intermediate_size / c.intermediate_size);
  set.integer("expert_group_count", c.router.num_groups);
  set.integer("expert_group_used_count", c.router.groups_per_token);
  set.integer("expert_gating_func", kGgufSigmoid);
  set.number("expert_weights_scale", double{c.router.scale});
  set.boolean("expert_weights_norm", c.router.normalizes);
}

Status expect_all_sparse(const Checkpoint& checkpoint, const DecoderConfig& config, std::string_view model_type) {
  REDLINE_ASSIGN(const std::vector<bool> sparse, read_sparse_layers(checkpoint.config, config.num_layers));
  if (std::find(sparse.begin(), sparse.end(), false) == sparse.end()) return {};
  return unsupported("GGUF has no key for the layers without experts of {}", model_type);
}

std::vector<GgufForm> moe_gguf_parts(const Checkpoint& checkpoint, const DecoderConfig& c, std::string_view name) {
  const std::string stem(name.substr(0, name.rfind('.') + 1));
  const std::vector<int64_t>& shape = checkpoint.tensors.at(std::string(name)).view.shape;
  if (name.ends_with(".e_score_correction_bias")) return {{.name = stem + "e_score_correction.bias"}};
  if (name.ends_with(".shared_expert_gate.weight")) return {{.shape = {shape.back()}}};
  // Files of Qwen3-VL have the matrices transposed: [experts, hidden, 2 inner] and [experts, inner, hidden].
  const std::string fused = std::string(name.substr(0, name.rfind('.'))) + ".gate_up_proj";
  const auto joint = checkpoint.tensors.find(fused);
  if (name.find(".experts.") != std::string_view::npos && joint != checkpoint.tensors.end() &&
      joint->second.view.shape.size() == 3 && joint->second.view.shape[2] != c.hidden_size &&
      joint->second.view.shape[1] == c.hidden_size && shape.size() == 3) {
    const int64_t inner = joint->second.view.shape[2] / 2, hidden = c.hidden_size;
    const auto part = [&](const char* own, int64_t first, int64_t rows, int64_t in, int64_t out) {
      return GgufForm{
          .name = stem + own, .shape = {shape[0], rows, in}, .stored_element = [=](int64_t row, int64_t column) {
            return (row / rows * in + column) * out + first + row % rows;
          }};
    };
    if (name.ends_with("down_proj")) return {part("down_proj.weight", 0, hidden, inner, hidden)};
    return {part("gate_proj.weight", 0, inner, hidden, 2 * inner),
            part("up_proj.weight", inner, inner, hidden, 2 * inner)};
  }
  if (name.ends_with(".experts.down_proj")) return {{.name = stem + "down_proj.weight"}};
  if (!name.ends_with(".experts.gate_up_proj") || shape.size() != 3) return {{}};
  // Each expert's gate rows, then its up rows.
  const int64_t inner = shape[1] / 2;
  const auto part = [&](const char* own, int64_t first) {
    return GgufForm{.stored_row = [=](int64_t row) { return row / inner * 2 * inner + first + row % inner; },
                    .name = stem + own,
                    .shape = {shape[0], inner, shape[2]}};
  };
  return {part("gate_proj.weight", 0), part("up_proj.weight", inner)};
}

ExpertCounts count_experts(const Graph& graph) {
  ExpertCounts counts;
  int64_t of_experts = 0;
  for (const Op& op : graph.ops) {
    if (op.def != &kExpertGatedLinear && op.def != &kExpertLinear) continue;
    const auto& attrs = std::any_cast<const ExpertLinearAttrs&>(op.attrs);
    counts.num_experts = attrs.num_experts;
    counts.experts_per_token = attrs.experts_per_token;
    for (const ValueId id : op.inputs)
      if (graph.value(id).kind == ValueKind::kWeight) of_experts += graph.value(id).weight.view.num_elements();
  }
  int64_t all = 0;
  for (const ValueInfo& value : graph.values)
    if (value.kind == ValueKind::kWeight) all += value.weight.view.num_elements();
  counts.active_parameters = all - of_experts;
  if (counts.num_experts > 0) counts.active_parameters += of_experts / counts.num_experts * counts.experts_per_token;
  return counts;
}

Value moe_block(LayerBuilder& b, Value x, const MoeConfig& c, const MoeNames& names) {
  return moe_block(b, x, c, names, take_experts(b, c, names));
}

Value moe_block(LayerBuilder& b, Value x, const MoeConfig& c, const MoeNames& names, const ExpertWeights& experts) {
  GraphBuilder& g = b.graph();
  WeightReader& w = b.weights();
  const int64_t hidden = b.config().hidden_size;
  const Value logits = b.project(x, names.router.c_str(), c.router.num_experts, hidden, c.has_router_bias);
  Value correction;
  if (c.has_correction_bias) {
    const std::string stem = b.scope() + names.correction;
    const std::string name = w.has(stem + ".bias") ? stem + ".bias" : stem + "_bias";
    const int64_t experts = c.router.num_experts;
    // ERNIE's files have an axis of groups.
    correction = w.rank(name) == 2 ? w.take_as(name, {1, experts}, {experts}) : w.take(name, {experts});
  }
  const Routing routing = moe_router(g, logits, correction, c.router);

  g.set_scope(b.scope() + names.experts);
  const Value inner =
      expert_gated_linear(g, x, routing, {experts.gate, experts.gate_bias}, {experts.up, experts.up_bias},
                          {.activation = c.activation, .limit = c.limit});
  const Value y = expert_linear(g, inner, routing, {experts.down, experts.down_bias});
  Value shared, gate;
  if (c.shared_intermediate_size > 0) {
    shared = names.shared_joint.empty() ? b.gated_mlp(x, names.shared, c.shared_intermediate_size, false)
                                        : b.joint_gated_mlp(x, c.shared_intermediate_size, names.shared_joint.c_str(),
                                                            names.shared_down.c_str());
    if (c.has_shared_gate) {
      const std::string name = b.scope() + names.shared_gate + ".weight";
      g.set_scope(b.scope() + names.shared_gate);
      // GGUF files store it as a vector.
      gate = linear(g, x, w.is_vector(name) ? w.take_as(name, {hidden}, {1, hidden}) : w.take(name, {1, hidden}));
    }
  }
  g.set_scope(b.scope() + names.experts);
  return expert_sum(g, y, routing.weights, shared, gate);
}

}  // namespace redline
