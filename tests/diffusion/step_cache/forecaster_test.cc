// Forecasters: weights that reproduce the functions each is exact for, and the published recursions.
#include "diffusion/step_cache/forecaster.h"

#include <gmock/gmock.h>

#include <cmath>
#include <random>

#include "diffusion/step_cache/small_eigen.h"

namespace redline::testing {
namespace {

using Tensor = std::vector<float>;
using Truth = std::function<double(double step, int64_t element)>;
constexpr int64_t kElements = 24;

double sigma_of(double step) { return 1 - step / 40; }

/// Stores truth at the steps of `computed`, forecasts at `at`; the largest error over elements. `probe`: what the probe
/// adds; the truth itself unless given.
double worst_error(const std::string& name, const std::vector<int64_t>& computed, int64_t at, const Truth& truth,
                   const Truth& probe = {}) {
  Result<const ForecasterRow*> info = find_forecaster(name);
  EXPECT_TRUE(info.ok()) << info.status().to_string();
  const std::unique_ptr<Forecaster> forecaster = (*info)->make();
  History history(forecaster->depth());
  const auto values = [&](double step, const Truth& f) {
    Tensor t(kElements);
    for (int64_t i = 0; i < kElements; ++i) t[i] = static_cast<float>(f(step, i));
    return t;
  };
  const Truth& seen = probe ? probe : truth;
  for (const int64_t step : computed) {
    Snapshot& s = history.push();
    s.step = step;
    s.sigma = sigma_of(static_cast<double>(step));
    s.image = values(static_cast<double>(step), truth);
    s.probe = values(static_cast<double>(step), seen);
    forecaster->stored(history);
  }
  const Tensor now = values(static_cast<double>(at), seen);
  std::vector<double> weights(static_cast<size_t>(history.size()) + (forecaster->reads_own_forecast() ? 1 : 0));
  forecaster->weights(history, {at, sigma_of(static_cast<double>(at)), now}, -1, weights);
  double worst = 0;
  for (int64_t i = 0; i < kElements; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < history.size(); ++k) sum += weights[k] * history[k].image[i];
    worst = std::max(worst, std::fabs(sum - truth(static_cast<double>(at), i)));
  }
  return worst;
}

/// Patterns over the elements, linearly independent for different `which`.
double wave(int64_t element, double which) {
  return std::sin((1.7 + 0.3 * which) * static_cast<double>(element) + which);
}

TEST(Forecasters, AreExactOnWhatTheyModel) {
  const Truth constant = [](double, int64_t i) { return wave(i, 0); };
  const Truth line = [](double t, int64_t i) { return wave(i, 0) + 0.1 * t * wave(i, 1); };
  const Truth parabola = [&](double t, int64_t i) { return line(t, i) + 0.02 * t * t * wave(i, 2); };
  const Truth linear_in_u = [](double t, int64_t i) { return wave(i, 0) + u_of_sigma(sigma_of(t)) * wave(i, 1); };
  // float32 inputs of size 1 .. 20 and weights of up to 10.
  constexpr double kRounding = 4e-5;
  for (const ForecasterRow& info : forecasters())
    EXPECT_LT(worst_error(info.name, {2, 3, 4, 5, 6, 7}, 9, constant), kRounding) << info.name;
  for (const char* name : {"taylor1", "taylor2", "taylor3", "sigma1", "sigma2", "foca", "dmd", "probe"})
    EXPECT_LT(worst_error(name, {2, 4, 6, 8, 10, 12}, 15, line), name == std::string("dmd") ? 5e-3 : kRounding) << name;
  EXPECT_GT(worst_error("reuse", {2, 4, 6, 8}, 11, line), 0.1);
  EXPECT_LT(worst_error("sigma2", {2, 3, 7}, 11, parabola), kRounding);
  EXPECT_GT(worst_error("taylor2", {2, 3, 7}, 11, parabola), 0.1)
      << "unequal gaps: the published series is not a polynomial";
  EXPECT_LT(worst_error("measured", {2, 4, 9}, 12, linear_in_u), kRounding);
  EXPECT_LT(worst_error("gamma", {2, 8}, 11, line), kRounding);
  EXPECT_GT(worst_error("gamma", {2, 8}, 14, line), 0.1) << "gamma is clipped at 1.5";
}

TEST(Forecasters, TaylorIsTheSeriesOfItsFactors) {
  // Factors at 10 from gaps 2 and 3: f1 = (R10 - R7) / 3, f2 = (f1 - (R7 - R5) / 2) / 3.
  const std::unique_ptr<Forecaster> taylor = make_taylor_forecaster(2);
  History history(3);
  for (const int64_t step : {5, 7, 10}) {
    history.push().step = step;
    taylor->stored(history);
  }
  std::vector<double> w(3);
  taylor->weights(history, {12, 0, {}}, -1, w);
  EXPECT_NEAR(w[0], 1 + 2 / 3.0 + 2 / 9.0, 1e-12);
  EXPECT_NEAR(w[1], -2 / 3.0 + 2 * (-1 / 9.0 - 1 / 6.0), 1e-12);
  EXPECT_NEAR(w[2], 2 * (1 / 6.0), 1e-12);
}

TEST(Forecasters, MeasuredTrustsALineAsFarAsItHeld) {
  // The value goes one way from 2 to 4 and half of that way, in u, from 4 to 6: half trust from then on.
  const double u2 = u_of_sigma(sigma_of(2)), u4 = u_of_sigma(sigma_of(4)), u6 = u_of_sigma(sigma_of(6)),
               u8 = u_of_sigma(sigma_of(8));
  const auto run = [&](double value_at_6) {
    const std::unique_ptr<Forecaster> measured = make_measured_forecaster();
    History history(measured->depth());
    const double values[] = {0, u4 - u2, value_at_6};
    for (int64_t k = 0; k < 3; ++k) {
      Snapshot& s = history.push();
      s.step = 2 + 2 * k;
      s.sigma = sigma_of(static_cast<double>(s.step));
      s.image = Tensor(kElements, static_cast<float>(values[k]));
      measured->stored(history);
    }
    std::vector<double> w(3);
    measured->weights(history, {8, sigma_of(8), {}}, -1, w);
    EXPECT_NEAR(w[0] + w[1], 1, 1e-12);
    return (w[0] - 1) / ((u8 - u6) / (u6 - u4));
  };
  EXPECT_NEAR(run(u4 - u2 + 0.5 * (u6 - u4)), 0.5, 1e-5);
  EXPECT_NEAR(run(u4 - u2 + 3 * (u6 - u4)), 1, 1e-9) << "no more than the line";
  EXPECT_NEAR(run(u4 - u2 - 3 * (u6 - u4)), 0, 1e-9) << "a turn is not progress";
}

TEST(Forecasters, DmdFollowsGrowthDecayAndOscillation) {
  const Truth modes = [](double t, int64_t i) {
    return wave(i, 0) * std::exp(-0.11 * t) + wave(i, 1) * std::exp(0.02 * t) * std::cos(0.4 * t) +
           wave(i, 2) * std::exp(0.02 * t) * std::sin(0.4 * t);
  };
  for (const int64_t gap : {1, 2, 3}) {
    std::vector<int64_t> computed;
    for (int64_t k = 0; k < 6; ++k) computed.push_back(1 + gap * k);
    for (const int64_t ahead : {1, 2, 4})
      EXPECT_LT(worst_error("dmd", computed, computed.back() + ahead, modes), 0.02) << gap << " " << ahead;
    EXPECT_GT(worst_error("taylor1", computed, computed.back() + 4, modes), 0.2);
  }
}

TEST(Forecasters, DmdFallsBack) {
  const Truth line = [](double t, int64_t i) { return wave(i, 0) + 0.1 * t * wave(i, 1); };
  EXPECT_LT(worst_error("dmd", {2, 4, 5}, 7, line), 4e-5) << "three values: Taylor of first order";
  EXPECT_LT(worst_error("dmd", {1, 2, 3, 4, 6, 7}, 9, line), 4e-5) << "two equally spaced values: Taylor";
  const Truth zero = [](double, int64_t) { return 0.0; };
  EXPECT_EQ(worst_error("dmd", {1, 2, 3, 4, 5, 6}, 9, zero), 0);
}

TEST(Forecasters, FocaFollowsItsRecursion) {
  // R at 4 and 7, own forecast at 6 that missed: values of one element, by hand.
  const std::unique_ptr<Forecaster> foca = make_foca_forecaster();
  History history(2);
  for (const int64_t step : {4, 7}) history.push().step = step;
  const double a = 1.0, b = 2.5, own = 1.7;
  double last = b, local = (b - own) / 1, anchor = (b - a) / 3;
  for (int64_t step = 8; step <= 10; ++step) {
    const double next = b + static_cast<double>(step - 7) / 2 * (anchor + local);
    local = next - last;
    last = next;
    std::vector<double> w(3);
    foca->weights(history, {step, 0, {}}, 6, w);
    EXPECT_NEAR(w[0] * b + w[1] * a + w[2] * own, next, 1e-12) << step;
  }
}

TEST(Forecasters, UnknownNamesListTheKnown) {
  const Status status = find_forecaster("tailor").status();
  EXPECT_EQ(status.code(), Code::not_found);
  EXPECT_THAT(status.message(), ::testing::HasSubstr("(the nearest is taylor1); there are dmd, foca"));
}

TEST(SmallEigen, DecomposesRandomMatrices) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  for (int64_t n = 1; n <= 6; ++n)
    for (int trial = 0; trial < 50; ++trial) {
      SmallMatrix<double> m(n), symmetric(n), v(n);
      for (double& x : m.values) x = normal(random);
      for (int64_t i = 0; i < n; ++i)
        for (int64_t j = 0; j < n; ++j) symmetric.at(i, j) = m.at(i, j) + m.at(j, i);
      std::vector<std::complex<double>> values;
      SmallMatrix<std::complex<double>> vectors(n);
      ASSERT_TRUE(general_eigen(m, values, vectors));
      double scale = 1;
      for (const double x : m.values) scale = std::max(scale, std::fabs(x) * static_cast<double>(n));
      for (int64_t k = 0; k < n; ++k)
        for (int64_t i = 0; i < n; ++i) {
          std::complex<double> product = 0;
          for (int64_t j = 0; j < n; ++j) product += m.at(i, j) * vectors.at(j, k);
          // Backward stable up to the spread of the eigenvalues that random matrices have.
          EXPECT_LT(std::abs(product - values[k] * vectors.at(i, k)), 1e-9 * scale);
        }
      std::vector<double> real;
      symmetric_eigen(symmetric, real, v);
      for (int64_t k = 0; k < n; ++k) {
        EXPECT_TRUE(k == 0 || real[k] <= real[k - 1]);
        for (int64_t i = 0; i < n; ++i) {
          double product = 0;
          for (int64_t j = 0; j < n; ++j) product += symmetric.at(i, j) * v.at(j, k);
          EXPECT_NEAR(product, real[k] * v.at(i, k), 1e-12 * scale * 4);
        }
      }
    }
}

TEST(SmallEigen, RefusesADefectiveMatrix) {
  SmallMatrix<double> jordan(2);
  jordan.values = {1, 1, 0, 1};
  std::vector<std::complex<double>> values;
  SmallMatrix<std::complex<double>> vectors(2);
  EXPECT_FALSE(general_eigen(jordan, values, vectors));
  std::vector<std::complex<double>> x;
  EXPECT_FALSE(solve_linear(SmallMatrix<std::complex<double>>(2), {1, 1}, x));
}

}  // namespace
}  // namespace redline::testing
