#include "models/checkpoint/convert_weights.h"

#include "tensor/row_panel.h"

namespace redline {
namespace {

/// Converts a tensor row by row of its first axis.
Status convert_tensor(const std::string& name, WeightSource& source, DType to) {
  const TensorView view = source.view;
  const int64_t rows = view.shape[0], cols = rows > 0 ? view.num_elements() / rows : 0;
  const int64_t from_bytes = row_bytes(view.dtype, cols), to_bytes = row_bytes(to, cols);
  auto made = MappedFile::make(name, rows * to_bytes, [&](uint8_t* target) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = 0; r < rows; ++r) {
      unpack_row(view.dtype, static_cast<const uint8_t*>(view.data) + r * from_bytes, row.data(), cols);
      round_row(to, row.data(), cols, target + r * to_bytes);
    }
  });
  REDLINE_TRY(made);
  if (source.file) {
    const auto* data = static_cast<const uint8_t*>(view.data);
    source.file->release(data - source.file->data(), view.bytes());
  }
  source.file = std::move(made).value();
  source.view = {to, view.shape, source.file->data()};
  return {};
}

}  // namespace

Status convert_weights(Checkpoint& checkpoint, DType to, const std::function<bool(const std::string&)>& wanted) {
  const auto is_offered = [](DType type) {
    return can_round_to(type) && (type == DType::kBF16 || dtype_info(type).is_block);
  };
  if (!is_offered(to)) {
    std::vector<std::string_view> offered;
    for (int i = 0; i < kNumDTypes; ++i)
      if (const auto type = static_cast<DType>(i); is_offered(type)) offered.push_back(dtype_info(type).name);
    return invalid_argument("weights are converted to {}, not to {}", fmt::join(offered, ", "), dtype_info(to).name);
  }
  for (auto& [name, source] : checkpoint.tensors) {
    const TensorView& view = source.view;
    if (view.shape.size() != 2 || !dtype_info(view.dtype).is_float || !wanted(name)) continue;
    if (to != DType::kBF16 ? view.shape[1] % dtype_info(to).block_elements != 0 : view.dtype == DType::kBF16) continue;
    REDLINE_TRY(convert_tensor(name, source, to));
  }
  return {};
}

Status round_convolutions(Checkpoint& checkpoint) {
  for (auto& [name, source] : checkpoint.tensors) {
    const TensorView& view = source.view;
    if (view.shape.size() != 4 || !dtype_info(view.dtype).is_float || view.dtype == DType::kBF16) continue;
    if (view.shape[1] == 0 || view.shape[1] % kConvBlock != 0) continue;
    REDLINE_TRY(convert_tensor(name, source, DType::kBF16));
  }
  return {};
}

}  // namespace redline
