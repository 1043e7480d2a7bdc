// Chooses the requests that take part in the next step, and the number of tokens of each. Independent of model and
// clock, so that tests run it in virtual time.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "redline/text.h"

namespace redline {

/// The scheduler's view of a request that has not ended.
struct ScheduledRequest {
  uint64_t id = 0;          ///< unique; larger for later arrivals
  std::string_view client;  ///< GenerateRequest::client up to the first line break
  std::string_view user;    ///< a user of the client: the text after that line break
  int priority = 0;
  double deadline_ms = std::numeric_limits<double>::infinity();
  bool is_cancelled = false;
  bool is_running = false;  ///< the request has a state; otherwise it waits to be admitted
  int64_t length = 0;       ///< tokens in its state
  int64_t pending = 0;      ///< tokens that its state lacks: the rest of the prompt, or the last sampled token
  int64_t room = 0;         ///< tokens that fit in the pages that it has
  int64_t max_draft = 0;    ///< maximum number of drafted tokens after the last sampled token
};

/// Limits of a step.
struct StepBudget {
  double now_ms = 0;
  int64_t tokens = 0;              ///< maximum tokens of one step
  int64_t max_prefill_tokens = 0;  ///< maximum prompt tokens of a step that also decodes; 0: no limit
  int64_t sequences = 0;           ///< maximum number of sequences with a state
  int64_t cache_pages = 0, page_tokens = 1;
  int64_t request_pages = INT64_MAX;  ///< maximum pages of one request in sliding-window groups
  /// Not 0: steps of a prompt end at multiples of it, and at the last page border before the prompt's end, because a
  /// recurrent state can be stored only where a step ends.
  int64_t state_tokens = 0;
  bool admits = true;
  int64_t logit_rows = INT64_MAX;  ///< maximum rows of logits of one step
  /// Drafts are only granted in steps of at most this many tokens, drafted ones included; 0: none are.
  int64_t draft_tokens = INT64_MAX;
};

struct ScheduledTokens {
  size_t request;         ///< index into the requests
  int64_t tokens;         ///< number of pending tokens
  int64_t max_draft = 0;  ///< number of drafted tokens that may follow them
};

/// Tokens at the beginning of a request whose state is stored.
struct PrefixMatch {
  int64_t length = 0;
  int64_t unused_tokens = 0;  ///< tokens of these in pages that count as available until a request shares them
};

/// Executes the decisions that the scheduler makes before a step.
class SchedulerHost {
 public:
  virtual ~SchedulerHost() = default;
  virtual int64_t available_pages() const = 0;
  virtual PrefixMatch find_prefix(size_t request) const = 0;
  /// Returns the number of equal tokens at the beginning of both, if they may share state.
  virtual int64_t common_prefix(size_t a, size_t b) const = 0;
  /// Ends a request that was cancelled or is late.
  virtual void end(size_t request, FinishReason reason) = 0;
  /// Ends a request that would not fit in an empty cache.
  virtual void refuse(size_t request) = 0;
  /// Releases the state of a running request, which waits again.
  virtual void preempt(size_t request) = 0;
};

/// Sampled tokens of running requests come first, then prompts in chunks that fill the step (Sarathi-Serve,
/// arXiv:2403.02310). Prompts, whether running or waiting to be admitted, are taken by priority and then from the
/// client that has been served the least, then from the least served user of this client and the least served request
/// of this user (virtual token counters, VTC: arXiv:2401.00588). Long and short prompts therefore alternate, no request
/// starves, and a client gains nothing by naming many users.
///
/// - A request is admitted when the cache has room for all of its tokens besides what running requests still need. One
///   that does not fit is overtaken by others, but only by kMaxOvertaken times its own tokens.
/// - A request that shares its beginning with a prompt that is being computed waits for the shared pages.
/// - When pages run out, the request of the lowest priority that came last is preempted: its pages are released, and
///   what the prefix cache does not keep is computed again. It is admitted again before any that never was, in order of
///   arrival: its service counter would otherwise rank it after every new request. A waiting request preempts those of
///   lower priority.
/// - Drafted tokens take what is left of a step. They preempt no request and take no page that a running request needs
///   next. Only those that are accepted count as service.
/// - Cancelled and late requests end before the step.
class Scheduler {
 public:
  static constexpr int64_t kPromptCost = 1, kSampledCost = 2;  ///< cost of a token in the virtual counters
  static constexpr int64_t kMaxOvertaken = 4;
  /// Maximum number of remembered clients without requests, and of remembered users of each client: those whose
  /// counters are furthest ahead.
  static constexpr size_t kMaxIdle = 1024;

  /// Plans a step. `requests`: all requests that have not ended, in order of arrival; those without pending tokens are
  /// skipped. Returns at most one entry per request. The result is empty only if no request is running and none can be
  /// admitted.
  std::vector<ScheduledTokens> plan(std::span<const ScheduledRequest> requests, const StepBudget& budget,
                                    SchedulerHost& host);

  /// Returns the running request that is preempted next; nullopt if at most one is running.
  static std::optional<size_t> victim(std::span<const ScheduledRequest> requests);
  /// Returns the number of named clients that have requests or are ahead of others.
  size_t num_known_clients() const { return clients_.size(); }

 private:
  /// A client, or a user of one.
  struct Party {
    double served = 0;
    uint64_t plan = 0;  ///< number of the last plan in which it was active
  };
  using Parties = std::map<std::string, std::shared_ptr<Party>, std::less<>>;
  struct Client : Party {
    Parties users;
  };
  using Clients = std::map<std::string, std::shared_ptr<Client>, std::less<>>;
  struct Request {
    std::shared_ptr<Client> client;
    std::shared_ptr<Party> user;
    double served = 0;
    int64_t charged = 0;  ///< tokens already charged to the counters; tokens recomputed after a preemption are free
    bool was_admitted = false;
    int64_t overtaken = 0;  ///< tokens of later requests that were admitted while this one did not fit
    uint64_t plan = 0;
  };
  class Step;

  void update(std::span<const ScheduledRequest> requests);
  template <class Map>
  void forget_idle(Map& parties, double least) const;

  Clients clients_;  ///< clients with a name
  std::unordered_map<uint64_t, Request> requests_;
  uint64_t plans_ = 0;
};

}  // namespace redline
