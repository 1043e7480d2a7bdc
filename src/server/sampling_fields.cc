#include "server/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

namespace redline::server {
namespace {

const Schema bias_schema{"LogitBias", {}, true};
const Field bias_item{"", kArray, ""};
const Field text_item{"", kString, "", {.min_length = 1, .max_length = 200}};
const Field name_item{"", kString, "", {.min_length = 1, .max_length = 100}};

/// Adds a bias, given as "5": 1.5 or [5, 1.5]; false excludes the token. `field`: the path for errors.
std::optional<ApiError> add_bias(const Json& token, const Json& value, const std::string& field, int64_t vocab_size,
                                 SamplingOptions& s) {
  int64_t id = -1;
  if (token.is_number_integer()) {
    id = token.get<int64_t>();
  } else if (token.is_string()) {
    const auto& text = token.get_ref<const std::string&>();
    const auto [rest, problem] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (problem != std::errc() || rest != text.data() + text.size()) id = -1;
  }
  if (id < 0 || id >= vocab_size)
    return bad_request(field, fmt::format("{}: the key must be a token id below {}", field, vocab_size),
                       "invalid_value");
  float bias = -std::numeric_limits<float>::infinity();
  if (value.is_number()) bias = value.get<float>();
  else if (!value.is_boolean() || value.get<bool>())
    return bad_request(field, field + " must be a number, or false", "invalid_type");
  constexpr float kMax = 1e6F;
  if (value.is_number() && !(bias >= -kMax && bias <= kMax))
    return bad_request(field, fmt::format("{} must be from {:.0f} to {:.0f}", field, -kMax, kMax), "invalid_value");
  s.logit_bias.emplace_back(static_cast<int32_t>(id), bias);
  return std::nullopt;
}

std::optional<ApiError> add_biases(const Json& biases, int64_t vocab_size, SamplingOptions& s) {
  if (biases.is_object()) {
    for (const auto& [token, value] : biases.items())
      if (auto error = add_bias(token, value, "logit_bias." + token, vocab_size, s)) return error;
    return std::nullopt;
  }
  for (size_t i = 0; i < biases.size(); ++i) {
    const std::string field = fmt::format("logit_bias[{}]", i);
    if (biases[i].size() != 2) return bad_request(field, field + " must be a token and its bias", "invalid_value");
    if (auto error = add_bias(biases[i][0], biases[i][1], field, vocab_size, s)) return error;
  }
  return std::nullopt;
}

std::string request_name(const SamplingParameter& p) {
  return p.name == "penalty_last_n" ? "repeat_last_n" : std::string(p.name);  // the name in llama.cpp's server
}

Field field_of(const SamplingParameter& p) {
  std::string description(p.help);
  if (p.is_of_model) description += "; default: the model's own";
  return {request_name(p),
          p.is_integer() ? kInteger : kNumber,
          std::move(description),
          {.min = p.input.min, .max = std::min(p.input.max, kMaxJsonInteger)}};
}

}  // namespace

std::vector<Field> sampling_numbers() {
  std::vector<Field> fields;
  for (const SamplingParameter& p : sampling_parameters()) fields.push_back(field_of(p));
  return fields;
}

Field sampling_number(std::string_view name) {
  const SamplingParameter* const parameter = find_sampling_parameter(name);
  REDLINE_CHECK(parameter != nullptr);
  return field_of(*parameter);
}

const std::vector<Field>& sampling_fields() {
  static const std::vector<Field> fields = joined(
      sampling_numbers(),
      {
          {"logit_bias",
           kObject | kArray,
           "addends of logits by token id; false excludes a token",
           {.max_items = 100000, .object = &bias_schema, .items = &bias_item}},
          {"bad_words", kArray, "strings that do not appear in the text", {.max_items = 100, .items = &text_item}},
          {"dry_sequence_breakers", kArray, "strings that end a repetition", {.max_items = 100, .items = &text_item}},
          {"samplers",
           kArray,
           "samplers to apply, in this order; default: " + fmt::format("{}", fmt::join(default_samplers(), ", ")),
           {.max_items = 100, .items = &name_item}},
          {"do_sample", kBoolean, "false: every token is the most likely one, as with temperature 0"},
          {"seed",
           kInteger,
           "the same seed gives the same text; default, and -1: random",
           {.min = -kMaxJsonInteger, .max = kMaxJsonInteger}},
      });
  return fields;
}

Outcome<SamplingOptions> sampling_of(const Json& body, const SamplingOptions& defaults, int64_t vocab_size) {
  SamplingOptions s = defaults;
  for (const SamplingParameter& p : sampling_parameters())
    if (const auto value = body.find(request_name(p)); value != body.end())
      p.set(s, std::max(value->get<double>(), p.range.min));
  if (!body.value("do_sample", true)) s.temperature = 0;
  if (s.top_p <= 0) {  // only the most likely token remains
    s.top_p = 1;
    s.top_k = 1;
  }
  const auto take = [&](const char* name, auto& field) { field = body.value(name, field); };
  take("bad_words", s.bad_words);
  take("dry_sequence_breakers", s.dry_sequence_breakers);
  take("samplers", s.samplers);
  for (std::string& name : s.samplers) {  // converts llama.cpp's names
    if (name == "typ_p") name = "typical_p";
    if (name == "temp") name = "temperature";
  }
  if (const auto biases = body.find("logit_bias"); biases != body.end())
    if (auto error = add_biases(*biases, vocab_size, s)) return *error;
  if (const auto names = active_samplers(s); !names.ok()) return api_error(names.status(), "samplers");
  const auto seed = body.find("seed");
  const bool is_random = seed == body.end() || *seed == -1;  // -1 as in llama.cpp and LM Studio
  s.seed = is_random ? std::random_device{}() : static_cast<uint64_t>(seed->get<int64_t>());
  return s;
}

}  // namespace redline::server
