// What a user may write for MODEL.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace redline::cli {

/// The path of a model: `name` as given, else assets/NAME of the current
/// folder, else share/redline/NAME beside the program's bin/. not_found: none
/// of them is there; the message names the nearest entry of the folder that was
/// meant. unsupported: "hf:owner/name".
Result<std::string> find_model(const std::string& name);

enum class FileKind { kGguf, kModelFolder, kSafetensors, kLlama2c };
std::string_view file_kind_name(FileKind kind);  ///< "gguf", "huggingface", "safetensors", "llama2c"
/// By content, not by name. invalid_argument: none of them (the first bytes are
/// shown, and what is supported). A llama2.c checkpoint has no magic number: it
/// is recognised by sizes that make sense.
Result<FileKind> detect_file_kind(const std::string& path);

}  // namespace redline::cli
