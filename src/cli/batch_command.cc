// redline batch: the requests of a file, answered by the code of the server, without a server.
#include "server/batch.h"

#include <algorithm>
#include <map>
#include <optional>

#include "base/progress.h"
#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/json.h"
#include "redline/embedding.h"

namespace redline::cli {
namespace {

struct BatchArgs {
  std::string input, output;
  std::vector<std::string> models, lora;
  bool retry_failed = false, json = false;
  DraftingEngineArgs engine;

  void visit(OptionList& v) {
    v.argument(input, "FILE", "requests in OpenAI's batch format, one JSON object per line",
               {.names_file = true, .aliases = {"-i", "--input-file"}});
    v(output, "out", "FILE", "file of answers, one per line; answers that it already has are kept",
      {.letter = 'o', .names_file = true, .aliases = {"--output-file"}, .is_required = true});
    v(models, "model", "[NAME=]MODEL", "a model for requests that name it or that have no \"model\"",
      {.letter = 'm', .names_file = true, .shown_default = "those that the requests name"});
    v(lora, "lora", "NAME=PATH", "LoRA adapter (PEFT folder or GGUF) of the first language model; requests name it",
      {.names_file = true, .aliases = {"--lora-modules"}});
    v(retry_failed, "retry-failed", "", "answer requests again whose answer in --out is an error");
    engine.visit_servers(v, false, {{"cache_memory", "enough for --max-sequences contexts"}});
    v(json, "json", "", "print a summary as JSON");
    engine.visit(v);
  }
};

/// Returns the number of requests that are prepared at once: twice the places of a step, so that a free place is filled
/// at once.
int64_t requests_at_once(const BatchArgs& args) { return 2 * args.engine.values.max_sequences; }

class Batch {
 public:
  Batch(const BatchArgs& args, Terminal& terminal) : args_(args), terminal_(terminal), app_({}) {}

  Status run() {
    REDLINE_ASSIGN(const server::BatchInput input, server::BatchInput::read(args_.input));
    REDLINE_ASSIGN(server::BatchOutput output, server::BatchOutput::open(args_.output, input, args_.retry_failed));
    const int64_t kept = output.kept();
    int64_t to_do = 0;
    for (const server::BatchLine& line : input.lines()) to_do += !output.has(line);
    if (kept > 0) terminal_.note("redline: {} has {} answers, which are kept; {} are left", args_.output, kept, to_do);
    server::BatchSummary summary;
    if (to_do > 0) {
      REDLINE_TRY(open_models(input, output));
      app_.set_ready();
      const InterruptGuard guard;
      Progress progress("answering", to_do, ProgressOptions{.unit = "request"});
      REDLINE_ASSIGN(summary, server::run_batch(app_, input, output,
                                                {.requests_at_once = requests_at_once(args_),
                                                 .on_answer = [&] { progress.advance(); },
                                                 .goes_on = [] { return !InterruptGuard::interrupted(); }}));
    }
    REDLINE_TRY(output.close());
    if (summary.answered < to_do)
      return cancelled("stopped after {} of {} requests; the same command resumes from {}", kept + summary.answered,
                       input.lines().size(), args_.output);
    return report(input, kept, summary);
  }

 private:
  /// Returns name and path of each model to open: those of --model, else those that the unanswered requests name.
  Result<std::vector<std::pair<std::string, std::string>>> models_of(const server::BatchInput& input,
                                                                     const server::BatchOutput& output) const {
    std::vector<std::pair<std::string, std::string>> models;
    for (const std::string& text : args_.models) models.push_back(name_and_path(text));
    if (!models.empty()) return models;
    for (const server::BatchLine& line : input.lines()) {
      if (!line.is_request() || output.has(line)) continue;
      const std::string name = without_adapter(line.model);
      if (line.model.empty())
        return invalid_argument("{}:{}: \"body\" names no \"model\"; give one with --model", args_.input, line.number);
      const auto is_it = [&](const auto& model) { return model.first == name; };
      if (!name.empty() && std::none_of(models.begin(), models.end(), is_it)) models.emplace_back(name, name);
    }
    return models;
  }

  /// Removes the name of an adapter: "BASE:NAME" becomes "BASE", and "NAME" becomes "".
  std::string without_adapter(const std::string& model) const {
    for (const std::string& text : args_.lora) {
      const std::string name = name_and_path(text).first;
      if (model == name) return "";
      if (model.ends_with(":" + name)) return model.substr(0, model.size() - name.size() - 1);
    }
    return model;
  }

  Status open_models(const server::BatchInput& input, const server::BatchOutput& output) {
    REDLINE_ASSIGN(const auto models, models_of(input, output));
    std::map<std::string, int64_t> names;  // model name, and the number of the first line that has it
    for (const server::BatchLine& line : input.lines())
      if (line.is_request() && !output.has(line)) names.emplace(line.model, line.number);
    if (names.empty()) return {};  // nothing but lines that are not requests
    REDLINE_ASSIGN(runtime_, Runtime::open({.threads = args_.engine.values.threads,
                                            .trace_file = args_.engine.values.trace_file}));
    for (const auto& [name, path] : models) {
      Status status = open_model(name, path);
      const auto named = names.find(name);
      if (args_.models.empty() && named != names.end())
        status = status.within(fmt::format("{}:{}: model \"{}\"", args_.input, named->second, name));
      REDLINE_TRY(status);
    }
    if (!args_.lora.empty() && app_.models().all().empty())
      return invalid_argument("--lora: there is no language model for the adapter");
    return check_names(names);
  }

  /// Checks the names before the first request is computed. A name that no model has would otherwise be the same error
  /// in thousands of answers.
  Status check_names(const std::map<std::string, int64_t>& names) {
    for (const auto& entry : names) {
      const std::string& name = entry.first;
      const int64_t line = entry.second;
      const auto text = app_.models().resolve(name);
      if (text.ok()) continue;
      const auto embeddings = app_.embeddings().listed();
      const bool is_embedding = std::any_of(embeddings.begin(), embeddings.end(), [&](const auto& model) {
        return model->name() == name || (name.empty() && embeddings.size() == 1);
      });
      if (is_embedding) continue;
      std::vector<std::string> known;
      for (const auto& model : app_.models().all()) known.push_back(model->name());
      for (const auto& model : embeddings) known.push_back(model->name());
      if (name.empty())
        return invalid_argument("{}:{}: \"body\" names no \"model\"; there are {}", args_.input, line,
                                fmt::join(known, ", "));
      return not_found("{}:{}: there is no model \"{}\", there is {}; write --model '{}={}' to have it answer",
                       args_.input, line, name, fmt::join(known, ", "), name, name_and_path(args_.models[0]).second);
    }
    return {};
  }

  Status open_model(const std::string& name, const std::string& given) {
    REDLINE_ASSIGN(const std::string path, find_model(given));
    return is_embedding_model(path) ? open_embedding(name, path) : open_text(name, path);
  }

  Status open_embedding(const std::string& name, const std::string& path) {
    EmbeddingOptions options;
    options.runtime = runtime_;
    options.dtype = args_.engine.values.dtype;
    auto model = std::make_shared<server::EmbeddingModel>(
        name, [=] { return EmbeddingEngine::open(path, options); }, requests_at_once(args_));
    app_.embeddings().add(model, 0);
    REDLINE_TRY(app_.residency().load_if_it_fits(*model));
    return {};
  }

  Status open_text(const std::string& name, const std::string& path) {
    REDLINE_ASSIGN(TextEngineOptions options, args_.engine.options());
    options.runtime = runtime_;
    options.threads = 0;
    options.trace_file.clear();
    options.max_batch_tokens = std::max(options.max_batch_tokens, options.max_sequences);
    const bool has_adapters = app_.models().all().empty();
    if (has_adapters)
      for (const std::string& text : args_.lora) {
        REDLINE_ASSIGN(const int64_t rank, text_adapter_rank(name_and_path(text).second));
        options.max_adapter_rank = std::max(options.max_adapter_rank, rank);
      }
    REDLINE_ASSIGN(auto engine, open_engine(path, options, terminal_));
    constexpr int64_t kMaxWaiting = 1000000;  // large, because one request may have many texts
    auto model = std::make_shared<server::ServedModel>(name, std::move(engine), kMaxWaiting);
    if (has_adapters)
      for (const std::string& text : args_.lora) {
        const auto [adapter, file] = name_and_path(text);
        REDLINE_TRY(model->load_adapter(adapter, file).within("flag --lora"));
      }
    app_.models().add(std::move(model));
    return {};
  }

  Status report(const server::BatchInput& input, int64_t kept, const server::BatchSummary& s) {
    if (s.failed > 0)
      terminal_.note("redline: {} of {} requests have an error as their answer; the first: {}", s.failed, s.answered,
                     s.first_failure);
    const double rate = s.seconds > 0 ? static_cast<double>(s.generated_tokens) / s.seconds : 0;
    if (args_.json)
      return print_json({{"requests", input.lines().size()},
                         {"kept", kept},
                         {"answered", s.answered},
                         {"failed", s.failed},
                         {"prompt_tokens", s.prompt_tokens},
                         {"cached_tokens", s.cached_tokens},
                         {"completion_tokens", s.generated_tokens},
                         {"seconds", s.seconds},
                         {"tokens_per_s", rate},
                         {"out", args_.output}},
                        terminal_);
    terminal_.note("redline: {}: {} answer{} in {}, {} tokens, {:.1f} a second", args_.output, s.answered,
                   s.answered == 1 ? "" : "s", duration_text(s.seconds), s.generated_tokens, rate);
    return {};
  }

  const BatchArgs& args_;
  Terminal& terminal_;
  std::shared_ptr<Runtime> runtime_;
  server::App app_;
};

Status batch(const BatchArgs& args, Terminal& terminal) { return Batch(args, terminal).run(); }

}  // namespace

Command batch_command() {
  return make_command<BatchArgs, batch>(
             "batch", "answer the requests of a file",
             "Takes OpenAI's batch files for /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/responses and "
             "/v1/rerank, and answers each line as redline serve would, many lines in each step. A line that is not a "
             "request gets an error as its answer. After Ctrl-C the file has complete answers only, and the same "
             "command resumes from there.",
             {"redline batch requests.jsonl -o answers.jsonl",
              "redline batch requests.jsonl -o answers.jsonl -m gpt-4o-mini=redline-tales",
              "redline batch requests.jsonl -o answers.jsonl --retry-failed --json"})
      .in("generate", /*after_name=*/"launch");
}

}  // namespace redline::cli
