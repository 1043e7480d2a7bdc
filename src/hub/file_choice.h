// Which files of a repository make a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace redline {

struct HubFile {
  std::string path;    ///< in the repository
  int64_t bytes = -1;  ///< -1: unknown
  std::string etag;    ///< the name of its blob: SHA-256 of large files, else SHA-1 as Git has it; "": unknown
};

/// The files of a repository that Redline can use.
enum class HubKind : uint8_t {
  kGguf,      ///< one GGUF file, or the parts of one
  kFolder,    ///< a model with config.json and safetensors
  kPipeline,  ///< a diffusers pipeline: model_index.json
  kAdapter,   ///< a LoRA adapter
  kFile,      ///< one requested file
};
/// "gguf", "huggingface", "diffusers", "lora", "file"
std::string_view hub_kind_name(HubKind kind);

struct FileChoice {
  HubKind kind = HubKind::kFolder;
  std::vector<HubFile> files;
  /// What commands take as MODEL, below the folder of the snapshot: the first part of a GGUF file; "": the folder.
  std::string model;
};

/// The files that are needed, from all files of a repository. `selection` is a path, or the quantization of a GGUF
/// file, in any case. Without one: the folder if the repository has config.json or model_index.json with safetensors
/// beside it, else the GGUF file of the most usual quantization (Q4_K_M, then Q8_0, as llama.cpp and Ollama choose).
/// not_found: no such file or quantization (the message lists what there is), or a part of a split file is missing.
/// unsupported: there are weights, and none in a format that Redline reads.
Result<FileChoice> choose_files(const std::vector<HubFile>& all, const std::string& selection);

/// The quantization in the name of a GGUF file, in upper case ("Q4_K_M", "BF16", "UD-Q4_K_XL"); "": none.
std::string quantization_of(std::string_view path);

/// The quantizations among the files, each once, in the order of their names.
std::vector<std::string> quantizations_in(const std::vector<HubFile>& files);

}  // namespace redline
