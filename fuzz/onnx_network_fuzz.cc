// Reads any bytes as an ONNX model, and checks its network.
#include "fuzz_input.h"
#include "models/onnx/onnx_network.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto file = OnnxFile::from_file(MappedFile::from_bytes("one", fuzz_text(data, size)));
  if (!file.ok()) return 0;
  const auto made = OnnxNetwork::make(*std::move(file));
  if (!made.ok()) {
    require(!made.status().message().empty());
    return 0;
  }
  const OnnxNetwork& network = **made;
  for (const OnnxValue& value : network.values())
    if (value.shape) require(!network.sizes().text(*value.shape).empty());
  require(!network.steps().outputs.empty());
  return 0;
}
