// The sequences of a graph under test: a pool of pages, the attention plan, and the context of a step.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "graph/state.h"
#include "llm/attention_plan.h"
#include "llm/state_pool.h"

namespace redline::test {

class TestSequences {
 public:
  /// `shape`: of the attention plan; partitions 0 for the interpreter, which needs none.
  TestSequences(const StatePlan& plan, std::unique_ptr<StateMemory> memory, int64_t pages, size_t count,
                AttentionPlanShape shape = {})
      : pool_(plan, std::vector<int64_t>(plan.groups.size(), pages), std::move(memory)), shape_(shape),
        groups_(plan.groups.size()), states_(plan.groups.size()) {
    for (size_t i = 0; i < count; ++i) sequences_.push_back(std::make_unique<SequenceState>(pool_));
  }
  /// Sets how the plans of later steps read the states; the window is that of each group.
  void set_reach(const AttentionReach& reach) { reach_ = reach; }
  SequenceState& operator[](size_t i) { return *sequences_[i]; }
  StatePool& pool() { return pool_; }

  /// The context of a step of `rows[i]` tokens of sequence i, valid until the next one. Sequences without rows take no
  /// part.
  StepContext begin(const std::vector<int64_t>& rows) {
    rows_.clear();
    taken_ = rows;
    for (Group& group : groups_) group = {};
    int32_t row = 0;
    for (size_t s = 0; s < rows.size(); ++s) {
      if (rows[s] == 0) continue;
      SequenceState& state = *sequences_[s];
      EXPECT_TRUE(state.reserve(rows[s]).ok());
      rows_.push_back({row, static_cast<int32_t>(rows[s]), state.length()});
      row += static_cast<int32_t>(rows[s]);
      for (size_t g = 0; g < groups_.size(); ++g) {
        groups_[g].pages.push_back(state.pages(g));
        if (pool_.group(g).kind != StateKind::kKeyValue) continue;
        for (int64_t i = 0; i < rows[s]; ++i) groups_[g].slots.push_back(state.slot(g, state.length() + i));
      }
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      states_[g] = {
          pool_.memory().pages(g), pool_.group(g).page_bytes, groups_[g].pages.data(), groups_[g].slots.data(), {}};
      if (shape_.limits.partitions == 0 || pool_.group(g).kind != StateKind::kKeyValue) continue;
      groups_[g].plan = std::make_unique<AttentionPlan>(shape_);
      reach_.window = pool_.group(g).window;
      groups_[g].plan->make(rows_, reach_);
      states_[g].attention = groups_[g].plan->work();
    }
    StepContext step;
    step.sizes[Symbol::kTokens] = row;
    step.sizes[Symbol::kSequences] = std::ssize(rows_);
    step.sizes[Symbol::kLogitRows] = 1;
    step.sequences = rows_;
    step.states = states_;
    return step;
  }
  /// A group of the step of the last begin(), for tests that let it read the states of other sequences.
  StateStep& state(size_t g) { return states_[g]; }
  /// The step of the last begin() has run.
  void commit() {
    for (size_t s = 0; s < taken_.size(); ++s)
      if (taken_[s] > 0) sequences_[s]->commit(taken_[s]);
  }

 private:
  struct Group {
    std::unique_ptr<AttentionPlan> plan;
    std::vector<const int32_t*> pages;
    std::vector<int32_t> slots;
  };
  StatePool pool_;
  AttentionPlanShape shape_;
  AttentionReach reach_;
  std::vector<Group> groups_;
  std::vector<StateStep> states_;
  std::vector<SequenceRows> rows_;
  std::vector<int64_t> taken_;
  std::vector<std::unique_ptr<SequenceState>> sequences_;
};

}  // namespace redline::test
