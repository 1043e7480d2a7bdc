// Step invariants of a denoiser: values that depend only on the text are computed once in a run, values that depend
// only on timestep, guidance and pooled text for many steps at once (graph/passes/hoist_invariants.h).
#pragma once

#include <map>
#include <span>
#include <string>

#include "diffusion/adapters.h"
#include "diffusion/row_buffers.h"
#include "models/image_models.h"

namespace redline {

struct DenoiserBatch;

class StepInvariants {
 public:
  StepInvariants() = default;
  /// Hoists the invariants out of the model's graphs. `runtime` outlives the object.
  static Result<StepInvariants> make(DenoiserModel& model, const ExecutableOptions& options, RuntimeResources& runtime);

  /// Begins a run and drops the values of the last one. `batch` outlives the run; `item`: sizes of one row.
  void begin(const DenoiserBatch& batch, const SymbolValues& item);
  /// Computes the values for a step at the solver's `timestep` unless they are there, computed with these
  /// adapters. The batch's timesteps are computed several at a time.
  Status prepare(double timestep, const NetworkAdapters& adapters);
  /// Binds `network` to the values of `rows` (increasing indices into the batch) at the timestep of the last prepare().
  /// They stay valid until the next call for this network.
  void bind(Executable& network, std::span<const int64_t> rows);
  /// An output of the denoiser that has moved here; empty: no such output.
  std::span<float> state(const std::string& name, int64_t row);

  const Executable& text() const { return text_; }
  const Executable& time() const { return time_; }

 private:
  struct Kept {
    int64_t row_elements = 0;
    bool by_step = false;
    RowBuffer values;  ///< [rows, ...] of the text, [steps of the window, rows, ...] of the time
  };
  Status run_text(const NetworkAdapters& adapters);
  Status run_time(const NetworkAdapters& adapters);
  /// Index of a row of the present step in `kept.values`.
  int64_t index_of(const Kept& kept, int64_t row) const { return row + (kept.by_step ? at_ * rows() : 0); }
  int64_t rows() const;
  void add_outputs(const Executable& network, bool by_step);

  Executable text_, time_;
  SymbolValues bounds_;    ///< of text_
  int64_t max_items_ = 0;  ///< of one run of time_
  double timestep_scale_ = 1;
  std::map<std::string, std::string> states_;
  std::map<std::string, Kept, std::less<>> kept_;
  const DenoiserBatch* batch_ = nullptr;
  SymbolValues item_;
  int64_t version_ = -1;
  std::vector<double> window_;  ///< timesteps whose values are stored
  int64_t at_ = 0;              ///< index into window_
  bool has_text_ = false;
};

}  // namespace redline
