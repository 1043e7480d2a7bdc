// Reads any bytes as a GGUF file, or as the two parts of a split (cut where the bytes "PART" stand).
#include "formats/gguf.h"
#include "fuzz_input.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz_text(data, size);
  std::vector<std::shared_ptr<MappedFile>> parts;
  const size_t cut = text.find("PART");
  parts.push_back(MappedFile::from_bytes("one", text.substr(0, cut)));
  if (cut != text.npos) parts.push_back(MappedFile::from_bytes("two", text.substr(cut + 4)));
  const auto file = GgufFile::from_parts(parts);
  if (!file.ok()) {
    require(!file.status().message().empty());
    return 0;
  }
  for (const auto& [key, value] : file->metadata()) {
    require(file->find(key) == &value);
    touch(value.payload.data(), static_cast<int64_t>(value.payload.size()));
    (void)value.to_string();
    (void)value.as_int(), (void)value.as_double(), (void)value.as_bool(), (void)value.as_string();
    (void)value.as_ints(), (void)value.as_doubles(), (void)value.as_array();
    if (const auto strings = value.as_strings()) require(strings->to_vector().size() == value.count);
  }
  for (const GgufTensor& tensor : file->tensors()) {
    require(file->tensor(tensor.name) == &tensor);
    if (tensor.view.data == nullptr) continue;
    require(tensor.view.bytes() == tensor.bytes);
    touch(tensor.view.data, tensor.bytes);
  }
  return 0;
}
