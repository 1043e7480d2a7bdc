#include "base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace redline {
namespace {

/// The environment without any REDLINE_ variable of the person who runs the tests; put back afterwards.
class SettingsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const SettingInfo& info : list_settings())
      if (const char* value = std::getenv(info.name.data())) saved_[std::string(info.name)] = value;
    for (const auto& [name, value] : saved_) ::unsetenv(name.c_str());
  }
  void TearDown() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
    for (const auto& [name, value] : saved_) ::setenv(name.c_str(), value.c_str(), 1);
  }
  void set(const std::string& name, const std::string& value) {
    set_.push_back(name);
    ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::string error_for(const std::string& name, const std::string& value) {
    set(name, value);
    const auto settings = read_settings();
    ::unsetenv(name.c_str());
    return settings.status().to_string();
  }

 private:
  std::map<std::string, std::string> saved_;
  std::vector<std::string> set_;
};

TEST_F(SettingsTest, Defaults) {
  const Settings settings = read_settings().value();
  EXPECT_EQ(settings.cpu_isa, "");
  EXPECT_EQ(settings.threads, 0);
  EXPECT_EQ(settings.hang_seconds, 30);
  EXPECT_EQ(settings.trace_events, 1 << 20);
}

TEST_F(SettingsTest, ReadsEachType) {
  set("REDLINE_CPU_ISA", "avx2");
  set("REDLINE_THREADS", "3");
  set("REDLINE_HANG_SECONDS", "0.25");
  set("REDLINE_TRACE_EVENTS", "");  // empty: as if unset
  const Settings settings = read_settings().value();
  EXPECT_EQ(settings.cpu_isa, "avx2");
  EXPECT_EQ(settings.threads, 3);
  EXPECT_EQ(settings.hang_seconds, 0.25);
  EXPECT_EQ(settings.trace_events, 1 << 20);
}

TEST_F(SettingsTest, RefusesWhatIsNoValue) {
  EXPECT_EQ(
      error_for("REDLINE_THREADS", "two"),
      "invalid_argument: the environment variable REDLINE_THREADS is \"two\"; expected an integer from 0 to 1024, "
      "or unset");
  for (const char* bad : {"-1", "4097", "1.5", " 1", "1 ", "99999999999999999999", "0x10", "+1"})
    EXPECT_THAT(error_for("REDLINE_THREADS", bad), ::testing::HasSubstr("expected an integer")) << bad;
  for (const char* bad : {"nan", "inf", "-0.5", "1e300", "1s", "86401"})
    EXPECT_THAT(error_for("REDLINE_HANG_SECONDS", bad), ::testing::HasSubstr("expected a number from 0 to 86400"))
        << bad;
  EXPECT_THAT(error_for("REDLINE_TRACE_EVENTS", "0"), ::testing::HasSubstr("from 1 to 268435456"));
}

TEST_F(SettingsTest, WarnsOfUnknownNames) {
  set("REDLINE_THREDS", "2");
  set("REDLINE_THREADS", "2");
  set("REDLINE_SOMETHING_ELSE_ENTIRELY", "2");
  const auto warnings = warn_unknown_settings();
  EXPECT_THAT(warnings, ::testing::Contains("the environment variable REDLINE_THREDS has no effect; did you mean "
                                            "\"REDLINE_THREADS\"?"));
  EXPECT_THAT(warnings, ::testing::Contains("the environment variable REDLINE_SOMETHING_ELSE_ENTIRELY has no effect"));
  EXPECT_THAT(warnings, ::testing::Not(::testing::Contains(::testing::HasSubstr("REDLINE_THREADS has"))));
}

TEST_F(SettingsTest, ListsEveryVariableWithHelp) {
  const auto list = list_settings();
  EXPECT_EQ(list.size(), 12u);
  for (const SettingInfo& info : list) {
    EXPECT_THAT(std::string(info.name), ::testing::StartsWith("REDLINE_"));
    EXPECT_FALSE(info.help.empty());
  }
  const auto named = [&](std::string_view name) {
    return std::ranges::find_if(list, [&](const SettingInfo& info) { return info.name == name; });
  };
  ASSERT_NE(named("REDLINE_THREADS"), list.end());
  EXPECT_EQ(named("REDLINE_THREADS")->type, "integer");
  ASSERT_NE(named("REDLINE_HANG_SECONDS"), list.end());
  EXPECT_EQ(named("REDLINE_HANG_SECONDS")->default_value, "30");
}

}  // namespace
}  // namespace redline
