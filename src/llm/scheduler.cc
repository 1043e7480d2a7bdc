#include "llm/scheduler.h"

#include <algorithm>

namespace redline {
namespace {

class FcfsScheduler final : public Scheduler {
 public:
  void plan(std::span<const ScheduledRequest> requests, const StepBudget& budget,
            std::vector<ScheduledTokens>& scheduled) override {
    StepBudget left = budget;
    const auto take = [&](size_t i) {
      const int64_t tokens = std::min(requests[i].pending, left.tokens);
      if (tokens == 0 || left.sequences == 0) return;
      scheduled.push_back({i, tokens});
      left.tokens -= tokens;
      --left.sequences;
    };
    const auto decodes = [&](size_t i) { return requests[i].is_running && requests[i].pending == 1; };
    // Running requests come first in the cache too: a sampled token may need a page.
    for (const ScheduledRequest& request : requests)
      if (request.is_running && request.pending > 0)
        left.free_cache_tokens -= request.pending > 1 ? request.pending : budget.page_tokens;
    for (size_t i = 0; i < requests.size(); ++i)
      if (decodes(i)) take(i);
    if (budget.max_prefill_tokens > 0 && !scheduled.empty())
      left.tokens = std::min(left.tokens, budget.max_prefill_tokens);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (decodes(i)) continue;
      if (!requests[i].is_running) {
        if (requests[i].pending > left.free_cache_tokens) return;
        left.free_cache_tokens -= requests[i].pending;
      }
      take(i);
    }
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_fcfs_scheduler() { return std::make_unique<FcfsScheduler>(); }

}  // namespace redline
