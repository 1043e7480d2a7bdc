// Resolves the MODEL argument.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace redline::cli {

/// The path of a model: `name` as given, else assets/NAME of the current folder, else share/redline/NAME next to the
/// program's bin/. not_found: none of them exists; the message gives the closest name in the intended folder.
/// unsupported: "hf:owner/name".
Result<std::string> find_model(const std::string& name);

/// The last component of a path, for progress and captions.
std::string short_name(const std::string& path);

enum class FileKind { kGguf, kModelFolder, kSafetensors, kLlama2c };
std::string_view file_kind_name(FileKind kind);  ///< "gguf", "huggingface", "safetensors", "llama2c"
/// Detected by content, not by name. invalid_argument: none of them (the message shows the first bytes and the
/// supported kinds). A llama2.c checkpoint has no magic number: it is recognised by plausible sizes.
Result<FileKind> detect_file_kind(const std::string& path);

}  // namespace redline::cli
