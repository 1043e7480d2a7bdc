#include "cli/terminal_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "media/png.h"

namespace redline::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Screen screen_with(std::map<std::string, std::string> variables, bool is_terminal = true) {
  Screen screen;
  screen.is_terminal = is_terminal;
  screen.variable = [variables = std::move(variables)](const char* name) {
    const auto at = variables.find(name);
    return at == variables.end() ? "" : at->second;
  };
  return screen;
}

TEST(TerminalImage, TheEnvironmentChooses) {
  using P = ImageProtocol;
  const auto expect = [](P protocol, const std::map<std::string, std::string>& variables) {
    std::string said;
    for (const auto& [name, value] : variables) said += name + "=" + value + " ";
    EXPECT_EQ(choose_image_protocol(screen_with(variables)), protocol) << said;
    EXPECT_EQ(choose_image_protocol(screen_with(variables, false)), P::kNone) << said << "and no terminal";
    auto quiet = variables;
    quiet["NO_COLOR"] = "1";
    EXPECT_EQ(choose_image_protocol(screen_with(quiet)), P::kNone) << said << "NO_COLOR";
  };
  expect(P::kKitty, {{"TERM", "xterm-kitty"}});
  expect(P::kKitty, {{"TERM", "xterm-256color"}, {"KITTY_WINDOW_ID", "1"}});
  expect(P::kKitty, {{"TERM", "xterm-ghostty"}});
  expect(P::kIterm, {{"TERM", "xterm-256color"}, {"TERM_PROGRAM", "iTerm.app"}});
  expect(P::kIterm, {{"TERM", "xterm-256color"}, {"TERM_PROGRAM", "WezTerm"}});
  expect(P::kSixel, {{"TERM", "foot"}});
  expect(P::kSixel, {{"TERM", "mlterm-256color"}});
  expect(P::kBlocks24, {{"TERM", "xterm-256color"}, {"COLORTERM", "truecolor"}, {"LANG", "en_GB.UTF-8"}});
  expect(P::kBlocks24, {{"TERM", "xterm"}, {"COLORTERM", "24bit"}, {"LC_CTYPE", "C.utf8"}});
  expect(P::kBlocks256, {{"TERM", "xterm-256color"}, {"LANG", "en_GB.UTF-8"}});
  expect(P::kNone, {{"TERM", "xterm-256color"}, {"LANG", "en_GB.UTF-8"}, {"LC_ALL", "C"}});
  expect(P::kNone, {{"TERM", "xterm-256color"}});
  expect(P::kNone, {{"TERM", "linux"}, {"LANG", "en_GB.UTF-8"}});
  expect(P::kNone, {{"TERM", "dumb"}, {"KITTY_WINDOW_ID", "1"}});
  expect(P::kNone, {});
  // A multiplexer keeps images to itself.
  expect(P::kBlocks256, {{"TERM", "screen-256color"}, {"KITTY_WINDOW_ID", "1"}, {"LANG", "C.UTF-8"}});
  expect(P::kBlocks24, {{"TERM", "xterm-kitty"}, {"TMUX", "x"}, {"COLORTERM", "truecolor"}, {"LANG", "C.UTF-8"}});
}

TEST(TerminalImage, AFlagOverrides) {
  const Screen nowhere = screen_with({}, false);
  EXPECT_EQ(*image_protocol("sixel", nowhere), ImageProtocol::kSixel);
  EXPECT_EQ(*image_protocol("kitty", nowhere), ImageProtocol::kKitty);
  EXPECT_EQ(*image_protocol("iterm", nowhere), ImageProtocol::kIterm);
  EXPECT_EQ(*image_protocol("blocks", nowhere), ImageProtocol::kBlocks24);
  EXPECT_EQ(*image_protocol("blocks", screen_with({{"TERM", "xterm-256color"}})), ImageProtocol::kBlocks256);
  EXPECT_EQ(*image_protocol("auto", nowhere), ImageProtocol::kNone);
  EXPECT_EQ(*image_protocol("none", screen_with({{"TERM", "xterm-kitty"}})), ImageProtocol::kNone);
  EXPECT_THAT(image_protocol("ascii", nowhere).status().message(), HasSubstr("auto, kitty, iterm, sixel"));
}

RgbImage noise(int64_t width, int64_t height) {
  RgbImage picture{width, height, {}};
  uint32_t state = 1;
  for (int64_t i = 0; i < width * height * 3; ++i)
    picture.rgb.push_back(static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24));
  return picture;
}
RgbImage plain(int64_t width, int64_t height, uint8_t r, uint8_t g, uint8_t b) {
  RgbImage picture{width, height, {}};
  for (int64_t i = 0; i < width * height; ++i) picture.rgb.insert(picture.rgb.end(), {r, g, b});
  return picture;
}

std::string unbase64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (size_t at = 0; at + 4 <= text.size(); at += 4) {
    uint32_t group = 0;
    for (size_t i = 0; i < 4; ++i)
      group = group << 6 | static_cast<uint32_t>(text[at + i] == '=' ? 0 : digits.find(text[at + i]));
    for (int i = 0; i < 3; ++i)
      if (i == 0 || text[at + 1 + static_cast<size_t>(i)] != '=') bytes += static_cast<char>(group >> (16 - 8 * i));
  }
  return bytes;
}

TEST(TerminalImage, KittyGetsThePngInParts) {
  for (const int side : {1, 2, 3, 64}) {  // one part; several; all three lengths of the last group
    const RgbImage picture = noise(side, side);
    const std::string out = *terminal_image(picture, ImageProtocol::kKitty, screen_with({}));
    EXPECT_THAT(out, StartsWith("\x1b_Ga=T,f=100,q=2,c=32,m="));
    EXPECT_TRUE(out.ends_with("\x1b\\\n"));
    std::string data;
    size_t parts = 0;
    bool last = false;
    for (size_t at = 0; (at = out.find("\x1b_G", at)) != std::string::npos; ++parts) {
      EXPECT_FALSE(last) << "a part after the last";
      const size_t semicolon = out.find(';', at), end = out.find("\x1b\\", at);
      ASSERT_LT(semicolon, end);
      last = out.substr(semicolon - 3, 3) == "m=0";
      EXPECT_LE(end - semicolon - 1, 4096u);
      data += out.substr(semicolon + 1, end - semicolon - 1);
      at = end;
    }
    EXPECT_TRUE(last);
    EXPECT_EQ(parts, (data.size() + 4095) / 4096);
    const auto back = decode_png(unbase64(data), "x");
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(back->rgb, picture.rgb);
  }
}

TEST(TerminalImage, ItermGetsThePngInOne) {
  const RgbImage picture = noise(500, 3);
  const std::string out = *terminal_image(picture, ImageProtocol::kIterm, screen_with({}));
  const std::string png = *encode_png(picture);
  EXPECT_THAT(out, StartsWith("\x1b]1337;File=inline=1;size=" + std::to_string(png.size()) +
                              ";width=63;preserveAspectRatio=1:"));
  EXPECT_TRUE(out.ends_with("\a\n"));
  EXPECT_EQ(unbase64(out.substr(out.find(':') + 1, out.size() - out.find(':') - 3)), png);
}

// Reads sixels back: [height, width] colour numbers, and what each number means in per cent.
void read_sixel(const std::string& out, std::vector<std::vector<int>>& pixels,
                std::map<int, std::array<int, 3>>& table) {
  ASSERT_THAT(out, StartsWith("\x1bP0;1q\"1;1;"));
  int width = 0, height = 0, used = 0;
  ASSERT_EQ(std::sscanf(out.c_str() + 6, "\"1;1;%d;%d%n", &width, &height, &used), 2);
  pixels.assign(static_cast<size_t>(height), std::vector<int>(static_cast<size_t>(width), -1));
  const size_t end = out.find("\x1b\\");
  ASSERT_EQ(end, out.size() - 3);
  int colour = 0, repeat = 1;
  size_t x = 0, top = 0;
  for (size_t at = 6 + static_cast<size_t>(used); at < end;) {
    const char c = out[at++];
    int n = 0, a = 0, r = 0, g = 0, b = 0, length = 0;
    if (c == '#' && std::sscanf(out.c_str() + at, "%d;2;%d;%d;%d%n", &a, &r, &g, &b, &length) == 4) {
      table[a] = {r, g, b};
      at += static_cast<size_t>(length);
    } else if (c == '#' || c == '!') {
      ASSERT_EQ(std::sscanf(out.c_str() + at, "%d%n", &n, &length), 1);
      (c == '#' ? colour : repeat) = n;
      at += static_cast<size_t>(length);
    } else if (c == '$' || c == '-') {
      x = 0;
      if (c == '-') top += 6;
    } else {
      ASSERT_TRUE(c >= 63 && c < 127) << int{c};
      for (; repeat > 0; --repeat, ++x)
        for (size_t row = 0; row < 6; ++row)
          if ((c - 63) >> row & 1) {
            ASSERT_TRUE(top + row < pixels.size() && x < pixels[0].size());
            ASSERT_EQ(pixels[top + row][x], -1) << "painted twice";
            pixels[top + row][x] = colour;
          }
      repeat = 1;
    }
  }
}

TEST(TerminalImage, SixelsHoldEveryPixelOnceAndItsColourInTheMean) {
  for (const auto& [width, height] : {std::pair{300, 7}, {257, 12}, {1000, 400}, {20, 20}}) {
    const RgbImage picture = plain(width, height, 200, 90, 30);
    const std::string out = *terminal_image(picture, ImageProtocol::kSixel, screen_with({}));
    std::vector<std::vector<int>> pixels;
    std::map<int, std::array<int, 3>> table;
    read_sixel(out, pixels, table);
    if (HasFatalFailure()) return;
    EXPECT_EQ(pixels[0].size(), width == 1000 ? 640u : width == 20 ? 240u : static_cast<size_t>(width));
    double sum[3] = {};
    for (const auto& row : pixels)
      for (int colour : row) {
        ASSERT_TRUE(table.contains(colour));
        for (size_t c = 0; c < 3; ++c) sum[c] += table[colour][c] * 2.55;
      }
    const double count = static_cast<double>(pixels.size() * pixels[0].size());
    // Spread errors leave the image at its edges: at most one step of 51 in the outermost rows and columns. Levels of
    // green are rounded to per cent, by up to a third.
    const double allowed =
        51 * (2.0 / static_cast<double>(pixels.size()) + 2.0 / static_cast<double>(pixels[0].size())) + 2.55 / 3;
    EXPECT_NEAR(sum[0] / count, 200, allowed);
    EXPECT_NEAR(sum[1] / count, 90, allowed);
    EXPECT_NEAR(sum[2] / count, 30, allowed);
  }
}

TEST(TerminalImage, HalfBlocks) {
  RgbImage picture = plain(2, 3, 10, 20, 30);
  picture.rgb[0] = 255;
  EXPECT_EQ(*terminal_image(picture, ImageProtocol::kBlocks24, screen_with({})),
            "\x1b[38;2;255;20;30m\x1b[48;2;10;20;30m\u2580\x1b[38;2;10;20;30m\u2580\x1b[0m\n"
            "\x1b[38;2;10;20;30m\u2580\u2580\x1b[0m\n");
  const auto colour = [&](uint8_t r, uint8_t g, uint8_t b) {
    return *terminal_image(plain(1, 1, r, g, b), ImageProtocol::kBlocks256, screen_with({}));
  };
  EXPECT_EQ(colour(0, 0, 0), "\x1b[38;5;16m\u2580\x1b[0m\n");
  EXPECT_EQ(colour(255, 255, 255), "\x1b[38;5;231m\u2580\x1b[0m\n");
  EXPECT_EQ(colour(255, 0, 0), "\x1b[38;5;196m\u2580\x1b[0m\n");
  EXPECT_EQ(colour(128, 128, 128), "\x1b[38;5;244m\u2580\x1b[0m\n");
  EXPECT_EQ(colour(95, 135, 175), "\x1b[38;5;67m\u2580\x1b[0m\n");
}

TEST(TerminalImage, FitsTheScreen) {
  Screen screen = screen_with({});
  screen.columns = 40;
  screen.rows = 11;
  for (const auto& [width, height] : {std::pair{1024, 1024}, {2000, 10}, {10, 2000}, {3, 3}}) {
    const std::string out = *terminal_image(noise(width, height), ImageProtocol::kBlocks24, screen);
    const auto lines = std::count(out.begin(), out.end(), '\n');
    EXPECT_LE(lines, 10);
    EXPECT_GE(lines, 1);
    const std::string line = out.substr(0, out.find('\n'));
    size_t cells = 0;
    for (size_t at = 0; (at = line.find("\u2580", at)) != std::string::npos; ++at) ++cells;
    EXPECT_LE(cells, 40u);
    EXPECT_GE(cells, 1u);
    EXPECT_THAT(*terminal_image(noise(width, height), ImageProtocol::kKitty, screen), HasSubstr(",c="));
  }
  EXPECT_EQ(*terminal_image(noise(4, 4), ImageProtocol::kNone, screen), "");
  EXPECT_EQ(terminal_image({2, 2, {}}, ImageProtocol::kBlocks24, screen).status().code(), Code::invalid_argument);
  EXPECT_FALSE(Screen::of(std::tmpfile()).is_terminal);
}

}  // namespace
}  // namespace redline::cli
