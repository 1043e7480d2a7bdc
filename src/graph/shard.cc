#include "graph/shard.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/all_reduce.h"
#include "graph/ops/attention.h"
#include "graph/ops/expert_linear.h"
#include "graph/ops/gated_norm.h"
#include "graph/ops/gather_columns.h"
#include "graph/ops/kv_append.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/rope.h"
#include "graph/ops/scale.h"
#include "graph/ops/silu_mul.h"
#include "graph/pass.h"
#include "graph/weight_range.h"

namespace redline {
namespace {

/// How an op takes part in the division.
enum class Part : uint8_t {
  kWhole,    ///< every rank computes it
  kEnters,   ///< a product whose result is divided
  kDivided,  ///< inputs and results are divided
  kLeaves,   ///< a product of divided x: its result is a partial sum
  kSums,     ///< an expert_sum of partial sums, which gives a partial sum
};

/// Inputs of an op that have the columns of its result, so that a rank needs only its own columns of them; empty: the
/// op cannot be divided.
std::vector<size_t> column_inputs(const Op& op) {
  const OpDef* def = op.def;
  if (def == &kRope || def == &kScale || def == &kActivation || def == &kRmsNorm || def == &kLayerNorm ||
      def == &kAddRow)
    return {0};
  if (def == &kGatedActivation && std::any_cast<const ActivationAttrs&>(op.attrs).halves) return {};
  if (def == &kAdd || def == &kSiluMul || def == &kGatedActivation || def == &kSigmoidMul || def == &kKvAppend ||
      def == &kAttention)
    return {0, 1};
  return {};
}

class Sharder {
 public:
  Sharder(Graph& graph, const Shard& shard)
      : graph_(graph), shard_(shard), readers_(graph.readers()), producer_(graph.values.size(), -1),
        is_divided_(graph.values.size(), false), parts_(graph.ops.size(), Part::kWhole) {
    for (size_t i = 0; i < graph.ops.size(); ++i)
      for (const ValueId id : graph.ops[i].outputs) producer_[index(id)] = static_cast<int>(i);
    if (shard.rank == Shard::kAllRanks) {
      local_ranks_.resize(static_cast<size_t>(shard.ranks));
      std::iota(local_ranks_.begin(), local_ranks_.end(), 0);
    } else {
      local_ranks_ = {shard.rank};
    }
  }

  Status run() {
    keep_shared_weights();
    for (const Op& op : graph_.ops) {
      if (op.def == &kAttention) REDLINE_TRY(divide_attention(op).within(op.name));
      if (is_mlp(op)) REDLINE_TRY(divide(op.outputs[0]).within(op.name));
      if (op.def == &kExpertGatedLinear) REDLINE_TRY(divide(op.outputs[0]).within(op.name));
    }
    find_sums();
    std::vector<Op> ops = std::move(graph_.ops);
    graph_.ops.clear();
    for (size_t i = 0; i < ops.size(); ++i) REDLINE_TRY(emit(ops[i], parts_[i]).within(ops[i].name));
    order_reductions();
    drop_unused_values();
    return {};
  }

 private:
  static size_t index(ValueId id) { return static_cast<size_t>(id); }
  ValueInfo& value(ValueId id) { return graph_.values[index(id)]; }
  bool is_output(ValueId id) const {
    return std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end();
  }
  bool is_one_rank() const { return shard_.rank != Shard::kAllRanks; }

  /// Memory that is not on disk is lost, or made again while another rank reads it, when a rank releases it.
  void keep_shared_weights() {
    if (is_one_rank() && !shard_.shares_weights) return;
    for (ValueInfo& info : graph_.values) {
      const auto& file = info.weight.file;
      if (file && (file->identity() == 0 || file->is_made_lazily())) info.weight.is_shared = true;
    }
  }

  /// Returns true for the activation of an MLP: it reads products, and products read it.
  bool is_mlp(const Op& op) const {
    if (op.def != &kActivation && op.def != &kGatedActivation && op.def != &kSiluMul) return false;
    if (column_inputs(op).empty() || is_output(op.outputs[0])) return false;
    const auto is_product = [&](int i) { return i >= 0 && graph_.ops[static_cast<size_t>(i)].def == &kLinear; };
    const std::vector<int>& readers = readers_[index(op.outputs[0])];
    return std::all_of(op.inputs.begin(), op.inputs.end(),
                       [&](ValueId id) { return is_product(producer_[index(id)]); }) &&
           !readers.empty() && std::all_of(readers.begin(), readers.end(), is_product);
  }

  Status check_heads(const char* kind, int64_t heads) const {
    if (heads % shard_.ranks == 0) return {};
    return invalid_argument("{} {} heads do not divide over {} ranks; give a number of ranks that divides them", heads,
                            kind, shard_.ranks);
  }

  Status divide_attention(const Op& op) {
    const auto& attrs = std::any_cast<const AttentionOpAttrs&>(op.attrs);
    const StateAttrs& state = graph_.value(op.inputs[AttentionOpAttrs::kCache]).state;
    if (attrs.is_cross || !state.group.empty())
      return unsupported("attention over states that other graphs share is not divided among ranks");
    REDLINE_TRY(check_heads("attention", attrs.a.num_heads));
    REDLINE_TRY(check_heads("key-value", state.num_heads));
    return divide(op.outputs[0]);
  }

  /// Divides a value, and with it all values that must be divided too.
  Status divide(ValueId first) {
    std::vector<ValueId> left = {first};
    while (!left.empty()) {
      const ValueId id = left.back();
      left.pop_back();
      if (is_divided_[index(id)]) continue;
      is_divided_[index(id)] = true;
      const int made_by = producer_[index(id)];
      if (made_by < 0 || is_output(id))
        return unsupported("{} is an input or output of the graph and cannot be divided among ranks", value(id).name);
      REDLINE_TRY(take_producer(static_cast<size_t>(made_by), left));
      for (const int reader : readers_[index(id)]) REDLINE_TRY(take_reader(static_cast<size_t>(reader), id, left));
    }
    return {};
  }

  Status set_part(size_t i, Part part) {
    const Op& op = graph_.ops[i];
    if (parts_[i] != Part::kWhole && parts_[i] != part)
      return unsupported("{} multiplies divided columns and would have to divide its result too", op.name);
    parts_[i] = part;
    return {};
  }

  Status take_producer(size_t i, std::vector<ValueId>& left) {
    const Op& op = graph_.ops[i];
    if (op.def == &kLinear || op.def == &kExpertGatedLinear) return set_part(i, Part::kEnters);
    return take_divided(i, left);
  }

  Status take_reader(size_t i, ValueId id, std::vector<ValueId>& left) {
    const Op& op = graph_.ops[i];
    if ((op.def == &kLinear || op.def == &kExpertLinear) && op.inputs[0] == id) return set_part(i, Part::kLeaves);
    return take_divided(i, left);
  }

  Status take_divided(size_t i, std::vector<ValueId>& left) {
    const Op& op = graph_.ops[i];
    const std::vector<size_t> inputs = column_inputs(op);
    if (inputs.empty())
      return unsupported("{} is computed by {}, which is not divided among ranks", op.name, op.def->name);
    REDLINE_TRY(set_part(i, Part::kDivided));
    for (const size_t input : inputs) left.push_back(op.inputs[input]);
    left.insert(left.end(), op.outputs.begin(), op.outputs.end());
    return {};
  }

  /// Finds expert_sums of partial sums: their result is reduced instead.
  void find_sums() {
    for (size_t i = 0; i < graph_.ops.size(); ++i) {
      const Op& op = graph_.ops[i];
      const int x = op.def == &kExpertSum ? producer_[index(op.inputs[0])] : -1;
      if (x >= 0 && parts_[static_cast<size_t>(x)] == Part::kLeaves) parts_[i] = Part::kSums;
    }
  }
  /// Returns true if the op's result, a partial sum, is read by an expert_sum alone, which gives one too.
  bool stays_partial(const Op& op) const {
    const ValueId id = op.outputs[0];
    const std::vector<int>& readers = readers_[index(id)];
    return readers.size() == 1 && !is_output(id) && parts_[static_cast<size_t>(readers[0])] == Part::kSums;
  }

  Status emit(Op& op, Part part) {
    if (part == Part::kLeaves) return emit_product(op);
    if (part == Part::kSums) return emit_expert_sum(op);
    if (part == Part::kDivided) REDLINE_TRY(check_norm(op));
    if (is_one_rank() && part == Part::kEnters) REDLINE_TRY(take_rows_of(op));
    if (is_one_rank() && part == Part::kDivided) REDLINE_TRY(divide_op(op));
    if (is_one_rank() && part != Part::kWhole) REDLINE_TRY(divide_results(op));
    graph_.ops.push_back(std::move(op));
    return {};
  }

  Result<int64_t> divided(const char* what, int64_t size) const {
    if (size % shard_.ranks == 0) return size / shard_.ranks;
    return invalid_argument("{} {} do not divide over {} ranks; give a number of ranks that divides them", size, what,
                            shard_.ranks);
  }

  /// Replaces input i, a weight, by a rank's part of it.
  Status take_part(Op& op, size_t i, ShardedAxis axis, int64_t rank) {
    const ValueInfo& whole = graph_.value(op.inputs[i]);
    if (whole.kind != ValueKind::kWeight)
      return unsupported("{} is computed and not a weight; it is not divided among ranks", whole.name);
    const int64_t rows = whole.shape[0].constant(), cols = whole.shape.size() > 1 ? whole.shape[1].constant() : 1;
    REDLINE_TRY(divided(axis == ShardedAxis::kRows ? "rows" : "columns", axis == ShardedAxis::kRows ? rows : cols)
                    .status()
                    .within(whole.name));
    const Layout layout = sharded_layout(rows, cols, axis, shard_.ranks);
    REDLINE_ASSIGN(const WeightRange range, range_of_rank(layout, rows, cols, rank));
    const auto key = std::tuple(op.inputs[i], range.row_begin, range.rows, range.col_begin, range.cols);
    const auto [at, is_new] = taken_.try_emplace(key, static_cast<ValueId>(graph_.values.size()));
    op.inputs[i] = at->second;
    if (!is_new) return {};
    ValueInfo part;
    // Part of the key of packed weights on disk, so that ranks do not read each other's.
    part.name = whole.name + range.to_string();
    part.dtype = whole.dtype;
    part.kind = ValueKind::kWeight;
    REDLINE_ASSIGN(part.weight, take_range(whole.name, whole.weight, range));
    part.shape.assign(part.weight.view.shape.begin(), part.weight.view.shape.end());
    graph_.values.push_back(std::move(part));
    return {};
  }

  Status take_rows_of(Op& op) {
    if (op.def == &kLinear) {
      const auto& attrs = std::any_cast<const LinearAttrs&>(op.attrs);
      if (attrs.adapters) return unsupported("a product with an adapter site is not divided among ranks");
      REDLINE_TRY(take_part(op, 1, ShardedAxis::kRows, shard_.rank));
      return attrs.has_bias ? take_part(op, 2, ShardedAxis::kRows, shard_.rank) : Status();
    }
    const auto& attrs = std::any_cast<const ExpertLinearAttrs&>(op.attrs);
    const auto matrices = static_cast<size_t>(2 * attrs.num_experts);
    for (size_t m = 0; m < matrices; ++m) REDLINE_TRY(take_part(op, 3 + m, ShardedAxis::kRows, shard_.rank));
    // Biases are [experts, features].
    for (size_t b = 3 + matrices; b < op.inputs.size(); ++b)
      REDLINE_TRY(take_part(op, b, ShardedAxis::kColumns, shard_.rank));
    return {};
  }

  Status divide_op(Op& op) {
    if (op.def == &kAttention) {
      auto attrs = std::any_cast<AttentionOpAttrs>(op.attrs);
      if (attrs.has_sinks) REDLINE_TRY(take_part(op, attrs.sinks(), ShardedAxis::kRows, shard_.rank));
      if (attrs.has_slopes) REDLINE_TRY(take_part(op, attrs.slopes(), ShardedAxis::kRows, shard_.rank));
      attrs.a.num_heads /= shard_.ranks;
      op.attrs = attrs;
    } else if (op.def == &kKvAppend) {
      value(op.inputs[2]).state.num_heads /= shard_.ranks;
    } else if (op.def == &kLayerNorm) {
      for (size_t i = 1; i < op.inputs.size(); ++i) REDLINE_TRY(take_part(op, i, ShardedAxis::kRows, shard_.rank));
    } else if (op.def == &kAddRow) {
      return take_part(op, 1, ShardedAxis::kRows, shard_.rank);
    }
    return {};
  }

  /// Checks that no group of a norm is divided. The op's result still has the columns of all ranks.
  Status check_norm(const Op& op) const {
    if (op.def != &kRmsNorm && op.def != &kLayerNorm) return {};
    const int64_t cols = graph_.value(op.outputs[0]).shape[1].constant();
    int64_t group = op.def == &kRmsNorm ? graph_.value(op.inputs[1]).shape[0].constant()
                                        : std::any_cast<const LayerNormOpAttrs&>(op.attrs).norm.group;
    if (group == 0) group = cols;
    if (cols % shard_.ranks == 0 && cols / shard_.ranks % group == 0) return {};
    return unsupported("a norm over {} of {} columns is not divided among {} ranks", group, cols, shard_.ranks);
  }

  Status divide_results(const Op& op) {
    for (const ValueId id : op.outputs) {
      Shape& shape = value(id).shape;
      if (shape.size() < 2) continue;  // of kv_append, which has no elements
      REDLINE_ASSIGN(const int64_t cols, divided("columns", shape[1].constant()));
      shape[1] = Dim(cols);
    }
    return {};
  }

  ValueId add_value(std::string name, Shape shape) {
    ValueInfo info;
    info.name = std::move(name);
    info.shape = std::move(shape);
    graph_.values.push_back(std::move(info));
    return static_cast<ValueId>(graph_.values.size()) - 1;
  }
  /// Returns the name of an op or value of one rank, which a graph of all ranks has several of.
  std::string name_of_rank(const std::string& name, int64_t rank) const {
    return is_one_rank() ? name : fmt::format("{}.rank{}", name, rank);
  }

  /// Returns a rank's columns of x: x itself in a graph of one rank.
  Result<ValueId> columns_of(const Op& op, int64_t rank) {
    const ValueId x = op.inputs[0];
    if (is_one_rank()) return x;
    const auto key = std::pair(x, rank);
    if (const auto known = columns_.find(key); known != columns_.end()) return known->second;
    const Shape shape = value(x).shape;
    REDLINE_ASSIGN(const int64_t count, divided("columns", shape[1].constant()));
    auto columns = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(count));
    std::iota(columns->begin(), columns->end(), static_cast<int32_t>(rank * count));
    Op gather;
    gather.def = &kGatherColumns;
    gather.name = name_of_rank(op.name + ".columns", rank);
    gather.inputs = {x};
    gather.outputs = {add_value(gather.name, {shape[0], Dim(count)})};
    gather.attrs = GatherColumnsAttrs{std::move(columns)};
    graph_.ops.push_back(gather);
    return columns_[key] = gather.outputs[0];
  }

  Status emit_product(const Op& op) {
    std::vector<ValueId> partial;
    for (const int64_t rank : local_ranks_) {
      Op part = op;
      REDLINE_ASSIGN(part.inputs[0], columns_of(op, rank));
      if (op.def == &kLinear) {
        auto attrs = std::any_cast<LinearAttrs>(op.attrs);
        if (attrs.adapters || attrs.has_residual)
          return unsupported("a product with an adapter site or a residual is not divided among ranks");
        REDLINE_TRY(take_part(part, 1, ShardedAxis::kColumns, rank));
        if (rank > 0 && attrs.has_bias) part.inputs.pop_back();
        attrs.has_bias = attrs.has_bias && rank == 0;
        part.attrs = attrs;
      } else {
        auto attrs = std::any_cast<ExpertLinearAttrs>(op.attrs);
        const auto matrices = static_cast<size_t>(attrs.num_experts);
        for (size_t m = 0; m < matrices; ++m) REDLINE_TRY(take_part(part, 3 + m, ShardedAxis::kColumns, rank));
        if (rank > 0) part.inputs.resize(3 + matrices);
        attrs.has_bias = attrs.has_bias && rank == 0;
        part.attrs = attrs;
      }
      partial.push_back(add_part(std::move(part), rank));
    }
    if (stays_partial(op)) partial_[op.outputs[0]] = std::move(partial);
    else if (op.def == &kExpertLinear)
      return unsupported("the result of experts is read by another op than expert_sum; it is not divided among ranks");
    else reduce(op, partial);
    return {};
  }

  Status emit_expert_sum(const Op& op) {
    std::vector<ValueId> partial;
    for (size_t i = 0; i < local_ranks_.size(); ++i) {
      const int64_t rank = local_ranks_[i];
      Op part = op;
      part.inputs[0] = partial_.at(op.inputs[0])[i];
      if (op.inputs.size() > 2) {  // a shared expert, perhaps with its gate
        const auto shared = partial_.find(op.inputs[2]);
        if (shared != partial_.end()) part.inputs[2] = shared->second[i];
        else if (rank > 0) part.inputs.resize(2);
      }
      partial.push_back(add_part(std::move(part), rank));
    }
    reduce(op, partial);
    return {};
  }

  /// Adds an op that computes a rank's partial sum, and returns the sum.
  ValueId add_part(Op part, int64_t rank) {
    part.name = name_of_rank(part.name, rank);
    part.outputs = {
        add_value(name_of_rank(value(part.outputs[0]).name + ".partial", rank), value(part.outputs[0]).shape)};
    graph_.ops.push_back(std::move(part));
    return graph_.ops.back().outputs[0];
  }

  void reduce(const Op& op, const std::vector<ValueId>& partial) {
    Op sum;
    sum.def = &kAllReduce;
    sum.name = op.name + ".all_reduce";
    sum.inputs = partial;
    sum.outputs = op.outputs;
    sum.attrs = AllReduceAttrs{.ranks = shard_.ranks, .group = shard_.group, .exchange = sum.name};
    graph_.ops.push_back(std::move(sum));
  }

  /// Makes each sum depend on the one before it: a worker that waits for other ranks in one sum must not keep them from
  /// another one.
  void order_reductions() {
    if (!shard_.group) return;
    const Op* last = nullptr;
    std::vector<bool> follows(graph_.values.size(), false);  // the value depends on the last sum
    for (Op& op : graph_.ops) {
      const bool depends =
          std::any_of(op.inputs.begin(), op.inputs.end(), [&](ValueId id) { return follows[index(id)]; });
      if (op.def == &kAllReduce) {
        if (last && !depends) {
          auto attrs = std::any_cast<AllReduceAttrs>(op.attrs);
          attrs.has_after = true;
          op.attrs = std::move(attrs);
          op.inputs.push_back(last->outputs[0]);
        }
        last = &op;
        std::fill(follows.begin(), follows.end(), false);
        follows[index(op.outputs[0])] = true;
      } else if (depends) {
        for (const ValueId id : op.outputs) follows[index(id)] = true;
      }
    }
  }

  /// Weights of which only parts are read must not take memory.
  void drop_unused_values() {
    std::vector<bool> is_read(graph_.values.size(), false);
    for (const Op& op : graph_.ops)
      for (const ValueId id : op.inputs) is_read[index(id)] = true;
    for (size_t v = 0; v < graph_.values.size(); ++v) {
      ValueInfo& info = graph_.values[v];
      if (is_read[v] || info.kind != ValueKind::kWeight || is_output(static_cast<ValueId>(v))) continue;
      info.kind = ValueKind::kComputed;
      info.weight = {};
    }
  }

  Graph& graph_;
  const Shard& shard_;
  std::vector<std::vector<int>> readers_;
  std::vector<int> producer_;  ///< [values] index of the op; -1: none
  std::vector<bool> is_divided_;
  std::vector<Part> parts_;  ///< [ops]
  std::vector<int64_t> local_ranks_;
  std::map<std::tuple<ValueId, int64_t, int64_t, int64_t, int64_t>, ValueId> taken_;  ///< parts of weights
  std::map<std::pair<ValueId, int64_t>, ValueId> columns_;
  std::map<ValueId, std::vector<ValueId>> partial_;  ///< partial sums by value, [local ranks]
};

}  // namespace

Status shard(Graph& graph, const Shard& shard) {
  if (shard.ranks < 1 || shard.rank < Shard::kAllRanks || shard.rank >= shard.ranks)
    return invalid_argument("rank {} of {}", shard.rank, shard.ranks);
  if (shard.ranks == 1) return {};
  const bool is_one_rank = shard.rank != Shard::kAllRanks;
  if (is_one_rank != (shard.group != nullptr) ||
      (is_one_rank && (shard.group->size() != shard.ranks || shard.group->rank() != shard.rank)))
    return invalid_argument(
        "the graph of one rank needs the group as that rank sees it, and a graph of all ranks none");
  Graph divided = graph;
  REDLINE_TRY(Sharder(divided, shard).run().within("shard"));
  REDLINE_TRY(divided.check().within("shard"));
  graph = std::move(divided);
  return {};
}

}  // namespace redline
