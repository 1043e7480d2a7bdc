// Reads any bytes as a llama2.c checkpoint.
#include "formats/llama2c.h"
#include "fuzz_input.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto model = Llama2cFile::from_file(MappedFile::from_bytes("one", fuzz_text(data, size)));
  if (!model.ok()) {
    require(!model.status().message().empty());
    return 0;
  }
  for (const auto& [name, view] : model->tensors) touch(view.data, view.bytes());
  return 0;
}
