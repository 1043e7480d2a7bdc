// redline template: the text that a chat template makes of a conversation.
#include <algorithm>
#include <ctime>

#include "base/json_text.h"
#include "base/mapped_file.h"
#include "chat/chat_template.h"
#include "cli/chat_template.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "models/checkpoint/model_tokenizer.h"

namespace redline::cli {
namespace {

struct TemplateArgs {
  std::string model;
  std::string messages;
  std::optional<std::string> tools, chat_template, now, batch;
  std::vector<std::string> variables;
  bool no_generation_prompt = false, json = false;
  void visit(OptionList& v) {
    v.argument(model, "MODEL|FILE.jinja", "GGUF file, Hugging Face folder, or a template",
               {.names_file = true, .aliases = {"-m", "--model"}});
    v(messages, "messages", "FILE", "the conversation: a JSON list of messages; - reads standard input",
      {.names_file = true});
    v(tools, "tools", "FILE", "a JSON list of tools, as in OpenAI's API", {.names_file = true});
    v(no_generation_prompt, "no-generation-prompt", "", "do not begin the assistant's answer");
    v(variables, "var", "NAME=JSON", "a further variable of the template, such as enable_thinking=false");
    v(chat_template, "chat-template", "FILE|NAME",
      fmt::format("a template for a model that has none: a file, or one of {}",
                  fmt::join(builtin_chat_template_names(), ", ")),
      {.names_file = true});
    v(now, "now", "TIME", "what strftime_now takes as the time, YYYY-MM-DDTHH:MM:SS",
      {.shown_default = "the local time"});
    v(batch, "batch", "FILE",
      "render every line of FILE, a JSON object with messages, tools, variables, add_generation_prompt, and template "
      "for "
      "another template text; prints a JSON object with text or error for each",
      {.names_file = true, .not_with = {"messages", "tools", "var", "no-generation-prompt", "json"}});
    v(json, "json", "", "print JSON");
  }
};

Result<std::string> read_argument(const std::string& path, Terminal& terminal) {
  if (path == "-") return terminal.read_input();
  return read_text_file(path);
}

Result<std::tm> read_time(const std::string& text) {
  std::tm time{};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (!end || *end) return invalid_argument("flag --now: \"{}\" is not a time of the form YYYY-MM-DDTHH:MM:SS", text);
  time.tm_isdst = -1;
  std::mktime(&time);  // sets the day of the week and of the year
  return time;
}

Result<ChatTemplateSource> find_source(const TemplateArgs& args) {
  if (args.model.ends_with(".jinja")) {
    ChatTemplateSource source;
    REDLINE_ASSIGN(source.text, read_text_file(args.model));
    return source;
  }
  REDLINE_ASSIGN(const std::string path, find_model(args.model));
  REDLINE_ASSIGN(ChatTemplateSource source, load_chat_template_source(path));
  if (args.chat_template) {
    REDLINE_ASSIGN(source.text, read_chat_template(*args.chat_template));
    source.tool_use.clear();
  }
  if (source.text.empty())
    return not_found("{} has no chat template; give one with --chat-template FILE, or by name: {}", path,
                     fmt::join(builtin_chat_template_names(), ", "));
  return source;
}

/// Renders one line of --batch.
Result<std::string> render_line(const Json& line, const ChatTemplate& usual, const ChatTemplateOptions& options) {
  if (!line.is_object()) return invalid_argument("expected an object");
  const auto text_of = [&](const char* name, const char* otherwise) {
    return line.contains(name) ? to_text(line[name], -1) : std::string(otherwise);
  };
  const std::string messages = text_of("messages", "[]"), tools = text_of("tools", ""),
                    variables = text_of("variables", "");
  ChatInput input{messages, tools, variables};
  if (line.contains("add_generation_prompt")) input.add_generation_prompt = line["add_generation_prompt"] == true;
  if (!line.contains("template")) return usual.render(input);
  if (!line["template"].is_string()) return invalid_argument("template: expected a string");
  REDLINE_ASSIGN(const ChatTemplate own, ChatTemplate::compile(line["template"].get<std::string>(), options));
  return own.render(input);
}

Status run_batch(const std::string& path, const ChatTemplate& usual, const ChatTemplateOptions& options,
                 Terminal& terminal) {
  REDLINE_ASSIGN(const std::string lines, read_argument(path, terminal));
  size_t number = 0;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string_view text = std::string_view(lines).substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const Json line = parse_json_or_discard<Json>(text);
    if (line.is_discarded()) return invalid_argument("{}: line {} is not JSON", path, number);
    const auto rendered = render_line(line, usual, options);
    const Json out = rendered.ok() ? Json{{"text", *rendered}} : Json{{"error", rendered.status().message()}};
    if (!terminal.write(to_text(out, -1) + "\n")) break;
  }
  return {};
}

Status run_template(const TemplateArgs& args, Terminal& terminal) {
  if (args.messages.empty() && !args.batch) return invalid_argument("give the conversation: --messages FILE.json");
  REDLINE_ASSIGN(ChatTemplateSource source, find_source(args));
  ChatTemplateOptions options;
  options.special_tokens_json = std::move(source.special_tokens_json);
  if (args.now) {
    REDLINE_ASSIGN(options.now, read_time(*args.now));
  }
  const ChatTemplateOptions shared = options;
  options.tool_use = std::move(source.tool_use);
  REDLINE_ASSIGN(const ChatTemplate compiled,
                 ChatTemplate::compile(std::move(source.text), std::move(options)).within(args.model));
  if (args.batch) return run_batch(*args.batch, compiled, shared, terminal);
  REDLINE_ASSIGN(const std::string messages, read_argument(args.messages, terminal));
  std::string tools;
  if (args.tools) {
    REDLINE_ASSIGN(tools, read_argument(*args.tools, terminal));
  }
  REDLINE_ASSIGN(const std::string variables, variables_json(args.variables));
  Result<std::string> rendered = compiled.render({messages, tools, variables, !args.no_generation_prompt});
  if (!rendered.ok()) {
    const bool in_messages = rendered.status().message().starts_with("messages:"),
               in_tools = args.tools && rendered.status().message().starts_with("tools:");
    if (in_messages || in_tools) return std::move(rendered).status().within(in_messages ? args.messages : *args.tools);
    return std::move(rendered).status();
  }
  const std::string text = std::move(rendered).value();
  if (args.json) return print_json({{"text", text}}, terminal, -1);
  terminal.write(text);
  return {};
}

}  // namespace

Command template_command() {
  return make_command<TemplateArgs, run_template>(
             "template", "show what a chat template makes of a conversation",
             "The text is the same as that of transformers' apply_chat_template. Errors of the template give line and "
             "column.",
             {"redline template model.gguf --messages chat.json",
              "redline template chat_template.jinja --messages chat.json --tools tools.json --var "
              "enable_thinking=false",
              "redline template assets/redline-tales --messages chat.json --chat-template chatml"})
      .in("look inside", /*after_name=*/"tokenize");
}

}  // namespace redline::cli
