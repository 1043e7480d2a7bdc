// Showing a picture in a terminal, in the best way that the terminal has.
#pragma once

#include <cstdio>
#include <functional>
#include <string>

#include "base/error.h"
#include "redline/picture.h"

namespace redline::cli {

enum class PictureProtocol : uint8_t {
  kNone,
  kKitty,      ///< kitty's graphics protocol: sw.kovidgoyal.net/kitty/graphics-protocol
  kIterm,      ///< iTerm2's inline images: iterm2.com/documentation-images.html
  kSixel,      ///< DEC's six-pixel rows: vt100.net/docs/vt3xx-gp/chapter14.html
  kBlocks24,   ///< upper half blocks in 24-bit colours
  kBlocks256,  ///< and in the 256 of xterm
};

/// What is known of the terminal behind an output.
struct Screen {
  bool is_terminal = false;
  int64_t columns = 80, rows = 24;
  std::function<std::string(const char*)> variable;  ///< of the environment; "" when unset

  static Screen of(std::FILE* output);
};

/// By the environment. Nothing when the output is no terminal, NO_COLOR is set (no-color.org), TERM is dumb, or there
/// are too few colours. Inside tmux and screen, which pass no pictures on, half blocks at best.
PictureProtocol choose_picture_protocol(const Screen& screen);
/// What a flag says: auto (as chosen above), kitty, iterm, sixel, blocks, none. invalid_argument: another word.
Result<PictureProtocol> picture_protocol(const std::string& flag, const Screen& screen);

/// The bytes that show `picture`, at most as wide as the screen, and a line feed; "" for kNone.
/// Errors as encode_png.
Result<std::string> terminal_picture(const RgbImage& picture, PictureProtocol protocol, const Screen& screen);

}  // namespace redline::cli
