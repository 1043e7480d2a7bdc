// A compiled denoiser. Its three programs run for any subset of the rows of a batch, so that a step cache can skip
// rows.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "diffusion/adapters.h"
#include "diffusion/latents.h"
#include "diffusion/row_buffers.h"
#include "diffusion/step_invariants.h"
#include "models/image/image_models.h"
#include "runtime/executable.h"

namespace redline {

/// Inputs that stay constant over the steps of a run. A row is one guidance branch of one image: row r belongs to image
/// r % images.
struct DenoiserBatch {
  int64_t images = 0, rows = 0;
  LatentShape latents;
  int64_t text_tokens = 0;
  /// Inputs other than latents and timestep, by name: "text" [rows, text_tokens, text_width], "pooled" [rows,
  /// pooled_width], "guidance" [rows], ...
  std::map<std::string, std::vector<float>> conditions;
  std::map<std::string, std::vector<int32_t>> integer_conditions;  ///< "key_lengths" [rows]
  /// The timesteps of the run in order. Values that depend only on the timestep are computed for many of them at once.
  /// Other timesteps may follow.
  std::vector<double> timesteps;
  /// Input of an inpainting network: the mask and the latents of the masked image, in rows [1 or images, tokens,
  /// 1 + channels]. One image's rows are used for all.
  std::vector<float> mask_latents;
};

/// Outputs of the parts that a step cache reads: "embedded", "image", "text" and "modulated" of the front, and "image"
/// and "text" of the middle (models/image/image_models.h). The cache may write the outputs of the middle instead of running
/// it. "text" of the middle exists only if the tail reads it.
enum class DenoiserState : uint8_t { kEmbedded, kFrontImage, kFrontText, kModulated, kMiddleImage, kMiddleText };

class Denoiser {
 public:
  /// Compiles a model. `options.bounds` bounds every batch. `max_adapter_rank`: every linear layer and convolution gets
  /// an adapter site of this rank; 0: none. `runtime` must outlive the denoiser.
  static Result<std::unique_ptr<Denoiser>> make(DenoiserModel model, const ExecutableOptions& options,
                                                int64_t max_adapter_rank, RuntimeResources& runtime);
  NetworkAdapters& adapters() { return adapters_; }
  const DenoiserModel& model() const { return model_; }
  bool has_parts() const { return !middle_.network.empty(); }
  bool is_inpainting() const { return model_.is_inpainting(); }

  /// Begins a run: computes the step invariants.
  /// invalid_argument: an input is missing or has another size.
  Status begin(DenoiserBatch batch);

  /// Computes the model output for `rows`. x: [images, tokens, columns], out: [rows, tokens, columns], both in the rows
  /// of LatentShape.
  Status evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep, std::span<float> out);

  // These run single parts for `rows` (increasing indices into the batch). The outputs of a part for a row are kept
  // until the part runs again for that row.
  Status run_front(std::span<const int64_t> rows, std::span<const float> x, double timestep);
  Status run_middle(std::span<const int64_t> rows);
  Status run_tail(std::span<const int64_t> rows, std::span<float> out);
  /// Returns a view of a state of one row, on the host or the device. Empty if the network has no such output, or has
  /// not run yet.
  StateView state(DenoiserState which, int64_t row);

  /// Returns the three parts, then the networks of the step invariants: of the text, and of the timesteps.
  std::vector<const Executable*> networks() const {
    return {&front_.network, &middle_.network, &tail_.network, &invariants_.text(), &invariants_.time()};
  }
  const DenoiserBatch& batch() const { return batch_; }
  /// Returns the operations of the matrix products in one step of a part (an index into networks()) for `rows` rows.
  double flops(size_t part, int64_t rows) const { return static_cast<double>(networks()[part]->flops(sizes(rows))); }

 private:
  /// One of the three programs, with the sources of its inputs and the buffers of its outputs.
  struct Part {
    enum class Source : uint8_t { kTimestep, kIntegers, kBuffer };
    struct Input {
      std::string port;
      Source source;
      Shape shape;                                   ///< shape of one row
      RowBuffer* buffer = nullptr;                   ///< kBuffer: buffer of the batch, or of an earlier part's output
      const std::vector<int32_t>* values = nullptr;  ///< kIntegers: values in the batch
      int64_t row_elements = 0;                      ///< kIntegers: elements of one row
    };
    struct Output {
      std::string port;
      Shape shape;
      RowBuffer* buffer;
    };
    Executable network;
    std::vector<Input> inputs;  ///< except "latents", which run_front writes, and the step invariants
    std::vector<StepInvariants::Reader> invariants;
    std::vector<Output> outputs;  ///< outputs that later parts or a step cache read
  };
  SymbolValues sizes(int64_t rows) const;
  /// Resolves the ports of a part. `prefix`: prefix of its outputs in states_; `earlier`: prefix of the states that its
  /// inputs read if they exist.
  void resolve(Part& part, const std::string& prefix, const std::string& earlier);
  Status begin_conditions();
  Status run(Part& part, std::span<const int64_t> rows);
  /// run() for a part with outputs, which are kept in their buffers.
  Status run_and_keep(Part& part, std::span<const int64_t> rows);
  void take_output(const float* network_rows, std::span<const int64_t> rows, std::span<float> out) const;

  Denoiser() = default;
  DenoiserModel model_;
  NetworkAdapters adapters_;
  std::vector<Executable::Port> conditions_;  ///< inputs that the batch provides
  StepInvariants invariants_;
  Part front_, middle_, tail_;
  DenoiserBatch batch_;
  double timestep_ = 0;
  /// outputs of parts for later parts and a step cache; the prefix "middle." marks those of the middle
  RowBuffers states_;
  /// Inputs that are constant over the run: those of the batch, "rope", "positions". begin() writes them, programs read
  /// them in place.
  RowBuffers kept_inputs_;
  std::map<std::string, Shape> kept_shapes_;  ///< shapes of one row
  struct State {
    RowBuffer* buffer = nullptr;
    std::optional<size_t> invariant;
  };
  std::array<State, 6> cache_states_;  ///< indexed by DenoiserState
};

}  // namespace redline
