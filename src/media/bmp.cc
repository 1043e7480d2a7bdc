#include "media/bmp.h"

#include <algorithm>
#include <bit>

#include "media/image_size.h"

namespace redline {
namespace {

constexpr size_t kBmpFileHead = 14, kBmpCoreHead = 12, kBmpInfoHead = 40;
struct BmpCompression {
  enum : uint32_t { kRgb = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kAlphaBitFields = 6 };
};

/// A channel of a pixel of 16 or 32 bits.
struct BmpChannel {
  uint32_t mask = 0;

  uint8_t of(uint32_t pixel) const {
    if (mask == 0) return 0;
    const int shift = std::countr_zero(mask);
    const uint64_t most = mask >> shift;
    return static_cast<uint8_t>(uint64_t{(pixel & mask) >> shift} * 255 / most);
  }
};

class BmpReader {
 public:
  BmpReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  Result<RgbImage> read(std::vector<uint8_t>* alpha) {
    REDLINE_TRY(read_head());
    row_bytes_ = (image_.width * bits_ + 31) / 32 * 4;
    const size_t begin = number(10, 4);
    const auto wanted = static_cast<uint64_t>(row_bytes_ * image_.height);
    if (begin > bytes_.size() || wanted > bytes_.size() - begin) return ends_early();
    rows_ = bytes_.substr(begin, wanted);
    image_.rgb.resize(static_cast<size_t>(image_.width * image_.height) * 3);
    if (bits_ <= 8) REDLINE_TRY(read_palette());
    else read_pixels();
    if (alpha && channels_[3].mask != 0) *alpha = read_alpha();
    return std::move(image_);
  }

 private:
  /// Returns the little-endian number at an offset. Bytes beyond the end of the file count as 0.
  uint32_t number(size_t at, int width) const {
    uint32_t value = 0;
    for (int i = 0; i < width; ++i)
      if (const size_t place = at + static_cast<size_t>(i); place < bytes_.size())
        value |= uint32_t{static_cast<uint8_t>(bytes_[place])} << (8 * i);
    return value;
  }
  Status ends_early() const {
    return invalid_argument("{}: incomplete BMP: the file ends early, after {} bytes", name_, bytes_.size());
  }

  Status read_head() {
    if (!bytes_.starts_with("BM")) return invalid_argument("{}: not a BMP file", name_);
    if (bytes_.size() < kBmpFileHead + kBmpCoreHead) return ends_early();
    head_bytes_ = number(kBmpFileHead, 4);
    const bool is_core = head_bytes_ == kBmpCoreHead;
    if (!is_core && (head_bytes_ < kBmpInfoHead || head_bytes_ > 256))
      return invalid_argument("{}: not a readable BMP: a header of {} bytes", name_, head_bytes_);
    if (bytes_.size() < kBmpFileHead + head_bytes_) return ends_early();
    const auto side = [&](size_t at) { return int64_t{static_cast<int32_t>(number(at, 4))}; };
    image_.width = is_core ? int64_t{number(18, 2)} : side(18);
    image_.height = is_core ? int64_t{number(20, 2)} : side(22);
    is_top_down_ = image_.height < 0;
    image_.height = std::abs(image_.height);
    bits_ = number(is_core ? 24 : 28, 2);
    const uint32_t compression = is_core ? BmpCompression::kRgb : number(30, 4);
    if (compression == BmpCompression::kRle8 || compression == BmpCompression::kRle4)
      return unsupported("{}: a BMP with run lengths; save it as PNG", name_);
    if (compression != BmpCompression::kRgb && compression != BmpCompression::kBitFields &&
        compression != BmpCompression::kAlphaBitFields)
      return unsupported("{}: a BMP of compression {}; save it as PNG", name_, compression);
    if (bits_ != 1 && bits_ != 4 && bits_ != 8 && bits_ != 16 && bits_ != 24 && bits_ != 32)
      return invalid_argument("{}: not a readable BMP: {} bits a pixel", name_, bits_);
    if (compression != BmpCompression::kRgb && bits_ != 16 && bits_ != 32)
      return invalid_argument("{}: not a readable BMP: masks of {} bits a pixel", name_, bits_);
    REDLINE_TRY(check_image_size(name_, image_.width, image_.height, std::ssize(bytes_), 8));
    set_channels(compression);
    return {};
  }

  void set_channels(uint32_t compression) {
    if (compression == BmpCompression::kRgb) {
      const bool is_555 = bits_ == 16;
      channels_[0].mask = is_555 ? 0x7c00 : 0xff0000;
      channels_[1].mask = is_555 ? 0x03e0 : 0x00ff00;
      channels_[2].mask = is_555 ? 0x001f : 0x0000ff;
      return;
    }
    // The masks follow a header of 40 bytes, and stand in the longer ones at the same place.
    const bool has_alpha = head_bytes_ >= 56 || compression == BmpCompression::kAlphaBitFields;
    for (size_t i = 0; i < (has_alpha ? 4 : 3); ++i) channels_[i].mask = number(kBmpFileHead + kBmpInfoHead + 4 * i, 4);
  }

  uint8_t* row_of(int64_t row) {
    return image_.rgb.data() + (is_top_down_ ? row : image_.height - 1 - row) * image_.width * 3;
  }
  const uint8_t* stored_row(int64_t row) const {
    return reinterpret_cast<const uint8_t*>(rows_.data()) + row * row_bytes_;
  }

  Status read_palette() {
    const bool is_core = head_bytes_ == kBmpCoreHead;
    const size_t entry = is_core ? 3 : 4, begin = kBmpFileHead + head_bytes_;
    const uint32_t given = is_core ? 0 : number(46, 4), most = 1u << bits_;
    const uint32_t count = given == 0 ? most : std::min(given, most);
    if (begin + count * entry > bytes_.size()) return ends_early();
    const auto* palette = reinterpret_cast<const uint8_t*>(bytes_.data()) + begin;
    const uint32_t per_byte = 8 / bits_;
    for (int64_t row = 0; row < image_.height; ++row) {
      const uint8_t* from = stored_row(row);
      uint8_t* to = row_of(row);
      for (int64_t x = 0; x < image_.width; ++x) {
        const auto shift = 8 - bits_ * static_cast<uint32_t>(x % per_byte + 1);
        const uint32_t index = from[x / per_byte] >> shift & (most - 1);
        for (size_t c = 0; c < 3; ++c) *to++ = index < count ? palette[index * entry + 2 - c] : 0;
      }
    }
    return {};
  }

  uint32_t pixel_at(const uint8_t* row, int64_t x) const {
    const auto bytes = static_cast<int64_t>(bits_ / 8);
    uint32_t pixel = 0;
    for (int64_t i = bytes - 1; i >= 0; --i) pixel = pixel << 8 | row[x * bytes + i];
    return pixel;
  }

  void read_pixels() {
    for (int64_t row = 0; row < image_.height; ++row) {
      const uint8_t* from = stored_row(row);
      uint8_t* to = row_of(row);
      for (int64_t x = 0; x < image_.width; ++x) {
        const uint32_t pixel = pixel_at(from, x);
        for (size_t c = 0; c < 3; ++c) *to++ = channels_[c].of(pixel);
      }
    }
  }

  /// Returns the transparency of every pixel, empty if the image is opaque. Programs that write no transparency leave
  /// zeros in its channel, so an image with zeros only counts as opaque.
  std::vector<uint8_t> read_alpha() const {
    std::vector<uint8_t> alpha;
    alpha.reserve(static_cast<size_t>(image_.width * image_.height));
    for (int64_t row = 0; row < image_.height; ++row) {
      const uint8_t* from = stored_row(is_top_down_ ? row : image_.height - 1 - row);
      for (int64_t x = 0; x < image_.width; ++x) alpha.push_back(channels_[3].of(pixel_at(from, x)));
    }
    if (std::all_of(alpha.begin(), alpha.end(), [](uint8_t a) { return a == 0; })) alpha.clear();
    return alpha;
  }

  std::string_view bytes_;
  const std::string& name_;
  RgbImage image_;
  size_t head_bytes_ = 0;
  int64_t row_bytes_ = 0;
  uint32_t bits_ = 0;
  bool is_top_down_ = false;
  BmpChannel channels_[4];  // red, green, blue, alpha
  std::string_view rows_;
};

}  // namespace

Result<RgbImage> decode_bmp(std::string_view bytes, const std::string& name, std::vector<uint8_t>* alpha) {
  return BmpReader(bytes, name).read(alpha);
}

}  // namespace redline
