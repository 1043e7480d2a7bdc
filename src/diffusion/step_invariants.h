// Computes the step invariants of a denoiser (graph/hoist_invariants.h): values that depend only on the text once in a
// run, and values that depend only on timestep, guidance and pooled text for many steps at once.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "diffusion/adapters.h"
#include "diffusion/row_buffers.h"
#include "models/image/image_models.h"

namespace redline {

struct DenoiserBatch;

class StepInvariants {
 public:
  StepInvariants() = default;
  /// Hoists the invariants out of the model's graphs. `runtime` outlives the object.
  static Result<StepInvariants> make(DenoiserModel& model, const ExecutableOptions& options, RuntimeResources& runtime);

  /// Begins a run and drops the values of the last one. `batch` must outlive the run; `item`: sizes of one row.
  void begin(const DenoiserBatch& batch, const SymbolValues& item);
  /// Computes the values for a step at the solver's `timestep`, unless they have been computed with these adapters. The
  /// batch's timesteps are computed several at a time.
  Status prepare(double timestep, const NetworkAdapters& adapters);
  /// An input of a network, and the value that it reads.
  struct Reader {
    std::string port;
    size_t value;
  };
  /// Returns the readers of `network`.
  std::vector<Reader> readers(const Executable& network) const;
  /// Binds the `readers` of `network` to the values of `rows` (increasing indices into the batch) at the timestep of
  /// the last prepare(). The binding is valid until the next call for this network.
  void bind(Executable& network, std::span<const Reader> readers, std::span<const int64_t> rows);
  /// Returns the step invariant that replaces an output of the denoiser; nullopt: the output is computed in each step.
  std::optional<size_t> moved_output(const std::string& name) const;
  /// Returns a value for one row at the timestep of the last prepare(); empty before it.
  StateView value(size_t index, int64_t row);

  const Executable& text() const { return text_; }
  const Executable& time() const { return time_; }

 private:
  struct Kept {
    std::string name;
    Shape shape;  ///< shape of one row
    bool by_step = false;
    int64_t row_elements = 0;
    RowBuffer values;  ///< [rows, ...] for outputs of text_, [steps of window_, rows, ...] for outputs of time_
  };
  Status run_text(const NetworkAdapters& adapters);
  Status run_time(const NetworkAdapters& adapters);
  /// Returns the index in `kept.values` of a row at the current step.
  int64_t index_of(const Kept& kept, int64_t row) const { return row + (kept.by_step ? at_ * rows() : 0); }
  int64_t rows() const;
  void add_outputs(const Executable& network, bool by_step);
  std::optional<size_t> find(std::string_view name) const;
  /// Returns the values that time_ (`by_step`) or text_ writes, in the order of its outputs.
  std::span<Kept> outputs(bool by_step);

  Executable text_, time_;
  SymbolValues bounds_;    ///< bounds of text_
  int64_t max_items_ = 0;  ///< maximum items of one run of time_
  double timestep_scale_ = 1;
  std::map<std::string, std::string> moved_;  ///< by output of the denoiser: name of the value in kept_
  std::vector<Kept> kept_;                    ///< outputs of text_, then of time_
  const DenoiserBatch* batch_ = nullptr;
  SymbolValues item_;
  int64_t version_ = -1;
  std::vector<double> window_;  ///< timesteps whose values are stored
  int64_t at_ = 0;              ///< index into window_
  bool has_text_ = false;
};

}  // namespace redline
