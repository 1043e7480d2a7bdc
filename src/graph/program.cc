#include "graph/program.h"

#include <algorithm>

namespace redline {

const TaskSchedule& Program::schedule_of(const SymbolValues& sizes) const {
  if (wavefront && sizes[Symbol::kTokens] >= wavefront->min_tokens) return *wavefront;
  return *this;
}

const TaskSchedule& Program::schedule_of(const StepContext& step) const {
  const TaskSchedule& schedule = schedule_of(step.sizes);
  if (&schedule == this || wavefront->cuts == RowCuts::kAtRows) return schedule;
  const auto may_be_cut = [](const SequenceRows& rows) {
    return (rows.first_position - rows.row_begin) % kWaveGrain == 0 ||
           rows.row_begin / kWaveGrain == (rows.row_begin + rows.rows - 1) / kWaveGrain;
  };
  if (std::all_of(step.sequences.begin(), step.sequences.end(), may_be_cut)) return schedule;
  return *this;
}

const Program::Port* Program::find_input(std::string_view port_name) const {
  for (const Port& port : inputs)
    if (port.name == port_name) return &port;
  return nullptr;
}
const Program::Port* Program::find_output(std::string_view port_name) const {
  for (const Port& port : outputs)
    if (port.name == port_name) return &port;
  return nullptr;
}

std::string Program::to_string() const {
  size_t num_tasks = 0;
  for (const auto& list : tasks) num_tasks += list.size();
  std::vector<std::string> limits;
  for (int i = 0; i < kNumSymbols; ++i)
    if (bounds.value[i] > 0)
      limits.push_back(fmt::format(" {} {}", symbol_name(static_cast<Symbol>(i)), bounds.value[i]));
  std::string text = fmt::format(
      "program {}: {} stages, {} tasks on {} workers, {} events\n"
      "  bounds:{}\n"
      "  weights {} bytes; arena {} bytes ({} without reuse)\n",
      name, stages.size(), num_tasks, workers, num_events, fmt::join(limits, ","), weight_bytes, arena_plan.bytes,
      arena_plan.bytes_without_reuse);
  for (const Port& port : inputs)
    text +=
        fmt::format("  input  {:<16} {}{}\n", port.name, dtype_info(port.dtype).name, redline::to_string(port.shape));
  for (const Port& port : outputs)
    text +=
        fmt::format("  output {:<16} {}{}\n", port.name, dtype_info(port.dtype).name, redline::to_string(port.shape));

  if (wavefront)
    text += fmt::format("  wavefront: from {} tokens on, {} events\n", wavefront->min_tokens, wavefront->num_events);
  std::vector<const Task*> first(stages.size(), nullptr);
  for (const auto& list : tasks)
    for (const Task& task : list)
      if (task.index == 0) first[task.stage] = &task;
  for (size_t s = 0; s < stages.size(); ++s) {
    const StagePlan& stage = stages[s];
    std::string wait_text;
    for (uint32_t w = first[s]->wait_begin; w < first[s]->wait_end; ++w)
      wait_text +=
          fmt::format("{}{} >= {}", wait_text.empty() ? "" : ", ", event_names[waits[w].event], waits[w].count);
    std::string placed;
    for (ValueId id : stage.writes)
      for (const ArenaBlock& block : arena_plan.blocks)
        if (block.value == id && block.bytes > 0) placed += fmt::format(" -> %{}@{}+{}", id, block.offset, block.bytes);
    text += fmt::format("  {:>4} {:<34} {:<12} {}{}{}\n", s, stage.name, stage.op, stage.grid.to_string(), placed,
                        wait_text.empty() ? "" : "  waits " + wait_text);
  }
  return text;
}

}  // namespace redline
