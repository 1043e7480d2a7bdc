#include "media/tiff.h"

#include <zlib.h>

#include <algorithm>

#include "media/cmyk.h"
#include "media/exif.h"
#include "media/image_size.h"
#include "media/lzw.h"
#include "media/tiff_numbers.h"

namespace redline {
namespace {

enum class TiffTag : uint16_t {
  kWidth = 256,
  kHeight = 257,
  kBitsPerSample = 258,
  kCompression = 259,
  kPhotometric = 262,
  kFillOrder = 266,
  kStripOffsets = 273,
  kSamplesPerPixel = 277,
  kRowsPerStrip = 278,
  kStripByteCounts = 279,
  kPlanarConfiguration = 284,
  kPredictor = 317,
  kColorMap = 320,
  kTileWidth = 322,
  kTileLength = 323,
  kTileOffsets = 324,
  kTileByteCounts = 325,
  kExtraSamples = 338,
  kSampleFormat = 339
};
struct TiffColors {
  enum : uint32_t { kWhiteIsZero = 0, kBlackIsZero = 1, kRgb = 2, kPalette = 3, kSeparated = 5 };
};
struct TiffCompression {
  enum : uint32_t { kNone = 1, kLzw = 5, kDeflate = 8, kPackBits = 32773, kOldDeflate = 32946 };
};
// Maximum bytes that one compressed byte decodes to. Deflate: 1032. PackBits: two bytes, a count and a value, decode to
// 128 bytes at most.
constexpr int64_t kMaxDeflateRatio = 1032, kMaxPackBitsRatio = 64;

size_t decode_pack_bits(std::string_view packed, std::span<uint8_t> out) {
  size_t written = 0;
  for (size_t at = 0; at < packed.size() && written < out.size();) {
    const auto head = static_cast<int8_t>(packed[at++]);
    if (head == -128) continue;
    const size_t wanted = head >= 0 ? static_cast<size_t>(head) + 1 : static_cast<size_t>(1 - head);
    const size_t count = std::min(wanted, out.size() - written);
    if (head >= 0) {
      if (packed.size() - at < count) break;
      std::copy_n(packed.data() + at, count, out.data() + written);
      at += wanted;
    } else {
      if (at == packed.size()) break;
      std::fill_n(out.data() + written, count, static_cast<uint8_t>(packed[at++]));
    }
    written += count;
  }
  return written;
}

size_t inflate_into(std::string_view packed, std::span<uint8_t> out) {
  z_stream stream = {};
  if (inflateInit(&stream) != Z_OK) return 0;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  stream.avail_in = static_cast<uInt>(packed.size());
  stream.next_out = out.data();
  stream.avail_out = static_cast<uInt>(out.size());
  inflate(&stream, Z_FINISH);
  const size_t written = out.size() - stream.avail_out;
  inflateEnd(&stream);
  return written;
}

class TiffDecoder {
 public:
  TiffDecoder(std::string_view bytes, const std::string& name) : numbers_(bytes), bytes_(bytes), name_(name) {}

  Result<RgbImage> read(std::vector<uint8_t>* alpha) {
    REDLINE_TRY(read_head());
    REDLINE_TRY(read_layout());
    samples_.resize(static_cast<size_t>(image_.width * image_.height * num_samples_));
    for (int64_t plane = 0; plane < planes_; ++plane) REDLINE_TRY(read_plane(plane));
    to_rgb();
    const int orientation = exif_orientation(bytes_);
    if (alpha && has_alpha_) {
      *alpha = take_alpha_samples();
      apply_orientation(*alpha, image_.width, image_.height, orientation);
    }
    return apply_orientation(std::move(image_), orientation);
  }

 private:
  template <class... A>
  Status damaged(fmt::format_string<A...> text, A&&... args) const {
    return invalid_argument("{}: not a readable TIFF: {}", name_, fmt::format(text, std::forward<A>(args)...));
  }

  /// Returns value `i` of an entry of type BYTE, SHORT or LONG; `otherwise` if there is none.
  uint32_t value(TiffTag tag, uint32_t otherwise, size_t i = 0) const {
    const size_t entry = numbers_.entry(numbers_.first_directory(), static_cast<uint16_t>(tag));
    if (entry == 0) return otherwise;
    const uint32_t type = numbers_.number(entry + 2, 2), count = numbers_.number(entry + 4, 4);
    const int width = type == 1 ? 1 : type == 3 ? 2 : 4;
    if (i >= count) return otherwise;
    const size_t begin = uint64_t{count} * static_cast<size_t>(width) <= 4 ? entry + 8 : numbers_.number(entry + 8, 4);
    return numbers_.number(begin + i * static_cast<size_t>(width), width);
  }
  /// Returns the first `wanted` values of an entry; empty if it has fewer, or they do not lie within the file.
  std::vector<uint32_t> values(TiffTag tag, int64_t wanted) const {
    std::vector<uint32_t> all;
    const size_t entry = numbers_.entry(numbers_.first_directory(), static_cast<uint16_t>(tag));
    if (entry == 0 || wanted > numbers_.number(entry + 4, 4)) return all;
    const int width = numbers_.number(entry + 2, 2) == 3 ? 2 : 4;
    const bool is_inline = int64_t{numbers_.number(entry + 4, 4)} * width <= 4;
    const size_t begin = is_inline ? entry + 8 : numbers_.number(entry + 8, 4);
    if (begin + static_cast<size_t>(wanted * width) > bytes_.size()) return all;
    for (int64_t i = 0; i < wanted; ++i) all.push_back(numbers_.number(begin + static_cast<size_t>(i * width), width));
    return all;
  }

  Status read_head() {
    if (numbers_.number(2, 2) == 43) return unsupported("{}: a BigTIFF file; save it as PNG", name_);
    if (bytes_.size() < 8 || (!bytes_.starts_with("II") && !bytes_.starts_with("MM")) || numbers_.number(2, 2) != 42)
      return invalid_argument("{}: not a TIFF file", name_);
    if (numbers_.first_directory() + 2 > bytes_.size())
      return invalid_argument("{}: incomplete TIFF: the file ends early, after {} bytes", name_, bytes_.size());
    image_.width = value(TiffTag::kWidth, 0);
    image_.height = value(TiffTag::kHeight, 0);
    bits_ = value(TiffTag::kBitsPerSample, 1);
    compression_ = value(TiffTag::kCompression, TiffCompression::kNone);
    photometric_ = value(TiffTag::kPhotometric, TiffColors::kBlackIsZero);
    num_samples_ = value(TiffTag::kSamplesPerPixel, 1);
    predictor_ = value(TiffTag::kPredictor, 1);
    if (compression_ != TiffCompression::kNone && compression_ != TiffCompression::kLzw &&
        compression_ != TiffCompression::kDeflate && compression_ != TiffCompression::kOldDeflate &&
        compression_ != TiffCompression::kPackBits)
      return unsupported("{}: a TIFF of compression {}; save it as PNG", name_, compression_);
    if (photometric_ > TiffColors::kSeparated || photometric_ == 4)
      return unsupported("{}: a TIFF with colours of kind {} (PhotometricInterpretation); save it as PNG", name_,
                         photometric_);
    if (num_samples_ < 1 || num_samples_ > 8) return damaged("{} samples a pixel", num_samples_);
    for (size_t i = 1; i < static_cast<size_t>(num_samples_); ++i)
      if (value(TiffTag::kBitsPerSample, bits_, i) != bits_)
        return unsupported("{}: a TIFF with samples of several sizes", name_);
    if (value(TiffTag::kSampleFormat, 1) != 1)
      return unsupported("{}: a TIFF whose samples are not unsigned integers; save it as PNG", name_);
    if (value(TiffTag::kFillOrder, 1) != 1)
      return unsupported("{}: a TIFF whose bits are reversed; save it as PNG", name_);
    if (predictor_ > 2) return unsupported("{}: a TIFF of predictor {}; save it as PNG", name_, predictor_);
    return {};
  }

  Status read_layout() {
    const int64_t color = photometric_ == TiffColors::kRgb ? 3 : photometric_ == TiffColors::kSeparated ? 4 : 1;
    const bool is_small = bits_ == 1 || bits_ == 2 || bits_ == 4;
    if ((bits_ != 8 && bits_ != 16 && !is_small) || (is_small && num_samples_ != 1) ||
        (photometric_ == TiffColors::kPalette && bits_ > 8))
      return unsupported("{}: a TIFF with {} samples of {} bits; save it as PNG", name_, num_samples_, bits_);
    if (num_samples_ < color) return damaged("{} samples a pixel, its colours need {}", num_samples_, color);
    color_samples_ = color;
    if (photometric_ == TiffColors::kPalette) {
      color_map_ = values(TiffTag::kColorMap, int64_t{3} << bits_);
      if (color_map_.empty()) return damaged("its palette is missing or incomplete");
    }
    // 1: multiplied into the colours; 2: not.
    const uint32_t extra = value(TiffTag::kExtraSamples, 0);
    has_alpha_ = num_samples_ > color && (extra == 1 || extra == 2);
    is_premultiplied_ = extra == 1;
    planes_ = value(TiffTag::kPlanarConfiguration, 1) == 2 ? num_samples_ : 1;
    const int64_t ratio = compression_ == TiffCompression::kNone       ? 8
                          : compression_ == TiffCompression::kLzw      ? kMaxLzwRatio * 8
                          : compression_ == TiffCompression::kPackBits ? kMaxPackBitsRatio * 8
                                                                       : kMaxDeflateRatio * 8;
    REDLINE_TRY(check_image_size(name_, image_.width, image_.height, std::ssize(bytes_), ratio));
    const bool is_tiled = value(TiffTag::kTileWidth, 0) > 0;
    part_width_ = is_tiled ? value(TiffTag::kTileWidth, 0) : image_.width;
    part_height_ = is_tiled ? value(TiffTag::kTileLength, 0)
                            : std::min<int64_t>(value(TiffTag::kRowsPerStrip, ~0u), image_.height);
    // Tiles of a small image may be larger than it.
    constexpr int64_t kMaxSmallTile = int64_t{1} << 20;
    if (part_width_ < 1 || part_height_ < 1 || part_width_ > 2 * kMaxImageSide || part_height_ > 2 * kMaxImageSide ||
        part_width_ * part_height_ > std::max(kMaxSmallTile, 2 * image_.width * image_.height))
      return damaged("its tiles or strips have {} x {} pixels", part_width_, part_height_);
    const int64_t parts = planes_ * across() * down();
    begins_ = values(is_tiled ? TiffTag::kTileOffsets : TiffTag::kStripOffsets, parts);
    sizes_ = values(is_tiled ? TiffTag::kTileByteCounts : TiffTag::kStripByteCounts, parts);
    // Old programs leave out the length of a single strip without compression.
    if (sizes_.empty() && parts == 1 && compression_ == TiffCompression::kNone) sizes_ = {~0u};
    if (begins_.empty() || sizes_.empty()) return damaged("it does not state where its {} tiles or strips are", parts);
    return {};
  }
  int64_t across() const { return (image_.width + part_width_ - 1) / part_width_; }
  int64_t down() const { return (image_.height + part_height_ - 1) / part_height_; }

  Status read_plane(int64_t plane) {
    const int64_t in_part = planes_ > 1 ? 1 : num_samples_, row_bytes = (part_width_ * in_part * bits_ + 7) / 8;
    std::vector<uint8_t> part;
    for (int64_t row = 0; row < down(); ++row) {
      const int64_t first_row = row * part_height_, num_rows = std::min(part_height_, image_.height - first_row);
      part.resize(static_cast<size_t>(row_bytes * num_rows));
      for (int64_t column = 0; column < across(); ++column) {
        const auto index = static_cast<size_t>((plane * down() + row) * across() + column);
        const size_t got =
            begins_[index] < bytes_.size() ? unpack(bytes_.substr(begins_[index], sizes_[index]), part) : 0;
        if (got < part.size())
          return damaged("part {} has {} of {} bytes: the file is damaged or ends early", index, got, part.size());
        for (int64_t y = 0; y < num_rows; ++y)
          take_row(part.data() + y * row_bytes, plane, first_row + y, column * part_width_, in_part);
      }
    }
    return {};
  }

  size_t unpack(std::string_view packed, std::span<uint8_t> out) const {
    switch (compression_) {
      case TiffCompression::kLzw: return decode_lzw(packed, {.is_high_bit_first = true, .widens_one_early = true}, out);
      case TiffCompression::kPackBits: return decode_pack_bits(packed, out);
      case TiffCompression::kNone: {
        const size_t count = std::min(packed.size(), out.size());
        std::copy_n(packed.data(), count, out.data());
        return count;
      }
      default: return inflate_into(packed, out);
    }
  }

  /// Writes the samples of a row of a part as 8 bits each.
  void take_row(uint8_t* row, int64_t plane, int64_t y, int64_t first_x, int64_t in_part) {
    const int64_t count = part_width_ * in_part;
    const bool is_big = numbers_.is_big_endian();
    if (predictor_ == 2 && bits_ == 8) {
      for (int64_t i = in_part; i < count; ++i) row[i] = static_cast<uint8_t>(row[i] + row[i - in_part]);
    } else if (predictor_ == 2 && bits_ == 16) {
      for (int64_t i = in_part; i < count; ++i) {
        const auto at = [&](int64_t k) { return row[2 * k + (is_big ? 0 : 1)] << 8 | row[2 * k + (is_big ? 1 : 0)]; };
        const int sum = at(i) + at(i - in_part);
        row[2 * i + (is_big ? 0 : 1)] = static_cast<uint8_t>(sum >> 8);
        row[2 * i + (is_big ? 1 : 0)] = static_cast<uint8_t>(sum);
      }
    }
    const int64_t pixels = std::min(part_width_, image_.width - first_x);
    uint8_t* to = samples_.data() + (y * image_.width + first_x) * num_samples_ + (planes_ > 1 ? plane : 0);
    for (int64_t x = 0; x < pixels; ++x, to += num_samples_)
      for (int64_t c = 0; c < in_part; ++c) to[c] = sample(row, x * in_part + c, is_big);
  }
  /// Returns sample `i` of a row. A sample of fewer than 8 bits is the stored number: an index or a gray level of
  /// to_rgb().
  uint8_t sample(const uint8_t* row, int64_t i, bool is_big) const {
    if (bits_ == 8) return row[i];
    if (bits_ == 16) return row[2 * i + (is_big ? 0 : 1)];
    const int64_t per_byte = 8 / bits_;
    return static_cast<uint8_t>(row[i / per_byte] >> (8 - bits_ * (i % per_byte + 1)) & ((1 << bits_) - 1));
  }

  void to_rgb() {
    const auto pixels = static_cast<size_t>(image_.width * image_.height);
    image_.rgb.resize(3 * pixels);
    const int most = bits_ < 8 ? (1 << bits_) - 1 : 255;
    uint8_t palette[256][3] = {};
    // Reds, then greens, then blues, of 16 bits each.
    for (size_t i = 0; i < color_map_.size(); ++i)
      palette[i & ((1u << bits_) - 1)][i >> bits_] = static_cast<uint8_t>(color_map_[i] >> 8);
    for (size_t i = 0; i < pixels; ++i) {
      const uint8_t* from = samples_.data() + i * static_cast<size_t>(num_samples_);
      uint8_t* to = image_.rgb.data() + 3 * i;
      if (photometric_ == TiffColors::kRgb) std::copy_n(from, 3, to);
      else if (photometric_ == TiffColors::kPalette) std::copy_n(palette[*from], 3, to);
      else if (photometric_ == TiffColors::kSeparated) rgb_of_cmyk(from, to);
      else
        std::fill_n(
            to, 3,
            static_cast<uint8_t>((photometric_ == TiffColors::kWhiteIsZero ? most - *from : *from) * 255 / most));
      if (!has_alpha_ || !is_premultiplied_) continue;
      const int alpha = from[color_samples_];
      for (size_t c = 0; c < 3 && alpha > 0; ++c) to[c] = static_cast<uint8_t>(std::min(255, to[c] * 255 / alpha));
    }
  }

  std::vector<uint8_t> take_alpha_samples() const {
    std::vector<uint8_t> alpha(static_cast<size_t>(image_.width * image_.height));
    for (size_t i = 0; i < alpha.size(); ++i)
      alpha[i] = samples_[i * static_cast<size_t>(num_samples_) + static_cast<size_t>(color_samples_)];
    return alpha;
  }

  TiffNumbers numbers_;
  std::string_view bytes_;
  const std::string& name_;
  RgbImage image_;
  int64_t bits_ = 0, num_samples_ = 0, color_samples_ = 0, planes_ = 1, part_width_ = 0, part_height_ = 0;
  uint32_t compression_ = TiffCompression::kNone, photometric_ = 0, predictor_ = 1;
  bool has_alpha_ = false, is_premultiplied_ = false;
  std::vector<uint32_t> color_map_;       ///< empty without a palette
  std::vector<uint32_t> begins_, sizes_;  ///< offset and size of each strip or tile, in bytes
  std::vector<uint8_t> samples_;          ///< [height, width, num_samples]
};

}  // namespace

Result<RgbImage> decode_tiff(std::string_view bytes, const std::string& name, std::vector<uint8_t>* alpha) {
  return TiffDecoder(bytes, name).read(alpha);
}

}  // namespace redline
