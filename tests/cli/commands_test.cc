// Tests of properties that all commands have, and of the program around the commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <set>
#include <sstream>

#include "cli/command.h"

namespace redline::cli {
namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit = -1;
  std::string out, err;
};

Outcome run(const std::vector<std::string>& arguments) {
  Outcome outcome;
  char *out = nullptr, *err = nullptr;
  size_t out_size = 0, err_size = 0;
  std::FILE* in = std::tmpfile();
  std::FILE* out_file = open_memstream(&out, &out_size);
  std::FILE* err_file = open_memstream(&err, &err_size);
  Terminal terminal(in, out_file, err_file);
  outcome.exit = run_cli(arguments, terminal);
  std::fclose(in);
  std::fclose(out_file);
  std::fclose(err_file);
  outcome.out.assign(out, out_size);
  outcome.err.assign(err, err_size);
  std::free(out);
  std::free(err);
  return outcome;
}

TEST(Commands, ListsAreSane) {
  std::set<std::string> names;
  for (const Command& c : commands()) {
    EXPECT_TRUE(names.insert(c.name).second) << c.name;
    EXPECT_NE(std::string(c.summary), "");
    EXPECT_FALSE(c.examples.empty()) << c.name << " shows no example";
    c.with_options([&](const OptionList& options) {
      std::set<std::string> flags = {"help"};
      std::set<char> letters = {'h'};
      std::set<std::string> aliases;
      bool seen_optional = false;
      for (const Option& o : options.all()) {
        EXPECT_TRUE(flags.insert(o.name).second) << c.name << " --" << o.name;
        EXPECT_TRUE(o.rule.letter == 0 || letters.insert(o.rule.letter).second) << c.name << " -" << o.rule.letter;
        EXPECT_NE(o.help, "");
        for (const std::string& alias : o.rule.aliases) {
          EXPECT_TRUE(alias.starts_with("--") ? flags.insert(alias.substr(2)).second : aliases.insert(alias).second)
              << c.name << " " << alias;
          EXPECT_EQ(options.find_foreign(alias), nullptr) << c.name << " " << alias;
        }
        if (!o.is_argument) continue;
        EXPECT_FALSE(seen_optional && !o.rule.optional) << c.name << ": " << o.name << " after an optional argument";
        seen_optional = o.rule.optional;
      }
      for (const char letter : letters) EXPECT_EQ(aliases.count({'-', letter}), 0u) << c.name << " -" << letter;
    });
  }
}

TEST(Commands, EachExplainsItself) {
  std::vector<Command> all = commands();
  all.insert(all.end(), bench_commands().begin(), bench_commands().end());
  for (const Command& c : all) {
    std::istringstream name(c.name);
    const std::vector<std::string> words(std::istream_iterator<std::string>(name), {});
    std::vector<std::string> with_flag = words, behind_help = words;
    with_flag.push_back("--help");
    behind_help.insert(behind_help.begin(), "help");
    const Outcome by_flag = run(with_flag);
    EXPECT_EQ(by_flag.exit, 0);
    EXPECT_EQ(by_flag.err, "");
    EXPECT_EQ(by_flag.out, run(behind_help).out);
    EXPECT_THAT(by_flag.out, HasSubstr(std::string("usage: redline ") + c.name));
    EXPECT_THAT(by_flag.out, HasSubstr("examples:"));
    EXPECT_THAT(by_flag.out, HasSubstr("exit codes:"));
    c.with_options([&](const OptionList& options) {
      for (const Option& o : options.all()) EXPECT_THAT(by_flag.out, HasSubstr((o.is_argument ? "" : "--") + o.name));
    });
    for (const char* shell : {"bash", "zsh"}) EXPECT_THAT(completion_script(shell), HasSubstr(c.name));
    EXPECT_THAT(completion_script("fish"), HasSubstr("__fish_seen_subcommand_from " + words.back()));
    // The document has the whole text of a command, but one line for the flags from tables of options.
    c.with_options([&](const OptionList& options) {
      const auto& all = options.all();
      const bool has_rows = std::any_of(all.begin(), all.end(), [](const Option& o) { return o.rule.is_table_row; });
      const std::string whole = has_rows ? by_flag.out.substr(0, by_flag.out.find("\noptions:\n")) : by_flag.out;
      EXPECT_THAT(markdown_help(), HasSubstr(whole));
    });
  }
}

TEST(Commands, EachRefusesAnUnknownFlag) {
  for (const Command& c : commands()) {
    const Outcome o = run({c.name, "--no-such-flag-anywhere"});
    EXPECT_EQ(o.exit, exit_code(Code::invalid_argument));
    EXPECT_EQ(o.out, "");
    EXPECT_THAT(o.err, HasSubstr("redline: invalid_argument: unknown flag --no-such-flag-anywhere"));
  }
}

TEST(Commands, UnknownNamesAndJsonErrors) {
  EXPECT_EQ(run({"vesrion"}).err,
            "redline: invalid_argument: unknown command "
            "'vesrion'; did you mean version?\n");
  const Outcome o = run({"version", "--json", "x\xff"});
  EXPECT_EQ(o.exit, 2);
  EXPECT_EQ(o.out, "");
  EXPECT_THAT(o.err, HasSubstr("{\"error\":{\"code\":\"invalid_argument\","
                               "\"message\":\"unexpected argument 'x\uFFFD'"));
  EXPECT_THAT(run({"version", "--", "--json"}).err,
              HasSubstr("redline: invalid_argument: unexpected argument '--json'"));
}

}  // namespace
}  // namespace redline::cli
