// Help, docs/cli.md: both written from the option lists.
#include "cli/command.h"

namespace redline::cli {
namespace {

constexpr size_t kWidth = 100;

/// `text` broken at spaces to lines of at most kWidth, each but the first
/// indented.
std::string wrap(std::string_view text, size_t indent, size_t column) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    if (column + (end - begin) > kWidth && column > indent) {
      result.back() = '\n';
      result.append(indent, ' ');
      column = indent;
    }
    result += text.substr(begin, end - begin);
    column += end - begin + 1;
    if (end < text.size()) result += text[end];
    if (end < text.size() && text[end] == '\n') {
      result.append(indent, ' ');
      column = indent;
    }
    begin = end + 1;
  }
  return result;
}

std::string spelling(const Option& o) {
  if (o.is_argument) return o.name;
  std::string text = o.rule.letter ? fmt::format("-{}, ", o.rule.letter) : "    ";
  text += "--" + o.name;
  return o.value.empty() ? text : text + " " + o.value;
}

std::string limits(const Option& o) {
  std::string text;
  if (!o.rule.choices.empty()) text += fmt::format(" one of {};", fmt::join(o.rule.choices, ", "));
  if (o.rule.min && o.rule.max) text += fmt::format(" {} to {};", *o.rule.min, *o.rule.max);
  if (!o.default_text.empty()) text += fmt::format(" default {};", o.default_text);
  if (o.is_repeatable) text += " may be repeated;";
  if (text.empty()) return text;
  text.back() = ')';
  text[0] = '(';
  return " " + text;
}

std::string option_table(const OptionList& options, bool arguments) {
  const Option help{"help", "", "this text", {.letter = 'h'}};
  std::vector<const Option*> rows;
  for (const Option& o : options.all())
    if (o.is_argument == arguments) rows.push_back(&o);
  if (!arguments) rows.push_back(&help);
  size_t width = 0;
  for (const Option* o : rows) width = std::max(width, spelling(*o).size());
  width = std::min<size_t>(width, 30);
  std::string text;
  for (const Option* o : rows) {
    std::string left = fmt::format("  {:<{}}  ", spelling(*o), width);
    if (left.size() > width + 4) left += fmt::format("\n{:{}}", "", width + 4);
    text += left + wrap(o->help + limits(*o), width + 4, width + 4) + "\n";
  }
  return text;
}

std::string exit_codes() {
  std::string text;
  for (const Code code : {Code::ok, Code::internal, Code::invalid_argument, Code::not_found, Code::unsupported,
                          Code::out_of_memory, Code::io, Code::cancelled})
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", exit_code(code), code_name(code));
  return text;
}

std::string usage(const Command& command) {
  std::string text;
  command.with_options(
      [&](const OptionList& options) { text = usage_of(options, fmt::format("redline {}", command.name)); });
  return text;
}

}  // namespace

std::string help_text(const Command& command) {
  std::string text = fmt::format("redline {}: {}\n\nusage: {}\n", command.name, command.summary, usage(command));
  if (*command.details) text += "\n" + wrap(command.details, 0, 0) + "\n";
  command.with_options([&](const OptionList& options) {
    const std::string arguments = option_table(options, true);
    if (!arguments.empty()) text += "\narguments:\n" + arguments;
    text += "\noptions:\n" + option_table(options, false);
  });
  if (!command.examples.empty()) text += fmt::format("\nexamples:\n  {}\n", fmt::join(command.examples, "\n  "));
  return text + "\nexit codes: " + wrap(exit_codes(), 2, 12) + "\n";
}

Status print_help(const Command& command, Terminal& terminal) {
  terminal.write(help_text(command));
  return {};
}

std::string markdown_help() {
  std::string text =
      "<!-- Made by `redline help --markdown`; a test keeps it "
      "equal. -->\n\n# The `redline` command\n\n"
      "Results go to standard output, everything else to "
      "standard error. `--json` gives one JSON document for "
      "programs; "
      "a failure\nthen leaves standard output empty and writes "
      "`{\"error\": {\"code\", \"message\"}}` to standard "
      "error.\n\n"
      "| command | what it does |\n|---|---|\n";
  for (const Command& c : commands()) text += fmt::format("| [`{}`](#redline-{}) | {} |\n", c.name, c.name, c.summary);
  text +=
      "\n## Models\n\nMODEL is a GGUF file (any part of a split one) or a "
      "Hugging Face folder. A name that does not "
      "exist "
      "as given is looked\nup in `assets/` of the current folder and in "
      "`share/redline/` beside the program's "
      "`bin/`.\n";
  text += "\n## Exit codes\n\n| exit code | meaning |\n|---|---|\n";
  for (int n = 0; n <= 130; ++n)
    for (int c = 0; c <= static_cast<int>(Code::internal); ++c)
      if (exit_code(static_cast<Code>(c)) == n)
        text += fmt::format("| {} | {} |\n", n, code_name(static_cast<Code>(c)));
  for (const Command& c : commands()) text += fmt::format("\n## redline {}\n\n```text\n{}```\n", c.name, help_text(c));
  return text;
}

namespace {

struct HelpArgs {
  std::optional<std::string> command;
  bool markdown = false;
  void visit(OptionList& v) {
    v.argument(command, "COMMAND", "the command to explain; all of them are listed without it", {.optional = true});
    v(markdown, "markdown", "", "print the help of every command as docs/cli.md has it");
  }
};

Status run_help(const HelpArgs& args, Terminal& terminal) {
  if (args.markdown) {
    terminal.write(markdown_help());
    return {};
  }
  if (args.command) {
    if (const Command* command = find_command(*args.command)) return print_help(*command, terminal);
    std::vector<std::string> names;
    for (const Command& c : commands()) names.push_back(c.name);
    return invalid_argument("unknown command '{}'{}", *args.command, nearest_hint(*args.command, names));
  }
  terminal.print(
      "{}: language models on this machine\n\nusage: redline "
      "COMMAND ...\n\ncommands:\n",
      version_text());
  for (const Command& c : commands()) terminal.print("  {:<11} {}\n", c.name, c.summary);
  terminal.print(
      "\nstart:  redline run assets/redline-tales \"Once upon a "
      "time\"\nmore:   redline help COMMAND\n");
  return {};
}

}  // namespace

Command help_command() {
  return make_command<HelpArgs, run_help>("help", "explain a command", "", {"redline help run"});
}

}  // namespace redline::cli
