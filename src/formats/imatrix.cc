#include "formats/imatrix.h"

#include <algorithm>
#include <cmath>

#include "formats/byte_reader.h"
#include "formats/gguf_writer.h"

namespace redline {
namespace {

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts";
constexpr int32_t kMaxEntries = 1 << 20;

Status check_values(const std::string& path, std::string_view name, const std::vector<float>& values) {
  for (const float value : values)
    if (!std::isfinite(value) || value < 0)
      return invalid_argument("{}: tensor {}: a mean square is {}", path, in_quotes(name), value);
  return {};
}

Result<ImportanceMatrix> read_gguf(const std::string& path) {
  REDLINE_ASSIGN(const GgufFile file, GgufFile::open(path));
  const GgufValue* type = file.find("general.type");
  if (!type || type->as_string() != "imatrix")
    return invalid_argument("{}: general.type is {}, expected \"imatrix\": not an importance matrix", path,
                            type ? type->to_string() : "missing");
  ImportanceMatrix matrix;
  if (const GgufValue* names = file.find("imatrix.datasets"))
    if (const auto strings = names->as_strings(); strings && strings->size() < kMaxEntries)
      matrix.datasets = strings->to_vector();
  const auto number = [&](const char* key) {
    const GgufValue* value = file.find(key);
    return value ? value->as_int().value_or(0) : 0;
  };
  matrix.chunks = number("imatrix.chunk_count");
  matrix.chunk_size = number("imatrix.chunk_size");
  for (const GgufTensor& sums : file.tensors()) {
    if (!sums.name.ends_with(kSums)) continue;
    const std::string name = sums.name.substr(0, sums.name.size() - kSums.size());
    const GgufTensor* counts = file.tensor(name + std::string(kCounts));
    if (!counts || sums.view.dtype != DType::kF32 || counts->view.dtype != DType::kF32 || !sums.view.data ||
        !counts->view.data || sums.view.num_elements() < 1 || counts->view.num_elements() < 1 ||
        sums.view.num_elements() % counts->view.num_elements() != 0)
      return invalid_argument("{}: tensor {} and its {} do not match in type or size", path, in_quotes(sums.name),
                              kCounts);
    ImportanceMatrix::Entry entry;
    const auto copy = [](const TensorView& view, std::vector<float>& out) {
      out.resize(static_cast<size_t>(view.num_elements()));
      std::memcpy(out.data(), view.data, out.size() * sizeof(float));
    };
    copy(sums.view, entry.sums);
    copy(counts->view, entry.counts);
    REDLINE_TRY(check_values(path, sums.name, entry.sums));
    REDLINE_TRY(check_values(path, counts->name, entry.counts));
    matrix.entries.emplace(name, std::move(entry));
  }
  return matrix;
}

/// Reads the format before GGUF: for each tensor its name, the number of chunks, and the means times that number.
Result<ImportanceMatrix> read_old(const std::string& path, std::string_view text) {
  ByteReader reader(path, text);
  int32_t count = 0;
  REDLINE_TRY(reader.read(count, "number of tensors"));
  if (count < 1 || count > kMaxEntries)
    return invalid_argument("{}: neither a GGUF file nor an importance matrix in the older format{}", path,
                            looks_like(text, static_cast<int64_t>(text.size())));
  ImportanceMatrix matrix;
  const auto length = [&](int32_t& value, const char* what) -> Status {
    const uint64_t at = reader.offset();
    REDLINE_TRY(reader.read(value, what));
    if (value < 0) return reader.error_at(at, "{} is {}", what, value);
    return {};
  };
  for (int32_t i = 0; i < count; ++i) {
    int32_t name_bytes = 0, chunks = 0, values = 0;
    std::string_view name, bytes;
    REDLINE_TRY(length(name_bytes, "length of a name"));
    REDLINE_TRY(reader.take(static_cast<uint64_t>(name_bytes), name, "name of a tensor"));
    REDLINE_TRY(length(chunks, "number of chunks"));
    REDLINE_TRY(length(values, "number of columns"));
    REDLINE_TRY(reader.take(static_cast<uint64_t>(values) * sizeof(float), bytes, "mean squares"));
    if (values == 0) return reader.error_at(reader.offset(), "tensor {} has no columns", in_quotes(name));
    ImportanceMatrix::Entry entry;
    entry.sums.resize(static_cast<size_t>(values));
    std::memcpy(entry.sums.data(), bytes.data(), bytes.size());
    entry.counts = {static_cast<float>(std::max(chunks, 1))};
    REDLINE_TRY(check_values(path, name, entry.sums));
    matrix.entries.emplace(name, std::move(entry));
  }
  if (reader.remaining() == 0) return matrix;  // files before the dataset's name
  int32_t calls = 0, name_bytes = 0;
  std::string_view name;
  REDLINE_TRY(reader.read(calls, "number of chunks"));
  matrix.chunks = calls;
  REDLINE_TRY(length(name_bytes, "length of the dataset's name"));
  REDLINE_TRY(reader.take(static_cast<uint64_t>(name_bytes), name, "name of the dataset"));
  if (!name.empty()) matrix.datasets.emplace_back(name);
  return matrix;
}

}  // namespace

std::vector<float> ImportanceMatrix::Entry::means() const {
  std::vector<float> means(sums.size(), 1.0f);
  const size_t columns = sums.size() / counts.size();
  for (size_t i = 0; i < sums.size(); ++i)
    if (const float count = counts[i / columns]; count > 0) means[i] = sums[i] / count;
  return means;
}

Result<ImportanceMatrix> ImportanceMatrix::read(const std::string& path) {
  REDLINE_ASSIGN(const std::shared_ptr<MappedFile> file, MappedFile::open(path));
  Result<ImportanceMatrix> matrix = file->text().starts_with("GGUF") ? read_gguf(path) : read_old(path, file->text());
  if (matrix.ok() && matrix->entries.empty()) return invalid_argument("{}: an importance matrix of no tensors", path);
  return matrix;
}

Status ImportanceMatrix::write(const std::string& path) const {
  GgufWriter writer;
  writer.set("general.type", "imatrix");
  writer.set_strings("imatrix.datasets", datasets);
  writer.set_u32("imatrix.chunk_count", static_cast<uint32_t>(chunks));
  writer.set_u32("imatrix.chunk_size", static_cast<uint32_t>(chunk_size));
  for (const auto& [name, entry] : entries) {
    const auto matrices = static_cast<int64_t>(entry.counts.size());
    const auto columns = static_cast<int64_t>(entry.sums.size()) / matrices;
    writer.add_tensor(name + std::string(kSums), {DType::kF32, {matrices, columns}, entry.sums.data()});
    writer.add_tensor(name + std::string(kCounts), {DType::kF32, {matrices, 1}, entry.counts.data()});
  }
  return writer.write(path);
}

}  // namespace redline
