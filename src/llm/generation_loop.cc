#include "llm/generation_loop.h"

#include <pthread.h>

#include <fmt/format.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace redline {
namespace {

/// The memory of a page is released after it has been free for this time, at the latest for twice this time. Touching
/// it again takes about a thousandth of the time of computing its contents.
constexpr std::chrono::seconds kUnusedTime(15);

/// Maximum time that a step waits for the constraints of its requests. Nearly all constraints take a thousandth of it.
constexpr std::chrono::milliseconds kPatience(10);
constexpr std::chrono::milliseconds kLatePatience(5);

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

GenerationLoop::GenerationLoop(Stepper& stepper, const TextModel& model, int64_t max_prefill_tokens,
                               double max_slowdown, std::unique_ptr<PrefixCache> prefixes, Drafting drafting)
    : stepper_(stepper), model_(model), prefixes_(std::move(prefixes)), max_prefill_tokens_(max_prefill_tokens),
      max_slowdown_(max_slowdown), drafting_(std::move(drafting)),
      constraints_({.threads = 2, .name = "constraints", .max_of_client = 1}) {}

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
  do {  // first the deliveries postponed by a late constraint, then the ends
    std::unique_lock lock(preparing_);
    prepared_.wait(lock, [&] {
      return std::all_of(running_.begin(), running_.end(), [](const Request& request) {
        return !request.generation->is_late() || request.generation->is_prepared();
      });
    });
    lock.unlock();
    begin_delivery();
    deliver(false);
    settle();
    publish_ended();
  } while (!running_.empty());
}

Result<std::shared_ptr<TextGeneration>> GenerationLoop::make_generation(const GenerateRequest& request,
                                                                        TextGeneration::Callback on_piece) const {
  REDLINE_ASSIGN(std::shared_ptr<TextGeneration> generation,
                 TextGeneration::make(model_, request, std::move(on_piece)));
  const int64_t most = request.num_speculative_tokens < 0 ? drafting_.max_tokens : request.num_speculative_tokens;
  // A recurrent state is one page that each step replaces: there is none for the tokens that are accepted in part.
  if (most == 0 || stepper_.pool().has_recurrent()) return generation;
  if (make_test_drafter) generation->set_drafter(make_test_drafter(request), most);
  else if (drafting_.make) generation->set_drafter(drafting_.make(), most);
  return generation;
}

Result<GenerateResult> GenerationLoop::run(const GenerateRequest& request, TextGeneration::Callback on_piece) {
  if (leads == this)
    return invalid_argument("generate() inside a callback of the same engine would never return; use submit()");
  REDLINE_ASSIGN(const std::shared_ptr<TextGeneration> generation, make_generation(request, std::move(on_piece)));
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({generation, false, next_id_++});
    changed_.notify_all();
  }
  run_steps(generation.get());
  return generation->wait();
}

Result<std::shared_ptr<Generation>> GenerationLoop::submit(const GenerateRequest& request,
                                                           TextGeneration::Callback on_piece) {
  REDLINE_ASSIGN(std::shared_ptr<TextGeneration> generation, make_generation(request, std::move(on_piece)));
  auto handle = std::make_shared<SubmittedGeneration>(generation, this);
  std::lock_guard lock(mutex_);
  try {
    if (!thread_.joinable())
      thread_ = std::thread([this] {
        // Otherwise the thread keeps the name of the first caller's thread.
        pthread_setname_np(pthread_self(), "text-steps");
        run_steps(nullptr);
      });
  } catch (const std::system_error& error) {
    return out_of_memory("no thread for submitted requests: {}", error.what());
  }
  waiting_.push_back({std::move(generation), true, next_id_++});
  ++submitted_;
  changed_.notify_all();
  return std::shared_ptr<Generation>(std::move(handle));
}

void GenerationLoop::run_steps(const TextGeneration* mine) {
  std::unique_lock lock(mutex_);
  const auto has_work = [&] { return mine ? !mine->is_done() : submitted_ > 0 && !closes_; };
  while (mine ? has_work() : !closes_) {
    if (!mine && !has_leader_ && !has_work() && holds_unused_) {
      if (changed_.wait_for(lock, kUnusedTime) == std::cv_status::no_timeout || has_leader_) continue;
      has_leader_ = true;
      lock.unlock();
      give_back_memory();
      lock.lock();
      has_leader_ = false;
      changed_.notify_all();
      continue;
    }
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
    const auto publish = [&] {
      std::vector<Request> ended = publish_ended();
      lock.lock();
      for (const Request& request : ended) submitted_ -= request.is_submitted;
      if (ended.empty()) return;
      changed_.notify_all();
      lock.unlock();
      ended.clear();  // objects that their callbacks hold are destroyed without the mutex
      lock.lock();
    };
    while (has_work()) {
      running_.insert(running_.end(), waiting_.begin(), waiting_.end());
      waiting_.clear();
      lock.unlock();
      step(mine == nullptr);
      give_back_memory();
      publish();
    }
    // Another thread may run the next step, so the last step is completed here.
    lock.unlock();
    settle();
    publish();
  }
}

void GenerationLoop::give_back_memory() {
  const auto now = std::chrono::steady_clock::now();
  if (now - gave_back_ < kUnusedTime) return;
  gave_back_ = now;
  std::lock_guard lock(stepper_.mutex());
  holds_unused_ = stepper_.pool().give_back_unused();
}

std::vector<GenerationLoop::Request> GenerationLoop::publish_ended() {
  const auto rest = std::stable_partition(running_.begin(), running_.end(),
                                          [](const Request& request) { return !request.generation->is_settled(); });
  std::vector<Request> ended(std::make_move_iterator(rest), std::make_move_iterator(running_.end()));
  running_.erase(rest, running_.end());
  count(ended);
  {
    std::lock_guard lock(mutex_);
    stats_ = counts_;
  }
  for (const Request& request : ended) request.generation->publish();
  return ended;
}

EngineStats GenerationLoop::stats() const {
  std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting += std::ssize(waiting_);
  return stats;
}

bool GenerationLoop::is_busy() const {
  std::lock_guard lock(mutex_);
  return has_leader_ || submitted_ > 0 || !waiting_.empty();
}

void GenerationLoop::count(std::span<const Request> ended) {
  for (const Request& request : ended) {
    const std::optional<FinishReason> reason = request.generation->reason();
    if (reason) ++counts_.requests_finished[static_cast<size_t>(*reason)];
    else ++counts_.requests_failed;
  }
  counts_.running = std::count_if(running_.begin(), running_.end(),
                                  [](const Request& request) { return request.generation->state() != nullptr; });
  counts_.waiting = std::count_if(running_.begin(), running_.end(), [](const Request& request) {
    return request.generation->state() == nullptr && !request.generation->has_ended();
  });
}

void GenerationLoop::step(bool overlaps) {
  holds_unused_ = true;
  {
    std::lock_guard lock(stepper_.mutex());
    for (Request& request : running_) request.has_run = false;
    for (const ScheduledTokens& tokens : run_scheduled()) running_[tokens.request].has_run = true;
    // Pages are released without waiting for the delivery, which runs during the next step, because that step may need
    // them.
    for (const Request& request : running_)
      if (overlaps && request.generation->has_ended()) release(*request.generation);
  }
  settle();
  begin_delivery();
  if (overlaps) return delivery_.start([this] { deliver(true); });
  deliver(false);
  settle();
}

void GenerationLoop::begin_delivery() {
  delivering_.clear();
  for (const Request& request : running_) {
    TextGeneration& g = *request.generation;
    if (g.is_late()) {
      if (!g.is_prepared()) continue;
      g.set_late(false);  // its last token is delivered now
    } else if (!g.begin_delivery(request.has_run)) {
      continue;
    }
    delivering_.push_back(&g);
  }
  is_prepared_.store(false, std::memory_order_relaxed);
}

// Callbacks may use the engine, so they run without its mutex.
void GenerationLoop::deliver(bool overlaps) {
  const GenerationLoop* const led_before = std::exchange(leads, this);
  const AtExit leave{[&] { leads = led_before; }};
  if (overlaps) prepare_constraints();
  else
    for (TextGeneration* request : delivering_) request->prepare();
  is_prepared_.store(true, std::memory_order_release);
  is_prepared_.notify_all();
  for (TextGeneration* request : delivering_)
    if (!request->is_late()) request->deliver();
}

void GenerationLoop::prepare_constraints() {
  std::vector<TextGeneration*> preparing;
  for (TextGeneration* request : delivering_) {
    if (!request->needs_preparation()) continue;
    request->begin_preparation();
    preparing.push_back(request);
    const std::string client = request->client().empty() ? fmt::format("request {}", static_cast<const void*>(request))
                                                         : std::string(request->client());
    const auto prepare = [this, request] {
      if (on_prepare) on_prepare(std::string(request->client()));
      request->prepare();
      {
        const std::lock_guard lock(preparing_);
        request->end_preparation();
      }
      prepared_.notify_all();
    };
    try {
      constraints_.push({client, std::string(request->user())}, prepare);
    } catch (const std::system_error&) {  // the system could not create a thread
      prepare();
    }
  }
  if (preparing.empty()) return;
  std::unique_lock lock(preparing_);
  prepared_.wait_for(lock, kPatience, [&] {
    return std::all_of(preparing.begin(), preparing.end(), [](const TextGeneration* r) { return r->is_prepared(); });
  });
  for (TextGeneration* request : preparing) request->set_late(!request->is_prepared());
}

bool GenerationLoop::has_late() const {
  return std::any_of(running_.begin(), running_.end(), [](const Request& r) { return r.generation->is_late(); });
}

void GenerationLoop::wait_for_late(std::chrono::milliseconds time) {
  std::unique_lock lock(preparing_);
  prepared_.wait_for(lock, time, [&] {
    return std::any_of(running_.begin(), running_.end(),
                       [](const Request& r) { return r.generation->is_late() && r.generation->is_prepared(); });
  });
}

void GenerationLoop::settle() {
  delivery_.wait();
  bool has_ended = false;
  for (const Request& request : running_) {
    if (request.generation->is_late()) continue;
    counts_.generated_tokens += request.generation->settle();
    has_ended = has_ended || request.generation->is_settled();
  }
  if (!has_ended) return;
  std::lock_guard lock(stepper_.mutex());
  for (const Request& request : running_)
    if (request.generation->is_settled()) release(*request.generation);
}

std::vector<ScheduledTokens> GenerationLoop::run_scheduled() {
  // After a preemption nothing is admitted in this step, so every retry has fewer requests.
  bool drafts = true;
  for (bool admits = true; true;) {
    std::vector<ScheduledTokens> scheduled = schedule(admits, drafts);
    Status status;
    if (!scheduled.empty()) {
      status = run(scheduled);
    } else if (sample_held() > 0) {
      return {};
    } else if (has_late()) {
      wait_for_late(kLatePatience);
      return {};
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
    // The scheduler counts pages of one group, others may run out too. Drafts are dropped before a request is
    // preempted.
    if (is_out_of_memory(status.code()) && std::exchange(drafts, false) &&
        std::any_of(scheduled.begin(), scheduled.end(), [](const ScheduledTokens& t) { return t.max_draft > 0; }))
      continue;
    if (is_out_of_memory(status.code()))
      if (const std::optional<size_t> last = Scheduler::victim(scheduled_requests())) {
        preempt(*last);
        admits = false;
        continue;
      }
    for (const ScheduledTokens& tokens : scheduled) {
      TextGeneration& request = *running_[tokens.request].generation;
      if (is_out_of_memory(status.code()) && request.has_output()) request.end(FinishReason::kLength);
      else request.fail(status);
    }
    return {};
  }
}

std::vector<ScheduledRequest> GenerationLoop::scheduled_requests() const {
  std::vector<ScheduledRequest> requests;
  for (const Request& request : running_) {
    TextGeneration& g = *request.generation;
    ScheduledRequest& r = requests.emplace_back();
    r.id = request.id;
    r.client = g.client();
    r.user = g.user();
    if (g.has_ended()) continue;
    r.priority = g.priority();
    r.deadline_ms = g.deadline_ms();
    r.is_cancelled = g.is_cancelled();
    r.pending = std::ssize(g.pending());
    r.is_running = g.state() != nullptr;
    if (!r.is_running) continue;
    r.length = g.state()->length();
    r.room = g.state()->room();
    r.max_draft = std::min(g.max_draft(), stepper_.same_bits().sequence_tokens - 1);
  }
  return requests;
}

std::vector<ScheduledTokens> GenerationLoop::schedule(bool admits, bool drafts) {
  const BatchLimits limits = stepper_.limits();
  StepBudget budget;
  budget.now_ms = TextGeneration::now_ms();
  budget.tokens = limits.tokens;
  budget.max_prefill_tokens = max_prefill_tokens_;
  budget.sequences = std::min(limits.sequences, limits.logit_rows);
  if (max_slowdown_ > 0) {
    int64_t sampled = 0, all = 0;
    for (const Request& request : running_) {
      const TextGeneration& g = *request.generation;
      all += !g.has_ended();
      sampled += g.state() != nullptr && g.has_prefilled();
    }
    const int64_t most = step_time_.prompt_tokens_within(max_slowdown_, sampled, std::min(all, budget.sequences));
    if (most != StepTime::kNoLimit)
      budget.max_prefill_tokens = max_prefill_tokens_ > 0 ? std::min(max_prefill_tokens_, most) : most;
  }
  budget.cache_pages = limits.cache_tokens / limits.page_tokens;
  budget.page_tokens = limits.page_tokens;
  if (const int64_t window = stepper_.pool().group(stepper_.pool().counted_group()).window; window > 0)
    budget.request_pages = (window + kWindowSlack + limits.tokens) / limits.page_tokens + 2;
  if (prefixes_ && stepper_.pool().has_recurrent()) budget.state_tokens = kStateTokens;
  budget.admits = admits;
  budget.logit_rows = limits.logit_rows;
  budget.draft_tokens = drafts ? stepper_.same_bits().step_tokens : 0;
  return scheduler_.plan(scheduled_requests(), budget, *this);
}

int64_t GenerationLoop::available_pages() const { return stepper_.pool().free_tokens() / kKvPageTokens; }

PrefixMatch GenerationLoop::find_prefix(size_t request) const {
  const TextGeneration& g = *running_[request].generation;
  return prefixes_ ? prefixes_->find(g.prefix_key(), g.keys().first(g.keys().size() - 1)) : PrefixMatch{};
}

int64_t GenerationLoop::common_prefix(size_t a, size_t b) const {
  const TextGeneration &x = *running_[a].generation, &y = *running_[b].generation;
  if (!prefixes_ || x.prefix_key() < y.prefix_key() || y.prefix_key() < x.prefix_key()) return 0;
  const std::span<const ContentKey> s = x.keys(), t = y.keys();
  return std::mismatch(s.begin(), s.end(), t.begin(), t.end()).first - s.begin();
}

void GenerationLoop::end(size_t request, FinishReason reason) {
  running_[request].generation->end(reason);
  release(*running_[request].generation);
}

void GenerationLoop::refuse(size_t request) {
  TextGeneration& g = *running_[request].generation;
  if (g.has_output()) g.end(FinishReason::kLength);
  else g.fail(SequenceState(stepper_.pool()).check_room(std::ssize(g.keys())));
}

void GenerationLoop::preempt(size_t request) {
  running_[request].generation->drop_held();
  release(*running_[request].generation);  // the state is recomputed if the prefix cache does not keep it
  ++counts_.preemptions;
}

Status GenerationLoop::run(std::span<const ScheduledTokens> scheduled) {
  std::vector<StepEntry> entries;
  entries.reserve(scheduled.size());
  const bool can_sample = stepper_.can_sample();
  samples_.assign(can_sample ? scheduled.size() : 0, {});
  struct Before {
    bool has_prefilled;
    int64_t length;
  };
  std::vector<Before> before_step;
  before_step.reserve(scheduled.size());
  int64_t sampled = 0, prompt_tokens = 0;
  for (const ScheduledTokens& tokens : scheduled) {
    TextGeneration& g = *running_[tokens.request].generation;
    admit(g);
    before_step.push_back({g.has_prefilled(), g.state()->length()});
    if (g.has_prefilled() && g.pending().size() == 1) ++sampled;
    else prompt_tokens += std::min(tokens.tokens, std::ssize(g.pending()));
    const PromptView pending = g.pending();
    const size_t n = std::min(pending.size(), static_cast<size_t>(tokens.tokens));
    entries.push_back({.state = g.state().get(),
                       .tokens = pending.subview(0, n),
                       .logit_rows = n == pending.size() ? 1 : 0,
                       .expected_length = g.prompt_tokens(),
                       .next_position = pending.position_after(0),
                       .adapters = g.adapters()});
    StepEntry& entry = entries.back();
    if (const std::span<const int32_t> draft = g.draft(tokens.max_draft); !draft.empty()) {
      entry.tokens = draft;
      entry.logit_rows = std::ssize(draft);
      prompt_tokens += entry.logit_rows - 1;  // they take the time of prompt tokens
    }
    if (!can_sample || entry.logit_rows == 0) continue;
    std::vector<SampleRow>& samples = samples_[entries.size() - 1];
    samples = g.device_samples();
    entry.samples = samples;
  }
  const double before = stepper_.step_seconds();
  REDLINE_TRY(stepper_.step(entries));
  step_time_.add(sampled, prompt_tokens, stepper_.step_seconds() - before);
  sample(scheduled, entries);
  // Requests that come while this one runs start from the pages that it has filled.
  for (size_t i = 0; i < entries.size(); ++i)
    store_filled(*running_[scheduled[i].request].generation, before_step[i].has_prefilled, before_step[i].length);
  return {};
}

void GenerationLoop::store_filled(TextGeneration& request, bool had_prefilled, int64_t length) {
  // Recurrent states are large, and sampled tokens rarely begin another request before theirs has ended.
  const int64_t unit = had_prefilled && stepper_.pool().has_recurrent() ? kStateTokens : kKvPageTokens;
  if (request.state()->length() / unit > length / unit) store_prefix(request, false);
}

void GenerationLoop::sample(std::span<const ScheduledTokens> scheduled, std::span<const StepEntry> entries) {
  struct Rows {
    TextGeneration* request;
    int64_t count;
    std::span<const float> logits;
    std::span<const int32_t> sampled;  ///< tokens sampled by the device, or -1; empty: none
    int64_t used = 1;                  ///< rows whose tokens were sampled
  };
  std::vector<Rows> requests;
  const int64_t vocab = model_.info.vocab_size;
  const float* logits = stepper_.logits();
  const std::span<const int32_t> sampled = stepper_.sampled();
  int64_t rows = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    const int64_t count = entries[i].logit_rows;
    if (count == 0) continue;
    TextGeneration& request = *running_[scheduled[i].request].generation;
    if (!request.has_prefilled()) {
      counts_.prompt_tokens += request.prompt_tokens();
      counts_.cached_prompt_tokens += request.cached_tokens();
    }
    requests.push_back({&request, count, {logits + rows * vocab, static_cast<size_t>(count * vocab)}, {}});
    if (!sampled.empty())
      requests.back().sampled = sampled.subspan(static_cast<size_t>(rows), static_cast<size_t>(count));
    rows += count;
  }
  sample_held();
  const auto sample_request = [&](int64_t i) {
    Rows& r = requests[static_cast<size_t>(i)];
    if (r.request->is_late()) r.request->hold(r.logits.first(static_cast<size_t>(vocab)));
    else r.used = r.request->sample_rows(r.logits, r.sampled);
  };
  stepper_.for_each(std::ssize(requests), vocab, sample_request);
  for (const Rows& r : requests) {
    if (r.count == 1) continue;
    const bool is_seen = !r.request->is_late();  // rows after one that is held are dropped
    if (is_seen) counts_.drafted_tokens += r.count - 1, counts_.accepted_tokens += r.request->accepted_of_last_draft();
    SequenceState& state = *r.request->state();
    const int64_t length = state.length() - r.count + r.used;
    REDLINE_CHECK(state.truncate(length) == length);
  }
}

size_t GenerationLoop::sample_held() {
  is_prepared_.wait(false, std::memory_order_acquire);
  size_t count = 0;
  for (Request& request : running_) {
    TextGeneration& g = *request.generation;
    if (!g.has_held() || g.is_late()) continue;
    if (g.has_ended()) {
      g.drop_held();
      continue;
    }
    g.sample_held();
    request.has_run = true;
    ++count;
  }
  return count;
}

void GenerationLoop::admit(TextGeneration& request) {
  if (request.state()) return;
  auto state = std::make_unique<SequenceState>(stepper_.pool());
  PrefixRestored restored{0, CacheMiss::kDisabled};
  // The last token is computed in any case, for its logits.
  if (prefixes_)
    restored = prefixes_->restore(request.prefix_key(), request.keys().first(request.keys().size() - 1), *state);
  request.set_cached(restored.length, restored.miss);
  request.state() = std::move(state);
}

void GenerationLoop::release(TextGeneration& request) {
  if (!request.state()) return;
  store_prefix(request, true);
  request.state().reset();
  if (prefixes_) prefixes_->trim();
}

void GenerationLoop::store_prefix(TextGeneration& request, bool is_final) {
  if (!prefixes_) return;
  SequenceState& state = *request.state();
  prefixes_->store(request.prefix_key(), request.keys().first(static_cast<size_t>(state.length())), state, is_final);
}

}  // namespace redline
