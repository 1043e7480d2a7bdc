// Shared parts of the measured matrix products y = x W^T: random inputs, and the comparison with float64.
#pragma once

#include <optional>
#include <vector>

#include "lab/kernels/kernel_case.h"
#include "lab/kernels/random_matrix.h"
#include "tensor/activation_layout.h"

namespace redline::lab {

/// Returns the maximum rounding error of int8 codes for each element of row `x`: half a quantization unit. `group`
/// elements share a unit. For each `step` elements of the group it is halved up to `max_halvings` times, as long as
/// they fit.
std::vector<double> code_moves(const float* x, int64_t k, int64_t group, int64_t step, int max_halvings);

/// Terms of the error bound of one element of y.
struct ProductSums {
  double products = 0;  ///< sum |x w|
  double parts = 0;     ///< sum (|x| + move) (|scale code| + |min|)
  double moved = 0;     ///< sum move |w|
  double w_moved = 0;   ///< sum (|x| + move) times the change of w that linear_q8 makes
};

class ProductCase : public KernelCase {
 public:
  ProductCase(DType type, int64_t rows, int64_t n, int64_t k) : type_(type), rows_(rows), n_(n), k_(k) {}
  int64_t output_bytes() const override { return rows_ * n_ * 4; }
  /// Compares a number of elements that takes little time; every element must be finite.
  KernelCheck check(int64_t slot, int64_t output, uint64_t seed) const override;

 protected:
  /// Writes new values into matrix_ and x_.
  void fill_inputs(uint64_t seed);
  /// Returns the maximum rounding error of each element of this row of x; zeros if it is not rounded.
  virtual std::vector<double> moves(const float* x) const = 0;
  virtual double error_bound(const ProductSums& sums) const = 0;

  DType type_;
  int64_t rows_, n_, k_;
  std::optional<RandomMatrix> matrix_;
  std::vector<float> x_;  ///< [kInputVariants, rows, k]

 private:
  struct WeightRow {
    std::vector<float> values, parts, moves;
  };
  void check_element(const float* x, const WeightRow& w, float got, KernelCheck& result) const;
};

}  // namespace redline::lab
