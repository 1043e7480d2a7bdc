#include "llm/scheduler.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace redline {
namespace {

/// Maximum number of requests that do not fit which a step examines.
constexpr size_t kMaxBlocked = 32;
constexpr double kNobody = std::numeric_limits<double>::infinity();

}  // namespace

/// One call of plan().
class Scheduler::Step {
 public:
  Step(Scheduler& scheduler, std::span<const ScheduledRequest> requests, const StepBudget& budget, SchedulerHost& host)
      : scheduler_(scheduler), requests_(requests.begin(), requests.end()), budget_(budget), host_(host),
        tokens_left_(budget.tokens) {}

  std::vector<ScheduledTokens> run() {
    end_early();
    decode();
    if (budget_.max_prefill_tokens > 0 && !scheduled_.empty())
      tokens_left_ = std::min(tokens_left_, budget_.max_prefill_tokens);
    prefill();
    draft();
    std::vector<ScheduledTokens> scheduled;
    for (const Entry& entry : scheduled_) scheduled.push_back({entry.request, entry.tokens, entry.draft});
    return scheduled;
  }

 private:
  struct Entry {
    size_t request;
    int64_t tokens;
    int64_t pages;  ///< reserved pages
    double price;
    int64_t charged_before;
    int64_t draft = 0;
  };
  /// Sort key of prompts. During a step only `served` changes, and only increases. A preempted request comes first.
  using Turn = std::tuple<int, bool, double, double, double, uint64_t>;

  int64_t pages(int64_t tokens) const {
    return std::min((tokens + budget_.page_tokens - 1) / budget_.page_tokens, budget_.request_pages);
  }
  int64_t pages_needed(const ScheduledRequest& r, int64_t tokens) const {
    return pages(std::max<int64_t>(0, tokens - r.room));
  }
  Request& record(size_t i) { return scheduler_.requests_.at(requests_[i].id); }
  static bool decodes(const ScheduledRequest& r) { return r.is_running && r.length > 0 && r.pending == 1; }

  void end_early() {
    for (size_t i = 0; i < requests_.size(); ++i) {
      ScheduledRequest& r = requests_[i];
      if (r.is_cancelled) host_.end(i, FinishReason::kCancelled);
      else if (r.deadline_ms <= budget_.now_ms) host_.end(i, FinishReason::kTimeout);
      else if (!r.is_running && pages(r.pending) > budget_.cache_pages) host_.refuse(i);
      else continue;
      r.pending = 0;
      r.is_running = false;
    }
    for (const ScheduledRequest& r : requests_) num_running_ += r.is_running;
    available_ = host_.available_pages();
  }

  void preempt(size_t i) {
    host_.preempt(i);
    const auto entry =
        std::find_if(scheduled_.begin(), scheduled_.end(), [&](const Entry& e) { return e.request == i; });
    if (entry != scheduled_.end()) {
      taken_ -= entry->pages;
      record(i).served -= entry->price;
      record(i).client->served -= entry->price;
      record(i).user->served -= entry->price;
      record(i).charged = entry->charged_before;
      scheduled_.erase(entry);
    }
    ScheduledRequest& r = requests_[i];
    r.pending += std::exchange(r.length, 0);
    r.room = 0;
    r.is_running = false;
    --num_running_;
    available_ = host_.available_pages() - taken_;
  }

  /// Makes room for a running request by preempting those after it. Returns false if there is none left.
  bool make_room(size_t i, int64_t needed) {
    while (needed > available_) {
      const std::optional<size_t> last = Scheduler::victim(requests_);
      if (!last) return true;  // the only request: its step reports that the cache is full
      preempt(*last);
      if (*last == i) return false;
    }
    return true;
  }

  void take(size_t i, int64_t tokens, int64_t pages, int64_t cost) {
    taken_ += pages;
    available_ -= pages;
    tokens_left_ -= tokens;
    // Tokens that are recomputed after a preemption are not charged. Drafted tokens that the last step has accepted are
    // charged now.
    Request& request = record(i);
    const int64_t end = requests_[i].length + tokens, unpaid = std::max<int64_t>(0, end - request.charged);
    const int64_t before = std::exchange(request.charged, std::max(request.charged, end));
    const auto price = static_cast<double>(unpaid * cost);
    request.served += price;
    request.client->served += price;
    request.user->served += price;
    scheduled_.push_back({i, tokens, pages, price, before});
  }

  void decode() {
    std::vector<size_t> order;
    for (size_t i = 0; i < requests_.size(); ++i)
      if (decodes(requests_[i])) order.push_back(i);
    // Requests are scheduled in the reverse order of preemption, so that a victim is never scheduled already.
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return requests_[a].priority < requests_[b].priority; });
    for (const size_t i : order) {
      if (!requests_[i].is_running || tokens_left_ == 0) continue;
      const int64_t needed = pages_needed(requests_[i], 1);
      if (make_room(i, needed)) take(i, 1, needed, kSampledCost);
    }
  }

  /// Returns the pages that running requests need after this step: for the rest of their prompts, or the next page of
  /// their output.
  int64_t committed_pages() const {
    int64_t sum = 0;
    for (const ScheduledRequest& r : requests_)
      if (r.is_running) sum += decodes(r) ? 1 : pages_needed(r, r.pending);
    for (const Entry& entry : scheduled_) {
      const ScheduledRequest& r = requests_[entry.request];
      if (!decodes(r)) sum -= std::min(entry.pages, pages_needed(r, r.pending));
    }
    return sum;
  }

  Turn turn(size_t i) {
    const Request& r = record(i);
    const bool comes_back = r.was_admitted && !requests_[i].is_running;
    if (comes_back) return {requests_[i].priority, false, 0, 0, 0, requests_[i].id};
    return {requests_[i].priority, true, r.client->served, r.user->served, r.served, requests_[i].id};
  }

  void prefill() {
    // The order is a heap, because a step examines only a few of thousands of waiting requests.
    std::vector<std::pair<Turn, size_t>> order;
    for (size_t i = 0; i < requests_.size(); ++i)
      if (requests_[i].pending > 0 && !decodes(requests_[i])) order.emplace_back(turn(i), i);
    std::make_heap(order.begin(), order.end(), std::greater<>());
    committed_ = committed_pages();
    for (const auto& [turn, i] : order)
      if (requests_[i].is_running) prompts_.push_back(i);
    while (!order.empty() && tokens_left_ > 0) {
      std::pop_heap(order.begin(), order.end(), std::greater<>());
      auto& [was, i] = order.back();
      if (const Turn now = turn(i); was < now) {  // its client has been served in this step
        was = now;
        std::push_heap(order.begin(), order.end(), std::greater<>());
        continue;
      }
      if (requests_[i].is_running) continue_prompt(i);
      else if (budget_.admits && !is_closed_) admit(i);
      order.pop_back();
    }
  }

  /// Returns the number of tokens of a prompt that the step takes.
  int64_t prompt_tokens(const ScheduledRequest& r) const {
    const int64_t most = std::min(r.pending, tokens_left_);
    if (budget_.state_tokens == 0) return most;
    const int64_t last_border = (r.length + r.pending - 1) / budget_.page_tokens * budget_.page_tokens;
    int64_t end = (r.length / budget_.state_tokens + 1) * budget_.state_tokens;
    if (r.length < last_border) end = std::min(end, last_border);
    return std::min(most, end - r.length);
  }

  bool is_in_step(size_t i) const {
    return std::any_of(scheduled_.begin(), scheduled_.end(), [&](const Entry& entry) { return entry.request == i; });
  }

  void continue_prompt(size_t i) {
    if (is_in_step(i)) return;
    const int64_t tokens = prompt_tokens(requests_[i]);
    const int64_t needed = pages_needed(requests_[i], tokens);
    // The pages counted at its admission may have been taken by sampled tokens. Then it waits for other requests to
    // end.
    if (needed > available_ && (!scheduled_.empty() || !make_room(i, needed))) return;
    take(i, tokens, needed, kPromptCost);
    committed_ -= needed;
  }

  void admit(size_t i) {
    ScheduledRequest& r = requests_[i];
    if (!blocked_.empty() && requests_[blocked_[0]].priority < r.priority) return;
    const PrefixMatch prefix = host_.find_prefix(i);
    // If a prompt in progress shares more with this one than the cache has, that prompt is continued first, and this
    // one waits for its pages.
    for (const size_t other : prompts_) {
      const int64_t shared = std::min(host_.common_prefix(i, other), r.pending - 1) / budget_.page_tokens;
      if (!requests_[other].is_running || shared <= prefix.length / budget_.page_tokens ||
          requests_[other].length >= shared * budget_.page_tokens)
        continue;
      continue_prompt(other);
      if (is_in_step(other)) return;
    }
    const int64_t needed = pages(r.pending) - (prefix.length - prefix.unused_tokens) / budget_.page_tokens;
    const auto fits = [&] { return num_running_ < budget_.sequences && needed <= available_ - committed_; };
    while (!fits()) {
      const std::optional<size_t> last = lower_than(r.priority);
      if (!last) break;
      preempt(*last);
      committed_ = committed_pages();
    }
    if (!fits()) {
      blocked_.push_back(i);
      is_closed_ = num_running_ == budget_.sequences || record(i).overtaken > kMaxOvertaken * r.pending ||
                   blocked_.size() == kMaxBlocked;
      return;
    }
    for (const size_t other : blocked_) record(other).overtaken += r.pending;
    r.is_running = record(i).was_admitted = true;
    ++num_running_;
    r.length = prefix.length;
    r.pending -= prefix.length;
    record(i).charged = std::max(record(i).charged, prefix.length);
    // All pages of the request are reserved: those that this step writes, and the others.
    take(i, prompt_tokens(r), needed, kPromptCost);
    prompts_.push_back(i);
  }

  /// Grants drafted tokens to the requests that decode, in equal shares of the remaining tokens.
  void draft() {
    std::vector<Entry*> wishes;
    int64_t tokens = 0;
    for (Entry& entry : scheduled_) {
      tokens += entry.tokens;
      if (decodes(requests_[entry.request]) && requests_[entry.request].max_draft > 0) wishes.push_back(&entry);
    }
    int64_t left =
        std::min(std::min(budget_.tokens, budget_.draft_tokens) - tokens, budget_.logit_rows - std::ssize(scheduled_));
    if (wishes.empty() || left <= 0) return;
    // The smallest wishes come first, so that others get what these leave.
    std::stable_sort(wishes.begin(), wishes.end(), [&](const Entry* a, const Entry* b) {
      return requests_[a->request].max_draft < requests_[b->request].max_draft;
    });
    int64_t spare = available_ - committed_pages();
    auto waiting = std::ssize(wishes);
    for (Entry* entry : wishes) {
      const ScheduledRequest& r = requests_[entry->request];
      int64_t granted = std::min(r.max_draft, (left + waiting - 1) / waiting);
      --waiting;
      const auto more_pages = [&] { return pages_needed(r, 1 + granted) - entry->pages; };
      while (granted > 0 && more_pages() > std::max<int64_t>(0, spare)) --granted;
      if (granted <= 0) continue;
      spare -= more_pages();
      taken_ += more_pages();
      left -= granted;
      entry->draft = granted;
    }
  }

  /// Returns the victim among running requests of a lower priority.
  std::optional<size_t> lower_than(int priority) const {
    std::optional<size_t> last;
    for (size_t i = 0; i < requests_.size(); ++i) {
      const ScheduledRequest& r = requests_[i];
      if (!r.is_running || r.priority <= priority) continue;
      if (!last || r.priority >= requests_[*last].priority) last = i;
    }
    return last;
  }

  Scheduler& scheduler_;
  std::vector<ScheduledRequest> requests_;
  const StepBudget& budget_;
  SchedulerHost& host_;
  std::vector<Entry> scheduled_;
  std::vector<size_t> prompts_;  ///< running requests whose prompt is not complete
  std::vector<size_t> blocked_;  ///< waiting requests that do not fit
  int64_t tokens_left_, num_running_ = 0;
  int64_t available_ = 0;  ///< free pages that no entry of this step has reserved
  int64_t taken_ = 0;      ///< pages that entries of this step take
  int64_t committed_ = 0;
  bool is_closed_ = false;  ///< admits no further request
};

std::vector<ScheduledTokens> Scheduler::plan(std::span<const ScheduledRequest> requests, const StepBudget& budget,
                                             SchedulerHost& host) {
  update(requests);
  return Step(*this, requests, budget, host).run();
}

std::optional<size_t> Scheduler::victim(std::span<const ScheduledRequest> requests) {
  std::optional<size_t> last;
  int64_t running = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (!requests[i].is_running) continue;
    ++running;
    if (!last || requests[i].priority >= requests[*last].priority) last = i;
  }
  return running > 1 ? last : std::nullopt;
}

/// Forgets parties without requests, unless their counters are ahead of `least`, the smallest counter of the active
/// ones.
template <class Map>
void Scheduler::forget_idle(Map& parties, double least) const {
  const auto is_idle = [&](const auto& entry) { return entry.second->plan != plans_; };
  std::erase_if(
      parties, [&](const auto& entry) { return is_idle(entry) && !(entry.second->served > least && least < kNobody); });
  if (parties.size() <= kMaxIdle) return;
  std::vector<double> ahead;
  for (const auto& entry : parties)
    if (is_idle(entry)) ahead.push_back(entry.second->served);
  if (ahead.size() <= kMaxIdle) return;
  std::nth_element(ahead.begin(), ahead.begin() + kMaxIdle / 2, ahead.end(), std::greater<>());
  const double kept = ahead[kMaxIdle / 2];
  std::erase_if(parties, [&](const auto& entry) { return is_idle(entry) && entry.second->served <= kept; });
}

// A client, a user or a request that was idle starts from the counter of the least served one: it neither has credit
// for the time that it was away, nor waits until others have caught up.
void Scheduler::update(std::span<const ScheduledRequest> requests) {
  ++plans_;
  double least = kNobody;
  // smallest counter of a client's users, and of a user's requests
  std::unordered_map<const Party*, double> min_served_in;
  const auto count_in = [&](const Party* party, double served) {
    const auto [at, is_first] = min_served_in.emplace(party, served);
    at->second = std::min(at->second, served);
  };
  for (const ScheduledRequest& r : requests) {
    const auto known = requests_.find(r.id);
    if (known == requests_.end()) continue;
    Request& request = known->second;
    request.plan = request.client->plan = request.user->plan = plans_;
    least = std::min(least, request.client->served);
    count_in(request.client.get(), request.user->served);
    count_in(request.user.get(), request.served);
  }
  for (const ScheduledRequest& r : requests) {
    Request& request = requests_[r.id];
    if (request.client) continue;
    std::shared_ptr<Client> own;
    std::shared_ptr<Client>& client =
        r.client.empty() ? own : clients_.try_emplace(std::string(r.client)).first->second;
    if (!client) client = std::make_shared<Client>();
    if (client->plan != plans_ && least < kNobody) client->served = std::max(client->served, least);
    std::shared_ptr<Party>& user = client->users.try_emplace(std::string(r.user)).first->second;
    if (!user) user = std::make_shared<Party>();
    if (const auto at = min_served_in.find(client.get()); user->plan != plans_ && at != min_served_in.end())
      user->served = std::max(user->served, at->second);
    request.client = client;
    request.user = user;
    request.plan = client->plan = user->plan = plans_;
    count_in(client.get(), user->served);
    const auto [at, is_first] = min_served_in.emplace(user.get(), 0);
    request.served = at->second;
    least = std::min(least, client->served);
  }
  std::erase_if(requests_, [&](const auto& entry) { return entry.second.plan != plans_; });
  forget_idle(clients_, least);
  for (const auto& [name, client] : clients_) {
    const auto at = min_served_in.find(client.get());
    forget_idle(client->users, at == min_served_in.end() ? kNobody : at->second);
  }
}

}  // namespace redline
