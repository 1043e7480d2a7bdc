// The rows of `redline bench MODEL`: which there are, how each is timed, what each is held against.
#pragma once

#include <functional>
#include <optional>

#include "lab/machine/machine_state.h"
#include "lab/machine/roofline.h"

namespace redline::lab {

enum class BenchPhase : uint8_t { kPrefill, kDecode, kBatch, kStart };
/// "prefill", "decode", "batch", "start".
std::string_view phase_name(BenchPhase phase);

struct BenchRow {
  BenchPhase phase = BenchPhase::kPrefill;
  int64_t tokens = 0;  ///< of one run: prompt tokens, or steps that add one token to each stream
  int64_t depth = 0;   ///< tokens that are in the cache before
  int64_t streams = 1;
  bool is_asked_for = false;  ///< by the user, so that no limit of time leaves it out

  std::vector<double> seconds;  ///< of the runs, sorted
  bool is_cold = false;         ///< the only run was also the first
  std::string skipped;          ///< why nothing was measured; "" when something was
  std::string error;            ///< why the figures are not to be believed
  MachineState before, after;
  std::vector<Engine::OpCost> costs;  ///< of a whole run, by kind of work
  Bound bound;                        ///< of a whole run
  int64_t peak_memory = 0;            ///< of kStart: the process's most resident bytes

  bool is_measured() const { return !seconds.empty(); }
  double median() const;
  /// (slowest - fastest) / median.
  double spread() const;
  double bytes() const;
  double operations() const;
  /// Tokens that a run makes or reads, over all streams, each second.
  double tokens_per_s(double run_seconds) const;
  double share() const { return median() > 0 ? bound.seconds / median() : 0; }
  /// Steps of one run: what "per step" divides by.
  double steps() const { return phase == BenchPhase::kPrefill || phase == BenchPhase::kStart ? 1.0 : double(tokens); }
  bool state_changed() const { return is_measured() && differs(before, after); }
};

/// What the user asked for. Empty lists mean the usual rows; naming one phase measures those named alone.
struct BenchRequest {
  std::vector<int64_t> prefill, decode, depth, batch;
  bool start = false;
};

/// The rows that fit into `context`, shortest work first; `limits` bounds the streams.
/// invalid_argument: a length that was asked for and does not fit, with the flag that mends it.
Result<std::vector<BenchRow>> plan_bench_rows(const BenchRequest& request, int64_t context, int64_t batch_sequences);
/// The most tokens that the rows hold in one sequence when the model has room for them: what to open the engine with.
int64_t wanted_context(const BenchRequest& request, int64_t model_context);

struct BenchTiming {
  std::optional<int64_t> repeat;  ///< runs of each row after one to warm up; nothing: up to 5, as time allows
  double seconds = 120;           ///< for all rows that were not asked for by name
  /// Asked before each run; true ends the bench with Code::cancelled. May be empty.
  std::function<bool()> is_cancelled;
};

/// Ids that touch the whole vocabulary; another `salt` gives others.
std::vector<int32_t> bench_tokens(int64_t count, int64_t vocab_size, int64_t salt);

/// Times every row (but kStart) on `engine`, with other tokens in each run, and fills in its runs, states and costs.
/// `done` is called after each row. cancelled: timing.is_cancelled.
Status measure_rows(Engine& engine, const BenchTiming& timing, MachineSampler& sampler, std::vector<BenchRow>& rows,
                    const std::function<void()>& done);

/// Times fresh processes (redline bench --first-token) on the model in a file that is in the page cache, and takes
/// their peak memory. Costs are those of a prompt of kStartTokens.
inline constexpr int64_t kStartTokens = 32;
Status measure_start(const std::string& path, const std::string& dtype, int threads, const BenchTiming& timing,
                     MachineSampler& sampler, BenchRow& row);
/// What such a process does: opens the model and reads the prompt. The line of JSON that it must print.
Result<std::string> run_first_token(const std::string& path, const EngineOptions& options);

/// Sets every bound from the peaks and marks rows that are faster than theirs: past 2 % where memory bounds and the
/// bytes exceed the caches, 25 % where they may lie in a cache (which has no one bandwidth), at all where arithmetic
/// does. True when there is such a row.
bool judge_rows(const MachinePeaks& peaks, bool exact_f32, std::vector<BenchRow>& rows);

}  // namespace redline::lab
