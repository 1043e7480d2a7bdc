#include "diffusion/noise_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace redline {
namespace {

constexpr int64_t kMaxTimesteps = 100000;

// torch.linspace in float32: from both ends to the middle.
std::vector<float> float_linspace(float first, float last, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  const float step = count > 1 ? (last - first) / static_cast<float>(count - 1) : 0;
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] = i < count / 2 || count == 1 ? first + step * static_cast<float>(i)
                                                                 : last - step * static_cast<float>(count - 1 - i);
  return values;
}

// Nichol and Dhariwal 2021, arXiv:2102.09672, equation 17.
std::vector<float> cosine_betas(int64_t count) {
  const auto alpha_bar = [](double t) { return std::pow(std::cos((t + 0.008) / 1.008 * std::numbers::pi / 2), 2); };
  std::vector<float> betas;
  const auto n = static_cast<double>(count);
  for (double i = 0; i < n; ++i)
    betas.push_back(static_cast<float>(std::min(1 - alpha_bar((i + 1) / n) / alpha_bar(i / n), 0.999)));
  return betas;
}

// Products in float64, each rounded to float32, as torch.cumprod on a CPU.
std::vector<float> running_product(const std::vector<float>& betas) {
  std::vector<float> products;
  products.reserve(betas.size());
  double product = 1;
  for (float beta : betas) products.push_back(static_cast<float>(product *= 1.0f - beta));
  return products;
}

void rescale_to_zero_signal(std::vector<float>& betas) {
  std::vector<float> roots = running_product(betas);
  for (float& root : roots) root = std::sqrt(root);
  const float first = roots.front(), last = roots.back(), scale = first / (first - last);
  for (float& root : roots) root = (root - last) * scale;
  for (size_t i = 0; i < roots.size(); ++i) {
    const float here = roots[i] * roots[i];
    betas[i] = 1.0f - (i == 0 ? here : here / (roots[i - 1] * roots[i - 1]));
  }
}

// Regularised incomplete beta function by Lentz's continued fraction (DLMF 8.17.22), for x below (a + 1) / (a + b + 2).
double beta_fraction(double x, double a, double b) {
  constexpr double kTiny = 1e-300;
  double c = 1, d = 1 - (a + b) * x / (a + 1);
  d = 1 / (std::abs(d) < kTiny ? kTiny : d);
  double fraction = d;
  for (int m = 1; m < 500; ++m) {
    double change = 1;
    for (const double term : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                              -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 + term * d;
      c = 1 + term / c;
      d = 1 / (std::abs(d) < kTiny ? kTiny : d);
      if (std::abs(c) < kTiny) c = kTiny;
      change = c * d;
      fraction *= change;
    }
    if (std::abs(change - 1) < 1e-16) break;
  }
  return std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x)) *
         fraction / a;
}

}  // namespace

std::vector<double> linspace(double first, double last, int64_t count) {
  std::vector<double> values(static_cast<size_t>(std::max<int64_t>(count, 0)));
  const double step = count > 1 ? (last - first) / static_cast<double>(count - 1) : 0;
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * step + first;
  if (count > 1) values.back() = last;
  return values;
}

double beta_quantile(double p, double a) {
  if (p <= 0) return 0;
  if (p >= 1) return 1;
  if (p > 0.5) return 1 - beta_quantile(1 - p, a);
  // The lower half lies in [0, 0.5]. Bisection in log x keeps precision near 0.
  double low = -700, high = std::log(0.5);
  for (int i = 0; i < 200 && high - low > 1e-16 * std::abs(low); ++i) {
    const double middle = (low + high) / 2;
    (beta_fraction(std::exp(middle), a, a) < p ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

TrainingSchedule::TrainingSchedule(SolverFields& fields, bool rescales, bool keeps_signal, double beta_start,
                                   double beta_end, const char* beta_schedule) {
  const int64_t count = fields.integer("num_train_timesteps", 2, kMaxTimesteps, 1000);
  const double start = fields.number("beta_start", 0, 1, beta_start), end = fields.number("beta_end", 0, 1, beta_end);
  const std::string kind =
      fields.choice("beta_schedule", {"linear", "scaled_linear", "squaredcos_cap_v2"}, beta_schedule);
  const std::vector<double> trained = fields.numbers("trained_betas");
  std::vector<float> betas;
  if (!trained.empty()) {
    betas.assign(trained.begin(), trained.end());
    if (static_cast<int64_t>(betas.size()) != count)
      fields.fail(invalid_argument("config: {} trained_betas for {} num_train_timesteps", betas.size(), count));
  } else if (kind == "squaredcos_cap_v2") {
    betas = cosine_betas(count);
  } else if (kind == "scaled_linear") {
    betas = float_linspace(static_cast<float>(std::sqrt(start)), static_cast<float>(std::sqrt(end)), count);
    for (float& beta : betas) beta *= beta;
  } else {
    betas = float_linspace(static_cast<float>(start), static_cast<float>(end), count);
  }
  const bool rescaled = rescales && fields.boolean("rescale_betas_zero_snr", false);
  if (rescaled) rescale_to_zero_signal(betas);
  alphas_ = running_product(betas);
  if (rescaled && keeps_signal) alphas_.back() = 0x1p-24f;
  for (float alpha : alphas_) {
    sigmas_.push_back(std::sqrt((1 - alpha) / alpha));
    log_sigmas_.push_back(static_cast<float>(std::log(static_cast<double>(sigmas_.back()))));
  }
}

double TrainingSchedule::sigma_at(double t) const {
  if (t <= 0) return sigmas_.front();
  const auto last = static_cast<double>(size() - 1);
  if (t >= last) return sigmas_.back();
  const auto below = static_cast<size_t>(t);
  const double low = sigmas_[below], high = sigmas_[below + 1];
  return (high - low) * (t - static_cast<double>(below)) + low;
}

double TrainingSchedule::timestep_of(double sigma) const {
  const double wanted = std::log(std::max(sigma, 1e-10));
  const auto above = std::upper_bound(log_sigmas_.begin(), log_sigmas_.end(), wanted);
  const int64_t at = std::clamp<int64_t>(above - log_sigmas_.begin() - 1, 0, size() - 2);
  const double low = log_sigmas_[static_cast<size_t>(at)], high = log_sigmas_[static_cast<size_t>(at) + 1];
  const double share = std::clamp((low - wanted) / (low - high), 0.0, 1.0);
  return (1 - share) * static_cast<double>(at) + share * static_cast<double>(at + 1);
}

Status TrainingSchedule::expect_within(std::span<const float> timesteps) const {
  for (float t : timesteps)
    if (!(t >= 0 && t < static_cast<float>(size())))
      return invalid_argument(
          "timestep {} is not one of the {} that the model was trained with; take fewer steps, or "
          "a smaller steps_offset",
          t, size());
  return {};
}

Spacing::Spacing(SolverFields& fields, const char* fallback)
    : kind(fields.choice("timestep_spacing", {"leading", "linspace", "trailing"}, fallback)),
      offset(fields.integer("steps_offset", -1000, 1000, 0)) {}

std::vector<double> Spacing::timesteps(int steps, int64_t range, int64_t all, int extra, bool rounds) const {
  std::vector<double> values;
  if (kind == "trailing") {
    // numpy.arange(range, 0, -ratio); when rounding gives one element more than `steps`, diffusers ends at timestep -1.
    const double ratio = static_cast<double>(all) / steps;
    const double step = (static_cast<double>(range) - ratio) - static_cast<double>(range);
    const auto count = std::min<int64_t>(steps, static_cast<int64_t>(std::ceil(static_cast<double>(range) / ratio)));
    for (int64_t i = 0; i < count; ++i)
      values.push_back(std::nearbyint(static_cast<double>(range) + static_cast<double>(i) * step) - 1);
    return values;
  }
  const int points = steps + extra;
  if (kind == "leading") {
    const int64_t ratio = range / points;
    for (int64_t i = 0; i < points; ++i) values.push_back(static_cast<double>(i * ratio));
  } else {
    values = linspace(0, static_cast<double>(range - 1), points);
    if (rounds)
      for (double& value : values) value = std::nearbyint(value);
  }
  std::reverse(values.begin(), values.end());
  values.resize(static_cast<size_t>(steps));
  if (kind == "leading")
    for (double& value : values) value += static_cast<double>(offset);
  return values;
}

SigmaCurve::SigmaCurve(SolverFields& fields, bool bounded) {
  int chosen = 0;
  const std::pair<const char*, Kind> kinds[] = {
      {"use_karras_sigmas", kKarras}, {"use_exponential_sigmas", kExponential}, {"use_beta_sigmas", kBeta}};
  for (const auto& [key, value] : kinds)
    if (fields.boolean(key, false)) {
      kind = value;
      ++chosen;
    }
  if (chosen > 1)
    fields.fail(invalid_argument(
        "config: only one of use_karras_sigmas, use_exponential_sigmas and use_beta_sigmas can be true"));
  if (!bounded) return;
  min = fields.optional_number("sigma_min", 1e-9, 1e9);
  max = fields.optional_number("sigma_max", 1e-9, 1e9);
}

std::vector<double> SigmaCurve::sigmas(double high, double low, int steps) const {
  low = min.value_or(low);
  high = max.value_or(high);
  if (kind == kExponential) {
    std::vector<double> values = linspace(std::log(high), std::log(low), steps);
    for (double& value : values) value = std::exp(value);
    return values;
  }
  std::vector<double> values = linspace(0, 1, steps);
  constexpr double kRho = 7;
  const double from = std::pow(high, 1 / kRho), to = std::pow(low, 1 / kRho);
  for (double& value : values)
    value = kind == kKarras ? std::pow(from + value * (to - from), kRho)
                            : low + beta_quantile(1 - value, 0.6) * (high - low);
  return values;
}

DynamicShift::DynamicShift(SolverFields& fields)
    : enabled(fields.boolean("use_dynamic_shifting", false)),
      is_linear(fields.choice("time_shift_type", {"exponential", "linear"}, "exponential") == "linear"),
      base_tokens(static_cast<double>(fields.integer("base_image_seq_len", 1, 1 << 30, 256))),
      max_tokens(static_cast<double>(fields.integer("max_image_seq_len", 1, 1 << 30, 4096))),
      base_shift(fields.number("base_shift", -100, 100, 0.5)), max_shift(fields.number("max_shift", -100, 100, 1.15)) {
  if (enabled && base_tokens == max_tokens)
    fields.fail(invalid_argument("config: base_image_seq_len and max_image_seq_len are both {}", base_tokens));
}

Result<double> DynamicShift::mu(int64_t image_tokens) const {
  if (image_tokens <= 0)
    return invalid_argument("this schedule depends on the image size and needs its number of tokens");
  const double slope = (max_shift - base_shift) / (max_tokens - base_tokens);
  return static_cast<double>(image_tokens) * slope + (base_shift - slope * base_tokens);
}

}  // namespace redline
