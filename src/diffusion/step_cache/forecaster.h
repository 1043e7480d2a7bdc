// Forecasts the tensor that a skipped step needs, as a weighted sum of tensors stored at computed steps.
//
// Every known forecaster is linear in the stored tensors, so it only computes weights; the sum is one pass over memory.
// To add a forecaster, add NAME_forecaster.cc, whose rows kNameForecasters the build finds.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "diffusion/step_cache/history.h"

namespace redline {

/// The step to forecast.
struct ForecastPoint {
  int64_t step = 0;
  double sigma = 0;
  StateView probe;  ///< values that the front added at this step; empty if it did not run
};

/// A forecaster with the state of one row between steps. Not thread-safe.
class Forecaster {
 public:
  virtual ~Forecaster() = default;
  /// Returns the number of snapshots that it reads.
  virtual int64_t depth() const = 0;
  /// Returns true if snapshots need `probe`.
  virtual bool reads_probe() const { return false; }
  /// Returns true if it also reads its own last forecast before a computed step. `weights` then has depth() + 1
  /// elements; the last one is for that tensor, once it exists.
  virtual bool reads_own_forecast() const { return false; }
  /// Called when history[0] has been stored.
  virtual void stored(const History& /*history*/) {}
  /// Computes the weights, [history.size() + reads_own_forecast()], which are zero on entry: weights[k] belongs to
  /// history[k].
  /// `own`: the step of the own forecast, or -1.
  virtual void weights(const History& history, const ForecastPoint& at, int64_t own, std::span<double> weights) = 0;
};

struct ForecasterRow {
  const char* name;
  const char* summary;
  std::unique_ptr<Forecaster> (*make)();
};
/// The rows that a file defines: one, or one for each order.
using ForecasterRows = std::span<const ForecasterRow>;
/// Returns all forecasters: "reuse", "taylor1", ...
std::span<const ForecasterRow> forecasters();
/// Returns the forecaster with this name. not_found: the message lists the names.
Result<const ForecasterRow*> find_forecaster(const std::string& name);

/// Returns u(sigma) = -log(1.05 - sigma). The model output changes at an even rate in u; see measured_forecaster.cc.
double u_of_sigma(double sigma);

// These functions make a forecaster for rules that use a fixed one.
std::unique_ptr<Forecaster> make_reuse_forecaster();
/// `first`: derivatives are formed only at steps > first, which differs between methods.
std::unique_ptr<Forecaster> make_taylor_forecaster(int64_t order, int64_t first = 1);
std::unique_ptr<Forecaster> make_sigma_forecaster(int64_t order);
std::unique_ptr<Forecaster> make_gamma_forecaster();
std::unique_ptr<Forecaster> make_foca_forecaster();
std::unique_ptr<Forecaster> make_dmd_forecaster();
std::unique_ptr<Forecaster> make_measured_forecaster();
std::unique_ptr<Forecaster> make_probe_horizon_forecaster();

}  // namespace redline
