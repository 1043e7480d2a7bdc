#include "server/choices.h"

namespace redline::server {
namespace {

/// A request that is this far ahead of its reader is given up. A text of 4,096 tokens takes about 400 KB.
constexpr size_t kMaxQueuedBytes = size_t{4} << 20;

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

  /// False: the queue is full. An end is always taken.
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

/// Lives in the callback of a generation, which the engine destroys when the generation has ended.
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

Choices::Choices(ServedModel::Ticket ticket) : ticket_(std::move(ticket)), inbox_(std::make_shared<Inbox>()) {}

Choices::~Choices() {
  const std::lock_guard lock(inbox_->mutex);
  inbox_->wake.reset();
}

Outcome<std::unique_ptr<Choices>> Choices::start(const std::shared_ptr<ServedModel>& model,
                                                 const std::vector<GenerateRequest>& requests) {
  const auto count = std::ssize(requests);
  if (count > model->max_in_flight())
    return bad_request("n",
                       fmt::format("the request asks for {} texts; the limit is {}", count, model->max_in_flight()));
  auto ticket = ServedModel::admit(model, count);
  if (!ticket)
    return overloaded(429, fmt::format("the queue is full: {} requests are running or waiting", model->in_flight()), 1);
  std::unique_ptr<Choices> choices(new Choices(std::move(*ticket)));
  choices->results_.resize(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    auto end = std::make_shared<EndSignal>(choices->inbox_, i);
    auto generation =
        model->engine().submit(requests[i], [inbox = choices->inbox_, i, end = std::move(end)](const TextPiece& piece) {
          if (piece.text.empty() && piece.token < 0) return true;  // between the steps of a long prompt
          return inbox->push({.choice = i,
                              .text = std::string(piece.text),
                              .token = piece.token,
                              .logprob = piece.logprob,
                              .top = {piece.top.begin(), piece.top.end()}});
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
    results_[event.choice] = generations_[event.choice]->wait();  // the engine publishes it right after the signal
    ++num_ended_;
  }
  return event;
}

bool Choices::has_overflowed() const {
  const std::lock_guard lock(inbox_->mutex);
  return inbox_->has_overflowed;
}

}  // namespace redline::server
