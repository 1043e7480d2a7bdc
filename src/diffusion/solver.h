// The loop's mathematics: what noise levels a picture passes through and how a network's output moves it to the next.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "diffusion/noise_source.h"

namespace redline {

/// What a run asks of its solver.
struct StepPlan {
  int steps = 0;
  int64_t image_tokens = 0;  ///< of one picture, for schedules that shift with its size (use_dynamic_shifting)
  double strength = 1;       ///< below 1 (from a picture): the first 1 - strength of the steps are left out
  /// FLUX's pipelines start from `steps` sigmas evenly from 1 to 1 / steps; others (SD3) leave that to the solver.
  /// Without effect on solvers with use_flow_sigmas, as there.
  bool even_sigmas = false;
  std::vector<float>
      sigmas;      ///< instead of the solver's own, before shifting, without the 0 at the end; flow solvers only
  double eta = 0;  ///< DDIM's: 0 draws no noise, 1 as much as DDPM
};

/// One of diffusers' schedulers: the same timesteps, sigmas and latents, step by step, in float32. State is of one run:
/// set_steps begins one. Latents of a batch are one span; what is random is drawn for the whole of it.
class Solver {
 public:
  /// From a scheduler_config.json: `_class_name` (diffusers' or a short name of solver_names) and its fields; absent
  /// fields have diffusers' defaults, fields that only its other schedulers know are passed over, as there.
  /// unsupported: a class, value or field that we do not know; the message lists those there are.
  static Result<std::unique_ptr<Solver>> make(const nlohmann::json& config);
  virtual ~Solver() = default;

  /// invalid_argument: steps, strength, eta out of range, or a timestep that the training schedule does not have.
  Status set_steps(const StepPlan& plan);

  /// Network evaluations of the run: more than asked for with PNDM, fewer with strength below 1.
  int num_steps() const { return static_cast<int>(timesteps().size()); }
  /// [num_steps()] what the network is told, 0 .. num_train_timesteps.
  std::span<const float> timesteps() const { return std::span(layout_.timesteps).subspan(begin_); }
  /// [num_steps() + 1] noise per signal, falling; of flow solvers the share of noise.
  std::span<const float> sigmas() const { return std::span(layout_.sigmas).subspan(begin_); }
  /// Standard normal noise times this is where a run from nothing starts.
  float init_noise_sigma() const { return layout_.init_noise_sigma; }
  bool is_flow() const { return is_flow_; }
  bool draws_noise() const { return draws_noise_; }

  /// What the network sees of `x` at a step; the spans may be the same.
  void scale_input(int index, std::span<const float> x, std::span<float> scaled) const;
  /// Moves `x` from level `index` to `index + 1`; indices come in order, each once.
  /// internal: another index than the next, or spans of other sizes than before.
  Status step(int index, std::span<const float> model_output, std::span<float> x, NoiseSource& noise);
  /// out = a clean picture with `noise` at the level of step `index`; unchanged at num_steps(). `out` may be `clean`.
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
    size_t index;  ///< into the whole layout, whatever the strength
    size_t taken;  ///< steps of this run before
    std::span<const float> output;
    std::span<float> x;
  };

  virtual Result<Layout> lay_out(const StepPlan& plan) = 0;
  virtual Level level(size_t index) const = 0;
  /// The network sees x / input_scale.
  virtual float input_scale(size_t) const { return 1; }
  virtual void advance(const Step& step, NoiseSource& noise) = 0;

  const Layout& layout() const { return layout_; }
  /// Standard normal values for one step, valid until the next call.
  std::span<const float> draw(NoiseSource& noise, size_t size);

  bool is_flow_ = false;      ///< set by pages
  bool draws_noise_ = false;  ///< set by pages

 private:
  Layout layout_;
  size_t begin_ = 0, taken_ = 0, size_ = 0;
  std::vector<float> drawn_;
};

/// "flow-euler, euler, ..."
std::string solver_names();
/// The scheduler_config.json of a model changed to another solver: `name` is a short name, perhaps with a variant that
/// sets fields ("dpm++-karras", "dpm++-sde"), or a class name. Flow models keep their shift.
/// unsupported: no such solver, or one that cannot follow a flow model (or only that).
Result<nlohmann::json> with_solver(nlohmann::json config, const std::string& name);

}  // namespace redline
