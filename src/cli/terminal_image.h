// Shows an image in a terminal with the best protocol it supports.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "base/error.h"
#include "redline/rgb_image.h"

namespace redline::cli {

enum class ImageProtocol : uint8_t {
  kNone,
  kKitty,      ///< kitty's graphics protocol: sw.kovidgoyal.net/kitty/graphics-protocol
  kIterm,      ///< iTerm2's inline images: iterm2.com/documentation-images.html
  kSixel,      ///< DEC's six-pixel rows: vt100.net/docs/vt3xx-gp/chapter14.html
  kBlocks24,   ///< upper half blocks in 24-bit colour
  kBlocks256,  ///< upper half blocks in xterm's 256 colours
};

/// Properties of the terminal behind an output.
struct Screen {
  bool is_terminal = false;
  int64_t columns = 80, rows = 24;
  std::function<std::string(const char*)> variable;  ///< returns an environment variable; "" if unset

  static Screen of(std::FILE* output);
};

/// Chooses a protocol from the environment. kNone if the output is not a terminal, NO_COLOR is set (no-color.org), TERM
/// is dumb, or there are too few colours. Inside tmux and screen, which do not pass images through, at most half
/// blocks.
ImageProtocol choose_image_protocol(const Screen& screen);
/// Reads the value of a flag: auto (as above), kitty, iterm, sixel, blocks, none. invalid_argument: anything else.
Result<ImageProtocol> image_protocol(const std::string& flag, const Screen& screen);

/// Returns the bytes that show the image, at most as wide as the screen, followed by a line feed; "" for kNone. Errors
/// as encode_png.
Result<std::string> terminal_image(const RgbImage& image, ImageProtocol protocol, const Screen& screen);

}  // namespace redline::cli
