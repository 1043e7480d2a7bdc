// How a tile device runs the steps of a program: of few rows as one persistent launch, or all of them by a launch for
// each stage. Both give the same bits.
#pragma once

#include <string>
#include <string_view>

#include "graph/program.h"

namespace redline {

/// Steps of a language model up to this size are persistent. The task form of products computes so many rows at a
/// time: more would read the weights again.
inline constexpr int64_t kPersistentRows = 16;

enum class StepMode : uint8_t {
  kAuto,        ///< persistent where device and program allow it
  kPersistent,  ///< the same, and a language model that cannot is refused
  kGraphs,      ///< never persistent
};
/// REDLINE_DEVICE_STEPS: "", "persistent" or "graphs".
Result<StepMode> parse_step_mode(std::string_view text);

struct StepChoice {
  /// Steps of at most so many tokens are persistent. 0: none, and `obstacle` says why.
  int64_t persistent_rows = 0;
  std::string obstacle;
  /// "up to 16 rows in one launch, more by graphs of launches", or "graphs of launches: " and the obstacle.
  std::string text() const;
};
/// `obstacle`: why no step can be persistent; empty: nothing stands against it.
StepChoice choose_steps(StepMode mode, std::string obstacle);
/// Of a tile program on its device. unsupported: kPersistent, and a model with states cannot.
Result<StepChoice> choose_steps(StepMode mode, const Program& program);

}  // namespace redline
