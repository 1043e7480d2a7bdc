#include "llm/next_position.h"

#include <algorithm>

namespace redline {

int64_t NextPosition::at(int64_t length) const {
  const auto next = std::upper_bound(jumps_.begin(), jumps_.end(), length,
                                     [](int64_t wanted, const Jump& jump) { return wanted < jump.length; });
  return next == jumps_.begin() ? length : std::prev(next)->position + length - std::prev(next)->length;
}

void NextPosition::append(int64_t length, const PromptView& tokens) {
  if (!tokens.has_positions()) return;
  const int64_t origin = at(length) - tokens.position_after(0);
  for (size_t count = 1; count <= tokens.size(); ++count) {
    const int64_t now = length + static_cast<int64_t>(count), position = origin + tokens.position_after(count);
    if (position != at(now)) jumps_.push_back({now, position});
  }
}

void NextPosition::truncate(int64_t length) {
  while (!jumps_.empty() && jumps_.back().length > length) jumps_.pop_back();
}

}  // namespace redline
