// Parses the names of models on the Hugging Face Hub.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace redline {

struct HubName {
  std::string repository;         ///< "owner/name"; a few old ones are only "name"
  std::string revision = "main";  ///< branch, tag or commit
  std::string selection;  ///< a file of the repository, or the quantization of a GGUF file ("Q4_K_M"); "": the default

  /// Returns "hf:owner/name@revision:selection"; the default revision is omitted.
  std::string text() const;
};

/// Returns true if `text` begins like a name on the Hub: "hf:", or an address at huggingface.co or hf.co.
bool is_hub_name(std::string_view text);

/// Reads "hf:owner/name[@revision][:file or quantization]", or the address of a repository or of a file in one
/// (https://huggingface.co/owner/name/blob/main/FILE). The tag "latest" is the default selection.
/// invalid_argument: the text is not such a name.
Result<HubName> parse_hub_name(std::string_view text);

/// Returns true if a path in a repository may be created below a folder: it is relative, without "..", "." or empty
/// parts, backslashes and control characters.
bool is_safe_path(std::string_view path);

}  // namespace redline
