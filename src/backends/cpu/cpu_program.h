// The CPU payload of a program: the function of each stage, its operands, and memory.
#pragma once

#include <memory>
#include <vector>

#include "backends/cpu/weight_cache.h"
#include "base/aligned_buffer.h"
#include "graph/program.h"

namespace redline {

/// Per worker thread.
struct WorkerContext {
  int worker = 0;
  void* scratch = nullptr;  ///< kScratchBytes, used inside kernels
  void* buffer = nullptr;   ///< CpuProgram::buffer_bytes, for data that a task keeps between kernels
};

/// The bytes that a task reads first, in reading order.
struct FirstBytes {
  const void* data[2] = {nullptr, nullptr};
  int64_t bytes[2] = {0, 0};
};

struct CpuStage;
using TaskFn = void (*)(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker);

struct CpuStage {
  const StagePlan* plan = nullptr;  ///< of Program::stages
  TaskFn run = nullptr;
  /// Weights that the tile reads first, prefetched while the task waits for its events; or nullptr.
  FirstBytes (*first_weights)(const CpuStage& stage, const Tile& tile) = nullptr;
  std::vector<void*> operands;        ///< addresses of the op's inputs, then outputs; the order is up to the lowering
  std::shared_ptr<const void> attrs;  ///< a struct defined by the lowering
  int64_t buffer_bytes = 0;           ///< bytes of WorkerContext::buffer that a task needs

  template <class T>
  const T& attrs_as() const {
    return *static_cast<const T*>(attrs.get());
  }
  template <class T>
  T* operand(size_t i) const {
    return static_cast<T*>(operands[i]);
  }
};

/// A stage made by a lowering: the plan for scheduling and the code for workers.
struct LoweredStage : StagePlan, CpuStage {};

struct CpuProgram : ProgramPayload {
  std::vector<CpuStage> stages;  ///< parallel to Program::stages
  int64_t buffer_bytes = 0;      ///< maximum over the stages
  AlignedBuffer arena;
  std::vector<void*> inputs, outputs;  ///< where the ports of Program::inputs and outputs lie in the arena
  std::vector<AlignedBuffer> weights;
  /// Reads `weights`, so it is destroyed first; null if there is no file to write.
  std::unique_ptr<WeightCacheWriter> weight_writer;

  static CpuProgram& of(Program& program) { return static_cast<CpuProgram&>(*program.payload); }
  static const CpuProgram& of(const Program& program) { return static_cast<const CpuProgram&>(*program.payload); }
};

}  // namespace redline
