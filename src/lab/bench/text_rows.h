// Plans and times the rows of `redline bench MODEL`, and compares them with their bounds.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "machine/machine_state.h"
#include "machine/roofline.h"

namespace redline::lab {

enum class BenchPhase : uint8_t { kPrefill, kDecode, kBatch, kStart };
/// Returns "prefill", "decode", "batch" or "start".
std::string_view phase_name(BenchPhase phase);

struct BenchRow {
  BenchPhase phase = BenchPhase::kPrefill;
  int64_t tokens = 0;  ///< per run: prompt tokens, or steps that add one token to each stream
  int64_t depth = 0;   ///< tokens already in the cache
  int64_t streams = 1;
  bool is_asked_for = false;  ///< the user has requested the row, so it is never skipped for lack of time

  std::vector<double> seconds;  ///< times of the runs, sorted
  bool is_cold = false;         ///< the only run was the first one, without a warm-up
  std::string skipped;          ///< why the row was not measured; "": it was
  std::string error;            ///< why the figures are invalid; "": they are valid
  MachineState before, after;
  std::vector<EngineProfile::OpCost> costs;  ///< costs of a whole run, by kind of work
  Bound bound;                               ///< bound of a whole run
  int64_t peak_memory = 0;                   ///< peak resident bytes of the process, for kStart

  bool is_measured() const { return !seconds.empty(); }
  double median() const;
  /// Returns (slowest - fastest) / median.
  double spread() const;
  double bytes() const;
  double operations() const;
  /// Returns the tokens per second of a run, over all streams.
  double tokens_per_s(double run_seconds) const;
  double share() const { return median() > 0 ? bound.seconds / median() : 0; }
  /// Returns the steps of one run, the divisor for figures per step.
  double steps() const { return phase == BenchPhase::kPrefill || phase == BenchPhase::kStart ? 1.0 : double(tokens); }
  bool state_changed() const { return is_measured() && differs(before, after); }
};

/// The rows to measure. If all lists are empty, the default rows are measured; otherwise only the named phases.
struct BenchRequest {
  std::vector<int64_t> prefill, decode, depth, batch;
  bool start = false;
};

/// Returns the rows that fit into `context`, in order of cost; `batch_sequences` limits the streams.
/// invalid_argument: a requested length does not fit; the message names the flag to change.
Result<std::vector<BenchRow>> plan_bench_rows(const BenchRequest& request, int64_t context, int64_t batch_sequences);
/// Returns the context to open the engine with: the longest sequence of any row, at most `model_context`.
int64_t wanted_context(const BenchRequest& request, int64_t model_context);

struct BenchTiming {
  std::optional<int64_t> repeat;  ///< runs of each row after one warm-up; nullopt: up to 5, as time allows
  double seconds = 120;           ///< time for all rows that were not requested explicitly
  /// Called before each run; true cancels the bench with Code::cancelled. May be empty.
  std::function<bool()> is_cancelled;
};

/// Returns token ids spread over the whole vocabulary, different for each `salt`.
std::vector<int32_t> bench_tokens(int64_t count, int64_t vocab_size, int64_t salt);

/// Times every row except kStart on `engine`, with new tokens in each run, and fills in its runs, states and costs.
/// Calls `done` after each row with its index. cancelled: timing.is_cancelled returned true.
Status measure_rows(TextEngine& engine, const BenchTiming& timing, MachineSampler& sampler, std::vector<BenchRow>& rows,
                    const std::function<void(size_t)>& done);

/// Number of prompt tokens of the kStart row. measure_start() times new processes (redline bench --first-token) whose
/// model file is in the page cache, and records their peak memory.
inline constexpr int64_t kStartTokens = 32;
Status measure_start(const std::string& path, const std::string& dtype, int threads, const BenchTiming& timing,
                     MachineSampler& sampler, BenchRow& row);
/// Does the work of such a process: opens the model and runs the prompt. Returns the line of JSON that the process
/// prints.
Result<std::string> run_first_token(const std::string& path, const TextEngineOptions& options);

/// Sets every bound from the peaks and marks rows that are faster than their bound. Tolerance: 2 % for memory-bound
/// rows larger than the caches, 25 % for rows that may fit a cache, none for compute-bound rows. Returns true if a row
/// was marked.
bool judge_rows(const MachinePeaks& peaks, bool exact_f32, std::span<BenchRow> rows);

}  // namespace redline::lab
