#include "formats/gguf_writer.h"

#include <algorithm>
#include <set>

#include "base/background_job.h"
#include "base/output_file.h"
#include "formats/byte_reader.h"

namespace redline {
namespace {

constexpr int64_t kAlignment = 32;     // the default of the format, so general.alignment is not written
constexpr size_t kMaxTensorName = 63;  // ggml's names are arrays of 64 bytes
constexpr size_t kMaxKey = 65535;

int64_t padding_after(int64_t bytes) { return (kAlignment - bytes % kAlignment) % kAlignment; }

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}
void put_string(std::string& out, std::string_view text) {
  put(out, static_cast<uint64_t>(text.size()));
  out += text;
}
void put_array_head(std::string& out, GgufType element, uint64_t count) {
  put(out, static_cast<uint32_t>(element));
  put(out, count);
}
template <class T>
std::string numbers(GgufType element, const std::vector<T>& values) {
  std::string out;
  put_array_head(out, element, values.size());
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

}  // namespace

/// Writes the header, then each tensor and its padding, to any sink with write(data, bytes).
template <class Sink>
Status GgufWriter::write_all(Sink&& write) const {
  static constexpr char kZeros[kAlignment] = {};
  constexpr int64_t kChunkBytes = int64_t{4} << 20;
  const std::string head = header();
  REDLINE_TRY(write(head.data(), static_cast<int64_t>(head.size())));
  // One chunk is written while the next one is filled.
  std::vector<uint8_t> chunks[2];
  size_t turn = 0;
  Status written;
  BackgroundJob writer;
  const auto finish = [&] {
    writer.wait();
    return written;
  };
  for (const auto& [name, view, fill] : tensors_) {
    const int64_t padding = padding_after(view.bytes());
    if (!fill) {
      REDLINE_TRY(finish());
      REDLINE_TRY(write(view.data, view.bytes()));
      REDLINE_TRY(write(kZeros, padding));
      continue;
    }
    const int64_t bytes = row_bytes(view.dtype, view.shape.back()), rows = view.bytes() / bytes;
    const int64_t step = std::clamp<int64_t>(kChunkBytes / bytes, 1, rows);
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t end = std::min(row + step, rows);
      std::vector<uint8_t>& chunk = chunks[turn++ % 2];
      chunk.resize(static_cast<size_t>((end - row) * bytes));
      REDLINE_TRY(fill(row, end, chunk.data()).within(fmt::format("tensor {}", name)));
      if (end == rows) chunk.resize(chunk.size() + static_cast<size_t>(padding), 0);
      REDLINE_TRY(finish());
      writer.start([&] { written = write(chunk.data(), std::ssize(chunk)); });
    }
  }
  return finish();
}

void GgufWriter::set_payload(std::string key, GgufType type, std::string payload) {
  for (auto& [name, value] : metadata_) {
    if (name == key) return void(value = Value{type, std::move(payload)});
  }
  metadata_.emplace_back(std::move(key), Value{type, std::move(payload)});
}
void GgufWriter::set(std::string key, std::string_view text) {
  std::string payload;
  put_string(payload, text);
  set_payload(std::move(key), GgufType::kString, std::move(payload));
}
void GgufWriter::set_u32(std::string key, uint32_t value) {
  std::string payload;
  put(payload, value);
  set_payload(std::move(key), GgufType::kU32, std::move(payload));
}
void GgufWriter::set_i32(std::string key, int32_t value) {
  std::string payload;
  put(payload, value);
  set_payload(std::move(key), GgufType::kI32, std::move(payload));
}
void GgufWriter::set_f32(std::string key, float value) {
  std::string payload;
  put(payload, value);
  set_payload(std::move(key), GgufType::kF32, std::move(payload));
}
void GgufWriter::set_bool(std::string key, bool value) {
  set_payload(std::move(key), GgufType::kBool, std::string(1, value ? '\1' : '\0'));
}
void GgufWriter::set_strings(std::string key, const std::vector<std::string>& values) {
  std::string payload;
  put_array_head(payload, GgufType::kString, values.size());
  for (const std::string& text : values) put_string(payload, text);
  set_payload(std::move(key), GgufType::kArray, std::move(payload));
}
void GgufWriter::set_f32s(std::string key, const std::vector<float>& values) {
  set_payload(std::move(key), GgufType::kArray, numbers(GgufType::kF32, values));
}
void GgufWriter::set_i32s(std::string key, const std::vector<int32_t>& values) {
  set_payload(std::move(key), GgufType::kArray, numbers(GgufType::kI32, values));
}
void GgufWriter::set_value(std::string key, const GgufValue& value) {
  std::string payload;
  if (value.type == GgufType::kString) put_string(payload, value.payload);
  if (value.type == GgufType::kArray) put_array_head(payload, value.element_type, value.count);
  if (value.type != GgufType::kString) payload += value.payload;
  set_payload(std::move(key), value.type, std::move(payload));
}
std::optional<GgufValue> GgufWriter::find(std::string_view key) const {
  for (const auto& [name, value] : metadata_) {
    if (name != key) continue;
    GgufValue found{value.type, GgufType::kU32, 1, value.payload};
    if (value.type == GgufType::kString) found.payload.remove_prefix(sizeof(uint64_t));
    if (value.type == GgufType::kArray) {
      std::memcpy(&found.element_type, found.payload.data(), sizeof(found.element_type));
      std::memcpy(&found.count, found.payload.data() + sizeof(found.element_type), sizeof(found.count));
      found.payload.remove_prefix(sizeof(found.element_type) + sizeof(found.count));
    }
    return found;
  }
  return std::nullopt;
}
void GgufWriter::add_tensor(std::string name, TensorView view) {
  tensors_.push_back({std::move(name), std::move(view), {}});
}
void GgufWriter::add_tensor(std::string name, TensorView view, FillRows fill) {
  tensors_.push_back({std::move(name), std::move(view), std::move(fill)});
}

void GgufWriter::replace_tensor(size_t index, DType dtype, FillRows fill) {
  Tensor& tensor = tensors_[index];
  tensor.view = {dtype, tensor.view.shape, nullptr};
  tensor.fill = std::move(fill);
}

int64_t GgufWriter::file_bytes() const {
  auto bytes = static_cast<int64_t>(header().size());
  for (const Tensor& tensor : tensors_) bytes += padded_bytes(tensor.view);
  return bytes;
}

Status GgufWriter::check() const {
  for (const auto& [key, value] : metadata_) {
    if (key.empty() || key.size() > kMaxKey)
      return invalid_argument("GGUF metadata key {}: 1 to {} bytes are allowed", in_quotes(key), kMaxKey);
    if (key == "general.alignment")
      return invalid_argument("general.alignment is set by the writer, not by its caller");
  }
  std::set<std::string_view> names;
  for (const auto& [name, view, fill] : tensors_) {
    if (name.empty() || name.size() > kMaxTensorName)
      return invalid_argument("GGUF tensor name {}: 1 to {} bytes are allowed", in_quotes(name), kMaxTensorName);
    if (!names.insert(name).second) return invalid_argument("GGUF tensor {} was added twice", in_quotes(name));
    if (view.data == nullptr && !fill) return invalid_argument("GGUF tensor {} has no data", in_quotes(name));
    if (view.shape.empty() || view.shape.size() > 4)
      return invalid_argument("GGUF tensor {} has {} dimensions, 1 to 4 are allowed", in_quotes(name),
                              view.shape.size());
    for (const int64_t size : view.shape) {
      if (size <= 0) return invalid_argument("GGUF tensor {} has a dimension of size {}", in_quotes(name), size);
    }
    if (dtype_info(view.dtype).gguf_type < 0)
      return unsupported("GGUF tensor {}: GGUF files cannot store type {}", in_quotes(name),
                         dtype_info(view.dtype).name);
    const int32_t block = dtype_info(view.dtype).block_elements;
    if (view.shape.back() % block != 0)
      return invalid_argument("GGUF tensor {}: rows of {} elements, type {} needs a multiple of {}", in_quotes(name),
                              view.shape.back(), dtype_info(view.dtype).name, block);
  }
  return {};
}

std::string GgufWriter::header() const {
  std::string out = "GGUF";
  put(out, uint32_t{3});
  put(out, static_cast<uint64_t>(tensors_.size()));
  put(out, static_cast<uint64_t>(metadata_.size()));
  for (const auto& [key, value] : metadata_) {
    put_string(out, key);
    put(out, static_cast<uint32_t>(value.type));
    out += value.payload;
  }
  int64_t offset = 0;
  for (const auto& [name, view, fill] : tensors_) {
    put_string(out, name);
    put(out, static_cast<uint32_t>(view.shape.size()));
    for (auto size = view.shape.rbegin(); size != view.shape.rend(); ++size) put(out, static_cast<uint64_t>(*size));
    put(out, static_cast<uint32_t>(dtype_info(view.dtype).gguf_type));
    put(out, static_cast<uint64_t>(offset));
    offset += padded_bytes(view);
  }
  out.append(static_cast<size_t>(padding_after(static_cast<int64_t>(out.size()))), '\0');
  return out;
}

Status GgufWriter::write(const std::string& path) const {
  REDLINE_TRY(check().within(path));
  REDLINE_ASSIGN(OutputFile file, OutputFile::create(path));
  REDLINE_TRY(write_all([&](const void* data, int64_t bytes) {
    return file.write({static_cast<const char*>(data), static_cast<size_t>(bytes)});
  }));
  return file.close();
}

int64_t GgufWriter::padded_bytes(const TensorView& view) { return view.bytes() + padding_after(view.bytes()); }

Status GgufWriter::write_bytes(const std::string& path, std::string_view bytes) { return write_file(path, bytes); }

Result<std::string> GgufWriter::to_bytes() const {
  REDLINE_TRY(check());
  std::string out;
  REDLINE_TRY(write_all([&](const void* data, int64_t bytes) {
    out.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
    return Status();
  }));
  return out;
}

}  // namespace redline
