// Reads any bytes as an importance matrix, in either format of llama.cpp's imatrix tool.
#include "formats/imatrix.h"

#include <cmath>

#include "fuzz_file.h"
#include "fuzz_input.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFile file("imatrix");
  file.write(fuzz_text(data, size));
  const auto matrix = ImportanceMatrix::read(file.path());
  if (!matrix.ok()) {
    require(!matrix.status().message().empty());
    return 0;
  }
  for (const auto& [name, entry] : matrix->entries) {
    require(!entry.counts.empty() && entry.sums.size() % entry.counts.size() == 0);
    for (const float sum : entry.sums) require(std::isfinite(sum) && sum >= 0);
    require(entry.means().size() == entry.sums.size());
  }
  return 0;
}
