// The rows of `redline bench MODEL`: planning, timing, and comparison with their bounds.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "lab/machine/machine_state.h"
#include "lab/machine/roofline.h"

namespace redline::lab {

enum class BenchPhase : uint8_t { kPrefill, kDecode, kBatch, kStart };
/// "prefill", "decode", "batch", "start".
std::string_view phase_name(BenchPhase phase);

struct BenchRow {
  BenchPhase phase = BenchPhase::kPrefill;
  int64_t tokens = 0;  ///< of one run: prompt tokens, or steps that add one token to each stream
  int64_t depth = 0;   ///< tokens already in the cache
  int64_t streams = 1;
  bool is_asked_for = false;  ///< requested by the user: never skipped for lack of time

  std::vector<double> seconds;  ///< of the runs, sorted
  bool is_cold = false;         ///< the only run was also the first
  std::string skipped;          ///< why nothing was measured; "" if something was
  std::string error;            ///< why the figures are invalid; "" if they are valid
  MachineState before, after;
  std::vector<EngineProfile::OpCost> costs;  ///< of a whole run, by kind of work
  Bound bound;                               ///< of a whole run
  int64_t peak_memory = 0;                   ///< of kStart: peak resident bytes of the process

  bool is_measured() const { return !seconds.empty(); }
  double median() const;
  /// (slowest - fastest) / median.
  double spread() const;
  double bytes() const;
  double operations() const;
  /// Tokens per second of a run, over all streams.
  double tokens_per_s(double run_seconds) const;
  double share() const { return median() > 0 ? bound.seconds / median() : 0; }
  /// Steps of one run: the divisor of "per step".
  double steps() const { return phase == BenchPhase::kPrefill || phase == BenchPhase::kStart ? 1.0 : double(tokens); }
  bool state_changed() const { return is_measured() && differs(before, after); }
};

/// The rows to measure. Empty lists: the default rows; once one phase is named, only named phases are measured.
struct BenchRequest {
  std::vector<int64_t> prefill, decode, depth, batch;
  bool start = false;
};

/// The rows that fit into `context`, in order of cost; `batch_sequences` limits the streams.
/// invalid_argument: a requested length does not fit; the message names the flag to change.
Result<std::vector<BenchRow>> plan_bench_rows(const BenchRequest& request, int64_t context, int64_t batch_sequences);
/// The context to open the engine with: the longest sequence of any row, at most `model_context`.
int64_t wanted_context(const BenchRequest& request, int64_t model_context);

struct BenchTiming {
  std::optional<int64_t> repeat;  ///< runs of each row after one warm-up; nullopt: up to 5, as time allows
  double seconds = 120;           ///< for all rows that were not requested explicitly
  /// Called before each run; true cancels the bench with Code::cancelled. May be empty.
  std::function<bool()> is_cancelled;
};

/// Token ids spread over the whole vocabulary; different for each `salt`.
std::vector<int32_t> bench_tokens(int64_t count, int64_t vocab_size, int64_t salt);

/// Times every row except kStart on `engine`, with new tokens in each run, and fills in its runs, states and costs.
/// `done` is called after each row, with its index. cancelled: timing.is_cancelled.
Status measure_rows(TextEngine& engine, const BenchTiming& timing, MachineSampler& sampler, std::vector<BenchRow>& rows,
                    const std::function<void(size_t)>& done);

/// Times new processes (redline bench --first-token) whose model file is in the page cache, and records their peak
/// memory. Costs are those of a prompt of kStartTokens.
inline constexpr int64_t kStartTokens = 32;
Status measure_start(const std::string& path, const std::string& dtype, int threads, const BenchTiming& timing,
                     MachineSampler& sampler, BenchRow& row);
/// The work of that process: opens the model and runs the prompt. Returns the line of JSON that it prints.
Result<std::string> run_first_token(const std::string& path, const TextEngineOptions& options);

/// Sets every bound from the peaks and marks rows that are faster than their bound. Tolerance: 2 % for memory-bound
/// rows larger than the caches, 25 % for rows that may fit a cache, none for compute-bound rows. True when a row was
/// marked.
bool judge_rows(const MachinePeaks& peaks, bool exact_f32, std::span<BenchRow> rows);

}  // namespace redline::lab
