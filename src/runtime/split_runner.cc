#include "runtime/split_runner.h"

#include <algorithm>
#include <cstring>

namespace redline {
namespace {

/// Returns the index of the part that has a state group.
size_t part_of(const std::vector<size_t>& first_group, size_t group) {
  return static_cast<size_t>(std::upper_bound(first_group.begin(), first_group.end(), group) - first_group.begin()) - 1;
}

class SplitStates final : public StateMemory {
 public:
  SplitStates(std::vector<size_t> first_group, std::vector<std::unique_ptr<StateMemory>> parts)
      : first_group_(std::move(first_group)), parts_(std::move(parts)) {}
  uint8_t* pages(size_t group) override { return part(group).pages(number(group)); }
  void copy_page(size_t group, int64_t from, int64_t to) override { part(group).copy_page(number(group), from, to); }
  void clear_page(size_t group, int64_t page) override { part(group).clear_page(number(group), page); }
  void discard_pages(size_t group, int64_t begin, int64_t end) override {
    part(group).discard_pages(number(group), begin, end);
  }
  bool is_host_memory(size_t group) const override { return part(group).is_host_memory(number(group)); }
  Status download_page(size_t group, int64_t page, uint8_t* to) override {
    return part(group).download_page(number(group), page, to);
  }
  Status upload_page(size_t group, int64_t page, const uint8_t* from) override {
    return part(group).upload_page(number(group), page, from);
  }

 private:
  StateMemory& part(size_t group) const { return *parts_[part_of(first_group_, group)]; }
  size_t number(size_t group) const { return group - first_group_[part_of(first_group_, group)]; }
  std::vector<size_t> first_group_;
  std::vector<std::unique_ptr<StateMemory>> parts_;
};

}  // namespace

SplitRunner::SplitRunner(const std::vector<Graph>& graphs, std::vector<std::unique_ptr<Runner>> parts)
    : parts_(std::move(parts)), first_group_{0} {
  for (size_t to = 1; to < graphs.size(); ++to)
    for (const ValueId id : graphs[to].inputs) {
      const ValueInfo& value = graphs[to].value(id);
      const auto has = [&](const std::vector<ValueId>& ids, size_t part) {
        return std::any_of(ids.begin(), ids.end(),
                           [&](ValueId each) { return graphs[part].value(each).name == value.name; });
      };
      for (size_t from = 0; from < to; ++from) {
        const bool is_input = has(graphs[from].inputs, from);
        if (!is_input && !has(graphs[from].outputs, from)) continue;
        ports_.push_back({value.name, value.shape, from, to, is_input});
        break;  // the part that makes it, or the first that has what the caller writes
      }
    }
  states_ = parts_[0]->states();
  states_.places.clear();  // of the graphs of the parts
  states_.groups.clear();
  for (const auto& part : parts_) {
    const StatePlan& more = part->states();
    states_.groups.insert(states_.groups.end(), more.groups.begin(), more.groups.end());
    first_group_.push_back(states_.groups.size());
  }
}

std::vector<const Program*> SplitRunner::programs() const {
  std::vector<const Program*> all;
  for (const auto& part : parts_) all.push_back(part->program());
  return all;
}

AttentionLimits SplitRunner::attention_limits(size_t group) const {
  const size_t part = part_of(first_group_, group);
  return parts_[part]->attention_limits(group - first_group_[part]);
}

Result<std::unique_ptr<StateMemory>> SplitRunner::make_state_memory(std::span<const int64_t> num_pages) const {
  std::vector<std::unique_ptr<StateMemory>> memory;
  for (size_t p = 0; p < parts_.size(); ++p) {
    const size_t begin = first_group_[p], end = first_group_[p + 1];
    REDLINE_ASSIGN(memory.emplace_back(), parts_[p]->make_state_memory(num_pages.subspan(begin, end - begin)));
  }
  return std::unique_ptr<StateMemory>(new SplitStates(first_group_, std::move(memory)));
}

void SplitRunner::copy(const Port& port, const SymbolValues& sizes) {
  Runner& from = *parts_[port.from];
  const void* data = port.is_input ? from.host_input(port.name) : from.host_output(port.name);
  std::memcpy(parts_[port.to]->host_input(port.name), data,
              static_cast<size_t>(num_elements(port.shape).eval(sizes)) * 4);
}

Status SplitRunner::step(const StepContext& context) {
  StepContext own = context;
  own.samples = {};
  for (const Port& port : ports_)
    if (port.is_input) copy(port, context.sizes);  // a part may lose its inputs
  for (size_t p = 0; p < parts_.size(); ++p) {
    for (const Port& port : ports_)
      if (!port.is_input && port.to == p) copy(port, context.sizes);
    own.states = context.states.subspan(first_group_[p], first_group_[p + 1] - first_group_[p]);
    REDLINE_TRY(parts_[p]->step(own));
  }
  return {};
}

void* SplitRunner::host_input(std::string_view name) {
  for (const auto& part : parts_)
    if (void* data = part->host_input(name)) return data;
  return nullptr;
}

const void* SplitRunner::host_output(std::string_view name) const {
  for (const auto& part : parts_)
    if (const void* data = part->host_output(name)) return data;
  return nullptr;
}

int64_t SplitRunner::resident_arena_bytes() const {
  int64_t bytes = 0;
  for (const auto& part : parts_) bytes += part->resident_arena_bytes();
  return bytes;
}

std::string SplitRunner::describe() const {
  std::string text;
  for (const auto& part : parts_) text += part->describe();
  return text;
}

}  // namespace redline
