#include "models/convert_weights.h"

#include <algorithm>

#include <cmath>
#include <cstring>

#include "kernels/cpu/conv2d.h"

namespace redline {
namespace {

void round_row_16(uint16_t (*round)(float), const float* x, int64_t n, uint8_t* out) {
  for (int64_t i = 0; i < n; ++i) {
    const uint16_t rounded = round(x[i]);
    std::memcpy(out + 2 * i, &rounded, 2);
  }
}

void round_row_q8_0(const float* x, int64_t n, uint8_t* out) {
  constexpr int64_t kBlock = 32;
  for (int64_t begin = 0; begin < n; begin += kBlock, out += 2 + kBlock) {
    float most = 0;
    for (int64_t i = 0; i < kBlock; ++i) most = std::max(most, std::abs(x[begin + i]));
    const uint16_t scale = f32_to_f16(most / 127);
    std::memcpy(out, &scale, 2);
    // Divide by the scale as stored, so that its rounding costs no accuracy; a scale that rounds to zero gives zeros.
    const float stored = f16_to_f32(scale), inverse = stored > 0 && std::isfinite(stored) ? 1 / stored : 0;
    for (int64_t i = 0; i < kBlock; ++i) {
      const float code = std::nearbyint(x[begin + i] * inverse);
      out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f)));
    }
  }
}

void round_row_w8a8(const float* x, int64_t n, uint8_t* out) {
  float most = 0;
  bool finite = true;
  for (int64_t i = 0; i < n; ++i) {
    most = std::max(most, std::abs(x[i]));
    finite &= std::isfinite(x[i]);
  }
  // A row with values that are not finite gets a NaN scale; a row whose scale has no finite reciprocal becomes zeros.
  const float scale = finite ? most / 127 : NAN, inverse = scale > 0 && std::isfinite(1 / scale) ? 1 / scale : 0;
  for (int64_t i = 0; i < n; ++i) {
    const float code = finite ? std::nearbyint(x[i] * inverse) : 0.0f;
    out[i] = static_cast<uint8_t>(static_cast<int8_t>(std::clamp(code, -127.0f, 127.0f)));
  }
  std::memcpy(out + n, &scale, sizeof(scale));
}

/// Row by row of its first axis.
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

void round_row(DType to, const float* x, int64_t count, uint8_t* out) {
  switch (to) {
    case DType::kF32: std::memcpy(out, x, static_cast<size_t>(count) * sizeof(float)); return;
    case DType::kF16: return round_row_16(f32_to_f16, x, count, out);
    case DType::kBF16: return round_row_16(f32_to_bf16, x, count, out);
    case DType::kQ8_0: return round_row_q8_0(x, count, out);
    case DType::kW8A8: return round_row_w8a8(x, count, out);
    default: REDLINE_CHECK(false);
  }
}

Status convert_weights(Checkpoint& checkpoint, DType to, const std::function<bool(const std::string&)>& wanted) {
  if (to != DType::kBF16 && to != DType::kQ8_0 && to != DType::kW8A8)
    return invalid_argument("weights are converted to bf16, q8_0 and w8a8, not to {}", dtype_info(to).name);
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
