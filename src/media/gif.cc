#include "media/gif.h"

#include <algorithm>
#include <optional>

#include "formats/byte_reader.h"
#include "media/image_size.h"
#include "media/lzw.h"

namespace redline {
namespace {

constexpr uint8_t kGifExtension = 0x21, kGifImage = 0x2c, kGifTrailer = 0x3b, kGifGraphicControl = 0xf9;

/// A palette of up to 256 colours.
struct GifPalette {
  std::string_view rgb;

  uint8_t at(size_t index, size_t channel) const {
    const size_t at = 3 * index + channel;
    return at < rgb.size() ? static_cast<uint8_t>(rgb[at]) : 0;
  }
};

/// Returns the row of an interlaced image that is stored at position `stored`.
int64_t interlaced_row(int64_t stored, int64_t height) {
  constexpr std::pair<int64_t, int64_t> kPasses[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}};
  for (const auto& [first, step] : kPasses) {
    const int64_t rows = first < height ? (height - first + step - 1) / step : 0;
    if (stored < rows) return first + stored * step;
    stored -= rows;
  }
  return 0;
}

class GifReader {
 public:
  GifReader(std::string_view bytes, const std::string& name) : reader_(name, bytes), name_(name) {}

  Result<RgbImage> read(std::vector<uint8_t>* alpha) {
    REDLINE_TRY(read_screen());
    for (uint8_t kind = 0;;) {
      REDLINE_TRY(reader_.read(kind, "a block"));
      if (kind == kGifImage) return read_image(alpha);
      if (kind == kGifTrailer) return invalid_argument("{}: a GIF file without an image", name_);
      if (kind == kGifExtension) REDLINE_TRY(read_extension());
      // Other bytes between blocks are skipped, as by browsers.
    }
  }

 private:
  Status read_palette(uint8_t flags, GifPalette& palette) {
    if ((flags & 0x80) == 0) return {};
    return reader_.take(uint64_t{3} << ((flags & 7) + 1), palette.rgb, "a palette");
  }

  Status read_screen() {
    std::string_view signature, rest;
    REDLINE_TRY(reader_.take(6, signature, "the signature"));
    if (signature != "GIF87a" && signature != "GIF89a") return invalid_argument("{}: not a GIF file", name_);
    REDLINE_TRY(reader_.read(width_, "the width"));
    REDLINE_TRY(reader_.read(height_, "the height"));
    uint8_t flags = 0;
    REDLINE_TRY(reader_.read(flags, "the flags"));
    REDLINE_TRY(reader_.take(2, rest, "background and aspect ratio"));
    return read_palette(flags, palette_);
  }

  /// Appends the data of the blocks that follow to `data`, or skips them.
  Status read_blocks(std::string* data) {
    for (uint8_t size = 1; size != 0;) {
      REDLINE_TRY(reader_.read(size, "the length of a block"));
      std::string_view block;
      REDLINE_TRY(reader_.take(size, block, "a block"));
      if (data) data->append(block);
    }
    return {};
  }

  Status read_extension() {
    uint8_t label = 0;
    REDLINE_TRY(reader_.read(label, "an extension"));
    if (label != kGifGraphicControl) return read_blocks(nullptr);
    std::string data;
    REDLINE_TRY(read_blocks(&data));
    transparent_.reset();
    if (data.size() >= 4 && (data[0] & 1) != 0) transparent_ = static_cast<uint8_t>(data[3]);
    return {};
  }

  Result<RgbImage> read_image(std::vector<uint8_t>* alpha) {
    uint16_t left = 0, top = 0, width = 0, height = 0;
    uint8_t flags = 0, literal_bits = 0;
    for (auto* number : {&left, &top, &width, &height}) REDLINE_TRY(reader_.read(*number, "the place of the image"));
    REDLINE_TRY(reader_.read(flags, "the flags"));
    REDLINE_TRY(read_palette(flags, palette_));
    if (palette_.rgb.empty()) return invalid_argument("{}: a GIF file without a palette", name_);
    REDLINE_TRY(reader_.read(literal_bits, "the number of bits"));
    if (literal_bits < 1 || literal_bits > 8)
      return invalid_argument("{}: not a readable GIF: literals of {} bits", name_, literal_bits);
    RgbImage image = {std::max<int64_t>(width_, left + width), std::max<int64_t>(height_, top + height), {}};
    REDLINE_TRY(check_image_size(name_, image.width, image.height, static_cast<int64_t>(reader_.size()), kMaxLzwRatio));
    std::string codes;
    REDLINE_TRY(read_blocks(&codes));
    std::vector<uint8_t> indices(size_t{width} * height);
    const size_t decoded = decode_lzw(codes, {.literal_bits = literal_bits}, indices);
    if (decoded < indices.size())
      return invalid_argument("{}: damaged GIF: {} of {} pixels can be decoded", name_, decoded, indices.size());

    std::vector<uint8_t> canvas(static_cast<size_t>(image.width * image.height), transparent_.value_or(0));
    const bool is_interlaced = (flags & 0x40) != 0;
    for (int64_t row = 0; row < height; ++row) {
      const int64_t y = top + (is_interlaced ? interlaced_row(row, height) : row);
      std::copy_n(indices.data() + row * width, width, canvas.data() + y * image.width + left);
    }
    image.rgb.reserve(3 * canvas.size());
    for (const uint8_t index : canvas)
      for (size_t c = 0; c < 3; ++c) image.rgb.push_back(palette_.at(index, c));
    if (alpha && transparent_) {
      for (uint8_t& index : canvas) index = index == *transparent_ ? 0 : 255;
      *alpha = std::move(canvas);
    }
    return image;
  }

  ByteReader reader_;
  const std::string& name_;
  uint16_t width_ = 0, height_ = 0;
  GifPalette palette_;
  std::optional<uint8_t> transparent_;  ///< index of the transparent colour
};

}  // namespace

Result<RgbImage> decode_gif(std::string_view bytes, const std::string& name, std::vector<uint8_t>* alpha) {
  return GifReader(bytes, name).read(alpha);
}

}  // namespace redline
