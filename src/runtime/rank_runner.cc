#include "runtime/rank_runner.h"

#include <algorithm>
#include <new>

#include "base/error.h"
#include "graph/ops/all_reduce.h"

namespace redline {

std::vector<std::shared_ptr<RankGroup>> rank_groups(const Graph& graph) {
  std::vector<std::shared_ptr<RankGroup>> groups;
  for (const Op& op : graph.ops) {
    if (op.def != &kAllReduce) continue;
    const auto& group = std::any_cast<const AllReduceAttrs&>(op.attrs).group;
    if (group && std::find(groups.begin(), groups.end(), group) == groups.end()) groups.push_back(group);
  }
  return groups;
}

Status RankRunner::step(const StepContext& context) {
  Status status;
  const auto ask_groups = [&] {
    for (const auto& group : groups_)
      if (status.ok()) status = group->status();
  };
  ask_groups();
  try {
    if (status.ok()) status = runner_->step(context);
  } catch (const std::bad_alloc&) {
    status = out_of_memory("no room for the step of a rank");
  }
  ask_groups();
  if (!status.ok())
    for (const auto& group : groups_) group->fail(status);  // the other ranks do not wait for this one
  return status;
}

}  // namespace redline
