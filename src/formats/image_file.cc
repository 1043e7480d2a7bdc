#include "formats/image_file.h"

#include "base/mapped_file.h"
#include "formats/byte_reader.h"
#include "formats/jpeg.h"
#include "formats/png.h"

namespace redline {

Result<RgbImage> read_image(const std::string& path) {
  REDLINE_ASSIGN(const auto file, MappedFile::open(path));
  if (file->text().starts_with("\x89PNG")) return decode_png(file->text(), path);
  if (file->text().starts_with("\xff\xd8")) return decode_jpeg(file->text(), path);
  return unsupported("{}: neither a PNG nor a JPEG image{}", path, looks_like(file->text(), file->size()));
}

}  // namespace redline
