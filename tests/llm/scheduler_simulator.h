// Runs the scheduler of the engine in virtual time, without a model: requests are numbers of tokens, steps take a time
// that depends on their tokens, and pages are counted. Every step is checked against what must always hold.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "llm/scheduler.h"
#include "llm/step_time.h"

namespace redline::testing {

struct SimulatedRequest {
  double arrival_ms = 0;
  int64_t prompt = 0, output = 1;  ///< tokens
  std::string client = {}, user = {};
  int priority = 0;
  double timeout_ms = 0, cancel_ms = 0;  ///< after arrival; 0: none
  int prefix = -1;                       ///< requests with the same number begin with the same `shared` tokens
  int64_t shared = 0;

  // The simulator fills the fields below.
  int64_t computed = 0;  ///< tokens in its state
  int64_t made = 0;      ///< output tokens
  bool is_running = false;
  int64_t first_admitted = -1, first_token = -1, end_step = -1;  ///< steps
  int64_t arrival_step = -1, preemptions = 0, tokens_run = 0, cached = 0;
  double end_ms = 0;
  std::optional<FinishReason> reason;
  bool is_refused = false;
  bool has_ended() const { return reason || is_refused; }
  double last_ms = 0;           ///< of the last token
  std::vector<double> gaps_ms;  ///< between tokens
  int64_t total() const { return prompt + made; }
};

struct SimulatedMachine {
  int64_t step_tokens = 512, sequences = 64, pages = 100000, max_prefill_tokens = 0;
  double step_ms = 10, token_ms = 0.5;
  double row_ms = -1;       ///< of a sampled row; negative: token_ms
  int64_t deep_tokens = 0;  ///< a prompt token after so many others takes twice as long; 0: as long as any
  double max_slowdown = 0;  ///< as in TextEngineOptions
  double variation = 0;     ///< of a step's time: standard deviation of its logarithm
};

class SchedulerSimulator : private SchedulerHost {
 public:
  static constexpr int64_t kPage = 32;

  SchedulerSimulator(SimulatedMachine machine, std::vector<SimulatedRequest> requests)
      : requests(std::move(requests)), machine_(machine) {
    std::stable_sort(this->requests.begin(), this->requests.end(),
                     [](const auto& a, const auto& b) { return a.arrival_ms < b.arrival_ms; });
  }

  /// Runs until every request has ended. False, with a failure: it takes more than `max_steps`.
  bool run(int64_t max_steps) {
    while (true) {
      while (arrived_ < requests.size() && requests[arrived_].arrival_ms <= now_ms) {
        requests[arrived_].arrival_step = steps;
        active_.push_back(arrived_++);
      }
      if (active_.empty() && arrived_ == requests.size()) break;
      if (active_.empty()) {
        now_ms = requests[arrived_].arrival_ms;
        continue;
      }
      if (steps == max_steps) {
        ADD_FAILURE() << "not done after " << steps << " steps: " << active_.size() << " requests are active";
        return false;
      }
      step();
      if (::testing::Test::HasFatalFailure()) return false;
    }
    EXPECT_EQ(used_pages(), 0);
    return true;
  }

  std::vector<SimulatedRequest> requests;  ///< in order of arrival
  std::vector<SimulatedRequest> next;      ///< the last one arrives when a request ends: a closed loop
  std::vector<double> slowdowns;           ///< of steps with sampled tokens, against one in which every request samples
  int64_t steps = 0, tokens_run = 0;
  double now_ms = 0;
  /// Called after every step with the tokens that each request ran, by index.
  std::function<void(const std::map<size_t, int64_t>&)> on_step;

 private:
  static int64_t pages(int64_t tokens) { return (tokens + kPage - 1) / kPage; }
  /// The last token of a prompt counts as a sampled one.
  bool decodes(const SimulatedRequest& r) const {
    return r.is_running && r.computed > 0 && r.total() - r.computed == 1;
  }

  /// Returns the number of stored pages that a running request holds for its shared beginning.
  int64_t shared_pages(const SimulatedRequest& r) const {
    return r.prefix < 0 ? 0 : std::min(r.shared, r.computed) / kPage;
  }
  int64_t used_pages() const {
    int64_t used = 0;
    std::map<int, int64_t> groups;
    for (const size_t i : active_) {
      const SimulatedRequest& r = requests[i];
      if (!r.is_running) continue;
      used += pages(r.computed) - shared_pages(r);
      if (r.prefix >= 0) groups[r.prefix] = std::max(groups[r.prefix], shared_pages(r));
    }
    for (const auto& [prefix, held] : groups) used += held;
    return used;
  }

  int64_t available_pages() const override { return machine_.pages - used_pages(); }
  PrefixMatch find_prefix(size_t request) const override {
    const SimulatedRequest& r = requests[active_[request]];
    PrefixMatch match;
    if (r.prefix < 0) return match;
    const auto stored = stored_.find(r.prefix);
    if (stored == stored_.end()) return match;
    int64_t held = 0;
    for (const size_t i : active_)
      if (requests[i].is_running && requests[i].prefix == r.prefix) held = std::max(held, shared_pages(requests[i]));
    const int64_t found = std::min({stored->second, r.shared / kPage, (r.total() - 1) / kPage});
    return {found * kPage, std::max<int64_t>(0, found - held) * kPage};
  }
  int64_t common_prefix(size_t a, size_t b) const override {
    const SimulatedRequest &x = requests[active_[a]], &y = requests[active_[b]];
    return x.prefix >= 0 && x.prefix == y.prefix ? std::min(x.shared, y.shared) : 0;
  }
  void end(size_t request, FinishReason reason) override { finish(requests[active_[request]], reason); }
  void refuse(size_t request) override {
    requests[active_[request]].is_refused = true;
    requests[active_[request]].end_step = steps;
  }
  void preempt(size_t request) override {
    SimulatedRequest& r = requests[active_[request]];
    EXPECT_TRUE(r.is_running);
    store(r);
    r.is_running = false;
    r.computed = 0;
    ++r.preemptions;
  }
  void finish(SimulatedRequest& r, FinishReason reason) {
    EXPECT_FALSE(r.has_ended());
    store(r);
    r.reason = reason;
    r.is_running = false;
    r.computed = 0;
    r.end_step = steps;
    r.end_ms = now_ms;
  }
  void store(const SimulatedRequest& r) {
    if (r.prefix >= 0 && r.is_running) stored_[r.prefix] = std::max(stored_[r.prefix], shared_pages(r));
  }

  void step() {
    std::vector<ScheduledRequest> known;
    std::set<size_t> must_decode;
    for (const size_t i : active_) {
      const SimulatedRequest& r = requests[i];
      ScheduledRequest s;
      s.id = i;
      s.client = r.client;
      s.user = r.user;
      s.priority = r.priority;
      if (r.timeout_ms > 0) s.deadline_ms = r.arrival_ms + r.timeout_ms;
      s.is_cancelled = r.cancel_ms > 0 && r.arrival_ms + r.cancel_ms <= now_ms;
      s.is_running = r.is_running;
      s.length = r.computed;
      s.pending = r.total() - r.computed;
      s.room = pages(r.computed) * kPage - r.computed;
      known.push_back(s);
      if (decodes(r)) must_decode.insert(i);
    }
    StepBudget budget;
    budget.now_ms = now_ms;
    budget.tokens = machine_.step_tokens;
    budget.max_prefill_tokens = machine_.max_prefill_tokens;
    budget.sequences = machine_.sequences;
    budget.cache_pages = machine_.pages;
    budget.page_tokens = kPage;
    if (machine_.max_slowdown > 0)
      budget.max_prefill_tokens = step_time_.prompt_tokens_within(machine_.max_slowdown, std::ssize(must_decode),
                                                                  std::min(std::ssize(active_), machine_.sequences));
    const auto all = static_cast<double>(std::min(std::ssize(active_), machine_.sequences));
    const std::vector<ScheduledTokens> scheduled = scheduler_.plan(known, budget, *this);

    int64_t tokens = 0, prompt_tokens = 0, decoded = 0;
    double prompt_ms = 0;
    std::map<size_t, int64_t> ran;
    for (const ScheduledTokens& entry : scheduled) {
      const size_t i = active_.at(entry.request);
      SimulatedRequest& r = requests[i];
      ASSERT_FALSE(r.has_ended()) << i;
      ASSERT_GT(entry.tokens, 0) << i;
      const bool is_decode = must_decode.contains(i) && r.is_running;
      if (!r.is_running) {
        const PrefixMatch match = find_prefix(entry.request);
        r.is_running = true;
        r.computed = match.length;
        if (r.first_admitted < 0) {
          r.first_admitted = steps;
          r.cached = match.length;
        }
      }
      ASSERT_LE(entry.tokens, r.total() - r.computed) << i;
      ASSERT_TRUE(ran.emplace(i, entry.tokens).second) << i << " is scheduled twice";
      if (!is_decode) prompt_ms += machine_.token_ms * static_cast<double>(entry.tokens) * depth_factor(r.computed);
      r.computed += entry.tokens;
      r.tokens_run += entry.tokens;
      tokens += entry.tokens;
      decoded += is_decode;
      prompt_tokens += is_decode ? 0 : entry.tokens;
    }
    ASSERT_LE(tokens, machine_.step_tokens);
    ASSERT_TRUE(machine_.max_prefill_tokens == 0 || decoded == 0 || prompt_tokens <= machine_.max_prefill_tokens);
    ASSERT_LE(used_pages(), machine_.pages);
    int64_t running = 0, waiting = 0;
    for (const size_t i : active_) {
      const SimulatedRequest& r = requests[i];
      running += r.is_running;
      waiting += !r.is_running && !r.has_ended();
      // Nothing delays a sampled token but a preemption.
      ASSERT_TRUE(!must_decode.contains(i) || !r.is_running || ran.contains(i)) << i;
    }
    ASSERT_LE(running, machine_.sequences);
    ASSERT_TRUE(!scheduled.empty() || running + waiting == 0) << "no progress";
    ++steps;
    tokens_run += tokens;
    const double row_ms = machine_.row_ms < 0 ? machine_.token_ms : machine_.row_ms;
    double step_ms = machine_.step_ms + row_ms * static_cast<double>(decoded) + prompt_ms;
    if (machine_.variation > 0) step_ms *= std::exp(machine_.variation * normal_(random_));
    step_time_.add(decoded, prompt_tokens, step_ms / 1e3);
    if (decoded > 0) slowdowns.push_back(step_ms / (machine_.step_ms + row_ms * all));
    now_ms += step_ms;
    for (const auto& [i, n] : ran) {
      SimulatedRequest& r = requests[i];
      store(r);
      if (r.computed < r.total()) continue;
      ++r.made;
      if (r.first_token < 0) r.first_token = steps;
      else r.gaps_ms.push_back(now_ms - r.last_ms);
      r.last_ms = now_ms;
      if (r.made >= r.output) finish(r, FinishReason::kLength);
    }
    if (on_step) on_step(ran);
    for (size_t ended = std::erase_if(active_, [&](size_t i) { return requests[i].has_ended(); });
         ended > 0 && !next.empty(); --ended) {
      requests.push_back(std::move(next.back()));
      requests.back().arrival_ms = now_ms;
      next.pop_back();
    }
  }

  double depth_factor(int64_t depth) const {
    return machine_.deep_tokens > 0 ? 1 + static_cast<double>(depth) / static_cast<double>(machine_.deep_tokens) : 1;
  }

  SimulatedMachine machine_;
  Scheduler scheduler_;
  StepTime step_time_;
  std::mt19937_64 random_{5};
  std::normal_distribution<double> normal_;
  std::vector<size_t> active_;  ///< have arrived and not ended
  size_t arrived_ = 0;
  std::map<int, int64_t> stored_;  ///< pages of shared beginnings that were computed
};

}  // namespace redline::testing
