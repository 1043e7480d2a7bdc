// Solvers: the noise levels of a run, and the update of the latents from one level to the next.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "diffusion/noise_source.h"

namespace redline {

/// Settings of one run.
struct StepPlan {
  int steps = 0;
  int64_t image_tokens = 0;  ///< tokens of one image, for schedules that depend on its size (use_dynamic_shifting)
  double strength = 1;       ///< image to image: below 1 the first 1 - strength of the steps are skipped
  /// The pipeline passes `steps` sigmas evenly spaced from 1 to 1 / steps (FLUX); others (SD3) leave the spacing to the
  /// solver. Solvers with use_flow_sigmas ignore it, as in diffusers.
  bool even_sigmas = false;
  /// Replaces the solver's sigmas: before shifting, without the final 0. Flow solvers only.
  std::vector<float> sigmas;
  double eta = 0;  ///< DDIM only: 0 draws no noise, 1 as much as DDPM
};

/// Meaning of the model's output, where x = signal * clean + spread * noise.
enum class PredictionType : uint8_t {
  kEpsilon,   ///< the noise
  kSample,    ///< the clean latents
  kVelocity,  ///< (signal * noise - spread * clean) / sqrt(signal^2 + spread^2): Salimans and Ho 2022, arXiv:2202.00512
  kFlow,      ///< noise - clean
};

/// Equivalent of a scheduler of diffusers: it gives the same timesteps, sigmas and latents, step by step, in float32.
/// It holds the state of one run, which set_steps() begins. The latents of a batch are one span; noise is drawn for the
/// whole batch at once.
class Solver {
 public:
  /// Makes the solver of a scheduler_config.json: `_class_name` (diffusers' or a short name of solver_names()) and its
  /// fields. Absent fields have diffusers' defaults. Fields of diffusers' other schedulers are ignored, as in
  /// diffusers.
  /// unsupported: an unknown class, value or field; the message lists the known ones.
  static Result<std::unique_ptr<Solver>> make(const nlohmann::json& config);
  virtual ~Solver() = default;

  /// Begins a run. invalid_argument: steps, strength or eta out of range, or a timestep outside the training schedule.
  Status set_steps(const StepPlan& plan);

  /// Returns the number of evaluations of the network: more than requested with PNDM, fewer with strength below 1.
  int num_steps() const { return static_cast<int>(timesteps().size()); }
  /// Returns the timestep inputs of the network, [num_steps()], in 0 .. num_train_timesteps.
  std::span<const float> timesteps() const { return std::span(layout_.timesteps).subspan(begin_); }
  /// Returns decreasing noise-to-signal ratios, [num_steps() + 1]; for flow solvers the shares of noise.
  std::span<const float> sigmas() const { return std::span(layout_.sigmas).subspan(begin_); }
  /// Returns the factor of the standard normal noise from which text to image starts.
  float init_noise_sigma() const { return layout_.init_noise_sigma; }
  bool is_flow() const { return is_flow_; }
  /// Returns next sigma - sigma if a step is x += (next sigma - sigma) * model_output (Euler); 0: the solver has
  /// another kind of step.
  double step_size(int index) const;

  /// Computes the network's input for `x` at a step: x / input_scale. The spans may be the same.
  void scale_input(int index, std::span<const float> x, std::span<float> scaled) const;
  /// Computes the clean latents that the model's output at a step implies. `x` are the latents before the step.
  void predict_clean(int index, std::span<const float> x, std::span<const float> model_output,
                     std::span<float> clean) const;
  /// Updates `x` from level `index` to `index + 1`; indices come in order, each once.
  /// internal: `index` is not the next one, or the spans have other sizes than before.
  Status step(int index, std::span<const float> model_output, std::span<float> x, NoiseSource& noise);
  /// Adds `noise` to clean latents at the level of step `index`; at num_steps() the result is clean. `out` may be
  /// `clean`.
  void add_noise(int index, std::span<const float> clean, std::span<const float> noise, std::span<float> out) const;

 protected:
  struct Layout {
    std::vector<float> timesteps;  ///< [steps]
    std::vector<float> sigmas;     ///< [steps + 1]
    float init_noise_sigma = 1;
  };
  struct Level {
    float signal, noise;
  };
  struct Step {
    size_t index;  ///< index into the whole layout, skipped steps included
    size_t taken;  ///< number of earlier steps of this run
    std::span<const float> output;
    std::span<float> x;
  };

  virtual Result<Layout> lay_out(const StepPlan& plan) = 0;
  virtual Level level(size_t index) const = 0;
  virtual PredictionType prediction_type() const = 0;
  /// Returns the divisor of the network's input: the network gets x / input_scale.
  virtual float input_scale(size_t) const { return 1; }
  /// Returns true if a step is x += (next sigma - sigma) * model_output.
  virtual bool adds_model_output() const { return false; }
  virtual void advance(const Step& step, NoiseSource& noise) = 0;

  const Layout& layout() const { return layout_; }
  /// Draws standard normal values for one step, valid until the next call.
  std::span<const float> draw(NoiseSource& noise, size_t size);

  bool is_flow_ = false;  ///< set by subclasses

 private:
  Layout layout_;
  size_t begin_ = 0, taken_ = 0, size_ = 0;
  std::vector<float> drawn_;
};

/// Returns the short names: "ddim, dpm++, euler, ..."
std::string solver_names();
/// Returns the short name of a scheduler_config.json's solver with the suffixes of its options: "dpm++-karras".
std::string solver_name(const nlohmann::json& config);
/// Returns a model's scheduler_config.json changed to another solver. `name` is a class name, or a short name with
/// optional suffixes that set fields ("dpm++-karras", "dpm++-sde"), or a name of other programs ("euler_a", "DPM++ 2M
/// Karras"). For a flow model "euler" means flow-euler. Flow models keep their shift. invalid_argument: an unknown
/// solver. unsupported: a solver for the other kind of model.
Result<nlohmann::json> with_solver(nlohmann::json config, const std::string& name);

}  // namespace redline
