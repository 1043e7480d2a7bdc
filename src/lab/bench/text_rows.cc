#include "lab/bench/text_rows.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

#include "base/elapsed.h"
#include "base/topology.h"
#include "lab/bench/self_process.h"
#include "lab/json.h"
#include "models/files/random_model.h"

namespace redline::lab {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int64_t kUsualPrefill[] = {1, 8, 32, 128, 512, 2048};
constexpr int64_t kUsualDecode = 64;
constexpr int64_t kUsualDepths[] = {0, 4096, 32768};
constexpr int64_t kUsualBatch[] = {2, 4, 8, 16, 32, 64};
constexpr int64_t kBatchSteps = 16;
constexpr int64_t kUsualRepeats = 5;

bool is_usual(const BenchRequest& r) { return r.prefill.empty() && r.decode.empty() && r.batch.empty() && !r.start; }

Status check_fits(const char* flag, int64_t tokens, int64_t depth, int64_t context) {
  if (tokens + depth <= context) return {};
  return invalid_argument(
      "flag --{}: {} tokens at depth {} are {}, more than the context of {}; raise it with --context", flag, tokens,
      depth, tokens + depth, context);
}

/// Runs rows on one engine. Keeps the sequence whose cache they share, and the rate from which the duration of a row is
/// estimated.
class RowTimer {
 public:
  RowTimer(TextEngine& engine, const BenchTiming& timing, MachineSampler& sampler)
      : engine_(engine), timing_(timing), sampler_(sampler) {}

  Status begin() {
    REDLINE_ASSIGN(sequence_, engine_.new_sequence());
    return {};
  }

  /// Measures a row, or skips it if it takes too long. `rows_left`: number of this row and the following ones, which
  /// share the remaining time.
  Status measure(BenchRow& row, size_t rows_left) {
    const double left = timing_.seconds - seconds_since(begin_);
    const double slice = std::max(0.0, left) / static_cast<double>(rows_left);
    row.costs = costs_of(row);
    REDLINE_ASSIGN(const double expected, expected_seconds(row));
    // A row may take more than its slice, since most take less.
    if (!row.is_asked_for && expected > std::max(3 * slice, 0.5 * left)) {
      row.skipped = fmt::format("about {:.0f} s; name it with --{}{}, or raise --time", expected, flag_of(row),
                                row.depth > 0 ? fmt::format(" and --depth {}", row.depth) : "");
      return {};
    }
    REDLINE_TRY(fill(row));
    REDLINE_ASSIGN(row.before, sampler_.sample());
    REDLINE_ASSIGN(const double first, run_once(row));
    int64_t repeats = timing_.repeat.value_or(kUsualRepeats);
    if (!timing_.repeat)
      repeats = std::clamp<int64_t>(static_cast<int64_t>((slice - first) / std::max(first, 1e-6)), 0, repeats);
    for (int64_t i = 0; i < repeats; ++i) {
      REDLINE_ASSIGN(const double seconds, run_once(row));
      row.seconds.push_back(seconds);
    }
    row.is_cold = repeats == 0;
    if (row.is_cold) row.seconds.push_back(first);
    REDLINE_ASSIGN(row.after, sampler_.sample());
    std::sort(row.seconds.begin(), row.seconds.end());
    if (row.phase == BenchPhase::kPrefill)
      operations_per_s_ = std::max(operations_per_s_, row.operations() / row.median());
    if (row.phase == BenchPhase::kBatch) streams_.clear();
    return {};
  }

 private:
  static std::string flag_of(const BenchRow& row) {
    if (row.phase == BenchPhase::kBatch) return fmt::format("batch {}", row.streams);
    return fmt::format("{} {}", phase_name(row.phase), row.tokens);
  }

  std::vector<EngineProfile::OpCost> costs_of(const BenchRow& row) const {
    if (row.phase == BenchPhase::kPrefill) return profile_of(engine_).op_costs(row.tokens, row.depth);
    // The cache grows by one token per step, so the middle step is the average one.
    std::vector<EngineProfile::OpCost> costs = profile_of(engine_).op_costs(1, row.depth + row.tokens / 2, row.streams);
    for (EngineProfile::OpCost& op : costs) {
      op.bytes *= static_cast<double>(row.tokens);
      op.flops *= static_cast<double>(row.tokens);
    }
    return costs;
  }

  /// Returns the estimated time to fill the cache to the row's depth and to run it once, from the prompts measured so
  /// far.
  Result<double> expected_seconds(const BenchRow& row) {
    const int64_t missing = row.depth - sequence_->length();
    double operations = row.phase == BenchPhase::kPrefill ? row.operations() : 0;
    if (missing > 0 && row.phase != BenchPhase::kBatch)
      operations += profile_of(engine_).step_cost(missing, sequence_->length()).flops;
    if (operations == 0) return 0.0;
    if (operations_per_s_ == 0) {  // nothing is measured yet, so a short prompt is
      const int64_t size = std::min<int64_t>(16, engine_.info().context);
      sequence_->truncate(0);
      const std::vector<int32_t> tokens = bench_tokens(size, engine_.info().vocab_size, 1);
      const Clock::time_point begin = Clock::now();
      REDLINE_TRY(sequence_->forward(tokens));
      operations_per_s_ = profile_of(engine_).step_cost(size, 0).flops / seconds_since(begin);
    }
    return operations / operations_per_s_;
  }

  /// Fills the cache to the row's depth. At depth 0 there is nothing to fill.
  Status fill(const BenchRow& row) {
    if (row.phase == BenchPhase::kBatch) {
      streams_.clear();
      for (int64_t s = 0; s < row.streams; ++s) {
        REDLINE_ASSIGN(auto sequence, engine_.new_sequence());
        streams_.push_back(std::move(sequence));
        REDLINE_TRY(extend(*streams_.back(), row.depth, s + 2));
      }
      return {};
    }
    return extend(*sequence_, row.depth, 0);
  }

  Status extend(Sequence& sequence, int64_t depth, int64_t salt) {
    sequence.truncate(std::min(depth, sequence.length()));
    const std::vector<int32_t> tokens = bench_tokens(depth, engine_.info().vocab_size, salt);
    constexpr int64_t kPiece = 512;  // number of tokens between checks for cancellation
    while (sequence.length() < depth) {
      const int64_t from = sequence.length(), size = std::min(kPiece, depth - from);
      REDLINE_TRY(sequence.append(std::span(tokens).subspan(static_cast<size_t>(from), static_cast<size_t>(size)), {}));
      if (timing_.is_cancelled && timing_.is_cancelled()) return cancelled("interrupted");
    }
    return {};
  }

  /// Runs the row once on a cache of its depth, with tokens that no earlier run used. Returns the seconds.
  Result<double> run_once(const BenchRow& row) {
    if (timing_.is_cancelled && timing_.is_cancelled()) return cancelled("interrupted");
    const int64_t vocab = engine_.info().vocab_size;
    ++salt_;
    if (row.phase == BenchPhase::kBatch) {
      const std::vector<int32_t> tokens = bench_tokens(row.streams * row.tokens, vocab, salt_);
      std::vector<BatchEntry> batch(streams_.size());
      logits_.resize(batch.size() * static_cast<size_t>(vocab));
      for (size_t s = 0; s < streams_.size(); ++s)
        REDLINE_TRY(extend(*streams_[s], row.depth, static_cast<int64_t>(s) + 2));
      const Clock::time_point begin = Clock::now();
      for (int64_t step = 0; step < row.tokens; ++step) {
        for (size_t s = 0; s < batch.size(); ++s) {
          batch[s] = {};
          batch[s].sequence = streams_[s].get();
          batch[s].tokens = std::span(tokens).subspan(static_cast<size_t>(step) * batch.size() + s, 1);
          batch[s].logits = std::span(logits_).subspan(s * static_cast<size_t>(vocab), static_cast<size_t>(vocab));
        }
        REDLINE_TRY(engine_.run_batch(batch));
      }
      return seconds_since(begin);
    }
    REDLINE_TRY(extend(*sequence_, row.depth, 0));  // drops the tokens that the last run appended
    const std::vector<int32_t> tokens = bench_tokens(row.tokens, vocab, salt_);
    logits_.resize(static_cast<size_t>(vocab));
    const Clock::time_point begin = Clock::now();
    if (row.phase == BenchPhase::kPrefill) {
      REDLINE_TRY(sequence_->append(tokens, logits_));
    } else {
      for (const int32_t& token : tokens) REDLINE_TRY(sequence_->append(std::span(&token, 1), logits_));
    }
    return seconds_since(begin);
  }

  TextEngine& engine_;
  const BenchTiming& timing_;
  MachineSampler& sampler_;
  std::unique_ptr<Sequence> sequence_;
  std::vector<std::unique_ptr<Sequence>> streams_;
  std::vector<float> logits_;
  const Clock::time_point begin_ = Clock::now();
  double operations_per_s_ = 0;  // operations per second of prompts, as measured so far
  int64_t salt_ = 100;
};

/// Returns the peak resident memory of this process as reported by the system; 0 if unavailable.
int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6) * 1024;
  return 0;
}

}  // namespace

std::string_view phase_name(BenchPhase phase) {
  static constexpr std::string_view kNames[] = {"prefill", "decode", "batch", "start"};
  return kNames[static_cast<size_t>(phase)];
}

double BenchRow::median() const {
  const size_t n = seconds.size();
  if (n == 0) return 0;
  return n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
}
double BenchRow::spread() const { return median() > 0 ? (seconds.back() - seconds.front()) / median() : 0; }
double BenchRow::bytes() const {
  double sum = 0;
  for (const EngineProfile::OpCost& op : costs) sum += op.bytes;
  return sum;
}
double BenchRow::operations() const {
  double sum = 0;
  for (const EngineProfile::OpCost& op : costs) sum += op.flops;
  return sum;
}
double BenchRow::tokens_per_s(double run_seconds) const {
  return run_seconds > 0 ? static_cast<double>(tokens * streams) / run_seconds : 0;
}

std::vector<int32_t> bench_tokens(int64_t count, int64_t vocab_size, int64_t salt) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    tokens[static_cast<size_t>(i)] = static_cast<int32_t>((i * 7919 + salt * 104729 + 13) % vocab_size);
  return tokens;
}

namespace {

/// Returns the depths in increasing order, so that a row's cache is reused by the next.
std::vector<int64_t> depths_of(const BenchRequest& r) {
  std::vector<int64_t> depths = r.depth;
  if (depths.empty()) depths = {0};
  if (r.depth.empty() && is_usual(r)) depths.assign(std::begin(kUsualDepths), std::end(kUsualDepths));
  std::sort(depths.begin(), depths.end());
  return depths;
}

}  // namespace

int64_t wanted_context(const BenchRequest& r, int64_t model_context) {
  int64_t most = 2 * kBatchSteps + kStartTokens;
  const bool usual = is_usual(r);
  for (const int64_t depth : depths_of(r)) {
    for (const int64_t n : r.prefill) most = std::max(most, depth + n);
    for (const int64_t n : r.decode) most = std::max(most, depth + n);
    if (!r.batch.empty()) most = std::max(most, depth + kBatchSteps);
    if (usual && (depth + kUsualDecode <= model_context || !r.depth.empty()))
      most = std::max(most, depth + kUsualDecode);
    for (const int64_t n : kUsualPrefill)
      if (usual && (depth == 0 || !r.depth.empty()) && depth + n <= model_context) most = std::max(most, depth + n);
  }
  return model_context > 0 ? std::min(most, model_context) : most;
}

Result<std::vector<BenchRow>> plan_bench_rows(const BenchRequest& r, int64_t context, int64_t batch_sequences) {
  std::vector<BenchRow> rows;
  const bool usual = is_usual(r), asked_depth = !r.depth.empty();
  const auto add = [&](BenchPhase phase, int64_t tokens, int64_t depth, int64_t streams, bool asked) {
    BenchRow row;
    row.phase = phase;
    row.tokens = tokens;
    row.depth = depth;
    row.streams = streams;
    row.is_asked_for = asked;
    rows.push_back(std::move(row));
  };
  const std::vector<int64_t> depths = depths_of(r);
  for (const int64_t depth : depths) {
    if (asked_depth && depth >= context)
      return invalid_argument("flag --depth: {} leaves no room in the context of {}; raise it with --context", depth,
                              context);
    const bool here = asked_depth || depth == 0;
    for (const int64_t n : r.prefill) {
      REDLINE_TRY(check_fits("prefill", n, depth, context));
      add(BenchPhase::kPrefill, n, depth, 1, true);
    }
    if (usual && here) {
      for (const int64_t n : kUsualPrefill)
        if (n + depth <= context) add(BenchPhase::kPrefill, n, depth, 1, false);
    }
    for (const int64_t n : r.decode) {
      REDLINE_TRY(check_fits("decode", n, depth, context));
      add(BenchPhase::kDecode, n, depth, 1, true);
    }
    if (usual) {
      const int64_t n = std::min(kUsualDecode, context - depth);
      if (n > 0 && (asked_depth || n == kUsualDecode || depth == 0)) add(BenchPhase::kDecode, n, depth, 1, asked_depth);
    }
  }
  if (usual || !r.batch.empty()) {
    const std::vector<int64_t> streams =
        usual ? std::vector<int64_t>(std::begin(kUsualBatch), std::end(kUsualBatch)) : r.batch;
    for (const int64_t depth : usual ? std::vector<int64_t>{0} : depths) {
      for (const int64_t s : streams) {
        if (!usual && s > batch_sequences)
          return invalid_argument("flag --batch: {} streams are more than the {} that one step takes", s,
                                  batch_sequences);
        if (!usual) REDLINE_TRY(check_fits("batch", kBatchSteps, depth, context));
        if (s <= batch_sequences && kBatchSteps + depth <= context)
          add(BenchPhase::kBatch, kBatchSteps, depth, s, !usual);
      }
    }
  }
  if (usual || r.start) add(BenchPhase::kStart, kStartTokens, 0, 1, r.start);
  return rows;
}

Status measure_rows(TextEngine& engine, const BenchTiming& timing, MachineSampler& sampler, std::vector<BenchRow>& rows,
                    const std::function<void(size_t)>& done) {
  RowTimer timer(engine, timing, sampler);
  REDLINE_TRY(timer.begin());
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].phase == BenchPhase::kStart) {
      rows[i].costs = profile_of(engine).op_costs(kStartTokens, 0);
      continue;
    }
    REDLINE_TRY(timer.measure(rows[i], rows.size() - i));
    done(i);
  }
  return {};
}

Status measure_start(const std::string& path, const std::string& dtype, int threads, const BenchTiming& timing,
                     MachineSampler& sampler, BenchRow& row) {
  std::vector<std::string> arguments = {"bench", path, "--first-token", "--dtype", dtype};
  if (threads > 0) arguments.insert(arguments.end(), {"--threads", std::to_string(threads)});
  REDLINE_ASSIGN(row.before, sampler.sample());
  const Clock::time_point begin = Clock::now();
  // One extra run first: it loads the file into the page cache.
  for (int64_t i = 0; i <= timing.repeat.value_or(kUsualRepeats); ++i) {
    // A default row leaves most of the time to the others.
    if (i > 1 && !timing.repeat && !row.is_asked_for && seconds_since(begin) > timing.seconds / 8) break;
    REDLINE_ASSIGN(const SelfRun run, run_self(arguments, {}, 600, timing.is_cancelled));
    const Json line = Json::parse(run.out, nullptr, false);
    if (!line.is_object() || !line.contains("peak_memory_bytes"))
      return internal("the fresh process printed no JSON: {}", run.out.substr(0, 200));
    if (i == 0) continue;
    row.seconds.push_back(run.first_line_seconds);
    row.peak_memory = std::max(row.peak_memory, line.value("peak_memory_bytes", int64_t{0}));
  }
  REDLINE_ASSIGN(row.after, sampler.sample());
  std::sort(row.seconds.begin(), row.seconds.end());
  return {};
}

Result<std::string> run_first_token(const std::string& path, const TextEngineOptions& options) {
  REDLINE_ASSIGN(const auto engine, TextEngine::open(path, options));
  REDLINE_ASSIGN(const auto sequence, engine->new_sequence());
  const int64_t size = std::min(kStartTokens, engine->info().context);
  REDLINE_ASSIGN(const auto logits, sequence->forward(bench_tokens(size, engine->info().vocab_size, 0)));
  const auto best = std::max_element(logits.begin(), logits.end());
  return to_line(Json{
      {"first_token", best - logits.begin()}, {"prompt_tokens", size}, {"peak_memory_bytes", peak_resident_bytes()}});
}

bool judge_rows(const MachinePeaks& peaks, bool exact_f32, std::span<BenchRow> rows) {
  const Roofline roofline(peaks, exact_f32);
  const int64_t cache_bytes = cache_sizes().largest();
  bool is_any = false;
  for (BenchRow& row : rows) {
    row.bound = roofline.bound_of(row.costs);
    row.error.clear();
    const bool may_be_cached = row.bytes() / row.steps() < 2.0 * static_cast<double>(cache_bytes);
    const double most = !row.bound.is_memory ? 1.0 : may_be_cached ? 1.25 : 1.02;
    if (!row.is_measured() || row.share() <= most) continue;
    row.error = fmt::format("faster than its bound ({:.0f} % of {}): the ceiling or the timing is wrong",
                            100 * row.share(), row.bound.by);
    is_any = true;
  }
  return is_any;
}

}  // namespace redline::lab
