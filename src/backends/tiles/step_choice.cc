#include "backends/tiles/step_choice.h"

#include "backends/tiles/tile_program.h"

namespace redline {
namespace {

/// Returns the reason why no step of the program can be persistent; "" if steps can be.
std::string find_obstacle(const Program& program) {
  const TileProgram& code = TileProgram::of(program);
  if (std::string obstacle = code.device->persistent_obstacle(); !obstacle.empty()) return obstacle;
  if (const int resident = code.device->table().persistent_blocks; program.workers > resident)
    return fmt::format("{} blocks would wait for one another, and {} of them fit on {} at once", program.workers,
                       resident, code.device->name());
  if (program.bounds[Symbol::kTokens] == 0) return "not a language model";
  for (size_t s = 0; s < code.stages.size(); ++s)
    if (!tiles::is_task(code.stages[s].kernel))
      return fmt::format("{}: {} is not part of a persistent step", program.stages[s].name, program.stages[s].op);
  return "";
}

}  // namespace

Result<StepMode> parse_step_mode(std::string_view text) {
  if (text.empty()) return StepMode::kAuto;
  if (text == "persistent") return StepMode::kPersistent;
  if (text == "graphs") return StepMode::kGraphs;
  return invalid_argument("REDLINE_DEVICE_STEPS is \"{}\"; expected persistent or graphs, or unset", text);
}

std::string StepChoice::text() const {
  if (persistent_rows > 0)
    return fmt::format("up to {} rows in one launch, more by graphs of launches", persistent_rows);
  return obstacle.empty() ? "graphs of launches" : "graphs of launches: " + obstacle;
}

StepChoice choose_steps(StepMode mode, std::string obstacle) {
  if (mode == StepMode::kGraphs) return {0, "REDLINE_DEVICE_STEPS=graphs"};
  if (!obstacle.empty()) return {0, std::move(obstacle)};
  return {kPersistentRows, ""};
}

Result<StepChoice> choose_steps(StepMode mode, const Program& program) {
  StepChoice choice = choose_steps(mode, find_obstacle(program));
  if (mode == StepMode::kPersistent && choice.persistent_rows == 0 && !program.states.groups.empty())
    return unsupported("{}: REDLINE_DEVICE_STEPS=persistent: {}", program.name, choice.obstacle);
  return choice;
}

}  // namespace redline
