#include "runtime/shared_states.h"

#include <algorithm>

namespace redline {
namespace {

std::string describe(const StateGroup::Member& state) {
  const StateAttrs& a = state.attrs;
  if (a.kind == StateKind::kRecurrent) return fmt::format("{} ({} numbers)", state.name, a.elements);
  return fmt::format("{} ({} heads of {}, {} bytes each)", state.name, a.num_heads, a.head_dim,
                     kv_element_bytes(a.format));
}

bool is_same(const StateGroup::Member& a, const StateGroup::Member& b) {
  return a.name == b.name && a.offset == b.offset && a.attrs.kind == b.attrs.kind &&
         a.attrs.num_heads == b.attrs.num_heads && a.attrs.head_dim == b.attrs.head_dim &&
         a.attrs.window == b.attrs.window && a.attrs.format == b.attrs.format && a.attrs.elements == b.attrs.elements;
}

Status check_same(const StateGroup& a, const StateGroup& b) {
  if (a.members.size() != b.members.size())
    return invalid_argument("state group \"{}\" has {} states in one graph, {} in another", a.name, a.members.size(),
                            b.members.size());
  for (size_t i = 0; i < a.members.size(); ++i)
    if (!is_same(a.members[i], b.members[i]))
      return invalid_argument("state group \"{}\": state {} is {} in one graph, {} in another", a.name, i,
                              describe(a.members[i]), describe(b.members[i]));
  if (a.page_bytes != b.page_bytes)
    return invalid_argument("state group \"{}\" has pages of {} bytes in one graph, of {} in another", a.name,
                            a.page_bytes, b.page_bytes);
  return {};
}

}  // namespace

Result<std::vector<size_t>> find_shared_group(std::span<const Executable* const> executables, std::string_view name) {
  std::vector<size_t> indices;
  for (size_t e = 0; e < executables.size(); ++e) {
    const StatePlan& plan = executables[e]->states();
    const auto group = std::find_if(plan.groups.begin(), plan.groups.end(),
                                    [&](const StateGroup& g) { return !name.empty() && g.name == name; });
    if (group == plan.groups.end())
      return not_found("graph {} of {} has no state group \"{}\"", e + 1, executables.size(), name);
    indices.push_back(static_cast<size_t>(group - plan.groups.begin()));
    const Executable& first = *executables[0];
    if (plan.storage != first.states().storage || executables[e]->device().kind != first.device().kind ||
        executables[e]->device().index != first.device().index)
      return invalid_argument("state group \"{}\" is shared by executables of different devices or modes", name);
    REDLINE_TRY(check_same(first.states().groups[indices[0]], *group));
  }
  return indices;
}

}  // namespace redline
