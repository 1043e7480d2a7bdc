// redline bench serve: the speed of a server as its clients see it.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <optional>

#include "base/output_file.h"
#include "base/progress.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/table.h"
#include "lab/random/random_adapter.h"
#include "lab/serve/load.h"
#include "server/app.h"

namespace redline::cli {
namespace {

struct BenchServeArgs {
  std::vector<std::string> targets, adapters;
  std::string model_name, api_key, plot, save_adapters;
  std::vector<int64_t> streams = {1, 4, 16, 64};
  std::vector<int64_t> prompt = {16, 128};
  std::vector<int64_t> rate;
  int64_t shared_prefix = 0, max_tokens = 64, requests = 0, seed = 1, turns = 1;
  int64_t random_adapters = 0, adapter_rank = 16;
  bool json = false, without_http = false;
  DraftingEngineArgs engine;

  void visit(OptionList& v) {
    v.argument(
        targets, "URL|MODEL",
        "[NAME=]http://HOST:PORT of any server with OpenAI's API, or a model to serve and measure; several take turns",
        {.names_file = true, .aliases = {"-m", "--model"}});
    v(streams, "streams", "N,..",
      "closed loop: number of concurrent requests; each stream sends its next request when it has its answer",
      {.min = 1, .max = 4096});
    v(rate, "rate", "R,..", "open loop instead: requests per second, Poisson arrivals", {.min = 1, .max = 100000});
    v(requests, "requests", "N", "number of requests of a row",
      {.min = 1, .max = 1000000, .shown_default = "4 per stream, at least 8"});
    v(prompt, "prompt-tokens", "MIN,MAX",
      "approximate minimum and maximum number of tokens of a prompt; lengths are spread evenly",
      {.min = 1, .max = 1 << 20});
    v(shared_prefix, "shared-prefix", "N", "all prompts of a row begin with the same new text of about N tokens",
      {.min = 0, .max = 1 << 20});
    v(max_tokens, "max-tokens", "N", "tokens to generate", {.letter = 'n', .min = 2, .max = 1 << 20});
    v(turns, "turns", "N", "number of requests of a conversation; each contains all earlier turns",
      {.min = 1, .max = 1000});
    v(adapters, "adapter", "NAME[=PATH]",
      "a model name that the requests use in turn with the others; with a path, an adapter that a MODEL loads");
    v(random_adapters, "random-adapters", "N",
      "measure each load also with N LoRA adapters, which the requests use in turn, by number (the field lora of "
      "llama.cpp's server); a MODEL gets random adapters, a server at a URL must have loaded its own",
      {.min = 0, .max = 1024});
    v(adapter_rank, "adapter-rank", "N", "rank of the random adapters", {.min = 1, .max = 1024});
    v(save_adapters, "save-adapters", "FOLDER", "write the random adapters to this folder, as GGUF files for llama.cpp",
      {.names_file = true, .needs = {"random-adapters"}});
    v(without_http, "without-http", "",
      "measure each load also on the engine of a MODEL without a server; the difference is the cost of the server");
    v(plot, "plot", "FILE", "draw a chart, .svg", {.names_file = true});
    v(model_name, "served-model-name", "NAME", "the model's name for the requests to a URL");
    v(api_key, "api-key", "KEY", "key for the requests to a URL");
    v(seed, "seed", "S", "seed of texts, lengths and arrivals", {.letter = 's', .min = 0});
    v(json, "json", "", "print JSON");
    engine.visit(v);
  }
};

/// A server in this process. Its members are destroyed in reverse order, so the sockets are closed first.
struct OwnServer {
  std::shared_ptr<server::ServedModel> served;
  std::unique_ptr<server::App> app;
  std::unique_ptr<server::HttpServer> http;
};

/// A server to measure.
struct Measured {
  std::string label;
  lab::ServeTarget target;
  OwnServer own;  ///< the server, if the target is a model
};

/// Splits "NAME=PATH" at the sign; the second part of "NAME" is "".
std::pair<std::string, std::string> name_and_rest(const std::string& text) {
  const size_t sign = text.find('=');
  return {text.substr(0, sign), sign == std::string::npos ? "" : text.substr(sign + 1)};
}

/// A temporary folder, removed with its contents.
class AdapterFolder {
 public:
  AdapterFolder() = default;
  AdapterFolder(const AdapterFolder&) = delete;
  AdapterFolder& operator=(const AdapterFolder&) = delete;
  ~AdapterFolder() {
    std::error_code error;
    if (is_temporary_) std::filesystem::remove_all(path_, error);
  }
  Status open(const std::string& path) {
    path_ = path;
    if (!path.empty()) return create_folder(path);
    std::error_code error;
    std::string pattern = (std::filesystem::temp_directory_path(error) / "redline_adapters_XXXXXX").string();
    is_temporary_ = !error && ::mkdtemp(pattern.data()) != nullptr;
    path_ = pattern;
    return is_temporary_ ? Status() : io("no room for temporary files; set TMPDIR, or --save-adapters");
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool is_temporary_ = false;
};

/// Converts numbers of tokens to numbers of words. The ratio depends on the tokenizer.
struct LoadWords {
  double tokens_per_word = 1;
  int64_t of(int64_t tokens) const {
    return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) / tokens_per_word));
  }
};

Result<OwnServer> serve_model(const BenchServeArgs& args, const std::string& model, int64_t max_streams,
                              Terminal& terminal) {
  REDLINE_ASSIGN(TextEngineOptions options, args.engine.options());
  options.max_sequences = std::clamp<int64_t>(max_streams, 1, 256);
  options.max_slowdown = kServedSlowdown;
  for (const std::string& text : args.adapters)
    if (const std::string path = name_and_rest(text).second; !path.empty()) {
      REDLINE_ASSIGN(const int64_t rank, text_adapter_rank(path));
      options.max_adapter_rank = std::max(options.max_adapter_rank, rank);
    }
  if (args.random_adapters > 0) options.max_adapter_rank = std::max(options.max_adapter_rank, args.adapter_rank);
  REDLINE_ASSIGN(auto engine, open_engine(model, options, terminal));
  OwnServer own;
  own.app = std::make_unique<server::App>(server::AppOptions{});
  constexpr int64_t kMaxWaiting = 1000000;
  auto served = std::make_shared<server::ServedModel>("model", std::move(engine), kMaxWaiting);
  for (const std::string& text : args.adapters)
    if (const auto [name, path] = name_and_rest(text); !path.empty()) REDLINE_TRY(served->load_adapter(name, path));
  if (args.random_adapters > 0) {
    if (!args.adapters.empty()) return invalid_argument("flags --adapter and --random-adapters exclude each other");
    AdapterFolder folder;
    REDLINE_TRY(folder.open(args.save_adapters));
    REDLINE_ASSIGN(const std::string path, find_model(model));
    REDLINE_ASSIGN(const auto files,
                   lab::save_random_adapters(path, args.random_adapters, args.adapter_rank, folder.path()));
    for (const std::string& file : files)
      REDLINE_TRY(served->load_adapter(std::filesystem::path(file).stem().string(), file));
  }
  own.served = served;
  own.app->models().add(std::move(served));
  own.app->set_ready();
  REDLINE_ASSIGN(own.http, server::HttpServer::listen({.port = 0}, *own.app));
  return own;
}

/// Opens a target, which is given as "TARGET" or "NAME=TARGET".
Result<Measured> open_target(const BenchServeArgs& args, const std::string& text, Terminal& terminal) {
  Measured measured;
  measured.label = text;
  std::string target = text;
  const size_t sign = text.find('=');
  if (sign != std::string::npos && text.find('/') > sign && !std::filesystem::exists(text)) {
    measured.label = text.substr(0, sign);
    target = text.substr(sign + 1);
  }
  if (target.find("://") != std::string::npos) {
    REDLINE_ASSIGN(measured.target, lab::parse_serve_url(target));
    measured.target.model = args.model_name;
    measured.target.api_key = args.api_key;
    return measured;
  }
  const int64_t most = *std::max_element(args.streams.begin(), args.streams.end());
  REDLINE_ASSIGN(measured.own, serve_model(args, target, most, terminal));
  measured.target.host = "127.0.0.1";
  measured.target.port = std::to_string(measured.own.http->port());
  return measured;
}

/// The ways to send a load.
enum class Way : uint8_t { kPlain, kAdapters, kWithoutHttp };

struct ServeRow {
  const Measured* server = nullptr;
  int64_t streams = 0;
  double rate = 0;
  Way way = Way::kPlain;
  lab::LoadSummary summary;
  std::optional<double> share;  ///< ratio of the tokens/s to those of the same server's plain row
};

lab::LoadOptions load_of(const BenchServeArgs& args, const LoadWords& words, int64_t streams, double rate,
                         uint64_t salt) {
  lab::LoadOptions load;
  load.streams = streams;
  load.rate = rate;
  load.max_tokens = args.max_tokens;
  load.seed = static_cast<uint64_t>(args.seed);
  load.turns = args.turns;
  for (const std::string& text : args.adapters) load.models.push_back(name_and_rest(text).first);
  const int64_t count = args.requests > 0 ? args.requests : std::max<int64_t>(8, 4 * streams);
  const uint64_t seed = load.seed + salt * 1000003;
  const std::string prefix = args.shared_prefix > 0 ? lab::load_text(words.of(args.shared_prefix), ~seed) + " " : "";
  const int64_t min = args.prompt.front(), max = std::max(min, args.prompt.back());
  for (int64_t i = 0; i < count; ++i) {
    // In every row the lengths are spread evenly over the range, in an order that looks random.
    const int64_t tokens = min + (max - min) * ((i * 7919) % count) / std::max<int64_t>(count - 1, 1);
    load.prompts.push_back(prefix + lab::load_text(words.of(tokens), seed + static_cast<uint64_t>(i) + 1));
  }
  return load;
}

/// Sends a few requests, because the first ones of a server are slower, and measures how many tokens a word has.
Result<LoadWords> warm_up(const BenchServeArgs& args, const Measured& server) {
  constexpr int64_t kWords = 32;
  lab::LoadOptions load;
  load.max_tokens = args.max_tokens;
  load.seed = static_cast<uint64_t>(args.seed);
  for (const std::string& text : args.adapters) load.models.push_back(name_and_rest(text).first);
  for (uint64_t i = 0; i < std::max<uint64_t>(4, load.models.size()); ++i)
    load.prompts.push_back(lab::load_text(kWords, ~i));
  REDLINE_ASSIGN(const lab::LoadResult result, lab::run_load(server.target, load));
  const lab::LoadSummary s = lab::summarize(result);
  if (s.failed == s.requests) return io("{}: every request failed; the first: {}", server.label, s.error);
  if (s.prompt_tokens == 0) return LoadWords{};
  return LoadWords{static_cast<double>(s.prompt_tokens) / static_cast<double>(kWords * (s.requests - s.failed))};
}

Json json_of(const ServeRow& row) {
  const lab::LoadSummary& s = row.summary;
  const auto way = [&] {
    return row.way == Way::kAdapters ? "adapters" : row.way == Way::kWithoutHttp ? "engine" : "plain";
  };
  return {{"server", row.server->label},
          {"way", way()},
          {"streams", row.rate > 0 ? Json(nullptr) : Json(row.streams)},
          {"rate", row.rate > 0 ? Json(row.rate) : Json(nullptr)},
          {"requests", s.requests},
          {"failed", s.failed},
          {"seconds", s.seconds},
          {"prompt_tokens", s.prompt_tokens},
          {"cached_tokens", s.cached_tokens},
          {"tokens", s.tokens},
          {"tokens_per_s", s.tokens_per_s},
          {"requests_per_s", s.requests_per_s},
          {"share", row.share ? Json(*row.share) : Json(nullptr)},
          {"first_token_s", {{"p50", s.first_p50}, {"p99", s.first_p99}, {"max", s.first_max}}},
          {"gap_s", {{"p50", s.gap_p50}, {"p99", s.gap_p99}, {"max", s.gap_max}}}};
}

std::string load_name(const ServeRow& row) {
  const char* way = row.way == Way::kAdapters ? ", adapters" : row.way == Way::kWithoutHttp ? ", no server" : "";
  return (row.rate > 0 ? fmt::format("{:g} requests/s", row.rate)
                       : fmt::format("{} stream{}", row.streams, row.streams == 1 ? "" : "s")) +
         way;
}

std::string serve_table(const std::vector<ServeRow>& rows, bool has_several) {
  const bool has_shares = std::any_of(rows.begin(), rows.end(), [](const ServeRow& row) { return row.share; });
  std::vector<std::string> columns = {has_several ? "load, server" : "load",
                                      "requests",
                                      "tokens/s",
                                      "seconds",
                                      "first p50",
                                      "first p99",
                                      "first max",
                                      "gap p50",
                                      "gap p99",
                                      "gap max",
                                      "reused"};
  if (has_shares) columns.emplace_back("of plain");
  std::vector<size_t> right(columns.size() - 1);
  std::iota(right.begin(), right.end(), 1);
  Table table(columns, right);
  for (const ServeRow& row : rows) {
    const lab::LoadSummary& s = row.summary;
    const auto ms = [](double seconds) { return fmt::format("{:.1f} ms", seconds * 1e3); };
    std::vector<std::string> cells = {
        load_name(row) + (has_several ? ", " + row.server->label : ""),
        s.failed > 0 ? fmt::format("{} ({} failed)", s.requests, s.failed) : std::to_string(s.requests),
        fmt::format("{:.1f}", s.tokens_per_s),
        fmt::format("{:.2f}", s.seconds),
        ms(s.first_p50),
        ms(s.first_p99),
        ms(s.first_max),
        ms(s.gap_p50),
        ms(s.gap_p99),
        ms(s.gap_max),
        s.prompt_tokens > 0 ? fmt::format("{:.0f}%", 100.0 * static_cast<double>(s.cached_tokens) /
                                                         static_cast<double>(s.prompt_tokens))
                            : "-"};
    if (has_shares) cells.push_back(row.share ? fmt::format("{:.2f}", *row.share) : "");
    table.add(cells);
  }
  return table.text();
}

Status bench_serve(const BenchServeArgs& args, Terminal& terminal) {
  if (args.without_http && !args.rate.empty())
    return invalid_argument("flag --without-http measures --streams, not --rate");
  if (args.prompt.size() > 2) return invalid_argument("flag --prompt-tokens takes MIN,MAX or one length");
  if (!args.plot.empty()) {
    if (!args.plot.ends_with(".svg")) return invalid_argument("flag --plot: {} does not end in .svg", args.plot);
    REDLINE_TRY(prepare_output(args.plot));
  }
  std::vector<Measured> servers;
  for (const std::string& target : args.targets) {
    REDLINE_ASSIGN(Measured measured, open_target(args, target, terminal));
    servers.push_back(std::move(measured));
  }
  std::vector<ServeRow> rows;  // servers alternate, so that other load on the machine affects all of them
  const auto add_rows = [&](int64_t streams, double rate) {
    for (const Measured& server : servers) {
      rows.push_back({.server = &server, .streams = streams, .rate = rate});
      if (args.random_adapters > 0) rows.push_back({&server, streams, rate, Way::kAdapters});
      if (args.without_http && server.own.served) rows.push_back({&server, streams, rate, Way::kWithoutHttp});
    }
  };
  for (const int64_t rate : args.rate) add_rows(0, static_cast<double>(rate));
  if (args.rate.empty())
    for (const int64_t streams : args.streams) add_rows(streams, 0);

  const InterruptGuard guard;
  std::optional<LoadWords> words;  // measured with the first server's tokenizer
  for (const Measured& server : servers) {
    REDLINE_ASSIGN(const LoadWords of_server, warm_up(args, server));
    if (!words) words = of_server;
  }
  const ServeRow* plain = nullptr;
  uint64_t number = 0;  // number of the load
  for (ServeRow& row : rows) {
    if (row.way == Way::kPlain) plain = &row;
    if (row.way == Way::kPlain && row.server == &servers.front()) ++number;
    // All servers get the same texts. Each way gets different ones, so that no text is in a cache yet.
    constexpr uint64_t kWays = 3;
    lab::LoadOptions load =
        load_of(args, *words, row.streams, row.rate, kWays * number + static_cast<uint64_t>(row.way));
    if (row.way == Way::kAdapters) load.adapters = args.random_adapters;
    Progress progress("measuring", std::ssize(load.prompts), ProgressOptions{.unit = "request"});
    const auto on_done = [&] {
      progress.advance();
      return !InterruptGuard::interrupted();
    };
    REDLINE_ASSIGN(const lab::LoadResult result,
                   row.way == Way::kWithoutHttp ? lab::run_engine_load(row.server->own.served->engine(), load, on_done)
                                                : lab::run_load(row.server->target, load, on_done));
    row.summary = lab::summarize(result);
    if (row.way != Way::kPlain && plain->summary.tokens_per_s > 0)
      row.share = row.summary.tokens_per_s / plain->summary.tokens_per_s;
    if (row.summary.failed == row.summary.requests)
      return io("{}: every request failed; the first: {}", row.server->label, row.summary.error);
  }
  if (!args.plot.empty()) {
    std::vector<lab::LoadBar> bars;
    bars.reserve(rows.size());
    for (const ServeRow& row : rows) bars.push_back({load_name(row), row.server->label, row.summary});
    REDLINE_TRY(write_file(args.plot, lab::load_svg("redline bench serve", bars)));
  }
  if (args.json) {
    Json json = {{"servers", Json::array()},
                 {"max_tokens", args.max_tokens},
                 {"shared_prefix", args.shared_prefix},
                 {"turns", args.turns}};
    for (const Measured& server : servers) json["servers"].push_back(server.label);
    json["rows"] = Json::array();
    for (const ServeRow& row : rows) json["rows"].push_back(json_of(row));
    return print_json(json, terminal);
  }
  terminal.write(serve_table(rows, servers.size() > 1));
  for (const ServeRow& row : rows)
    if (!row.summary.error.empty())
      terminal.note("redline: {}: a request failed: {}", row.server->label, row.summary.error);
  return {};
}

}  // namespace

Command bench_serve_command() {
  return make_command<BenchServeArgs, bench_serve>(
             "bench serve", "measure a server as its clients see it",
             "Sends streamed completions and shows tokens per second over all streams, the time to the first token, "
             "the gaps "
             "between the parts of a text, and the share of the prompts that the server did not have to compute again.",
             {"redline bench serve redline-tales --streams 1,16",
              "redline bench serve http://127.0.0.1:8080 --rate 2,8",
              "redline bench serve redline-tales llama.cpp=http://127.0.0.1:8081 --shared-prefix 500 --plot chart.svg"})
      .in("measure");
}

}  // namespace redline::cli
