// A denoiser at work: its three programs, run for some rows of a batch at a time so that a step cache may leave rows
// out.
#pragma once

#include <map>

#include "diffusion/adapters.h"
#include "diffusion/latents.h"
#include "diffusion/once_values.h"
#include "models/image_models.h"
#include "runtime/network.h"

namespace redline {

/// What stays the same over the steps of a run. A row is one branch of guidance of one picture: row r draws picture
/// r % pictures.
struct DenoiserBatch {
  int64_t pictures = 0, rows = 0;
  LatentLayout layout;
  int64_t text_tokens = 0;
  /// What the network takes beside latents and timestep, by the name of its input: "text" [rows, text_tokens,
  /// text_width], "pooled" [rows, pooled_width], "guidance" [rows], ...
  std::map<std::string, std::vector<float>> conditions;
  std::map<std::string, std::vector<int32_t>> integer_conditions;  ///< "key_lengths" [rows]
  /// At which the network will be asked, in order. Others may come too; what depends on the timestep alone is computed
  /// for many of these at once.
  std::vector<double> timesteps;
  /// Of an inpainting network, the same for every picture: mask and latents of what it keeps, [1 + channels, height,
  /// width].
  std::vector<float> mask_latents;
};

class Denoiser {
 public:
  /// `options.compile.bounds` bounds every batch. `max_adapter_rank`: room for adapters beside every product of the
  /// blocks; 0: none. `team` outlives the denoiser.
  static Result<std::unique_ptr<Denoiser>> make(DenoiserModel model, const NetworkOptions& options,
                                                int64_t max_adapter_rank, WorkerTeam& team);
  AdapterBank& adapters() { return adapters_; }
  const DenoiserModel& model() const { return model_; }
  bool has_parts() const { return !body_.empty(); }
  bool is_inpainting() const { return model_.is_inpainting(); }

  /// Computes what the steps have in common.
  /// invalid_argument: a condition that the network takes is missing or has another size.
  Status begin(DenoiserBatch batch);

  /// The network's output for the rows named. x: [pictures, channels, height, width]; out: [rows, ...] likewise.
  Status evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep, std::span<float> out);

  // The parts, for the rows named (places in the batch, rising). What a part leaves for a row stays until it is run
  // again for that row.
  Status run_probe(std::span<const int64_t> rows, std::span<const float> x, double timestep);
  Status run_body(std::span<const int64_t> rows);
  Status run_head(std::span<const int64_t> rows, std::span<float> out);
  /// What a part left for one row: "embedded", "image", "text" of the probe; "body.image", "body.text" of the body,
  /// which a cache may write instead. Empty when the network has none of that name.
  std::span<float> state(const std::string& name, int64_t row);

  /// The parts, then what is computed once: of the text, of the timesteps.
  std::vector<const Network*> networks() const { return {&probe_, &body_, &head_, &once_.text(), &once_.time()}; }
  const DenoiserBatch& batch() const { return batch_; }
  /// Operations of the products of a step of a part (as in networks()) for so many rows of the batch.
  double flops(size_t part, int64_t rows) const { return static_cast<double>(networks()[part]->flops(sizes(rows))); }

 private:
  SymbolValues sizes(int64_t rows) const;
  Status run(Network& network, std::span<const int64_t> rows, const std::string& prefix);
  struct State {
    int64_t row_elements = 0;
    std::vector<float> data;  ///< [rows, row_elements]
  };
  void keep_outputs(const Network& network, std::span<const int64_t> rows, const std::string& prefix);
  void unpack(const float* network_rows, std::span<const int64_t> rows, std::span<float> out) const;

  Denoiser() : adapters_({}) {}
  DenoiserModel model_;
  AdapterBank adapters_;
  std::vector<Network::Port> conditions_;  ///< what comes from the batch
  OnceValues once_;
  Network probe_, body_, head_;
  DenoiserBatch batch_;
  std::vector<float> rope_, positions_;  ///< of one row
  std::vector<float> planes_;            ///< of one picture, where the network takes more than its latents
  double timestep_ = 0;
  std::map<std::string, State> state_;
};

}  // namespace redline
