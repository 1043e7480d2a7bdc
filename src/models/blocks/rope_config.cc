#include "models/blocks/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text_distance.h"

namespace redline {
namespace {

constexpr double kLargest = 1e12;

// Returns the object that describes the scaling: rope_scaling (preferred, as in transformers 5), else rope_parameters,
// else null.
const nlohmann::json* scaling_of(ConfigReader& r) {
  const nlohmann::json* scaling = r.object("rope_scaling");
  return scaling && !scaling->empty() ? scaling : r.object("rope_parameters");
}

std::string type_of(ConfigReader& s) {
  const std::string type = s.text("rope_type", s.text("type", "default"));
  return type == "mrope" ? "default" : type;  // it only says that there is a "mrope_section"
}

/// Sets the axis of each frequency from "mrope_section", if there is one. A fourth number must be 0. The
/// sections of GGUF files (rope.dimension_sections) are not read, so their models have one axis.
Status read_sections(ConfigReader& s, const nlohmann::json& scaling, RopeTableAttrs& rope) {
  const auto stated = scaling.find("mrope_section");
  if (stated == scaling.end() || stated->is_null()) return {};
  std::vector<size_t> sections;
  if (stated->is_array())
    for (const nlohmann::json& size : *stated)
      if (size.is_number_integer() && size.get<int64_t>() >= 0) sections.push_back(size.get<size_t>());
  if (sections.size() < kRopeAxes || sections.size() > kRopeAxes + 1 || sections.size() != stated->size())
    return invalid_argument("config: mrope_section must be a list of {} numbers", kRopeAxes);
  const size_t half = rope.inverse_frequencies.size();
  rope.axes.assign(half, 0);
  if (s.boolean("mrope_interleaved", false)) {
    // Time, height and width alternate for as long as the sections of height and width last; the rest is time.
    for (size_t i = 0; i < half; ++i)
      if (const size_t axis = i % kRopeAxes; i < kRopeAxes * sections[axis]) rope.axes[i] = static_cast<int32_t>(axis);
    return {};
  }
  size_t i = 0;
  for (size_t axis = 0; axis < kRopeAxes; ++axis)
    for (size_t n = 0; n < sections[axis] && i < half; ++n) rope.axes[i++] = static_cast<int32_t>(axis);
  if (const size_t sum = sections[0] + sections[1] + sections[2]; sum != half)
    return invalid_argument("config: the sections of mrope_section have {} frequencies, rope has {}", sum, half);
  return {};
}

// Returns the number of positions before scaling: the key at the top level (Phi-3), else in the scaling object, else
// the positions of the model.
double original_positions(ConfigReader& r, ConfigReader& s, int64_t max_positions) {
  constexpr const char* kKey = "original_max_position_embeddings";
  return static_cast<double>((r.has(kKey) ? r : s).integer(kKey, 1, int64_t{1} << 40, max_positions));
}

double yarn_mscale(double factor, double mscale) { return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0; }

// arXiv:2309.00071 section 3.2: dimensions with many rotations over the original context keep their frequency, those
// with less than one are interpolated, with a linear ramp between.
void scale_yarn(ConfigReader& s, double original, double base, int64_t dim, int64_t max_positions,
                RopeTableAttrs& rope) {
  const double factor = s.number("factor", 1e-6, kLargest, static_cast<double>(max_positions) / original);
  const double mscale = s.number("mscale", 0, kLargest, 0.0), mscale_all = s.number("mscale_all_dim", 0, kLargest, 0.0);
  double attention = mscale != 0 && mscale_all != 0 ? yarn_mscale(factor, mscale) / yarn_mscale(factor, mscale_all)
                                                    : yarn_mscale(factor, 1);
  attention = s.number("attention_factor", 0, kLargest, attention) * s.number("attention_multiplier", 0, kLargest, 1.0);
  auto beta = [&](const char* key, double fallback) {
    const double value = s.number(key, 0, kLargest, fallback);
    return value == 0 ? fallback : value;
  };
  auto dimension = [&](double rotations) {
    return static_cast<double>(dim) * std::log(original / (rotations * 2 * std::numbers::pi)) / (2 * std::log(base));
  };
  double low = dimension(beta("beta_fast", 32)), high = dimension(beta("beta_slow", 1));
  if (s.boolean("truncate", true)) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;
  for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    const double f = rope.inverse_frequencies[i];
    rope.inverse_frequencies[i] = static_cast<float>(f / factor * ramp + f * (1 - ramp));
  }
  rope.attention_factor = static_cast<float>(attention);
}

// Llama 3.1: long wavelengths are divided by `factor`, short ones are kept, those between are blended.
void scale_llama3(ConfigReader& s, double original, RopeTableAttrs& rope) {
  const double factor = s.number("factor", 1e-6, kLargest);
  const double low = s.number("low_freq_factor", 1e-6, kLargest), high = s.number("high_freq_factor", 1e-6, kLargest);
  if (s.status().ok() && low == high)
    s.fail(invalid_argument("config: low_freq_factor and high_freq_factor are both {}", low));
  for (float& f : rope.inverse_frequencies) {
    const double wave = 2 * std::numbers::pi / f;
    if (wave < original / high) continue;
    const double smooth = wave > original / low ? 0.0 : (original / wave - low) / (high - low);
    f = static_cast<float>((1 - smooth) * f / factor + smooth * f);
  }
}

/// Divides frequencies by the factors under `key`, one for each frequency.
Status divide(const nlohmann::json& scaling, const char* key, std::vector<float>& frequencies) {
  const auto factors = scaling.find(key);
  if (factors == scaling.end() || !factors->is_array() || factors->size() != frequencies.size())
    return invalid_argument("config: {} must list {} factors", key, frequencies.size());
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const nlohmann::json& factor = (*factors)[i];
    frequencies[i] /= factor.is_number() ? factor.get<float>() : NAN;
  }
  return {};
}

// arXiv:2402.13753: one list of divisors up to the original context and one beyond it.
Status scale_long(ConfigReader& s, const nlohmann::json& scaling, double original, int64_t max_positions,
                  RopeTableAttrs& rope) {
  rope.beyond = {rope.inverse_frequencies, static_cast<int64_t>(original)};
  REDLINE_TRY(divide(scaling, "short_factor", rope.inverse_frequencies));
  REDLINE_TRY(divide(scaling, "long_factor", rope.beyond.inverse_frequencies));
  const double factor = s.number("factor", 1e-6, kLargest, static_cast<double>(max_positions) / original);
  const double attention = factor <= 1 || original <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  rope.attention_factor = static_cast<float>(s.number("attention_factor", 0, kLargest, attention));
  return {};
}

}  // namespace

nlohmann::json rope_of_layer_type(nlohmann::json config, const char* type) {
  const auto parameters = config.find("rope_parameters");
  if (parameters == config.end() || !parameters->is_object()) return config;
  const auto of_type = parameters->find(type);
  if (of_type == parameters->end()) return config;
  const nlohmann::json own = *of_type;
  config.erase("rope_scaling");
  config["rope_parameters"] = own;
  return config;
}

nlohmann::json with_rope_theta(nlohmann::json config, double theta) {
  const auto parameters = config.find("rope_parameters");
  const bool stated = parameters != config.end() && parameters->is_object() && parameters->contains("rope_theta");
  if (!stated && !config.contains("rope_theta")) config["rope_theta"] = theta;
  return config;
}

nlohmann::json without_magnitudes(nlohmann::json config) {
  for (const char* key : {"rope_scaling", "rope_parameters"})
    if (config.contains(key) && config[key].is_object())
      for (const char* magnitude : {"mscale", "mscale_all_dim"}) config[key].erase(magnitude);
  return config;
}

nlohmann::json with_partial_rotary_factor(nlohmann::json config, double factor) {
  constexpr const char* kKey = "partial_rotary_factor";
  const auto parameters = config.find("rope_parameters");
  const bool stated = parameters != config.end() && parameters->is_object() && parameters->contains(kKey);
  if (!stated && !config.contains(kKey)) config[kKey] = factor;
  return config;
}

Result<RopeTableAttrs> read_rope_config(const nlohmann::json& config, int64_t head_dim, int64_t max_positions) {
  ConfigReader r(config);
  const nlohmann::json* scaling = scaling_of(r);
  const nlohmann::json none = nlohmann::json::object();
  ConfigReader s(scaling ? *scaling : none);
  REDLINE_TRY(r.status());
  if (scaling && !scaling->empty() &&
      std::all_of(scaling->begin(), scaling->end(), [](const auto& v) { return v.is_object(); }))
    return unsupported("config: rope_parameters differ by layer type, which Redline does not read yet");

  const double base = s.number("rope_theta", 1e-6, kLargest, r.number("rope_theta", 1e-6, kLargest, 10000.0));
  const double partial = s.number("partial_rotary_factor", 0, 1, r.number("partial_rotary_factor", 0, 1, 1.0));
  const int64_t dim = static_cast<int64_t>(static_cast<double>(head_dim) * partial);
  if (dim < 2 || dim % 2 != 0)
    return invalid_argument("config: rotary size {} of heads of {} must be even and at least 2", dim, head_dim);
  RopeTableAttrs rope;
  for (int64_t i = 0; i < dim; i += 2)
    rope.inverse_frequencies.push_back(
        static_cast<float>(1.0 / std::pow(base, static_cast<double>(i) / static_cast<double>(dim))));

  const std::string type = type_of(s);
  if (type == "linear") {
    const auto factor = static_cast<float>(s.number("factor", 1e-6, kLargest));
    for (float& f : rope.inverse_frequencies) f /= factor;
  } else if (type == "dynamic") {
    if (dim <= 2) return invalid_argument("config: dynamic rope scaling needs a rotary size above 2, not {}", dim);
    rope.dynamic = {base, s.number("factor", 1, kLargest), max_positions};
  } else if (type == "llama3") {
    scale_llama3(s, original_positions(r, s, max_positions), rope);
  } else if (type == "yarn") {
    if (base <= 1) return invalid_argument("config: yarn needs rope_theta above 1, not {}", base);
    scale_yarn(s, original_positions(r, s, max_positions), base, dim, max_positions, rope);
  } else if (type == "longrope" || type == "su") {  // "su" is its name in the first Phi-3
    REDLINE_TRY(scale_long(s, *scaling, original_positions(r, s, max_positions), max_positions, rope));
  } else if (type != "default" && type != "none" && type != "mrope") {  // a text has the same position on all axes
    return unsupported("config: rope type \"{}\"{}; Redline reads default, linear, dynamic, llama3, longrope and yarn",
                       type, the_nearest(type, "default, linear, dynamic, llama3, longrope, yarn"));
  }
  if (scaling) REDLINE_TRY(read_sections(s, *scaling, rope));
  // Divisors combine with any scaling, which is proportional to the frequency.
  if (const auto factors = config.find("rope_freq_factors"); factors != config.end()) {
    if (!factors->is_array() || factors->size() != rope.inverse_frequencies.size())
      return invalid_argument("config: rope_freq_factors (rope_freqs.weight in GGUF) has {} elements, expected {}",
                              factors->size(), rope.inverse_frequencies.size());
    for (size_t i = 0; i < factors->size(); ++i) {
      const nlohmann::json& factor = (*factors)[i];
      rope.inverse_frequencies[i] /= factor.is_number() ? factor.get<float>() : NAN;
    }
  }
  REDLINE_TRY(r.status());
  REDLINE_TRY(s.status());
  for (float f : rope.inverse_frequencies)
    if (!std::isfinite(f))
      return invalid_argument("config: rope frequencies are not finite; look at rope_theta and factor");
  for (float f : rope.beyond.inverse_frequencies)
    if (!std::isfinite(f)) return invalid_argument("config: long rope frequencies are not finite; look at long_factor");
  return rope;
}

namespace {

/// Returns the float32 d for which plain / d equals `scaled` to the last bit, or the nearest one if there is none.
float divisor_of(float plain, float scaled) {
  const auto nearest = static_cast<float>(static_cast<double>(plain) / static_cast<double>(scaled));
  for (const float d : {nearest, std::nextafter(nearest, 0.0f), std::nextafter(nearest, INFINITY)})
    if (plain / d == scaled) return d;
  return nearest;
}

}  // namespace

Result<GgufRope> read_gguf_rope(const nlohmann::json& config, int64_t head_dim, int64_t max_positions,
                                bool truncates_yarn) {
  REDLINE_ASSIGN(const RopeTableAttrs rope, read_rope_config(config, head_dim, max_positions));
  ConfigReader r(config);
  const nlohmann::json* scaling = scaling_of(r);
  const nlohmann::json none = nlohmann::json::object();
  ConfigReader s(scaling ? *scaling : none);
  GgufRope out;
  out.base = s.number("rope_theta", 1e-6, kLargest, r.number("rope_theta", 1e-6, kLargest, 10000.0));
  out.rotary_dim = 2 * static_cast<int64_t>(rope.inverse_frequencies.size());
  const std::string type = type_of(s);
  if (type == "linear") {
    out.scaling = type;
    out.factor = s.number("factor", 1e-6, kLargest);
  } else if (type == "yarn") {
    if (s.boolean("truncate", true) != truncates_yarn)
      return unsupported("config: GGUF cannot express yarn with \"truncate\": {}", !truncates_yarn);
    const double original = original_positions(r, s, max_positions);
    out.scaling = type;
    out.factor = s.number("factor", 1e-6, kLargest, static_cast<double>(max_positions) / original);
    out.original_context = static_cast<int64_t>(original);
    const double own = yarn_mscale(out.factor, 1);
    if (rope.attention_factor != static_cast<float>(own))
      out.attention_multiplier = static_cast<double>(rope.attention_factor) / own;
    if (s.has("beta_fast")) out.beta_fast = s.number("beta_fast", 0, kLargest);
    if (s.has("beta_slow")) out.beta_slow = s.number("beta_slow", 0, kLargest);
  } else if (type == "llama3") {
    nlohmann::json plain = {{"rope_theta", out.base},
                            {"partial_rotary_factor",
                             s.number("partial_rotary_factor", 0, 1, r.number("partial_rotary_factor", 0, 1, 1.0))}};
    REDLINE_ASSIGN(const RopeTableAttrs unscaled, read_rope_config(plain, head_dim, max_positions));
    for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i)
      out.divisors.push_back(divisor_of(unscaled.inverse_frequencies[i], rope.inverse_frequencies[i]));
  } else if (type == "longrope" || type == "su") {
    out.original_context = rope.beyond.original_context;
    out.attention_factor = static_cast<double>(rope.attention_factor);
    out.within = scaling->at("short_factor").get<std::vector<float>>();
    out.beyond = scaling->at("long_factor").get<std::vector<float>>();
  } else if (type != "default" && type != "none" && type != "mrope") {  // a text has the same position on all axes
    return unsupported("config: GGUF cannot express rope type \"{}\"", type);
  }
  REDLINE_TRY(r.status());
  REDLINE_TRY(s.status());
  return out;
}

int64_t rope_context(const nlohmann::json& config, int64_t max_positions) {
  ConfigReader r(config);
  const nlohmann::json* scaling = scaling_of(r);
  if (!scaling) return max_positions;
  ConfigReader s(*scaling);
  if (type_of(s) != "dynamic") return max_positions;
  return static_cast<int64_t>(static_cast<double>(max_positions) * s.number("factor", 1, 1e6, 1.0));
}

}  // namespace redline
