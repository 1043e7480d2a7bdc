// Reads any bytes as a .npy file.
#include "formats/npy.h"
#include "fuzz_input.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto array = parse_npy(fuzz_text(data, size), "x.npy");
  if (!array.ok()) {
    require(!array.status().message().empty());
    return 0;
  }
  int64_t count = 1;
  for (int64_t side : array->shape) count *= side;
  require(count == static_cast<int64_t>(array->values.size()));
  require(array->values.size() <= size);
  return 0;
}
