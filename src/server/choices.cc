#include "server/choices.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <new>
#include <system_error>

namespace redline::server {
namespace {

/// A request that is this far ahead of its reader is aborted. A text of 4,096 tokens takes about 400 KB.
constexpr size_t kMaxQueuedBytes = size_t{4} << 20;

/// Removes the user from GenerateRequest::client.
std::string client_of(const std::string& client) { return client.substr(0, client.find('\n')); }

}  // namespace

struct Choices::Inbox {
  std::mutex mutex;
  std::deque<Event> events;
  size_t bytes = 0;
  bool has_overflowed = false;
  std::shared_ptr<const std::function<void()>> wake;

  static size_t bytes_of(const Event& event) {
    return sizeof(Event) + event.text.size() + event.top.size() * sizeof(TokenLogprob);
  }

  /// Adds an event. Returns false if the queue is full. An event that ends a choice is always accepted.
  bool push(Event event) {
    std::shared_ptr<const std::function<void()>> to_wake;
    {
      const std::lock_guard lock(mutex);
      if (bytes + bytes_of(event) > kMaxQueuedBytes && !event.is_end) {
        has_overflowed = true;
        return false;
      }
      bytes += bytes_of(event);
      if (events.empty()) to_wake = wake;
      events.push_back(std::move(event));
    }
    if (to_wake) (*to_wake)();
    return true;
  }
};

/// Signals the end of a generation from its destructor. It is held by the generation's callback, which the engine
/// destroys at the end.
class Choices::EndSignal {
 public:
  EndSignal(std::shared_ptr<Inbox> inbox, size_t choice) : inbox_(std::move(inbox)), choice_(choice) {}
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;
  ~EndSignal() { inbox_->push({.choice = choice_, .is_end = true}); }

 private:
  std::shared_ptr<Inbox> inbox_;
  size_t choice_;
};

/// A beam search, which runs on a thread of the model.
class Choices::Search {
 public:
  Search(std::shared_ptr<ServedModel> model, BeamSearchRequest request, double timeout_ms)
      : model_(std::move(model)), request_(std::move(request)) {
    if (timeout_ms > 0) deadline_ = Clock::now() + std::chrono::microseconds(static_cast<int64_t>(timeout_ms * 1e3));
  }
  size_t width() const { return static_cast<size_t>(request_.beam_width); }
  void cancel() { is_cancelled_ = true; }

  /// Runs the search. `first`: number of the search's first choice.
  void run(const std::function<bool()>& goes_on, Inbox& inbox, size_t first) {
    Result<std::vector<Beam>> found = beams(goes_on);
    model_.reset();
    for (size_t i = 0; i < width(); ++i) {
      Result<GenerateResult> result =
          found.ok() ? result_of(found->at(std::min(i, found->size() - 1))) : Result<GenerateResult>(found.status());
      std::string text = result.ok() ? result->text : "";
      {
        const std::lock_guard lock(mutex_);
        results_.push_back(std::move(result));
        found_.notify_all();
      }
      if (!text.empty()) inbox.push({.choice = first + i, .text = std::move(text)});
      inbox.push({.choice = first + i, .is_end = true});
    }
  }
  bool has(size_t i) {
    const std::lock_guard lock(mutex_);
    return i < results_.size();
  }
  Result<GenerateResult> wait(size_t i) {
    std::unique_lock lock(mutex_);
    found_.wait(lock, [&] { return i < results_.size(); });
    return std::move(results_[i]);
  }

 private:
  using Clock = std::chrono::steady_clock;
  bool is_late() const { return Clock::now() >= deadline_; }

  Result<std::vector<Beam>> beams(const std::function<bool()>& goes_on) try {
    const auto is_wanted = [&] { return goes_on() && !is_cancelled_ && !is_late(); };
    if (is_wanted()) return beam_search(model_->engine(), request_, [&](int64_t) { return is_wanted(); });
    return std::vector<Beam>{{.tokens = {}, .text = "", .reason = FinishReason::kCancelled}};
  } catch (const std::bad_alloc&) {
    return out_of_memory("not enough memory for the beams");
  }
  GenerateResult result_of(const Beam& beam) const {
    GenerateResult result;
    result.prompt_tokens = std::ssize(request_.prompt);
    result.tokens = beam.tokens;
    result.text = beam.text;
    result.reason = beam.reason == FinishReason::kCancelled && is_late() ? FinishReason::kTimeout : beam.reason;
    result.cache_miss = CacheMiss::kDisabled;
    return result;
  }

  std::shared_ptr<ServedModel> model_;
  const BeamSearchRequest request_;
  Clock::time_point deadline_ = Clock::time_point::max();
  std::atomic<bool> is_cancelled_{false};
  std::mutex mutex_;
  std::condition_variable found_;
  std::vector<Result<GenerateResult>> results_;  ///< results of the beams, best first
};

class Choices::FoundText final : public Generation {
 public:
  FoundText(std::shared_ptr<Search> search, size_t place) : search_(std::move(search)), place_(place) {}
  ~FoundText() override { search_->cancel(); }
  void cancel() override { search_->cancel(); }
  bool is_done() const override { return search_->has(place_); }
  Result<GenerateResult> wait() override { return search_->wait(place_); }

 private:
  const std::shared_ptr<Search> search_;
  const size_t place_;
};

Choices::Choices(ServedModel::Ticket ticket) : ticket_(std::move(ticket)), inbox_(std::make_shared<Inbox>()) {}

Choices::~Choices() {
  const std::lock_guard lock(inbox_->mutex);
  inbox_->wake.reset();
}

Outcome<std::unique_ptr<Choices>> Choices::admit(const std::shared_ptr<ServedModel>& model, int64_t count,
                                                 const std::string& client) {
  if (count > model->max_in_flight())
    return bad_request("n",
                       fmt::format("the request asks for {} texts; the limit is {}", count, model->max_in_flight()));
  auto ticket = ServedModel::admit(model, count, client_of(client));
  if (!ticket)
    return overloaded(429, fmt::format("the queue is full: {} requests are running or waiting", model->in_flight()), 1);
  std::unique_ptr<Choices> choices(new Choices(std::move(*ticket)));
  choices->results_.resize(static_cast<size_t>(count));
  return choices;
}

Outcome<std::unique_ptr<Choices>> Choices::search(const std::shared_ptr<ServedModel>& model,
                                                  const std::vector<BeamSearchRequest>& requests, double timeout_ms,
                                                  const std::string& client) {
  int64_t count = 0;
  for (const BeamSearchRequest& request : requests) count += request.beam_width;
  SERVER_ASSIGN(auto choices, admit(model, count, client));
  for (const BeamSearchRequest& request : requests) {
    auto search = std::make_shared<Search>(model, request, timeout_ms);
    const size_t first = choices->generations_.size();
    for (size_t i = 0; i < search->width(); ++i)
      choices->generations_.push_back(std::make_shared<FoundText>(search, i));
    try {
      model->searches().push([search, inbox = choices->inbox_, first](const std::function<bool()>& goes_on) {
        search->run(goes_on, *inbox, first);
      });
    } catch (const std::system_error&) {
      return overloaded(503, "the system cannot start a thread for the search", 1);
    }
  }
  return choices;
}

Outcome<std::unique_ptr<Choices>> Choices::start(const std::shared_ptr<ServedModel>& model,
                                                 const std::vector<GenerateRequest>& requests) {
  SERVER_ASSIGN(auto choices, admit(model, std::ssize(requests), requests.empty() ? "" : requests[0].client));
  for (size_t i = 0; i < requests.size(); ++i) {
    auto end = std::make_shared<EndSignal>(choices->inbox_, i);
    auto generation = model->engine().submit(
        requests[i], [inbox = choices->inbox_, i, end = std::move(end),
                      last = std::optional<std::chrono::steady_clock::time_point>()](const TextPiece& piece) mutable {
          if (piece.text.empty() && piece.token < 0) return true;  // a call between two steps of a long prompt
          const auto now = std::chrono::steady_clock::now();
          const double gap_s = last && piece.token >= 0 ? std::chrono::duration<double>(now - *last).count() : -1;
          if (piece.token >= 0) last = now;
          return inbox->push({.choice = i,
                              .text = std::string(piece.text),
                              .token = piece.token,
                              .logprob = piece.logprob,
                              .top = {piece.top.begin(), piece.top.end()},
                              .gap_s = gap_s});
        });
    if (!generation.ok()) return api_error(generation.status());
    choices->generations_.push_back(std::move(generation).value());
  }
  return choices;
}

void Choices::on_ready(std::function<void()> wake) {
  const std::lock_guard lock(inbox_->mutex);
  inbox_->wake = std::make_shared<const std::function<void()>>(std::move(wake));
}

std::optional<Choices::Event> Choices::next() {
  Event event;
  {
    const std::lock_guard lock(inbox_->mutex);
    if (inbox_->events.empty()) return std::nullopt;
    event = std::move(inbox_->events.front());
    inbox_->events.pop_front();
    inbox_->bytes -= Inbox::bytes_of(event);
  }
  if (event.is_end) {
    // does not block: the engine publishes the result right after the signal
    results_[event.choice] = generations_[event.choice]->wait();
    ++num_ended_;
  }
  return event;
}

bool Choices::has_overflowed() const {
  const std::lock_guard lock(inbox_->mutex);
  return inbox_->has_overflowed;
}

}  // namespace redline::server
