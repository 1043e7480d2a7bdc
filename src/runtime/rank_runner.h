// Runs the part of a graph that one of several ranks computes.
#pragma once

#include <memory>
#include <vector>

#include "backends/runner.h"
#include "ranks/rank_group.h"

namespace redline {

/// Returns the groups of the graph's sums over ranks, each once; empty: the graph exchanges nothing.
std::vector<std::shared_ptr<RankGroup>> rank_groups(const Graph& graph);

/// Runs steps by another runner, and returns the failure of a rank group as that of the step: tasks cannot fail. A step
/// that fails by itself makes its groups fail, so that no other rank waits for it.
class RankRunner final : public Runner {
 public:
  RankRunner(std::unique_ptr<Runner> runner, std::vector<std::shared_ptr<RankGroup>> groups)
      : runner_(std::move(runner)), groups_(std::move(groups)) {}

  Status step(const StepContext& context) override;

  const Program* program() const override { return runner_->program(); }
  std::vector<const Program*> programs() const override { return runner_->programs(); }
  AttentionLimits attention_limits(size_t group) const override { return runner_->attention_limits(group); }
  const StatePlan& states() const override { return runner_->states(); }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const override {
    return runner_->make_state_memory(num_pages);
  }
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const override {
    return runner_->make_buffer(bytes);
  }
  void* host_input(std::string_view name) override { return runner_->host_input(name); }
  const void* host_output(std::string_view name) const override { return runner_->host_output(name); }
  int64_t resident_arena_bytes() const override { return runner_->resident_arena_bytes(); }
  bool bind(std::string_view name, void* data) override { return runner_->bind(name, data); }
  std::string describe() const override { return runner_->describe(); }
  std::string steps_text() const override { return runner_->steps_text(); }
  Result<std::vector<StageTime>> time_stages(double seconds) override { return runner_->time_stages(seconds); }

 private:
  std::unique_ptr<Runner> runner_;
  std::vector<std::shared_ptr<RankGroup>> groups_;
};

}  // namespace redline
