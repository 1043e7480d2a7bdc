// Waits for the end of a step, and describes what an aborted step has waited for.
#include <set>

#include "backends/tiles/tile_runner.h"

namespace redline {

Result<std::string> TileRunner::await(bool is_persistent, Clock::time_point begin) {
  // The kernels time out first, and say what they have waited for.
  constexpr double kSlack = 5;  // seconds
  const auto limit = static_cast<uint64_t>(options_.hang_seconds > 0 ? (2 * options_.hang_seconds + kSlack) * 1e9 : 0);
  REDLINE_TRY(code_.device->synchronize(limit));
  // With the launches: once the driver's queue is full, they take as long as the kernels before them.
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  // A step that has not taken so long has not been abandoned: its report need not be read.
  const bool can_be_abandoned = options_.hang_seconds > 0 && seconds >= options_.hang_seconds / 2;
  if (!can_be_abandoned && code_.device->table().gives_up_at_once == 0) return std::string();
  tiles::HangReport hang = {};
  REDLINE_TRY(code_.device->download(&hang, code_.hang.data(), sizeof(hang)));
  if (hang.kind == tiles::HangReport::kNothing) return std::string();
  REDLINE_TRY(code_.device->clear(code_.hang.data(), sizeof(hang)));
  std::string text = describe_hang(hang, is_persistent);
  if (!is_persistent) return text;
  REDLINE_ASSIGN(const std::string missing, list_missing_events());
  return text + missing;
}

std::string TileRunner::describe_hang(const tiles::HangReport& hang, bool is_persistent) const {
  const std::string text = fmt::format("the step did not end within {} s; ", options_.hang_seconds);
  std::string place;
  const Wait* wait = nullptr;
  if (!is_persistent) {
    place = fmt::format("block {} of {}", hang.block, program_.stages[hang.task].name);
  } else {
    // hang.task counts the tasks of all lists, one list after the other.
    size_t at = hang.task, list = 0;
    while (list + 1 < program_.tasks.size() && at >= program_.tasks[list].size()) at -= program_.tasks[list++].size();
    const Task& task = program_.tasks[list][at];
    place = fmt::format("multiprocessor {}: {} #{}", hang.block, program_.stages[task.stage].name, task.index);
    if (hang.kind == tiles::HangReport::kEvent) wait = &program_.waits[hang.wait];
  }
  if (wait != nullptr)
    return text + fmt::format("{} waits for event {}: {} of {} notifications", place, program_.event_names[wait->event],
                              hang.count - std::min<uint64_t>(hang.count, uint64_t{wait->count} * (epoch_ - 1)),
                              wait->count);
  const auto barrier = static_cast<int>(hang.wait);
  const auto what = barrier >= tiles::Ring::ticket_full() ? std::string("the next tile of a shared stage")
                    : barrier >= tiles::Ring::empty(0)
                        ? fmt::format("the release of stage {} of the ring", barrier - tiles::Ring::empty(0))
                        : fmt::format("the copies to stage {} of the ring", barrier);
  const bool is_loader = hang.count == static_cast<uint64_t>(tiles::kConsumerWarps);
  return text +
         fmt::format("{}: {} waits for {}", place, is_loader ? "the loader" : fmt::format("warp {}", hang.count), what);
}

Result<std::string> TileRunner::list_missing_events() {
  // Events that have not reached their counts, whichever task list waits for them.
  std::string text;
  std::vector<uint64_t> counters(size_t{program_.num_events} * tiles::kCounterStride);
  REDLINE_TRY(code_.device->download(counters.data(), code_.counters.data(), std::ssize(counters) * 8));
  std::set<uint32_t> missing;
  for (const Wait& each : program_.waits)
    if (counters[size_t{each.event} * tiles::kCounterStride] < uint64_t{each.count} * epoch_)
      missing.insert(each.event);
  constexpr size_t kShown = 16;
  size_t shown = 0;
  for (const uint32_t event : missing)
    if (shown++ < kShown)
      text += fmt::format("\n  event {} has counted {}", program_.event_names[event],
                          counters[size_t{event} * tiles::kCounterStride]);
  if (missing.size() > kShown) text += fmt::format("\n  and {} more", missing.size() - kShown);
  return text;
}

}  // namespace redline
