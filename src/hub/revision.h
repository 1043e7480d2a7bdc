// Reads the Hub's description of a revision of a repository.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "hub/file_choice.h"
#include "hub/hub_name.h"

namespace redline {

/// The Hub's description of a revision.
struct Revision {
  std::string commit;
  std::vector<HubFile> files;
};

/// Reads the answer of the Hub at `endpoint`. io: it is not the answer of a Hub: it is not JSON, exceeds limits
/// (base/json_text.h), has no commit or files, or has paths that cannot be created; the message says which.
Result<Revision> read_revision(std::string_view body, const HubName& name, const std::string& endpoint);

/// Returns true if the text may be the name of a blob: a checksum, or an opaque word from a server without checksums.
bool is_etag(const std::string& text);
/// Returns the name for messages; of a long name only its two ends.
std::string shortened(const std::string& name);

}  // namespace redline
