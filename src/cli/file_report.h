// The contents of a model file: the data behind `redline inspect`.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "cli/file_kind.h"
#include "cli/json.h"

namespace redline::cli {

struct FileReport {
  struct Tensor {
    std::string name, type;  ///< type as Redline spells it ("q4_k"), or as the
                             ///< file does when Redline cannot read it
    std::vector<int64_t> shape;
    int64_t bytes = 0, offset = 0;
    int file = 0;  ///< index into `files`
    bool is_readable = true;
    int64_t elements() const;
  };
  struct TypeTotal {
    std::string type;
    int64_t tensors = 0, elements = 0, bytes = 0;
    bool is_readable = true;
  };

  struct Entry {
    std::string key;
    /// The value in its JSON form, with the file's type. An array of more than kMaxElements is {"count", "type",
    /// "first"}.
    Json value;
    std::string shown;  ///< the value as text of about 120 characters at most
    static constexpr size_t kMaxElements = 64;
  };
  /// A component of a diffusers folder.
  struct Component {
    std::string name, library, class_name;
    int64_t tensors = 0, elements = 0, bytes = 0;
    std::string types;  ///< "bf16 x57, f32 x17"
  };

  FileKind kind = FileKind::kGguf;
  std::string format;          ///< "GGUF v3, 2 parts"
  std::string pipeline_class;  ///< class of a diffusers folder: "FluxPipeline"
  std::string
      adapter_names;       ///< program whose names an adapter's tensors have: "PEFT", "diffusers", "kohya", "llama.cpp"
  std::string base_model;  ///< base model that an adapter's file names; "": none
  std::vector<std::pair<std::string, int64_t>> files;  ///< path, bytes
  std::vector<Entry> metadata;                         ///< in the file's order
  std::vector<Component> components;
  std::vector<Tensor> tensors;  ///< names in a diffusers folder are "transformer/NAME"

  /// Returns the bytes and parameters of each type, largest first.
  std::vector<TypeTotal> totals() const;
};

/// Reads a file with the reader of its kind, whose errors it returns.
Result<FileReport> read_file_report(const std::string& path, FileKind kind);

}  // namespace redline::cli
