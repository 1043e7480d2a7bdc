#include "llm/scheduler.h"

#include <algorithm>

namespace redline {
namespace {

class FcfsScheduler final : public Scheduler {
 public:
  void plan(std::span<const ScheduledRequest> requests, const StepBudget& budget, std::vector<Grant>& grants) override {
    StepBudget left = budget;
    const auto grant = [&](size_t i) {
      const int64_t tokens = std::min(requests[i].pending, left.tokens);
      if (tokens == 0 || left.sequences == 0) return;
      grants.push_back({i, tokens});
      left.tokens -= tokens;
      --left.sequences;
    };
    const auto decodes = [&](size_t i) { return requests[i].is_running && requests[i].pending == 1; };
    for (size_t i = 0; i < requests.size(); ++i)
      if (decodes(i)) grant(i);
    for (size_t i = 0; i < requests.size(); ++i) {
      if (decodes(i)) continue;
      if (!requests[i].is_running) {
        if (requests[i].pending > left.free_cache_tokens) return;
        left.free_cache_tokens -= requests[i].pending;
      }
      grant(i);
    }
  }
};

}  // namespace

std::unique_ptr<Scheduler> make_fcfs_scheduler() { return std::make_unique<FcfsScheduler>(); }

}  // namespace redline
