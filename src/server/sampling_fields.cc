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

/// "5": 1.5 or [5, 1.5]; false excludes the token. `field`: its path.
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

}  // namespace

const std::vector<Field>& sampling_fields() {
  static const std::vector<Field> fields = {
      {"temperature", kNumber, "0: the most likely token; default: the model's own", {.min = 0, .max = 100}},
      {"top_p", kNumber, "share of the probability to sample from; 1: all", {.min = 0, .max = 1}},
      {"top_k", kInteger, "number of tokens to sample from; 0 or -1: all", {.min = -1, .max = kMaxJsonInteger}},
      {"min_p", kNumber, "least probability relative to the most likely token; 0: off", {.min = 0, .max = 1}},
      {"repetition_penalty", kNumber, "over prompt and output; 1: off", {.min = 0.01, .max = 100}},
      {"presence_penalty", kNumber, "subtracted from the logits of tokens in the output", {.min = -100, .max = 100}},
      {"frequency_penalty", kNumber, "the same for each of their occurrences", {.min = -100, .max = 100}},
      {"repeat_last_n",
       kInteger,
       "tokens at the end of the text that the penalties see; 0: none; -1: all",
       {.min = -1, .max = kMaxJsonInteger}},
      {"logit_bias",
       kObject | kArray,
       "addends of logits by token id; false excludes a token",
       {.max_items = 100000, .object = &bias_schema, .items = &bias_item}},
      {"bad_words", kArray, "strings that do not appear in the text", {.max_items = 100, .items = &text_item}},
      {"typical_p", kNumber, "share of the probability of locally typical tokens; 1: off", {.min = 1e-6, .max = 1}},
      {"top_n_sigma",
       kNumber,
       "standard deviations from the largest logit to sample from; 0 or -1: off",
       {.min = -1, .max = 1000}},
      {"xtc_probability",
       kNumber,
       "how often all but the least likely of the tokens above xtc_threshold are dropped; 0: off",
       {.min = 0, .max = 1}},
      {"xtc_threshold", kNumber, "the probability; above 0.5: off", {.min = 0, .max = 1}},
      {"dry_multiplier",
       kNumber,
       "penalty of a token that continues a repetition of dry_allowed_length tokens; 0: off",
       {.min = 0, .max = 1000}},
      {"dry_base", kNumber, "the penalty grows by this for each further token", {.min = 1, .max = 1000}},
      {"dry_allowed_length", kInteger, "the shortest repetition with a penalty", {.min = 0, .max = kMaxJsonInteger}},
      {"dry_penalty_last_n",
       kInteger,
       "tokens in which repetitions are searched for; 0: none; -1: all",
       {.min = -1, .max = kMaxJsonInteger}},
      {"dry_sequence_breakers", kArray, "strings that end a repetition", {.max_items = 100, .items = &text_item}},
      {"mirostat", kInteger, "1, 2: Mirostat in place of the truncations; 0: off", {.min = 0, .max = 2}},
      {"mirostat_tau", kNumber, "surprise to hold, in bits", {.min = 0, .max = 1000}},
      {"mirostat_eta", kNumber, "learning rate", {.min = 0, .max = 1000}},
      {"dynatemp_range",
       kNumber,
       "the temperature is this much lower or higher, by the entropy; 0: off",
       {.min = 0, .max = 100}},
      {"dynatemp_exponent", kNumber, "of the entropy", {.min = 0, .max = 1000}},
      {"samplers",
       kArray,
       "samplers to apply, in this order; default: " + fmt::format("{}", fmt::join(default_samplers(), ", ")),
       {.max_items = 100, .items = &name_item}},
      {"seed",
       kInteger,
       "the same seed gives the same text; default: random",
       {.min = -kMaxJsonInteger, .max = kMaxJsonInteger}},
  };
  return fields;
}

Outcome<SamplingOptions> sampling_of(const Json& body, const SamplingOptions& defaults, int64_t vocab_size) {
  SamplingOptions s = defaults;
  const auto take = [&](const char* name, auto& field) { field = body.value(name, field); };
  take("temperature", s.temperature);
  take("top_p", s.top_p);
  take("top_k", s.top_k);
  s.top_k = std::max<int64_t>(s.top_k, 0);
  take("min_p", s.min_p);
  take("repetition_penalty", s.repetition_penalty);
  take("presence_penalty", s.presence_penalty);
  take("frequency_penalty", s.frequency_penalty);
  take("repeat_last_n", s.penalty_last_n);
  take("bad_words", s.bad_words);
  take("typical_p", s.typical_p);
  take("top_n_sigma", s.top_n_sigma);
  s.top_n_sigma = std::max(s.top_n_sigma, 0.0F);
  take("xtc_probability", s.xtc_probability);
  take("xtc_threshold", s.xtc_threshold);
  take("dry_multiplier", s.dry_multiplier);
  take("dry_base", s.dry_base);
  take("dry_allowed_length", s.dry_allowed_length);
  take("dry_penalty_last_n", s.dry_penalty_last_n);
  take("dry_sequence_breakers", s.dry_sequence_breakers);
  take("mirostat", s.mirostat);
  take("mirostat_tau", s.mirostat_tau);
  take("mirostat_eta", s.mirostat_eta);
  take("dynatemp_range", s.dynatemp_range);
  take("dynatemp_exponent", s.dynatemp_exponent);
  take("samplers", s.samplers);
  if (s.top_p <= 0) {  // only the most likely token is left
    s.top_p = 1;
    s.top_k = 1;
  }
  if (const auto biases = body.find("logit_bias"); biases != body.end())
    if (auto error = add_biases(*biases, vocab_size, s)) return *error;
  if (const auto names = active_samplers(s); !names.ok()) return api_error(names.status(), "samplers");
  const auto seed = body.find("seed");
  s.seed = seed == body.end() ? std::random_device{}() : static_cast<uint64_t>(seed->get<int64_t>());
  return s;
}

}  // namespace redline::server
