// redline serve: language and image models behind HTTP.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/file_kind.h"
#include "cli/model_name.h"
#include "cli/pooling_option.h"
#include "cli/precision_option.h"
#include "machine/peaks_cache.h"
#include "redline/embedding.h"
#include "redline/image.h"
#include "server/app.h"

namespace redline::cli {
namespace {

struct ServeArgs {
  std::vector<std::string> models, alias, lora, api_key, cors_origin;
  std::string host = "127.0.0.1", api_keys_file, tls_cert, tls_key, access_log = "-";
  int64_t port = 8080, max_queue = 256, max_lora_rank = 0, max_body = 32, max_connections = 4096;
  int64_t max_side = 2048, memory = 0;
  float request_timeout = 0, read_timeout = 60, write_timeout = 30, idle_timeout = 75, drain_timeout = -1;
  int64_t max_body_memory = 256, max_connections_per_address = 0;
  float keep_alive = -1, load_timeout = 300;
  std::string webhook_secret, precision = "auto", pooling;
  bool allow_lora_loading = false, allow_webhooks = false, any_model_name = false;
  DraftingEngineArgs engine;

  void visit(OptionList& v) {
    v.argument(models, "MODEL", "GGUF file or Hugging Face folder, or NAME=PATH to serve it as NAME",
               {.names_file = true, .aliases = {"-m", "--model"}});
    v(alias, "alias", "NAME[,NAME]", "further names of the only MODEL; with several models NAME=MODEL",
      {.letter = 'a', .aliases = {"--served-model-name"}});
    v(any_model_name, "any-model-name", "",
      "accept any model name in requests if there is only one model of that kind, for programs that insist on a name");
    v(host, "host", "ADDRESS", "address to listen on; 0.0.0.0: all of this machine");
    v(port, "port", "N", "port to listen on; 0: any that is free", {.letter = 'p', .min = 0, .max = 65535});
    v(api_key, "api-key", "KEY", "refuse requests without this key");
    v(api_keys_file, "api-keys-file", "FILE", "keys, one per line: NAME KEY [REQUESTS_PER_MINUTE]",
      {.names_file = true});
    v(tls_cert, "tls-cert", "FILE", "certificate chain (PEM), to speak TLS",
      {.names_file = true, .aliases = {"--ssl-certfile", "--ssl-cert-file"}, .needs = {"tls-key"}});
    v(tls_key, "tls-key", "FILE", "private key of --tls-cert (PEM)",
      {.names_file = true, .aliases = {"--ssl-keyfile", "--ssl-key-file"}, .needs = {"tls-cert"}});
    v(cors_origin, "cors-origin", "ORIGIN",
      "allow requests of web pages of this origin, such as https://example.org; *: of any page");
    v(lora, "lora", "NAME=PATH", "LoRA adapter (PEFT folder or GGUF) of the first MODEL; requests name it MODEL:NAME",
      {.names_file = true, .aliases = {"--lora-modules"}});
    v(max_lora_rank, "max-lora-rank", "N", "maximum sum of the ranks of the adapters of one request",
      {.min = 0, .max = 4096, .shown_default = "what --lora needs"});
    v(allow_lora_loading, "allow-lora-loading", "",
      "allow clients on other machines to load adapters from this machine's files; on a loopback address loading is "
      "always allowed");
    v(precision, "precision", "TYPE", "type of the weights of image and embedding models; auto: the type of --dtype",
      {.choices = precision_names()});
    v(pooling, "pooling", "KIND",
      "let language models answer requests for embeddings too, with this pooling of the tokens of a text; it also "
      "replaces the pooling of embedding models",
      {.choices = pooling_names(), .shown_default = "only embedding models, with their own pooling"});
    engine.visit_servers(
        v, true, {{"cache_memory", "enough for --max-sequences contexts, with --memory at most a quarter of it"}});
    v(max_queue, "max-queue", "N", "maximum number of waiting texts; further ones are refused with 429",
      {.min = 0, .max = 1000000});
    v(memory, "memory", "MIB",
      "memory for the weights and caches of all models; a model is loaded when a request names it, and others are "
      "unloaded "
      "to make room",
      {.min = 0, .max = 1e9, .shown_default = "all models stay loaded"});
    v(keep_alive, "keep-alive", "SECONDS", "unload models that have been idle for this time",
      {.min = -1, .max = 1e9, .shown_default = "never", .aliases = {"--sleep-idle-seconds"}});
    v(load_timeout, "load-timeout", "SECONDS",
      "maximum time that a request waits until its model is loaded; after it, the request gets 503",
      {.min = 0.001, .max = 86400});
    v(max_side, "max-side", "PIXELS", "largest width and height of an image", {.min = 16, .max = 16384});
    v(allow_webhooks, "allow-webhooks", "",
      "allow clients to have events of predictions posted to their URLs; on a loopback address it is always allowed");
    v(webhook_secret, "webhook-secret", "SECRET", "secret that signs the events of webhooks (Standard Webhooks)");
    v(request_timeout, "request-timeout", "SECONDS", "end a text after this time; 0: never", {.min = 0, .max = 86400});
    v(read_timeout, "read-timeout", "SECONDS", "maximum time to read the body of a request; its head has at most 10 s",
      {.min = 1, .max = 86400});
    v(write_timeout, "write-timeout", "SECONDS", "maximum time in which a client reads nothing of its answer",
      {.min = 1, .max = 86400});
    v(drain_timeout, "drain-timeout", "SECONDS",
      "maximum time to finish requests in progress after SIGTERM or Ctrl-C; 0: no limit",
      {.min = 0, .max = 86400, .shown_default = "--request-timeout and 30 more"});
    v(idle_timeout, "idle-timeout", "SECONDS", "maximum time between two requests of a connection",
      {.min = 1, .max = 86400});
    v(max_body, "max-body", "MIB", "maximum size of the body of a request", {.min = 1, .max = 4096});
    v(max_body_memory, "max-body-memory", "MIB",
      "maximum memory for the bodies of all requests in progress and their parsed form; beyond it requests get 503",
      {.min = 1, .max = 1e6});
    v(max_connections, "max-connections", "N", "open connections", {.min = 1, .max = 1000000});
    v(max_connections_per_address, "max-connections-per-address", "N",
      "maximum number of open connections of one address; further ones are refused with 429",
      {.min = 1, .max = 1000000, .shown_default = "three quarters of --max-connections"});
    v(access_log, "access-log", "FILE",
      "file of the access log, one JSON object per request; -: standard error; off: none", {.names_file = true});
    engine.visit(v);
  }
};

struct Kind;

struct ToOpen {
  std::string name, path;  ///< `path`: the result of find_model()
  std::vector<std::string> aliases;
  const Kind* kind = nullptr;
  TextEngineOptions options;
  ImageOptions image_options;
  EmbeddingOptions embedding_options;
  std::vector<std::pair<std::string, std::string>> adapters;
  int64_t adapter_ranks = 0;  ///< sum of the ranks of the adapters
};

/// A kind of model, and the functions that differ between kinds.
struct Kind {
  const char* name;
  bool (*is_it)(const std::string& path);
  Result<int64_t> (*rank)(const std::string& adapter);
  /// Adds the model to its table.
  std::shared_ptr<server::Resident> (*add)(const ToOpen&, const ServeArgs&, server::App&, Terminal&);
};

int64_t adapter_rank_of(const ToOpen& m, const ServeArgs& args) {
  return std::max(args.max_lora_rank, m.adapter_ranks);
}

/// Returns the memory that a model is expected to take before it is loaded; loading may show that it takes less.
int64_t expected_bytes(const ToOpen& m, const ServeArgs& args, int64_t cache) {
  const int64_t weights = weight_bytes_of(m.path), memory = args.memory << 20;
  return std::min(weights + cache, std::max(weights, memory));
}

std::shared_ptr<server::EmbeddingModel> add_embeddings_of(const ToOpen& m, const ServeArgs& args, server::App& app,
                                                          Terminal& terminal, bool is_listed) {
  const auto open = [options = m.embedding_options, name = m.name, path = m.path,
                     &terminal]() -> Result<std::unique_ptr<EmbeddingEngine>> {
    REDLINE_ASSIGN(auto engine, EmbeddingEngine::open(path, options));
    const EmbeddingInfo& info = engine->info();
    terminal.note("redline: {}: {}, {}, {} of up to {} tokens", name, info.architecture, info.weight_types,
                  info.num_labels > 0 ? "scores" : fmt::format("embeddings of {} dimensions", info.dimensions),
                  info.max_length);
    return engine;
  };
  auto model = std::make_shared<server::EmbeddingModel>(m.name, open, args.max_queue);
  model->set_aliases(m.aliases);
  model->set_listed(is_listed);
  app.embeddings().add(model, expected_bytes(m, args, 0));
  return model;
}

std::shared_ptr<server::Resident> add_text(const ToOpen& m, const ServeArgs& args, server::App& app,
                                           Terminal& terminal) {
  TextEngineOptions options = m.options;
  options.max_adapter_rank = adapter_rank_of(m, args);
  const auto open = [=, name = m.name, path = m.path, &terminal]() -> Result<std::unique_ptr<TextEngine>> {
    REDLINE_ASSIGN(auto engine, open_engine(path, options, terminal));
    const ModelInfo& info = engine->info();
    const BatchLimits limits = engine->batch_limits();
    terminal.note(
        "redline: {}: {}, {}, context {}, up to {} texts at once, {} tokens fit in the cache ({} MiB at most)", name,
        info.architecture, info.weight_types, info.context, limits.sequences, limits.cache_tokens,
        engine->memory().cache_limit >> 20);
    return engine;
  };
  auto model = std::make_shared<server::ServedModel>(m.name, open, args.engine.values.max_sequences + args.max_queue,
                                                     m.adapters);
  model->set_aliases(m.aliases);
  app.models().add(model, expected_bytes(m, args, options.cache_memory));
  // The embedding model is opened at the first request for embeddings. It shares the packed weights of the language
  // model if they are in the cache of packed weights.
  if (!args.pooling.empty()) add_embeddings_of(m, args, app, terminal, false);
  return model;
}

std::shared_ptr<server::Resident> add_image(const ToOpen& m, const ServeArgs& args, server::App& app,
                                            Terminal& terminal) {
  ImageOptions options = m.image_options;
  options.max_adapter_rank = adapter_rank_of(m, args);
  const auto open = [=, name = m.name, path = m.path, &terminal]() -> Result<std::unique_ptr<ImageEngine>> {
    REDLINE_ASSIGN(auto engine, ImageEngine::open(path, options));
    const ImageRequest defaults = engine->defaults();
    terminal.note("redline: {}: {}, {}x{} pixels in {} steps, at most {} a side", name, engine->family(),
                  defaults.width, defaults.height, defaults.num_inference_steps, options.max_side);
    return engine;
  };
  auto model = std::make_shared<server::ImageModel>(m.name, open, options, args.max_queue, m.adapters);
  model->set_aliases(m.aliases);
  app.images().add(model, expected_bytes(m, args, 0));
  return model;
}

std::shared_ptr<server::Resident> add_embedding(const ToOpen& m, const ServeArgs& args, server::App& app,
                                                Terminal& terminal) {
  return add_embeddings_of(m, args, app, terminal, true);
}

/// All kinds. The last one takes every path that the others do not.
constexpr Kind kKinds[] = {
    {"image",
     [](const std::string& path) {
       if (std::filesystem::exists(path + "/model_index.json")) return true;
       const Result<FileKind> kind = detect_file_kind(path);
       return kind.ok() && *kind == FileKind::kPipelineFile;
     },
     [](const std::string& adapter) { return adapter_rank(adapter); }, add_image},
    {"embedding", is_embedding_model,
     [](const std::string&) -> Result<int64_t> { return unsupported("embedding models take no adapters"); },
     add_embedding},
    {"language", [](const std::string&) { return true; },
     [](const std::string& adapter) { return text_adapter_rank(adapter); }, add_text},
};

/// Assigns each adapter to the first model of its kind.
Status assign_adapters(const ServeArgs& args, std::vector<ToOpen>& models) {
  const auto first = [&](const Kind& kind) {
    return std::find_if(models.begin(), models.end(), [&](const ToOpen& m) { return m.kind == &kind; });
  };
  for (const std::string& text : args.lora) {
    auto [name, path] = name_and_path(text);
    const Kind* of = nullptr;
    int64_t rank = 0;
    Status problem;  // error of a reader, preferably of the last kind that is served
    for (const Kind& kind : kKinds) {
      const Result<int64_t> found = kind.rank(path);
      if (found.ok()) {
        of = &kind;
        rank = *found;
      } else if (problem.ok() || first(kind) != models.end()) {
        problem = found.status();
      }
    }
    if (!of) return problem;
    const auto model = first(*of);
    if (model == models.end())
      return invalid_argument("{} is an adapter for {} models, and none is served", path, of->name);
    model->adapter_ranks += rank;
    model->adapters.emplace_back(std::move(name), std::move(path));
  }
  return {};
}

Status assign_aliases(const ServeArgs& args, std::vector<ToOpen>& models) {
  std::vector<std::string> names;
  names.reserve(models.size());
  for (const ToOpen& m : models) names.push_back(m.name);
  const auto model_named = [&](const std::string& name) {
    return std::find_if(models.begin(), models.end(), [&](const ToOpen& m) { return m.name == name; });
  };
  for (const std::string& list : args.alias) {
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      const std::string text = list.substr(begin, end - begin);
      begin = end + 1;
      const size_t equals = text.find('=');
      const std::string name = text.substr(0, equals);
      if (name.empty()) return invalid_argument("\"{}\" has an empty name", list);
      if (std::find(names.begin(), names.end(), name) != names.end())
        return invalid_argument("\"{}\" is the name of a model already", name);
      auto model = models.begin();
      if (equals != std::string::npos) model = model_named(text.substr(equals + 1));
      else if (models.size() > 1)
        return invalid_argument("{}: there are {} models; write {}=MODEL", name, models.size(), name);
      if (model == models.end())
        return invalid_argument("there is no model \"{}\"; there are {}", text.substr(equals + 1),
                                fmt::join(names, ", "));
      model->aliases.push_back(name);
      names.push_back(name);
    }
  }
  return {};
}

Result<std::vector<ToOpen>> models_of(const ServeArgs& args) {
  std::vector<ToOpen> models;
  REDLINE_ASSIGN(const auto runtime,
                 Runtime::open({.threads = args.engine.values.threads, .trace_file = args.engine.values.trace_file}));
  for (const std::string& text : args.models) {
    auto [name, path] = name_and_path(text);
    for (const ToOpen& other : models)
      if (other.name == name)
        return invalid_argument("two models are named \"{}\"; write NAME={} for one of them", name, path);
    REDLINE_ASSIGN(TextEngineOptions options, args.engine.options());
    options.runtime = runtime;
    options.threads = 0;
    options.trace_file.clear();
    options.max_batch_tokens = std::max(options.max_batch_tokens, options.max_sequences);
    constexpr int64_t kCacheShare = 4;  // without --cache-memory, the cache gets --memory divided by this
    if (options.cache_memory == 0) options.cache_memory = (args.memory / kCacheShare) << 20;
    options.on_notice = [](const std::string& text) {  // from any thread, in one piece
      std::fputs(("redline: " + text + "\n").c_str(), stderr);
    };
    ToOpen model{.name = std::move(name), .options = options};
    model.image_options.runtime = runtime;
    model.image_options.max_side = args.max_side;
    model.image_options.device = model.embedding_options.device = options.device;
    model.embedding_options.runtime = runtime;
    if (!args.pooling.empty()) {
      REDLINE_ASSIGN(model.embedding_options.pooling, pooling_from_name(args.pooling));
    }
    REDLINE_ASSIGN(const Precision precision, precision_from_name(args.precision));
    // --dtype applies to all models, except image and embedding models if --precision gives another type.
    model.image_options.dtype = model.embedding_options.dtype =
        precision == Precision::kAuto ? options.dtype : precision;
    REDLINE_ASSIGN(model.path, find_model(path));
    model.kind = std::find_if(std::begin(kKinds), std::end(kKinds), [&](const Kind& k) { return k.is_it(model.path); });
    if (const int64_t mib = weight_bytes_of(model.path) >> 20; args.memory > 0 && mib > args.memory)
      return invalid_argument("--memory {}: the weights of {} take {} MiB", args.memory, model.name, mib);
    models.push_back(std::move(model));
  }
  REDLINE_TRY(assign_aliases(args, models).within("flag --alias"));
  if (args.any_model_name)
    for (size_t i = 1; i < models.size(); ++i)
      for (size_t k = 0; k < i; ++k)
        if (models[i].kind == models[k].kind)
          return invalid_argument("flag --any-model-name: {} and {} are both {} models; requests must name one",
                                  models[k].name, models[i].name, models[i].kind->name);
  REDLINE_TRY(assign_adapters(args, models).within("flag --lora"));
  return models;
}

/// Opens all models; with --memory, those that fit in the order in which they are given.
Status open_models(const std::vector<ToOpen>& models, const ServeArgs& args, server::App& app, Terminal& terminal) {
  std::vector<std::shared_ptr<server::Resident>> given;
  given.reserve(models.size());
  for (const ToOpen& m : models) given.push_back(m.kind->add(m, args, app, terminal));
  for (const auto& model : given) {
    if (app.state() == server::App::State::kDraining) break;
    REDLINE_ASSIGN(const bool is_loaded, app.residency().load_if_it_fits(*model));
    if (!is_loaded) terminal.note("redline: {}: is loaded when a request names it", model->name());
  }
  return {};
}

/// The file of the access log; null: no log. The destructor closes a file that was opened.
struct LogFile {
  std::FILE* file = nullptr;
  ~LogFile() {
    if (file && file != stderr) std::fclose(file);
  }
};

Status serve(const ServeArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const std::vector<ToOpen> models, models_of(args));
  LogFile log;
  if (args.access_log == "-") log.file = stderr;
  else if (args.access_log != "off" && !(log.file = std::fopen(args.access_log.c_str(), "ae")))
    return io("--access-log {}: cannot be written", args.access_log);
  const bool is_loopback = args.host == "localhost" || args.host == "::1" || args.host.starts_with("127.");
  constexpr double kDrain_s = 30;
  const double drain_timeout = args.drain_timeout >= 0 ? double{args.drain_timeout} : args.request_timeout + kDrain_s;
  server::App app({.origins = args.cors_origin,
                   .is_loopback = is_loopback,
                   .allows_adapter_loading = is_loopback || args.allow_lora_loading,
                   .allows_webhooks = is_loopback || args.allow_webhooks,
                   .webhook_secret = args.webhook_secret,
                   .request_timeout_s = args.request_timeout,
                   .drain_timeout_s = drain_timeout,
                   .residency = {.memory_bytes = args.memory << 20,
                                 .keep_alive_s = args.keep_alive,
                                 .takes_any_name = args.any_model_name},
                   .load_timeout_s = args.load_timeout,
                   .log = log.file,
                   .machine_limits = limits_of_machine});
  for (size_t i = 0; i < args.api_key.size(); ++i)
    REDLINE_TRY(
        app.keys().add(i == 0 ? "default" : fmt::format("default{}", i + 1), args.api_key[i]).within("--api-key"));
  if (!args.api_keys_file.empty()) REDLINE_TRY(app.keys().read_file(args.api_keys_file));
  REDLINE_ASSIGN(const auto http,
                 server::HttpServer::listen({.host = args.host,
                                             .port = static_cast<int>(args.port),
                                             .tls_certificate = args.tls_cert,
                                             .tls_key = args.tls_key,
                                             .max_body_bytes = args.max_body << 20,
                                             .max_body_memory = args.max_body_memory << 20,
                                             .max_connections = args.max_connections,
                                             .max_connections_per_address = args.max_connections_per_address,
                                             .header_timeout_s = std::min(args.read_timeout, 10.0F),
                                             .body_timeout_s = args.read_timeout,
                                             .idle_timeout_s = args.idle_timeout,
                                             .write_timeout_s = args.write_timeout,
                                             .drain_timeout_s = drain_timeout,
                                             .handles_signals = true},
                                            app));
  app.watch(*http);
  terminal.print("listening on {}://{}:{}\n", args.tls_cert.empty() ? "http" : "https",
                 args.host.find(':') == std::string::npos ? args.host : "[" + args.host + "]", http->port());
  terminal.flush();
  if (!is_loopback && app.keys().empty())
    terminal.note("redline: {} is reachable from other machines, and no --api-key is set", args.host);
  REDLINE_TRY(open_models(models, args, app, terminal));
  app.set_ready();
  terminal.note("redline: ready");
  http->wait();
  app.close_predictions();
  return {};
}

}  // namespace

Command serve_command() {
  return make_command<ServeArgs, serve>(
             "serve", "serve language, image and embedding models over HTTP",
             "Serves the APIs of OpenAI, Anthropic, Ollama, llama.cpp and vLLM. /openapi.json describes every "
             "endpoint, and redline help fields lists the fields of other servers. Requests are answered with 503 "
             "until the models are loaded. After SIGTERM or Ctrl-C the server finishes the texts in progress and ends; "
             "a second signal ends it at once. docs/serving.md has more.",
             {"redline serve redline-tales",
              "redline serve chat=model.gguf draft=small.gguf --port 8000 --api-key secret",
              "redline serve redline-tales --lora shout=assets/redline-tales/adapters/shout"})
      .in("generate", /*after_name=*/"embed");
}

}  // namespace redline::cli
