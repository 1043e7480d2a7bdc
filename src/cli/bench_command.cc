// redline bench: tokens per second and the share of this machine's ceilings. One function per mode.
#include <algorithm>

#include "base/progress.h"
#include "cli/bench_report.h"
#include "cli/command.h"
#include "cli/image_bench.h"
#include "cli/kernel_bench.h"
#include "cli/network_bench.h"
#include "models/checkpoint.h"
#include "models/random_model.h"
#include "models/random_networks.h"

namespace redline::cli {
namespace {

struct BenchArgs {
  std::string model, random, save, plot;
  std::vector<int64_t> prefill, decode, depth, batch;
  std::optional<int64_t> side;
  std::vector<std::string> lora;
  bool start = false;
  std::optional<int64_t> repeat;
  float time = 120;
  bool no_check = false, first_token = false, json = false;
  EngineArgs engine;
  KernelBenchArgs kernel;

  BenchArgs() { engine.dtypes = {"auto", "f32", "bf16", "q8", "q8_0", "w8a8"}; }  // the last four for image models
  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file, Hugging Face folder, or diffusers folder",
               {.optional = true, .names_file = true});
    v(random, "random", "SHAPE:TYPE",
      "instead of MODEL: a known shape with random weights, such as llama-1b:q4_0, qwen-0.5b:q8_0 or flux-block:bf16");
    v(save, "save", "FILE", "with --random: write the model as GGUF first and measure that file", {.names_file = true});
    v(prefill, "prefill", "N,..", "prompt lengths",
      {.min = 1, .shown_default = "1,8,32,128,512,2048, as far as the context allows"});
    v(decode, "decode", "N,..", "numbers of tokens to generate one by one", {.min = 1, .shown_default = "64"});
    v(depth, "depth", "N,..", "tokens already in the KV cache",
      {.min = 0, .shown_default = "0; for decode also 4096 and 32768"});
    v(batch, "batch", "N,..", "sequences that decode one token each per step",
      {.min = 1, .max = 4096, .shown_default = "2,4,8,16,32,64"});
    v(side, "side", "PIXELS", "image size for a diffusers folder or a network of --random",
      {.min = 16, .max = 8192, .shown_default = "the model's own"});
    v(lora, "lora", "FILE", "LoRA adapter for a diffusers folder, to load and swap", {.names_file = true});
    v(start, "start", "", "time a new process to its first token, and report its peak memory");
    v(repeat, "repeat", "R", "runs of each row, after one warm-up run",
      {.letter = 'r', .min = 1, .max = 10000, .shown_default = "up to 5, as --time allows"});
    v(time, "time", "SECONDS", "time limit for the default rows", {.min = 1, .max = 86400});
    v(no_check, "no-check", "", "skip the correctness check");
    v(plot, "plot", "FILE", "draw a chart, .svg or .html", {.names_file = true});
    v(first_token, "first-token", "",
      "open the model, process 32 tokens, print a line and exit: what --start measures");
    v(json, "json", "", "print JSON");
    engine.visit(v);
    kernel.visit(v);
  }

  BenchRequest request() const { return {prefill, decode, depth, batch, start}; }
};

/// The path of the model that is asked for; a random one is written first where the user wants the file.
Result<std::string> bench_model(const BenchArgs& args, Terminal& terminal) {
  if (args.model.empty() && args.random.empty())
    return invalid_argument("name a MODEL, or a shape with random weights: --random llama-1b:q4_0");
  if (!args.model.empty() && !args.random.empty()) return invalid_argument("give either MODEL or --random, not both");
  if (args.random.empty() && !args.save.empty())
    return invalid_argument("flag --save goes with --random: it writes the random model");
  if (args.random.empty()) return find_model(args.model);
  REDLINE_TRY(parse_random_model(args.random).within("flag --random"));
  const std::string name = is_random_model(args.random) ? args.random : std::string(kRandomPrefix) + args.random;
  if (args.save.empty()) return name;
  terminal.note("writing {}", args.save);
  REDLINE_TRY(save_random_model(name, args.save));
  return args.save;
}

/// What decides how to open a model; 0 where its files do not say.
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

/// Room for the deepest row, and for the others beside it.
void size_cache(const BenchRequest& request, int64_t model_context, EngineOptions& options) {
  if (options.context == 0) options.context = wanted_context(request, model_context);
  constexpr int64_t kBatchTokens = 64 * 64;  // usual rows: up to 64 streams, two pages each
  options.cache_tokens = 2 * options.context + kBatchTokens;
  if (!request.batch.empty()) options.cache_tokens = 0;  // depths and numbers of streams as the user likes
}

/// Measures the start in fresh processes, before this one takes memory for the model.
Status bench_start(const BenchArgs& args, const std::string& path, const CpuKernels& kernels, BenchRow& row) {
  row.phase = BenchPhase::kStart;
  row.tokens = kStartTokens;
  if (is_random_model(path)) {
    row.skipped = "needs a file: add --save FILE.gguf";
    return row.is_asked_for
               ? invalid_argument("flag --start: the time to start is that of a file; add --save FILE.gguf")
               : Status();
  }
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(kernels, args.engine.threads));
  Status measured = measure_start(path, args.engine, {args.repeat, args.time}, sampler, row);
  if (measured.code() == Code::unsupported && !row.is_asked_for) {
    row.skipped = measured.message();
    return {};
  }
  return measured;
}

/// Every row of a model on this machine.
Status bench_model_rows(const BenchArgs& args, Terminal& terminal) {
  REDLINE_TRY(check_plot_name(args.plot));
  REDLINE_ASSIGN(EngineOptions options, args.engine.options());
  REDLINE_ASSIGN(const std::string path, bench_model(args, terminal));
  const BenchRequest request = args.request();
  REDLINE_ASSIGN(const ModelFacts facts, model_facts(path));
  size_cache(request, facts.context, options);
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  const InterruptGuard guard;
  BenchReport report;
  report.dtype = args.engine.dtype;
  report.label = path;

  const bool usual = args.prefill.empty() && args.decode.empty() && args.batch.empty();
  BenchRow start;
  start.is_asked_for = args.start;
  if (args.start || usual) REDLINE_TRY(bench_start(args, path, *kernels, start));

  // The other process's logits come first too: two copies of a large model need not fit.
  std::vector<float> generic;
  std::string why_not;
  const bool is_generic = options.dtype == ComputeType::kF32 && cpu_isa_in_use() == "generic";
  if (is_generic) why_not = "generic float32 kernels are what is measured";
  if (!args.no_check && !options.use_interpreter && !is_generic && facts.parameters > kInterpretedParameters) {
    constexpr double kCheckSeconds = 60;
    auto logits = generic_logits(path, check_tokens(facts.vocab_size, options.context), options.threads, kCheckSeconds);
    if (logits.ok()) generic = std::move(logits).value();
    else why_not = fmt::format("no logits of generic float32 kernels: {}", logits.status().message());
    if (InterruptGuard::interrupted()) return cancelled("interrupted");
  }
  REDLINE_ASSIGN(const auto engine, Engine::open(path, options));
  const ModelInfo& info = engine->info();
  report.model = info;
  REDLINE_ASSIGN(report.rows, plan_bench_rows(request, info.context, engine->batch_limits().sequences));
  if (!args.no_check) {
    REDLINE_ASSIGN(report.check, check_answer(*engine, options, path, generic, why_not));
  }
  const CeilingOptions ceiling_options = {
      .all_sets = true, .threads = info.threads, .read_bytes = static_cast<int64_t>(engine->step_cost(1, 0).bytes)};
  REDLINE_ASSIGN(report.ceilings, measure_ceilings(*kernels, ceiling_options));
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(*kernels, info.threads));
  {
    Progress progress("bench", static_cast<int64_t>(report.rows.size()));
    REDLINE_TRY(measure_rows(*engine, {args.repeat, args.time}, sampler, report.rows, [&] { progress.advance(); }));
  }
  for (BenchRow& row : report.rows) {
    if (row.phase != BenchPhase::kStart) continue;
    start.costs = row.costs;
    row = std::move(start);
    break;
  }
  const bool exact_f32 = options.dtype == ComputeType::kF32;
  if (judge_rows(report.ceilings, exact_f32, report.rows)) {
    // The ceilings were perhaps taken while the machine was slower than in the rows.
    REDLINE_ASSIGN(const Ceilings again, measure_ceilings(*kernels, ceiling_options));
    raise_to(report.ceilings, again);
    judge_rows(report.ceilings, exact_f32, report.rows);
  }
  for (const BenchRow& row : report.rows)
    if (!row.error.empty()) terminal.note("{} {}: {}", phase_name(row.phase), row.tokens, row.error);
  if (!args.plot.empty()) REDLINE_TRY(write_plot(report, args.plot));
  if (args.json) return print_json(bench_json(report), terminal);
  print_bench(report, terminal);
  return {};
}

Status run_bench(const BenchArgs& args, Terminal& terminal) {
  if (!args.kernel.kernel.empty()) return run_kernel_bench(args.kernel, args.engine.threads, args.json, terminal);
  if (is_random_network(args.random))
    return run_network_bench({args.random, args.side.value_or(0), args.engine.threads, args.repeat,
                              static_cast<double>(args.time), !args.no_check, args.json, args.engine.trace},
                             terminal);
  if (!args.model.empty() && args.random.empty()) {
    REDLINE_ASSIGN(const std::string path, find_model(args.model));
    if (is_pipeline(path))
      return run_image_bench({path, args.engine.dtype, args.engine.threads, args.side, args.repeat, args.lora,
                              !args.no_check, args.json, args.engine.trace},
                             terminal);
  }
  if (args.first_token) {
    REDLINE_ASSIGN(const EngineOptions options, args.engine.options());
    REDLINE_ASSIGN(const std::string path, bench_model(args, terminal));
    return run_first_token(path, options, terminal);
  }
  return bench_model_rows(args, terminal);
}

}  // namespace

Command bench_command() {
  return make_command<BenchArgs, run_bench>(
      "bench", "measure tokens per second and the share of this machine's ceilings",
      "Each row is the median of its runs, each with different tokens. Its ceiling is the minimum time this machine, "
      "measured in the same call, needs: for each kind of work in a step, the time to read its weights and cache once "
      "or to do its multiply-adds with the fastest usable instruction, whichever is longer, summed. A row faster than "
      "that is reported as an error. Results are checked before anything is timed: against the interpreter or, from 30 "
      "million parameters on, against generic float32 kernels in another process.\n"
      "Virtual and shared machines vary over time: memory bandwidth, arithmetic throughput and core-to-core latency "
      "are "
      "sampled before and after each row, and rows during which they changed are marked.\n"
      "Without --prefill, --decode, --batch or --start a default set of rows is measured, limited by --time; with one "
      "of them, only the named phases are measured.",
      {"redline bench assets/redline-tales", "redline bench assets/redline-shapes",
       "redline bench --random llama-1b:q4_0 --plot chart.svg",
       "redline bench --random qwen-0.5b:q8_0 --save qwen.gguf --start",
       "redline bench model.gguf --prefill 128,512 --decode 64 --depth 0,2048 --json",
       "redline bench model.gguf --decode 128 --threads 1 --dtype f32"});
}

}  // namespace redline::cli
