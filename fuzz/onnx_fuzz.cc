// Reads any bytes as an ONNX model.
#include "formats/onnx.h"
#include "formats/onnx_parser.h"
#include "fuzz_input.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  (void)OnnxFile::looks_like(fuzz_text(data, size));
  auto file = OnnxFile::from_file(MappedFile::from_bytes("one", fuzz_text(data, size)));
  if (!file.ok()) {
    require(!file.status().message().empty());
    return 0;
  }
  const Status read = for_each_onnx_tensor(file->graph, [&](const OnnxTensor& tensor) -> Status {
    if (tensor.storage == OnnxTensor::Storage::kExternal) return {};
    if (tensor.type == OnnxType::kString) {
      const auto texts = onnx_tensor_strings(tensor);
      require(texts.ok() && std::ssize(*texts) == tensor.num_elements());
      return {};
    }
    std::string buffer;
    const auto bytes = onnx_tensor_bytes(tensor, buffer);
    require(bytes.ok() && std::ssize(*bytes) == tensor.bytes());
    touch(bytes->data(), tensor.bytes());
    return {};
  });
  require(read.ok());
  return 0;
}
