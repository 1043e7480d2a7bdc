// redline eval: perplexity of a model on a text.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "base/mapped_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/json.h"

namespace redline::cli {
namespace {

constexpr int64_t kUsualWindow = 512;

struct EvalArgs {
  std::string model;
  std::optional<std::string> text;
  int64_t windows = 0;
  bool json = false;
  EngineArgs engine;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file or Hugging Face folder", {.names_file = true, .aliases = {"-m", "--model"}});
    v.argument(text, "TEXTFILE", "text to predict; - reads standard input, as does a pipe without TEXTFILE",
               {.optional = true, .names_file = true, .aliases = {"-f", "--file"}});
    v(windows, "windows", "N", "maximum number of windows; 0: all", {.letter = 'n', .min = 0, .aliases = {"--chunks"}});
    v(json, "json", "", "print JSON");
    engine.visit(v);
  }
};

/// -log softmax(logits)[id], in float64.
double surprise(std::span<const float> logits, int32_t id) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(double{logit} - largest);
  return std::log(sum) + largest - double{logits[static_cast<size_t>(id)]};
}

/// Sums over the scored tokens. The sum of squares gives the standard error of the mean.
struct Score {
  int64_t tokens = 0;
  double sum = 0, squares = 0;

  double mean() const { return sum / static_cast<double>(tokens); }
  double error() const {
    const double n = static_cast<double>(tokens), variance = squares / n - mean() * mean();
    return tokens > 1 ? std::sqrt(std::max(variance, 0.0) / (n - 1)) : 0;
  }
};

/// Scores the second half of a window, each token given all earlier ones in the window.
Status score_window(Sequence& sequence, std::span<const int32_t> tokens, int64_t vocab_size, int threads,
                    Score& score) {
  const auto half = static_cast<int64_t>(tokens.size()) / 2, scored = static_cast<int64_t>(tokens.size()) - 1 - half;
  sequence.truncate(0);
  REDLINE_TRY(sequence.forward(tokens.first(static_cast<size_t>(half))));
  REDLINE_ASSIGN(const auto logits,
                 sequence.forward(tokens.subspan(static_cast<size_t>(half), static_cast<size_t>(scored)), true));
  std::vector<double> costs(static_cast<size_t>(scored));
  const auto part = [&](int64_t t) {
    for (int64_t i = scored * t / threads; i < scored * (t + 1) / threads; ++i)
      costs[static_cast<size_t>(i)] =
          surprise(std::span(logits).subspan(static_cast<size_t>(i * vocab_size), static_cast<size_t>(vocab_size)),
                   tokens[static_cast<size_t>(half + i + 1)]);
  };
  std::vector<std::thread> helpers;
  for (int t = 1; t < threads; ++t) helpers.emplace_back(part, t);
  part(0);
  for (std::thread& helper : helpers) helper.join();
  for (const double cost : costs) {  // in order: the same digits for any number of threads
    score.sum += cost;
    score.squares += cost * cost;
  }
  score.tokens += scored;
  return {};
}

Status run_eval(const EvalArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(TextEngineOptions options, args.engine.options());
  if (options.context == 0) options.context = kUsualWindow;
  const int64_t window = options.context;
  if (window < 4) return invalid_argument("flag --context: a window of {} tokens scores nothing; at least 4", window);
  std::string text;
  if (args.text ? *args.text == "-" : terminal.has_piped_input()) {
    REDLINE_ASSIGN(text, terminal.read_input());
  } else if (args.text) {
    REDLINE_ASSIGN(text, read_text_file(*args.text, int64_t{1} << 30));
  } else {
    return invalid_argument("TEXTFILE is missing: the text to predict, or a pipe that gives it");
  }
  REDLINE_ASSIGN(const auto engine, open_engine(args.model, options, terminal));
  const ModelInfo& info = engine->info();
  REDLINE_ASSIGN(const std::vector<int32_t> tokens, engine->encode(text));
  REDLINE_ASSIGN(const std::vector<int32_t> before, engine->encode(""));
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t all = count / window, windows = args.windows > 0 ? std::min(args.windows, all) : all;
  if (windows == 0)
    return invalid_argument(
        "the text has {} tokens, one window of {} is the least; give more text or a smaller --context", count, window);
  REDLINE_ASSIGN(const auto sequence, engine->new_sequence());
  Score score;
  const auto begin = std::chrono::steady_clock::now();
  {
    const InterruptGuard guard;
    Progress progress("scoring", windows, {.unit = "window"});
    for (int64_t w = 0; w < windows; ++w) {
      const auto at = tokens.begin() + w * window;
      std::vector<int32_t> ids(at, at + window);
      if (!before.empty() && tokens[0] == before[0]) ids[0] = before[0];  // each window is a separate text
      REDLINE_TRY(score_window(*sequence, ids, info.vocab_size, std::max(1, info.threads), score));
      progress.advance();
      if (InterruptGuard::interrupted()) return cancelled("interrupted after {} of {} windows", w + 1, windows);
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double perplexity = std::exp(score.mean()), speed = static_cast<double>(windows * window) / seconds;
  if (args.json)
    return print_json({{"model", info.path},
                       {"types", info.weight_types},
                       {"dtype", args.engine.dtype},
                       {"isa", info.isa},
                       {"threads", info.threads},
                       {"text_tokens", count},
                       {"window", window},
                       {"windows", windows},
                       {"scored_tokens", score.tokens},
                       {"nats_per_token", score.mean()},
                       {"nats_per_token_error", score.error()},
                       {"perplexity", perplexity},
                       {"perplexity_error", perplexity * score.error()},
                       {"seconds", seconds},
                       {"tokens_per_s", speed}},
                      terminal);
  terminal.print("perplexity {:.4f} +/- {:.4f} ({:.4f} nats per token), {} tokens in {} windows of {}\n", perplexity,
                 perplexity * score.error(), score.mean(), score.tokens, windows, window);
  terminal.note("{:.1f} tokens/s; {} thread{}, {}", speed, info.threads, info.threads == 1 ? "" : "s", info.isa);
  return {};
}

}  // namespace

Command eval_command() {
  return make_command<EvalArgs, run_eval>(
      "eval", "measure the perplexity of a model on a text",
      "The text is split into non-overlapping windows of --context tokens (default 512), each starting with the "
      "model's "
      "BOS token if it has one. The tokens of the second half of each window are scored, given all tokens before them "
      "in "
      "the window. Perplexity is exp of the mean of -ln p; the error is one standard error of that mean. This is the "
      "method of llama.cpp's perplexity tool.",
      {"redline eval model.gguf wiki.test.raw", "redline eval model.gguf text.txt --context 2048 --windows 20 --json",
       "redline eval assets/redline-tales - --context 128 --dtype f32 < stories.txt"});
}

}  // namespace redline::cli
