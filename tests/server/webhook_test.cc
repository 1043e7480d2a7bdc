#include "server/webhook.h"

#include <gtest/gtest.h>

namespace redline::server {
namespace {

// The example of the Standard Webhooks specification's libraries.
TEST(Webhook, SignaturesAreThoseOfTheStandard) {
  EXPECT_EQ(webhook_signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
                              "{\"test\": 2432232314}"),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(Webhook, UrlsAreOfHttp) {
  EXPECT_TRUE(check_webhook_url("https://example.org/hook").ok());
  EXPECT_TRUE(check_webhook_url("http://127.0.0.1:9000").ok());
  for (const char* url : {"", "example.org", "ftp://example.org", "file:///etc/passwd", "http://", "https:///x"})
    EXPECT_FALSE(check_webhook_url(url).ok()) << url;
}

}  // namespace
}  // namespace redline::server
