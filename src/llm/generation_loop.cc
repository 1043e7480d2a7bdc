#include "llm/generation_loop.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace redline {
namespace {

/// The loop whose steps this thread runs: a callback must not wait for another request of it.
thread_local const GenerationLoop* leads = nullptr;

class SubmittedGeneration final : public Generation {
 public:
  SubmittedGeneration(std::shared_ptr<TextGeneration> generation, const GenerationLoop* loop)
      : generation_(std::move(generation)), loop_(loop) {}
  ~SubmittedGeneration() override { generation_->cancel(); }
  void cancel() override { generation_->cancel(); }
  bool is_done() const override { return generation_->is_done(); }
  Result<GenerateResult> wait() override {
    if (leads == loop_ && !is_done())
      return invalid_argument("wait() inside a callback of the same engine would never return");
    return generation_->wait();
  }

 private:
  std::shared_ptr<TextGeneration> generation_;
  const GenerationLoop* loop_;  // only compared
};

/// Runs a function at the end of a scope.
template <class F>
struct AtExit {
  F run;
  ~AtExit() { run(); }
};
template <class F>
AtExit(F) -> AtExit<F>;

}  // namespace

GenerationLoop::GenerationLoop(Stepper& stepper, const TextModel& model, std::unique_ptr<Scheduler> scheduler,
                               int64_t max_prefill_tokens, std::unique_ptr<PrefixCache> prefixes)
    : stepper_(stepper), model_(model), scheduler_(std::move(scheduler)), prefixes_(std::move(prefixes)),
      max_prefill_tokens_(max_prefill_tokens) {}

GenerationLoop::~GenerationLoop() {
  {
    std::lock_guard lock(mutex_);
    closes_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  running_.insert(running_.end(), waiting_.begin(), waiting_.end());
  {
    std::lock_guard lock(stepper_.mutex());
    for (const Request& request : running_) {
      request.generation->end(FinishReason::kCancelled);
      request.generation->state().reset();
    }
  }
  for (const Request& request : running_) {
    request.generation->deliver();
    request.generation->publish();
  }
}

Result<GenerateResult> GenerationLoop::run(const GenerateRequest& request, TextGeneration::Callback on_piece) {
  if (leads == this)
    return invalid_argument("generate() inside a callback of the same engine would never return; use submit()");
  REDLINE_ASSIGN(const std::shared_ptr<TextGeneration> generation,
                 TextGeneration::make(model_, request, std::move(on_piece)));
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({generation, false});
    changed_.notify_all();
  }
  run_steps(generation.get());
  return generation->wait();
}

Result<std::shared_ptr<Generation>> GenerationLoop::submit(const GenerateRequest& request,
                                                           TextGeneration::Callback on_piece) {
  REDLINE_ASSIGN(std::shared_ptr<TextGeneration> generation,
                 TextGeneration::make(model_, request, std::move(on_piece)));
  auto handle = std::make_shared<SubmittedGeneration>(generation, this);
  std::lock_guard lock(mutex_);
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { run_steps(nullptr); });
  } catch (const std::system_error& error) {
    return out_of_memory("no thread for submitted requests: {}", error.what());
  }
  waiting_.push_back({std::move(generation), true});
  ++submitted_;
  changed_.notify_all();
  return std::shared_ptr<Generation>(std::move(handle));
}

void GenerationLoop::run_steps(const TextGeneration* mine) {
  std::unique_lock lock(mutex_);
  const auto has_work = [&] { return mine ? !mine->is_done() : submitted_ > 0 && !closes_; };
  while (mine ? has_work() : !closes_) {
    if (has_leader_ || !has_work()) {
      changed_.wait(lock);
      continue;
    }
    has_leader_ = true;
    const GenerationLoop* const led_before = std::exchange(leads, this);  // another engine's, around this callback
    const AtExit leave{[&] {
      if (!lock.owns_lock()) lock.lock();
      leads = led_before;
      has_leader_ = false;
      changed_.notify_all();
    }};
    while (has_work()) {
      running_.insert(running_.end(), waiting_.begin(), waiting_.end());
      waiting_.clear();
      lock.unlock();
      step();
      std::vector<Request> ended;  // what their callbacks hold is destroyed without the mutex
      const auto rest = std::stable_partition(running_.begin(), running_.end(),
                                              [](const Request& request) { return !request.generation->has_ended(); });
      ended.assign(std::make_move_iterator(rest), std::make_move_iterator(running_.end()));
      running_.erase(rest, running_.end());
      count(ended);
      {
        std::lock_guard counted(mutex_);
        stats_ = counts_;
      }
      for (const Request& request : ended) request.generation->publish();
      lock.lock();
      for (const Request& request : ended) submitted_ -= request.is_submitted;
      if (ended.empty()) continue;
      changed_.notify_all();
      lock.unlock();
      ended.clear();
      lock.lock();
    }
  }
}

EngineStats GenerationLoop::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting += std::ssize(waiting_);
  return stats;
}

void GenerationLoop::count(std::span<const Request> ended) {
  for (const Request& request : ended) {
    const std::optional<FinishReason> reason = request.generation->reason();
    if (reason) ++counts_.requests_finished[static_cast<size_t>(*reason)];
    else ++counts_.requests_failed;
  }
  counts_.running = std::count_if(running_.begin(), running_.end(),
                                  [](const Request& request) { return request.generation->state() != nullptr; });
  counts_.waiting = std::ssize(running_) - counts_.running;
}

void GenerationLoop::end_early() {
  const auto now = std::chrono::steady_clock::now();
  for (const Request& request : running_) {
    TextGeneration& g = *request.generation;
    if (g.has_ended()) continue;
    if (g.is_cancelled()) g.end(FinishReason::kCancelled);
    else if (g.is_late(now)) g.end(FinishReason::kTimeout);
    else continue;
    release(g);
  }
}

void GenerationLoop::step() {
  std::vector<ScheduledTokens> scheduled;
  {
    std::lock_guard lock(stepper_.mutex());
    end_early();
    scheduled = run_scheduled();
  }
  // Callbacks may use the engine, so they run without its mutex.
  std::vector<bool> ran(running_.size());
  for (const ScheduledTokens& tokens : scheduled) ran[tokens.request] = true;
  for (size_t i = 0; i < running_.size(); ++i) {
    TextGeneration& request = *running_[i].generation;
    if (!ran[i] && !request.has_ended()) continue;
    const int64_t before = request.generated_tokens();
    request.deliver();
    counts_.generated_tokens += request.generated_tokens() - before;
  }
  std::lock_guard lock(stepper_.mutex());
  for (const Request& request : running_)
    if (request.generation->has_ended()) release(*request.generation);
}

std::vector<ScheduledTokens> GenerationLoop::run_scheduled() {
  // After a preemption nothing is admitted in this step, so every retry has fewer requests.
  for (bool admits = true; true;) {
    std::vector<ScheduledTokens> scheduled = schedule(admits);
    Status status;
    if (!scheduled.empty()) {
      status = run(scheduled);
    } else {
      const auto first = std::find_if(running_.begin(), running_.end(),
                                      [](const Request& request) { return !request.generation->has_ended(); });
      if (first == running_.end()) return {};
      // No running request will free pages for it.
      scheduled.push_back({static_cast<size_t>(first - running_.begin()), 0});
      admit(*first->generation);
      status = first->generation->state()->check_room(std::ssize(first->generation->pending()));
      if (status.ok()) continue;  // a stored prefix was enough, or a preemption made room
    }
    if (status.ok()) return scheduled;
    if (status.code() == Code::out_of_memory && preempt()) {
      admits = false;
      continue;
    }
    for (const ScheduledTokens& tokens : scheduled) {
      TextGeneration& request = *running_[tokens.request].generation;
      if (status.code() == Code::out_of_memory && request.has_output()) request.end(FinishReason::kLength);
      else request.fail(status);
    }
    return {};
  }
}

std::vector<ScheduledTokens> GenerationLoop::schedule(bool admits) {
  std::vector<ScheduledRequest> requests;
  for (const Request& request : running_) {
    TextGeneration& g = *request.generation;
    requests.push_back({g.has_ended() ? 0 : std::ssize(g.pending()), g.state() != nullptr});
  }
  const BatchLimits limits = stepper_.limits();
  std::vector<ScheduledTokens> scheduled;
  scheduler_->plan(requests,
                   {limits.tokens, std::min(limits.sequences, limits.logit_rows),
                    admits ? stepper_.pool().free_tokens() : 0, limits.page_tokens, max_prefill_tokens_},
                   scheduled);
  return scheduled;
}

Status GenerationLoop::run(std::span<const ScheduledTokens> scheduled) {
  std::vector<StepEntry> entries;
  for (const ScheduledTokens& tokens : scheduled) {
    TextGeneration& g = *running_[tokens.request].generation;
    admit(g);
    const std::span<const int32_t> pending = g.pending();
    const size_t n = std::min(pending.size(), static_cast<size_t>(tokens.tokens));
    entries.push_back(
        {g.state().get(), pending.first(n), n == pending.size() ? 1 : 0, g.prompt_tokens(), g.adapters()});
  }
  REDLINE_TRY(stepper_.step(entries));
  // Requests that come while this one runs start from the pages that it has filled.
  for (size_t i = 0; i < entries.size(); ++i)
    if (entries[i].state->length() / kKvPageTokens >
        (entries[i].state->length() - std::ssize(entries[i].tokens)) / kKvPageTokens)
      store_prefix(*running_[scheduled[i].request].generation, false);
  const auto vocab = static_cast<size_t>(model_.info.vocab_size);
  const float* logits = stepper_.logits();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].logit_rows == 0) continue;
    TextGeneration& request = *running_[scheduled[i].request].generation;
    if (!request.has_prefilled()) {
      counts_.prompt_tokens += request.prompt_tokens();
      counts_.cached_prompt_tokens += request.cached_tokens();
    }
    request.sample({logits, vocab});
    logits += vocab;
  }
  return {};
}

bool GenerationLoop::preempt() {
  TextGeneration* last = nullptr;
  int count = 0;
  for (const Request& request : running_)
    if (!request.generation->has_ended() && request.generation->state()) {
      ++count;
      last = request.generation.get();
    }
  if (count < 2) return false;
  release(*last);  // computed again, where the prefix cache does not keep it, when it is admitted again
  ++counts_.preemptions;
  return true;
}

void GenerationLoop::admit(TextGeneration& request) {
  if (request.state()) return;
  auto state = std::make_unique<SequenceState>(stepper_.pool());
  PrefixRestored restored{0, CacheMiss::kDisabled};
  // The last token is computed in any case, for its logits.
  if (prefixes_)
    restored = prefixes_->restore(request.prefix_key(), request.tokens().first(request.tokens().size() - 1), *state);
  request.set_cached(restored.length, restored.miss);
  request.state() = std::move(state);
}

void GenerationLoop::release(TextGeneration& request) {
  if (!request.state()) return;
  store_prefix(request, true);
  request.state().reset();
}

void GenerationLoop::store_prefix(TextGeneration& request, bool is_final) {
  if (!prefixes_) return;
  SequenceState& state = *request.state();
  prefixes_->store(request.prefix_key(), request.tokens().first(static_cast<size_t>(state.length())), state, is_final);
}

}  // namespace redline
