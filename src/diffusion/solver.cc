#include "diffusion/solver.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/text_distance.h"
#include "diffusion/solver_row.h"
#include "redline/image.h"

namespace redline {

#define REDLINE_ROW(row) extern const SolverRow row;
#include <solvers.inc>  // of the build: one row per file in solvers/
#undef REDLINE_ROW

namespace {

constexpr const SolverRow* kSolvers[] = {
#define REDLINE_ROW(row) &row,
#include <solvers.inc>
#undef REDLINE_ROW
};

// Suffixes of a short name, after a hyphen, and the field that each sets. A1111's web UI and ComfyUI have some as
// schedules of noise levels, others as part of the sampler's name.
struct Variant {
  std::string_view name, key, value;
  std::string_view web_ui, comfyui;
  bool is_schedule;
};
constexpr Variant kVariants[] = {{"karras", "use_karras_sigmas", "", "Karras", "karras", true},
                                 {"exponential", "use_exponential_sigmas", "", "Exponential", "exponential", true},
                                 {"beta", "use_beta_sigmas", "", "Beta", "beta", true},
                                 {"sde", "algorithm_type", "sde-dpmsolver++", " SDE", "_sde", false}};

// Lower case, without spaces, hyphens and underscores.
std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (c != ' ' && c != '-' && c != '_') plain += static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return plain;
}

bool runs(const SolverRow& row, bool is_flow_model) {
  return row.models == SolverModels::kBoth || (row.models == SolverModels::kFlow) == is_flow_model;
}

// The row's name with variants, if `plain` is one of its names with theirs: "dpmpp2msdekarras" is dpm++-sde-karras.
// `is_spaced`: the name is written as in A1111's web UI, where "DPM++ SDE" is another sampler than "DPM++ 2M SDE".
std::optional<std::string> name_with_variants(const SolverRow& row, std::string_view plain, bool is_spaced) {
  for (const std::string_view known : {row.name, row.web_ui_name, row.comfyui_name}) {
    const std::string own = plain_name(known);
    if (own.empty() || !plain.starts_with(own)) continue;
    if (is_spaced && known == row.name && plain != own && plain_name(row.web_ui_name) != own) continue;
    std::string name(row.name);
    std::string_view rest = plain.substr(own.size());
    while (!rest.empty()) {
      const auto* variant = std::find_if(std::begin(kVariants), std::end(kVariants),
                                         [&](const Variant& v) { return rest.starts_with(v.name); });
      if (variant == std::end(kVariants)) break;
      name += fmt::format("-{}", variant->name);
      rest.remove_prefix(variant->name.size());
    }
    if (rest.empty()) return name;
  }
  return std::nullopt;
}

// Our name of a solver that has another one elsewhere, or the same in another spelling ("DDIM", "uni_pc"). Rows that run
// the model come first: "euler" of a flow model is flow-euler.
std::string own_name(const std::string& name, bool is_flow_model) {
  const std::string plain = plain_name(name);
  const bool is_spaced = name.find(' ') != std::string::npos;
  for (const bool fits : {true, false})
    for (const SolverRow* row : kSolvers)
      if (runs(*row, is_flow_model) == fits)
        if (std::optional<std::string> own = name_with_variants(*row, plain, is_spaced)) return *std::move(own);
  return name;
}

constexpr int kMaxSteps = 10000;

const SolverRow* find_solver(std::string_view name) {
  for (const SolverRow* row : kSolvers)
    if (row->name == name || row->class_name == name) return row;
  return nullptr;
}

std::string class_list() {
  std::string list;
  for (const SolverRow* row : kSolvers) list += fmt::format("{}{}", list.empty() ? "" : ", ", row->class_name);
  return list;
}

std::string class_of(const nlohmann::json& config) {
  const auto at = config.is_object() ? config.find("_class_name") : config.end();
  return at != config.end() && at->is_string() ? at->get<std::string>() : "";
}

}  // namespace

std::string solver_names() {
  std::string list;
  for (const SolverRow* row : kSolvers) list += fmt::format("{}{}", list.empty() ? "" : ", ", row->name);
  return list;
}

std::string solver_name(const nlohmann::json& config) {
  const SolverRow* row = find_solver(class_of(config));
  std::string name(row ? row->name : std::string_view(class_of(config)));
  for (const Variant& variant : kVariants) {
    const auto found = config.find(std::string(variant.key));
    if (found == config.end()) continue;
    const bool is_set = variant.value.empty() ? *found == true : *found == variant.value;
    if (is_set) name += fmt::format("-{}", variant.name);
  }
  return name;
}

bool is_known_sampler(const std::string& sampler) {
  for (const bool is_flow_model : {false, true}) {
    std::string name = own_name(sampler, is_flow_model);
    while (!find_solver(name)) {
      const size_t hyphen = name.rfind('-');
      const std::string_view variant = std::string_view(name).substr(hyphen == std::string::npos ? 0 : hyphen + 1);
      if (hyphen == std::string::npos ||
          std::none_of(std::begin(kVariants), std::end(kVariants), [&](const Variant& v) { return v.name == variant; }))
        break;
      name.resize(hyphen);
    }
    if (find_solver(name)) return true;
  }
  return false;
}

SamplerNames sampler_names(const std::string& solver) {
  SamplerNames names;
  std::string name = solver, web_ui, comfyui;
  for (const Variant& variant : kVariants) {
    const std::string suffix = fmt::format("-{}", variant.name);
    const size_t at = name.find(suffix);
    if (at == std::string::npos) continue;
    name.erase(at, suffix.size());
    (variant.is_schedule ? names.web_ui_schedule : web_ui) += variant.web_ui;
    (variant.is_schedule ? names.comfyui_schedule : comfyui) += variant.comfyui;
  }
  const SolverRow* row = find_solver(name);
  names.web_ui = fmt::format("{}{}", row ? row->web_ui_name : std::string_view(name), web_ui);
  names.comfyui = fmt::format("{}{}", row ? row->comfyui_name : std::string_view(name), comfyui);
  if (names.comfyui_schedule.empty())
    names.comfyui_schedule = row && row->models == SolverModels::kFlow ? "simple" : "normal";
  return names;
}

Result<std::unique_ptr<Solver>> Solver::make(const nlohmann::json& config) {
  const std::string name = class_of(config);
  if (name.empty()) return invalid_argument("scheduler: _class_name is missing; Redline has {}", class_list());
  const SolverRow* row = find_solver(name);
  if (!row)
    return unsupported("scheduler: _class_name is \"{}\"{}; Redline has {}", name.substr(0, 80),
                       the_nearest(name, class_list()), class_list());
  SolverFields fields(config);
  std::unique_ptr<Solver> solver = row->make(fields);
  REDLINE_TRY(fields.finish().within(row->class_name));
  return solver;
}

Result<nlohmann::json> with_solver(nlohmann::json config, const std::string& requested) {
  const SolverRow* from = find_solver(class_of(config));
  const bool from_flow = from && from->models == SolverModels::kFlow;
  const bool is_flow_model = from_flow || (config.contains("use_flow_sigmas") && config["use_flow_sigmas"] == true);
  const std::string name = own_name(requested, is_flow_model);
  const SolverRow* row = find_solver(name);
  std::string rest = name;
  while (!row) {  // a variant after the last hyphen
    const size_t hyphen = rest.rfind('-');
    const std::string variant = hyphen == std::string::npos ? "" : rest.substr(hyphen + 1);
    const auto* known = std::find_if(std::begin(kVariants), std::end(kVariants),
                                     [&](const Variant& v) { return !variant.empty() && v.name == variant; });
    if (known == std::end(kVariants))
      return invalid_argument(
          "there is no solver \"{}\"{}; Redline has {}; the suffixes -karras, -exponential, -beta and -sde select the "
          "scheduler's option of that name",
          name.substr(0, 80), the_nearest(name, solver_names()), solver_names());
    if (known->value.empty()) config[std::string(known->key)] = true;
    else config[std::string(known->key)] = std::string(known->value);
    rest.resize(hyphen);
    row = find_solver(rest);
  }
  if (is_flow_model && !runs(*row, is_flow_model)) {
    std::vector<std::string_view> able;
    for (const SolverRow* other : kSolvers)
      if (runs(*other, /*is_flow_model=*/true)) able.push_back(other->name);
    return unsupported("{} cannot run a flow-matching model; take one of {}", row->name, fmt::join(able, ", "));
  }
  if (!runs(*row, is_flow_model))
    return unsupported("{} runs flow-matching models only; this model comes with {}", row->name,
                       from ? from->class_name : "another kind of scheduler");
  if (from_flow && row->models == SolverModels::kBoth) {
    config["use_flow_sigmas"] = true;
    config["prediction_type"] = "flow_prediction";
    config["flow_shift"] = config.contains("shift") ? config["shift"] : nlohmann::json(1.0);
  }
  config["_class_name"] = std::string(row->class_name);
  return config;
}

Status Solver::set_steps(const StepPlan& plan) {
  StepPlan checked = plan;
  if (!checked.sigmas.empty()) {
    checked.steps = static_cast<int>(std::min<size_t>(checked.sigmas.size(), kMaxSteps + 1));
    for (size_t i = 0; i < checked.sigmas.size(); ++i)
      if (!(checked.sigmas[i] > 0 && checked.sigmas[i] <= 1) || (i > 0 && checked.sigmas[i] >= checked.sigmas[i - 1]))
        return invalid_argument("sigmas: {} at index {}; they must decrease from at most 1 to above 0",
                                checked.sigmas[i], i);
  }
  if (checked.steps < 1 || checked.steps > kMaxSteps)
    return invalid_argument("{} steps; expected 1 to {}", checked.steps, kMaxSteps);
  if (!(checked.strength > 0 && checked.strength <= 1))
    return invalid_argument("strength is {}; expected more than 0, and at most 1", checked.strength);
  if (!(checked.eta >= 0 && checked.eta <= 1)) return invalid_argument("eta is {}; expected 0 to 1", checked.eta);
  REDLINE_ASSIGN(Layout layout, lay_out(checked));
  // Betas above 1 have no square roots. Infinite noise is the start of some schedules.
  for (const float t : layout.timesteps)
    if (!std::isfinite(t)) return invalid_argument("config: the schedule has a timestep of {}", t);
  for (const float sigma : layout.sigmas)
    if (std::isnan(sigma)) return invalid_argument("config: the schedule has a sigma that is not a number");
  // As in diffusers: pipelines of flow models skip floor(N (1 - strength)) steps, the others run floor(N strength).
  const double wanted = checked.steps * checked.strength;
  const int skipped = is_flow_ ? static_cast<int>(checked.steps - wanted) : checked.steps - static_cast<int>(wanted);
  if (skipped >= static_cast<int>(layout.timesteps.size()))
    return invalid_argument("a strength of {} leaves none of {} steps; take more steps or a larger strength",
                            checked.strength, checked.steps);
  layout_ = std::move(layout);
  begin_ = static_cast<size_t>(skipped);
  taken_ = size_ = 0;
  return {};
}

double Solver::step_size(int index) const {
  if (!adds_model_output()) return 0;
  const auto at = static_cast<size_t>(index);
  return static_cast<double>(sigmas()[at + 1]) - static_cast<double>(sigmas()[at]);
}

void Solver::scale_input(int index, std::span<const float> x, std::span<float> scaled) const {
  const float scale = input_scale(begin_ + static_cast<size_t>(index));
  for (size_t i = 0; i < x.size() && i < scaled.size(); ++i) scaled[i] = x[i] / scale;
}

Status Solver::step(int index, std::span<const float> model_output, std::span<float> x, NoiseSource& noise) {
  if (index != static_cast<int>(taken_) || index >= num_steps())
    return internal("solver: step {} after {} of {}", index, taken_, num_steps());
  if (taken_ == 0) size_ = x.size();
  if (x.size() != size_ || model_output.size() != size_)
    return internal("solver: {} values and {} outputs at step {}; {} before", x.size(), model_output.size(), index,
                    size_);
  advance({begin_ + taken_, taken_, model_output, x}, noise);
  ++taken_;
  return {};
}

void Solver::predict_clean(int index, std::span<const float> x, std::span<const float> model_output,
                           std::span<float> clean) const {
  const auto [signal, spread] = level(begin_ + static_cast<size_t>(index));
  float of_x = 0, of_output = 1;
  switch (prediction_type()) {
    case PredictionType::kSample: break;
    case PredictionType::kEpsilon:
      of_x = 1 / signal;
      of_output = -spread / signal;
      break;
    case PredictionType::kVelocity:
      of_x = signal / (signal * signal + spread * spread);
      of_output = -spread / std::sqrt(signal * signal + spread * spread);
      break;
    case PredictionType::kFlow:
      of_x = 1;
      of_output = -spread;
      break;
  }
  for (size_t i = 0; i < clean.size(); ++i) clean[i] = of_x * x[i] + of_output * model_output[i];
}

void Solver::add_noise(int index, std::span<const float> clean, std::span<const float> noise,
                       std::span<float> out) const {
  const Level at = index >= num_steps() ? Level{1, 0} : level(begin_ + static_cast<size_t>(index));
  for (size_t i = 0; i < clean.size() && i < noise.size() && i < out.size(); ++i)
    out[i] = at.signal * clean[i] + at.noise * noise[i];
}

std::span<const float> Solver::draw(NoiseSource& noise, size_t size) {
  drawn_.resize(size);
  noise.draw(drawn_);
  return drawn_;
}

}  // namespace redline
