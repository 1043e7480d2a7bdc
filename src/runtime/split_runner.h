// Runs a graph in two parts, one after the other, on different devices.
#pragma once

#include "graph/program.h"
#include "graph/split_graph.h"

namespace redline {

/// State groups are those of the front, then those of the back; tokens are not sampled.
class SplitRunner final : public Runner {
 public:
  /// `split`: the graphs of the runners, whose ports it reads.
  SplitRunner(const SplitGraph& split, std::unique_ptr<Runner> front, std::unique_ptr<Runner> back);

  const Program* program() const override { return nullptr; }
  std::vector<const Program*> programs() const override { return {front_->program(), back_->program()}; }
  AttentionLimits attention_limits(size_t group) const override;
  const StatePlan& states() const override { return states_; }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const override;
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const override {
    return front_->make_buffer(bytes);
  }
  Status step(const StepContext& context) override;
  void* host_input(std::string_view name) override;
  const void* host_output(std::string_view name) const override { return back_->host_output(name); }
  int64_t resident_arena_bytes() const override {
    return front_->resident_arena_bytes() + back_->resident_arena_bytes();
  }
  bool bind(std::string_view name, void* data) override { return front_->bind(name, data); }
  std::string describe() const override { return front_->describe() + back_->describe(); }

 private:
  struct Port {
    std::string name;
    Shape shape;
    bool is_input;  ///< of both parts; else the front makes it
  };
  /// What the back reads too: inputs, or what the front has made.
  void copy(const SymbolValues& sizes, bool inputs);

  std::unique_ptr<Runner> front_, back_;
  std::vector<Port> ports_;
  StatePlan states_;
};

}  // namespace redline
