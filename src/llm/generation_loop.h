// Runs all requests of an engine in shared steps. One thread at a time runs the steps: a caller of run(), or
// the loop's own thread for requests from submit(). The loop's thread delivers a step's results during the next step.
#pragma once

#include <atomic>
#include <thread>

#include "base/background_job.h"
#include "base/fair_pool.h"
#include "llm/generation.h"
#include "llm/prefix_cache.h"
#include "llm/scheduler.h"
#include "llm/step_time.h"
#include "llm/stepper.h"

namespace redline {

/// How the requests of an engine draft tokens.
struct Drafting {
  MakeDrafter make;        ///< makes the drafter of a request; empty: nothing is drafted
  int64_t max_tokens = 0;  ///< GenerateRequest::num_speculative_tokens, unless the request has its own
};

/// Schedules, runs and delivers the requests of an engine. Thread-safe.
class GenerationLoop : private SchedulerHost {
 public:
  /// Stepper and model must outlive the loop. `max_prefill_tokens`, `max_slowdown`: as in TextEngineOptions. `prefixes`
  /// may be null.
  GenerationLoop(Stepper& stepper, const TextModel& model, int64_t max_prefill_tokens, double max_slowdown,
                 std::unique_ptr<PrefixCache> prefixes = nullptr, Drafting drafting = {});
  /// Cancels the requests that still run.
  ~GenerationLoop() override;

  Result<GenerateResult> run(const GenerateRequest& request, TextGeneration::Callback on_piece);
  Result<std::shared_ptr<Generation>> submit(const GenerateRequest& request, TextGeneration::Callback on_piece);
  /// Returns the counts of requests and tokens. Does not wait for the step in progress.
  EngineStats stats() const;
  /// Returns true if a request waits or runs. Does not wait for the step in progress.
  bool is_busy() const;

  /// For tests: called with the client of a request before its constraint is prepared on a thread of its own.
  inline static std::function<void(const std::string&)> on_prepare;
  /// For tests: makes the drafter of a request in place of the engine's. May return null.
  inline static std::function<std::unique_ptr<Drafter>(const GenerateRequest&)> make_test_drafter;

 private:
  struct Request {
    std::shared_ptr<TextGeneration> generation;
    bool is_submitted = false;
    uint64_t id = 0;
    bool has_run = false;  ///< the request took part in the last step
  };
  /// Runs steps until `mine` has ended, or, without one, until the loop closes.
  void run_steps(const TextGeneration* mine);
  /// Runs one step of the requests in `running_`, which no other thread changes meanwhile. `overlaps`: another thread
  /// delivers the results of the step, until settle().
  void step(bool overlaps);
  /// Prepares the constraints of the requests in `delivering_`, then adds text and calls the callbacks. `overlaps`: as
  /// in step().
  void begin_delivery();
  void deliver(bool overlaps);
  /// Prepares the constraints of the requests in `delivering_` on threads of `constraints_` and waits at most
  /// kPatience. Requests that are not prepared then are late.
  void prepare_constraints();
  /// Returns when a late request is prepared, or after `time`.
  void wait_for_late(std::chrono::milliseconds time);
  bool has_late() const;
  /// Waits until the last step is delivered.
  void settle();
  /// Takes requests out of running_ whose end has been delivered, and wakes their waiters.
  std::vector<Request> publish_ended();
  /// Under the stepper's mutex: runs the scheduled tokens and samples. Requests that cannot continue have failed.
  std::vector<ScheduledTokens> run_scheduled();
  std::vector<ScheduledRequest> scheduled_requests() const;
  /// `drafts`: the step may have drafted tokens.
  std::vector<ScheduledTokens> schedule(bool admits, bool drafts);
  Result<std::shared_ptr<TextGeneration>> make_generation(const GenerateRequest& request,
                                                          TextGeneration::Callback on_piece) const;
  Status run(std::span<const ScheduledTokens> scheduled);
  /// Samples from the logits of the step, and drops the state of drafted tokens that were not accepted.
  void sample(std::span<const ScheduledTokens> scheduled, std::span<const StepEntry> entries);
  /// Stores the state of a request if its last step has filled a page. `length`: tokens before that step.
  void store_filled(TextGeneration& request, bool had_prefilled, int64_t length);
  /// Samples the held logits of requests that are no longer late. Returns the number of these requests.
  size_t sample_held();
  // Actions that the scheduler requests.
  int64_t available_pages() const override;
  PrefixMatch find_prefix(size_t request) const override;
  int64_t common_prefix(size_t a, size_t b) const override;
  void end(size_t request, FinishReason reason) override;
  void refuse(size_t request) override;
  void preempt(size_t request) override;

  void admit(TextGeneration& request);
  void release(TextGeneration& request);
  void store_prefix(TextGeneration& request, bool is_final);
  void count(std::span<const Request> ended);
  /// Returns memory of pages that have been unused for a while to the system, at intervals.
  void give_back_memory();

  Stepper& stepper_;
  const TextModel& model_;
  std::unique_ptr<PrefixCache> prefixes_;
  int64_t max_prefill_tokens_;
  double max_slowdown_;
  Drafting drafting_;
  StepTime step_time_;   ///< used only by the thread that runs the steps
  Scheduler scheduler_;  ///< used only by the thread that runs the steps

  mutable std::mutex mutex_;  ///< guards the members below
  /// notified when a request comes or ends, or the thread that runs the steps leaves
  std::condition_variable changed_;
  std::vector<Request> waiting_;  ///< requests that are not in running_ yet
  bool has_leader_ = false, closes_ = false;
  int64_t submitted_ = 0;  ///< requests of submit() that have not ended
  uint64_t next_id_ = 0;
  std::thread thread_;
  EngineStats stats_;

  // Used only by the thread that runs the steps.
  std::vector<Request> running_;  ///< requests in order of arrival
  EngineStats counts_;            ///< copied to stats_ after every step
  std::chrono::steady_clock::time_point gave_back_;
  std::atomic<bool> holds_unused_{true};  ///< pages may be unused
  /// The constraints are ready for the next token of every request.
  std::atomic<bool> is_prepared_{true};
  std::vector<std::vector<SampleRow>> samples_;  ///< rows of each scheduled request of the step in progress
  /// requests of running_ whose results are delivered; not changed until settle()
  std::vector<TextGeneration*> delivering_;
  std::mutex preparing_;              ///< mutex of prepared_
  std::condition_variable prepared_;  ///< notified when the constraint of a request is ready
  FairPool constraints_;              ///< threads that prepare constraints, at most one at a time for each client
  BackgroundJob delivery_;            ///< delivers results; declared last because its callbacks use the members above
};

}  // namespace redline
