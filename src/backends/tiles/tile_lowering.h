// Compiles a Graph into a Program for a tile device. Each op's lowering adds stages: the arguments of a kernel of
// kernels/tiles, the grid of its tasks, and which argument is the address of which value.
#pragma once

#include <cstring>
#include <map>
#include <span>

#include "backends/tiles/panel_format.h"
#include "backends/tiles/tile_program.h"
#include "base/worker_team.h"
#include "graph/graph.h"
#include "graph/state.h"
#include "tensor/packed_weight.h"

namespace redline {

struct TileCompileOptions {
  SymbolValues bounds;
  bool exact_f32 = false;  ///< products use float32 for every weight type
  bool reuse_memory = true;
  int multiprocessors = 0;  ///< task lists; 0: as many as the device has
  /// True if a library of the device may multiply. The bits of a row then depend on whether the step has many rows.
  bool may_use_library = true;
};

class TileLowerContext;

/// A stage as a lowering adds it.
struct TileStage {
  StagePlan plan;
  tiles::StageTable table = {};
  std::vector<uint8_t> args;
  struct Address {
    int32_t at;           ///< offset in `args`
    ValueId value = -1;   ///< value in the arena, or -1
    int64_t weight = -1;  ///< offset in the weights, or -1
  };
  std::vector<Address> addresses;
  struct RowDim {
    int32_t at;  ///< offset in `args` of the index of `dim` in StepTables::rows
    Dim dim;
  };
  std::vector<RowDim> row_dims;
  int64_t weight_bytes = 0, weight_elements = 0;  ///< size of the packed weights

  /// Sets a grid over `rows` x `cols` of output 0, cut into columns of `col_tile`. A launch has a block for every
  /// `row_tile` rows; a persistent step cuts all rows into `row_parts`.
  void set_grid(const Dim& rows, int64_t cols, int64_t col_tile, int row_tile, int row_parts);
  void set_work_partitions(int count, int64_t cols);
  /// Sets `count` work partitions, for each of which a launch has a block. In a persistent step each of `lists` has one
  /// task, which takes partitions until none is left, because partitions take unequal times.
  void set_shared_partitions(int count, int lists, int64_t cols);
};

/// Fills in the arguments of one kernel.
template <class Kernel>
class TileStageBuilder {
 public:
  using Args = typename Kernel::Args;
  TileStageBuilder(TileLowerContext& context, tiles::KernelId id);

  Args args = {};
  StagePlan& plan() { return stage_.plan; }
  TileStage& stage() { return stage_; }
  /// Sets an argument to the address of a value of the arena that the kernel reads.
  template <class T, class Part>
  void read(T* Part::*member, ValueId value, Reads how) {
    stage_.plan.reads.push_back({value, how});
    stage_.addresses.push_back({offset<T>(member), value, -1});
  }
  template <class T, class Part>
  void write(T* Part::*member, ValueId value) {
    stage_.plan.writes.push_back(value);
    stage_.addresses.push_back({offset<T>(member), value, -1});
  }
  /// Sets an argument to the address of input `i`: packed weight, packed weights of several inputs, or a dense float32
  /// vector.
  Status packed_weight(const uint8_t* Args::*member, size_t i);
  Status packed_weights(const uint8_t* Args::*member, size_t first, size_t count, int64_t Args::*stride);
  Status dense_weight(const float* Args::*member, size_t i);
  /// Sets an argument to the address of numbers that the lowering computes.
  Status constant(const float* Args::*member, std::span<const float> numbers);
  /// Sets the argument `number`, a part of `args`, to the index of a Dim among StepTables::rows.
  void row_dim(int32_t& number, Dim dim) {
    stage_.row_dims.push_back(
        {static_cast<int32_t>(reinterpret_cast<const uint8_t*>(&number) - reinterpret_cast<const uint8_t*>(&args)),
         std::move(dim)});
  }
  void add();

 private:
  void count_weight(const ValueInfo& weight) {
    stage_.weight_bytes += packed_bytes(weight.weight.view);
    stage_.weight_elements += weight.weight.view.num_elements();
  }
  template <class T>
  int32_t offset(T* Args::*member) const {
    return static_cast<int32_t>(reinterpret_cast<const uint8_t*>(&(args.*member)) -
                                reinterpret_cast<const uint8_t*>(&args));
  }
  TileLowerContext& context_;
  TileStage stage_;
};

class TileCompiler;

/// The interface that an op's lowering works with.
class TileLowerContext {
 public:
  TileLowerContext(const Op& op, Graph& graph, const TileCompileOptions& options, const StatePlan& states,
                   TileCompiler& compiler)
      : op_(&op), graph_(&graph), options_(&options), states_(&states), compiler_(&compiler) {}
  const Op& op() const { return *op_; }
  const Graph& graph() const { return *graph_; }
  const ValueInfo& in(size_t i) const { return graph_->value(op_->inputs[i]); }
  const ValueInfo& out(size_t i = 0) const { return graph_->value(op_->outputs[i]); }
  const TileCompileOptions& options() const { return *options_; }
  int multiprocessors() const { return options_->multiprocessors; }
  /// Returns the number of row parts of an op that computes rows independently: a persistent step has few rows.
  int row_parts() const { return std::min(multiprocessors(), 16); }
  /// Returns the place of input i, which must be a kKeyValue state.
  KvPlace kv_state(size_t i) const { return states_->kv_place(*graph_, op_->inputs[i]); }
  /// Adds a value in the arena that one stage of the op passes to another; without rows, it only orders the stages.
  ValueId add_temporary(std::string name, Shape shape);

  /// Returns the number of an adapter site, whose factors are float32 from now on.
  int32_t adapter_site(std::shared_ptr<AdapterSite> site);
  /// States that attention writes this many floats of partial results for a row and a chunk.
  void need_partials(int64_t floats_per_row);

  // Functions for TileStageBuilder. They return offsets in the weights.
  Result<int64_t> packed_weight(size_t i);
  /// Returns the offset of input `first`. The `count` inputs from it on must have one shape and type; they lie `stride`
  /// bytes apart.
  Result<int64_t> packed_weights(size_t first, size_t count, int64_t& stride);
  Result<int64_t> dense_weight(size_t i);
  Result<int64_t> constant(std::span<const float> numbers);
  void add_stage(TileStage stage);

 private:
  const Op* op_ = nullptr;
  Graph* graph_ = nullptr;
  const TileCompileOptions* options_;
  const StatePlan* states_ = nullptr;
  TileCompiler* compiler_;
};

template <class Kernel>
TileStageBuilder<Kernel>::TileStageBuilder(TileLowerContext& context, tiles::KernelId id) : context_(context) {
  stage_.table.kernel = id;
}
template <class Kernel>
Status TileStageBuilder<Kernel>::packed_weight(const uint8_t* Args::*member, size_t i) {
  REDLINE_ASSIGN(const int64_t at, context_.packed_weight(i));
  stage_.addresses.push_back({offset(member), -1, at});
  count_weight(context_.in(i));
  return {};
}
template <class Kernel>
Status TileStageBuilder<Kernel>::packed_weights(const uint8_t* Args::*member, size_t first, size_t count,
                                                int64_t Args::*stride) {
  REDLINE_ASSIGN(const int64_t at, context_.packed_weights(first, count, args.*stride));
  for (size_t i = first; i < first + count; ++i) count_weight(context_.in(i));
  stage_.addresses.push_back({offset(member), -1, at});
  return {};
}
template <class Kernel>
Status TileStageBuilder<Kernel>::dense_weight(const float* Args::*member, size_t i) {
  REDLINE_ASSIGN(const int64_t at, context_.dense_weight(i));
  stage_.addresses.push_back({offset(member), -1, at});
  return {};
}
template <class Kernel>
Status TileStageBuilder<Kernel>::constant(const float* Args::*member, std::span<const float> numbers) {
  REDLINE_ASSIGN(const int64_t at, context_.constant(numbers));
  stage_.addresses.push_back({offset(member), -1, at});
  return {};
}
template <class Kernel>
void TileStageBuilder<Kernel>::add() {
  static_assert(std::is_trivially_copyable_v<Args>);
  const auto* bytes = reinterpret_cast<const uint8_t*>(&args);
  stage_.args.assign(bytes, bytes + sizeof(Args));
  context_.add_stage(std::move(stage_));
}

/// The tile implementation of one op: adds its stages.
struct TileLowering {
  const OpDef* op;
  Status (*lower)(TileLowerContext& context);
};
/// The lowerings of a file in lower/, which the build finds: lower/linear.cc defines kLinearTileLowerings.
using TileLowerings = std::span<const TileLowering>;
/// Returns nullptr if the op has no lowering.
const TileLowering* find_tile_lowering(const OpDef* op);

/// Compiles a graph that has been through run_passes(). `team` packs the weights. unsupported: an op or a weight type
/// has no kernel; the message names the op.
Result<Program> compile_tiles(Graph graph, const TileCompileOptions& options, std::shared_ptr<OpenDevice> device,
                              WorkerTeam& team);

}  // namespace redline
