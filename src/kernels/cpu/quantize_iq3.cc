// Quantizing to IQ3_S: four elements at a time are the row of a grid that is nearest by the weighted error (ggml:
// quantize_row_iq3_s_impl). The search depends on the elements at every turn, so one source serves all instruction
// sets.
#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/cpu/quantize.h"
#include "tensor/blocks/iq3_s.h"

namespace redline {
namespace {

constexpr int kElements = blocks::IQ3_S::kElements, kBytes = blocks::IQ3_S::kBytes, kGroup = 32, kQuads = 8, kCodes = 8;

/// Finds the grid's row for four codes (three bits each, the first lowest), or the rows near them.
struct Grid {
  std::array<int16_t, 4096> row;                 ///< -1: the codes are not a row
  std::array<std::vector<uint16_t>, 4096> near;  ///< rows at the three smallest distances, nearest first

  Grid() {
    row.fill(-1);
    for (int r = 0; r < 512; ++r) row[blocks::kIq3sDigits[r]] = static_cast<int16_t>(r);
    for (int codes = 0; codes < 4096; ++codes) {
      if (row[static_cast<size_t>(codes)] >= 0) continue;
      std::vector<std::pair<int, int>> rows;
      rows.reserve(512);
      for (int r = 0; r < 512; ++r) {
        int distance = 0;
        for (int i = 0; i < 4; ++i) {
          const int step = (blocks::kIq3sDigits[r] >> (3 * i) & 7) - (codes >> (3 * i) & 7);
          distance += step * step;
        }
        rows.emplace_back(distance, r);
      }
      std::sort(rows.begin(), rows.end());
      int last = -1, distances = 0;
      for (const auto& [distance, r] : rows) {
        if (distance != last && ++distances > 3) break;
        last = distance;
        near[static_cast<size_t>(codes)].push_back(static_cast<uint16_t>(r));
      }
    }
  }
};
const Grid& grid() {
  static const Grid made;
  return made;
}

int code_of(float x) { return std::clamp(static_cast<int>((x + 12582912.0f) - 12582912.0f), 0, kCodes - 1); }

/// Returns the row of the grid for four elements. is_own: their rounded codes are a row themselves.
int nearest_row(const float* x, const float* root_weights, float inverse, float scale, bool& is_own) {
  size_t codes = 0;
  for (int i = 0; i < 4; ++i) codes |= static_cast<size_t>(code_of(0.5f * (inverse * x[i] - 1))) << (3 * i);
  is_own = grid().row[codes] >= 0;
  if (is_own) return grid().row[codes];
  float best = FLT_MAX;
  int found = grid().near[codes].front();
  for (const uint16_t r : grid().near[codes]) {
    float error = 0;
    for (int i = 0; i < 4; ++i) {
      const float difference = scale * static_cast<float>(2 * (blocks::kIq3sDigits[r] >> (3 * i) & 7) + 1) - x[i];
      error += root_weights[i] * difference * difference;
    }
    if (error < best) {
      best = error;
      found = r;
    }
  }
  return found;
}

struct Sums {
  float qx = 0, q2 = 0;
  Sums(const float* x, const float* w, const std::array<int, kQuads>& rows) {
    for (int i = 0; i < kGroup; ++i) {
      const auto q =
          static_cast<float>(2 * (blocks::kIq3sDigits[rows[static_cast<size_t>(i / 4)]] >> (3 * (i % 4)) & 7) + 1);
      qx += w[i] * x[i] * q;
      q2 += w[i] * q * q;
    }
  }
};

/// Finds the rows of 32 magnitudes and returns their scale, 0 if all are zero.
float search_group(const float* x, const float* w, std::array<int, kQuads>& rows) {
  const float most = *std::max_element(x, x + kGroup);
  if (!(most > 0)) return 0;
  float roots[kGroup];
  for (int i = 0; i < kGroup; ++i) roots[i] = std::sqrt(w[i]);
  std::array<bool, kQuads> is_own = {};
  float scale = most / 15, best = 0;
  for (int step = -9; step <= 9; ++step) {
    const float inverse = (15 + static_cast<float>(step) * 0.2f) / most, this_scale = 1 / inverse;
    std::array<int, kQuads> found;
    std::array<bool, kQuads> own;
    for (size_t k = 0; k < kQuads; ++k) found[k] = nearest_row(x + 4 * k, roots + 4 * k, inverse, this_scale, own[k]);
    const Sums sums(x, w, found);
    if (sums.q2 > 0 && sums.qx * sums.qx > best * sums.q2) {
      scale = sums.qx / sums.q2;
      best = scale * sums.qx;
      rows = found;
      is_own = own;
    }
  }
  if (std::find(is_own.begin(), is_own.end(), false) == is_own.end() || !(scale > 0)) return scale;
  const float inverse = 1 / scale;
  bool own;
  for (size_t k = 0; k < kQuads; ++k) rows[k] = nearest_row(x + 4 * k, roots + 4 * k, inverse, scale, own);
  const Sums sums(x, w, rows);
  return sums.q2 > 0 ? sums.qx / sums.q2 : scale;
}

void encode(const float* x, const float* weights, uint8_t* block) {
  std::memset(block, 0, kBytes);
  float square = 0, scales[kElements / kGroup], most = 0;
  for (int i = 0; i < kElements; ++i) square += x[i] * x[i];
  const float mean = 2 * square / kElements;
  for (size_t g = 0; g < kElements / kGroup; ++g) {
    const float* own = x + kGroup * g;
    float size[kGroup], w[kGroup];
    uint32_t signs = 0;
    for (int i = 0; i < kGroup; ++i) {
      w[i] =
          weights ? weights[kGroup * g + static_cast<size_t>(i)] * std::sqrt(mean + own[i] * own[i]) : own[i] * own[i];
      size[i] = own[i] >= 0 ? own[i] : -own[i];
      signs |= static_cast<uint32_t>(!(own[i] >= 0)) << i;
    }
    std::array<int, kQuads> rows = {};
    scales[g] = search_group(size, w, rows);
    most = std::max(most, scales[g]);
    if (scales[g] == 0) continue;
    for (size_t k = 0; k < kQuads; ++k) {
      block[2 + kQuads * g + k] = static_cast<uint8_t>(rows[k] & 255);
      block[66 + g] |= static_cast<uint8_t>((rows[k] >> 8) << k);
    }
    std::memcpy(block + 74 + 4 * g, &signs, 4);
  }
  if (!(most > 0)) return;
  const float scale = most / 31, inverse = 1 / scale;
  const uint16_t half = f32_to_f16(scale * 1.033f);
  std::memcpy(block, &half, 2);
  for (size_t g = 0; g < kElements / kGroup; ++g) {
    const int level =
        std::clamp(static_cast<int>((0.5f * (inverse * scales[g] - 1) + 12582912.0f) - 12582912.0f), 0, 15);
    block[106 + g / 2] |= static_cast<uint8_t>(level << (4 * (g % 2)));
  }
}

}  // namespace

bool quantize_iq3_s(const QuantizeArgs& a) {
  const int64_t count = a.rows * a.cols / kElements, in_row = a.cols / kElements,
                size = dtype_info(a.source).block_bytes;
  float x[kElements];
  bool is_finite = true;
  for (int64_t b = 0; b < count; ++b) {
    unpack_row(a.source, static_cast<const uint8_t*>(a.x) + b * kElements * size, x, kElements);
    const bool is_good = std::all_of(x, x + kElements, [](float value) { return std::isfinite(value); });
    is_finite &= is_good;
    if (is_good)
      encode(x, a.weights ? a.weights + b % in_row * kElements : nullptr, static_cast<uint8_t*>(a.out) + b * kBytes);
  }
  return is_finite;
}

}  // namespace redline
