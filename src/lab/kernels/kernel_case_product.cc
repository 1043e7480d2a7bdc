#include "lab/kernels/kernel_case_product.h"

#include <algorithm>
#include <cmath>

namespace redline::lab {

namespace {

float largest_of(const float* x, int64_t begin, int64_t end) {
  float largest = 0;
  for (int64_t i = begin; i < end; ++i) largest = std::max(largest, std::abs(x[i]));
  return largest;
}

}  // namespace

std::vector<double> code_moves(const float* x, int64_t k, int64_t group, int64_t step, int max_halvings) {
  std::vector<double> moves(static_cast<size_t>(k));
  for (int64_t g = 0; g < k; g += group) {
    const float largest = largest_of(x, g, std::min(g + group, k));
    for (int64_t begin = g; begin < std::min(g + group, k); begin += step) {
      const int64_t end = std::min(begin + step, k);
      const float of_step = largest_of(x, begin, end);
      float bound = largest;
      for (int i = 0; i < max_halvings && of_step <= bound / 2; ++i) bound /= 2;
      for (int64_t i = begin; i < end; ++i) moves[static_cast<size_t>(i)] = double{bound} / 254;
    }
  }
  return moves;
}

void ProductCase::fill_inputs(uint64_t seed) {
  matrix_.emplace(type_, n_, k_, seed);
  x_.resize(static_cast<size_t>(kInputVariants * rows_ * k_));
  uint64_t state = ~seed;
  for (float& value : x_) value = random_normal(state);
}

KernelCheck ProductCase::check(int64_t slot, int64_t output_index, uint64_t seed) const {
  const auto* y = reinterpret_cast<const float*>(output(output_index));
  KernelCheck result;
  // Every element must be finite. Only as many elements are compared as take little time.
  for (int64_t i = 0; i < rows_ * n_; ++i)
    if (!std::isfinite(y[i])) result.of_bound = result.absolute = INFINITY;
  constexpr int64_t kMultiplyAdds = int64_t{1} << 25;
  const int64_t elements = std::max<int64_t>(64, kMultiplyAdds / k_);
  const bool all = rows_ * n_ <= elements;
  const int64_t columns = all ? n_ : std::min<int64_t>(n_, std::max<int64_t>(32, elements / rows_));
  const int64_t lines = all ? rows_ : std::min(rows_, std::max<int64_t>(1, elements / columns));
  const auto k = static_cast<size_t>(k_);
  WeightRow w = {std::vector<float>(k), std::vector<float>(k), std::vector<float>(k)};
  uint64_t state = seed;
  for (int64_t i = 0; i < columns; ++i) {
    // The last column is always compared, because its row panel may be only partly filled.
    const int64_t n = columns == n_ ? i
                      : i == 0      ? n_ - 1
                                    : static_cast<int64_t>(next_random(state) % static_cast<uint64_t>(n_));
    matrix_->row(n, w.values.data());
    matrix_->row_parts(n, w.parts.data());
    matrix_->row_moves(n, w.moves.data());
    for (int64_t j = 0; j < lines; ++j) {
      const int64_t m = lines == rows_ ? j
                        : j == 0       ? rows_ - 1
                                       : static_cast<int64_t>(next_random(state) % static_cast<uint64_t>(rows_));
      check_element(x_.data() + (slot % kInputVariants * rows_ + m) * k_, w, y[m * n_ + n], result);
    }
  }
  return result;
}

void ProductCase::check_element(const float* x, const WeightRow& w, float got, KernelCheck& result) const {
  ProductSums sums;
  double sum = 0;
  const std::vector<double> moves = this->moves(x);
  for (size_t i = 0; i < w.values.size(); ++i) {
    const double product = double{x[i]} * double{w.values[i]}, rounded = std::abs(double{x[i]}) + moves[i];
    sum += product;
    sums.products += std::abs(product);
    sums.moved += moves[i] * std::abs(double{w.values[i]});
    sums.w_moved += rounded * double{w.moves[i]};
    sums.parts += rounded * double{w.parts[i]};
  }
  result.add(std::abs(double{got} - sum), error_bound(sums));
}

}  // namespace redline::lab
