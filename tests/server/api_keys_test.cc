#include "server/api_keys.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"

namespace redline::server {
namespace {

HttpRequest api_keys_with(std::string name, std::string value) {
  HttpRequest request;
  request.headers.emplace_back(std::move(name), std::move(value));
  return request;
}

TEST(ApiKeys, AreFoundInThreeHeaders) {
  ApiKeys keys;
  EXPECT_TRUE(keys.empty());
  ASSERT_TRUE(keys.add("ann", "secret").ok());
  ASSERT_TRUE(keys.add("bob", "other").ok());
  EXPECT_EQ(keys.check(api_keys_with("authorization", "Bearer secret")).name, "ann");
  EXPECT_EQ(keys.check(api_keys_with("authorization", "bearer other")).name, "bob");
  EXPECT_EQ(keys.check(api_keys_with("x-api-key", "secret")).name, "ann");
  EXPECT_EQ(keys.check(api_keys_with("api-key", "secret")).name, "ann");
  for (const char* wrong : {"Bearer secre", "Bearer secrets", "Bearer ", "secret", "Basic secret", ""})
    EXPECT_FALSE(keys.check(api_keys_with("authorization", wrong)).is_known) << wrong;
  EXPECT_FALSE(keys.check({}).is_known);
}

TEST(ApiKeys, FileHasNamesKeysAndRates) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/keys";
  std::ofstream(path) << "# who\nann k1\n\n  bob  k2  2\n";
  ApiKeys keys;
  ASSERT_TRUE(keys.read_file(path).ok());
  EXPECT_EQ(keys.check(api_keys_with("x-api-key", "k1")).name, "ann");
  EXPECT_EQ(keys.check(api_keys_with("x-api-key", "k2")).retry_after_s, 0);
  EXPECT_EQ(keys.check(api_keys_with("x-api-key", "k2")).retry_after_s, 0);
  const ApiKeys::Verdict third = keys.check(api_keys_with("x-api-key", "k2"));
  EXPECT_TRUE(third.is_known);
  EXPECT_GT(third.retry_after_s, 0);
  EXPECT_LE(third.retry_after_s, 30);
}

TEST(ApiKeys, MessagesNameTheLine) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/keys";
  const auto error = [&](const char* text) {
    std::ofstream(path, std::ios::trunc) << text;
    return ApiKeys().read_file(path).message();
  };
  EXPECT_NE(error("ann k1\nbob\n").find("keys:2: the name \"bob\" has no key"), std::string::npos);
  EXPECT_NE(error("ann k1 fast\n").find("keys:1: the third word"), std::string::npos);
  for (const char* rate : {"-", "+", "1e", "1e999", "nan", "inf", "5x"})  // at the end of a line too
    EXPECT_NE(error(fmt::format("ann k1 {}\n", rate).c_str()).find("keys:1: the third word"), std::string::npos)
        << rate;
  EXPECT_NE(error("ann k1 -5\n").find("keys:1: a line is"), std::string::npos);
  EXPECT_NE(error("ann k1 1 2\n").find("keys:1: a line is"), std::string::npos);
  EXPECT_NE(error("ann k1\nann k2\n").find("named \"ann\" already"), std::string::npos);
  EXPECT_NE(error("# none\n").find("has no key"), std::string::npos);
}

}  // namespace
}  // namespace redline::server
