// Help and docs/cli.md, generated from the option lists.
#include <algorithm>

#include "cli/command.h"
#include "cli/json_fields.h"
#include "cli/option_rows.h"
#include "cli/terminal_image.h"
#include "server/known_fields.h"

namespace redline::cli {
namespace {

constexpr size_t kMaxWidth = 100, kMinWidth = 40;

/// Returns the width for help: the columns of the terminal, within limits that keep the text readable.
size_t width_of(const Terminal& terminal) {
  const Screen screen = Screen::of(terminal.output());
  return screen.is_terminal ? std::clamp(static_cast<size_t>(screen.columns), kMinWidth, kMaxWidth) : kMaxWidth;
}

/// Wraps `text` at spaces to at most `width` columns; continuation lines are indented.
std::string wrap(std::string_view text, size_t width, size_t indent, size_t column) {
  std::string result;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = std::min(text.find_first_of(" \n", begin), text.size());
    if (column + (end - begin) > width && column > indent) {
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
  if (!o.rule.aliases.empty()) text += fmt::format(" also {};", fmt::join(o.rule.aliases, ", "));
  if (text.empty()) return text;
  text.back() = ')';
  text[0] = '(';
  return " " + text;
}

/// Returns the table of the arguments, or of the options of a group. With `without_rows`, options from the tables of
/// options are left out.
std::string option_table(const OptionList& options, bool arguments, std::string_view group, size_t width,
                         bool without_rows = false) {
  const Option help{"help", "", "this text", {.letter = 'h'}};
  std::vector<const Option*> rows;
  for (const Option& o : options.all())
    if (o.is_argument == arguments && (arguments || o.group == group) && !(without_rows && o.rule.is_table_row))
      rows.push_back(&o);
  if (!arguments && group.empty()) rows.push_back(&help);
  constexpr size_t kMaxLeft = 30, kNarrow = 70;
  size_t left_width = 0;
  for (const Option* o : rows) left_width = std::max(left_width, spelling(*o).size());
  left_width = std::min(left_width, width < kNarrow ? 4 : kMaxLeft);
  std::string text;
  for (const Option* o : rows) {
    std::string left = fmt::format("  {:<{}}  ", spelling(*o), left_width);
    if (left.size() > left_width + 4) {
      left.erase(left.find_last_not_of(' ') + 1);
      left += fmt::format("\n{:{}}", "", left_width + 4);
    }
    text += left + wrap(o->help + limits(*o), width, left_width + 4, left_width + 4) + "\n";
  }
  return text;
}

/// Wraps a command line to at most `width` columns, so that a shell still reads it as one command.
std::string wrap_command(std::string_view command, size_t width, size_t indent) {
  std::string text(indent, ' ');
  size_t column = indent;
  for (size_t begin = 0; begin < command.size();) {
    char quote = 0;
    size_t end = begin;
    for (; end < command.size() && (command[end] != ' ' || quote != 0); ++end) {
      if (quote != 0 && command[end] == quote) quote = 0;
      else if (quote == 0 && (command[end] == '"' || command[end] == '\'')) quote = command[end];
    }
    const size_t word = end - begin;
    if (column > indent && column + word + 3 > width) {
      text += fmt::format(" \\\n{:{}}", "", indent + 4);
      column = indent + 4;
    } else if (column > indent) {
      text += ' ';
      ++column;
    }
    text += command.substr(begin, word);
    column += word;
    begin = end + 1;
  }
  return text + "\n";
}

struct ExitCode {
  Code code;
  const char* meaning;
};
constexpr ExitCode kExitCodes[] = {
    {Code::ok, "success"},
    {Code::internal, "an error in Redline"},
    {Code::invalid_argument,
     "the command line is wrong, or a file is: damaged, incomplete, or of a kind that the command does not take"},
    {Code::not_found, "a file or model does not exist, or a file lacks the part that the command needs"},
    {Code::unsupported, "the input is valid, but Redline does not support it: an architecture, a type, a method"},
    {Code::out_of_memory, "there is not enough memory"},
    {Code::io, "reading or writing failed: a full disk, a folder without permission"},
    {Code::cancelled, "stopped by Ctrl-C; what was finished has been printed"},
};

std::string exit_codes() {
  std::string text;
  for (const ExitCode& e : kExitCodes)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", exit_code(e.code), code_name(e.code));
  return text + " (redline help exit-codes)";
}

/// Returns the text of `redline help exit-codes`.
std::string exit_codes_text(size_t width) {
  std::string text = "One exit code for each kind of failure, and its name in messages and in JSON:\n\n";
  for (const ExitCode& e : kExitCodes) {
    constexpr size_t kIndent = 25;
    text +=
        wrap(fmt::format("  {:>3}  {:<16}  {}", exit_code(e.code), code_name(e.code), e.meaning), width, kIndent, 0) +
        "\n";
  }
  return text + "\n" +
         wrap(
             "A failed command writes nothing to standard output, except rows of results that were already "
             "measured. Files are written whole or not at all.\n",
             width, 0, 0);
}

std::string usage(const Command& command) {
  std::string text;
  command.with_options(
      [&](const OptionList& options) { text = usage_of(options, fmt::format("redline {}", command.name)); });
  return text;
}

}  // namespace

namespace {

/// help_text(). In a document, one line stands for the options from the tables of options.
std::string help_text_of(const Command& command, size_t width, bool is_document) {
  std::string text = wrap(fmt::format("redline {}: {}", command.name, command.summary), width, 2, 0) + "\n\n";
  text += wrap(fmt::format("usage: {}", usage(command)), width, 7, 0) + "\n";
  if (*command.details) text += "\n" + wrap(command.details, width, 0, 0) + "\n";
  command.with_options([&](const OptionList& options) {
    const std::string arguments = option_table(options, true, "", width);
    if (!arguments.empty()) text += "\narguments:\n" + arguments;
    text += "\noptions:\n" + option_table(options, false, "", width, is_document);
    const std::vector<Option>& all = options.all();
    if (is_document && std::any_of(all.begin(), all.end(), [](const Option& o) { return o.rule.is_table_row; }))
      text += fmt::format("  and options of the engine, which redline {} --help lists\n", command.name);
    std::vector<std::string_view> groups = {""};
    for (const Option& o : options.all()) {
      if (std::find(groups.begin(), groups.end(), o.group) != groups.end()) continue;
      groups.push_back(o.group);
      text += fmt::format("\n{}:\n{}", o.group, option_table(options, false, o.group, width));
    }
  });
  if (!command.examples.empty()) text += "\nexamples:\n";
  for (const char* example : command.examples) text += wrap_command(example, width, 2);
  return text + "\n" + wrap("exit codes: " + exit_codes(), width, 2, 0) + "\n";
}

}  // namespace

std::string help_text(const Command& command, size_t width) { return help_text_of(command, width, false); }

Status print_help(const Command& command, Terminal& terminal) {
  terminal.write(help_text(command, width_of(terminal)));
  return {};
}

namespace {

/// Commands of a group that share a row of the overview, so that all fit on a screen.
struct SharedRow {
  const char *group, *summary;
};
constexpr SharedRow kSharedRows[] = {
    {"models", "models of Hugging Face, and what is here"},
    {"look inside", "what models read and compute"},
    {"this program", "also recipes, exit-codes, fields, json"},
};

/// Returns the list of all commands, which fits on a screen of 80 columns and 24 rows.
std::string overview() {
  std::string text = fmt::format(
      "{}: language models and image models on this machine\n"
      "usage: redline COMMAND [options] ...     redline help COMMAND explains one\n\n",
      version_text());
  std::string_view group;
  for (const Command& c : commands()) {
    const bool is_first = group != c.group;
    group = c.group;
    const auto* const shared = std::find_if(std::begin(kSharedRows), std::end(kSharedRows),
                                            [&](const SharedRow& row) { return group == row.group; });
    if (shared == std::end(kSharedRows)) {
      text += fmt::format("{:<13} {:<11} {}\n", is_first ? c.group : "", c.name, c.summary);
      continue;
    }
    if (!is_first) continue;
    std::vector<std::string_view> names;
    for (const Command& other : commands())
      if (group == other.group) names.emplace_back(other.name);
    text += fmt::format("{:<13} {}   {}\n", group, fmt::join(names, ", "), shared->summary);
  }
  return text + "start here:   redline run redline-tales \"Once upon a time\"\n";
}

/// Calls use() for every command. Commands of two words follow the command with which they begin.
void for_each_command(const std::function<void(const Command&)>& use) {
  for (const Command& c : commands()) {
    use(c);
    for (const Command& b : bench_commands())
      if (std::string_view(b.name).starts_with(fmt::format("{} ", c.name))) use(b);
  }
}

}  // namespace

std::string markdown_help() {
  std::string text =
      "<!-- Generated by `redline help --markdown`; a test keeps it "
      "in sync. -->\n\n# The `redline` command\n\n"
      "Results go to standard output, everything else to "
      "standard error. `--json` prints one JSON document; a failure\nthen leaves standard output empty and writes "
      "`{\"error\": {\"code\", \"message\"}}` to standard "
      "error. Its fields are described in\n[json.md](json.md).\n\n"
      "| command | what it does |\n|---|---|\n";
  for_each_command([&](const Command& c) {
    std::string anchor = c.name;
    std::replace(anchor.begin(), anchor.end(), ' ', '-');
    text += fmt::format("| [`{}`](#redline-{}) | {} |\n", c.name, anchor, c.summary);
  });
  text +=
      "\n## Models\n\nMODEL is a GGUF file (any part of a split one) or a "
      "Hugging Face folder. A path that does not exist is\nlooked up in `assets/` of the current folder, in `models/` "
      "beside "
      "the program, in `share/redline/` of the prefix that it was\ninstalled to, and in `assets/` of the source tree "
      "that "
      "it was built in.\n\n"
      "`hf:owner/name` is a model of the Hugging Face Hub, `hf:owner/name:Q4_K_M` its GGUF file of that quantization, "
      "and\n"
      "`hf:owner/name@revision:FILE` a file of a branch, tag or commit. If it is not on this machine, it is pulled "
      "first, into\n"
      "the cache that `huggingface_hub` uses; see [`pull`](#redline-pull).\n";
  text += "\n## Exit codes\n\n| exit code | name | meaning |\n|---|---|---|\n";
  for (const ExitCode& e : kExitCodes)
    text += fmt::format("| {} | {} | {} |\n", exit_code(e.code), code_name(e.code), e.meaning);
  text +=
      "\n## Options of engines\n\nCommands that open a model have the flags of its engine, such as `--threads` and "
      "`--device`. `redline COMMAND --help`\nlists them. They come from tables, which `redline help options` prints "
      "with the names in C++, C and Python, and which\nstate name, default, meaning and bounds of each: of\n"
      "[language models](../include/redline/text_engine_options.inc), of\n"
      "[image models](../include/redline/image_options.inc) and of\n"
      "[embedding models](../include/redline/embedding_options.inc).\n";
  text += fmt::format("\n## Recipes\n\n```text\n{}```\n", recipes_text());
  for_each_command([&](const Command& c) {
    text += fmt::format("\n## redline {}\n\n```text\n{}```\n", c.name, help_text_of(c, kMaxWidth, true));
  });
  return text;
}

namespace {

struct HelpArgs {
  std::vector<std::string> command;  ///< the words of the command's name
  bool markdown = false;
  void visit(OptionList& v) {
    v.argument(
        command, "COMMAND",
        "command to explain, or one of recipes, exit-codes, fields, json, options; without it, all commands are listed",
        {.optional = true});
    v(markdown, "markdown", "", "print the help of all commands in the format of docs/cli.md");
  }
};

Status run_help(const HelpArgs& args, Terminal& terminal) {
  if (args.markdown) {
    terminal.write(markdown_help());
    return {};
  }
  const std::string name = fmt::format("{}", fmt::join(args.command, " "));
  if (name.empty()) {
    terminal.write(overview());
    return {};
  }
  if (name == "recipes") {
    terminal.write(recipes_text());
    return {};
  }
  if (name == "exit-codes") {
    terminal.write(exit_codes_text(width_of(terminal)));
    return {};
  }
  if (name == "fields") {
    terminal.write(server::known_fields_markdown());
    return {};
  }
  if (name == "json") {
    terminal.write(json_markdown());
    return {};
  }
  if (name == "options") {
    terminal.write(option_tables_text());
    return {};
  }
  if (const Command* command = find_command(name)) return print_help(*command, terminal);
  std::vector<std::string> names = {"recipes", "exit-codes", "fields", "json", "options"};
  for_each_command([&](const Command& c) { names.emplace_back(c.name); });
  return invalid_argument("unknown command '{}'{}", name, nearest_hint(name, names));
}

}  // namespace

Command help_command() {
  return make_command<HelpArgs, run_help>("help", "explain a command; also recipes, exit-codes, fields, json, options",
                                          "", {"redline help run", "redline help recipes"})
      .in("this program");
}

}  // namespace redline::cli
