// Every row of every table of options: its default in C++, its flag, and its line in `redline help options`. The Python
// test test_python_options.py compares the same rows with the defaults of C and with the keywords of Python.
#include "cli/option_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "cli/command.h"
#include "cli/engine_options.h"
#include "cli/image_options.h"

namespace redline::cli {
namespace {

using ::testing::HasSubstr;

/// Calls use(defaults, the commands that open such an engine) for every struct with a table.
template <class Use>
void for_each_table(const Use& use) {
  using Names = std::vector<std::string>;
  use(TextEngineOptions(), Names{"run", "chat", "serve", "batch", "bench", "bench serve", "eval", "logits"});
  use(EmbeddingOptions(), Names{"embed"});
  use(ImageOptions(), Names{"image", "calibrate", "compare"});
  use(NetworkOptions(), Names{});
  use(SamplingOptions(), Names{});
  use(GenerateRequest(), Names{});
  use(ImageRequest(), Names{});
}

bool has_flag(const OptionRow& row, std::string_view command) {
  if (row.commands == OptionRow::kEvery) return true;
  if (row.commands == OptionRow::kGenerating) {
    constexpr std::string_view kGenerating[] = {"run", "chat", "serve", "batch", "bench serve"};
    return std::find(std::begin(kGenerating), std::end(kGenerating), command) != std::end(kGenerating);
  }
  return command == "serve" || (command == "batch" && row.commands == OptionRow::kServers);
}

TEST(OptionRows, NamesAndPlacesAreSane) {
  for_each_table([](const auto& options, const auto& /*commands*/) {
    std::set<std::string_view> names, flags;
    std::set<char> letters;
    visit_options(options, [&](const auto& member, const OptionRow& row) {
      SCOPED_TRACE(std::string(row.name));
      EXPECT_TRUE(names.insert(row.name).second);
      EXPECT_FALSE(row.meaning.empty());
      EXPECT_FALSE(row.meaning.ends_with('.')) << "a phrase, to which lists add the full stop";
      EXPECT_TRUE(row.after.empty() || names.count(row.after)) << row.after;
      EXPECT_EQ(row.type == "BOOL", (std::is_same_v<std::decay_t<decltype(member)>, bool>));
      if (row.flag.empty()) return;
      EXPECT_TRUE(flags.insert(row.flag).second);
      EXPECT_TRUE(row.letter == 0 || letters.insert(row.letter).second);
      EXPECT_EQ(row.symbol.empty(), row.type == "BOOL");
      EXPECT_EQ(row.flag.starts_with("no-"), !row.flag_help.empty()) << "the meaning of the flag, not of the option";
    });
  });
}

TEST(OptionRows, CommandsHaveTheFlagsWithTheDefaultsOfTheRows) {
  for_each_table([](const auto& options, const auto& commands) {
    visit_options(options, [&, &names = commands](const auto& member, const OptionRow& row) {
      if (row.flag.empty()) return;
      for (const std::string& name : names) {
        SCOPED_TRACE(name + " --" + std::string(row.flag));
        const Command* const command = find_command(name);
        ASSERT_NE(command, nullptr);
        command->with_options([&](const OptionList& list) {
          const Option* const flag = list.find(row.flag);
          ASSERT_EQ(flag != nullptr && flag->rule.is_table_row, has_flag(row, name));
          if (flag == nullptr || !flag->rule.is_table_row) return;
          EXPECT_EQ(flag->help, row.flag_help.empty() ? row.meaning : row.flag_help);
          EXPECT_EQ(flag->value, row.symbol);
          EXPECT_EQ(flag->rule.min, row.min);
          EXPECT_EQ(flag->rule.max, row.max);
          if (row.name == "max_slowdown") {  // the one default that a command changes
            EXPECT_EQ(flag->default_text, fmt::format("{}", kServedSlowdown));
          } else if (row.name == "cache_memory") {  // the servers describe their own way to choose it
            EXPECT_THAT(flag->default_text, HasSubstr("enough for --max-sequences contexts"));
          } else if (!row.unset.empty()) {
            EXPECT_THAT(flag->default_text, HasSubstr(std::string(row.unset)));
          } else if constexpr (std::is_arithmetic_v<std::decay_t<decltype(member)>>) {
            const auto shown = member / static_cast<std::decay_t<decltype(member)>>(row.unit);
            EXPECT_EQ(flag->default_text, row.type == "BOOL" ? "" : fmt::format("{}", shown));
          }
        });
      }
    });
  });
}

TEST(OptionRows, HelpListsEveryRow) {
  const std::string text = option_tables_text();
  for_each_table([&](const auto& options, const auto& /*commands*/) {
    visit_options(options, [&](const auto& member, const OptionRow& row) {
      EXPECT_THAT(text, HasSubstr(fmt::format("- `{}`, default ", row.name)));
      EXPECT_THAT(text, HasSubstr(std::string(row.meaning)));
      EXPECT_THAT(text, HasSubstr(std::string(row.details)));
      if constexpr (std::is_arithmetic_v<std::decay_t<decltype(member)>>) {
        EXPECT_THAT(text, HasSubstr(fmt::format("- `{}`, default {}", row.name, member)));
      }
    });
  });
}

TEST(OptionRows, FlagsSetTheMembers) {
  EngineArgs args;
  OptionList list;
  args.visit(list);
  args.visit_servers(list, true);
  const std::vector<std::string> given = {"--threads=3",
                                          "--gpu-layers",
                                          "5",
                                          "--dtype",
                                          "w8a8",
                                          "--no-prefix-cache",
                                          "--cache-memory",
                                          "3",
                                          "--max-slowdown",
                                          "1.5",
                                          "--batch-invariant",
                                          "--cache-spill",
                                          "kv",
                                          "--cache-spill-size",
                                          "2"};
  const auto parsed = parse_options(list, given);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  const auto options = args.options();
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->threads, 3);
  EXPECT_EQ(options->gpu_layers, 5);
  EXPECT_EQ(options->dtype, Precision::kW8A8);
  EXPECT_FALSE(options->prefix_cache);
  EXPECT_EQ(options->cache_memory, int64_t{3} << 20);
  EXPECT_EQ(options->cache_folder_bytes, int64_t{2} << 20);
  EXPECT_EQ(options->max_slowdown, 1.5);
  EXPECT_TRUE(options->batch_invariant);
  EXPECT_EQ(options->cache_folder, "kv");
}

TEST(OptionRows, ErrorsNameTheFlag) {
  const auto message = [](const std::vector<std::string>& given) {
    EngineArgs args;
    OptionList list;
    args.visit(list);
    args.visit_servers(list, true);
    return std::string(parse_options(list, given).status().message());
  };
  EXPECT_EQ(message({"--gpu-layers", "-1"}), "flag --gpu-layers: -1 is out of range; allowed: 0 to 1048576");
  EXPECT_EQ(message({"--dtype", "f33"}),
            "flag --dtype: 'f33' is not one of auto, f32, bf16, q8, q8_0, w8a8; did you mean f32?");
  EXPECT_EQ(message({"--max-slowdown", "-1"}), "flag --max-slowdown: -1 is out of range; allowed: 0 to 1000");
  EXPECT_EQ(message({"--max-slowdown", "nan"}), "flag --max-slowdown: 'nan' is not a number");
  EXPECT_EQ(message({"--cache-spill-size", "0"}),
            "flag --cache-spill-size: 0 is out of range; allowed: 1 to 1000000000");
}

TEST(OptionRows, PlaceIsBehindAnother) {
  std::vector<std::string> list = {"a", "b"};
  const auto name_of = [](const std::string& element) { return element; };
  place_option(list, "a", std::string("c"), name_of);
  place_option(list, "", std::string("d"), name_of);
  place_option(list, "unknown", std::string("e"), name_of);
  EXPECT_EQ(list, (std::vector<std::string>{"a", "c", "b", "d", "e"}));
}

}  // namespace
}  // namespace redline::cli
