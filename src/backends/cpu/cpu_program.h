// The CPU's part of a program: the function that each stage runs, its operands, and memory.
#pragma once

#include <memory>
#include <vector>

#include "backends/cpu/weight_cache.h"
#include "base/aligned_buffer.h"
#include "graph/program.h"

namespace redline {

/// Belongs to one worker thread.
struct WorkerContext {
  int worker = 0;
  void* scratch = nullptr;  ///< kScratchBytes, for kernels
  void* buffer = nullptr;   ///< CpuProgram::buffer_bytes, for what a task keeps between its kernels
};

/// Bytes that a task reads first, in the order in which it reads them.
struct FirstBytes {
  const void* data[2] = {nullptr, nullptr};
  int64_t bytes[2] = {0, 0};
};

struct CpuStage;
using TaskFn = void (*)(const CpuStage& stage, const Tile& tile, const StepContext& step, WorkerContext& worker);

struct CpuStage {
  const StagePlan* plan = nullptr;  ///< of Program::stages
  TaskFn run = nullptr;
  /// Weights that the tile reads first, or nullptr: fetched while the task waits for its events.
  FirstBytes (*first_weights)(const CpuStage& stage, const Tile& tile) = nullptr;
  std::vector<void*> operands;        ///< data of the op's inputs, then outputs; the order is the lowering's own
  std::shared_ptr<const void> attrs;  ///< the lowering's own struct
  int64_t buffer_bytes = 0;           ///< of WorkerContext::buffer that a task needs

  template <class T>
  const T& attrs_as() const {
    return *static_cast<const T*>(attrs.get());
  }
  template <class T>
  T* operand(size_t i) const {
    return static_cast<T*>(operands[i]);
  }
};

/// A stage as a lowering makes it: what planning sees and what workers run.
struct LoweredStage : StagePlan, CpuStage {};

struct CpuProgram : ProgramPayload {
  std::vector<CpuStage> stages;  ///< beside Program::stages
  int64_t buffer_bytes = 0;      ///< the most that a stage needs
  AlignedBuffer arena;
  std::vector<AlignedBuffer> weights;
  /// Reads `weights`, so it goes before them; null: nothing to write.
  std::unique_ptr<WeightCacheWriter> weight_writer;

  static CpuProgram& of(Program& program) { return static_cast<CpuProgram&>(*program.payload); }
  static const CpuProgram& of(const Program& program) { return static_cast<const CpuProgram&>(*program.payload); }
  /// Where a value lies in the arena; nullptr: it has no place there.
  void* address(const Program& program, ValueId value) const;
};

}  // namespace redline
