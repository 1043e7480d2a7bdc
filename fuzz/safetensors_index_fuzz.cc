// Reads any bytes as the index of two fixed safetensors files.
#include <algorithm>

#include "formats/safetensors.h"
#include "fuzz_input.h"

using namespace redline;

namespace {

std::shared_ptr<MappedFile> one_tensor(const std::string& path, const std::string& name) {
  const std::string header = "{\"" + name + R"(":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})";
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  return MappedFile::from_bytes(path, bytes + header + "data");
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto a = one_tensor("folder/a", "x"), b = one_tensor("folder/b", "y");
  const auto index = MappedFile::from_bytes("folder/index", fuzz_text(data, size));
  const auto names = safetensors_index_files(*index);
  if (names.ok()) {
    for (const std::string& name : *names) require(!name.empty() && name.find('/') == name.npos && name != "..");
  }
  const auto files = SafetensorsFiles::from_parts({a, b}, index.get());
  // An index that names files other than the open ones must be refused.
  if (files.ok() && names.ok())
    require(std::all_of(names->begin(), names->end(), [](const std::string& n) { return n == "a" || n == "b"; }));
  return 0;
}
