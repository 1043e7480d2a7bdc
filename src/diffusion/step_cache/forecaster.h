// Forecasts of the one tensor that a skipped step needs: a weighted sum of what computed steps stored.
//
// Every known forecaster is linear in the stored tensors, so a page here gives weights and nothing else; the sum itself
// is one pass over memory for all of them. To add one: its page, and its row in forecaster.cc.
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
  std::span<const float> probe;  ///< what the probe added at this step; empty when it did not run
};

/// Keeps what it learns of one row's history between steps. Not for two threads at once.
class Forecaster {
 public:
  virtual ~Forecaster() = default;
  /// Snapshots that it wants.
  virtual int64_t depth() const = 0;
  /// Whether snapshots need `probe`.
  virtual bool reads_probe() const { return false; }
  /// Whether it wants its own last forecast before a computed step as one more tensor: `weights` then has depth() + 1
  /// places, the last for that tensor once there is one.
  virtual bool reads_own_forecast() const { return false; }
  /// history[0] is new.
  virtual void stored(const History& /*history*/) {}
  /// weights [history.size() + reads_own_forecast()], all zero on entry: weights[k] belongs to history[k].
  /// `own`: the step of the own forecast, or -1.
  virtual void weights(const History& history, const ForecastPoint& at, int64_t own, std::span<double> weights) = 0;
};

struct ForecasterInfo {
  const char* name;
  const char* summary;
  std::unique_ptr<Forecaster> (*make)();
};
/// All of them: "reuse", "taylor1", ...
std::span<const ForecasterInfo> forecasters();
/// not_found, with the names that there are.
Result<const ForecasterInfo*> find_forecaster(const std::string& name);

/// The time in which forecasts of ours, and the taking back of their errors, go evenly: -log(1.05 - sigma), see
/// measured_forecaster.cc.
double forecast_clock(double sigma);

// One for each page.
std::unique_ptr<Forecaster> make_reuse_forecaster();
/// `first`: derivatives are formed at steps > first, as each method has it.
std::unique_ptr<Forecaster> make_taylor_forecaster(int64_t order, int64_t first = 1);
std::unique_ptr<Forecaster> make_sigma_forecaster(int64_t order);
std::unique_ptr<Forecaster> make_gamma_forecaster();
std::unique_ptr<Forecaster> make_foca_forecaster();
std::unique_ptr<Forecaster> make_dmd_forecaster();
std::unique_ptr<Forecaster> make_measured_forecaster();
std::unique_ptr<Forecaster> make_probe_horizon_forecaster();

}  // namespace redline
