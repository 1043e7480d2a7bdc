#include "media/jpeg.h"

#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE
#include <cstdlib>

#include <jerror.h>
#include <jpeglib.h>

#include "formats/byte_reader.h"
#include "media/cmyk.h"
#include "media/exif.h"
#include "media/text_encoding.h"

namespace redline {
namespace {

// A file of a few kilobytes can hold thousands of progressive scans, each as expensive as decoding the whole image.
constexpr int kMaxScans = 200;

// libjpeg reports errors with longjmp, which skips destructors: as in png.cc, functions that call setjmp have trivial
// locals only.
struct JpegSession {
  jpeg_decompress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX] = "";

  JpegSession() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr jpeg) {
      auto* session = static_cast<JpegSession*>(jpeg->client_data);
      jpeg->err->format_message(jpeg, session->message);
      std::longjmp(session->leave, 1);
    };
    errors.emit_message = [](j_common_ptr, int) {};
    errors.output_message = [](j_common_ptr) {};
    progress.progress_monitor = [](j_common_ptr jpeg) {
      if (reinterpret_cast<j_decompress_ptr>(jpeg)->input_scan_number <= kMaxScans) return;
      auto* session = static_cast<JpegSession*>(jpeg->client_data);
      std::snprintf(session->message, sizeof(session->message), "more than %d scans", kMaxScans);
      std::longjmp(session->leave, 1);
    };
  }
  ~JpegSession() { jpeg_destroy_decompress(&jpeg); }
  JpegSession(const JpegSession&) = delete;
  JpegSession& operator=(const JpegSession&) = delete;
};

bool read_jpeg_header(JpegSession& s, std::string_view bytes) {
  if (setjmp(s.leave)) return false;
  jpeg_create_decompress(&s.jpeg);
  s.jpeg.progress = &s.progress;
  s.jpeg.client_data = &s;  // jpeg_create clears it in old versions
  jpeg_mem_src(&s.jpeg, reinterpret_cast<const unsigned char*>(bytes.data()), static_cast<unsigned long>(bytes.size()));
  // The end of the data is an error: libjpeg would insert an end of image, and the rest would be gray.
  s.jpeg.src->fill_input_buffer = [](j_decompress_ptr jpeg) -> boolean {
    ERREXIT(jpeg, JERR_INPUT_EOF);
    return TRUE;
  };
  jpeg_save_markers(&s.jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_save_markers(&s.jpeg, JPEG_COM, 0xffff);
  jpeg_read_header(&s.jpeg, TRUE);
  return true;
}

// Converts a row of CMYK inks to RGB. JPEG files store inverted inks, like Adobe's programs: 0 is full coverage.
void rgb_of_stored_inks(uint8_t* inks, size_t width, uint8_t* rgb) {
  for (size_t i = 0; i < 4 * width; ++i) inks[i] = static_cast<uint8_t>(255 - inks[i]);
  for (size_t x = 0; x < width; ++x) rgb_of_cmyk(inks + 4 * x, rgb + 3 * x);
}

// Reads the rows of an image. `inks`: buffer for a row of four channels if the image is CMYK, else nullptr.
bool read_jpeg_rows(JpegSession& s, uint8_t* rgb, uint8_t* inks) {
  if (setjmp(s.leave)) return false;
  s.jpeg.out_color_space = inks ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&s.jpeg);
  while (s.jpeg.output_scanline < s.jpeg.output_height) {
    uint8_t* const to = rgb + static_cast<size_t>(s.jpeg.output_scanline) * s.jpeg.output_width * 3;
    JSAMPROW row = inks ? inks : to;
    jpeg_read_scanlines(&s.jpeg, &row, 1);
    if (inks) rgb_of_stored_inks(inks, s.jpeg.output_width, to);
  }
  jpeg_finish_decompress(&s.jpeg);
  return true;
}

constexpr std::string_view kExifHead("Exif\0\0", 6);
constexpr int kExifMarker = JPEG_APP0 + 1;

// Returns the TIFF structure of the EXIF marker, which is valid as long as the session lives; "" if there is none.
std::string_view jpeg_exif(const jpeg_decompress_struct& jpeg) {
  for (jpeg_saved_marker_ptr marker = jpeg.marker_list; marker; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (marker->marker == kExifMarker && data.starts_with(kExifHead)) return data.substr(kExifHead.size());
  }
  return {};
}

// Returns the comment of the file if it has the form that A1111's web UI writes; otherwise "".
std::string_view jpeg_parameters(const jpeg_decompress_struct& jpeg) {
  for (jpeg_saved_marker_ptr marker = jpeg.marker_list; marker; marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (marker->marker == JPEG_COM && data.find("Steps: ") != std::string_view::npos) return data;
  }
  return {};
}

struct Writer {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  std::jmp_buf leave;
  char message[JMSG_LENGTH_MAX] = "";
  unsigned char* bytes = nullptr;
  unsigned long size = 0;

  Writer() {
    jpeg.err = jpeg_std_error(&errors);
    jpeg.client_data = this;
    errors.error_exit = [](j_common_ptr jpeg) {
      auto* writer = static_cast<Writer*>(jpeg->client_data);
      jpeg->err->format_message(jpeg, writer->message);
      std::longjmp(writer->leave, 1);
    };
    errors.output_message = [](j_common_ptr) {};
  }
  ~Writer() {
    jpeg_destroy_compress(&jpeg);
    std::free(bytes);
  }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;
};

bool write_all_jpeg(Writer& w, const RgbImage& image, std::string_view exif) {
  if (setjmp(w.leave)) return false;
  jpeg_create_compress(&w.jpeg);
  w.jpeg.client_data = &w;
  jpeg_mem_dest(&w.jpeg, &w.bytes, &w.size);
  w.jpeg.image_width = static_cast<JDIMENSION>(image.width);
  w.jpeg.image_height = static_cast<JDIMENSION>(image.height);
  w.jpeg.input_components = 3;
  w.jpeg.in_color_space = JCS_RGB;
  jpeg_set_defaults(&w.jpeg);
  constexpr int kQuality = 95;
  jpeg_set_quality(&w.jpeg, kQuality, TRUE);
  w.jpeg.comp_info[0].h_samp_factor = w.jpeg.comp_info[0].v_samp_factor = 1;  // full resolution of colour
  w.jpeg.optimize_coding = TRUE;
  jpeg_start_compress(&w.jpeg, TRUE);
  if (!exif.empty())
    jpeg_write_marker(&w.jpeg, kExifMarker, reinterpret_cast<const JOCTET*>(exif.data()),
                      static_cast<unsigned>(exif.size()));
  while (w.jpeg.next_scanline < w.jpeg.image_height) {
    auto* row = const_cast<JSAMPROW>(image.rgb.data() + static_cast<size_t>(w.jpeg.next_scanline) * image.width * 3);
    jpeg_write_scanlines(&w.jpeg, &row, 1);
  }
  jpeg_finish_compress(&w.jpeg);
  return true;
}

}  // namespace

Result<std::string> encode_jpeg(const RgbImage& image, const ImageText& text) {
  if (image.width < 1 || image.height < 1 || image.width > JPEG_MAX_DIMENSION || image.height > JPEG_MAX_DIMENSION)
    return invalid_argument("JPEG: an image of {} x {} pixels; expected 1 to {} each way", image.width, image.height,
                            JPEG_MAX_DIMENSION);
  if (static_cast<int64_t>(image.rgb.size()) != image.width * image.height * 3)
    return invalid_argument("JPEG: {} bytes for {} x {} pixels of RGB", image.rgb.size(), image.width, image.height);
  std::string exif = make_exif(text);
  if (!exif.empty()) exif.insert(0, kExifHead);
  constexpr size_t kMaxMarker = 65533;
  if (exif.size() > kMaxMarker) exif.clear();  // longer than a marker can be
  Writer writer;
  if (!write_all_jpeg(writer, image, exif)) return invalid_argument("JPEG: {}", writer.message);
  return std::string(reinterpret_cast<const char*>(writer.bytes), writer.size);
}

Result<RgbImage> decode_jpeg(std::string_view bytes, const std::string& name, ImageText* text) {
  if (!bytes.starts_with("\xff\xd8\xff"))
    return invalid_argument("{}: not a JPEG file{}", name, looks_like(bytes, static_cast<int64_t>(bytes.size())));
  JpegSession session;
  const auto is_incomplete = [&] { return session.errors.msg_code == JERR_INPUT_EOF; };
  const auto incomplete = [&] {
    return invalid_argument("{}: incomplete JPEG: the file ends early, after {} bytes", name, bytes.size());
  };
  if (!read_jpeg_header(session, bytes))
    return is_incomplete() ? incomplete() : invalid_argument("{}: not a readable JPEG: {}", name, session.message);
  const auto& jpeg = session.jpeg;
  const bool has_inks = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  RgbImage image;
  image.width = jpeg.image_width;
  image.height = jpeg.image_height;
  // The coefficients of a progressive file stay in memory until its end: 6 bytes a pixel more.
  const int64_t max_pixels = jpeg.progressive_mode ? kMaxImagePixels / 4 : kMaxImagePixels;
  if (image.width > kMaxImageSide || image.height > kMaxImageSide || image.width * image.height > max_pixels)
    return invalid_argument("{}: {} x {} pixels; Redline reads up to {} of them, and sides up to {}", name, image.width,
                            image.height, max_pixels, kMaxImageSide);
  // Rejects impossible sizes: an 8 x 8 block takes at least two bits, and blocks cover at most 32 x 32 pixels.
  if (image.width * image.height / (1024 * 4 * 8) > static_cast<int64_t>(bytes.size()))
    return invalid_argument("{}: {} bytes cannot hold {} x {} pixels", name, bytes.size(), image.width, image.height);
  // The markers are copied, because libjpeg frees them at the end.
  const std::string exif(jpeg_exif(jpeg)), comment(jpeg_parameters(jpeg));
  image.rgb.resize(static_cast<size_t>(image.width * image.height) * 3);
  std::vector<uint8_t> inks(has_inks ? static_cast<size_t>(image.width) * 4 : 0);
  if (!read_jpeg_rows(session, image.rgb.data(), has_inks ? inks.data() : nullptr))
    return is_incomplete() ? incomplete() : invalid_argument("{}: damaged JPEG: {}", name, session.message);
  if (text && !comment.empty()) (*text)["parameters"] = utf8_of(comment);
  if (text) read_exif(exif, *text);
  return apply_orientation(std::move(image), exif_orientation(exif));
}

}  // namespace redline
