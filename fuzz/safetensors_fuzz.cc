// Reads any bytes as a safetensors file.
#include "formats/safetensors.h"
#include "fuzz_input.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto files = SafetensorsFiles::from_parts({MappedFile::from_bytes("one", fuzz_text(data, size))});
  if (!files.ok()) {
    require(!files.status().message().empty());
    return 0;
  }
  for (const SafetensorsTensor& tensor : files->tensors()) {
    require(files->tensor(tensor.name) == &tensor);
    require(tensor.file_offset + tensor.bytes <= static_cast<int64_t>(size));
    if (tensor.view.data == nullptr) continue;
    require(tensor.view.bytes() == tensor.bytes);
    touch(tensor.view.data, tensor.bytes);
  }
  return 0;
}
