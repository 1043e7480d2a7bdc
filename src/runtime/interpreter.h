// Runs a graph op by op with the float64 references: separates compiler errors from model errors.
#pragma once

#include <map>
#include <string>

#include "graph/reference.h"

namespace redline {

class Interpreter {
 public:
  /// Unpacks every weight to float64, eight bytes per element. Above 2 GiB in total, weights are unpacked again for
  /// each op that reads them, in every step.
  static Result<Interpreter> make(Graph graph);
  const Graph& graph() const { return graph_; }

  /// Runs one step. `inputs` by name; every graph input must be present. Returns the outputs by name.
  Result<std::map<std::string, HostTensor>> run(const std::map<std::string, HostTensor>& inputs,
                                                const SymbolValues& sizes, ReferenceCache& cache,
                                                std::span<const AdapterSegment> adapters = {});

 private:
  static HostTensor unpack(const ValueInfo& info);
  Graph graph_;
  bool keeps_weights_ = true;
  std::vector<HostTensor> values_;
};

}  // namespace redline
