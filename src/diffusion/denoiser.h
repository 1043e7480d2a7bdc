// A compiled denoiser: its three programs run for any subset of the rows of a batch, so that a step cache can leave
// rows out.
#pragma once

#include <array>
#include <map>
#include <optional>

#include "diffusion/adapters.h"
#include "diffusion/latents.h"
#include "diffusion/row_buffers.h"
#include "diffusion/step_invariants.h"
#include "models/image_models.h"
#include "runtime/executable.h"

namespace redline {

/// Inputs that stay constant over the steps of a run. A row is one guidance branch of one image: row r belongs to image
/// r % images.
struct DenoiserBatch {
  int64_t images = 0, rows = 0;
  LatentLayout layout;
  int64_t text_tokens = 0;
  /// Inputs other than latents and timestep, by name: "text" [rows, text_tokens, text_width], "pooled" [rows,
  /// pooled_width], "guidance" [rows], ...
  std::map<std::string, std::vector<float>> conditions;
  std::map<std::string, std::vector<int32_t>> integer_conditions;  ///< "key_lengths" [rows]
  /// The timesteps of the run in order. What depends on the timestep only is computed for many of them at once; others
  /// may follow.
  std::vector<double> timesteps;
  /// Of an inpainting network, the same for every image: mask and latents of the masked image, [1 + channels, height,
  /// width].
  std::vector<float> mask_latents;
};

/// What a part leaves for a step cache: "embedded", "image", "text", "modulated" of the front, "image" and "text" of
/// the middle, which a cache may write instead (models/image_models.h); this text only where the tail reads it.
enum class DenoiserState : uint8_t { kEmbedded, kFrontImage, kFrontText, kModulated, kMiddleImage, kMiddleText };

class Denoiser {
 public:
  /// `options.bounds` bounds every batch. `max_adapter_rank`: gives every linear layer and convolution an
  /// adapter site of this rank; 0: none. `runtime` outlives the denoiser.
  static Result<std::unique_ptr<Denoiser>> make(DenoiserModel model, const ExecutableOptions& options,
                                                int64_t max_adapter_rank, RuntimeResources& runtime);
  NetworkAdapters& adapters() { return adapters_; }
  const DenoiserModel& model() const { return model_; }
  bool has_parts() const { return !middle_.network.empty(); }
  bool is_inpainting() const { return model_.is_inpainting(); }

  /// Begins a run: computes the step invariants.
  /// invalid_argument: an input is missing or has another size.
  Status begin(DenoiserBatch batch);

  /// The model output for `rows`. x: [images, channels, height, width]; out: [rows, channels, height, width].
  Status evaluate(std::span<const int64_t> rows, std::span<const float> x, double timestep, std::span<float> out);

  // The parts, for `rows` (increasing indices into the batch). The outputs of a part for a row stay until it runs again
  // for that row.
  Status run_front(std::span<const int64_t> rows, std::span<const float> x, double timestep);
  Status run_middle(std::span<const int64_t> rows);
  Status run_tail(std::span<const int64_t> rows, std::span<float> out);
  /// A state for one row, where it is. Empty when the network has no such output, or has not run yet.
  StateView state(DenoiserState which, int64_t row);

  /// The parts, then the step invariants: of the text, of the timesteps.
  std::vector<const Executable*> networks() const {
    return {&front_.network, &middle_.network, &tail_.network, &invariants_.text(), &invariants_.time()};
  }
  const DenoiserBatch& batch() const { return batch_; }
  /// Operations of the matrix products of one step of a part (an index into networks()) for `rows` rows.
  double flops(size_t part, int64_t rows) const { return static_cast<double>(networks()[part]->flops(sizes(rows))); }

 private:
  /// One of the three programs, with where its inputs come from and its outputs go.
  struct Part {
    enum class Source : uint8_t { kTimestep, kIntegers, kBuffer };
    struct Input {
      std::string port;
      Source source;
      Shape shape;                                   ///< of one row
      RowBuffer* buffer = nullptr;                   ///< kBuffer: of the batch, or of an earlier part
      const std::vector<int32_t>* values = nullptr;  ///< kIntegers: in the batch
      int64_t row_elements = 0;                      ///< kIntegers
    };
    struct Output {
      std::string port;
      Shape shape;
      RowBuffer* buffer;
    };
    Executable network;
    std::vector<Input> inputs;  ///< except "latents", which run_front writes, and the step invariants
    std::vector<StepInvariants::Reader> invariants;
    std::vector<Output> outputs;  ///< that later parts or a step cache read
  };
  SymbolValues sizes(int64_t rows) const;
  /// Resolves the ports of a part. `prefix`: of its outputs in states_; `earlier`: of those that its inputs prefer.
  void resolve(Part& part, const std::string& prefix, const std::string& earlier);
  Status begin_conditions();
  Status run(Part& part, std::span<const int64_t> rows);
  /// The same for a part with outputs.
  Status run_and_keep(Part& part, std::span<const int64_t> rows);
  void unpack(const float* network_rows, std::span<const int64_t> rows, std::span<float> out) const;

  Denoiser() = default;
  DenoiserModel model_;
  NetworkAdapters adapters_;
  std::vector<Executable::Port> conditions_;  ///< inputs that the batch provides
  StepInvariants invariants_;
  Part front_, middle_, tail_;
  DenoiserBatch batch_;
  std::vector<float> planes_;  ///< of one image, with the mask channels of an inpainting network
  double timestep_ = 0;
  RowBuffers states_;  ///< what parts leave for later ones and for a step cache; "middle.": of the middle
  /// Inputs that stay for the run: what the batch provides, "rope", "positions". Written by begin(), read in place.
  RowBuffers kept_inputs_;
  std::map<std::string, Shape> kept_shapes_;  ///< of one row
  struct State {
    RowBuffer* buffer = nullptr;
    std::optional<size_t> invariant;
  };
  std::array<State, 6> cache_states_;  ///< by DenoiserState
};

}  // namespace redline
