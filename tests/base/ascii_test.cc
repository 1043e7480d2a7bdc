#include "base/ascii.h"

#include <gtest/gtest.h>

namespace redline {
namespace {

TEST(Ascii, LowerChangesTheTwentySixLettersOnly) {
  for (int i = 0; i < 256; ++i) {
    const char c = static_cast<char>(i);
    EXPECT_EQ(ascii_lower(c), i >= 'A' && i <= 'Z' ? static_cast<char>(i + 32) : c) << i;
  }
  EXPECT_EQ(ascii_lower(std::string_view("ÄbC-9")), "Äbc-9");
  EXPECT_EQ(ascii_lower(std::string_view()), "");
}

TEST(Ascii, HexDigitsOfBothCases) {
  const std::string_view digits = "0123456789abcdef", upper = "0123456789ABCDEF";
  for (int i = 0; i < 256; ++i) {
    const char c = static_cast<char>(i);
    const size_t at = std::min(digits.find(c), upper.find(c));
    EXPECT_EQ(hex_digit(c), at == std::string_view::npos ? -1 : static_cast<int>(at)) << i;
  }
}

}  // namespace
}  // namespace redline
