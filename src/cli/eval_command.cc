// redline eval: perplexity of a model on a text, its distance from another model, and its answers to multiple-choice
// questions.
#include <chrono>

#include "base/conversion_json.h"
#include "base/elapsed.h"
#include "base/mapped_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/json.h"
#include "lab/text/score_text.h"

namespace redline::cli {
namespace {

constexpr int64_t kUsualWindow = 512;

struct EvalArgs {
  std::string model, against;
  std::optional<std::string> text;
  int64_t windows = 0;
  bool multiple_choice = false, json = false;
  EngineArgs engine;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true, .aliases = {"-m", "--model"}});
    v.argument(text, "TEXTFILE", "text to predict; - reads standard input, as does a pipe without TEXTFILE",
               {.optional = true, .names_file = true, .aliases = {"-f", "--file"}});
    v(against, "against", "MODEL",
      "the model that MODEL was made from: adds their KL divergence and how often they agree; its weights are not "
      "converted by --dtype",
      {.names_file = true, .not_with = {"multiple-choice"}});
    v(multiple_choice, "multiple-choice", "", "TEXTFILE holds questions as JSON: question, choices, answer");
    v(windows, "windows", "N", "maximum number of windows, or of questions; 0: all",
      {.letter = 'n', .min = 0, .aliases = {"--chunks"}});
    v(json, "json", "", "print JSON");
    engine.visit(v);
  }
};

Json describe(const EvalArgs& args, const ModelInfo& info) {
  Json json = {{"model", info.path},
               {"types", info.weight_types},
               {"dtype", precision_name(args.engine.values.dtype)},
               {"isa", info.isa},
               {"threads", info.threads}};
  add_conversion(info.conversion, json);
  return json;
}

Status eval_choices(const EvalArgs& args, const TextEngineOptions& options, std::string_view text, Terminal& terminal) {
  REDLINE_ASSIGN(std::vector<lab::Question> questions, lab::read_questions(text).within(*args.text));
  if (args.windows > 0 && args.windows < std::ssize(questions)) questions.resize(static_cast<size_t>(args.windows));
  REDLINE_ASSIGN(const auto engine, open_engine(args.model, options, terminal));
  const auto begin = std::chrono::steady_clock::now();
  const InterruptGuard guard;
  std::optional<Progress> progress(std::in_place, "answering", std::ssize(questions),
                                   ProgressOptions{.unit = "question"});
  auto scored = lab::score_choices(*engine, questions, [&] {
    progress->advance();
    return !InterruptGuard::interrupted();
  });
  progress.reset();
  REDLINE_ASSIGN(const lab::ChoiceScores scores, std::move(scored));
  const double seconds = seconds_since(begin);
  if (args.json) {
    Json json = describe(args, engine->info());
    json.update({{"questions", scores.right.count},
                 {"accuracy", scores.right.mean()},
                 {"accuracy_error", scores.right.error()},
                 {"accuracy_normalized", scores.right_normalized.mean()},
                 {"accuracy_normalized_error", scores.right_normalized.error()},
                 {"chosen", scores.chosen},
                 {"seconds", seconds}});
    return print_json(json, terminal);
  }
  terminal.print("accuracy {:.2f} % +/- {:.2f}, by probability per byte {:.2f} % +/- {:.2f}, {} question{}\n",
                 100 * scores.right.mean(), 100 * scores.right.error(), 100 * scores.right_normalized.mean(),
                 100 * scores.right_normalized.error(), scores.right.count, scores.right.count == 1 ? "" : "s");
  return {};
}

void print_comparison(const lab::TextScores& scores, Terminal& terminal) {
  terminal.print("perplexity of the base model {:.4f} +/- {:.4f}, ratio {:.5f}\n", std::exp(scores.base_nats.mean()),
                 std::exp(scores.base_nats.mean()) * scores.base_nats.error(),
                 std::exp(scores.nats.mean() - scores.base_nats.mean()));
  terminal.print("KL divergence {:.6f} +/- {:.6f} nats; median {:.6f}, 99 % {:.6f}, largest {:.6f}\n",
                 scores.divergence.mean(), scores.divergence.error(), scores.divergence_quantile(0.5),
                 scores.divergence_quantile(0.99), scores.divergence_quantile(1));
  terminal.print("same most likely token {:.3f} % +/- {:.3f}\n", 100 * scores.same_top.mean(),
                 100 * scores.same_top.error());
}

Status run_eval(const EvalArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(TextEngineOptions options, args.engine.options());
  if (options.context == 0 && !args.multiple_choice) options.context = kUsualWindow;
  const int64_t window = options.context;
  if (window < 4 && !args.multiple_choice)
    return invalid_argument("flag --context: a window of {} tokens scores nothing; at least 4", window);
  std::string text;
  if (args.text ? *args.text == "-" : terminal.has_piped_input()) {
    REDLINE_ASSIGN(text, terminal.read_input());
  } else if (args.text) {
    REDLINE_ASSIGN(text, read_text_file(*args.text, int64_t{1} << 30));
  } else {
    return invalid_argument("TEXTFILE is missing: the text to predict, or a pipe that gives it");
  }
  if (args.multiple_choice) return eval_choices(args, options, text, terminal);
  if (!args.against.empty()) {
    REDLINE_ASSIGN(options.runtime, Runtime::open({options.threads, options.trace_file}));
    options.threads = 0;
    options.trace_file.clear();
  }
  REDLINE_ASSIGN(const auto engine, open_engine(args.model, options, terminal));
  std::unique_ptr<TextEngine> base;
  if (!args.against.empty()) {
    // The base model is as it is stored, so that the comparison includes the loss of a conversion.
    if (options.dtype != Precision::kF32) options.dtype = Precision::kAuto;
    REDLINE_ASSIGN(base, open_engine(args.against, options, terminal));
  }
  const ModelInfo& info = engine->info();
  REDLINE_ASSIGN(const std::vector<int32_t> tokens, engine->encode(text));
  REDLINE_ASSIGN(const std::vector<int32_t> before, engine->encode(""));
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t all = count / window, windows = args.windows > 0 ? std::min(args.windows, all) : all;
  if (windows == 0)
    return invalid_argument(
        "the text has {} tokens, one window of {} is the least; give more text or a smaller --context{}", count, window,
        text.starts_with('{') || text.starts_with('[') ? ", or --multiple-choice if these are questions" : "");
  const auto begin = std::chrono::steady_clock::now();
  const InterruptGuard guard;
  std::optional<Progress> progress(std::in_place, "scoring", windows, ProgressOptions{.unit = "window"});
  // Each window is a text of its own.
  const bool has_bos = !before.empty() && tokens[0] == before[0];
  auto scored = lab::score_windows(*engine, base.get(), tokens, {window, windows, has_bos ? before[0] : -1}, [&] {
    progress->advance();
    return !InterruptGuard::interrupted();
  });
  progress.reset();
  REDLINE_ASSIGN(const lab::TextScores scores, std::move(scored));
  const double seconds = seconds_since(begin);
  const double perplexity = std::exp(scores.nats.mean()), speed = static_cast<double>(windows * window) / seconds;
  if (args.json) {
    Json json = describe(args, info);
    json.update({{"text_tokens", count},
                 {"window", window},
                 {"windows", windows},
                 {"scored_tokens", scores.nats.count},
                 {"nats_per_token", scores.nats.mean()},
                 {"nats_per_token_error", scores.nats.error()},
                 {"perplexity", perplexity},
                 {"perplexity_error", perplexity * scores.nats.error()}});
    if (base)
      json["against"] = {{"model", base->info().path},
                         {"perplexity", std::exp(scores.base_nats.mean())},
                         {"perplexity_ratio", std::exp(scores.nats.mean() - scores.base_nats.mean())},
                         {"divergence", scores.divergence.mean()},
                         {"divergence_error", scores.divergence.error()},
                         {"divergence_median", scores.divergence_quantile(0.5)},
                         {"divergence_99", scores.divergence_quantile(0.99)},
                         {"divergence_max", scores.divergence_quantile(1)},
                         {"same_top", scores.same_top.mean()},
                         {"same_top_error", scores.same_top.error()},
                         {"probability_change", scores.probability_change.mean()},
                         {"probability_change_rms", std::sqrt(scores.probability_change.squares /
                                                              static_cast<double>(scores.probability_change.count))}};
    json.update({{"seconds", seconds}, {"tokens_per_s", speed}});
    return print_json(json, terminal);
  }
  terminal.print("perplexity {:.4f} +/- {:.4f} ({:.4f} nats per token), {} tokens in {} window{} of {}\n", perplexity,
                 perplexity * scores.nats.error(), scores.nats.mean(), scores.nats.count, windows,
                 windows == 1 ? "" : "s", window);
  if (base) print_comparison(scores, terminal);
  terminal.note("{:.1f} tokens/s; {} thread{}, {}", speed, info.threads, info.threads == 1 ? "" : "s", info.isa);
  return {};
}

}  // namespace

Command eval_command() {
  return make_command<EvalArgs, run_eval>(
             "eval", "measure how well a model predicts a text",
             "The text is split into non-overlapping windows of --context tokens (default 512), each starting with the "
             "model's "
             "BOS token if it has one. The tokens of the second half of each window are scored, given all tokens "
             "before them "
             "in "
             "the window. Perplexity is exp of the mean of -ln p; the error is one standard error of that mean. This "
             "is the "
             "method of llama.cpp's perplexity tool, as is the KL divergence of --against: the mean over the scored "
             "positions "
             "of "
             "the sum of p ln(p / q), p of the base model.\n"
             "With --multiple-choice the file is a list of questions, or one per line: {\"question\": \"...\", "
             "\"choices\": "
             "[\"...\", \"...\"], \"answer\": 0}. A choice is scored by the probability of its tokens after the "
             "question.",
             {"redline eval model.gguf wiki.test.raw",
              "redline eval model.gguf text.txt --context 2048 --windows 20 --json",
              "redline eval model-q4.gguf text.txt --against model-f16.gguf",
              "redline eval model.gguf questions.jsonl --multiple-choice",
              "redline eval assets/redline-tales - --context 128 --dtype f32 < stories.txt"})
      .in("measure", /*after_name=*/"bench");
}

}  // namespace redline::cli
