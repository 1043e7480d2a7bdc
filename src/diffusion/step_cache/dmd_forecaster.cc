// dmd: dynamic mode decomposition (Schmid 2010) of the last 4 to 6 equally spaced values, as cache-dit's calibrator of
// that name: Y_(t+1) = A Y_t is fitted to the window and its eigenvalues raised to the power of the horizon.
//
// With columns X = Y_1 .. Y_(n-1), Z = Y_2 .. Y_n and X = U S V^T cut at 1e-4 of the largest singular value, the
// reduced propagator is B = U^T Z V / S and the forecast Z V / S W lambda^k W^-1 c with Z V / S c = Y_n in the least
// squares sense. This only needs the n x n Gram matrix of the values (V and S^2 are eigenvectors and eigenvalues of
// X^T X, U^T Z = S^-1 V^T X^T Z), so a fit is one pass over memory and a problem of five rows; the result is weights of
// stored values. With fewer than 4 equally spaced values it is a first-order Taylor series, as in the original, and
// with a degenerate fit reuse.
#include <algorithm>
#include <cmath>

#include "diffusion/step_cache/forecaster.h"
#include "diffusion/step_cache/measures.h"
#include "diffusion/step_cache/small_eigen.h"

namespace redline {
namespace {

constexpr int64_t kWindow = 6, kFewest = 4;
constexpr double kRankCut = 1e-4, kRidge = 1e-8;
using DmdComplex = std::complex<double>;

class DmdForecaster final : public Forecaster {
 public:
  int64_t depth() const override { return kWindow; }

  void stored(const History& history) override {
    fallback_->stored(history);
    modes_.clear();
    points_ = history.size() < 2 ? 0 : 2;
    if (points_ == 0) return;
    spacing_ = history[0].step - history[1].step;
    while (points_ < history.size() && history[points_ - 1].step - history[points_].step == spacing_) ++points_;
    if (points_ >= kFewest) fit(history);
  }

  void weights(const History& history, const ForecastPoint& at, int64_t own, std::span<double> weights) override {
    if (points_ < kFewest) return fallback_->weights(history, at, own, weights);
    const double horizon = static_cast<double>(at.step - history[0].step) / static_cast<double>(spacing_);
    bool finite = !modes_.empty();
    for (const Mode& mode : modes_) {
      const DmdComplex power = mode.value == DmdComplex(0) ? DmdComplex(0) : std::pow(mode.value, horizon);
      for (size_t k = 0; k < mode.weights.size(); ++k) weights[k] += (power * mode.weights[k]).real();
    }
    for (const double w : weights) finite = finite && std::isfinite(w);
    if (finite) return;
    std::fill(weights.begin(), weights.end(), 0.0);
    weights[0] = 1;
  }

 private:
  struct Mode {
    DmdComplex value;
    std::vector<DmdComplex> weights;  ///< of history[0], history[1], ..
  };

  void fit(const History& history) {
    const int64_t n = points_;
    SmallMatrix<double> gram(n);  // oldest first, as the columns above
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j)
        gram.at(i, j) = gram.at(j, i) = dot(history[n - 1 - i].image, history[n - 1 - j].image);
    SmallMatrix<double> first(n - 1), v(n - 1);
    for (int64_t i = 0; i + 1 < n; ++i)
      for (int64_t j = 0; j + 1 < n; ++j) first.at(i, j) = gram.at(i, j);
    std::vector<double> squares;
    symmetric_eigen(first, squares, v);
    int64_t rank = 0;
    while (rank < n - 1 && squares[rank] > squares[0] * kRankCut * kRankCut) ++rank;
    if (rank == 0) return;
    // columns [n - 1, rank]: V / S.
    std::vector<std::vector<double>> columns(static_cast<size_t>(rank), std::vector<double>(n - 1));
    std::vector<double> s(static_cast<size_t>(rank));
    for (int64_t j = 0; j < rank; ++j) {
      s[j] = std::sqrt(squares[j]);
      for (int64_t i = 0; i + 1 < n; ++i) columns[j][i] = v.at(i, j) / (s[j] + kRidge);
    }
    SmallMatrix<double> reduced(rank);
    for (int64_t a = 0; a < rank; ++a)
      for (int64_t b = 0; b < rank; ++b)
        for (int64_t i = 0; i + 1 < n; ++i)
          for (int64_t j = 0; j + 1 < n; ++j) reduced.at(a, b) += v.at(i, a) / s[a] * gram.at(i, j + 1) * columns[b][j];
    std::vector<DmdComplex> values;
    SmallMatrix<DmdComplex> w(rank);
    if (!general_eigen(reduced, values, w)) return;
    // Modes as weights of Y_2 .. Y_n, and amplitudes by the normal equations of (modes) amplitude = Y_n.
    std::vector<std::vector<DmdComplex>> modes(static_cast<size_t>(rank), std::vector<DmdComplex>(n - 1));
    for (int64_t m = 0; m < rank; ++m)
      for (int64_t i = 0; i + 1 < n; ++i)
        for (int64_t a = 0; a < rank; ++a) modes[m][i] += columns[a][i] * w.at(a, m);
    SmallMatrix<DmdComplex> normal(rank);
    std::vector<DmdComplex> right(static_cast<size_t>(rank)), amplitudes;
    double largest = 0;
    for (int64_t a = 0; a < rank; ++a) {
      for (int64_t i = 0; i + 1 < n; ++i) {
        right[a] += std::conj(modes[a][i]) * gram.at(i + 1, n - 1);
        for (int64_t b = 0; b < rank; ++b)
          for (int64_t j = 0; j + 1 < n; ++j)
            normal.at(a, b) += std::conj(modes[a][i]) * gram.at(i + 1, j + 1) * modes[b][j];
      }
      largest = std::max(largest, std::abs(normal.at(a, a)));
    }
    if (!(largest > 0)) return;
    for (DmdComplex& c : normal.values) c /= largest;  // makes the solver's pivot test relative
    for (DmdComplex& c : right) c /= largest;
    if (!solve_linear(normal, right, amplitudes)) return;
    for (int64_t m = 0; m < rank; ++m) {
      Mode mode{values[m], std::vector<DmdComplex>(static_cast<size_t>(n - 1))};
      for (int64_t i = 0; i + 1 < n; ++i) mode.weights[n - 2 - i] = modes[m][i] * amplitudes[m];
      modes_.push_back(std::move(mode));
    }
  }

  std::unique_ptr<Forecaster> fallback_ = make_taylor_forecaster(1);
  int64_t points_ = 0, spacing_ = 1;
  std::vector<Mode> modes_;
};

}  // namespace

std::unique_ptr<Forecaster> make_dmd_forecaster() { return std::make_unique<DmdForecaster>(); }

namespace {
constexpr ForecasterRow kDmdRows[] = {
    {"dmd", "dynamic modes of the last 4 to 6 equally spaced values", make_dmd_forecaster}};
}  // namespace
extern const ForecasterRows kDmdForecasters = kDmdRows;

}  // namespace redline
