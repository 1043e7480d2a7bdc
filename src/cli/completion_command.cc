// redline completion bash|zsh|fish: a script made from the option lists.
#include "cli/command.h"

namespace redline::cli {
namespace {

/// Single-quoted for any of the three shells.
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

/// The choices of a command's first argument (shells, commands), or files.
std::vector<std::string> argument_choices(const Command& command) {
  std::vector<std::string> choices;
  if (std::string_view(command.name) == "help")
    for (const Command& c : commands()) choices.push_back(c.name);
  command.with_options([&](const OptionList& options) {
    for (const Option& o : options.all())
      if (o.is_argument && choices.empty()) choices = o.rule.choices;
  });
  return choices;
}

std::string bash_script() {
  std::string names, cases;
  for (const Command& c : commands()) {
    names += fmt::format("{}{}", names.empty() ? "" : " ", c.name);
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
    cases += fmt::format("    {})\n", c.name);
    if (!values.empty()) cases += fmt::format("      case $previous in\n{}      esac\n", values);
    cases += fmt::format("      flags={}\n", shell_quote(flags));
    if (const auto choices = argument_choices(c); !choices.empty())
      cases += fmt::format("      words={}\n", shell_quote(fmt::format("{}", fmt::join(choices, " "))));
    cases += "      ;;\n";
  }
  return fmt::format(
      R"(# bash completion for redline; made by `redline completion bash`
_redline() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} flags='' words=''
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W {} -- "$word"))
    return
  fi
  case ${{COMP_WORDS[1]}} in
{}  esac
  if [ "${{word#-}}" != "$word" ]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
  elif [ -n "$words" ]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  else
    COMPREPLY=($(compgen -f -- "$word"))
  fi
}}
complete -o filenames -F _redline redline
)",
      shell_quote(names), cases);
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
  for (const Command& c : commands()) {
    names += fmt::format("    {}\n", shell_quote(zsh_text(c.name) + ":" + zsh_text(c.summary)));
    cases += fmt::format("    {})\n      _arguments", c.name);
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
    cases += fmt::format(
        " \\\n        {}\n      ;;\n",
        shell_quote(choices.empty() ? "*:file:_files" : fmt::format("*:word:({})", fmt::join(choices, " "))));
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
  case $command in
{}  esac
}}
if [ "$funcstack[1]" = _redline ]; then _redline "$@"; else compdef _redline redline; fi
)",
                     names, cases);
}

std::string fish_script() {
  std::string text = "# fish completion for redline; made by `redline completion fish`\n";
  for (const Command& c : commands())
    text += fmt::format("complete -c redline -n __fish_use_subcommand -f -a {} -d {}\n", c.name,
                        shell_quote(c.summary, true));
  for (const Command& c : commands()) {
    const std::string when = fmt::format("complete -c redline -n '__fish_seen_subcommand_from {}'", c.name);
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
       "redline completion fish > ~/.config/fish/completions/redline.fish"});
}

}  // namespace redline::cli
