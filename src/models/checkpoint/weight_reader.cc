#include "models/checkpoint/weight_reader.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <span>

#include "base/mapped_file.h"

namespace redline {
namespace {

/// Compares shapes except for axes of 1 at the end: a linear layer may be stored as a convolution of one pixel, [out,
/// in, 1, 1].
bool is_shape(const std::vector<int64_t>& stored, const std::vector<int64_t>& asked) {
  for (size_t i = 0; i < std::max(stored.size(), asked.size()); ++i)
    if ((i < stored.size() ? stored[i] : 1) != (i < asked.size() ? asked[i] : 1)) return false;
  return true;
}

}  // namespace

std::string and_more(std::span<const std::string> names) {
  constexpr size_t kShown = 8;
  if (names.size() < 2) return "";
  const auto rest = names.subspan(1);
  return fmt::format(" (and {} more: {}{})", rest.size(), fmt::join(rest.first(std::min(kShown, rest.size())), ", "),
                     rest.size() > kShown ? ", ..." : "");
}

Value WeightReader::take(const std::string& name, const std::vector<int64_t>& shape,
                         const std::function<int64_t(int64_t)>& source_row) {
  if (checkpoint_.make_tensor) {
    auto made = checkpoint_.make_tensor(name, shape);
    return made.ok() ? g_.weight(name, std::move(made).value()) : g_.fail(std::move(made).status());
  }
  auto found = find(name, shape);
  if (!found.ok()) return g_.fail(std::move(found).status());
  WeightSource source = std::move(found).value();
  if (source_row && source.source_row)
    source.source_row = [source_row, stored = source.source_row](int64_t row) { return stored(source_row(row)); };
  else if (source_row) source.source_row = source_row;
  return g_.weight(name, std::move(source));
}

Value WeightReader::take_as(const std::string& name, const std::vector<int64_t>& stored,
                            const std::vector<int64_t>& shape) {
  if (checkpoint_.make_tensor) return take(name, shape);
  auto found = find(name, stored);
  if (!found.ok()) return g_.fail(std::move(found).status());
  WeightSource source = std::move(found).value();
  source.view.shape = shape;
  return g_.weight(name, std::move(source));
}

Value WeightReader::take_rows(const std::string& name, const std::vector<int64_t>& stored, int64_t begin, int64_t rows,
                              const std::string& part) {
  std::vector<int64_t> shape = stored;
  shape[0] = rows;
  if (checkpoint_.make_tensor) return take(part, shape);
  auto found = find(name, stored);
  if (!found.ok()) return g_.fail(std::move(found).status());
  WeightSource source = std::move(found).value();
  if (stored.size() == 1 && dtype_info(source.view.dtype).is_block)
    return g_.fail(unsupported("tensor {} has type {}; a vector must be a float type", checkpoint_.file_name(name),
                               dtype_info(source.view.dtype).name));
  const int64_t stride = row_bytes(source.view.dtype, stored.size() > 1 ? stored[1] : 1);
  source.view.data = static_cast<const uint8_t*>(source.view.data) + begin * stride;
  source.view.shape = shape;
  return g_.weight(part, std::move(source));
}

Value WeightReader::take_slice(const std::string& name, const std::vector<int64_t>& stored, int64_t index,
                               int64_t begin, int64_t rows, const std::string& part) {
  if (checkpoint_.make_tensor) return take(part, {rows, stored[2]});
  auto found = find(name, stored);
  if (!found.ok()) return g_.fail(std::move(found).status());
  WeightSource source = std::move(found).value();
  const int64_t first = index * stored[1] + begin;
  source.view.data = static_cast<const uint8_t*>(source.view.data) + first * row_bytes(source.view.dtype, stored[2]);
  source.view.shape = {rows, stored[2]};
  return g_.weight(part, std::move(source));
}

Value WeightReader::take_picked(const std::string& name, const std::vector<int64_t>& stored, int64_t rows,
                                const std::function<int64_t(int64_t)>& row_of, const std::string& part) {
  if (checkpoint_.make_tensor) return take(part, {rows, stored[1]});
  auto found = find(name, stored);
  if (!found.ok()) return g_.fail(std::move(found).status());
  WeightSource source = std::move(found).value();
  source.view.shape = {rows, stored[1]};
  source.is_shared = true;
  if (source.source_row)
    source.source_row = [row_of, before = source.source_row](int64_t row) { return before(row_of(row)); };
  else source.source_row = row_of;
  return g_.weight(part, std::move(source));
}

Value WeightReader::take_made(const std::string& name, const std::string& part, const std::vector<int64_t>& stored,
                              const std::vector<int64_t>& shape, const Maker& make) {
  if (checkpoint_.make_tensor) return take(part, shape);
  auto found = find(name, stored);
  if (!found.ok()) return g_.fail(std::move(found).status());
  WeightSource source = std::move(found).value();
  const TensorView view = source.view;
  if (dtype_info(view.dtype).is_block)
    return g_.fail(unsupported("tensor {} has type {}; in this architecture it must be a float type",
                               checkpoint_.file_name(name), dtype_info(view.dtype).name));
  TensorView made_view = {view.dtype, shape, nullptr};
  auto made = MappedFile::make(part, made_view.bytes(), [&](uint8_t* target) { make(view, target); });
  if (!made.ok()) return g_.fail(std::move(made).status());
  source.file = std::move(made).value();
  source.view = {view.dtype, shape, source.file->data()};
  return g_.weight(part, std::move(source));
}

Value WeightReader::take_gathered(const std::string& name, const std::vector<int64_t>& stored, int64_t rows,
                                  const std::function<int64_t(int64_t)>& row_of, const std::string& part) {
  std::vector<int64_t> shape = stored;
  shape[0] = rows;
  return take_made(name, part, stored, shape, [&](const TensorView& from, uint8_t* to) {
    const auto stride = static_cast<size_t>(row_bytes(from.dtype, stored.size() > 1 ? stored[1] : 1));
    for (int64_t row = 0; row < rows; ++row)
      std::memcpy(to + static_cast<size_t>(row) * stride,
                  static_cast<const uint8_t*>(from.data) + static_cast<size_t>(row_of(row)) * stride, stride);
  });
}

Value WeightReader::take_transposed(const std::string& name, int64_t in, int64_t out, int64_t begin, int64_t rows,
                                    const std::string& part) {
  return take_made(name, part, {in, out}, {rows, in}, [&](const TensorView& from, uint8_t* to) {
    const auto size = static_cast<size_t>(row_bytes(from.dtype, 1));
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < in; ++col)
        std::memcpy(to + static_cast<size_t>(row * in + col) * size,
                    static_cast<const uint8_t*>(from.data) + static_cast<size_t>(col * out + begin + row) * size, size);
  });
}

Value WeightReader::add(const std::string& name, const std::vector<float>& values) {
  const size_t bytes = values.size() * sizeof(float);
  auto made = MappedFile::make(name, static_cast<int64_t>(bytes),
                               [&](uint8_t* target) { std::memcpy(target, values.data(), bytes); });
  if (!made.ok()) return g_.fail(std::move(made).status());
  WeightSource source;
  source.file = std::move(made).value();
  source.view = {DType::kF32, {static_cast<int64_t>(values.size())}, source.file->data()};
  return g_.weight(name, std::move(source));
}

Value WeightReader::take_transposed_slice(const std::string& name, const std::vector<int64_t>& stored, int64_t index,
                                          int64_t begin, int64_t rows, const std::string& part) {
  const int64_t in = stored[1], out = stored[2];
  return take_made(name, part, stored, {rows, in}, [=](const TensorView& from, uint8_t* to) {
    const auto size = static_cast<size_t>(row_bytes(from.dtype, 1));
    const auto* data = static_cast<const uint8_t*>(from.data) + static_cast<size_t>(index * in * out) * size;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t col = 0; col < in; ++col)
        std::memcpy(to + static_cast<size_t>(row * in + col) * size,
                    data + static_cast<size_t>(col * out + begin + row) * size, size);
  });
}

Value WeightReader::take_joined(const std::vector<std::string>& names, int64_t size, const std::string& part,
                                const std::function<int64_t(int64_t)>& source) {
  const int64_t count = std::ssize(names) * size;
  if (checkpoint_.make_tensor) return take(part, {count});
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < names.size(); ++i) {
    auto found = find(names[i], {size});
    if (!found.ok()) return g_.fail(std::move(found).status());
    if (!dtype_info(found->view.dtype).is_float)
      return g_.fail(unsupported("tensor {} has type {}; a vector must be a float type",
                                 checkpoint_.file_name(names[i]), dtype_info(found->view.dtype).name));
    found->need_all();
    unpack_row(found->view.dtype, found->view.data, values.data() + static_cast<int64_t>(i) * size, size);
  }
  WeightSource joined;
  auto made = MappedFile::make(part, count * static_cast<int64_t>(sizeof(float)), [&](uint8_t* target) {
    for (int64_t n = 0; n < count; ++n)
      std::memcpy(target + static_cast<size_t>(n) * sizeof(float), &values[static_cast<size_t>(source ? source(n) : n)],
                  sizeof(float));
  });
  if (!made.ok()) return g_.fail(std::move(made).status());
  joined.file = std::move(made).value();
  joined.view = {DType::kF32, {count}, joined.file->data()};
  return g_.weight(part, std::move(joined));
}

Value WeightReader::take_changed(const std::string& name, const std::vector<int64_t>& shape, float (*change)(float)) {
  if (checkpoint_.make_tensor) return take(name, shape);
  auto found = find(name, shape);
  if (!found.ok()) return g_.fail(std::move(found).status());
  WeightSource source = std::move(found).value();
  const int64_t count = source.view.num_elements();
  auto made = MappedFile::make(name, count * static_cast<int64_t>(sizeof(float)), [&](uint8_t* target) {
    std::vector<float> values(static_cast<size_t>(count));
    source.need_all();
    unpack_row(source.view.dtype, source.view.data, values.data(), count);
    for (float& value : values) value = change(value);
    std::memcpy(target, values.data(), values.size() * sizeof(float));
  });
  if (!made.ok()) return g_.fail(std::move(made).status());
  source.file = std::move(made).value();
  source.view = {DType::kF32, shape, source.file->data()};
  return g_.weight(name, std::move(source));
}

Value WeightReader::take_plus_one(const std::string& name, const std::vector<int64_t>& shape) {
  if (checkpoint_.gguf_names) return take(name, shape);
  return take_changed(name, shape, [](float value) { return value + 1.0f; });
}

Value WeightReader::take_part(const std::string& name, const std::vector<int64_t>& shape, int64_t part, int64_t parts) {
  std::vector<int64_t> whole = shape;
  whole[0] *= parts;
  return take_rows(name, whole, part * shape[0], shape[0], fmt::format("{}.{}", name, part));
}

Result<WeightSource> WeightReader::find(const std::string& name, const std::vector<int64_t>& shape) {
  auto at = checkpoint_.tensors.find(name);
  if (at == checkpoint_.tensors.end()) {
    missing_.push_back(checkpoint_.file_name(name));
    return invalid_argument("tensor {} is missing", missing_.back());
  }
  if (!is_shape(at->second.view.shape, shape))
    return invalid_argument("tensor {} is [{}], the config requires [{}]", checkpoint_.file_name(name),
                            fmt::join(at->second.view.shape, ", "), fmt::join(shape, ", "));
  taken_.insert(name);
  WeightSource source = at->second;
  source.view.shape = shape;
  return source;
}

Status WeightReader::expect_all_taken() const {
  std::vector<std::string> left;
  for (const auto& [name, source] : checkpoint_.tensors)
    if (!taken_.count(name) && !name.ends_with("rotary_emb.inv_freq")) left.push_back(checkpoint_.file_name(name));
  if (left.empty()) return {};
  return invalid_argument("tensor {}{} is not used by this architecture; check model_type", left.front(),
                          and_more(left));
}

Status WeightReader::with_missing(Status status) const {
  if (missing_.size() < 2 || !status.message().ends_with(fmt::format("tensor {} is missing", missing_.front())))
    return status;
  return invalid_argument("{}{}", status.message(), and_more(missing_));
}

}  // namespace redline
