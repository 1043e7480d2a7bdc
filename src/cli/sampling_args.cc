#include "cli/sampling_args.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

#include "base/error.h"

namespace redline::cli {
namespace {

constexpr const char* kModels = "the model's own";

/// "TOKEN+BIAS" and "TOKEN-BIAS", as llama.cpp has it; "TOKEN=BIAS"; "TOKEN=false" excludes the token.
Result<std::pair<int32_t, float>> parse_bias(const std::string& text) {
  const char* const end = text.data() + text.size();
  int32_t token = 0;
  float bias = 0;
  auto [rest, problem] = std::from_chars(text.data(), end, token);
  bool is_good = problem == std::errc() && token >= 0 && rest != end;
  if (is_good && std::string_view(rest, end) == "=false")
    return std::pair(token, -std::numeric_limits<float>::infinity());
  is_good = is_good && (*rest == '+' || *rest == '-' || *rest == '=');
  if (is_good && *rest != '-') ++rest;
  if (is_good) {
    const auto parsed = std::from_chars(rest, end, bias);
    is_good = parsed.ec == std::errc() && parsed.ptr == end;
  }
  if (!is_good)
    return invalid_argument("flag --logit-bias: \"{}\" should read like 15043+1, 15043-1.5 or 15043=false", text);
  return std::pair(token, bias);
}

std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (c == ';' || c == ',') names.emplace_back();
    else if (c != ' ') names.back() += c;
  }
  return names;
}

}  // namespace

void SamplingArgs::visit(OptionList& v) {
  v.group("sampling");
  v(temperature, "temperature", "T", "sampling temperature; 0 always takes the most likely token",
    {.min = 0, .max = 100, .shown_default = kModels, .aliases = {"--temp"}});
  v(top_k, "top-k", "K", "sample from the K most likely tokens; 0 is off", {.min = 0, .shown_default = kModels});
  v(top_p, "top-p", "P", "sample from the most likely tokens with a cumulative probability of P; 1 is off",
    {.min = 0, .max = 1, .shown_default = kModels});
  v(min_p, "min-p", "P", "drop tokens less likely than P times the most likely one; 0 is off",
    {.min = 0, .max = 1, .shown_default = kModels});
  v(seed, "seed", "S", "same seed, same text; -1: random",
    {.letter = 's', .min = -1, .shown_default = "random, printed at the end"});
  v(repetition_penalty, "repetition-penalty", "R", "penalize tokens that are already in the text; 1 is off",
    {.min = 0, .max = 100, .shown_default = kModels, .aliases = {"--repeat-penalty"}});
  v(presence_penalty, "presence-penalty", "X", "subtract X from the logits of tokens in the output", {});
  v(frequency_penalty, "frequency-penalty", "X", "the same for each of their occurrences", {});
  v(penalty_last_n, "penalty-last-n", "N", "tokens at the end of the text that these penalties see; -1: all",
    {.min = -1, .aliases = {"--repeat-last-n"}});
  v(logit_bias, "logit-bias", "ID+BIAS", "add BIAS to the logit of a token; ID-BIAS subtracts, ID=false excludes it");
  v(bad_words, "bad-word", "TEXT", "TEXT does not appear in the output");
  v(samplers, "samplers", "NAME;..", "samplers to apply, in this order; those that are left out are off",
    {.shown_default = fmt::format("{}", fmt::join(default_samplers(), ";"))});
  v.group("more samplers");
  v(typical_p, "typical-p", "P", "locally typical tokens with a cumulative probability of P; 1 is off",
    {.min = 0, .max = 1, .aliases = {"--typical"}});
  v(top_n_sigma, "top-n-sigma", "N", "logits within N standard deviations of the largest; 0 or -1 is off",
    {.min = -1, .aliases = {"--top-nsigma"}});
  v(xtc_probability, "xtc-probability", "P",
    "how often all but the least likely of the tokens above --xtc-threshold are dropped", {.min = 0, .max = 1});
  v(xtc_threshold, "xtc-threshold", "P", "with XTC: the probability; above 0.5 is off",
    {.min = 0, .max = 1, .shown_default = "0.1"});
  v(dry_multiplier, "dry-multiplier", "X",
    "penalize tokens that continue a repetition of N tokens by X * base^(N - allowed length); 0 is off", {.min = 0});
  v(dry_base, "dry-base", "X", "with DRY: the base", {.min = 1, .shown_default = "1.75"});
  v(dry_allowed_length, "dry-allowed-length", "N", "with DRY: the longest repetition without penalty plus 1",
    {.min = 0, .shown_default = "2"});
  v(dry_penalty_last_n, "dry-penalty-last-n", "N", "with DRY: tokens in which repetitions are searched for; -1: all",
    {.min = -1});
  v(dry_breakers, "dry-sequence-breaker", "TEXT",
    "with DRY: TEXT ends a repetition, instead of line break, :, \" and *; none: nothing does");
  v(mirostat, "mirostat", "1|2", "Mirostat in place of the truncations; 0 is off", {.min = 0, .max = 2});
  v(mirostat_tau, "mirostat-tau", "BITS", "with Mirostat: surprise to hold",
    {.min = 0, .shown_default = "5", .aliases = {"--mirostat-ent"}});
  v(mirostat_eta, "mirostat-eta", "X", "with Mirostat: learning rate",
    {.min = 0, .shown_default = "0.1", .aliases = {"--mirostat-lr"}});
  v(dynatemp_range, "dynatemp-range", "X",
    "the temperature goes from T - X to T + X, by the entropy of the distribution; 0 is off", {.min = 0});
  v(dynatemp_exponent, "dynatemp-exponent", "X", "with --dynatemp-range: exponent of the entropy",
    {.min = 0, .shown_default = "1", .aliases = {"--dynatemp-exp"}});
  v.group("");
}

Result<SamplingOptions> SamplingArgs::options(const SamplingOptions& defaults) const {
  SamplingOptions s = defaults;
  const auto take = [](auto& field, const auto& given) {
    if (given) field = static_cast<std::remove_reference_t<decltype(field)>>(*given);
  };
  take(s.temperature, temperature);
  take(s.top_k, top_k);
  take(s.top_p, top_p);
  take(s.min_p, min_p);
  take(s.repetition_penalty, repetition_penalty);
  take(s.presence_penalty, presence_penalty);
  take(s.frequency_penalty, frequency_penalty);
  take(s.penalty_last_n, penalty_last_n);
  take(s.typical_p, typical_p);
  take(s.top_n_sigma, top_n_sigma);
  s.top_n_sigma = std::max(s.top_n_sigma, 0.0f);
  take(s.xtc_probability, xtc_probability);
  take(s.xtc_threshold, xtc_threshold);
  take(s.dry_multiplier, dry_multiplier);
  take(s.dry_base, dry_base);
  take(s.dry_allowed_length, dry_allowed_length);
  take(s.dry_penalty_last_n, dry_penalty_last_n);
  take(s.mirostat, mirostat);
  take(s.mirostat_tau, mirostat_tau);
  take(s.mirostat_eta, mirostat_eta);
  take(s.dynatemp_range, dynatemp_range);
  take(s.dynatemp_exponent, dynatemp_exponent);
  if (!dry_breakers.empty()) s.dry_sequence_breakers = dry_breakers;
  if (dry_breakers == std::vector<std::string>{"none"}) s.dry_sequence_breakers.clear();
  for (const std::string& text : logit_bias) {
    REDLINE_ASSIGN(s.logit_bias.emplace_back(), parse_bias(text));
  }
  s.bad_words = bad_words;
  if (samplers) {
    s.samplers = names_in(*samplers);
    REDLINE_TRY(active_samplers(s).status().within("flag --samplers"));
  }
  s.seed = seed ? *seed : std::random_device()();
  return s;
}

std::vector<std::string> SamplingArgs::unused_by_greedy() const {
  std::vector<std::string> unused;
  const auto check = [&](bool is_given, const char* flag) {
    if (is_given) unused.emplace_back(flag);
  };
  check(top_k.has_value(), "--top-k");
  check(top_p.has_value(), "--top-p");
  check(min_p.has_value(), "--min-p");
  check(typical_p.has_value(), "--typical-p");
  check(top_n_sigma.has_value(), "--top-n-sigma");
  check(xtc_probability.has_value(), "--xtc-probability");
  check(mirostat.has_value(), "--mirostat");
  check(seed.has_value(), "--seed");
  return unused;
}

std::string samplers_text(const SamplingOptions& o) {
  const Result<std::vector<std::string>> names = active_samplers(o);
  if (!names.ok()) return std::string(names.status().message());
  std::string text;
  for (const std::string& name : *names) {
    text += (text.empty() ? "" : ", ") + name;
    if (name == "penalties") {
      text += fmt::format(" (repetition {:g}, presence {:g}, frequency {:g}", o.repetition_penalty, o.presence_penalty,
                          o.frequency_penalty);
      text += o.penalty_last_n < 0 ? ")" : fmt::format(", over {} tokens)", o.penalty_last_n);
    }
    if (name == "dry")
      text += fmt::format(" (multiplier {:g}, base {:g}, from {} tokens)", o.dry_multiplier, o.dry_base,
                          o.dry_allowed_length);
    if (name == "temperature") text += fmt::format(" {:g}", o.temperature);
    if (name == "temperature" && o.dynatemp_range > 0)
      text += fmt::format(" (range {:g}, exponent {:g})", o.dynatemp_range, o.dynatemp_exponent);
    if (name == "top_n_sigma") text += fmt::format(" {:g}", o.top_n_sigma);
    if (name == "top_k") text += fmt::format(" {}", o.top_k);
    if (name == "typical_p") text += fmt::format(" {:g}", o.typical_p);
    if (name == "top_p") text += fmt::format(" {:g}", o.top_p);
    if (name == "min_p") text += fmt::format(" {:g}", o.min_p);
    if (name == "xtc") text += fmt::format(" (probability {:g}, threshold {:g})", o.xtc_probability, o.xtc_threshold);
    if (name == "mirostat") text += fmt::format(" {} (tau {:g}, eta {:g})", o.mirostat, o.mirostat_tau, o.mirostat_eta);
  }
  return text;
}

}  // namespace redline::cli
