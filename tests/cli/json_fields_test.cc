#include "cli/json_fields.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "cli/command.h"

namespace redline::cli {
namespace {

using ::testing::HasSubstr;

bool has_json(const Command& command) {
  bool found = false;
  command.with_options([&](const OptionList& options) {
    found = std::any_of(options.all().begin(), options.all().end(), [](const Option& o) { return o.name == "json"; });
  });
  return found;
}

TEST(JsonFields, EveryCommandWithJsonHasADocument) {
  std::set<std::string_view> documented;
  for (const JsonRecord& record : json_records())
    if (!record.command.empty()) documented.insert(record.command);
  for (const Command& command : commands())
    EXPECT_EQ(documented.contains(command.name), has_json(command)) << command.name;
}

TEST(JsonFields, EveryTypeIsPlainOrARecordThatIsUsed) {
  std::set<std::string_view> known = {"string", "integer", "number", "boolean", "any"}, used;
  for (const JsonRecord& record : json_records())
    if (record.command.empty()) {
      EXPECT_TRUE(known.insert(record.name).second) << record.name;
    }
  for (const JsonRecord& record : json_records())
    for (const JsonField& field : record.fields) {
      std::string_view type = field.type;
      for (const std::string_view prefix : {"list of ", "map of "})
        while (type.starts_with(prefix)) type.remove_prefix(prefix.size());
      if (constexpr std::string_view kOrNull = " or null"; type.ends_with(kOrNull)) type.remove_suffix(kOrNull.size());
      EXPECT_TRUE(known.contains(type)) << record.name << ": " << field.type;
      used.insert(type);
    }
  for (const JsonRecord& record : json_records())
    EXPECT_TRUE(!record.command.empty() || used.contains(record.name)) << record.name;
}

TEST(JsonFields, Markdown) {
  const std::string text = json_markdown();
  EXPECT_THAT(text, HasSubstr("## redline run --json\n\n| field | type | meaning |\n"));
  EXPECT_THAT(text, HasSubstr("| `logprobs?` | list of TokenLogprobs | "));
}

}  // namespace
}  // namespace redline::cli
