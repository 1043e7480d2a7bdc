// The queue between the engine, whose step thread must not wait, and an answer, whose reader may be slow.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "redline/text.h"
#include "server/models.h"

namespace redline::server {

/// The generations of one API request and their unread output. The destructor cancels them.
class Choices {
 public:
  /// Text of a choice, or its end.
  struct Event {
    size_t choice = 0;
    bool is_end = false;  ///< the last event of its choice; result() has the rest
    std::string text;
    int32_t token = -1;
    float logprob = 0;
    std::vector<TokenLogprob> top;
    double gap_s = -1;  ///< seconds since the previous token; -1: it is the first
  };

  /// Starts generations. 429: the queue is full. Other errors are the engine's for invalid requests.
  static Outcome<std::unique_ptr<Choices>> start(const std::shared_ptr<ServedModel>& model,
                                                 const std::vector<GenerateRequest>& requests);
  /// Starts beam searches, which give beam_width texts for each request, the best first. Each text is one event. The
  /// searches end after `timeout_ms`, unless it is 0.
  static Outcome<std::unique_ptr<Choices>> search(const std::shared_ptr<ServedModel>& model,
                                                  const std::vector<BeamSearchRequest>& requests, double timeout_ms,
                                                  const std::string& client);
  ~Choices();

  /// Sets a function that is called from the step thread when next() has an event after it had none.
  void on_ready(std::function<void()> wake);
  std::optional<Event> next();
  /// Returns the result of a choice. Must be called after its end.
  const Result<GenerateResult>& result(size_t choice) const { return *results_[choice]; }
  size_t size() const { return generations_.size(); }
  bool all_ended() const { return num_ended_ == generations_.size(); }
  /// Returns true if the request was aborted because its output queue was full (slow reader).
  bool has_overflowed() const;

 private:
  struct Inbox;
  class EndSignal;
  class Search;
  class FoundText;
  static Outcome<std::unique_ptr<Choices>> admit(const std::shared_ptr<ServedModel>& model, int64_t count,
                                                 const std::string& client);
  explicit Choices(ServedModel::Ticket ticket);

  const ServedModel::Ticket ticket_;
  const std::shared_ptr<Inbox> inbox_;
  std::vector<std::shared_ptr<Generation>> generations_;
  std::vector<std::optional<Result<GenerateResult>>> results_;
  size_t num_ended_ = 0;
};

}  // namespace redline::server
