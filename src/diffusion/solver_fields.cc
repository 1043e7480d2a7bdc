#include "diffusion/solver_fields.h"

#include <algorithm>
#include <string_view>

#include "base/text_distance.h"

namespace redline {
namespace {

// Fields of diffusers 0.42's image schedulers. Files keep the fields of the scheduler that they were written for, and
// diffusers ignores those that the current class does not take.
constexpr std::string_view kFields[] = {"algorithm_type",
                                        "base_image_seq_len",
                                        "base_shift",
                                        "beta_end",
                                        "beta_schedule",
                                        "beta_start",
                                        "clip_sample",
                                        "clip_sample_range",
                                        "disable_corrector",
                                        "dynamic_thresholding_ratio",
                                        "euler_at_final",
                                        "final_sigmas_type",
                                        "flow_shift",
                                        "interpolation_type",
                                        "invert_sigmas",
                                        "lambda_min_clipped",
                                        "lower_order_final",
                                        "max_image_seq_len",
                                        "max_shift",
                                        "num_train_timesteps",
                                        "original_inference_steps",
                                        "predict_x0",
                                        "prediction_type",
                                        "rescale_betas_zero_snr",
                                        "rho",
                                        "sample_max_value",
                                        "set_alpha_to_one",
                                        "shift",
                                        "shift_terminal",
                                        "sigma_data",
                                        "sigma_max",
                                        "sigma_min",
                                        "sigma_schedule",
                                        "skip_prk_steps",
                                        "snr_shift_scale",
                                        "solver_order",
                                        "solver_p",
                                        "solver_type",
                                        "steps_offset",
                                        "stochastic_sampling",
                                        "thresholding",
                                        "time_shift_type",
                                        "timestep_scaling",
                                        "timestep_spacing",
                                        "timestep_type",
                                        "trained_betas",
                                        "use_beta_sigmas",
                                        "use_dynamic_shifting",
                                        "use_exponential_sigmas",
                                        "use_flow_sigmas",
                                        "use_karras_sigmas",
                                        "use_lu_lambdas",
                                        "variance_type"};
constexpr size_t kMaxNumbers = 100000;

}  // namespace

std::optional<double> SolverFields::optional_number(const char* key, double min, double max) {
  known_.insert(key);
  if (!reader_.has(key)) return std::nullopt;
  return reader_.number(key, min, max);
}

std::string SolverFields::choice(const char* key, std::initializer_list<const char*> choices, const char* fallback) {
  known_.insert(key);
  std::string value = reader_.text(key, fallback);
  for (const char* choice : choices)
    if (value == choice) return value;
  const std::vector<std::string_view> known(choices.begin(), choices.end());
  fail(unsupported("config: {} is \"{}\"{}; Redline has {}", key, value, the_nearest(value, known),
                   fmt::join(choices, ", ")));
  return fallback;
}

void SolverFields::only(const char* key, const nlohmann::json& value) {
  known_.insert(key);
  if (!reader_.has(key) || config_.at(key) == value) return;
  fail(unsupported("config: {} is {}; Redline does {} only", key,
                   config_.at(key).is_structured()
                       ? "a list or an object"
                       : config_.at(key).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 60),
                   value.is_null() ? "without it" : value.dump()));
}

std::vector<double> SolverFields::numbers(const char* key) {
  known_.insert(key);
  std::vector<double> values;
  if (!reader_.has(key)) return values;
  const nlohmann::json& list = config_.at(key);
  if (list.is_array() && list.size() <= kMaxNumbers)
    for (const nlohmann::json& value : list)
      if (value.is_number()) values.push_back(value.get<double>());
  if (!list.is_array() || values.size() != list.size())
    fail(invalid_argument("config: {} is not a list of up to {} numbers", key, kMaxNumbers));
  return values;
}

Status SolverFields::finish() const {
  REDLINE_TRY(reader_.status());
  for (const auto& [key, value] : config_.items()) {
    if (key.starts_with('_') || known_.contains(key)) continue;
    if (std::find(std::begin(kFields), std::end(kFields), key) == std::end(kFields))
      return unsupported("config: the field \"{}\" is unknown; this scheduler has {}", key.substr(0, 60),
                         fmt::join(known_, ", "));
  }
  return {};
}

}  // namespace redline
