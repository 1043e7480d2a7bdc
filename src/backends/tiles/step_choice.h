// Chooses how a tile device runs the steps of a program: steps of few rows as one persistent launch, or all steps with
// a launch for each stage. Both give the same bits.
#pragma once

#include <string>
#include <string_view>

#include "graph/program.h"

namespace redline {

/// Maximum number of rows of a persistent step of a language model. The task form of products computes this many rows
/// at a time; more rows would read the weights again.
inline constexpr int64_t kPersistentRows = 16;

enum class StepMode : uint8_t {
  kAuto,        ///< persistent where device and program allow it
  kPersistent,  ///< persistent; a language model that cannot run so is refused
  kGraphs,      ///< never persistent
};
/// Parses REDLINE_DEVICE_STEPS: "", "persistent" or "graphs".
Result<StepMode> parse_step_mode(std::string_view text);

struct StepChoice {
  /// Maximum number of tokens of a persistent step. 0: no step is persistent, and `obstacle` says why.
  int64_t persistent_rows = 0;
  std::string obstacle;
  /// Returns "up to 16 rows in one launch, more by graphs of launches", or "graphs of launches: " and the obstacle.
  std::string text() const;
};
/// Chooses from the mode. `obstacle`: why no step can be persistent; empty: steps can be.
StepChoice choose_steps(StepMode mode, std::string obstacle);
/// Chooses for a tile program on its device. unsupported: mode is kPersistent and a model with states cannot be.
Result<StepChoice> choose_steps(StepMode mode, const Program& program);

}  // namespace redline
