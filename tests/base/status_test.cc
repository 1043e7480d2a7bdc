#include "redline/status.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/error.h"

namespace redline {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("{} is odd", x);
  return x / 2;
}
Result<int> quarter(int x) {
  REDLINE_ASSIGN(const int y, half(x).within("first"));
  REDLINE_ASSIGN(const int z, half(y).within("second"));
  return z;
}
Status check(int x) {
  REDLINE_TRY(quarter(x));
  return {};
}

TEST(Status, CarriesCodeMessageAndPlace) {
  EXPECT_TRUE(check(12).ok());
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_EQ(check(5).to_string(), "invalid_argument: first: 5 is odd");
  EXPECT_EQ(check(6).within("model").message(), "model: second: 3 is odd");
  EXPECT_EQ(Status().within("nowhere").to_string(), "ok");
}

TEST(Status, APathIsNamedOnce) {
  const auto within = [](const char* message, const char* place) {
    return Status(Code::invalid_argument, message).within(place).message();
  };
  EXPECT_EQ(within("tokenizer.json: not JSON", "m/tokenizer.json"), "m/tokenizer.json: not JSON");
  EXPECT_EQ(within("tokenizer.json has no model", "m/tokenizer.json"), "m/tokenizer.json has no model");
  EXPECT_EQ(within("tokenizer.json: not JSON", "tokenizer.json"), "tokenizer.json: not JSON");
  EXPECT_EQ(within("m/n: no file", "m/n"), "m/n: no file");
  EXPECT_EQ(within("m/n/config.json: no file", "m/n"), "m/n/config.json: no file");
  EXPECT_EQ(within("m/config.json: no file", "m"), "m/config.json: no file");
  // A name within another one, or one that is no file's, is a place of its own.
  EXPECT_EQ(within("tokenizer.json5: not JSON", "m/tokenizer.json"), "m/tokenizer.json: tokenizer.json5: not JSON");
  EXPECT_EQ(within("model: no rows", "model"), "model: model: no rows");
  EXPECT_EQ(within("norm: no rows", "layers/norm"), "layers/norm: norm: no rows");
  EXPECT_EQ(within("/a: no rows", ""), ": /a: no rows");
}

TEST(Status, ResultMovesItsValue) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> value = std::move(result).value();
  EXPECT_EQ(*value, 7);
}

TEST(Status, AResultOfAnOkStatusIsOurBug) { EXPECT_EQ(Result<int>(Status()).status().code(), Code::internal); }

TEST(Status, EveryCodeHasANameAndAnExitCode) {
  const std::pair<Code, int> codes[] = {
      {Code::ok, 0},          {Code::invalid_argument, 2}, {Code::not_found, 3},
      {Code::unsupported, 4}, {Code::out_of_memory, 5},    {Code::cancelled, 130},
      {Code::io, 6},          {Code::internal, 1},         {Code::out_of_device_memory, 5}};
  for (const auto& [code, exit] : codes) {
    EXPECT_EQ(exit_code(code), exit);
    EXPECT_FALSE(code_name(code).empty());
  }
  EXPECT_EQ(code_name(Code::out_of_memory), "out_of_memory");
}

TEST(StatusDeathTest, TheValueOfAFailureIsItsStatus) {
  EXPECT_DEATH(half(5).value(), "invalid_argument: 5 is odd");
  EXPECT_DEATH(*half(5), "invalid_argument: 5 is odd");
}

TEST(StatusDeathTest, ChecksNameThePlace) {
  EXPECT_DEATH(REDLINE_CHECK(1 + 1 == 3), "status_test.cc:[0-9]+: 1 \\+ 1 == 3 does not hold");
}

}  // namespace
}  // namespace redline
