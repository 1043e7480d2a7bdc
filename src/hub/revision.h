// The Hub's answer about a revision of a repository.
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

/// Reads the answer of the Hub at `endpoint`. io: it is not that of a Hub: no JSON, out of bounds (base/json_text.h),
/// without a commit or files, or with paths that no folder can take; the message says what.
Result<Revision> read_revision(std::string_view body, const HubName& name, const std::string& endpoint);

/// A name that may be given to a blob: a checksum, or an opaque word of a server that has none.
bool is_etag(const std::string& text);
/// The name, or the two ends of a long one, for messages.
std::string shortened(const std::string& name);

}  // namespace redline
