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

enum class FileKind {
  kGguf,
  kModelFolder,  ///< of Hugging Face
  kSafetensors,
  kLlama2c,
  kPipeline,   ///< diffusers folder
  kComponent,  ///< a folder in it
  kAdapter,    ///< LoRA
};
/// "gguf", "huggingface", "safetensors", "llama2c", "diffusers", "diffusers component", "lora".
std::string_view file_kind_name(FileKind kind);
/// Detected by content, not by name. invalid_argument: none of them (the message shows the first bytes and the
/// supported kinds). A llama2.c checkpoint has no magic number: it is recognised by plausible sizes.
Result<FileKind> detect_file_kind(const std::string& path);

/// The kinds of model that commands take.
enum class ModelUse { kText, kImage };
/// What to say when a command could not open `path`: that it is a model of another kind, and which command takes it;
/// else `status`.
Status explain_kind(Status status, const std::string& path, ModelUse use);

}  // namespace redline::cli
