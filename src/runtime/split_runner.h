// Runs the parts of a graph one after the other on different devices.
#pragma once

#include "backends/runner.h"
#include "graph/split_graph.h"

namespace redline {

/// A runner of several parts. Its state groups are those of the first part, then those of the next. It does not sample
/// tokens. Values that cross from part to part are copied through the host.
class SplitRunner final : public Runner {
 public:
  /// `graphs` are results of split_graph(), with one runner each.
  SplitRunner(const std::vector<Graph>& graphs, std::vector<std::unique_ptr<Runner>> parts);

  const Program* program() const override { return nullptr; }
  std::vector<const Program*> programs() const override;
  AttentionLimits attention_limits(size_t group) const override;
  const StatePlan& states() const override { return states_; }
  Result<std::unique_ptr<StateMemory>> make_state_memory(std::span<const int64_t> num_pages) const override;
  Result<std::unique_ptr<BackendBuffer>> make_buffer(int64_t bytes) const override {
    return parts_[0]->make_buffer(bytes);
  }
  Status step(const StepContext& context) override;
  void* host_input(std::string_view name) override;
  const void* host_output(std::string_view name) const override;
  int64_t resident_arena_bytes() const override;
  bool bind(std::string_view name, void* data) override { return parts_[0]->bind(name, data); }
  std::string describe() const override;
  /// Describes the steps of the first part; the CPU's parts have no description.
  std::string steps_text() const override { return parts_[0]->steps_text(); }

 private:
  /// A value that part `to` reads from part `from`.
  struct Port {
    std::string name;
    Shape shape;
    size_t from, to;
    bool is_input;  ///< the value is an input of `from` too; false: `from` computes it
  };
  void copy(const Port& port, const SymbolValues& sizes);

  std::vector<std::unique_ptr<Runner>> parts_;
  std::vector<size_t> first_group_;  ///< [parts + 1]
  std::vector<Port> ports_;
  StatePlan states_;
};

}  // namespace redline
