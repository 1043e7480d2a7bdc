// The members of a zip archive that are stored as they are (PKWARE APPNOTE 6.3, zip64 included).
#pragma once

#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace redline {

struct ZipMember {
  std::string_view name;  ///< a view into the file
  int64_t offset = 0;     ///< of its bytes in the file
  int64_t bytes = 0;
  bool is_stored = false;  ///< neither compressed nor encrypted: the bytes are the member
};

/// Every member lies within the file; members may overlap. invalid_argument: damaged, or no zip archive, with byte
/// offset and reason.
Result<std::vector<ZipMember>> read_zip_directory(const MappedFile& file);

}  // namespace redline
