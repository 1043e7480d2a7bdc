// Runs a graph op by op through the references in float64: the answer to "is it the compiler or the model?".
#pragma once

#include <map>
#include <string>

#include "graph/reference.h"

namespace redline {

class Interpreter {
 public:
  /// Unpacks every weight to float64, eight bytes an element; above 2 GiB anew for each op that reads it, in every
  /// step.
  static Result<Interpreter> make(Graph graph);
  const Graph& graph() const { return graph_; }

  /// One step. `inputs` by name; every graph input must be there. Returns the outputs by name.
  Result<std::map<std::string, HostTensor>> run(const std::map<std::string, HostTensor>& inputs,
                                                const SymbolValues& sizes, ReferenceCache& cache);

 private:
  static HostTensor unpack(const ValueInfo& info);
  Graph graph_;
  bool keeps_weights_ = true;
  std::vector<HostTensor> values_;
};

}  // namespace redline
