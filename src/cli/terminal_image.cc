#include "cli/terminal_image.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/ascii.h"
#include "base/base64.h"
#include "base/environment.h"
#include "media/png.h"

namespace redline::cli {
namespace {

using Pixel = std::array<int, 3>;

bool contains(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

// Returns the width for half blocks and graphics protocols: about 8 image pixels per column, with a minimum that stays
// visible.
int64_t columns_of(const RgbImage& image, const Screen& screen) {
  return std::clamp<int64_t>((image.width + 7) / 8, std::min<int64_t>(32, screen.columns), screen.columns);
}

// Resizes: each new pixel is the mean of the old ones that it covers, or the nearest if it covers less than one.
RgbImage resized(const RgbImage& image, int64_t width, int64_t height) {
  RgbImage result{width, height, {}};
  result.rgb.reserve(static_cast<size_t>(width * height * 3));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      const int64_t x0 = x * image.width / width, y0 = y * image.height / height;
      const int64_t x1 = std::max((x + 1) * image.width / width, x0 + 1);
      const int64_t y1 = std::max((y + 1) * image.height / height, y0 + 1);
      for (int64_t c = 0; c < 3; ++c) {
        int64_t sum = 0;
        for (int64_t row = y0; row < y1; ++row)
          for (int64_t column = x0; column < x1; ++column)
            sum += image.rgb[static_cast<size_t>((row * image.width + column) * 3 + c)];
        const int64_t count = (x1 - x0) * (y1 - y0);
        result.rgb.push_back(static_cast<uint8_t>((sum + count / 2) / count));
      }
    }
  return result;
}

Pixel pixel(const RgbImage& image, int64_t x, int64_t y) {
  const uint8_t* at = image.rgb.data() + (y * image.width + x) * 3;
  return {at[0], at[1], at[2]};
}

std::string kitty(std::string_view png, int64_t columns) {
  // a=T shows at once, f=100 is PNG, q=2 requests no response, c scales to this many columns; m=1 until the last part.
  constexpr size_t kPart = 4096;
  const std::string text = to_base64(png);
  std::string out;
  for (size_t at = 0; at < text.size(); at += kPart) {
    const bool more = at + kPart < text.size();
    out += at == 0 ? fmt::format("\x1b_Ga=T,f=100,q=2,c={},m={};", columns, int{more})
                   : fmt::format("\x1b_Gm={};", int{more});
    out += text.substr(at, kPart);
    out += "\x1b\\";
  }
  return out + "\n";
}

std::string iterm(std::string_view png, int64_t columns) {
  return fmt::format("\x1b]1337;File=inline=1;size={};width={};preserveAspectRatio=1:{}\a\n", png.size(), columns,
                     to_base64(png));
}

// 6 x 7 x 6 colours, most for green, to which the eye is most sensitive; Floyd-Steinberg error diffusion (1976).
std::string sixel(const RgbImage& image) {
  constexpr std::array<int, 3> kLevels = {6, 7, 6};
  const auto width = static_cast<size_t>(image.width), height = static_cast<size_t>(image.height);
  std::vector<float> values(image.rgb.begin(), image.rgb.end());
  std::vector<uint8_t> colours(width * height);
  for (size_t y = 0; y < height; ++y)
    for (size_t x = 0; x < width; ++x) {
      int colour = 0;
      for (size_t c = 0; c < 3; ++c) {
        float& value = values[(y * width + x) * 3 + c];
        const int most = kLevels[c] - 1;
        const int level = std::clamp(static_cast<int>(std::lround(value * static_cast<float>(most) / 255)), 0, most);
        const float error = value - static_cast<float>(level * 255) / static_cast<float>(most);
        const auto spread = [&](size_t to_x, size_t to_y, float share) {
          if (to_x < width && to_y < height) values[(to_y * width + to_x) * 3 + c] += error * share / 16;
        };
        spread(x + 1, y, 7);
        spread(x - 1, y + 1, 3);  // out of range at x = 0
        spread(x, y + 1, 5);
        spread(x + 1, y + 1, 1);
        colour = colour * kLevels[c] + level;
      }
      colours[y * width + x] = static_cast<uint8_t>(colour);
    }

  std::string out = fmt::format("\x1bP0;1q\"1;1;{};{}", width, height);
  std::array<bool, 252> used = {};
  for (uint8_t colour : colours) used[colour] = true;
  for (int i = 0; i < 252; ++i)
    if (used[static_cast<size_t>(i)])
      out += fmt::format("#{};2;{};{};{}", i, i / 42 * 20, (i / 6 % 7 * 100 + 3) / 6, i % 6 * 20);  // in percent
  for (size_t top = 0; top < height; top += 6) {
    const size_t rows = std::min<size_t>(6, height - top);
    used.fill(false);
    for (size_t i = top * width; i < (top + rows) * width; ++i) used[colours[i]] = true;
    bool first = true;
    for (size_t colour = 0; colour < used.size(); ++colour) {
      if (!used[colour]) continue;
      out += fmt::format("{}#{}", first ? "" : "$", colour);
      first = false;
      for (size_t x = 0, run = 0; x < width; x += run) {
        const auto bits = [&](size_t column) {
          int set = 0;
          for (size_t row = 0; row < rows; ++row)
            if (colours[(top + row) * width + column] == colour) set |= 1 << row;
          return static_cast<char>(63 + set);
        };
        const char here = bits(x);
        for (run = 1; x + run < width && bits(x + run) == here;) ++run;
        out += run > 3 ? fmt::format("!{}{}", run, here) : std::string(run, here);
      }
    }
    out += '-';
  }
  return out + "\x1b\\\n";
}

// Returns the nearest colour of xterm's 6 x 6 x 6 cube and its 24 greys.
int colour_256(const Pixel& p) {
  constexpr std::array<int, 6> kSteps = {0, 95, 135, 175, 215, 255};
  const auto distance = [&](const Pixel& q) {
    int sum = 0;
    for (size_t c = 0; c < 3; ++c) sum += (p[c] - q[c]) * (p[c] - q[c]);
    return sum;
  };
  std::array<int, 3> step;
  Pixel cube;
  for (size_t c = 0; c < 3; ++c) {
    step[c] = p[c] < 48 ? 0 : p[c] < 115 ? 1 : std::min((p[c] - 35) / 40, 5);
    cube[c] = kSteps[static_cast<size_t>(step[c])];
  }
  const int grey = std::clamp(((p[0] + p[1] + p[2]) / 3 - 3) / 10, 0, 23), value = 8 + 10 * grey;
  return distance({value, value, value}) < distance(cube) ? 232 + grey : 16 + 36 * step[0] + 6 * step[1] + step[2];
}

std::string blocks(const RgbImage& image, bool is_24_bit) {
  std::string out;
  const auto set = [&](int ground, const Pixel& p) {
    out += is_24_bit ? fmt::format("\x1b[{};2;{};{};{}m", ground, p[0], p[1], p[2])
                     : fmt::format("\x1b[{};5;{}m", ground, colour_256(p));
  };
  for (int64_t y = 0; y < image.height; y += 2) {
    Pixel above = {-1, -1, -1}, below = above;  // colours not yet set on this line
    for (int64_t x = 0; x < image.width; ++x) {
      if (const Pixel p = pixel(image, x, y); p != above) set(38, above = p);
      if (y + 1 < image.height)
        if (const Pixel p = pixel(image, x, y + 1); p != below) set(48, below = p);
      out += "\u2580";
    }
    out += "\x1b[0m\n";
  }
  return out;
}

}  // namespace

Screen Screen::of(std::FILE* output) {
  Screen screen;
  const int file = fileno(output);
  screen.is_terminal = file >= 0 && isatty(file) == 1;
  winsize size = {};
  if (screen.is_terminal && ioctl(file, TIOCGWINSZ, &size) == 0) {
    if (size.ws_col > 0) screen.columns = size.ws_col;
    if (size.ws_row > 0) screen.rows = size.ws_row;
  }
  screen.variable = environment_variable;
  return screen;
}

ImageProtocol choose_image_protocol(const Screen& screen) {
  const auto is_set = [&](const char* name) { return !screen.variable(name).empty(); };
  const std::string term = screen.variable("TERM"), program = screen.variable("TERM_PROGRAM");
  if (!screen.is_terminal || is_set("NO_COLOR") || term.empty() || term == "dumb") return ImageProtocol::kNone;
  const bool is_wrapped = is_set("TMUX") || is_set("STY") || term.starts_with("screen") || term.starts_with("tmux");
  if (!is_wrapped) {
    if (is_set("KITTY_WINDOW_ID") || contains(term, "kitty") || contains(term, "ghostty") || program == "ghostty")
      return ImageProtocol::kKitty;
    if (program == "iTerm.app" || program == "WezTerm" || program == "mintty" ||
        screen.variable("LC_TERMINAL") == "iTerm2")
      return ImageProtocol::kIterm;
    if (contains(term, "sixel") || term.starts_with("foot") || term.starts_with("mlterm") || term.starts_with("yaft") ||
        term.starts_with("contour"))
      return ImageProtocol::kSixel;
  }
  // Half blocks are non-ASCII characters, so they need a UTF-8 locale. The first of these variables that is set
  // determines it.
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    if (locale.empty()) locale = screen.variable(name);
  locale = ascii_lower(locale);
  if (!contains(locale, "utf-8") && !contains(locale, "utf8")) return ImageProtocol::kNone;
  const std::string colours = screen.variable("COLORTERM");
  if (colours == "truecolor" || colours == "24bit" || contains(term, "direct")) return ImageProtocol::kBlocks24;
  if (contains(term, "256color")) return ImageProtocol::kBlocks256;
  return ImageProtocol::kNone;
}

Result<ImageProtocol> image_protocol(const std::string& flag, const Screen& screen) {
  if (flag == "auto") return choose_image_protocol(screen);
  if (flag == "none") return ImageProtocol::kNone;
  if (flag == "kitty") return ImageProtocol::kKitty;
  if (flag == "iterm") return ImageProtocol::kIterm;
  if (flag == "sixel") return ImageProtocol::kSixel;
  if (flag == "blocks")
    return screen.variable("COLORTERM").empty() && contains(screen.variable("TERM"), "256color")
               ? ImageProtocol::kBlocks256
               : ImageProtocol::kBlocks24;
  return invalid_argument("\"{}\" is not a way to show an image; there are auto, kitty, iterm, sixel, blocks and none",
                          flag);
}

Result<std::string> terminal_image(const RgbImage& image, ImageProtocol protocol, const Screen& screen) {
  if (protocol == ImageProtocol::kNone) return std::string();
  REDLINE_ASSIGN(const std::string png, encode_png(image));  // also validates the image
  const int64_t columns = columns_of(image, screen);
  switch (protocol) {
    case ImageProtocol::kKitty: return kitty(png, columns);
    case ImageProtocol::kIterm: return iterm(png, columns);
    case ImageProtocol::kSixel: {
      // The size is in screen pixels: small images are enlarged by integer factors, large ones shrink to 640.
      const int64_t most = std::max(image.width, image.height);
      const int64_t grow = std::max<int64_t>(1, 256 / most);
      const double scale = most > 640 ? 640.0 / static_cast<double>(most) : static_cast<double>(grow);
      const auto scaled = [&](int64_t side) {
        return std::max<int64_t>(1, std::llround(static_cast<double>(side) * scale));
      };
      return sixel(resized(image, scaled(image.width), scaled(image.height)));
    }
    case ImageProtocol::kBlocks24:
    case ImageProtocol::kBlocks256: {
      // A cell is two pixels high. The whole image should be visible, with one line left for the prompt.
      const int64_t max_rows = std::max<int64_t>(2, 2 * (screen.rows - 1));
      int64_t width = std::min(std::max<int64_t>(columns, std::min<int64_t>(64, screen.columns)), image.width);
      int64_t height = std::max<int64_t>(1, (width * image.height + image.width / 2) / image.width);
      if (height > max_rows) {
        height = max_rows;
        width = std::clamp<int64_t>(height * image.width / image.height, 1, width);
      }
      return blocks(resized(image, width, height), protocol == ImageProtocol::kBlocks24);
    }
    case ImageProtocol::kNone: break;
  }
  return std::string();
}

}  // namespace redline::cli
