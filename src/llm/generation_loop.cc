#include "llm/generation_loop.h"

#include <algorithm>
#include <utility>

namespace redline {
namespace {

/// What submit() returns.
class SubmittedGeneration final : public Generation {
 public:
  explicit SubmittedGeneration(std::shared_ptr<TextGeneration> generation) : generation_(std::move(generation)) {}
  ~SubmittedGeneration() override { generation_->cancel(); }
  void cancel() override { generation_->cancel(); }
  bool is_done() const override { return generation_->is_done(); }
  Result<GenerateResult> wait() override { return generation_->wait(); }

 private:
  std::shared_ptr<TextGeneration> generation_;
};

}  // namespace

GenerationLoop::GenerationLoop(Stepper& stepper, const TextModel& model, std::unique_ptr<Scheduler> scheduler,
                               std::unique_ptr<PrefixCache> prefixes)
    : stepper_(stepper), model_(model), scheduler_(std::move(scheduler)), prefixes_(std::move(prefixes)) {}

GenerationLoop::~GenerationLoop() {
  {
    std::lock_guard lock(mutex_);
    closes_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  active_.insert(active_.end(), arrived_.begin(), arrived_.end());
  std::lock_guard lock(stepper_.mutex());
  for (const Request& request : active_) {
    request.generation->finish(FinishReason::kCancelled);
    release(*request.generation);
  }
}

Result<GenerateResult> GenerationLoop::run(const GenerateRequest& request, TextGeneration::Callback on_piece) {
  REDLINE_ASSIGN(const std::shared_ptr<TextGeneration> generation,
                 TextGeneration::make(model_, request, std::move(on_piece)));
  {
    std::lock_guard lock(mutex_);
    arrived_.push_back({generation, false});
  }
  drive(generation.get());
  return generation->take_result();
}

Result<std::shared_ptr<Generation>> GenerationLoop::submit(const GenerateRequest& request,
                                                           TextGeneration::Callback on_piece) {
  REDLINE_ASSIGN(std::shared_ptr<TextGeneration> generation,
                 TextGeneration::make(model_, request, std::move(on_piece)));
  std::lock_guard lock(mutex_);
  arrived_.push_back({generation, true});
  ++submitted_;
  if (!thread_.joinable()) thread_ = std::thread([this] { drive(nullptr); });
  changed_.notify_all();
  return std::shared_ptr<Generation>(std::make_shared<SubmittedGeneration>(std::move(generation)));
}

void GenerationLoop::drive(const TextGeneration* mine) {
  std::unique_lock lock(mutex_);
  const auto has_work = [&] { return mine ? !mine->is_done() : submitted_ > 0 && !closes_; };
  while (mine ? has_work() : !closes_) {
    if (is_driven_ || !has_work()) {
      changed_.wait(lock);
      continue;
    }
    is_driven_ = true;
    while (has_work()) {
      active_.insert(active_.end(), arrived_.begin(), arrived_.end());
      arrived_.clear();
      lock.unlock();
      step();
      lock.lock();
      const size_t removed = std::erase_if(active_, [&](const Request& request) {
        if (!request.generation->is_done()) return false;
        submitted_ -= request.is_submitted;
        return true;
      });
      if (removed > 0) changed_.notify_all();
    }
    is_driven_ = false;
    changed_.notify_all();
  }
}

void GenerationLoop::step() {
  std::vector<Grant> grants;
  {
    std::lock_guard lock(stepper_.mutex());
    for (const Request& request : active_)
      if (request.generation->is_cancelled()) request.generation->finish(FinishReason::kCancelled);
    grants = run_granted();
  }
  // Callbacks may use the engine, so they run without its mutex.
  for (const Grant& grant : grants) active_[grant.request].generation->deliver();
  std::lock_guard lock(stepper_.mutex());
  for (const Request& request : active_)
    if (request.generation->is_done()) release(*request.generation);
}

std::vector<Grant> GenerationLoop::run_granted() {
  while (true) {
    std::vector<Grant> grants = plan();
    Status status;
    if (!grants.empty()) {
      status = run(grants);
    } else {
      // The first request waits for room that nobody gives back.
      const auto first = std::find_if(active_.begin(), active_.end(),
                                      [](const Request& request) { return !request.generation->is_done(); });
      if (first == active_.end()) return {};
      grants.push_back({static_cast<size_t>(first - active_.begin()), 0});
      admit(*first->generation);
      status = first->generation->state()->expect_room(std::ssize(first->generation->pending()));
      if (status.ok()) continue;  // a stored prefix was enough
    }
    if (status.ok()) return grants;
    if (status.code() == Code::out_of_memory && make_room()) continue;
    for (const Grant& grant : grants) active_[grant.request].generation->fail(status);
    return {};
  }
}

std::vector<Grant> GenerationLoop::plan() {
  std::vector<ScheduledRequest> requests;
  for (const Request& request : active_) {
    TextGeneration& g = *request.generation;
    requests.push_back({g.is_done() ? 0 : std::ssize(g.pending()), g.state() != nullptr});
  }
  const BatchLimits limits = stepper_.limits();
  std::vector<Grant> grants;
  scheduler_->plan(
      requests, {limits.tokens, std::min(limits.sequences, limits.logit_rows), stepper_.pool().free_tokens()}, grants);
  return grants;
}

Status GenerationLoop::run(std::span<const Grant> grants) {
  std::vector<StepEntry> entries;
  for (const Grant& grant : grants) {
    TextGeneration& g = *active_[grant.request].generation;
    admit(g);
    const std::span<const int32_t> pending = g.pending();
    const size_t n = std::min(pending.size(), static_cast<size_t>(grant.tokens));
    entries.push_back({g.state().get(), pending.first(n), n == pending.size() ? 1 : 0, g.prompt_tokens()});
  }
  REDLINE_TRY(stepper_.step(entries));
  const auto vocab = static_cast<size_t>(model_.info.vocab_size);
  const float* logits = stepper_.logits();
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].logit_rows == 0) continue;
    active_[grants[i].request].generation->sample({logits, vocab});
    logits += vocab;
  }
  return {};
}

bool GenerationLoop::make_room() {
  if (prefixes_ && prefixes_->evict()) return true;
  std::shared_ptr<TextGeneration> last;
  int running = 0;
  for (const Request& request : active_)
    if (request.generation->state()) {
      ++running;
      last = request.generation;
    }
  if (running < 2) return false;
  last->state().reset();  // computed again when it is admitted again
  return true;
}

void GenerationLoop::admit(TextGeneration& request) {
  if (request.state()) return;
  auto state = std::make_unique<SequenceState>(stepper_.pool());
  // The last token is computed in any case, for its logits.
  if (prefixes_) prefixes_->restore(request.tokens().first(request.tokens().size() - 1), *state);
  request.state() = std::move(state);
}

void GenerationLoop::release(TextGeneration& request) {
  if (!request.state()) return;
  if (prefixes_)
    prefixes_->store(request.tokens().first(static_cast<size_t>(request.state()->length())), *request.state());
  request.state().reset();
}

}  // namespace redline
