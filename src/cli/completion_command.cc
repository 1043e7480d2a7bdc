// redline completion bash|zsh|fish: a script made from the option lists.
#include <algorithm>

#include "cli/command.h"

namespace redline::cli {
namespace {

/// Quotes a text with single quotes for bash, zsh or fish.
std::string shell_quote(std::string_view text, bool is_fish = false) {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'' || (is_fish && c == '\\')) {
      result += is_fish ? fmt::format("\\{}", c) : "'\\''";
    } else {
      result += c;
    }
  }
  return result + "'";
}

void for_each_flag(const Command& command, const std::function<void(const Option&)>& use) {
  command.with_options([&](const OptionList& options) {
    for (const Option& o : options.all())
      if (!o.is_argument) use(o);
  });
  use({"help", "", "explain this command", {.letter = 'h'}});
}

/// Returns the choices of a command's first argument (shells, commands); empty: it has none.
std::vector<std::string> argument_choices(const Command& command) {
  std::vector<std::string> choices;
  if (std::string_view(command.name) == "help") {
    for (const Command& c : commands()) choices.push_back(c.name);
    for (const char* subject : {"recipes", "exit-codes", "fields", "json", "options"}) choices.emplace_back(subject);
  }
  command.with_options([&](const OptionList& options) {
    for (const Option& o : options.all())
      if (o.is_argument && choices.empty()) choices = o.rule.choices;
  });
  return choices;
}

/// Returns the second words of the commands that begin with `name`: "serve", "device" and "tokenizer" for "bench".
std::vector<std::string_view> second_words(std::string_view name) {
  std::vector<std::string_view> words;
  for (const Command& c : bench_commands())
    if (const std::string_view whole = c.name; whole.starts_with(name) && whole.substr(name.size()).starts_with(' '))
      words.push_back(whole.substr(name.size() + 1));
  return words;
}

/// Returns all commands of two words as a pattern for the shell's `case`.
std::string two_word_pattern() {
  std::vector<std::string> names;
  for (const Command& c : bench_commands()) names.push_back(shell_quote(c.name));
  return fmt::format("{}", fmt::join(names, "|"));
}

std::vector<Command> all_commands() {
  std::vector<Command> all = commands();
  all.insert(all.end(), bench_commands().begin(), bench_commands().end());
  return all;
}

std::string bash_script() {
  std::string names, cases;
  for (const Command& c : commands()) names += fmt::format("{}{}", names.empty() ? "" : " ", c.name);
  for (const Command& c : all_commands()) {
    std::string flags, values;
    for_each_flag(c, [&](const Option& o) {
      flags += fmt::format("{}--{}", flags.empty() ? "" : " ", o.name);
      if (o.value.empty()) return;
      std::string pattern = "--" + o.name;
      if (o.rule.letter) pattern += fmt::format("|-{}", o.rule.letter);
      std::string reply = "COMPREPLY=()";
      if (!o.rule.choices.empty())
        reply = fmt::format("COMPREPLY=($(compgen -W {} -- \"$word\"))",
                            shell_quote(fmt::format("{}", fmt::join(o.rule.choices, " "))));
      if (o.rule.names_file) reply = "COMPREPLY=($(compgen -f -- \"$word\"))";
      values += fmt::format("        {}) {}; return ;;\n", pattern, reply);
    });
    cases += fmt::format("    {})\n", std::string_view(c.name).find(' ') < SIZE_MAX ? shell_quote(c.name) : c.name);
    if (!values.empty()) cases += fmt::format("      case $previous in\n{}      esac\n", values);
    cases += fmt::format("      flags={}\n", shell_quote(flags));
    if (const auto choices = argument_choices(c); !choices.empty())
      cases += fmt::format("      words={}\n", shell_quote(fmt::format("{}", fmt::join(choices, " "))));
    if (const auto second = second_words(c.name); !second.empty())
      cases += fmt::format("      [ \"$COMP_CWORD\" -eq 2 ] && second={}\n",
                           shell_quote(fmt::format("{}", fmt::join(second, " "))));
    cases += "      ;;\n";
  }
  return fmt::format(
      R"(# bash completion for redline; made by `redline completion bash`
_redline() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} flags='' words='' second=''
  local command=${{COMP_WORDS[1]}}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {} -- "$word"))
    return
  fi
  if [ "$COMP_CWORD" -gt 2 ]; then
    case "$command ${{COMP_WORDS[2]}}" in
      {}) command="$command ${{COMP_WORDS[2]}}" ;;
    esac
  fi
  case $command in
{}  esac
  if [ "${{word#-}}" != "$word" ]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
  elif [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=($(compgen -W "$second" -- "$word") $(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _redline redline
)",
      shell_quote(names), two_word_pattern(), cases);
}

/// In _arguments, brackets and colons of a description need a backslash.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

std::string zsh_script() {
  std::string names, cases;
  for (const Command& c : commands())
    names += fmt::format("    {}\n", shell_quote(zsh_text(c.name) + ":" + zsh_text(c.summary)));
  for (const Command& c : all_commands()) {
    cases += fmt::format("    {})\n      _arguments", shell_quote(c.name));
    for_each_flag(c, [&](const Option& o) {
      std::string value;
      if (!o.value.empty()) value = fmt::format(":{}:", zsh_text(o.value));
      if (!o.rule.choices.empty()) value += fmt::format("({})", fmt::join(o.rule.choices, " "));
      if (o.rule.names_file) value += "_files";
      const std::string text = fmt::format("[{}]{}", zsh_text(o.help), value);
      const char* repeat = o.is_repeatable ? "*" : "";
      cases += fmt::format(" \\\n        {}",
                           shell_quote(fmt::format("{}--{}{}{}", repeat, o.name, o.value.empty() ? "" : "=", text)));
      if (o.rule.letter)
        cases += fmt::format(" \\\n        {}", shell_quote(fmt::format("{}-{}{}", repeat, o.rule.letter, text)));
    });
    const auto choices = argument_choices(c);
    const auto second = second_words(c.name);
    std::string words = choices.empty() ? "*:file:_files" : fmt::format("*:word:({})", fmt::join(choices, " "));
    if (!second.empty()) words = fmt::format("*:file:{{_files; compadd -- {}}}", fmt::join(second, " "));
    cases += fmt::format(" \\\n        {}\n      ;;\n", shell_quote(words));
  }
  return fmt::format(R"(#compdef redline
# zsh completion for redline; made by `redline completion zsh`
_redline() {{
  local -a names
  names=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command names
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  if (( CURRENT > 2 )); then
    case "$command $words[2]" in
      {})
        command="$command $words[2]"
        shift words
        (( CURRENT-- ))
      ;;
    esac
  fi
  case $command in
{}  esac
}}
if [ "$funcstack[1]" = _redline ]; then _redline "$@"; else compdef _redline redline; fi
)",
                     names, two_word_pattern(), cases);
}

std::string fish_script() {
  std::string text = "# fish completion for redline; made by `redline completion fish`\n";
  for (const Command& c : commands())
    text += fmt::format("complete -c redline -n __fish_use_subcommand -f -a {} -d {}\n", c.name,
                        shell_quote(c.summary, true));
  for (const Command& c : all_commands()) {
    const std::string_view name = c.name;
    const size_t space = name.find(' ');
    const auto second = second_words(name);
    std::string words = fmt::format("__fish_seen_subcommand_from {}", name.substr(0, space));
    if (space < SIZE_MAX) words += fmt::format("; and __fish_seen_subcommand_from {}", name.substr(space + 1));
    if (!second.empty()) words += fmt::format("; and not __fish_seen_subcommand_from {}", fmt::join(second, " "));
    for (const Command& other : commands())  // "bench serve" must not match "serve"
      if (const auto taken = second_words(other.name); std::find(taken.begin(), taken.end(), name) != taken.end())
        words += fmt::format("; and not __fish_seen_subcommand_from {}", other.name);
    const std::string when = fmt::format("complete -c redline -n '{}'", words);
    if (!second.empty())
      text += fmt::format("{} -a {}\n", when, shell_quote(fmt::format("{}", fmt::join(second, " ")), true));
    for_each_flag(c, [&](const Option& o) {
      text += fmt::format("{} -l {}", when, o.name);
      if (o.rule.letter) text += fmt::format(" -s {}", o.rule.letter);
      if (!o.value.empty()) text += o.rule.names_file ? " -r -F" : " -x";
      if (!o.rule.choices.empty())
        text += fmt::format(" -a {}", shell_quote(fmt::format("{}", fmt::join(o.rule.choices, " ")), true));
      text += fmt::format(" -d {}\n", shell_quote(o.help, true));
    });
    if (const auto choices = argument_choices(c); !choices.empty())
      text += fmt::format("{} -f -a {}\n", when, shell_quote(fmt::format("{}", fmt::join(choices, " ")), true));
  }
  return text;
}

struct CompletionArgs {
  std::string shell;
  void visit(OptionList& v) { v.argument(shell, "SHELL", "target shell", {.choices = {"bash", "zsh", "fish"}}); }
};

Status run_completion(const CompletionArgs& args, Terminal& terminal) {
  terminal.write(completion_script(args.shell));
  return {};
}

}  // namespace

std::string completion_script(std::string_view shell) {
  return shell == "bash" ? bash_script() : shell == "zsh" ? zsh_script() : fish_script();
}

Command completion_command() {
  return make_command<CompletionArgs, run_completion>(
             "completion", "print a completion script for a shell", "",
             {"source <(redline completion bash)", "redline completion zsh > ~/.zfunc/_redline",
              "redline completion fish > ~/.config/fish/completions/redline.fish"})
      .in("this program", /*after_name=*/"help");
}

}  // namespace redline::cli
