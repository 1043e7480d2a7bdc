// Runs a graph op by op with the float64 references: separates compiler errors from model errors.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "backends/runner.h"
#include "graph/reference.h"

namespace redline {

class Interpreter {
 public:
  /// Unpacks every weight to float64, eight bytes per element. Above 2 GiB in total, weights are unpacked again for
  /// each op that reads them, in every step.
  static Result<Interpreter> make(Graph graph);
  const Graph& graph() const { return graph_; }
  /// Returns the layout of the states, which are float64.
  const StatePlan& states() const { return states_; }

  /// Runs one step. `inputs` are by name and must include every graph input. Returns the outputs by name.
  Result<std::map<std::string, HostTensor>> run(const std::map<std::string, HostTensor>& inputs,
                                                const StepContext& step);
  /// Runs a graph without states.
  Result<std::map<std::string, HostTensor>> run(const std::map<std::string, HostTensor>& inputs,
                                                const SymbolValues& sizes);

 private:
  static HostTensor unpack(const ValueInfo& info);
  Graph graph_;
  StatePlan states_;
  bool keeps_weights_ = true;
  std::vector<HostTensor> values_;
};

/// Returns the interpreter with the interface of compiled programs. `bounds`: upper bounds of the sizes of a step.
Result<std::unique_ptr<Runner>> make_interpreter_runner(Graph graph, const SymbolValues& bounds);

}  // namespace redline
