// Chooses the files of a repository that make up a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

struct HubFile {
  std::string path;    ///< path in the repository
  int64_t bytes = -1;  ///< -1: unknown
  std::string etag;    ///< name of the blob: SHA-256 for large files, else Git's SHA-1; "": unknown
};

/// Kinds of files in a repository that Redline can use.
enum class HubKind : uint8_t {
  kGguf,      ///< one GGUF file, or the parts of one
  kFolder,    ///< a model with config.json and safetensors
  kPipeline,  ///< a diffusers pipeline: model_index.json
  kAdapter,   ///< a LoRA adapter
  kFile,      ///< one requested file
};
/// Returns "gguf", "huggingface", "diffusers", "lora" or "file".
std::string_view hub_kind_name(HubKind kind);

struct FileChoice {
  HubKind kind = HubKind::kFolder;
  std::vector<HubFile> files;
  /// The argument MODEL of commands, as a path in the folder of the snapshot: the first part of a GGUF file; "": the
  /// folder.
  std::string model;
};

/// Returns the needed files among all files of a repository. `selection` is a path, or the quantization of a GGUF file,
/// in upper or lower case. Without a selection it is the folder, if the repository has safetensors with config.json or
/// model_index.json; else the GGUF file with the most usual quantization (Q4_K_M, then Q8_0, like llama.cpp and
/// Ollama). not_found: no such file or quantization (the message lists the available ones), or a part of a split file
/// is missing. unsupported: there are weights, but none in a format that Redline reads.
Result<FileChoice> choose_files(const std::vector<HubFile>& all, const std::string& selection);

/// Returns the quantization in the name of a GGUF file, in upper case ("Q4_K_M", "BF16", "UD-Q4_K_XL"); "": none.
std::string quantization_of(std::string_view path);

/// Returns the quantizations among the files, each once, in the order of their names.
std::vector<std::string> quantizations_in(const std::vector<HubFile>& files);

}  // namespace redline
