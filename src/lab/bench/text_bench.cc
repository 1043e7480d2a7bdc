#include "lab/bench/text_bench.h"

#include <algorithm>

#include "machine/peaks_cache.h"
#include "models/checkpoint/checkpoint.h"
#include "models/checkpoint/precision.h"
#include "models/files/random_model.h"

namespace redline::lab {
namespace {

/// Numbers that are needed before a model is opened; 0: its files do not state them.
struct ModelFacts {
  int64_t context = 0, vocab_size = 0, parameters = 0;
};
Result<ModelFacts> model_facts(const std::string& path) {
  ModelFacts facts;
  if (is_random_model(path)) {
    REDLINE_ASSIGN(const RandomModelSpec spec, parse_random_model(path));
    return ModelFacts{spec.shape->context, spec.shape->vocab_size, count_parameters(spec)};
  }
  REDLINE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(path));
  const auto integer = [&](const char* key) {
    const auto at = checkpoint.config.find(key);
    return at != checkpoint.config.end() && at->is_number_integer() ? std::max<int64_t>(0, at->get<int64_t>()) : 0;
  };
  facts.context = integer("max_position_embeddings");
  facts.vocab_size = integer("vocab_size");
  for (const auto& [name, source] : checkpoint.tensors) facts.parameters += source.view.num_elements();
  return facts;
}

/// Sizes the cache for the deepest row and for the others.
void size_cache(const BenchRequest& request, int64_t model_context, TextEngineOptions& options) {
  if (options.context == 0) options.context = wanted_context(request, model_context);
  constexpr int64_t kBatchTokens = 64 * 64;  // default rows: up to 64 streams, two pages each
  options.cache_tokens = 2 * options.context + kBatchTokens;
  if (!request.batch.empty()) options.cache_tokens = 0;  // the user chooses depths and numbers of streams
}

/// Measures the start in new processes, before this one allocates memory for the model.
Status bench_start(const TextBenchRequest& request, const BenchTiming& timing, const CpuKernels& kernels,
                   BenchRow& row) {
  row.phase = BenchPhase::kStart;
  row.tokens = kStartTokens;
  if (is_random_model(request.path)) {
    row.skipped = "needs a file: add --save FILE.gguf";
    return row.is_asked_for
               ? invalid_argument("flag --start: the time to start is that of a file; add --save FILE.gguf")
               : Status();
  }
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(kernels, request.engine.threads));
  Status measured = measure_start(request.path, request.dtype, request.engine.threads, timing, sampler, row);
  if (measured.code() == Code::unsupported && !row.is_asked_for) {
    row.skipped = measured.message();
    return {};
  }
  return measured;
}

}  // namespace

Result<BenchReport> run_text_bench(const TextBenchRequest& request) {
  TextEngineOptions options = request.engine;
  REDLINE_ASSIGN(const ModelFacts facts, model_facts(request.path));
  size_cache(request.rows, facts.context, options);
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  BenchReport report;
  report.dtype = request.dtype;
  report.label = request.path;
  int64_t done = 0;
  const auto is_cancelled = [&] { return request.on_progress && !request.on_progress(done, std::ssize(report.rows)); };
  const BenchTiming timing = {.repeat = request.repeat, .seconds = request.seconds, .is_cancelled = is_cancelled};

  const bool is_usual = request.rows.prefill.empty() && request.rows.decode.empty() && request.rows.batch.empty();
  BenchRow start;
  start.is_asked_for = request.rows.start;
  if (request.rows.start || is_usual) REDLINE_TRY(bench_start(request, timing, *kernels, start));

  // This runs before the engine opens, because memory may not hold two copies of a large model.
  std::vector<float> generic;
  std::string why_not;
  const bool is_generic = options.dtype == Precision::kF32 && cpu_isa_in_use() == "generic";
  if (is_generic) why_not = "the measured kernels are the generic float32 kernels themselves";
  if (request.check && !options.use_interpreter && !is_generic && facts.parameters > kInterpretedParameters) {
    constexpr double kCheckSeconds = 60;
    REDLINE_ASSIGN(const DeviceChoice device, choose_engine_device(options.device, false));
    const Precision precision = resolve_precision(options.dtype, *kernels, device);
    auto logits = generic_logits(request.path, check_tokens(facts.vocab_size, options.context),
                                 precision_name(precision == Precision::kAuto ? Precision::kF32 : precision),
                                 options.threads, kCheckSeconds, is_cancelled);
    if (logits.ok()) generic = std::move(logits).value();
    else why_not = fmt::format("generic float32 kernels gave no logits: {}", logits.status().message());
    if (is_cancelled()) return cancelled("interrupted");
  }
  REDLINE_ASSIGN(const auto engine, TextEngine::open(request.path, options));
  const ModelInfo& info = engine->info();
  report.model = info;
  REDLINE_ASSIGN(report.rows, plan_bench_rows(request.rows, info.context, engine->batch_limits().sequences));
  if (request.check) {
    REDLINE_ASSIGN(report.check, check_answer(*engine, options, request.path, generic, why_not));
  }
  const PeakOptions peak_options = {.quick = quick_peaks_do(request.repeat, request.seconds),
                                    .all_sets = true,
                                    .threads = info.threads,
                                    .read_bytes = static_cast<int64_t>(profile_of(*engine).step_cost(1, 0).bytes)};
  REDLINE_ASSIGN(report.peaks, measure_peaks(*kernels, peak_options));
  if (!peak_options.quick) store_peaks(report.peaks, peak_options);
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(*kernels, info.threads));
  const bool exact_f32 = options.dtype == Precision::kF32;
  const auto finish_row = [&](size_t i) {
    ++done;
    judge_rows(report.peaks, exact_f32, {&report.rows[i], 1});
    if (request.on_row) request.on_row(report, report.rows[i]);
  };
  report.failure = measure_rows(*engine, timing, sampler, report.rows, finish_row);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    if (report.rows[i].phase != BenchPhase::kStart) continue;
    start.costs = profile_of(*engine).op_costs(kStartTokens, 0);
    report.rows[i] = std::move(start);
    finish_row(i);
    break;
  }
  if (!report.failure.ok()) {
    std::erase_if(report.rows, [](const BenchRow& row) { return !row.is_measured() && row.skipped.empty(); });
    if (report.rows.empty()) return report.failure;
    return report;
  }
  if (judge_rows(report.peaks, exact_f32, report.rows)) {
    // The machine may have been slower while its peaks were measured.
    REDLINE_ASSIGN(const MachinePeaks again, measure_peaks(*kernels, peak_options));
    raise_to(report.peaks, again);
    if (!peak_options.quick) store_peaks(report.peaks, peak_options);
    judge_rows(report.peaks, exact_f32, report.rows);
    report.is_judged_again = true;
  }
  return report;
}

}  // namespace redline::lab
