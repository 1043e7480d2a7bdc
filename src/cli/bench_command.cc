// redline bench: tokens per second beside what this machine could do at best.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/progress.h"
#include "cli/ceilings_json.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/json.h"
#include "cli/table.h"

namespace redline::cli {
namespace {

struct BenchArgs {
  std::string model;
  std::vector<int64_t> prefill, decode, depth = {0};
  int64_t repeat = 5;
  bool no_check = false, json = false;
  EngineArgs engine;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true});
    v(prefill, "prefill", "N,..", "lengths of prompts", {.min = 1, .shown_default = "512, or what the context holds"});
    v(decode, "decode", "N,..", "numbers of tokens to make one by one",
      {.min = 1, .shown_default = "64, or what the context holds"});
    v(depth, "depth", "N,..", "tokens that are in the cache before", {.min = 0});
    v(repeat, "repeat", "R", "runs of each row after one to warm up", {.letter = 'r', .min = 1, .max = 10000});
    v(no_check, "no-check", "", "measure without checking the answer first");
    v(json, "json", "", "print JSON");
    engine.visit(v);
  }
};

/// Ids that touch the whole vocabulary; the speed does not depend on which they are.
std::vector<int32_t> some_tokens(int64_t count, int64_t vocab_size) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i)
    tokens[static_cast<size_t>(i)] = static_cast<int32_t>((i * 7919 + 13) % vocab_size);
  return tokens;
}

struct AnswerCheck {
  std::string against;
  double relative_error = 0, bound = 0;
};

/// Largest difference over the largest value.
double relative_error(std::span<const float> got, std::span<const float> expected) {
  double difference = 0, largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = std::abs(double{got[i]} - double{expected[i]});
    difference = std::isfinite(d) ? std::max(difference, d) : INFINITY;
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  return largest > 0 ? difference / largest : difference;
}

bool has_block_weights(const ModelInfo& info) {
  for (int t = 0; t < kNumDTypes; ++t) {
    const DTypeInfo& type = dtype_info(static_cast<DType>(t));
    if (type.is_block && info.weight_types.find(fmt::format("{} x", type.name)) != std::string::npos) return true;
  }
  return false;
}

/// What is measured against the interpreter or, where that would take too long, against itself token by token.
Result<AnswerCheck> check_answer(Engine& engine, const EngineOptions& options, const std::string& path) {
  // The interpreter does a few million multiply-adds a second per token: ten seconds at most.
  constexpr int64_t kInterpretedParameters = 30'000'000;
  const ModelInfo& info = engine.info();
  const std::vector<int32_t> tokens = some_tokens(std::min<int64_t>(8, info.context), info.vocab_size);
  REDLINE_ASSIGN(const auto session, engine.new_session());
  REDLINE_ASSIGN(const auto view, session->forward(tokens));
  const std::vector<float> got(view.begin(), view.end());
  AnswerCheck check;
  std::vector<float> expected;
  if (info.parameters <= kInterpretedParameters && !options.use_interpreter) {
    check.against = "interpreter";
    // float32 sums in another order; a cache in f16 rounds keys and values by up to 2^-11; int8 activations round by up
    // to 1/254 of a group's largest value, layer after layer.
    const bool is_exact = options.dtype == ComputeType::kF32;
    check.bound = is_exact ? 2e-4 : has_block_weights(info) ? 0.1 : 5e-3;
    EngineOptions plain = options;
    plain.use_interpreter = true;
    plain.trace_file.clear();
    REDLINE_ASSIGN(const auto reference, Engine::open(path, plain));
    REDLINE_ASSIGN(const auto reference_session, reference->new_session());
    REDLINE_ASSIGN(const auto logits, reference_session->forward(tokens));
    expected.assign(logits.begin(), logits.end());
  } else {
    check.against = "token by token";
    check.bound = 1e-4;
    REDLINE_ASSIGN(const auto other, engine.new_session());
    for (const int32_t& token : tokens) {
      REDLINE_ASSIGN(const auto logits,
                     other->forward(std::span(&token, 1), false, static_cast<int64_t>(tokens.size())));
      expected.assign(logits.begin(), logits.end());
    }
  }
  check.relative_error = relative_error(got, expected);
  if (!(check.relative_error <= check.bound))
    return internal("the answer is wrong: logits differ from {} by {:.2g} of the largest; at most {:.2g} is rounding",
                    check.against, check.relative_error, check.bound);
  return check;
}

struct Row {
  bool is_prefill = true;
  int64_t tokens = 0, depth = 0;
  std::vector<double> seconds;  // of the repeats, sorted
  Engine::StepCost cost;        // of the whole row: what must at least be read and computed
  double bound_seconds = 0;
  bool is_memory_bound = true;

  double tokens_per_s(double s) const { return s > 0 ? static_cast<double>(tokens) / s : 0; }
  double median() const {
    const size_t n = seconds.size();
    return n % 2 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
  }
  double share() const { return median() > 0 ? bound_seconds / median() : 0; }
};

Status fill_cache(Session& session, int64_t depth, const std::vector<int32_t>& tokens) {
  session.truncate(std::min(depth, session.length()));
  const auto from = static_cast<size_t>(session.length());
  if (static_cast<int64_t>(from) < depth)
    REDLINE_TRY(session.forward(std::span(tokens).subspan(from, static_cast<size_t>(depth) - from)));
  return {};
}

/// One run of the row on a cache of `depth` tokens, in seconds.
Result<double> time_row(const Row& row, Session& session, const std::vector<int32_t>& tokens) {
  REDLINE_TRY(fill_cache(session, row.depth, tokens));
  const auto own = std::span(tokens).subspan(static_cast<size_t>(row.depth), static_cast<size_t>(row.tokens));
  const auto begin = std::chrono::steady_clock::now();
  if (row.is_prefill) {
    REDLINE_TRY(session.forward(own));
  } else {
    for (const int32_t& token : own) REDLINE_TRY(session.forward(std::span(&token, 1)));
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Bounds {
  double bytes_per_s = 0, flops_per_s = 0;
  std::string peak;  ///< which of the ceilings bounds the arithmetic
};

Bounds bounds_of(const Ceilings& ceilings, const ModelInfo& info, ComputeType dtype) {
  Bounds b;
  b.peak = "f32";
  if (dtype == ComputeType::kAuto)
    for (const char* type : {"bf16", "f16"})
      if (ceilings.find(type) && ceilings.find(type)->all > ceilings.find(b.peak)->all) b.peak = type;
  if (const Ceiling* read = ceilings.find("read")) b.bytes_per_s = read->all * 1e9;
  if (const Ceiling* peak = ceilings.find(b.peak)) b.flops_per_s = peak->all * 1e9;
  return b;
}

void add_bound(const Engine& engine, const Bounds& bounds, Row& row) {
  const double n = static_cast<double>(row.tokens);
  if (row.is_prefill) {
    row.cost = engine.step_cost(row.tokens, row.depth);
  } else {
    // The cache grows by one token a step, so the step in the middle is the average one.
    const Engine::StepCost step = engine.step_cost(1, row.depth + row.tokens / 2);
    row.cost = {step.bytes * n, step.flops * n};
  }
  const double memory = bounds.bytes_per_s > 0 ? row.cost.bytes / bounds.bytes_per_s : 0;
  const double compute = bounds.flops_per_s > 0 ? row.cost.flops / bounds.flops_per_s : 0;
  row.is_memory_bound = memory >= compute;
  row.bound_seconds = std::max(memory, compute);
}

Json row_json(const Row& row) {
  const double median = row.median(), n = static_cast<double>(row.tokens);
  return {{"phase", row.is_prefill ? "prefill" : "decode"},
          {"tokens", row.tokens},
          {"depth", row.depth},
          {"tokens_per_s", row.tokens_per_s(median)},
          {"tokens_per_s_min", row.tokens_per_s(row.seconds.back())},
          {"tokens_per_s_max", row.tokens_per_s(row.seconds.front())},
          {"repeats", row.seconds.size()},
          {"bytes_per_token", row.cost.bytes / n},
          {"flops_per_token", row.cost.flops / n},
          {"gb_per_s", row.cost.bytes / median / 1e9},
          {"gflop_per_s", row.cost.flops / median / 1e9},
          {"ceiling_share", row.share()},
          {"bound", row.is_memory_bound ? "memory" : "compute"}};
}

Json model_json(const ModelInfo& info) {
  return {{"path", info.path},          {"architecture", info.architecture}, {"format", info.file_format},
          {"types", info.weight_types}, {"parameters", info.parameters},     {"weight_bytes", info.weight_bytes},
          {"context", info.context}};
}

/// The lengths that were asked for, or `usual` cut down to what fits.
Result<std::vector<int64_t>> lengths(const char* flag, const std::vector<int64_t>& asked, int64_t usual, int64_t depth,
                                     int64_t context) {
  if (asked.empty() && depth >= context)
    return invalid_argument("flag --depth: {} leaves no room in the context of {}; raise it with --context", depth,
                            context);
  if (asked.empty()) return std::vector<int64_t>{std::min(usual, context - depth)};
  for (const int64_t n : asked)
    if (n + depth > context)
      return invalid_argument(
          "flag --{}: {} tokens at depth {} are {}, more than the context of {}; raise it with --context", flag, n,
          depth, n + depth, context);
  return asked;
}

Status run_bench(const BenchArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const EngineOptions options, args.engine.options());
  REDLINE_ASSIGN(const std::string path, find_model(args.model));
  REDLINE_ASSIGN(const auto engine, Engine::open(path, options));
  const ModelInfo& info = engine->info();
  std::vector<Row> rows;
  int64_t longest = 0;
  for (const int64_t depth : args.depth) {
    REDLINE_ASSIGN(const auto prefill, lengths("prefill", args.prefill, 512, depth, info.context));
    REDLINE_ASSIGN(const auto decode, lengths("decode", args.decode, 64, depth, info.context));
    // Naming one phase measures that phase alone.
    if (!args.prefill.empty() || args.decode.empty())
      for (const int64_t n : prefill) rows.push_back({true, n, depth, {}, {}});
    if (!args.decode.empty() || args.prefill.empty())
      for (const int64_t n : decode) rows.push_back({false, n, depth, {}, {}});
  }
  for (const Row& row : rows) longest = std::max(longest, row.depth + row.tokens);

  AnswerCheck check;
  if (!args.no_check) {
    REDLINE_ASSIGN(check, check_answer(*engine, options, path));
  }
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  REDLINE_ASSIGN(const Ceilings ceilings,
                 measure_ceilings(*kernels, {.threads = info.threads,
                                             .read_bytes = static_cast<int64_t>(engine->step_cost(1, 0).bytes)}));
  const Bounds bounds = bounds_of(ceilings, info, options.dtype);
  const std::vector<int32_t> tokens = some_tokens(longest, info.vocab_size);
  REDLINE_ASSIGN(const auto session, engine->new_session());
  {
    const InterruptGuard guard;
    Progress progress("bench", static_cast<int64_t>(rows.size()) * (args.repeat + 1));
    for (Row& row : rows) {
      for (int64_t i = 0; i <= args.repeat; ++i) {
        REDLINE_ASSIGN(const double seconds, time_row(row, *session, tokens));
        if (i > 0) row.seconds.push_back(seconds);  // the first run warms up
        progress.advance();
        if (InterruptGuard::interrupted()) return cancelled("interrupted");
      }
      std::sort(row.seconds.begin(), row.seconds.end());
      add_bound(*engine, bounds, row);
    }
  }

  if (args.json) {
    Json json = {{"model", model_json(info)},  {"machine", ceilings_json(ceilings)},
                 {"threads", info.threads},    {"isa", info.isa},
                 {"dtype", args.engine.dtype}, {"compute_ceiling", bounds.peak},
                 {"check", nullptr},           {"rows", Json::array()}};
    if (!args.no_check)
      json["check"] = {{"against", check.against}, {"relative_error", check.relative_error}, {"bound", check.bound}};
    for (const Row& row : rows) json["rows"].push_back(row_json(row));
    return print_json(json, terminal);
  }
  terminal.print("{}: {}, {} parameters, {}; {} thread{}, {}\n", info.path, info.architecture, info.parameters,
                 info.weight_types, info.threads, info.threads == 1 ? "" : "s", info.isa);
  terminal.print("this machine: reads {:.1f} GB/s, {} {:.0f} GOP/s\n\n", bounds.bytes_per_s / 1e9, bounds.peak,
                 bounds.flops_per_s / 1e9);
  Table table({"phase", "tokens", "depth", "tokens/s", "slowest", "fastest", "GB/s", "GFLOP/s", "of ceiling", "bound"},
              {1, 2, 3, 4, 5, 6, 7, 8});
  for (const Row& row : rows) {
    const auto speed = [&](double s) { return fmt::format("{:.1f}", row.tokens_per_s(s)); };
    table.add({row.is_prefill ? "prefill" : "decode", fmt::format("{}", row.tokens), fmt::format("{}", row.depth),
               speed(row.median()), speed(row.seconds.back()), speed(row.seconds.front()),
               fmt::format("{:.2f}", row.cost.bytes / row.median() / 1e9),
               fmt::format("{:.1f}", row.cost.flops / row.median() / 1e9), fmt::format("{:.1f}%", 100 * row.share()),
               row.is_memory_bound ? "memory" : "compute"});
  }
  terminal.write(table.text());
  if (!args.no_check)
    terminal.print("\nchecked against {}: {:.1e} of the largest logit (bound {:.0e})\n", check.against,
                   check.relative_error, check.bound);
  return {};
}

}  // namespace

Command bench_command() {
  return make_command<BenchArgs, run_bench>(
      "bench", "measure tokens per second beside this machine's ceilings",
      "Each row is the median of its repeats. Its ceiling is the time that the machine, measured in the same call, "
      "needs at "
      "least: to read the weights and the cache once per step, or to do the multiply-adds, whichever is longer. The "
      "answer "
      "is checked before anything is measured.",
      {"redline bench assets/redline-tales",
       "redline bench model.gguf --prefill 128,512 --decode 64 --depth 0,2048 --json",
       "redline bench model.gguf --decode 128 --threads 1 --dtype f32"});
}

}  // namespace redline::cli
