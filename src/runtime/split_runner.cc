#include "runtime/split_runner.h"

#include <algorithm>
#include <cstring>

namespace redline {
namespace {

class SplitStates final : public StateMemory {
 public:
  SplitStates(size_t front_groups, std::unique_ptr<StateMemory> front, std::unique_ptr<StateMemory> back)
      : front_groups_(front_groups), front_(std::move(front)), back_(std::move(back)) {}
  uint8_t* pages(size_t group) override { return part(group).pages(number(group)); }
  void copy_page(size_t group, int64_t from, int64_t to) override { part(group).copy_page(number(group), from, to); }
  void clear_page(size_t group, int64_t page) override { part(group).clear_page(number(group), page); }
  void discard_pages(size_t group, int64_t begin, int64_t end) override {
    part(group).discard_pages(number(group), begin, end);
  }

 private:
  StateMemory& part(size_t group) const { return group < front_groups_ ? *front_ : *back_; }
  size_t number(size_t group) const { return group < front_groups_ ? group : group - front_groups_; }
  size_t front_groups_;
  std::unique_ptr<StateMemory> front_, back_;
};

}  // namespace

SplitRunner::SplitRunner(const SplitGraph& split, std::unique_ptr<Runner> front, std::unique_ptr<Runner> back)
    : front_(std::move(front)), back_(std::move(back)) {
  for (const ValueId id : split.back.inputs) {
    const ValueInfo& value = split.back.value(id);
    const bool is_input = split.front.find_input(value.name) >= 0;
    if (is_input || std::find(split.crossing.begin(), split.crossing.end(), value.name) != split.crossing.end())
      ports_.push_back({value.name, value.shape, is_input});
  }
  states_ = front_->states();
  states_.places.clear();  // of the graphs of the parts
  const StatePlan& more = back_->states();
  states_.groups.insert(states_.groups.end(), more.groups.begin(), more.groups.end());
}

AttentionLimits SplitRunner::attention_limits(size_t group) const {
  const size_t front_groups = front_->states().groups.size();
  return group < front_groups ? front_->attention_limits(group) : back_->attention_limits(group - front_groups);
}

Result<std::unique_ptr<StateMemory>> SplitRunner::make_state_memory(std::span<const int64_t> num_pages) const {
  const size_t front_groups = front_->states().groups.size();
  REDLINE_ASSIGN(auto front, front_->make_state_memory(num_pages.first(front_groups)));
  REDLINE_ASSIGN(auto back, back_->make_state_memory(num_pages.subspan(front_groups)));
  return std::unique_ptr<StateMemory>(new SplitStates(front_groups, std::move(front), std::move(back)));
}

void SplitRunner::copy(const SymbolValues& sizes, bool inputs) {
  for (const Port& port : ports_) {
    if (port.is_input != inputs) continue;
    const void* from = inputs ? front_->host_input(port.name) : front_->host_output(port.name);
    std::memcpy(back_->host_input(port.name), from, static_cast<size_t>(num_elements(port.shape).eval(sizes)) * 4);
  }
}

Status SplitRunner::step(const StepContext& context) {
  const size_t front_groups = front_->states().groups.size();
  StepContext part = context;
  part.samples = {};
  part.states = context.states.first(front_groups);
  copy(context.sizes, true);  // the front may lose its inputs
  REDLINE_TRY(front_->step(part));
  copy(context.sizes, false);
  part.states = context.states.subspan(front_groups);
  return back_->step(part);
}

void* SplitRunner::host_input(std::string_view name) {
  void* const data = front_->host_input(name);
  return data != nullptr ? data : back_->host_input(name);
}

}  // namespace redline
