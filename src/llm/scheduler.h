// Which requests take part in the next step, and with how many tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace redline {

/// What a scheduler knows of a request.
struct ScheduledRequest {
  int64_t pending = 0;      ///< tokens that its state lacks: the rest of the prompt, or the last sampled token
  bool is_running = false;  ///< it has a state; otherwise it waits to be admitted
};

/// What a step may take.
struct StepBudget {
  int64_t tokens = 0, sequences = 0;
  int64_t free_cache_tokens = 0;  ///< of which a prompt may take what running requests do not need
  int64_t page_tokens = 1;
  int64_t max_prefill_tokens = 0;  ///< in a step with sampled tokens; 0: no limit
};

struct ScheduledTokens {
  size_t request;  ///< index into the requests
  int64_t tokens;
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;
  /// `requests` are in order of arrival. Appends at most one entry per request to `scheduled`, which is empty.
  /// Schedules nothing only if no request is running and none can be admitted.
  virtual void plan(std::span<const ScheduledRequest> requests, const StepBudget& budget,
                    std::vector<ScheduledTokens>& scheduled) = 0;
};

/// First come, first served: sampled tokens of running requests first, then prompts in order of arrival, in chunks that
/// fill the step (Sarathi-Serve, arXiv:2403.02310). A prompt is admitted when the cache has room for it; later ones do
/// not overtake it.
std::unique_ptr<Scheduler> make_fcfs_scheduler();

}  // namespace redline
