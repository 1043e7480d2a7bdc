// The CPU payload of a program: the function of each stage, its parameters, and memory.
#pragma once

#include <time.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "backends/cpu/attention_scratch.h"
#include "backends/cpu/weight_cache.h"
#include "base/aligned_buffer.h"
#include "graph/program.h"
#include "tensor/kv_page.h"

namespace redline {

/// A waiting worker spins kWaitSpins times, long enough for the rest of a tile, then sleeps for kWaitNap at a time. It
/// does not yield if it has a core of its own: another process scheduled on the core would keep it for its whole time
/// slice, milliseconds, and the other workers would then wait for this one (docs/history/performance-notes.md, "Waits
/// beside other programs").
inline constexpr int kWaitSpins = 8000;
inline constexpr timespec kWaitNap = {0, 50'000};

/// The context of one worker thread.
struct WorkerContext {
  int worker = 0;
  uint64_t step = 0;         ///< number of the step, from 1 on
  bool shares_core = false;  ///< there are more workers than cores, so waiting workers yield
  void* scratch = nullptr;   ///< kScratchBytes, used inside kernels
  void* buffer = nullptr;    ///< CpuProgram::buffer_bytes, for data that a task keeps between kernels
};

/// Addresses of the bytes that a task reads first, in reading order.
struct FirstBytes {
  const void* data[2] = {nullptr, nullptr};
  int64_t bytes[2] = {0, 0};
};

struct CpuStage;
using TaskFn = void (*)(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker);

/// The address of a value in the parameters of a stage. It is set when memory is planned, and by Executor::bind if the
/// value is external.
struct OperandAddress {
  void* data = nullptr;
};
template <class T>
struct Operand : OperandAddress {
  operator T*() const { return static_cast<T*>(data); }  // NOLINT(google-explicit-constructor): used like a T*
};

struct CpuStage {
  const StagePlan* plan = nullptr;  ///< element of Program::stages
  TaskFn run = nullptr;
  /// Returns the weights that the tile reads first, which are prefetched while the task waits for its events. nullptr:
  /// none.
  FirstBytes (*first_weights)(const CpuStage& stage, const Tile& tile) = nullptr;
  std::shared_ptr<void> params;  ///< parameters of the lowering: kernels, sizes, weights and operands
  struct Use {
    OperandAddress* operand;  ///< an operand in `params`
    ValueId value;
  };
  std::vector<Use> operands;
  int64_t buffer_bytes = 0;  ///< bytes of WorkerContext::buffer that a task needs
};

/// A stage made by a lowering: the plan for scheduling and the code for workers. Each operand is declared together with
/// the way in which tasks read or write its value.
struct LoweredStage : StagePlan, CpuStage {
  /// Creates a stage. Tasks call kRun(parameters, tile, step, worker); kFirstWeights(parameters, tile) is
  /// CpuStage::first_weights.
  template <auto kRun, auto kFirstWeights = nullptr, class Params>
  static LoweredStage make(TaskGrid grid, std::shared_ptr<Params> params) {
    LoweredStage stage;
    stage.grid = std::move(grid);
    stage.run = [](const CpuStage& self, const Tile& tile, const StepContext& step, WorkerContext& worker) {
      kRun(*static_cast<const Params*>(self.params.get()), tile, step, worker);
    };
    if constexpr (!std::is_same_v<decltype(kFirstWeights), std::nullptr_t>)
      stage.first_weights = [](const CpuStage& self, const Tile& tile) {
        return kFirstWeights(*static_cast<const Params*>(self.params.get()), tile);
      };
    stage.params = std::move(params);
    return stage;
  }
  void read(ValueId value, Reads how) { reads.push_back({value, how}); }
  void write(ValueId value) { writes.push_back(value); }
  /// Declares an operand that is read. `operand` must be in the parameters that the stage was made with, and must not
  /// move.
  template <class T>
  void read(Operand<const T>& operand, ValueId value, Reads how) {
    read(value, how);
    operands.push_back({&operand, value});
  }
  template <class T>
  void write(Operand<T>& operand, ValueId value) {
    write(value);
    operands.push_back({&operand, value});
  }
};

/// Returns KV head `index` of the state at `place` (KvHeadView has the order of elements).
inline KvHeadView kv_head(const KvPlace& place, const StateStep& step, int64_t index) {
  uint8_t* base = step.memory + index * place.head_bytes;
  return {base + place.keys, base + place.values, step.page_bytes / place.element_bytes};
}

struct CpuProgram : ProgramPayload {
  std::vector<CpuStage> stages;  ///< parallel to Program::stages
  int64_t buffer_bytes = 0;      ///< maximum over the stages
  /// Called before the tasks of a step whose rows have adapters.
  std::vector<std::function<void(const StepContext&)>> before_steps;
  AlignedBuffer arena;
  std::vector<void*> inputs, outputs;  ///< addresses in the arena of the ports in Program::inputs and outputs
  std::vector<std::shared_ptr<AttentionScratch>> attention;  ///< [state groups]; null if no stage attends to the group
  std::vector<AlignedBuffer> weights;
  /// Writes the cache file of `weights`; null if there is no file to write. Declared after them because it must be
  /// destroyed first.
  std::unique_ptr<WeightCacheWriter> weight_writer;

  static CpuProgram& of(Program& program) { return static_cast<CpuProgram&>(*program.payload); }
  static const CpuProgram& of(const Program& program) { return static_cast<const CpuProgram&>(*program.payload); }
};

}  // namespace redline
