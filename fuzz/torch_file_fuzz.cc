// Reads any bytes as a file that torch.save wrote.
#include "formats/torch_file.h"
#include "fuzz_input.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = TorchFile::from_file(MappedFile::from_bytes("one", fuzz_text(data, size)));
  if (!file.ok()) {
    require(!file.status().message().empty());
    return 0;
  }
  for (const TorchTensor& tensor : file->tensors())
    if (tensor.view.data != nullptr) touch(tensor.view.data, tensor.view.bytes());
  return 0;
}
