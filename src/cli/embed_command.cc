// redline embed: embeddings of texts, or their relevance for a query.
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <numeric>

#include "base/elapsed.h"
#include "base/mapped_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/device_option.h"
#include "cli/file_kind.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/option_rows.h"
#include "formats/npy.h"
#include "redline/embedding.h"

namespace redline::cli {
namespace {

struct EmbedArgs {
  std::string model;
  EmbeddingOptions engine;
  std::vector<std::string> texts;
  std::optional<std::string> out, prompt, query;
  int64_t dimensions = 0;
  bool no_normalize = false, truncate = false, json = false;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "Hugging Face or sentence-transformers folder, or GGUF file",
               {.names_file = true, .aliases = {"-m", "--model"}});
    v.argument(texts, "TEXT|FILE", "texts, or files with one text per line; - or a pipe reads standard input",
               {.optional = true, .names_file = true, .aliases = {"-p", "--file", "-f"}});
    v(out, "out", "FILE", "write float32 [texts, dimensions] as .npy", {.letter = 'o', .names_file = true});
    v(query, "query", "TEXT", "print the relevance of each text for this one, the highest first",
      {.not_with = {"out", "dimensions", "no-normalize", "prompt"}});
    v(prompt, "prompt", "NAME", "put this prompt of the model before each text",
      {.shown_default = "the model's own", .aliases = {"--prompt-name"}});
    v(no_normalize, "no-normalize", "", "do not scale vectors to length 1");
    v(dimensions, "dimensions", "N", "keep the first N elements and normalize again",
      {.min = 1, .max = 1 << 20, .shown_default = "all"});
    v(truncate, "truncate", "", "cut texts that are too long; without this flag they are an error");
    add_option_rows(v, engine, is_for_every_command);
    v(json, "json", "", "print JSON");
  }
};

void add_lines(std::string_view text, std::vector<std::string>& lines) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.emplace_back(line);
  }
}

Result<std::vector<std::string>> read_texts(const EmbedArgs& args, Terminal& terminal) {
  std::vector<std::string> texts;
  std::vector<std::string> given = args.texts;
  if (given.empty() && terminal.has_piped_input()) given = {"-"};
  for (const std::string& text : given) {
    std::error_code ignored;
    if (text == "-") {
      REDLINE_ASSIGN(const std::string input, terminal.read_input());
      add_lines(input, texts);
    } else if (std::filesystem::is_regular_file(text, ignored)) {
      REDLINE_ASSIGN(const std::string content, read_text_file(text));
      add_lines(content, texts);
    } else {
      texts.push_back(text);
    }
  }
  if (texts.empty()) return invalid_argument("there are no texts; give them as TEXT, in a FILE, or on standard input");
  return texts;
}

Result<std::unique_ptr<EmbeddingEngine>> open_model(const EmbedArgs& args) {
  REDLINE_TRY(check_reference(args.engine.use_interpreter, args.engine.device));
  REDLINE_ASSIGN(const std::string path, find_model(args.model));
  std::optional<Progress> loading(std::in_place, "loading " + short_name(path), 0);
  auto engine = EmbeddingEngine::open(path, args.engine);
  loading.reset();
  if (!engine.ok()) return explain_kind(engine.status(), path, ModelUse::kText);
  return engine;
}

struct Times {
  double load_ms = 0, embed_ms = 0;
};

class Stopwatch {
 public:
  double ms() const { return ms_since(begin_); }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Status print_ranking(EmbeddingEngine& engine, const EmbedArgs& args, std::vector<std::string> texts, Times times,
                     Terminal& terminal) {
  const RankRequest request = {*args.query, std::move(texts), args.truncate};
  const Stopwatch watch;
  REDLINE_ASSIGN(const Ranking ranking, engine.rank(request));
  times.embed_ms = watch.ms();
  std::vector<size_t> order(ranking.scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranking.scores[a] > ranking.scores[b]; });
  if (args.json) {
    Json results = Json::array();
    for (const size_t i : order)
      results.push_back({{"index", i}, {"score", ranking.scores[i]}, {"text", request.documents[i]}});
    return print_json({{"model", engine.info().path},
                       {"query", request.query},
                       {"results", std::move(results)},
                       {"tokens", ranking.tokens},
                       {"truncated", ranking.truncated},
                       {"load_ms", times.load_ms},
                       {"embed_ms", times.embed_ms}},
                      terminal);
  }
  for (const size_t i : order)
    if (!terminal.print("{:8.5f}  {}\n", ranking.scores[i], request.documents[i])) break;
  return {};
}

Status print_embeddings(const EmbeddingInfo& info, const EmbedArgs& args, const Embeddings& e, const Times& times,
                        Terminal& terminal) {
  const auto row = [&](int64_t i) {
    return std::span(e.values).subspan(static_cast<size_t>(i * e.dimensions), static_cast<size_t>(e.dimensions));
  };
  if (args.out) REDLINE_TRY(write_npy(*args.out, std::array{e.count, e.dimensions}, e.values));
  if (args.json) {
    Json json = {{"model", info.path},
                 {"count", e.count},
                 {"dimensions", e.dimensions},
                 {"pooling", pooling_name(info.pooling)},
                 {"normalized", info.normalizes && !args.no_normalize},
                 {"tokens", e.tokens},
                 {"truncated", e.truncated},
                 {"load_ms", times.load_ms},
                 {"embed_ms", times.embed_ms}};
    if (args.out) json["out"] = *args.out;
    else {
      Json rows = Json::array();
      for (int64_t i = 0; i < e.count; ++i) rows.push_back(std::vector<float>(row(i).begin(), row(i).end()));
      json["embeddings"] = std::move(rows);
    }
    return print_json(json, terminal, args.out ? 2 : -1);
  }
  if (args.out) {
    terminal.note("{}: float32 [{}, {}]", *args.out, e.count, e.dimensions);
    return {};
  }
  for (int64_t i = 0; i < e.count; ++i)
    if (!terminal.print("{}\n", fmt::join(row(i), " "))) break;
  return {};
}

Status run_embed(const EmbedArgs& args, Terminal& terminal) {
  if (args.out) REDLINE_TRY(prepare_output(*args.out));
  REDLINE_ASSIGN(std::vector<std::string> texts, read_texts(args, terminal));
  Times times;
  Stopwatch watch;
  REDLINE_ASSIGN(const auto engine, open_model(args));
  times.load_ms = watch.ms();
  if (args.query) return print_ranking(*engine, args, std::move(texts), times, terminal);
  EmbedRequest request;
  request.texts = std::move(texts);
  request.prompt_name = args.prompt;
  request.truncate = args.truncate;
  request.dimensions = args.dimensions;
  if (args.no_normalize) request.normalize = false;
  watch = {};
  REDLINE_ASSIGN(const Embeddings embeddings, engine->embed(request));
  times.embed_ms = watch.ms();
  if (embeddings.truncated > 0)
    terminal.note("redline: {} of {} texts were cut to {} tokens", embeddings.truncated, embeddings.count,
                  engine->info().max_length);
  return print_embeddings(engine->info(), args, embeddings, times, terminal);
}

}  // namespace

Command embed_command() {
  return make_command<EmbedArgs, run_embed>(
             "embed", "turn texts into vectors, or rank them for a query",
             "Pooling, prompts, lengths and normalization are read from the model's files. With --query, a "
             "cross-encoder computes the scores; with other models they are cosines of the vectors.",
             {"redline embed all-MiniLM-L6-v2 \"A man is eating food.\" --json",
              "redline embed bge-small-en-v1.5 lines.txt --out vectors.npy",
              "redline embed ms-marco-MiniLM-L6-v2 documents.txt --query \"How many people live in Berlin?\""})
      .in("generate", /*after_name=*/"image");
}

}  // namespace redline::cli
