// Members of a zip archive (PKWARE APPNOTE 6.3, including zip64); only stored ones can be read directly.
#pragma once

#include <string_view>
#include <vector>

#include "base/mapped_file.h"

namespace redline {

struct ZipMember {
  std::string_view name;  ///< a view into the file
  int64_t offset = 0;     ///< offset of the member's data in the file
  int64_t bytes = 0;
  bool is_stored = false;  ///< neither compressed nor encrypted: the data is the member
};

/// Reads the directory. Every returned member lies within the file; members may overlap. invalid_argument: corrupt or
/// not a zip archive, with byte offset and reason.
Result<std::vector<ZipMember>> read_zip_directory(const MappedFile& file);

}  // namespace redline
