// redline launch PROGRAM: the settings with which a program for agents or chats uses a server of Redline.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "base/json_text.h"
#include "cli/command.h"
#include "cli/json.h"
#include "hub/hub_http.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

struct LaunchArgs {
  std::string program;
  std::vector<std::string> arguments;
  std::string url = "http://127.0.0.1:8080", model, key = "redline";
  bool writes = false, runs = false;
  static const std::vector<std::string>& programs();
  void visit(OptionList& v) {
    v.argument(program, "PROGRAM", "the program", {.choices = programs()});
    v.argument(arguments, "ARGUMENT", "arguments for the program that --run starts, after --", {.optional = true});
    v(url, "url", "URL", "the server");
    v(model, "model", "NAME", "a model of the server", {.shown_default = "the first model that the server lists"});
    v(key, "key", "KEY", "the server's API key; a server without --api-key accepts any", {.aliases = {"--api-key"}});
    v(writes, "write", "", "write the settings to the file where the program reads them");
    v(runs, "run", "", "start the program with them");
  }
};

/// The server and the model for the program.
struct Target {
  std::string url, model, key;
  int64_t context = 0;  ///< tokens; 0: unknown
};

/// The settings that make a program use a server.
struct LaunchPlan {
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> setup;    ///< command to run before the program; empty: none
  std::vector<std::string> command;  ///< command that starts the program; empty: it is not started from a shell
  std::string file;                  ///< file from which the program reads its settings; "": none
  std::string place;                 ///< place where the user must add `text`, because --write cannot; "": none
  std::string text;                  ///< content of a file that only Redline writes, or lines to append to a file
  Json json;                         ///< members to add to a JSON file; null: the file has another format
  bool needs_file = false;           ///< `command` reads `file`, so --run writes it
};

struct Program {
  const char* name;
  const char* title;
  const char* install;
  LaunchPlan (*plan)(const Target& target);
};

std::string home(const std::string& path) {
  const char* folder = std::getenv("HOME");
  return (folder && *folder ? std::string(folder) : std::string("~")) + "/" + path;
}
std::string folder_of(const char* variable, const std::string& otherwise) {
  const char* folder = std::getenv(variable);
  return folder && *folder ? folder : home(otherwise);
}
std::string quoted(const std::string& text) { return Json(text).dump(); }

LaunchPlan plan_claude(const Target& t) {
  LaunchPlan plan;
  plan.environment = {{"ANTHROPIC_BASE_URL", t.url},
                      {"ANTHROPIC_AUTH_TOKEN", t.key},
                      {"ANTHROPIC_MODEL", t.model},
                      {"ANTHROPIC_DEFAULT_OPUS_MODEL", t.model},
                      {"ANTHROPIC_DEFAULT_SONNET_MODEL", t.model},
                      {"ANTHROPIC_DEFAULT_HAIKU_MODEL", t.model},
                      {"CLAUDE_CODE_ATTRIBUTION_HEADER", "0"},
                      {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"}};
  plan.command = {"claude"};
  plan.file = folder_of("CLAUDE_CONFIG_DIR", ".claude") + "/settings.json";
  for (const auto& [name, value] : plan.environment) plan.json["env"][name] = value;
  return plan;
}

LaunchPlan plan_codex(const Target& t) {
  LaunchPlan plan;
  plan.environment = {{"REDLINE_API_KEY", t.key}};
  const std::string url = quoted(t.url + "/v1");
  plan.command = {
      "codex",
      "-c",
      "model=" + quoted(t.model),
      "-c",
      "model_provider=\"redline\"",
      "-c",
      fmt::format("model_providers.redline={{name=\"Redline\",base_url={},env_key=\"REDLINE_API_KEY\",wire_api="
                  "\"responses\"}}",
                  url)};
  std::string context;
  if (t.context > 0) {
    plan.command.insert(plan.command.end(), {"-c", fmt::format("model_context_window={}", t.context)});
    context = fmt::format("model_context_window = {}\n", t.context);
  }
  plan.file = folder_of("CODEX_HOME", ".codex") + "/redline.config.toml";
  plan.text = fmt::format(
      "# codex --profile redline\nmodel = {}\nmodel_provider = \"redline\"\n{}\n[model_providers.redline]\n"
      "name = \"Redline\"\nbase_url = {}\nenv_key = \"REDLINE_API_KEY\"\nwire_api = \"responses\"\n",
      quoted(t.model), context, url);
  return plan;
}

LaunchPlan plan_aider(const Target& t) {
  LaunchPlan plan;
  plan.environment = {{"OPENAI_API_BASE", t.url + "/v1"}, {"OPENAI_API_KEY", t.key}};
  plan.command = {"aider", "--model", "openai/" + t.model};
  plan.file = home(".aider.redline.yml");
  plan.text = fmt::format("# aider --config {}\nmodel: {}\nopenai-api-base: {}\nopenai-api-key: {}\n", plan.file,
                          quoted("openai/" + t.model), quoted(t.url + "/v1"), quoted(t.key));
  return plan;
}

Json opencode_settings(const Target& t) {
  Json model = {{"name", t.model}};
  if (t.context > 0) model["limit"] = {{"context", t.context}, {"output", t.context}};
  return {{"$schema", "https://opencode.ai/config.json"},
          {"provider",
           {{"redline",
             {{"npm", "@ai-sdk/openai-compatible"},
              {"name", "Redline"},
              {"options", {{"baseURL", t.url + "/v1"}, {"apiKey", t.key}}},
              {"models", {{t.model, std::move(model)}}}}}}},
          {"model", "redline/" + t.model}};
}
LaunchPlan plan_opencode(const Target& t) {
  LaunchPlan plan;
  plan.json = opencode_settings(t);
  plan.environment = {{"OPENCODE_CONFIG_CONTENT", plan.json.dump()}};
  plan.command = {"opencode"};
  plan.file = folder_of("XDG_CONFIG_HOME", ".config") + "/opencode/opencode.json";
  return plan;
}

LaunchPlan plan_qwen(const Target& t) {
  LaunchPlan plan;
  plan.environment = {{"OPENAI_BASE_URL", t.url + "/v1"}, {"OPENAI_API_KEY", t.key}, {"OPENAI_MODEL", t.model}};
  plan.command = {"qwen", "--auth-type", "openai"};
  plan.file = home(".qwen/.env");
  for (const auto& [name, value] : plan.environment) plan.text += fmt::format("{}={}\n", name, quoted(value));
  return plan;
}

LaunchPlan plan_cline(const Target& t) {
  LaunchPlan plan;
  plan.setup = {"cline", "auth", "openai-compatible", "-k", t.key, "-m", t.model, "-b", t.url + "/v1"};
  plan.command = {"cline", "-P", "openai-compatible", "-m", t.model};
  return plan;
}

/// Roo Code is an extension of VS Code. It imports a file of settings from its dialog, or at each start.
LaunchPlan plan_roo(const Target& t) {
  LaunchPlan plan;
  plan.file = folder_of("XDG_CONFIG_HOME", ".config") + "/redline/roo.json";
  Json profile = {
      {"apiProvider", "openai"}, {"openAiBaseUrl", t.url + "/v1"}, {"openAiApiKey", t.key}, {"openAiModelId", t.model}};
  if (t.context > 0)
    profile["openAiCustomModelInfo"] = {{"contextWindow", t.context},
                                        {"maxTokens", -1},
                                        {"supportsImages", false},
                                        {"supportsPromptCache", false},
                                        {"supportsNativeTools", true}};
  plan.json["providerProfiles"] = {{"currentApiConfigName", "Redline"}, {"apiConfigs", {{"Redline", profile}}}};
  plan.place = "settings.json of VS Code; or import the file below in the settings of Roo Code";
  const Json path = plan.file;
  plan.text = fmt::format("\"roo-cline.autoImportSettingsPath\": {}\n", path.dump());
  return plan;
}

LaunchPlan plan_continue(const Target& t) {
  LaunchPlan plan;
  plan.file = home(".continue/redline.yaml");
  plan.command = {"cn", "--config", plan.file};
  plan.text = fmt::format(
      "name: Redline\nversion: 0.0.1\nschema: v1\nmodels:\n  - name: {0}\n    provider: openai\n    model: {0}\n"
      "    apiBase: {1}\n    apiKey: {2}\n    roles: [chat, edit, apply]\n    capabilities: [tool_use]\n",
      quoted(t.model), quoted(t.url + "/v1"), quoted(t.key));
  if (t.context > 0) plan.text += fmt::format("    defaultCompletionOptions:\n      contextLength: {}\n", t.context);
  plan.needs_file = true;
  return plan;
}

LaunchPlan plan_goose(const Target& t) {
  LaunchPlan plan;
  plan.environment = {
      {"GOOSE_PROVIDER", "openai"}, {"OPENAI_HOST", t.url}, {"OPENAI_API_KEY", t.key}, {"GOOSE_MODEL", t.model}};
  plan.command = {"goose", "session"};
  return plan;
}

LaunchPlan plan_zed(const Target& t) {
  LaunchPlan plan;
  plan.environment = {{"REDLINE_API_KEY", t.key}};
  constexpr int64_t kUnknownContext = 32768;
  const Json model = {{"name", t.model}, {"max_tokens", t.context > 0 ? t.context : kUnknownContext}};
  plan.json["language_models"]["openai_compatible"]["Redline"] = {{"api_url", t.url + "/v1"},
                                                                  {"available_models", Json::array({model})}};
  plan.command = {"zed"};
  plan.file = folder_of("XDG_CONFIG_HOME", ".config") + "/zed/settings.json";
  plan.needs_file = true;
  return plan;
}

LaunchPlan plan_litellm(const Target& t) {
  LaunchPlan plan;
  plan.file = folder_of("XDG_CONFIG_HOME", ".config") + "/redline/litellm.yaml";
  plan.command = {"litellm", "--config", plan.file};
  // The proxy starts only with a key for its clients that begins with "sk-".
  plan.text = fmt::format(
      "model_list:\n  - model_name: {}\n    litellm_params:\n      model: {}\n      api_base: {}\n      api_key: {}\n"
      "general_settings:\n  master_key: {}\n",
      quoted(t.model), quoted("openai/" + t.model), quoted(t.url + "/v1"), quoted(t.key), quoted("sk-" + t.key));
  plan.needs_file = true;
  return plan;
}

LaunchPlan plan_open_webui(const Target& t) {
  LaunchPlan plan;
  // Without ENABLE_PERSISTENT_CONFIG=False, Open WebUI keeps using the addresses that it stored at its first start.
  plan.environment = {{"OPENAI_API_BASE_URL", t.url + "/v1"},
                      {"OPENAI_API_KEY", t.key},
                      {"DEFAULT_MODELS", t.model},
                      {"ENABLE_PERSISTENT_CONFIG", "False"}};
  plan.command = {"open-webui", "serve", "--port", "3000"};  // its own default port is that of redline serve
  return plan;
}

LaunchPlan plan_librechat(const Target& t) {
  LaunchPlan plan;
  plan.place = "librechat.yaml of LibreChat, below endpoints:";
  plan.text = fmt::format(
      "  custom:\n    - name: \"Redline\"\n      apiKey: {}\n      baseURL: {}\n      models:\n        default: [{}]\n"
      "        fetch: true\n      titleConvo: true\n      titleModel: \"current_model\"\n"
      "      modelDisplayLabel: \"Redline\"\n",
      quoted(t.key), quoted(t.url + "/v1"), quoted(t.model));
  return plan;
}

LaunchPlan plan_anythingllm(const Target& t) {
  LaunchPlan plan;
  plan.environment = {{"LLM_PROVIDER", "generic-openai"},
                      {"GENERIC_OPEN_AI_BASE_PATH", t.url + "/v1"},
                      {"GENERIC_OPEN_AI_API_KEY", t.key},
                      {"GENERIC_OPEN_AI_MODEL_PREF", t.model}};
  if (t.context > 0) plan.environment.emplace_back("GENERIC_OPEN_AI_MODEL_TOKEN_LIMIT", std::to_string(t.context));
  plan.place = "the .env file of AnythingLLM";
  for (const auto& [name, value] : plan.environment) plan.text += fmt::format("{}={}\n", name, quoted(value));
  return plan;
}

LaunchPlan plan_llama_vim(const Target& t) {
  LaunchPlan plan;
  plan.place = "vimrc, before llama.vim is loaded";
  plan.text = fmt::format("let g:llama_config = {{'endpoint_fim': {}, 'endpoint_inst': {}, 'api_key': {}}}",
                          quoted(t.url + "/infill"), quoted(t.url + "/v1/chat/completions"), quoted(t.key));
  plan.command = {"vim", "--cmd", plan.text};
  plan.text += '\n';
  return plan;
}

/// The variables that OpenAI's library reads, and therefore all programs built on it.
LaunchPlan plan_openai(const Target& t) {
  LaunchPlan plan;
  plan.environment = {{"OPENAI_BASE_URL", t.url + "/v1"},
                      {"OPENAI_API_BASE", t.url + "/v1"},  // LangChain and LlamaIndex
                      {"OPENAI_API_KEY", t.key},
                      {"OPENAI_MODEL", t.model}};
  return plan;
}

constexpr Program kPrograms[] = {
    {"claude", "Claude Code", "npm install -g @anthropic-ai/claude-code", plan_claude},
    {"codex", "Codex", "npm install -g @openai/codex", plan_codex},
    {"aider", "aider", "pip install aider-chat", plan_aider},
    {"opencode", "opencode", "npm install -g opencode-ai", plan_opencode},
    {"qwen", "Qwen Code", "npm install -g @qwen-code/qwen-code", plan_qwen},
    {"cline", "Cline", "npm install -g cline", plan_cline},
    {"roo", "Roo Code", "see its documentation", plan_roo},
    {"continue", "Continue", "npm install -g @continuedev/cli", plan_continue},
    {"goose", "Goose", "see its documentation", plan_goose},
    {"zed", "Zed", "see its documentation", plan_zed},
    {"litellm", "litellm's proxy", "pip install 'litellm[proxy]'", plan_litellm},
    {"open-webui", "Open WebUI", "pip install open-webui", plan_open_webui},
    {"librechat", "LibreChat", "see its documentation", plan_librechat},
    {"anythingllm", "AnythingLLM", "see its documentation", plan_anythingllm},
    {"llama.vim", "llama.vim", "see its documentation", plan_llama_vim},
    {"openai", "Programs with OpenAI's library (Agents SDK, LangChain, LlamaIndex, smolagents)", "pip install openai",
     plan_openai},
};

/// Quotes a text as one word for a shell.
std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}
std::string shell_line(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line += (line.empty() ? "" : " ") + shell_word(word);
  return line;
}

/// Asks the server for its models, unless the user has named one.
Result<Target> find_target(const LaunchArgs& args) {
  Target target{args.url, args.model, args.key, 0};
  while (target.url.ends_with('/')) target.url.pop_back();
  if (target.url.ends_with("/v1")) target.url.resize(target.url.size() - std::string_view("/v1").size());
  if (!target.url.starts_with("http://") && !target.url.starts_with("https://"))
    return invalid_argument("flag --url: \"{}\" is no address of http or https, such as http://127.0.0.1:8080",
                            args.url);
  HubHttp http({.endpoint = target.url, .token = args.key, .cache_folder = {}}, {});
  HttpRequest request;
  request.url = target.url + "/v1/models";
  const HttpAnswer answer = http.send(request);
  if (answer.status != 200 || !answer.failure.empty()) {
    if (!args.model.empty()) return target;
    const std::string why = answer.failure.empty() ? fmt::format("status {}", answer.status) : answer.failure;
    return io(
        "no models at {} ({}); start a server with redline serve MODEL, give another --url or --key, or name the model "
        "with --model",
        target.url, why);
  }
  const Json list = parse_json_or_discard<Json>(answer.body);
  const Json models = list.is_object() ? list.value("data", Json::array()) : Json::array();
  std::vector<std::string> names;
  for (const Json& model : models) {
    if (!model.is_object() || !model.value("id", Json()).is_string()) continue;
    names.push_back(model["id"]);
    if (target.model.empty()) target.model = names.back();
    if (names.back() == target.model && model.value("max_model_len", Json()).is_number_integer())
      target.context = model["max_model_len"];
  }
  if (target.model.empty()) return not_found("{} has no models", target.url);
  if (std::find(names.begin(), names.end(), target.model) == names.end())
    return not_found("{} has no model \"{}\"; it has {}", target.url, target.model, fmt::join(names, ", "));
  return target;
}

Result<std::optional<std::string>> read_program_settings(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::optional<std::string>();
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return io("{}: {}", path, std::strerror(errno));
  return std::optional(std::move(text));
}

/// Returns the settings of the existing file with those of the plan added.
Result<std::string> merged_settings(const LaunchPlan& plan, const std::string& before) {
  if (plan.json.is_null()) return plan.text;
  Json all = before.empty() ? Json::object() : parse_json_or_discard<Json>(before);
  if (!all.is_object())
    return invalid_argument("{} is not a JSON object (comments in it would be lost); add this to it yourself:\n{}",
                            plan.file, to_text(plan.json));
  all.merge_patch(plan.json);
  return to_text(all) + "\n";
}

/// Writes the plan's file. An existing file is copied first.
Status write_settings(const Program& program, const LaunchPlan& plan, Terminal& terminal) {
  if (plan.file.empty())
    return invalid_argument("flag --write: {} takes its settings from {}; see redline launch {}", program.title,
                            !plan.place.empty()  ? plan.place
                            : plan.setup.empty() ? "the environment"
                                                 : "a command",
                            program.name);
  REDLINE_ASSIGN(const std::optional<std::string> before, read_program_settings(plan.file));
  REDLINE_ASSIGN(const std::string text, merged_settings(plan, before.value_or("")));
  if (before == text) {
    terminal.note("redline: {} has these settings already", plan.file);
    return {};
  }
  std::error_code error;
  if (const fs::path folder = fs::path(plan.file).parent_path(); !folder.empty()) fs::create_directories(folder, error);
  if (error) return io("{}: {}", plan.file, error.message());
  if (before) {
    std::string kept = plan.file + ".before-redline";
    for (int i = 2; fs::exists(kept, error); ++i) kept = fmt::format("{}.before-redline-{}", plan.file, i);
    fs::copy_file(plan.file, kept, error);
    if (error) return io("{}: {}", kept, error.message());
    terminal.note("redline: {} is kept as {}", plan.file, kept);
  }
  // If the file is a symbolic link, replace the file to which it points.
  const fs::path target = fs::is_symlink(plan.file, error) ? fs::canonical(plan.file, error) : fs::path(plan.file);
  const std::string temporary = target.string() + ".redline-new";
  std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
  fs::permissions(temporary, fs::perms::owner_read | fs::perms::owner_write, error);  // the file contains a key
  file << text;
  file.close();
  if (!file) return io("{}: {}", temporary, std::strerror(errno));
  if (before) fs::permissions(temporary, fs::status(target, error).permissions(), error);
  fs::rename(temporary, target, error);
  if (error) return io("{}: {}", plan.file, error.message());
  terminal.note("redline: wrote {}", plan.file);
  if (!plan.place.empty()) terminal.note("redline: {}:\n{}", plan.place, plan.text);
  return {};
}

void print_plan(const Program& program, const LaunchPlan& plan, const Target& target, Terminal& terminal) {
  terminal.print("# {} with {} at {}\n", program.title, target.model, target.url);
  for (const auto& [name, value] : plan.environment) terminal.print("export {}={}\n", name, shell_word(value));
  if (!plan.setup.empty()) terminal.print("{}\n", shell_line(plan.setup));
  if (!plan.command.empty()) terminal.print("{}\n", shell_line(plan.command));
  if (!plan.place.empty()) terminal.print("\n# {}\n{}", plan.place, plan.text);
  if (plan.file.empty()) return;
  terminal.print("\n# {}, which redline launch {} --write writes\n{}", plan.file, program.name,
                 plan.json.is_null() ? plan.text : to_text(plan.json) + "\n");
}

Status start_program(const Program& program, const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (const std::string& word : words) pointers.push_back(const_cast<char*>(word.c_str()));
  pointers.push_back(nullptr);
  ::execvp(pointers[0], pointers.data());
  const int why = errno;
  if (why == ENOENT)
    return not_found("{} is not in PATH; {}", words[0],
                     std::string_view(program.install).starts_with("see")
                         ? std::string(program.install)
                         : fmt::format("{} installs it", program.install));
  return io("{}: {}", words[0], std::strerror(why));
}

Status run_launch(const LaunchArgs& args, Terminal& terminal) {
  if (!args.arguments.empty() && !args.runs)
    return invalid_argument("\"{}\" is for the program, which only --run starts", args.arguments[0]);
  const Program* program = nullptr;
  for (const Program& p : kPrograms)
    if (args.program == p.name) program = &p;
  REDLINE_ASSIGN(const Target target, find_target(args));
  LaunchPlan plan = program->plan(target);
  if (args.runs && plan.command.empty())
    return invalid_argument("flag --run: {} is not started by one command; see redline launch {}", program->title,
                            program->name);
  if (args.writes || (args.runs && plan.needs_file)) REDLINE_TRY(write_settings(*program, plan, terminal));
  if (!args.runs) {
    if (!args.writes) print_plan(*program, plan, target, terminal);
    return {};
  }
  for (const auto& [name, value] : plan.environment) ::setenv(name.c_str(), value.c_str(), 1);
  if (!plan.setup.empty() && std::system((shell_line(plan.setup) + " >&2").c_str()) != 0)
    return io("{} failed; {} installs it", shell_line(plan.setup), program->install);
  plan.command.insert(plan.command.end(), args.arguments.begin(), args.arguments.end());
  REDLINE_TRY(terminal.finish());
  return start_program(*program, plan.command);
}

const std::vector<std::string>& LaunchArgs::programs() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Program& program : kPrograms) all.push_back(program.name);
    return all;
  }();
  return names;
}

}  // namespace

Command launch_command() {
  return make_command<LaunchArgs, run_launch>(
             "launch", "settings with which a coding agent uses a server",
             "Prints the environment variables, the command and the file that a program needs to use a server of "
             "Redline (redline serve), or writes the file, or starts the program. An existing file is first copied to "
             "NAME.before-redline. Settings in JSON are added to the existing ones.",
             {"redline launch claude", "redline launch codex --write", "redline launch opencode --run",
              "redline launch claude --url http://192.168.0.7:8080 --model qwen3 --run -- --continue"})
      .in("generate", /*after_name=*/"serve");
}

}  // namespace redline::cli
