#include "base/base64.h"

#include <gtest/gtest.h>

#include <random>

namespace redline {
namespace {

// RFC 4648, section 10.
TEST(Base64, GivesTheRfcsExamples) {
  const std::pair<const char*, const char*> examples[] = {{"", ""},
                                                          {"f", "Zg=="},
                                                          {"fo", "Zm8="},
                                                          {"foo", "Zm9v"},
                                                          {"foob", "Zm9vYg=="},
                                                          {"fooba", "Zm9vYmE="},
                                                          {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : examples) {
    EXPECT_EQ(to_base64(bytes), text);
    EXPECT_EQ(from_base64(text), bytes);
  }
  EXPECT_EQ(from_base64("Zm9v\r\nYg"), "foob");  // line breaks, no padding
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Z", "Zm9vY", "Zm9v!", "Zm=9v", "Zg-_", " Zg=="})
    EXPECT_EQ(from_base64(text), std::nullopt) << text;
}

TEST(Base64, GivesRandomBytesBack) {
  std::mt19937 random(1);
  for (size_t size = 0; size < 200; ++size) {
    std::string bytes(size, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
  }
}

}  // namespace
}  // namespace redline
