#include "models/checkpoint/weight_examiner.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <memory>

namespace redline {
namespace {

std::string place_in(const std::vector<int64_t>& shape, int64_t element) {
  std::vector<int64_t> place(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    place[axis] = element % shape[axis];
    element /= shape[axis];
  }
  return fmt::format("[{}]", fmt::join(place, ", "));
}

bool holds_fractions(const DTypeInfo& type) { return type.is_float || type.is_block || type.row_bytes > 0; }

}  // namespace

std::optional<std::string> find_not_finite(const WeightSource& weight) {
  const TensorView& view = weight.view;
  const DTypeInfo& type = dtype_info(view.dtype);
  const int64_t elements = view.num_elements();
  if (!holds_fractions(type) || view.data == nullptr || elements == 0) return std::nullopt;
  const int64_t cols = view.shape.empty() ? 1 : view.shape.back(), rows = elements / cols,
                bytes = row_bytes(view.dtype, cols);
  const int64_t rows_of_first_axis = rows / std::max<int64_t>(view.shape.size() > 1 ? view.shape[0] : 1, 1);
  const auto* const data = static_cast<const uint8_t*>(view.data);
  std::vector<float> values(static_cast<size_t>(cols));
  for (int64_t row = 0; row < rows; ++row) {
    if (view.shape.size() <= 1) weight.need_all();
    else if (row % rows_of_first_axis == 0 && !weight.source_row) weight.need_rows(row / rows_of_first_axis, 1);
    unpack_row(view.dtype, data + row * bytes, values.data(), cols);
    const auto broken = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
    if (broken == values.end()) continue;
    const int64_t column = broken - values.begin();
    std::string text = fmt::format("is {} at {}",
                                   std::isnan(*broken) ? "NaN"
                                   : *broken < 0       ? "-inf"
                                                       : "+inf",
                                   place_in(view.shape, row * cols + column));
    if (type.row_bytes > 0) text += fmt::format(" ({}: the scale of the row)", type.name);
    else if (type.is_block)
      text += fmt::format(" ({}: the scale of a block of {} elements)", type.name, type.block_elements);
    return text;
  }
  return std::nullopt;
}

std::optional<std::string> find_not_finite(const Checkpoint& checkpoint) {
  for (const auto& [name, weight] : checkpoint.tensors) {
    if (weight.source_row) weight.need_all();
    std::optional<std::string> broken = find_not_finite(weight);
    if (!broken) {
      // The pages of this mapping are not needed again.
      const auto* data = static_cast<const uint8_t*>(weight.view.data);
      if (weight.file && data != nullptr) weight.file->release(data - weight.file->data(), weight.view.bytes());
      continue;
    }
    // Memory that a reader has made is named after its tensor, not after a file.
    const bool is_file = weight.file && weight.file->path().find('/') != std::string::npos;
    return fmt::format("{}: tensor {} {}", is_file ? weight.file->path() : checkpoint.path, checkpoint.file_name(name),
                       *broken);
  }
  return std::nullopt;
}

WeightExaminer::WeightExaminer(const std::string& path)
    : WeightExaminer(std::vector<Open>{[path] { return Checkpoint::open(path); }}) {}

Status WeightExaminer::explain(Status failure) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_searched_, true)) {
    for (const Open& open : parts_) {
      const Result<Checkpoint> part = open();
      if (!part.ok()) continue;
      has_weights_ |= !part->tensors.empty();
      broken_ = find_not_finite(*part);
      if (broken_) break;
    }
  }
  if (broken_) return io("{}; the file is damaged: fetch or convert it again", *broken_);
  if (!has_weights_) return failure;
  return Status(failure.code(), failure.message() + "; every weight in its files is finite");
}

Status explain_not_finite(Status failure, const std::string& path) {
  static std::mutex mutex;
  // The examiners by the path and the modification time of their file.
  static std::map<std::pair<std::string, int64_t>, std::shared_ptr<WeightExaminer>> examiners;
  std::error_code error;
  const auto changed = std::filesystem::last_write_time(path, error);
  std::shared_ptr<WeightExaminer> examiner;
  {
    const std::lock_guard lock(mutex);
    auto& known = examiners[{path, error ? 0 : changed.time_since_epoch().count()}];
    if (!known) known = std::make_shared<WeightExaminer>(path);
    examiner = known;
  }
  return examiner->explain(std::move(failure));
}

}  // namespace redline
