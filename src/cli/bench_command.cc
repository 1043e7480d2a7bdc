// redline bench: tokens per second and the fraction of this machine's roofline. One function per mode.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/output_file.h"
#include "base/progress.h"
#include "cli/bench_tables.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/file_kind.h"
#include "cli/json.h"
#include "cli/kernel_bench_args.h"
#include "lab/bench/text_bench.h"
#include "lab/random/random_networks.h"
#include "models/files/random_model.h"

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
  bool no_check = false, first_token = false, force = false, json = false;
  EngineArgs engine;
  KernelBenchArgs kernel;
  std::set<std::string> given;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file, Hugging Face folder, or diffusers folder",
               {.optional = true, .names_file = true, .aliases = {"-m", "--model"}});
    v(random, "random", "SHAPE:TYPE",
      "instead of MODEL: a known shape with random weights, such as llama-1b:q4_0, qwen-0.5b:q8_0 or flux-block:bf16");
    v(save, "save", "FILE", "with --random: write the model as GGUF first and measure that file",
      {.names_file = true, .needs = {"random"}});
    v(force, "force", "", "with --save: replace the file if it exists", {.needs = {"save"}});
    v(prefill, "prefill", "N,..", "prompt lengths",
      {.min = 1,
       .shown_default = "1,8,32,128,512,2048, as far as the context allows",
       .aliases = {"-p", "--n-prompt"}});
    v(decode, "decode", "N,..", "numbers of tokens to generate one by one",
      {.min = 1, .shown_default = "64", .aliases = {"-n", "--n-gen"}});
    v(depth, "depth", "N,..", "tokens already in the KV cache",
      {.min = 0, .shown_default = "0; for decode also 4096 and 32768", .aliases = {"-d", "--n-depth"}});
    v(batch, "batch", "N,..", "sequences that decode one token each per step",
      {.min = 1, .max = 4096, .shown_default = "2,4,8,16,32,64"});
    v(side, "side", "PIXELS", "image size for a diffusers folder or a network of --random",
      {.min = 16, .max = 8192, .shown_default = "the model's own"});
    v(lora, "lora", "FILE", "LoRA adapter for a diffusers folder, to load and swap", {.names_file = true});
    v(start, "start", "", "time a new process to its first token, and report its peak memory");
    v(repeat, "repeat", "R",
      "runs of each row, after one warm-up run; with 1 or 2 the ceilings are measured briefly too",
      {.letter = 'r',
       .min = 1,
       .max = 10000,
       .shown_default = "up to 5, as --time allows",
       .aliases = {"--repetitions"}});
    v(time, "time", "SECONDS", "time limit for the default rows", {.min = 1, .max = 86400});
    v(no_check, "no-check", "", "skip the correctness check");
    v(plot, "plot", "FILE", "draw a chart, .svg or .html", {.names_file = true});
    v(first_token, "first-token", "",
      "open the model, process 32 tokens, print a line and exit: what --start measures");
    v(json, "json", "", "print JSON");
    engine.visit(v);
    kernel.visit(v);
  }

  lab::BenchRequest rows() const { return {prefill, decode, depth, batch, start}; }
};

/// The path of the requested model; a random one is written to a file first if the user asked for that.
Result<std::string> bench_model(const BenchArgs& args, Terminal& terminal) {
  if (args.model.empty() && args.random.empty())
    return invalid_argument("name a MODEL, or a shape with random weights: --random llama-1b:q4_0");
  if (!args.model.empty() && !args.random.empty()) return invalid_argument("give either MODEL or --random, not both");
  if (args.random.empty()) return find_model(args.model);
  REDLINE_TRY(lab::check_random_model(args.random).within("flag --random"));
  const std::string name = is_random_model(args.random) ? args.random : std::string(kRandomPrefix) + args.random;
  if (args.save.empty()) return name;
  std::error_code error;
  if (std::filesystem::exists(args.save, error) && !args.force)
    return invalid_argument("{}: the file exists; --force replaces it", args.save);
  REDLINE_TRY(prepare_output(args.save));
  terminal.note("writing {}", args.save);
  REDLINE_TRY(save_random_model(name, args.save));
  return args.save;
}

/// The flags that each kind of bench reads; any other one that is given is an error.
using FlagNames = std::set<std::string_view>;
const FlagNames kTextFlags = {"MODEL",    "random",      "save",       "force",  "prefill", "decode",
                              "depth",    "batch",       "start",      "repeat", "time",    "plot",
                              "no-check", "first-token", "gpu-layers", "json",   "dtype",   "threads",
                              "context",  "interpreter", "trace",      "device"};
const FlagNames kImageFlags = {"MODEL", "side",  "lora",    "repeat", "no-check",
                               "json",  "dtype", "threads", "trace",  "device"};
const FlagNames kNetworkFlags = {"random", "side", "repeat", "time", "no-check", "json", "threads", "trace", "device"};
const FlagNames kKernelFlags = {"kernel", "shape",  "type",    "isa",     "record", "baseline",
                                "rows",   "cached", "seconds", "threads", "json"};

Status expect_flags(const BenchArgs& args, const FlagNames& known, std::string_view of_what) {
  for (const std::string& name : args.given)
    if (!known.contains(name))
      return invalid_argument("{}{} has no effect in a bench of {}", name == "MODEL" ? "" : "flag --", name, of_what);
  return {};
}

/// Draws a progress bar; Ctrl-C cancels the bench.
class BenchProgressBar {
 public:
  BenchProgressBar() { bar_.emplace("opening the model and measuring the machine", 0); }
  bool reach(int64_t done, int64_t total) {
    if (total > 0 && !has_rows_) {
      has_rows_ = true;
      bar_.emplace("measuring", total, ProgressOptions{.unit = "row"});
    }
    if (has_rows_ && done > shown_) bar_->advance(done - shown_);
    shown_ = std::max(shown_, done);
    return !InterruptGuard::interrupted();
  }
  lab::BenchProgress callback() {
    return [this](int64_t done, int64_t total) { return reach(done, total); };
  }

 private:
  const InterruptGuard guard_;
  std::optional<Progress> bar_;
  bool has_rows_ = false;
  int64_t shown_ = 0;
};

/// Runs `bench(request)` with a progress bar and returns its report.
template <class Request, class Bench>
auto run_with_progress(Request& request, Bench bench) {
  BenchProgressBar bar;
  request.on_progress = bar.callback();
  return bench(request);
}

Status bench_text(const BenchArgs& args, Terminal& terminal) {
  REDLINE_TRY(expect_flags(args, kTextFlags, "a language model"));
  REDLINE_TRY(lab::check_plot_name(args.plot));
  lab::TextBenchRequest request;
  REDLINE_ASSIGN(request.engine, args.engine.options());
  REDLINE_ASSIGN(request.path, bench_model(args, terminal));
  request.dtype = precision_name(args.engine.values.dtype);
  request.rows = args.rows();
  request.repeat = args.repeat;
  request.seconds = double{args.time};
  request.check = !args.no_check;
  TextBenchTable table(terminal);
  if (!args.json)
    request.on_row = [&](const lab::BenchReport& report, const lab::BenchRow& row) { table.add(report, row); };
  Result<lab::BenchReport> made = run_with_progress(request, lab::run_text_bench);
  if (!made.ok()) return explain_kind(made.status(), request.path, ModelUse::kText);
  const lab::BenchReport report = std::move(made).value();
  note_long_context(report.model, terminal);
  for (const lab::BenchRow& row : report.rows)
    if (!row.error.empty()) terminal.note("{} {}: {}", lab::phase_name(row.phase), row.tokens, row.error);
  if (args.json) REDLINE_TRY(print_json(lab::bench_json(report), terminal));
  else table.finish(report);
  if (!args.plot.empty()) REDLINE_TRY(lab::write_plot(report, args.plot));
  return report.failure;
}

Status bench_image(const BenchArgs& args, const std::string& path, Terminal& terminal) {
  REDLINE_TRY(expect_flags(args, kImageFlags, "an image model"));
  std::vector<std::string> adapters;
  for (const std::string& given : args.lora) {
    const std::string& file = adapters.emplace_back(image_adapter_file(given));
    if (const Result<int64_t> rank = adapter_rank(file); !rank.ok())
      return explain_kind(rank.status(), file, ModelUse::kImageAdapter);
  }
  ImageBenchTable table(terminal);
  lab::ImageBenchRequest request = {.folder = path,
                                    .dtype = std::string(precision_name(args.engine.values.dtype)),
                                    .device = args.engine.values.device,
                                    .threads = args.engine.values.threads,
                                    .side = args.side,
                                    .repeat = args.repeat,
                                    .lora = std::move(adapters),
                                    .check = !args.no_check,
                                    .trace = args.engine.values.trace_file,
                                    .on_progress = {},
                                    .on_row = {}};
  if (!args.json)
    request.on_row = [&](const lab::ImageBenchReport& report, const lab::ImageSizeRow& row) { table.add(report, row); };
  REDLINE_ASSIGN(const lab::ImageBenchReport report, run_with_progress(request, lab::run_image_bench));
  if (args.json) REDLINE_TRY(print_json(lab::image_bench_json(report), terminal));
  else table.finish(report, !args.no_check);
  return report.failure;
}

Status bench_network(const BenchArgs& args, Terminal& terminal) {
  REDLINE_TRY(expect_flags(args, kNetworkFlags, "a network with random weights"));
  lab::NetworkBenchRequest request = {.network = args.random,
                                      .side = args.side.value_or(0),
                                      .device = args.engine.values.device,
                                      .threads = args.engine.values.threads,
                                      .repeat = args.repeat,
                                      .seconds = double{args.time},
                                      .check = !args.no_check,
                                      .trace = args.engine.values.trace_file,
                                      .on_progress = {}};
  REDLINE_ASSIGN(const lab::NetworkBenchReport report, run_with_progress(request, lab::run_network_bench));
  if (args.json) return print_json(lab::network_bench_json(report), terminal);
  print_network_bench(report, terminal);
  return {};
}

Status bench_kernel(const BenchArgs& args, Terminal& terminal) {
  REDLINE_TRY(expect_flags(args, kKernelFlags, "one kernel"));
  if (args.kernel.kernel == "help") {
    print_kernel_kinds(terminal);
    return {};
  }
  if (!args.kernel.record.empty()) REDLINE_TRY(create_folder(args.kernel.record + "/traces"));
  REDLINE_ASSIGN(lab::KernelBenchRequest request, args.kernel.request(args.engine.values.threads));
  KernelBenchTable table(terminal);
  if (!args.json) request.on_row = [&](const lab::KernelBenchRow& row) { table.add(row); };
  REDLINE_ASSIGN(const lab::KernelBenchReport report, run_with_progress(request, lab::run_kernel_bench));
  Json traces = Json::array();
  for (const lab::KernelBenchRow& row : report.rows) traces.push_back(lab::kernel_trace_json(row, report.peaks));
  if (args.json) REDLINE_TRY(print_json(traces, terminal));
  else table.finish(report);
  if (!args.kernel.record.empty())
    for (const Json& trace : traces) REDLINE_TRY(lab::append_trace(args.kernel.record, trace));
  REDLINE_TRY(report.failure);
  Status status = report.status();
  for (const lab::KernelBenchRow& row : report.rows)
    if (!status.ok() && !row.verdict.why.empty())
      terminal.note("{} of {} rows: {}", lab::kernel_entry_name(row.workload), row.workload.rows, row.verdict.why);
  return status;
}

Status run_bench(const BenchArgs& args, Terminal& terminal) {
  if (!args.kernel.kernel.empty()) return bench_kernel(args, terminal);
  if (lab::is_random_network(args.random)) return bench_network(args, terminal);
  if (!args.model.empty() && args.random.empty()) {
    REDLINE_ASSIGN(const std::string path, find_model(args.model));
    if (lab::is_pipeline(path)) return bench_image(args, path, terminal);
  }
  if (args.first_token) {
    REDLINE_ASSIGN(const TextEngineOptions options, args.engine.options());
    REDLINE_ASSIGN(const std::string path, bench_model(args, terminal));
    const Result<std::string> line = lab::run_first_token(path, options);
    if (!line.ok()) return explain_kind(line.status(), path, ModelUse::kText);
    terminal.write(*line + "\n");
    return {};
  }
  return bench_text(args, terminal);
}

}  // namespace

Command bench_command() {
  return make_command<BenchArgs, run_bench>(
             "bench", "measure speed, as a share of this machine's ceilings",
             "Each row is the median of its runs, each with different tokens. Its ceiling is the minimum time that "
             "this machine needs, from bandwidth and arithmetic measured in the same call: for each kind of work in a "
             "step, the time to read its weights and cache once or to do its multiply-adds with the fastest usable "
             "instruction, whichever is longer, summed over all kinds. A row that is faster than its ceiling is "
             "reported as an error. Results are checked before anything is timed: against the interpreter or, from 30 "
             "million parameters on, against generic float32 kernels in another process.\nVirtual and shared machines "
             "vary over time: memory bandwidth, arithmetic throughput and core-to-core latency are sampled before and "
             "after each row, and rows during which they changed are marked.\nWithout --prefill, --decode, --batch or "
             "--start a default set of rows is measured, limited by --time; with one of them, only the named phases "
             "are measured.\n`redline bench serve URL|MODEL` measures a server as its clients see it, `redline bench "
             "tokenizer MODEL FILE` a tokenizer, `redline bench device` a GPU and its kernels; they have their own "
             "--help.",
             {"redline bench assets/redline-tales", "redline bench assets/redline-shapes",
              "redline bench --random llama-1b:q4_0 --plot chart.svg",
              "redline bench --random qwen-0.5b:q8_0 --save qwen.gguf --start",
              "redline bench model.gguf --prefill 128,512 --decode 64 --depth 0,2048 --json",
              "redline bench model.gguf --decode 128 --threads 1 --dtype f32"})
      .in("measure");
}

}  // namespace redline::cli
