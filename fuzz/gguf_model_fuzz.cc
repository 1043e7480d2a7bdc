// Reads any bytes as a GGUF file of a language model: converts names and settings to Hugging Face's, reads the
// tokenizer, and builds the graph.
#include "config_fuzz.h"
#include "formats/gguf.h"
#include "models/registry.h"
#include "tokenizer_fuzz.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = GgufFile::from_parts({MappedFile::from_bytes("one", fuzz_text(data, size))});
  if (!file.ok()) return 0;
  Checkpoint checkpoint;
  if (const Status status = checkpoint_from_gguf(*file, checkpoint); !status.ok()) {
    require(!status.message().empty());
    return 0;
  }
  require(checkpoint.config.is_object() && checkpoint.generation.is_object());
  for (const auto& [name, source] : checkpoint.tensors) {
    require(file->tensor(checkpoint.file_name(name)) != nullptr);
    const int64_t rows = source.view.shape.empty() ? 0 : source.view.shape[0];
    for (const int64_t row : {int64_t{0}, rows / 2, rows - 1})
      if (source.source_row && rows > 0) require(source.source_row(row) >= 0 && source.source_row(row) < rows);
  }
  try_config(checkpoint.config);
  if (const auto model = build_language_model(checkpoint); model.ok()) require(model->graph.check().ok());
  else require(!model.status().message().empty());
  if (checkpoint.tokenizer) try_tokenizer(std::move(checkpoint.tokenizer));
  else require(!checkpoint.tokenizer_status.ok());
  return 0;
}
