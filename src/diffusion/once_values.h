// What a denoiser computes once instead of in every step: what follows from the text alone once in a run, what follows
// from timestep, guidance and pooled text for many steps at once (graph/passes/split_once.h).
#pragma once

#include <map>
#include <span>
#include <string>

#include "models/image_models.h"
#include "runtime/network.h"

namespace redline {

struct DenoiserBatch;

class OnceValues {
 public:
  OnceValues() = default;
  /// Takes out of the model's graphs what stays the same. `team` outlives the object.
  static Result<OnceValues> make(DenoiserModel& model, const NetworkOptions& options, WorkerTeam& team);

  /// A run begins: what was kept is forgotten. `batch` and whatever it names outlive the run; `item`: sizes of one row.
  void begin(const DenoiserBatch& batch, const SymbolValues& item);
  /// Computes what is missing for a step at `timestep` (as the solver calls it), or was computed with another `version`
  /// of the weights. Timesteps that the batch announces are computed several at a time.
  Status prepare(double timestep, int64_t version);
  /// Tells `network` where the kept values of these rows (places in the batch, rising) lie, at the timestep of the last
  /// prepare(). They stay there until the next call for this network.
  void bind(Network& network, std::span<const int64_t> rows);
  /// An output that the denoiser had and that is kept here; empty: none of that name.
  std::span<float> state(const std::string& name, int64_t row);

  const Network& text() const { return text_; }
  const Network& time() const { return time_; }

 private:
  struct Kept {
    int64_t row_elements = 0;
    std::vector<float> data;  ///< [rows, ...] of the text, [steps of the window, rows, ...] of the time
    bool by_step = false;
    std::vector<float> gathered;  ///< rows that are not neighbours
  };
  Status run_text();
  Status run_time();
  float* rows_of(Kept& kept) { return kept.data.data() + (kept.by_step ? at_ * kept.row_elements * rows() : 0); }
  int64_t rows() const;
  void add_outputs(const Network& network, bool by_step);

  Network text_, time_;
  SymbolValues bounds_;     ///< of text_
  int64_t most_items_ = 0;  ///< of one run of time_
  double timestep_scale_ = 1;
  std::map<std::string, std::string> states_;
  std::map<std::string, Kept, std::less<>> kept_;
  const DenoiserBatch* batch_ = nullptr;
  SymbolValues item_;
  int64_t version_ = -1;
  std::vector<double> window_;  ///< timesteps of which the values are kept
  int64_t at_ = 0;              ///< place in window_
  bool has_text_ = false;
};

}  // namespace redline
