// The target of a request: its path and query, and the form that proxies get.
#include <gtest/gtest.h>

#include "server/http.h"

namespace redline::server {
namespace {

TEST(RequestTarget, IsSplitAtTheFirstQuestionMark) {
  const auto split = [](std::string_view target) {
    const auto [path, query] = split_target(target);
    return std::string(path) + " " + std::string(query);
  };
  EXPECT_EQ(split("/v1/models"), "/v1/models ");
  EXPECT_EQ(split("/a%20b?c=/d?e"), "/a%20b c=/d?e");
  EXPECT_EQ(split("http://host:80/a?b"), "/a b");
  EXPECT_EQ(split("https://host"), "/ ");
  EXPECT_EQ(split("http://"), "/ ");
  EXPECT_EQ(split(""), " ");
  // The text after the question mark is not part of the path, also after a host.
  EXPECT_EQ(split("http://host?a=/v1/models"), "/ a=/v1/models");
}

TEST(RequestTarget, APathIsDecodedOnce) {
  std::string decoded;
  EXPECT_TRUE(decode_path("/a%2520b%2F", decoded));
  EXPECT_EQ(decoded, "/a%20b/");
  for (const char* wrong : {"", "*", "host:80", "/%", "/%4", "/%4g", "/%00"})
    EXPECT_FALSE(decode_path(wrong, decoded)) << wrong;
  EXPECT_FALSE(decode_path(std::string_view("/a\0b", 4), decoded));
}

}  // namespace
}  // namespace redline::server
