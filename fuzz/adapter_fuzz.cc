// Reads any bytes as the files of a LoRA adapter for a language model: adapter_config.json, a zero byte, and its
// safetensors. Reads the same safetensors as an adapter for images. Bytes that begin like a GGUF file are read as one.
#include "diffusion/adapters.h"
#include "fuzz_file.h"
#include "models/files/text_adapter.h"

using namespace redline;

namespace {

void check(const AdapterMatrices& matrices) {
  for (const auto& [module, matrix] : matrices) {
    require(matrix.rank() > 0 && matrix.down.shape.size() == 2 && matrix.up.shape.size() == 2);
    touch(matrix.down.data, matrix.down.bytes());
    touch(matrix.up.data, matrix.up.bytes());
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFolder folder;
  const std::string_view text = fuzz_text(data, size);
  const size_t cut = std::min(text.find('\0'), text.size());
  const std::string_view weights = text.substr(std::min(cut + 1, text.size()));
  if (text.starts_with("GGUF")) {
    folder.write("adapter.gguf", text);
    const auto adapter = TextAdapterFile::open(folder.path() + "/adapter.gguf");
    if (adapter.ok()) check(adapter->matrices);
    else require(!adapter.status().message().empty());
    return 0;
  }
  folder.write("adapter_config.json", text.substr(0, cut));
  folder.write("adapter_model.safetensors", weights);
  const auto adapter = TextAdapterFile::open(folder.path());
  if (adapter.ok()) check(adapter->matrices);
  else require(!adapter.status().message().empty());
  const auto of_images = AdapterFile::open(folder.path() + "/adapter_model.safetensors");
  if (!of_images.ok()) {
    require(!of_images.status().message().empty());
    return 0;
  }
  for (const auto& [component, matrices] : of_images->networks) check(matrices);
  return 0;
}
