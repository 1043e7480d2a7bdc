#include "lab/serve/load.h"

#include <gtest/gtest.h>

namespace redline::lab {
namespace {

TEST(Load, ReadsUrls) {
  const ServeTarget plain = parse_serve_url("http://127.0.0.1:8080").value();
  EXPECT_EQ(plain.host + " " + plain.port + " " + plain.path, "127.0.0.1 8080 /v1/completions");
  const ServeTarget v1 = parse_serve_url("http://host/v1/").value();
  EXPECT_EQ(v1.host + " " + v1.port + " " + v1.path, "host 80 /v1/completions");
  const ServeTarget six = parse_serve_url("http://[::1]:1/other/completions").value();
  EXPECT_EQ(six.host + " " + six.port + " " + six.path, "::1 1 /other/completions");
  for (const char* wrong : {"https://a", "a:80", "http://", "http://:80"})
    EXPECT_FALSE(parse_serve_url(wrong).ok()) << wrong;
}

TEST(Load, PercentilesAreNearestRanks) {
  EXPECT_EQ(percentile({}, 0.5), 0);
  EXPECT_EQ(percentile({3}, 0.01), 3);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.5), 2);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 0.51), 3);
  EXPECT_EQ(percentile({4, 1, 3, 2}, 1), 4);
}

TEST(Load, SummariesLeaveOutWhatFailed) {
  LoadResult result;
  result.seconds = 2;
  result.requests = {
      {.sent = 0, .first = 0.5, .last = 2, .gaps = {0.1, 0.3}, .prompt_tokens = 10, .tokens = 3, .cached_tokens = 4},
      {.sent = 1, .first = 1.25, .last = 2, .gaps = {0.2}, .prompt_tokens = 5, .tokens = 2},
      {.error = "status 500"}};
  const LoadSummary s = summarize(result);
  EXPECT_EQ(s.requests, 3);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.error, "status 500");
  EXPECT_EQ(s.tokens_per_s, 2.5);
  EXPECT_EQ(s.requests_per_s, 1);
  EXPECT_EQ(s.first_p50, 0.25);
  EXPECT_EQ(s.first_p99, 0.5);
  EXPECT_EQ(s.gap_p50, 0.2);
  EXPECT_EQ(s.gap_max, 0.3);
  EXPECT_EQ(s.cached_tokens, 4);
}

TEST(Load, TextIsTheSameForASeed) {
  EXPECT_EQ(load_text(20, 3), load_text(20, 3));
  EXPECT_NE(load_text(20, 3), load_text(20, 4));
  EXPECT_NE(load_text(1, 3), load_text(1, 4)) << "what short texts share is not computed again";
}

}  // namespace
}  // namespace redline::lab
