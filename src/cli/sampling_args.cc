#include "cli/sampling_args.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <random>

#include "base/error.h"

namespace redline::cli {
namespace {

/// Parses "TOKEN+BIAS" and "TOKEN-BIAS" (llama.cpp's notation), "TOKEN=BIAS", or "TOKEN=false", which excludes the
/// token.
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

std::string with_hyphens(std::string_view name) {
  std::string flag(name);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}
std::string flag_of(const SamplingParameter& p) { return with_hyphens(p.name); }

/// Returns a value in the notation of the command line.
std::string value_text(const SamplingParameter& p, const SamplingOptions& options) {
  return std::visit([&](auto field) { return fmt::format("{}", options.*field); }, p.member);
}

OptionRule rule_of(const SamplingParameter& p) {
  OptionRule rule{.min = p.input.min};
  if (p.input.max < SamplingParameter::kMaxInteger) rule.max = p.input.max;
  if (p.is_of_model) rule.shown_default = "the model's own";
  else if (!p.neutral) rule.shown_default = value_text(p, {});
  for (const std::string_view alias : p.aliases) rule.aliases.push_back("--" + with_hyphens(alias));
  return rule;
}

}  // namespace

void SamplingArgs::visit(OptionList& v) {
  const auto add_parameters = [&](bool is_common) {
    const std::span<const SamplingParameter> all = sampling_parameters();
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].is_common != is_common) continue;
      const std::string symbol(all[i].symbol), help(all[i].help);
      if (all[i].is_integer()) v(parameters[i].integer, flag_of(all[i]), symbol, help, rule_of(all[i]));
      else v(parameters[i].number, flag_of(all[i]), symbol, help, rule_of(all[i]));
    }
  };
  v.group("sampling");
  add_parameters(true);
  v(seed, "seed", "S", "same seed, same text; -1: random",
    {.letter = 's', .min = -1, .shown_default = "random, printed at the end"});
  v(logit_bias, "logit-bias", "ID+BIAS", "add BIAS to the logit of a token; ID-BIAS subtracts, ID=false excludes it");
  v(bad_words, "bad-word", "TEXT", "TEXT does not appear in the output");
  v(samplers, "samplers", "NAME;..", "samplers to apply, in this order; those that are left out are off",
    {.shown_default = fmt::format("{}", fmt::join(default_samplers(), ";"))});
  v.group("more samplers");
  add_parameters(false);
  v(dry_breakers, "dry-sequence-breaker", "TEXT",
    "with DRY: TEXT ends a repetition, instead of line break, :, \" and *; none: nothing does");
  v.group("");
}

Result<SamplingOptions> SamplingArgs::options(const SamplingOptions& defaults) const {
  SamplingOptions s = defaults;
  const std::span<const SamplingParameter> all = sampling_parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!parameters[i].has_value()) continue;
    const double value =
        parameters[i].number ? double{*parameters[i].number} : static_cast<double>(*parameters[i].integer);
    all[i].set(s, std::max(value, all[i].range.min));
  }
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
  const std::span<const SamplingParameter> all = sampling_parameters();
  for (size_t i = 0; i < all.size(); ++i)
    if (parameters[i].has_value() && !all[i].affects_greedy && all[i].depends_on.empty())
      unused.push_back("--" + flag_of(all[i]));
  if (seed) unused.emplace_back("--seed");
  return unused;
}

std::string samplers_text(const SamplingOptions& o) {
  const Result<std::vector<std::string>> names = active_samplers(o);
  if (!names.ok()) return std::string(names.status().message());
  std::string text;
  for (const std::string& name : *names) {
    std::string own;
    std::vector<std::string> others;
    for (const SamplingParameter& p : sampling_parameters()) {
      if (p.sampler != name) continue;
      if (p.name == name) {
        own = " " + value_text(p, o);
        continue;
      }
      const SamplingParameter* const parent = find_sampling_parameter(p.depends_on);
      if (p.is_neutral(o) || (parent != nullptr && parent->is_neutral(o))) continue;
      const bool has_prefix = p.name.starts_with(name + "_");
      others.push_back(fmt::format("{} {}", has_prefix ? p.name.substr(name.size() + 1) : p.name, value_text(p, o)));
    }
    text += (text.empty() ? "" : ", ") + name + own;
    if (!others.empty()) text += fmt::format(" ({})", fmt::join(others, ", "));
  }
  return text;
}

}  // namespace redline::cli
