#include "graph/ops/linear.h"
#include "graph/ops/prepare_x.h"
#include "graph/passes/passes.h"

namespace redline {

Status prepare_activations(Graph& graph, const CpuKernels& kernels, bool exact_f32) {
  struct Prepared {
    ValueId x, value;
  };
  std::vector<Prepared> made;
  std::vector<Op> ops;
  for (Op& op : graph.ops) {
    if (op.def == &kLinear) {
      const ValueId x = op.inputs[0];
      const XForms forms = choose_linear(kernels, graph.value(op.inputs[1]).dtype, exact_f32).forms;
      if (!(graph.value(x).forms == forms)) {
        ValueId prepared = -1;
        for (const Prepared& p : made)
          if (p.x == x && graph.value(p.value).forms == forms) prepared = p.value;
        if (prepared < 0) {
          prepared = static_cast<ValueId>(graph.values.size());
          ValueInfo info = graph.value(x);
          info.kind = ValueKind::kComputed;
          info.name += ".prepared";
          info.forms = forms;
          graph.values.push_back(std::move(info));
          made.push_back({x, prepared});
          ops.push_back({&kPrepareX, graph.value(prepared).name, {x}, {prepared}, {}});
        }
        op.inputs[0] = prepared;
      }
    }
    ops.push_back(std::move(op));
  }
  graph.ops = std::move(ops);
  return {};
}

}  // namespace redline
