// Between the engine, whose step thread must not wait, and an answer, whose reader may be slow.
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

/// The generations of one API request and their output that has not been read yet. Destroying it cancels them.
class Choices {
 public:
  struct Event {
    size_t choice = 0;
    bool is_end = false;  ///< the last of its choice; result() has the rest
    std::string text;
    int32_t token = -1;
    float logprob = 0;
    std::vector<TokenLogprob> top;
    double gap_s = -1;  ///< since the token before; -1: there is none
  };

  /// 429 when the queue is full; the engine's errors for invalid requests.
  static Outcome<std::unique_ptr<Choices>> start(const std::shared_ptr<ServedModel>& model,
                                                 const std::vector<GenerateRequest>& requests);
  /// The texts of beam searches, beam_width for each request, the best first; each comes whole. They end after
  /// `timeout_ms`, unless 0.
  static Outcome<std::unique_ptr<Choices>> search(const std::shared_ptr<ServedModel>& model,
                                                  const std::vector<BeamSearchRequest>& requests, double timeout_ms,
                                                  const std::string& client);
  ~Choices();

  /// `wake` is called from the step thread when next() has something after it had nothing.
  void on_ready(std::function<void()> wake);
  std::optional<Event> next();
  /// After the end of the choice.
  const Result<GenerateResult>& result(size_t choice) const { return *results_[choice]; }
  size_t size() const { return generations_.size(); }
  bool all_ended() const { return num_ended_ == generations_.size(); }
  /// The request was aborted because its output queue was full (slow reader).
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
