#include "diffusion/step_cache/rule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/text_distance.h"
#include "redline/image.h"

namespace redline {

#define REDLINE_ROW(row) extern const RuleRow row;
#include <rules.inc>  // of the build: one row per file in rules/
#undef REDLINE_ROW

namespace {

constexpr const RuleRow* kRules[] = {
#define REDLINE_ROW(row) &row,
#include <rules.inc>
#undef REDLINE_ROW
};

// Parameters of every rule; "" keeps the rule's own setting.
constexpr RuleParameter kCommonParameters[] = {
    {"forecast", ParameterKind::kName, "", 0, 0, "forecaster of the skipped tensor"},
    {"first", ParameterKind::kInteger, "", 0, 1e6, "steps that are computed first"},
    {"last", ParameterKind::kFlag, "", 0, 1, "the last step is computed"},
    {"max_consecutive", ParameterKind::kInteger, "", -1, 1e6, "skipped steps in a row; -1: no limit"},
    {"max_cached", ParameterKind::kInteger, "", -1, 1e6, "skipped steps of a run; -1: no limit"},
    {"share_decision", ParameterKind::kFlag, "", 0, 1, "all guidance branches use the conditional one's decision"},
    {"correct_errors", ParameterKind::kFlag, "", 0, 1, "a computed step corrects the error of earlier forecasts"},
    {"min_steps", ParameterKind::kInteger, "", 0, 1e6, "runs of fewer steps are computed throughout"},
};
constexpr std::span<const RuleParameter> kCommon = kCommonParameters;

Result<double> parse_number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return invalid_argument("\"{}\" is not a number", text);
  return value;
}

Result<std::vector<int64_t>> parse_steps(std::string_view text) {
  // Marks instead of a list, which "0-99999+0-99999+..." would fill with a hundred thousand numbers for each part.
  constexpr int64_t kMaxStep = 99'999;
  std::vector<bool> is_listed(kMaxStep + 1);
  while (!text.empty()) {
    const size_t plus = text.find('+');
    const std::string_view part = text.substr(0, plus);
    text = plus == std::string_view::npos ? std::string_view() : text.substr(plus + 1);
    const size_t dash = part.find('-');
    int64_t from = 0, to = 0;
    const auto read = [](std::string_view digits, int64_t& value) {
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      return error == std::errc() && end == digits.data() + digits.size() && value >= 0 && value <= kMaxStep;
    };
    if (!read(part.substr(0, dash), from) || (dash != std::string_view::npos && !read(part.substr(dash + 1), to)))
      return invalid_argument("\"{}\" is not a list of steps; write them as 0-3+7+9", part);
    if (dash == std::string_view::npos) to = from;
    if (from <= to) std::fill(is_listed.begin() + from, is_listed.begin() + to + 1, true);
  }
  std::vector<int64_t> steps;
  for (int64_t step = 0; step <= kMaxStep; ++step)
    if (is_listed[static_cast<size_t>(step)]) steps.push_back(step);
  return steps;
}

std::vector<std::string_view> parameter_names(const RuleRow& rule) {
  std::vector<std::string_view> names;
  for (const auto& list : {rule.parameters, kCommon})
    for (const RuleParameter& parameter : list) names.emplace_back(parameter.name);
  return names;
}

Status apply_common(const RuleValues& values, RulePlan& plan) {
  if (values.given("forecast")) {
    REDLINE_ASSIGN(const ForecasterRow* info, find_forecaster(values.text("forecast")));
    plan.forecaster = info->make;
  }
  if (values.given("first")) plan.guards.first.count = [first = values.integer("first")](int64_t) { return first; };
  if (values.given("last")) plan.guards.last.is_computed = values.flag("last");
  if (values.given("max_consecutive")) plan.guards.max_consecutive.limit = values.integer("max_consecutive");
  if (values.given("max_cached")) plan.guards.max_cached.limit = values.integer("max_cached");
  if (values.given("share_decision")) plan.share_decision = values.flag("share_decision");
  if (values.given("correct_errors")) plan.correct_errors = values.flag("correct_errors");
  if (values.given("min_steps")) plan.guards.min_steps.steps = values.integer("min_steps");
  const std::unique_ptr<Forecaster> forecaster = plan.forecaster();
  const bool has_probe = plan.span == SkippedSpan::kMiddle || plan.span == SkippedSpan::kBlocks;
  if (forecaster->reads_probe() && (!has_probe || plan.front_blocks < 1))
    return invalid_argument(
        "this forecaster reads the residual of the front blocks, and the rule does not run them on skipped steps");
  return {};
}

}  // namespace

RowReads reads_of(const RulePlan& plan) {
  RowReads reads;
  if (plan.decision == Decision::kNever) return reads;
  const StatisticInput measured = plan.statistic ? plan.statistic(1)->reads() : StatisticInput::kLatents;
  const bool reads_probe = measured == StatisticInput::kFront || plan.forecaster()->reads_probe();
  const bool skips_middle = plan.span == SkippedSpan::kMiddle, skips_blocks = plan.span == SkippedSpan::kBlocks;
  reads.embedded = reads_probe || skips_blocks;
  reads.front_image = reads_probe || skips_middle;
  reads.modulated = measured == StatisticInput::kModulated;
  reads.middle_image = reads.text = skips_middle || skips_blocks;
  return reads;
}

double RuleValues::number(const std::string& name) const { return numbers_.at(name); }

Status RuleValues::set(const RuleParameter& parameter, const std::string& text, bool is_given) {
  const std::string name = parameter.name;
  given_[name] |= is_given;
  switch (parameter.kind) {
    case ParameterKind::kNumber:
    case ParameterKind::kInteger:
    case ParameterKind::kFlag: {
      REDLINE_ASSIGN(const double value, parse_number(text));
      if (value < parameter.min || value > parameter.max)
        return invalid_argument("{} is outside {} .. {}", text, parameter.min, parameter.max);
      if (parameter.kind != ParameterKind::kNumber && value != std::floor(value))
        return invalid_argument("{} is not a whole number", text);
      numbers_[name] = value;
      break;
    }
    case ParameterKind::kName: texts_[name] = text; break;
    case ParameterKind::kSteps: {
      REDLINE_ASSIGN(steps_[name], parse_steps(text));
      break;
    }
    case ParameterKind::kNumbers: {
      std::vector<double>& list = lists_[name];
      list.clear();
      for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('/', begin), text.size());
        REDLINE_ASSIGN(const double value, parse_number(std::string_view(text).substr(begin, end - begin)));
        list.push_back(value);
        begin = end + 1;
      }
      break;
    }
  }
  return {};
}

std::span<const RuleRow* const> rules() { return kRules; }

Result<const RuleRow*> find_rule(const std::string& name) {
  std::vector<std::string_view> names;
  for (const RuleRow* row : kRules) {
    if (name == row->name || (name == kAutoRule && row->is_default)) return row;
    names.emplace_back(row->name);
  }
  return invalid_argument("step cache: no rule is called \"{}\"{}; there are {}, {}", name, the_nearest(name, names),
                          kAutoRule, fmt::join(names, ", "));
}

Result<RulePlan> plan_rule(const RuleRequest& request) {
  const bool has_quality = request.quality >= 0, has_budget = request.steps_budget > 0;
  if (has_quality && has_budget)
    return invalid_argument("step cache: quality and a budget of steps exclude each other; give one of them");
  if (has_quality && !(request.quality <= 1))
    return invalid_argument("step cache: quality {} is outside 0 .. 1", request.quality);
  const size_t colon = request.rule.find(':');
  std::string name = request.rule.substr(0, colon);
  if (name.empty()) name = has_quality || has_budget ? kAutoRule : "none";
  REDLINE_ASSIGN(const RuleRow* rule, find_rule(name));
  name = rule->name;

  RuleValues values;
  std::string given;
  for (const RuleParameter& parameter : rule->parameters) REDLINE_TRY(values.set(parameter, parameter.fallback, false));
  std::string_view rest =
      colon == std::string::npos ? std::string_view() : std::string_view(request.rule).substr(colon + 1);
  while (!rest.empty()) {
    const size_t comma = rest.find(',');
    const std::string_view item = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const size_t equals = item.find('=');
    const std::string key(item.substr(0, equals));
    const RuleParameter* found = nullptr;
    for (const auto& list : {rule->parameters, kCommon})
      for (const RuleParameter& parameter : list)
        if (found == nullptr && key == parameter.name) found = &parameter;
    if (found == nullptr)
      return invalid_argument("step cache: {} has no parameter \"{}\"; it takes {}", name, key,
                              fmt::join(parameter_names(*rule), ", "));
    if (equals == std::string_view::npos)
      return invalid_argument("step cache: {} needs a value: {}={}", key, key, found->fallback);
    REDLINE_TRY(values.set(*found, std::string(item.substr(equals + 1)), true)
                    .within(fmt::format("step cache: {}: {}", name, key)));
    given += fmt::format("{}{}", given.empty() ? ":" : ",", item);
  }
  if (has_quality) {
    if (rule->threshold_at_half <= 0)
      return invalid_argument("step cache: {} has no threshold that a quality could set", name);
    if (values.given("threshold"))
      return invalid_argument("step cache: a threshold and a quality exclude each other; give one of them");
    values.set_number("threshold", rule->threshold_at_half * 2 * (1 - request.quality));
    given += fmt::format("{}threshold={:.4g}", given.empty() ? ":" : ",", values.number("threshold"));
  }
  if (has_budget && !rule->takes_budget) {
    std::vector<std::string_view> able;
    for (const RuleRow* row : kRules)
      if (row->takes_budget) able.emplace_back(row->name);
    return invalid_argument("step cache: {} takes no budget of steps; these rules do: {}", name, fmt::join(able, ", "));
  }
  Result<RulePlan> plan = rule->plan(values, request);
  if (!plan.ok()) return std::move(plan).within(fmt::format("step cache: {}", name));
  REDLINE_TRY(apply_common(values, *plan).within(fmt::format("step cache: {}", name)));
  if (plan->description.empty()) plan->description = name + given;
  return plan;
}

std::vector<StepCacheRule> step_cache_rules() {
  std::vector<StepCacheRule> all;
  for (const RuleRow* row : kRules)
    all.push_back(
        {row->name, row->summary, row->source, row->is_default, row->threshold_at_half > 0, row->takes_budget});
  return all;
}

std::string rules_help() {
  std::string text;
  for (const RuleRow* rule : kRules) {
    text += fmt::format("{:<12} {} ({})\n", rule->name, rule->summary, rule->source);
    for (const RuleParameter& p : rule->parameters)
      text += fmt::format("{:<14}{}={}  {}\n", "", p.name, p.fallback, p.help);
  }
  text += "\nEvery rule also takes\n";
  for (const RuleParameter& p : kCommonParameters) text += fmt::format("{:<14}{}  {}\n", "", p.name, p.help);
  text += "\nForecasters\n";
  for (const ForecasterRow& f : forecasters()) text += fmt::format("{:<14}{:<10} {}\n", "", f.name, f.summary);
  return text;
}

}  // namespace redline
