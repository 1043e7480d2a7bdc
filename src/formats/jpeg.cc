#include "formats/jpeg.h"

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE

#include <jerror.h>
#include <jpeglib.h>

#include "formats/byte_reader.h"

namespace redline {
namespace {

// A file of a few kilobytes can hold thousands of progressive scans, each as expensive as decoding the whole image.
constexpr int kMaxScans = 200;

// libjpeg reports errors with longjmp, which skips destructors: as in png.cc, functions that call setjmp have trivial
// locals only.
struct Session {
  jpeg_decompress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX] = "";

  Session() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr jpeg) {
      auto* session = static_cast<Session*>(jpeg->client_data);
      jpeg->err->format_message(jpeg, session->message);
      std::longjmp(session->leave, 1);
    };
    errors.emit_message = [](j_common_ptr, int) {};
    errors.output_message = [](j_common_ptr) {};
    progress.progress_monitor = [](j_common_ptr jpeg) {
      if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
      auto* session = static_cast<Session*>(jpeg->client_data);
      std::snprintf(session->message, sizeof(session->message), "more than %d scans", kMaxScans);
      std::longjmp(session->leave, 1);
    };
  }
  ~Session() { jpeg_destroy_decompress(&jpeg); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
};

bool read_header(Session& s, std::string_view bytes) {
  if (setjmp(s.leave)) return false;
  jpeg_create_decompress(&s.jpeg);
  s.jpeg.progress = &s.progress;
  s.jpeg.client_data = &s;  // jpeg_create clears it in old versions
  jpeg_mem_src(&s.jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
  // The end of the data is an error: libjpeg would go on with a made-up end of image, and the rest would be gray.
  s.jpeg.src->fill_input_buffer = [](j_decompress_ptr jpeg) -> boolean {
    ERREXIT(jpeg, JERR_INPUT_EOF);
    return TRUE;
  };
  jpeg_save_markers(&s.jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&s.jpeg, TRUE);
  return true;
}

bool read_rows(Session& s, uint8_t* rgb) {
  if (setjmp(s.leave)) return false;
  s.jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&s.jpeg);
  while (s.jpeg.output_scanline < s.jpeg.output_height) {
    JSAMPROW row = rgb + static_cast<size_t>(s.jpeg.output_scanline) * s.jpeg.output_width * 3;
    jpeg_read_scanlines(&s.jpeg, &row, 1);
  }
  jpeg_finish_decompress(&s.jpeg);
  return true;
}

// EXIF orientation, 1 to 8: tag 0x0112 in the first directory of the TIFF in the APP1 marker.
int orientation_of(const jpeg_decompress_struct& jpeg) {
  for (jpeg_saved_marker_ptr marker = jpeg.marker_list; marker; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (marker->marker != JPEG_APP0 + 1 || !data.starts_with(std::string_view("Exif\0\0", 6))) continue;
    const std::string_view tiff = data.substr(6);
    const bool big = tiff.starts_with("MM");
    const auto number = [&](size_t at, int width) -> uint32_t {
      uint32_t value = 0;
      for (int i = 0; i < width; ++i) {
        const size_t place = at + static_cast<size_t>(big ? i : width - 1 - i);
        value = value << 8 | (place < tiff.size() ? static_cast<uint8_t>(tiff[place]) : 0);
      }
      return value;
    };
    const size_t directory = number(4, 4);
    const uint32_t entries = number(directory, 2);
    for (uint32_t i = 0; i < entries && directory + 2 + size_t{12} * i < tiff.size(); ++i) {
      const size_t entry = directory + 2 + size_t{12} * i;
      if (number(entry, 2) == 0x0112) return static_cast<int>(number(entry + 8, 2));
    }
  }
  return 1;
}

// Applies an EXIF orientation, 1 to 8: it states which side of the stored image is top and which is left.
RgbImage turned(RgbImage picture, int orientation) {
  if (orientation < 2 || orientation > 8) return picture;
  const bool swaps = orientation >= 5;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  RgbImage result{swaps ? picture.height : picture.width, swaps ? picture.width : picture.height, {}};
  result.rgb.resize(picture.rgb.size());
  for (int64_t y = 0; y < result.height; ++y)
    for (int64_t x = 0; x < result.width; ++x) {
      const int64_t column = swaps ? y : x, row = swaps ? x : y;
      const int64_t from_x = from_right ? picture.width - 1 - column : column;
      const int64_t from_y = from_bottom ? picture.height - 1 - row : row;
      for (int64_t c = 0; c < 3; ++c)
        result.rgb[static_cast<size_t>((y * result.width + x) * 3 + c)] =
            picture.rgb[static_cast<size_t>((from_y * picture.width + from_x) * 3 + c)];
    }
  return result;
}

}  // namespace

Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name) {
  if (!bytes.starts_with("\xff\xd8\xff"))
    return invalid_argument("{}: not a JPEG file{}", name, looks_like(bytes, static_cast<int64_t>(bytes.size())));
  Session session;
  if (!read_header(session, bytes)) return invalid_argument("{}: not a readable JPEG: {}", name, session.message);
  const auto& jpeg = session.jpeg;
  if (jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK)
    return unsupported("{}: a CMYK image; convert it to RGB", name);
  RgbImage picture;
  picture.width = jpeg.image_width;
  picture.height = jpeg.image_height;
  if (picture.width > kMaxImageSide || picture.height > kMaxImageSide ||
      picture.width * picture.height > kMaxImagePixels)
    return invalid_argument("{}: {} x {} pixels; Redline reads up to {} of them, and sides up to {}", name,
                            picture.width, picture.height, kMaxImagePixels, kMaxImageSide);
  // Rejects impossible sizes: an 8 x 8 block takes at least two bits, and blocks cover at most 32 x 32 pixels.
  if (picture.width * picture.height / (1024 * 4 * 8) > static_cast<int64_t>(bytes.size()))
    return invalid_argument("{}: {} bytes cannot hold {} x {} pixels", name, bytes.size(), picture.width,
                            picture.height);
  const int orientation = orientation_of(jpeg);  // libjpeg frees its markers at the end
  picture.rgb.resize(static_cast<size_t>(picture.width * picture.height) * 3);
  if (!read_rows(session, picture.rgb.data())) return invalid_argument("{}: damaged JPEG: {}", name, session.message);
  return turned(std::move(picture), orientation);
}

}  // namespace redline
