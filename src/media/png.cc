#include "media/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstring>

#include "base/mapped_file.h"
#include "base/output_file.h"
#include "formats/byte_reader.h"
#include "media/exif.h"
#include "media/mask.h"
#include "media/text_encoding.h"

namespace redline {
namespace {

// libpng reports errors with longjmp, which skips destructors: functions that call setjmp have trivial locals only, and
// owning objects live in their callers' frames.
struct PngSession {
  png_structp png = nullptr;
  png_infop info = nullptr;
  bool writes = false;
  char message[160] = "";
  std::string_view input;
  std::string* output = nullptr;

  explicit PngSession(bool writing) : writes(writing) {
    png = writing ? png_create_write_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning)
                  : png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, on_warning);
    if (png) info = png_create_info_struct(png);
  }
  ~PngSession() {
    if (writes) png_destroy_write_struct(&png, &info);
    else png_destroy_read_struct(&png, &info, nullptr);
  }
  PngSession(const PngSession&) = delete;
  PngSession& operator=(const PngSession&) = delete;

  [[noreturn]] static void on_error(png_structp png, png_const_charp message) {
    auto* session = static_cast<PngSession*>(png_get_error_ptr(png));
    std::strncpy(session->message, message, sizeof(session->message) - 1);
    png_longjmp(png, 1);
  }
  static void on_warning(png_structp, png_const_charp) {}
  static void on_read(png_structp png, png_bytep target, size_t size) {
    auto* session = static_cast<PngSession*>(png_get_io_ptr(png));
    if (session->input.size() < size) png_error(png, "the file ends early");
    std::memcpy(target, session->input.data(), size);
    session->input.remove_prefix(size);
  }
  static void on_write(png_structp png, png_bytep source, size_t size) {
    static_cast<PngSession*>(png_get_io_ptr(png))->output->append(reinterpret_cast<const char*>(source), size);
  }
  static void on_flush(png_structp) {}
};

struct Header {
  uint32_t width = 0, height = 0;
  int bits = 0, channels = 0;
  bool has_alpha = false;
};

// Returns true if every chunk lies within the file. This is checked because libpng allocates the declared length of a
// chunk before reading it, up to 2 GB, and does not enforce its own limit.
bool chunks_fit(std::string_view bytes) {
  constexpr size_t kAround = 12;  // length, name and checksum
  for (bytes.remove_prefix(8); bytes.size() >= kAround;) {
    uint32_t length = 0;
    for (size_t i = 0; i < 4; ++i) length = length << 8 | static_cast<uint8_t>(bytes[i]);
    if (length > bytes.size() - kAround) return false;
    if (bytes.substr(4, 4) == "IEND") return true;
    bytes.remove_prefix(length + kAround);
  }
  return false;
}

bool read_png_header(PngSession& session, Header& header) {
  if (setjmp(png_jmpbuf(session.png))) return false;
  png_set_read_fn(session.png, &session, PngSession::on_read);
  png_set_user_limits(session.png, kMaxImageSide, kMaxImageSide);
  png_set_chunk_cache_max(session.png, 128);
  png_set_chunk_malloc_max(session.png, png_alloc_size_t{4} << 20);
  png_read_info(session.png, session.info);
  header.width = png_get_image_width(session.png, session.info);
  header.height = png_get_image_height(session.png, session.info);
  header.bits = png_get_bit_depth(session.png, session.info);
  header.channels = png_get_channels(session.png, session.info);
  header.has_alpha = (png_get_color_type(session.png, session.info) & PNG_COLOR_MASK_ALPHA) != 0 ||
                     png_get_valid(session.png, session.info, PNG_INFO_tRNS) != 0;
  return true;
}

bool read_png_rows(PngSession& session, uint8_t** rows, size_t row_bytes, bool keeps_alpha) {
  if (setjmp(png_jmpbuf(session.png))) return false;
  png_set_palette_to_rgb(session.png);
  png_set_expand_gray_1_2_4_to_8(session.png);
  png_set_gray_to_rgb(session.png);
  png_set_strip_16(session.png);
  if (keeps_alpha) png_set_tRNS_to_alpha(session.png);
  else png_set_strip_alpha(session.png);
  png_set_interlace_handling(session.png);
  png_read_update_info(session.png, session.info);
  if (png_get_rowbytes(session.png, session.info) != row_bytes)
    png_error(session.png, "a row has an unexpected number of channels");
  png_read_image(session.png, rows);
  png_read_end(session.png, session.info);
  return true;
}

bool write_all_png(PngSession& session, const RgbImage& image, png_text* texts, int num_texts) {
  if (setjmp(png_jmpbuf(session.png))) return false;
  png_set_write_fn(session.png, &session, PngSession::on_write, PngSession::on_flush);
  png_set_user_limits(session.png, kMaxImageSide, kMaxImageSide);
  png_set_IHDR(session.png, session.info, static_cast<uint32_t>(image.width), static_cast<uint32_t>(image.height), 8,
               PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_set_text(session.png, session.info, texts, num_texts);
  png_write_info(session.png, session.info);
  for (int64_t row = 0; row < image.height; ++row) png_write_row(session.png, image.rgb.data() + row * image.width * 3);
  png_write_end(session.png, nullptr);
  return true;
}

// Returns the TIFF structure of the eXIf chunk, which is valid as long as the session lives; "" if there is none.
std::string_view png_exif(const PngSession& session) {
  png_bytep bytes = nullptr;
  png_uint_32 size = 0;
  if (png_get_eXIf_1(session.png, session.info, &size, &bytes) == 0) return {};
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace

Result<std::string> encode_png(const RgbImage& image, const ImageText& text) {
  if (image.width < 1 || image.height < 1 || image.width > kMaxImageSide || image.height > kMaxImageSide)
    return invalid_argument("PNG: an image of {} x {} pixels; expected 1 to {} each way", image.width, image.height,
                            kMaxImageSide);
  if (static_cast<int64_t>(image.rgb.size()) != image.width * image.height * 3)
    return invalid_argument("PNG: {} bytes for {} x {} pixels of RGB", image.rgb.size(), image.width, image.height);
  std::string bytes;
  PngSession session(true);
  if (!session.info) return out_of_memory("PNG: libpng cannot allocate its state");
  session.output = &bytes;
  ImageText values;  // in UTF-8, as iTXt has to be
  for (const auto& [key, value] : text) values[key] = utf8_of(value);
  std::vector<png_text> texts;
  for (const auto& [key, value] : values) {
    if (key.empty() || key.size() > 79) return invalid_argument("PNG: a text key of {} characters", key.size());
    const bool is_ascii = std::all_of(value.begin(), value.end(), [](char c) { return static_cast<int8_t>(c) > 0; });
    png_text entry = {};
    entry.compression = is_ascii ? PNG_TEXT_COMPRESSION_NONE : PNG_ITXT_COMPRESSION_NONE;
    entry.key = const_cast<char*>(key.c_str());  // libpng copies both
    entry.text = const_cast<char*>(value.c_str());
    entry.text_length = value.size();
    texts.push_back(entry);
  }
  if (!write_all_png(session, image, texts.data(), static_cast<int>(texts.size())))
    return invalid_argument("PNG: {}", session.message);
  return bytes;
}

Status write_png(const std::string& path, const RgbImage& image, const ImageText& text) {
  REDLINE_ASSIGN(const std::string bytes, encode_png(image, text));
  REDLINE_ASSIGN(OutputFile file, OutputFile::create(path));
  REDLINE_TRY(file.write(bytes));
  return file.close();
}

Result<RgbImage> decode_png(std::string_view bytes, const std::string& name, ImageText* text,
                            std::vector<uint8_t>* alpha) {
  if (bytes.size() < 8 || png_sig_cmp(reinterpret_cast<png_const_bytep>(bytes.data()), 0, 8) != 0)
    return invalid_argument("{}: not a PNG file{}", name, looks_like(bytes, static_cast<int64_t>(bytes.size())));
  if (!chunks_fit(bytes)) return invalid_argument("{}: incomplete PNG: the file ends early", name);
  PngSession session(false);
  if (!session.info) return out_of_memory("{}: libpng cannot allocate its state", name);
  session.input = bytes;
  Header header;
  if (!read_png_header(session, header)) return invalid_argument("{}: not a readable PNG: {}", name, session.message);
  RgbImage image;
  image.width = header.width;
  image.height = header.height;
  if (image.width * image.height > kMaxImagePixels)
    return invalid_argument("{}: {} x {} pixels; Redline reads up to {} of them", name, image.width, image.height,
                            kMaxImagePixels);
  // Deflate expands by at most a factor of 1032.
  const int64_t packed = (image.width * header.bits * header.channels / 8 + 1) * image.height;
  if (packed / 1032 > static_cast<int64_t>(bytes.size()))
    return invalid_argument("{}: {} bytes cannot hold {} x {} pixels", name, bytes.size(), image.width, image.height);
  const bool keeps_alpha = alpha && header.has_alpha;
  const auto row_bytes = static_cast<size_t>(image.width) * (keeps_alpha ? 4 : 3);
  image.rgb.resize(row_bytes * static_cast<size_t>(image.height));
  std::vector<uint8_t*> rows;
  for (size_t row = 0; row < static_cast<size_t>(image.height); ++row)
    rows.push_back(image.rgb.data() + row * row_bytes);
  if (!read_png_rows(session, rows.data(), row_bytes, keeps_alpha))
    return invalid_argument("{}: damaged PNG: {}", name, session.message);
  if (keeps_alpha) *alpha = take_alpha(image);
  png_textp texts = nullptr;
  const int num_texts = png_get_text(session.png, session.info, &texts, nullptr);
  for (int i = 0; text && i < num_texts; ++i) (*text)[texts[i].key] = utf8_of(texts[i].text ? texts[i].text : "");
  const std::string_view exif = png_exif(session);
  if (text && !text->contains("parameters")) read_exif(exif, *text);
  const int orientation = exif_orientation(exif);
  if (keeps_alpha) apply_orientation(*alpha, image.width, image.height, orientation);
  return apply_orientation(std::move(image), orientation);
}

Result<RgbImage> read_png(const std::string& path, ImageText* text) {
  REDLINE_ASSIGN(const auto file, MappedFile::open(path));
  return decode_png(file->text(), path, text);
}

}  // namespace redline
