#include "llm/sampler_registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/order_after.h"
#include "base/text_distance.h"

namespace redline {

#define REDLINE_ROW(row) extern const SamplerRow row;
#include <samplers.inc>  // of the build: one row per file in samplers/
#undef REDLINE_ROW

namespace {

/// In the default order.
const std::vector<const SamplerRow*>& samplers() {
  static const std::vector<const SamplerRow*> all = [] {
    const std::vector<const SamplerRow*> rows = {
#define REDLINE_ROW(row) &row,
#include <samplers.inc>
#undef REDLINE_ROW
    };
    std::vector<const SamplerRow*> order = order_after(
        rows, [](const SamplerRow* row) { return row->name; }, [](const SamplerRow* row) { return row->after; });
    std::stable_sort(order.begin(), order.end(),
                     [](const SamplerRow* a, const SamplerRow* b) { return a->kind < b->kind; });
    return order;
  }();
  return all;
}

const SamplerRow* find_sampler(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '-', '_');
  for (const SamplerRow* row : samplers()) {
    if (row->kind == SamplerKind::kFeedback) continue;
    if (row->name == name || std::find(row->aliases.begin(), row->aliases.end(), name) != row->aliases.end())
      return row;
  }
  return nullptr;
}

Status unknown_sampler(std::string_view text) {
  const std::vector<std::string>& names = default_samplers();
  const std::vector<std::string_view> known(names.begin(), names.end());
  return invalid_argument("there is no sampler \"{}\"{} (there are \"{}\")", text, did_you_mean(text, known),
                          fmt::join(names, "\", \""));
}

Status check_sampling(const SamplingOptions& o) {
  for (const SamplingParameter& parameter : sampling_parameters()) REDLINE_TRY(parameter.check(o));
  for (const std::string& breaker : o.dry_sequence_breakers)
    if (breaker.empty()) return invalid_argument("dry_sequence_breakers has an empty string");
  for (const auto& [token, bias] : o.logit_bias)
    if (std::isnan(bias) || bias > std::numeric_limits<float>::max())
      return invalid_argument("logit_bias of token {} is {}; allowed: a finite number, or -inf", token, bias);
  for (const std::string& word : o.bad_words)
    if (word.empty()) return invalid_argument("bad_words has an empty string");
  return {};
}

}  // namespace

double SamplingParameter::value(const SamplingOptions& options) const {
  return std::visit([&](auto field) { return static_cast<double>(options.*field); }, member);
}

void SamplingParameter::set(SamplingOptions& options, double value) const {
  std::visit(
      [&](auto field) { options.*field = static_cast<std::remove_reference_t<decltype(options.*field)>>(value); },
      member);
}

Status SamplingParameter::check(const SamplingOptions& options) const {
  const double given = value(options);
  // NaN fails both.
  if ((excludes_min ? given > range.min : given >= range.min) && given <= range.max) return {};
  return invalid_argument("{} is {}; allowed: {}", name, given, allowed);
}

std::span<const SamplingParameter> sampling_parameters() {
  static const std::vector<SamplingParameter> parameters = [] {
    std::vector<SamplingParameter> all;
    for (const SamplerRow* row : samplers())
      for (SamplingParameter parameter : row->parameters) {
        parameter.sampler = row->name;
        parameter.affects_greedy = row->kind == SamplerKind::kPenalty || row->kind == SamplerKind::kTemperature;
        all.push_back(parameter);
      }
    return all;
  }();
  return parameters;
}

const SamplingParameter* find_sampling_parameter(std::string_view name) {
  for (const SamplingParameter& parameter : sampling_parameters())
    if (parameter.name == name) return &parameter;
  return nullptr;
}

const std::vector<std::string>& default_samplers() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const SamplerRow* row : samplers())
      if (row->kind != SamplerKind::kFeedback) all.emplace_back(row->name);
    return all;
  }();
  return names;
}

Result<std::string> sampler_name(std::string_view text) {
  if (const SamplerRow* row = find_sampler(text)) return std::string(row->name);
  return unknown_sampler(text);
}

Result<std::vector<const SamplerRow*>> active_sampler_rows(const SamplingOptions& o) {
  REDLINE_TRY(check_sampling(o));
  std::vector<const SamplerRow*> feedback, active;
  for (const SamplerRow* row : samplers())
    if (row->kind == SamplerKind::kFeedback && !is_greedy(o) && row->is_active(o)) feedback.push_back(row);
  std::vector<const SamplerRow*> seen;
  for (const std::string& text : o.samplers.empty() ? default_samplers() : o.samplers) {
    const SamplerRow* const row = find_sampler(text);
    if (row == nullptr) return unknown_sampler(text);
    if (std::find(seen.begin(), seen.end(), row) != seen.end())
      return invalid_argument("the sampler \"{}\" is listed twice", row->name);
    seen.push_back(row);
    const bool is_off = (row->kind != SamplerKind::kPenalty && is_greedy(o)) ||
                        (row->kind == SamplerKind::kTruncation && !feedback.empty());
    if (!is_off && row->is_active(o)) active.push_back(row);
  }
  active.insert(active.end(), feedback.begin(), feedback.end());
  return active;
}

Result<std::vector<std::string>> active_samplers(const SamplingOptions& options) {
  REDLINE_ASSIGN(const std::vector<const SamplerRow*> rows, active_sampler_rows(options));
  std::vector<std::string> names;
  names.reserve(rows.size() + 1);
  for (const SamplerRow* row : rows) names.emplace_back(row->name);
  names.emplace_back(is_greedy(options) ? "greedy" : "draw");
  return names;
}

}  // namespace redline
