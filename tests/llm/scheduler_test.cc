// The scheduler, in single steps and over simulated traffic.
#include "llm/scheduler.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>

#include "llm/scheduler_simulator.h"

namespace redline::testing {
namespace {

using Grants = std::vector<std::pair<size_t, int64_t>>;

struct NoCache : SchedulerHost {
  int64_t pages = 1 << 20;
  std::vector<size_t> preempted, refused;
  std::vector<std::pair<size_t, FinishReason>> ended;
  int64_t available_pages() const override { return pages; }
  PrefixMatch find_prefix(size_t) const override { return {}; }
  int64_t common_prefix(size_t, size_t) const override { return 0; }
  void end(size_t request, FinishReason reason) override { ended.emplace_back(request, reason); }
  void refuse(size_t request) override { refused.push_back(request); }
  void preempt(size_t request) override { preempted.push_back(request); }
};

ScheduledRequest running(int64_t pending, int64_t length = 10) {
  ScheduledRequest r;
  r.is_running = true;
  r.length = length;
  r.pending = pending;
  r.room = 1000;
  return r;
}
ScheduledRequest waiting(int64_t pending) {
  ScheduledRequest r;
  r.pending = pending;
  return r;
}
StepBudget budget(int64_t tokens, int64_t sequences = 8) {
  StepBudget b;
  b.tokens = tokens;
  b.sequences = sequences;
  b.cache_pages = 1 << 20;
  return b;
}

Grants plan(std::vector<ScheduledRequest> requests, const StepBudget& budget, SchedulerHost& host) {
  for (size_t i = 0; i < requests.size(); ++i) requests[i].id = i;
  Scheduler scheduler;
  Grants result;
  for (const ScheduledTokens& grant : scheduler.plan(requests, budget, host))
    result.emplace_back(grant.request, grant.tokens);
  return result;
}
Grants plan(const std::vector<ScheduledRequest>& requests, const StepBudget& budget) {
  NoCache host;
  return plan(requests, budget, host);
}

TEST(Scheduler, SampledTokensGoFirstAndPromptsFillTheStep) {
  EXPECT_EQ(plan({running(100), running(1), waiting(50), running(1)}, budget(64)), (Grants{{1, 1}, {3, 1}, {0, 62}}));
  EXPECT_EQ(plan({running(10), running(1), waiting(90)}, budget(64)), (Grants{{1, 1}, {0, 10}, {2, 53}}));
  EXPECT_EQ(plan({}, budget(64)), Grants());
}

TEST(Scheduler, PrefillBudgetOfStepsThatAlsoDecode) {
  StepBudget b = budget(64);
  b.max_prefill_tokens = 16;
  EXPECT_EQ(plan({running(100), running(1), waiting(50)}, b), (Grants{{1, 1}, {0, 16}}));
  EXPECT_EQ(plan({running(10), running(1), waiting(50)}, b), (Grants{{1, 1}, {0, 10}, {2, 6}}));
  EXPECT_EQ(plan({running(100), waiting(50)}, b), (Grants{{0, 64}}));  // nobody decodes
}

TEST(Scheduler, LimitsOfTheStepHold) {
  EXPECT_EQ(plan({running(1), running(1), waiting(9)}, budget(64, 2)), (Grants{{0, 1}, {1, 1}}));
  EXPECT_EQ(plan({running(1), running(1), running(9)}, budget(2)), (Grants{{0, 1}, {1, 1}}));
}

TEST(Scheduler, APromptIsAdmittedOnlyWithRoomForTheRunningRequests) {
  NoCache host;
  const auto with = [&](std::vector<ScheduledRequest> requests, int64_t pages, int64_t page_tokens = 1) {
    for (ScheduledRequest& r : requests) r.room = 0;
    host.pages = pages;
    StepBudget b = budget(512);
    b.page_tokens = page_tokens;
    return plan(requests, b, host);
  };
  EXPECT_EQ(with({running(1), waiting(50)}, 51), (Grants{{0, 1}}));
  EXPECT_EQ(with({running(1), waiting(50)}, 52), (Grants{{0, 1}, {1, 50}}));
  EXPECT_EQ(with({running(40), waiting(50)}, 89), (Grants{{0, 40}}));
  EXPECT_EQ(with({running(40), waiting(50)}, 90), (Grants{{0, 40}, {1, 50}}));
  EXPECT_EQ(with({running(1), waiting(50)}, 3, 32), (Grants{{0, 1}}));
  EXPECT_EQ(with({running(1), waiting(50)}, 4, 32), (Grants{{0, 1}, {1, 50}}));
  // A smaller one overtakes one that does not fit.
  EXPECT_EQ(with({running(1), waiting(50), waiting(5)}, 20), (Grants{{0, 1}, {2, 5}}));
  EXPECT_TRUE(host.preempted.empty());
}

TEST(Scheduler, StepsOfAPromptEndWhereRecurrentStatesAreStored) {
  StepBudget b = budget(512);
  b.page_tokens = 32;
  b.state_tokens = 256;
  NoCache host;
  host.pages = 1 << 20;
  EXPECT_EQ(plan({waiting(600)}, b, host), (Grants{{0, 256}}));
  EXPECT_EQ(plan({running(500, 100)}, b), (Grants{{0, 156}}));
  // The last page border before the last token of the prompt, and then the rest.
  EXPECT_EQ(plan({running(88, 512)}, b), (Grants{{0, 64}}));
  EXPECT_EQ(plan({running(24, 576)}, b), (Grants{{0, 24}}));
  EXPECT_EQ(plan({waiting(96)}, b, host), (Grants{{0, 64}}));
  EXPECT_EQ(plan({waiting(32)}, b, host), (Grants{{0, 32}}));
  EXPECT_EQ(plan({running(1, 255), running(1, 64)}, b), (Grants{{0, 1}, {1, 1}}));
  // Two prompts still share a step.
  EXPECT_EQ(plan({running(600), running(1), running(40, 64)}, b), (Grants{{1, 1}, {0, 246}, {2, 32}}));
  b.tokens = 100;
  EXPECT_EQ(plan({waiting(600)}, b, host), (Grants{{0, 100}}));
}

TEST(Scheduler, APromptLongerThanAllWindowsIsAdmitted) {
  NoCache host;
  host.pages = 10;
  StepBudget b = budget(64);
  b.page_tokens = 32;
  b.cache_pages = 12;
  EXPECT_EQ(plan({waiting(1000)}, b, host), Grants());
  EXPECT_EQ(host.refused, (std::vector<size_t>{0}));
  b.request_pages = 6;
  EXPECT_EQ(plan({waiting(1000), waiting(40)}, b, host), (Grants{{0, 64}}));
  EXPECT_EQ(host.refused.size(), 1u);
}

TEST(Scheduler, PreemptionTakesTheLatestRequestOfTheLowestPriority) {
  NoCache host;
  host.pages = 0;
  std::vector<ScheduledRequest> requests = {running(1), running(1), running(1), running(9)};
  for (ScheduledRequest& r : requests) r.room = 0;
  requests[1].priority = 1;
  requests[2].priority = 1;
  struct Releasing : NoCache {
    void preempt(size_t request) override {
      NoCache::preempt(request);
      pages += 1;
    }
  } releasing;
  releasing.pages = 0;
  // Each needs a page: 2 and 1 give theirs, and what is left of 3 waits for pages.
  EXPECT_EQ(plan(requests, budget(64), releasing), (Grants{{0, 1}}));
  EXPECT_EQ(releasing.preempted, (std::vector<size_t>{2, 1}));
  EXPECT_EQ(Scheduler::victim(requests), 2u);
  EXPECT_EQ(Scheduler::victim(std::span(requests).first(1)), std::nullopt);
}

TEST(Scheduler, CancellationAndTimeoutEndRequestsBeforeTheStep) {
  NoCache host;
  std::vector<ScheduledRequest> requests = {running(1), running(1), waiting(10), waiting(5), waiting(7)};
  requests[0].is_cancelled = true;
  requests[2].deadline_ms = 99;
  requests[3].deadline_ms = 101;
  StepBudget b = budget(64);
  b.now_ms = 100;
  b.cache_pages = 6;
  EXPECT_EQ(plan(requests, b, host), (Grants{{1, 1}, {3, 5}}));
  EXPECT_EQ(host.ended,
            (std::vector<std::pair<size_t, FinishReason>>{{0, FinishReason::kCancelled}, {2, FinishReason::kTimeout}}));
  EXPECT_EQ(host.refused, (std::vector<size_t>{4}));  // does not fit in an empty cache
}

// --- Traffic ---

SimulatedRequest one(int64_t prompt, int64_t output, double arrival_ms = 0, std::string client = "", int priority = 0) {
  SimulatedRequest r;
  r.arrival_ms = arrival_ms;
  r.prompt = prompt;
  r.output = output;
  r.client = std::move(client);
  r.priority = priority;
  return r;
}

int64_t total_tokens(const SchedulerSimulator& s) {
  int64_t sum = 0;
  for (const SimulatedRequest& r : s.requests) sum += r.prompt + r.output - 1;
  return sum;
}

TEST(SchedulerSimulator, FairnessLongAndShortPromptsBothProgress) {
  for (const std::string client : {"", "same"}) {
    std::vector<SimulatedRequest> traffic = {one(128 * 1024, 10, 0, client)};
    for (int i = 0; i < 64; ++i) traffic.push_back(one(100, 20, 1000 + i, client));
    SchedulerSimulator s({}, traffic);
    int64_t unused = 0;
    s.on_step = [&](const auto& ran) {
      int64_t tokens = 0;
      for (const auto& [i, n] : ran) tokens += n;
      if (s.requests[0].first_token < 0 && tokens < 512) ++unused;
    };
    ASSERT_TRUE(s.run(1000));
    for (size_t i = 1; i < s.requests.size(); ++i)
      EXPECT_LE(s.requests[i].first_token - s.requests[i].arrival_step, 40) << client << i;
    // All the work there is, in full steps.
    EXPECT_LE(s.requests[0].first_token, (128 * 1024 + 64 * 120) / 512 + 3);
    EXPECT_LE(unused, 1);
    EXPECT_EQ(s.tokens_run, total_tokens(s));
  }
}

TEST(SchedulerSimulator, NoStarvationOfALongPromptByEndlessShortOnes) {
  // The stream alone would use 90 % of the steps' tokens.
  std::vector<SimulatedRequest> traffic = {one(20000, 5, 0)};
  for (int i = 0; i < 3000; ++i) traffic.push_back(one(120, 2, i * 72.0));
  SchedulerSimulator s({}, traffic);
  ASSERT_TRUE(s.run(5000));
  EXPECT_LE(s.requests[0].first_token, 600);
  int64_t longest = 0;
  for (size_t i = 1; i < s.requests.size(); ++i)
    longest = std::max(longest, s.requests[i].first_token - s.requests[i].arrival_step);
  EXPECT_LE(longest, 20);
}

TEST(SchedulerSimulator, FairnessBetweenBackloggedClients) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 600; ++i) traffic.push_back(one(200 + i % 7 * 50, 30, 0, "many"));
  for (int i = 0; i < 60; ++i) traffic.push_back(one(1500, 30, 0, "few"));
  SimulatedMachine machine;
  machine.sequences = 16;
  SchedulerSimulator s(machine, traffic);
  std::map<std::string, double> served;
  double largest = 0;
  std::map<std::string, int64_t> left = {{"many", 600}, {"few", 60}};
  s.on_step = [&](const std::map<size_t, int64_t>& ran) {
    for (const auto& [i, n] : ran) {
      const SimulatedRequest& r = s.requests[i];
      const bool sampled = r.made > 1;
      served[r.client] += static_cast<double>(n * (sampled ? Scheduler::kSampledCost : Scheduler::kPromptCost));
      left[r.client] -= r.has_ended();
    }
    // While both have requests that wait.
    if (left["many"] > 16 && left["few"] > 16) largest = std::max(largest, std::abs(served["many"] - served["few"]));
  };
  ASSERT_TRUE(s.run(5000));
  // VTC, theorem 4.4: twice the most that a client can have in flight, here 16 requests of 1500 + 2 x 30.
  EXPECT_LE(largest, 2 * 16 * 1560);
  EXPECT_GT(served["few"], 60 * 1500);
}

// Tokens between the arrival of another client's request and its first token, while `users` requests of one client run.
int64_t delay_beside_users(int users, bool names_users) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < users; ++i) {
    traffic.push_back(one(4000, 50, 0, "hog"));
    if (names_users) traffic.back().user = fmt::format("user {}", i);
  }
  traffic.push_back(one(400, 5, 5000, "other"));
  SchedulerSimulator s({}, traffic);
  EXPECT_TRUE(s.run(5000));
  return s.requests.back().first_token - s.requests.back().arrival_step;
}

TEST(SchedulerSimulator, FairnessAClientGainsNothingByNamingManyUsers) {
  EXPECT_LE(delay_beside_users(40, true), 4);
  EXPECT_LE(delay_beside_users(40, true), delay_beside_users(40, false) + 1);  // of equal counters the older is first
}

TEST(SchedulerSimulator, FairnessBetweenUsersOfOneClient) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 100; ++i) traffic.push_back(one(500, 2, 0, "key"));
  for (SimulatedRequest& r : traffic) r.user = "many";
  traffic.push_back(one(500, 2, 1000, "key"));
  traffic.back().user = "one";
  SchedulerSimulator s({}, traffic);
  ASSERT_TRUE(s.run(5000));
  EXPECT_LE(s.requests.back().first_token - s.requests.back().arrival_step, 3);
}

// A client that sends each request under another name is not remembered under all of them.
TEST(Scheduler, FairnessCountersOfThousandsOfIdleUsersAreForgotten) {
  Scheduler scheduler;
  NoCache host;
  ScheduledRequest slow = waiting(1 << 20);
  slow.client = "slow";
  slow.priority = 1;
  for (uint64_t i = 1; i <= 3 * Scheduler::kMaxIdle; ++i) {
    const std::string name = fmt::format("user {}", i);
    ScheduledRequest quick = waiting(64);
    quick.client = name;
    quick.user = name;
    quick.id = i;
    scheduler.plan(std::vector{slow, quick}, budget(64, 1), host);
  }
  EXPECT_LE(scheduler.num_known_clients(), Scheduler::kMaxIdle + 2);
  EXPECT_GE(scheduler.num_known_clients(), Scheduler::kMaxIdle / 4);
}

TEST(SchedulerSimulator, FairnessAnIdleClientGetsNoCredit) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 400; ++i) traffic.push_back(one(500, 10, i * 10.0, "steady"));
  traffic.push_back(one(500, 10, 0, "late"));
  for (int i = 0; i < 200; ++i) traffic.push_back(one(500, 10, 20000, "late"));
  SchedulerSimulator s({}, traffic);
  int64_t steady = 0, late = 0;
  s.on_step = [&](const std::map<size_t, int64_t>& ran) {
    if (s.now_ms < 21000 || s.now_ms > 30000) return;
    for (const auto& [i, n] : ran) (s.requests[i].client == "late" ? late : steady) += n;
  };
  ASSERT_TRUE(s.run(5000));
  EXPECT_GT(steady, 0.4 * static_cast<double>(late));
  EXPECT_GT(late, 0.4 * static_cast<double>(steady));
}

TEST(SchedulerSimulator, ThousandsOfClientsAreServedInTheirOrder) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 4000; ++i) traffic.push_back(one(64, 8, 0, fmt::format("client {}", i)));
  SchedulerSimulator s({}, traffic);
  ASSERT_TRUE(s.run(4000));
  for (size_t i = 1; i < s.requests.size(); ++i)
    EXPECT_LE(s.requests[i - 1].first_admitted, s.requests[i].first_admitted) << i;
  // 64 at a time, 9 steps each.
  EXPECT_LE(s.steps, 4000 / 64 * 9 + 100);
}

TEST(SchedulerSimulator, PrefillOfABurstIsNotDelayedByDecodingRequests) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 32; ++i) traffic.push_back(one(50, 2000, 0));
  for (int i = 0; i < 32; ++i) traffic.push_back(one(300, 10, 5000));
  SimulatedMachine machine;
  machine.max_prefill_tokens = 128;
  SchedulerSimulator s(machine, traffic);
  ASSERT_TRUE(s.run(4000));
  for (size_t i = 32; i < 64; ++i)
    EXPECT_LE(s.requests[i].first_token - s.requests[i].arrival_step, 32 * 300 / 128 + 2) << i;
  // Every running request got a token in each step: checked by the simulator.
  EXPECT_LE(s.requests[31].end_step, 2000 + 20);
}

TEST(SchedulerSimulator, PreemptionStormEndsAndRecomputesLittle) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 100; ++i) traffic.push_back(one(40, 900, i));
  SimulatedMachine machine;
  machine.pages = 60;  // two of them, at their end
  SchedulerSimulator s(machine, traffic);
  ASSERT_TRUE(s.run(100000));
  int64_t preemptions = 0;
  for (const SimulatedRequest& r : s.requests) {
    EXPECT_EQ(r.made, 900);
    preemptions += r.preemptions;
  }
  EXPECT_GT(preemptions, 0);
  EXPECT_LE(s.tokens_run, 3 * total_tokens(s));
  // The first to come is never preempted.
  EXPECT_EQ(s.requests[0].preemptions, 0);
  EXPECT_EQ(s.requests[0].end_step, 900);
}

// A closed loop in a small cache: there are always newcomers, who have been served less than those that were preempted.
TEST(SchedulerSimulator, NoStarvationOfAPreemptedRequestByNewRequests) {
  for (const std::string client : {"", "same"}) {
    SimulatedMachine machine;
    machine.sequences = 16;
    machine.pages = 64;
    std::vector<SimulatedRequest> traffic;
    for (int i = 0; i < 48; ++i) traffic.push_back(one(4 + i * 61 % 180, 1 + i * 37 % 200, i, client));
    SchedulerSimulator s(machine, traffic);
    for (int i = 0; i < 2000; ++i) s.next.push_back(one(4 + i * 61 % 180, 1 + i * 37 % 200, 0, client));
    ASSERT_TRUE(s.run(200000));
    int64_t longest = 0, preemptions = 0;
    for (const SimulatedRequest& r : s.requests) {
      longest = std::max(longest, r.end_step - r.arrival_step);
      preemptions += r.preemptions;
    }
    EXPECT_GT(preemptions, 20);
    // 48 requests of at most 200 steps and a prompt, of which the cache holds at least eight at a time; twice that,
    // for what is computed again.
    EXPECT_LE(longest, 2 * (48 / 8) * 201) << client;
  }
}

TEST(SchedulerSimulator, NoStarvationOfARequestThatDoesNotFit) {
  std::vector<SimulatedRequest> traffic = {one(32 * 60, 200, 0), one(32 * 80, 5, 1)};
  for (int i = 0; i < 2000; ++i) traffic.push_back(one(64, 40, 2 + i));
  SimulatedMachine machine;
  machine.pages = 100;
  SchedulerSimulator s(machine, traffic);
  ASSERT_TRUE(s.run(20000));
  const SimulatedRequest& large = s.requests[1];
  int64_t before = 0;
  for (size_t i = 2; i < s.requests.size(); ++i)
    if (s.requests[i].first_admitted < large.first_admitted) before += s.requests[i].prompt;
  EXPECT_GT(before, 0);
  EXPECT_LE(before, (Scheduler::kMaxOvertaken + 1) * large.prompt);
  for (const SimulatedRequest& r : s.requests) EXPECT_EQ(r.reason, FinishReason::kLength);
}

TEST(SchedulerSimulator, PriorityAnUrgentRequestPreemptsOthers) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 30; ++i) traffic.push_back(one(200, 300, 0, "", 1));
  traffic.push_back(one(900, 20, 3000, "", 0));
  traffic.push_back(one(100, 20, 3000, "", 2));
  for (const bool has_seats : {true, false}) {
    SimulatedMachine machine;
    machine.pages = has_seats ? 100 : 10000;
    machine.sequences = has_seats ? 64 : 8;
    SchedulerSimulator s(machine, traffic);
    ASSERT_TRUE(s.run(20000));
    const SimulatedRequest &urgent = s.requests[30], &last = s.requests[31];
    EXPECT_LE(urgent.first_token - urgent.arrival_step, 3);
    EXPECT_EQ(urgent.preemptions, 0);
    for (size_t i = 0; i < 30; ++i) EXPECT_LE(s.requests[i].first_admitted, last.first_admitted);
    int64_t preemptions = 0;
    for (const SimulatedRequest& r : s.requests) preemptions += r.preemptions;
    EXPECT_GT(preemptions, 0);
  }
}

TEST(SchedulerSimulator, PriorityAnUrgentRequestThatDoesNotFitIsNotOvertaken) {
  std::vector<SimulatedRequest> traffic = {one(32 * 50, 300, 0, "", 0)};
  traffic.push_back(one(32 * 80, 5, 100, "", 0));
  for (int i = 0; i < 50; ++i) traffic.push_back(one(64, 10, 200, "", 1));
  SimulatedMachine machine;
  machine.pages = 100;
  SchedulerSimulator s(machine, traffic);
  ASSERT_TRUE(s.run(20000));
  for (size_t i = 2; i < s.requests.size(); ++i) EXPECT_GE(s.requests[i].first_admitted, s.requests[1].first_admitted);
}

TEST(SchedulerSimulator, CancellationAndTimeoutEndRequestsAtTheNextStep) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 40; ++i) {
    SimulatedRequest r = one(400, 500, i * 20.0);
    if (i % 4 == 1) r.cancel_ms = 3000;
    if (i % 4 == 2) r.timeout_ms = 4000;
    if (i % 4 == 3) r.timeout_ms = 5;  // while it waits
    traffic.push_back(r);
  }
  SimulatedMachine machine;
  machine.sequences = 8;
  SchedulerSimulator s(machine, traffic);
  ASSERT_TRUE(s.run(20000));
  const double step_ms = machine.step_ms + machine.token_ms * 512;
  for (const SimulatedRequest& r : s.requests) {
    const double limit_ms = r.reason == FinishReason::kCancelled ? r.cancel_ms : r.timeout_ms;
    EXPECT_EQ(r.reason == FinishReason::kLength, r.made == r.output);
    EXPECT_TRUE(r.reason == FinishReason::kLength || r.end_ms <= r.arrival_ms + limit_ms + step_ms);
    EXPECT_TRUE(r.reason == FinishReason::kLength || limit_ms > 0);
  }
  EXPECT_EQ(s.requests[1].reason, FinishReason::kCancelled);
  EXPECT_EQ(s.requests[2].reason, FinishReason::kTimeout);
}

TEST(SchedulerSimulator, PrefixCacheSharedPrefixOfPromptsIsComputedOnce) {
  std::vector<SimulatedRequest> traffic;
  for (int i = 0; i < 16; ++i) {
    SimulatedRequest r = one(1030, 32);
    r.prefix = 1;
    r.shared = 1000;
    traffic.push_back(r);
  }
  traffic.push_back(one(300, 32));  // nothing holds up another prompt
  SchedulerSimulator s({}, traffic);
  ASSERT_TRUE(s.run(1000));
  for (size_t i = 1; i < 16; ++i) EXPECT_EQ(s.requests[i].cached, 992) << i;
  EXPECT_LE(s.requests[15].first_token, 5);
  EXPECT_LE(s.requests[16].first_token, 4);
  int64_t prompt_tokens = 0;
  for (const SimulatedRequest& r : s.requests) prompt_tokens += r.tokens_run - (r.output - 1);
  EXPECT_EQ(prompt_tokens, 1030 + 15 * 38 + 300);
}

// Drafted tokens take what the others leave.
TEST(Scheduler, DraftsTakeWhatIsLeft) {
  const auto drafted = [](std::vector<ScheduledRequest> requests, StepBudget b, int64_t pages = 1 << 20) {
    for (size_t i = 0; i < requests.size(); ++i) requests[i].id = i;
    NoCache host;
    host.pages = pages;
    Scheduler scheduler;
    std::map<size_t, int64_t> drafts;
    for (const ScheduledTokens& grant : scheduler.plan(requests, b, host))
      if (grant.max_draft > 0) drafts[grant.request] = grant.max_draft;
    EXPECT_TRUE(host.preempted.empty());
    return drafts;
  };
  using Drafts = std::map<size_t, int64_t>;
  const auto wants = [](int64_t draft, int64_t room = 1000) {
    ScheduledRequest r = running(1);
    r.max_draft = draft;
    r.room = room;
    return r;
  };
  EXPECT_EQ(drafted({wants(8), wants(0), wants(3)}, budget(64)), (Drafts{{0, 8}, {2, 3}}));
  // Prompts come first, and a step of more tokens than draft_tokens has none.
  EXPECT_EQ(drafted({wants(8), running(100)}, budget(64)), Drafts());
  EXPECT_EQ(drafted({wants(8), running(58)}, budget(64)), (Drafts{{0, 5}}));
  StepBudget b = budget(64);
  b.draft_tokens = 20;
  EXPECT_EQ(drafted({wants(8), running(30)}, b), Drafts());
  EXPECT_EQ(drafted({wants(30)}, b), (Drafts{{0, 19}}));
  // Equal shares; what small wishes leave goes to the others.
  EXPECT_EQ(drafted({wants(20), wants(2), wants(20)}, b), (Drafts{{0, 8}, {1, 2}, {2, 7}}));
  b.logit_rows = 6;
  EXPECT_EQ(drafted({wants(8), wants(8)}, b), (Drafts{{0, 2}, {1, 2}}));
  b.draft_tokens = 0;
  EXPECT_EQ(drafted({wants(8)}, b), Drafts());
  // Pages: each of the two needs a page next, so that one of three is left.
  StepBudget pages = budget(64);
  pages.page_tokens = 4;
  EXPECT_EQ(drafted({wants(9, 1), wants(0, 1)}, pages, 3), (Drafts{{0, 4}}));
  EXPECT_EQ(drafted({wants(9, 1), wants(0, 1)}, pages, 2), Drafts());
}

// Accepted tokens count as service: a client gains no prompt tokens by drafting.
TEST(Scheduler, AcceptedDraftsAreCharged) {
  Scheduler scheduler;
  NoCache host;
  std::vector<ScheduledRequest> requests = {running(1), running(1), waiting(4), waiting(4)};
  for (size_t i = 0; i < requests.size(); ++i) requests[i].id = i;
  requests[0].client = requests[2].client = "drafts";
  requests[1].client = requests[3].client = "does not";
  StepBudget b = budget(64);
  b.admits = false;
  scheduler.plan(requests, b, host);
  requests[0].length += 6;
  requests[1].length += 1;
  b.admits = true;
  b.tokens = 6;
  Grants grants;
  for (const ScheduledTokens& grant : scheduler.plan(requests, b, host))
    grants.emplace_back(grant.request, grant.tokens);
  EXPECT_EQ(grants, (Grants{{0, 1}, {1, 1}, {3, 4}}));
}

TEST(SchedulerSimulator, RandomTrafficKeepsWhatMustHold) {
  for (uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
    SimulatedMachine machine;
    machine.step_tokens = 16 + below(600);
    machine.sequences = 1 + below(std::min<int64_t>(machine.step_tokens, 64));
    machine.pages = 20 + below(200);
    if (below(2)) machine.max_prefill_tokens = 1 + below(256);
    std::vector<SimulatedRequest> traffic;
    double now = 0;
    for (int64_t i = 0, n = 50 + below(300); i < n; ++i) {
      now += below(4) ? static_cast<double>(below(100)) : 0;
      SimulatedRequest r = one(1 + below(below(4) ? 100 : 5000), 1 + below(below(3) ? 20 : 400), now);
      if (below(2)) r.client = std::string(1, static_cast<char>('a' + below(5)));
      r.priority = static_cast<int>(below(5) == 0) - static_cast<int>(below(9) == 0);
      if (below(8) == 0) r.timeout_ms = static_cast<double>(1 + below(2000));
      if (below(8) == 0) r.cancel_ms = static_cast<double>(1 + below(2000));
      if (below(3) == 0) {
        r.prefix = static_cast<int>(below(3));
        r.shared = below(r.prompt + 1);
      }
      // A text must fit alone; the engine ends it as kLength where it does not.
      r.output = std::min(r.output, std::max<int64_t>(1, machine.pages * 32 - r.prompt));
      traffic.push_back(r);
    }
    SchedulerSimulator s(machine, traffic);
    ASSERT_TRUE(s.run(400000)) << seed;
    for (const SimulatedRequest& r : s.requests) {
      if (r.is_refused) EXPECT_GT(r.prompt, machine.pages * 32) << seed;
      else if (r.reason == FinishReason::kLength) EXPECT_EQ(r.made, r.output) << seed;
      else EXPECT_TRUE(r.timeout_ms > 0 || r.cancel_ms > 0) << seed;
    }
  }
}

}  // namespace
}  // namespace redline::testing
