#include "runtime/rank_runner.h"

#include <algorithm>

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
  for (const auto& group : groups_) REDLINE_TRY(group->status());
  Status status = runner_->step(context);
  for (const auto& group : groups_) {
    if (!status.ok()) group->fail(status);
    else status = group->status();
  }
  return status;
}

}  // namespace redline
