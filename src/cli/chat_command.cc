// redline chat: a conversation with a language model, on a terminal or through a pipe.
#include <unistd.h>

#include <algorithm>
#include <map>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "chat/chat_template.h"
#include "cli/answer_view.h"
#include "cli/chat_session.h"
#include "cli/chat_template.h"
#include "cli/command.h"
#include "cli/constraint_args.h"
#include "cli/engine_options.h"
#include "cli/line_reader.h"
#include "cli/lora_option.h"
#include "cli/sampling_args.h"
#include "cli/table.h"
#include "hub/hub_name.h"

namespace redline::cli {
namespace {

const std::vector<std::string> kOnOff = {"on", "off"};

/// The settings that /set changes.
struct ChatSettings {
  int64_t max_tokens = -1;
  SamplingArgs sampling;
  ConstraintArgs constraint;
  std::vector<std::string> stop;
  std::string reasoning = "show";
  std::optional<std::string> think;

  void visit(OptionList& v) {
    v(max_tokens, "max-tokens", "N", "stop an answer after N tokens; -1: at its end, or that of the context",
      {.letter = 'n', .min = -1, .aliases = {"--n-predict", "--predict", "--num-predict", "--max-new-tokens"}});
    v(stop, "stop", "TEXT", "stop when TEXT appears; TEXT is not printed");
    v(reasoning, "reasoning", "HOW",
      "reasoning of the model: dimmed, as one line with its length, or not shown; in a pipe it is "
      "printed only with this flag",
      {.choices = {"show", "fold", "hide"}});
    v(think, "think", "on|off", "whether the model should reason (the switch of its template)",
      {.choices = kOnOff, .shown_default = "the model's own"});
    constraint.visit(v);
    sampling.visit(v);
  }
};

struct ChatArgs {
  std::string model;
  std::optional<std::string> message, system, chat_template, load;
  std::vector<std::string> lora, variables;
  bool stats = false;
  ChatSettings settings;
  DraftingEngineArgs engine;
  std::set<std::string> given;

  void visit(OptionList& v) {
    v.argument(model, "MODEL", "GGUF file, Hugging Face folder or hf:owner/name",
               {.names_file = true, .aliases = {"-m", "--model"}});
    v.argument(message, "MESSAGE", "answer this one message and end; - reads it from standard input",
               {.optional = true, .aliases = {"-p", "--prompt"}});
    v(system, "system", "TEXT|@FILE", "the system message", {.aliases = {"-sys", "--system-prompt"}});
    v(load, "load", "FILE", "continue a conversation written by /save", {.names_file = true});
    v(stats, "stats", "", "print the speed after each answer", {.aliases = {"--verbose"}});
    v(lora, "lora", "FILE[:WEIGHT]", "LoRA adapter to apply (PEFT folder or GGUF), with an optional weight",
      {.names_file = true});
    v(chat_template, "chat-template", "FILE|NAME",
      fmt::format("a template for a model that has none: a file, or one of {}",
                  fmt::join(builtin_chat_template_names(), ", ")),
      {.names_file = true, .aliases = {"--chat-template-file"}});
    v(variables, "var", "NAME=JSON", "a further variable of the template, such as enable_thinking=false");
    engine.visit(v);
    settings.visit(v);
    v.group("");
    add_chat_peers(v);
  }
};

struct ChatCommand {
  const char *name, *argument, *help;
};
constexpr ChatCommand kChatCommands[] = {
    {"/help", "", "this list"},
    {"/exit", "", "end; also /quit, /bye and Ctrl-D"},
    {"/reset", "", "forget the conversation, but not the system message; also /clear"},
    {"/system", "[TEXT]", "show the system message, or set it"},
    {"/retry", "", "answer the last message again; also /regenerate"},
    {"/edit", "[TEXT]", "change the last message and answer that"},
    {"/undo", "", "forget the last message and its answer"},
    {"/history", "", "show the conversation"},
    {"/save", "FILE", "write the conversation as JSON"},
    {"/load", "FILE", "continue a saved conversation"},
    {"/set", "[NAME VALUE]", "show the settings, or set one; VALUE default resets it"},
    {"/stats", "", "the speed of the last answer, and how full the context is"},
};

constexpr std::pair<const char*, const char*> kSynonyms[] = {
    {"/quit", "/exit"}, {"/bye", "/exit"}, {"/clear", "/reset"}, {"/regenerate", "/retry"}, {"/?", "/help"}};

std::string stats_text(const ChatTurn& turn, const ModelInfo& info) {
  const GenerateResult& r = turn.result;
  const int64_t new_tokens = r.prompt_tokens - r.cached_tokens, written = std::ssize(r.tokens);
  std::string text = fmt::format("prompt {} tokens, of which {} were there", r.prompt_tokens, r.cached_tokens);
  if (r.prefill_ms > 0)
    text +=
        fmt::format(": {:.0f} ms, {:.1f} tokens/s", r.prefill_ms, 1e3 * static_cast<double>(new_tokens) / r.prefill_ms);
  text += fmt::format("; answer {} tokens", written);
  if (turn.reasoning_tokens > 0) text += fmt::format(", {} of reasoning", turn.reasoning_tokens);
  if (r.decode_ms > 0)
    text += fmt::format(", {:.1f} tokens/s", 1e3 * static_cast<double>(r.decode_tokens) / r.decode_ms);
  return text + fmt::format("; context {} of {}", r.prompt_tokens + written, info.context);
}

class Chat {
 public:
  Chat(const ChatArgs& args, TextEngine& engine, AdapterWeights adapters, std::string variables, LineReader& reader,
       Terminal& terminal)
      : engine_(engine), adapters_(std::move(adapters)), reader_(reader), terminal_(terminal),
        session_(engine, std::move(variables)), at_start_(args.settings), settings_(args.settings), stats_(args.stats),
        shows_reasoning_(::isatty(fileno(terminal.output())) == 1 || args.given.contains("reasoning")) {}

  ChatSession& session() { return session_; }

  /// Asks and answers until the input ends. In a pipe the first error ends it too.
  Status loop() {
    while (!is_over_) {
      std::string message;
      const TypedLine::Kind kind = read_message(message);
      if (kind == TypedLine::Kind::kEnd) break;
      if (kind == TypedLine::Kind::kInterrupted || message.find_first_not_of(" \t\n") == std::string::npos) continue;
      reader_.remember(message);
      Status status = take(message);
      if (status.ok()) continue;
      if (!reader_.is_interactive()) return status;
      terminal_.note("redline: {}", status.message());
    }
    return {};
  }

  Status ask(const std::string& message) {
    session_.messages().push_back({"user", message, ""});
    Status status = answer();
    // Drop a message that could not be answered.
    if (!status.ok() && !session_.messages().empty() && session_.messages().back().role == "user")
      session_.messages().pop_back();
    return status;
  }

  Status apply(const ChatSettings& settings) {
    session_.set_thinking(settings.think.value_or(""));
    return {};
  }

 private:
  /// Reads a message: one line, or several lines if a line ends in a backslash or the text is between """ and """.
  TypedLine::Kind read_message(std::string& message) {
    constexpr const char *kPrompt = ">>> ", *kMore = "... ";
    constexpr std::string_view kQuotes = "\"\"\"";
    TypedLine line = reader_.read(kPrompt, std::exchange(preset_, ""));
    bool is_quoted = false;
    if (line.text.starts_with(kQuotes)) {
      is_quoted = true;
      line.text.erase(0, kQuotes.size());
    }
    for (;;) {
      if (line.kind == TypedLine::Kind::kInterrupted) {
        if (message.empty() && line.text.empty()) terminal_.note("(Ctrl-D or /exit ends the conversation)");
        return line.kind;
      }
      if (line.kind == TypedLine::Kind::kEnd) return message.empty() ? line.kind : TypedLine::Kind::kLine;
      message += line.text;
      if (is_quoted && message.ends_with(kQuotes)) {
        message.resize(message.size() - kQuotes.size());
        return line.kind;
      }
      if (!is_quoted && !message.ends_with('\\')) return line.kind;
      if (!is_quoted) message.pop_back();
      message += '\n';
      line = reader_.read(kMore);
    }
  }

  /// Executes what was typed: a message, or a command.
  Status take(const std::string& text) {
    if (!text.starts_with('/')) return ask(text);
    if (text.starts_with("//")) return ask(text.substr(1));
    const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    std::string name = text.substr(0, end);
    const size_t begin = text.find_first_not_of(" \t\n", end);
    const std::string rest = begin == std::string::npos ? "" : text.substr(begin);
    for (const auto& [other, meant] : kSynonyms)
      if (name == other) name = meant;
    using Function = Status (Chat::*)(const std::string&);
    static const std::map<std::string, Function> functions = {
        {"/help", &Chat::help},   {"/exit", &Chat::exit},       {"/reset", &Chat::reset}, {"/system", &Chat::system},
        {"/retry", &Chat::retry}, {"/edit", &Chat::edit},       {"/undo", &Chat::undo},   {"/history", &Chat::history},
        {"/save", &Chat::save},   {"/load", &Chat::load_named}, {"/set", &Chat::set},     {"/stats", &Chat::stats}};
    const auto found = functions.find(name);
    if (found != functions.end()) return (this->*found->second)(rest);
    std::vector<std::string> names;
    names.reserve(std::size(kChatCommands));
    for (const ChatCommand& command : kChatCommands) names.emplace_back(command.name);
    const std::string hint = nearest_hint(name, names);
    return invalid_argument("{} is not a command{}; // begins a message with a slash", name,
                            hint.empty() ? "; /help lists them" : hint);
  }

  Status answer() {
    GenerateRequest request;
    REDLINE_ASSIGN(request.sampling, settings_.sampling.options(engine_.default_sampling()));
    // With a fixed seed, /retry must give a different answer, so the number of answers is added.
    if (settings_.sampling.seed) request.sampling.seed = *settings_.sampling.seed + num_answers_;
    request.max_tokens = settings_.max_tokens < 0 ? engine_.info().context : settings_.max_tokens;
    request.stop = settings_.stop;
    REDLINE_ASSIGN(request.constraint, settings_.constraint.constraint());
    REDLINE_TRY(note_unenforced(engine_, request.constraint, terminal_));
    request.adapters = adapters_;
    const InterruptGuard guard;
    AnswerView view(terminal_, shown_reasoning());
    std::optional<Progress> reading(std::in_place, "reading", 0);
    const Result<ChatTurn> turn = session_.answer(
        std::move(request),
        [&](const ChatDelta& delta) {
          reading.reset();
          return view.take(delta);
        },
        [&] { return !InterruptGuard::interrupted() && !terminal_.reader_is_gone(); });
    reading.reset();
    REDLINE_TRY(turn.status());
    view.finish();
    ++num_answers_;
    last_stats_ = stats_text(*turn, engine_.info());
    note_ending(turn->result);
    if (stats_) terminal_.note("{}", last_stats_);
    if (terminal_.reader_is_gone()) is_over_ = true;
    if (InterruptGuard::interrupted() && !reader_.is_interactive()) return Status(Code::cancelled, "");
    return {};
  }

  void note_ending(const GenerateResult& result) {
    const ModelInfo& info = engine_.info();
    if (result.reason == FinishReason::kCancelled) terminal_.note("(stopped; /retry answers again)");
    if (result.reason == FinishReason::kLength && settings_.max_tokens >= 0)
      terminal_.note("(ended after {} tokens: max-tokens)", result.tokens.size());
    const bool is_full =
        result.reason == FinishReason::kContext || (result.reason == FinishReason::kLength && settings_.max_tokens < 0);
    if (!is_full) return;
    const std::string more =
        info.model_context > info.context ? fmt::format(", --context N allows up to {}", info.model_context) : "";
    terminal_.note("(the context of {} tokens is full: /reset starts a new conversation{})", info.context, more);
  }

  ReasoningView shown_reasoning() const {
    if (!shows_reasoning_ || settings_.reasoning == "hide") return ReasoningView::kHide;
    return settings_.reasoning == "fold" ? ReasoningView::kFold : ReasoningView::kShow;
  }

  Status help(const std::string&) {
    Table table({""});
    for (const ChatCommand& command : kChatCommands)
      table.add({fmt::format("{} {}", command.name, command.argument), command.help});
    terminal_.write(table.text());
    terminal_.write(
        "\n/set takes the flags of the command line: temperature, top-p, seed, max-tokens,\nstop, grammar, "
        "json-schema, regex, "
        "think, reasoning ..., and stats on or off.\n"
        "\nA line that ends in \\ continues in the next one; \"\"\" begins and ends a text of\nseveral lines; "
        "Alt-Enter and Ctrl-J break a line. Ctrl-C stops an answer; the\narrow keys and Ctrl-R find earlier "
        "messages.\n");
    return {};
  }
  Status exit(const std::string&) {
    is_over_ = true;
    return {};
  }
  Status reset(const std::string&) {
    session_.reset();
    terminal_.note("(the conversation is empty)");
    return {};
  }
  Status system(const std::string& text) {
    if (text.empty()) {
      terminal_.note("{}", session_.system().empty() ? "(no system message)" : session_.system());
      return {};
    }
    session_.set_system(text == "none" ? "" : text);
    terminal_.note("(the system message is {})", text == "none" ? "removed" : "set");
    return {};
  }
  Status retry(const std::string&) {
    const std::string question = session_.drop_last_turn();
    if (question.empty()) return not_found("there is no message to answer again");
    return ask(question);
  }
  Status edit(const std::string& text) {
    if (text.empty() && !reader_.is_interactive()) return invalid_argument("/edit needs the new text");
    const std::string question = session_.drop_last_turn();
    if (question.empty()) return not_found("there is no message to edit");
    if (!text.empty()) return ask(text);
    preset_ = question;
    return {};
  }
  Status undo(const std::string&) {
    if (session_.drop_last_turn().empty()) return not_found("there is no message");
    terminal_.note("(the last message and its answer are forgotten)");
    return {};
  }
  Status history(const std::string&) {
    for (const ChatMessage& message : session_.messages()) terminal_.print("[{}]\n{}\n", message.role, message.content);
    terminal_.flush();
    return {};
  }
  Status save(const std::string& path) {
    if (path.empty()) return invalid_argument("/save needs the name of a file");
    REDLINE_TRY(write_file(path, to_text(session_.to_json()) + "\n"));
    terminal_.note("({} messages written to {})", session_.messages().size(), printable(path));
    return {};
  }
  Status load_named(const std::string& path) {
    if (path.empty()) return invalid_argument("/load needs the name of a file");
    REDLINE_ASSIGN(const std::string text, read_text_file(path));
    REDLINE_TRY(session_.load(text).within(path));
    terminal_.note("({} messages; /history shows them)", session_.messages().size());
    return {};
  }
  Status stats(const std::string&) {
    if (last_stats_.empty()) return not_found("there is no answer yet");
    terminal_.note("{}", last_stats_);
    return {};
  }

  Status set(const std::string& text) {
    if (text.empty()) return show_settings();
    const size_t end = std::min(text.find_first_of(" \t="), text.size());
    const size_t begin = text.find_first_not_of(" \t=", end);
    std::string name = text.substr(0, end);
    name.erase(0, name.find_first_not_of('-'));
    std::replace(name.begin(), name.end(), '_', '-');
    if (begin == std::string::npos) return invalid_argument("/set {} needs a value, or default", name);
    const std::string value = text.substr(begin);
    if (name == "stats") {
      if (value != "on" && value != "off") return invalid_argument("/set stats: expected on or off");
      stats_ = value == "on";
      return {};
    }
    // /set accepts the flags of the command line, with the same names and checks.
    std::map<std::string, std::string> assigned = assigned_;
    if (value == "default") assigned.erase(name);
    else assigned[name] = value;
    ChatSettings settings = at_start_;
    OptionList options;
    settings.visit(options);
    if (!options.find(name)) {
      std::vector<std::string> names = {"stats"};
      names.reserve(1 + options.all().size());
      for (const Option& option : options.all()) names.push_back(option.name);
      return invalid_argument("/set: there is no setting \"{}\"{}", name, nearest_hint(name, names));
    }
    std::vector<std::string> arguments;
    arguments.reserve(assigned.size());
    for (const auto& [key, given] : assigned) arguments.push_back(fmt::format("--{}={}", key, given));
    REDLINE_TRY(parse_options(options, arguments, "/set").status());
    REDLINE_TRY(settings.constraint.constraint().status());
    REDLINE_TRY(settings.sampling.options(engine_.default_sampling()).status());
    REDLINE_TRY(apply(settings));
    assigned_ = std::move(assigned);
    settings_ = std::move(settings);
    return {};
  }

  Status show_settings() {
    REDLINE_ASSIGN(const SamplingOptions sampling, settings_.sampling.options(engine_.default_sampling()));
    Table table({""});
    table.add({"samplers", samplers_text(sampling)});
    table.add({"max-tokens", settings_.max_tokens < 0 ? "to the end" : fmt::format("{}", settings_.max_tokens)});
    if (settings_.sampling.seed) table.add({"seed", fmt::format("{}", *settings_.sampling.seed)});
    table.add({"reasoning", settings_.reasoning});
    table.add({"stats", stats_ ? "on" : "off"});
    for (const auto& [name, value] : assigned_) table.add({"/set " + name, value});
    terminal_.write(table.text());
    terminal_.flush();
    return {};
  }

  TextEngine& engine_;
  const AdapterWeights adapters_;
  LineReader& reader_;
  Terminal& terminal_;
  ChatSession session_;
  const ChatSettings at_start_;
  ChatSettings settings_;
  std::map<std::string, std::string> assigned_;  ///< values set by /set
  bool stats_, is_over_ = false;
  const bool shows_reasoning_;
  uint64_t num_answers_ = 0;
  std::string preset_;  ///< text with which the next line begins
  std::string last_stats_;
};

Result<std::string> text_or_file(const std::string& text) {
  if (!text.starts_with('@')) return text;
  return read_text_file(text.substr(1));
}

void greet(const ChatArgs& args, const ModelInfo& info, Terminal& terminal) {
  terminal.note("{}: {}, {} parameters, context {}. /help lists commands, Ctrl-C stops an answer, Ctrl-D ends.",
                printable(is_hub_name(args.model) ? args.model : short_name(info.path)), info.architecture,
                info.parameters, info.context);
}

Status run_chat(const ChatArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(TextEngineOptions options, args.engine.options());
  options.max_sequences = 1;
  if (args.chat_template) options.chat_template = *args.chat_template;
  REDLINE_ASSIGN(AdapterWeights adapters, read_text_adapters(args.lora, options.max_adapter_rank));
  std::string variables;
  if (!args.variables.empty()) {
    REDLINE_ASSIGN(variables, variables_json(args.variables));
  }
  std::string message, conversation;
  if (args.message && *args.message == "-") {
    REDLINE_ASSIGN(message, terminal.read_input());
    if (message.ends_with('\n')) message.pop_back();
  } else if (args.message) {
    message = *args.message;
  }
  if (args.load) {
    REDLINE_ASSIGN(conversation, read_text_file(*args.load));
  }
  REDLINE_ASSIGN(const auto engine, open_engine(args.model, options, terminal));
  if (!engine->info().has_chat_template)
    return not_found(
        "{}: has no chat template; `redline run` continues a text with it, and --chat-template gives it one: a file, "
        "or {}",
        engine->info().path, fmt::join(builtin_chat_template_names(), ", "));
  for (const auto& [file, weight] : adapters) REDLINE_TRY(engine->load_adapter(file, file));

  LineReader::Options editing;
  editing.history_file = state_file("chat_history");
  for (const ChatCommand& command : kChatCommands) editing.words.emplace_back(command.name);
  const std::unique_ptr<LineReader> reader = LineReader::open(terminal, editing);
  Chat chat(args, *engine, std::move(adapters), std::move(variables), *reader, terminal);
  if (!conversation.empty()) REDLINE_TRY(chat.session().load(conversation).within(*args.load));
  if (args.system) {
    REDLINE_ASSIGN(const std::string system, text_or_file(*args.system));
    chat.session().set_system(system);
  }
  REDLINE_TRY(chat.apply(args.settings));
  if (args.message) return chat.ask(message);
  if (reader->is_interactive()) greet(args, engine->info(), terminal);
  return chat.loop();
}

}  // namespace

Command chat_command() {
  return make_command<ChatArgs, run_chat>(
             "chat", "talk with a language model",
             "On a terminal, lines are edited with the arrow keys, and what was typed is kept in "
             "~/.local/state/redline/chat_history. "
             "/help lists the commands of a conversation. Ctrl-C stops an answer and keeps the conversation. In a pipe "
             "every "
             "line is a "
             "message, or a command, and every answer ends with a line break; the first error ends it. What the model "
             "has "
             "read is not "
             "computed again: a turn costs its own tokens.",
             {"redline chat assets/redline-tales", "redline chat hf:Qwen/Qwen3-0.6B",
              "redline chat model.gguf --system \"Answer in one sentence.\" --temperature 0",
              "redline chat model.gguf \"Is 91 a prime?\" --choice yes --choice no",
              "printf 'Hello\\nAnd again\\n' | redline chat model.gguf --stats"})
      .in("generate", /*after_name=*/"run");
}

}  // namespace redline::cli
