#include "models/weight_reader.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace redline {
namespace {

/// Equal but for axes of 1 at the end: a product is also stored as a convolution of one pixel, [out, in, 1, 1].
bool is_shape(const std::vector<int64_t>& stored, const std::vector<int64_t>& asked) {
  for (size_t i = 0; i < std::max(stored.size(), asked.size()); ++i)
    if ((i < stored.size() ? stored[i] : 1) != (i < asked.size() ? asked[i] : 1)) return false;
  return true;
}

}  // namespace

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

Value WeightReader::take_part(const std::string& name, const std::vector<int64_t>& shape, int64_t part, int64_t parts) {
  std::vector<int64_t> whole = shape;
  whole[0] *= parts;
  auto found = find(name, whole);
  if (!found.ok()) return g_.fail(std::move(found).status());
  WeightSource source = std::move(found).value();
  source.view.shape = shape;
  const int64_t rows = shape.size() > 1 ? shape[0] : 1;
  source.view.data = static_cast<const uint8_t*>(source.view.data) +
                     part * rows * row_bytes(source.view.dtype, source.view.num_elements() / rows);
  return g_.weight(fmt::format("{}.{}", name, part), std::move(source));
}

Result<WeightSource> WeightReader::find(const std::string& name, const std::vector<int64_t>& shape) {
  auto at = checkpoint_.tensors.find(name);
  if (at == checkpoint_.tensors.end()) return invalid_argument("tensor {} is missing", checkpoint_.file_name(name));
  if (!is_shape(at->second.view.shape, shape))
    return invalid_argument("tensor {} is [{}], the config asks for [{}]", checkpoint_.file_name(name),
                            fmt::join(at->second.view.shape, ", "), fmt::join(shape, ", "));
  taken_.insert(name);
  WeightSource source = at->second;
  source.view.shape = shape;
  return source;
}

Status WeightReader::expect_all_taken() const {
  std::string first;
  size_t left = 0;
  for (const auto& [name, source] : checkpoint_.tensors)
    if (!taken_.count(name) && !name.ends_with("rotary_emb.inv_freq") && left++ == 0) first = name;
  if (left == 0) return {};
  return invalid_argument("tensor {}{} has no place in this architecture; is model_type right?",
                          checkpoint_.file_name(first), left > 1 ? fmt::format(" (and {} more)", left - 1) : "");
}

}  // namespace redline
