// Compiles a Graph into a Program for the CPU: lowerings add stages, then memory, events and task lists are planned.
#pragma once

#include <map>
#include <optional>
#include <span>

#include "backends/cpu/cpu_program.h"
#include "backends/cpu/cpu_target.h"
#include "base/worker_team.h"

namespace redline {

struct CpuCompileOptions {
  SymbolValues bounds;
  const CpuKernels* kernels = nullptr;
  bool exact_f32 = false;  ///< never round activations: float32 kernels for every weight type
  BatchInvariance batch_invariance = BatchInvariance::kNone;
  KvFormat pack_kv_format = KvFormat::kF32;  ///< format of keys and values within a step (pack_kv)
  bool reuse_memory = true;
  /// Tokens of a chunk of the wavefront of recurrent layers; 0: no wavefront. Not set: 128 if a recurrence has fewer
  /// tasks than there are workers, else 0.
  std::optional<int64_t> wave_tokens;
  WeightCacheOptions weight_cache;
};

class CpuCompiler;  // lowering.cc

/// The interface that an op's lowering works with.
class LowerContext {
 public:
  LowerContext(const Op& op, Graph& graph, const CpuCompileOptions& options, const StatePlan& states, int workers,
               CpuCompiler& compiler)
      : op_(&op), graph_(&graph), options_(&options), states_(&states), workers_(workers), compiler_(&compiler) {}
  const Op& op() const { return *op_; }
  const Graph& graph() const { return *graph_; }
  const ValueInfo& in(size_t i) const { return graph_->value(op_->inputs[i]); }
  const ValueInfo& out(size_t i = 0) const { return graph_->value(op_->outputs[i]); }
  const CpuKernels& kernels() const { return *options_->kernels; }
  const CpuCompileOptions& options() const { return *options_; }
  int workers() const { return workers_; }

  /// Returns input i as a packed matrix for linear and embedding kernels (tensor/packed_weight.h). The data is valid
  /// after compile_cpu().
  Result<const void*> packed_weight(size_t i);
  /// Returns input i as a dense float32 vector (norm weights, biases, frequencies).
  Result<const float*> dense_weight(size_t i);
  /// Allocates memory for weights in another order, which the lowering writes. It lives as long as the program.
  Result<void*> allocate_weight(int64_t bytes);
  /// Returns the place of input i, which must be a kKeyValue state.
  KvPlace kv_state(size_t i) const { return states_->kv_place(*graph_, op_->inputs[i]); }
  /// Returns the scratch that the attention stages of a state group share.
  std::shared_ptr<AttentionScratch> attention_scratch(size_t group);

  /// Returns a stage over the rows and columns of output 0 as a single tile; the lowering adds tiles and operands.
  template <auto kRun, auto kFirstWeights = nullptr, class Params>
  LoweredStage output_stage(std::shared_ptr<Params> params) const {
    return LoweredStage::make<kRun, kFirstWeights>(TaskGrid::of(out().shape[0], out().shape[1].constant()),
                                                   std::move(params));
  }
  /// Adds a float32 value in the arena that one stage of the op passes to another.
  ValueId add_temporary(std::string name, Shape shape);
  /// Adds a stage. Name and op are filled in if omitted.
  void add_stage(LoweredStage stage);
  /// Adds a function to CpuProgram::before_steps.
  void before_steps(std::function<void(const StepContext&)> prepare);
  /// Splits columns [0, cols) at multiples of `grain` into at most `tiles` parts of nearly equal size.
  static std::vector<int64_t> cut_columns(int64_t cols, int64_t grain, int tiles);

 private:
  const Op* op_;
  Graph* graph_;
  const CpuCompileOptions* options_;
  const StatePlan* states_;
  int workers_;
  CpuCompiler* compiler_;
};

/// The CPU implementation of one op: adds its stages.
struct CpuLowering {
  const OpDef* op;
  Status (*lower)(LowerContext& context);
};
/// The lowerings of a file in lower/, which the build finds: lower/linear.cc defines kLinearLowerings.
using CpuLowerings = std::span<const CpuLowering>;
/// Returns nullptr if the CPU has no lowering for this op.
const CpuLowering* find_cpu_lowering(const OpDef* op);

/// Compiles `graph` for `team.size()` workers and packs the weights on the team. The graph and its weight files are not
/// needed afterwards.
Result<Program> compile_cpu(Graph graph, const CpuCompileOptions& options, WorkerTeam& team);

}  // namespace redline
