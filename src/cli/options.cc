#include "cli/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/text_distance.h"
#include "cli/pooling_option.h"
#include "cli/precision_option.h"

namespace redline::cli {
namespace {

/// Compares in the type of the field, so that a float32 of 0.01 is not below a limit of 0.01.
template <class T>
Status check_limits(std::string_view text, T value, const OptionRule& rule) {
  using Wide = std::conditional_t<std::is_integral_v<T>, double, T>;
  const auto number = static_cast<Wide>(value);
  if ((!rule.min || number >= static_cast<Wide>(*rule.min)) && (!rule.max || number <= static_cast<Wide>(*rule.max)))
    return {};
  if (rule.min && rule.max)
    return invalid_argument("{} is out of range; allowed: {} to {}", text, *rule.min, *rule.max);
  if (rule.min) return invalid_argument("{} is out of range; allowed: {} or more", text, *rule.min);
  return invalid_argument("{} is out of range; allowed: up to {}", text, *rule.max);
}

template <class T>
Status read_number(std::string_view text, T& field, const OptionRule& rule) {
  constexpr bool kIsWhole = std::is_integral_v<T>;
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, value);
  if (problem == std::errc::result_out_of_range && rest == end && !text.empty())
    return invalid_argument("{} is too large for this flag", text);
  bool good = problem == std::errc() && rest == end;
  if constexpr (!kIsWhole) good = good && std::isfinite(value);
  if (!good) return invalid_argument("'{}' is not a {}", text, kIsWhole ? "whole number" : "number");
  REDLINE_TRY(check_limits(text, value, rule));
  field = value;
  return {};
}

Status read_value(std::string_view text, int& field, const OptionRule& rule) { return read_number(text, field, rule); }
Status read_value(std::string_view text, int64_t& field, const OptionRule& rule) {
  REDLINE_TRY(read_number(text, field, rule));
  field *= rule.unit;
  return {};
}
Status read_value(std::string_view text, uint64_t& field, const OptionRule& rule) {
  if (text.starts_with('-')) return invalid_argument("{} is out of range; allowed: 0 or more", text);
  return read_number(text, field, rule);
}
Status read_value(std::string_view text, float& field, const OptionRule& rule) {
  return read_number(text, field, rule);
}
Status read_value(std::string_view text, double& field, const OptionRule& rule) {
  return read_number(text, field, rule);
}
Status read_value(std::string_view, bool& field, const OptionRule& rule) {
  field = !rule.turns_off;
  return {};
}
Status read_value(std::string_view text, std::string& field, const OptionRule& rule) {
  if (!rule.choices.empty() && std::find(rule.choices.begin(), rule.choices.end(), text) == rule.choices.end())
    return invalid_argument("'{}' is not one of {}{}", text, fmt::join(rule.choices, ", "),
                            nearest_hint(text, rule.choices));
  field = text;
  return {};
}
Status read_value(std::string_view text, Precision& field, const OptionRule& rule) {
  std::string name;
  REDLINE_TRY(read_value(text, name, rule));
  REDLINE_ASSIGN(field, precision_from_name(name));
  return {};
}
Status read_value(std::string_view text, std::optional<Pooling>& field, const OptionRule& rule) {
  std::string name;
  REDLINE_TRY(read_value(text, name, rule));
  REDLINE_ASSIGN(field, pooling_from_name(name));
  return {};
}
/// Reads an unsigned value. If the rule's minimum is -1, the value -1 leaves the field unset, as if the flag were not
/// given.
Status read_value(std::string_view text, std::optional<uint64_t>& field, const OptionRule& rule) {
  if (text == "-1" && rule.min == -1) return {};
  uint64_t value = 0;
  REDLINE_TRY(read_value(text, value, {}));
  field = value;
  return {};
}
template <class T>
Status read_value(std::string_view text, std::optional<T>& field, const OptionRule& rule) {
  T value{};
  REDLINE_TRY(read_value(text, value, rule));
  field = std::move(value);
  return {};
}
Status read_value(std::string_view text, std::vector<std::string>& field, const OptionRule& rule) {
  REDLINE_TRY(read_value(text, field.emplace_back(), rule));
  return {};
}
Status read_value(std::string_view text, std::vector<int64_t>& field, const OptionRule& rule) {
  std::vector<int64_t> values;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    REDLINE_TRY(read_value(text.substr(begin, end - begin), values.emplace_back(), rule));
    begin = end + 1;
  }
  field = std::move(values);
  return {};
}

template <class T>
std::string show(const T& field, const OptionRule&) {
  return fmt::format("{}", field);
}
std::string show(const int64_t& field, const OptionRule& rule) { return fmt::format("{}", field / rule.unit); }
std::string show(const bool&, const OptionRule&) { return ""; }
std::string show(const Precision& field, const OptionRule&) { return std::string(precision_name(field)); }
std::string show(const Pooling& field, const OptionRule&) { return std::string(pooling_name(field)); }
template <class T>
std::string show(const std::optional<T>& field, const OptionRule& rule) {
  return field ? show(*field, rule) : "";
}
std::string show(const std::vector<std::string>&, const OptionRule&) { return ""; }
std::string show(const std::vector<int64_t>& field, const OptionRule&) {
  return fmt::format("{}", fmt::join(field, ","));
}

/// Parses the arguments of one command in one pass.
class Parser {
 public:
  Parser(const OptionList& options, std::span<const std::string> arguments, std::string_view program)
      : options_(options), arguments_(arguments), program_(program) {}

  Result<ParsedOptions> parse() {
    for (const std::string& a : arguments_) {
      if (a == "--") break;
      if (a == "-h" || a == "--help") {
        parsed_.wants_help = true;
        return std::move(parsed_);
      }
    }
    std::vector<std::string> words;
    bool flags_ended = false;
    while (next_ < arguments_.size()) {
      const std::string& a = arguments_[next_++];
      if (flags_ended || a == "-" || !a.starts_with('-')) {
        words.push_back(a);
      } else if (a == "--") {
        flags_ended = true;
      } else {
        REDLINE_TRY(take_flag(a));
      }
    }
    for (const std::string& word : words) REDLINE_TRY(take_argument(word));
    for (const Option& o : options_.all())
      if (o.is_argument && !o.rule.optional && !given_.count(o.name))
        return invalid_argument("{} is missing; usage: {}", o.name, usage_of(options_, program_));
    for (const Option& o : options_.all())
      if (o.rule.is_required && !parsed_.given.count(o.name))
        return invalid_argument("flag --{} {} is missing: {}; usage: {}", o.name, o.value, o.help,
                                usage_of(options_, program_));
    for (const Option& o : options_.all())
      if (parsed_.given.count(o.name)) REDLINE_TRY(check_effect(o));
    return std::move(parsed_);
  }

 private:
  /// Takes the flag `a`, which begins with a dash, and its value.
  Status take_flag(const std::string& a) {
    const size_t equals = a.find('=');
    const std::string given = a.substr(0, equals);
    std::string name = given;
    if (name.starts_with("--")) std::replace(name.begin(), name.end(), '_', '-');
    const Option* option = name.starts_with("--") ? options_.find(std::string_view(name).substr(2)) : nullptr;
    if (!option || option->is_argument) option = options_.find_alias(name);
    if (option && equals == std::string::npos) return take_value(*option, given);
    if (option && option->value.empty() && !option->is_argument)
      return invalid_argument("flag {} takes no value; got '{}'", given, a.substr(equals + 1));
    if (option) return set(*option, given, a.substr(equals + 1));
    if (const ForeignFlags* foreign = options_.find_foreign(name))
      return answer(*foreign, given, equals != std::string::npos);
    return name.starts_with("--") ? unknown(given) : take_letter(a);
  }

  Status answer(const ForeignFlags& foreign, const std::string& name, bool has_value) {
    using Kind = ForeignFlags::Kind;
    if (!has_value && next_ < arguments_.size()) {
      const auto& values = foreign.values;
      if (foreign.takes_value || std::find(values.begin(), values.end(), arguments_[next_]) != values.end()) ++next_;
    }
    if (foreign.kind == Kind::kRefused) return invalid_argument("flag {}: {}", name, foreign.answer);
    if (foreign.kind == Kind::kIgnored)
      parsed_.notes.push_back(fmt::format("flag {} has no effect: {}", name, foreign.answer));
    return {};
  }

  Status check_effect(const Option& o) const {
    const auto is_given = [&](const std::string& name) { return parsed_.given.count(name) != 0; };
    for (const std::string& other : o.rule.not_with)
      if (is_given(other)) return invalid_argument("flag --{} has no effect with --{}", o.name, other);
    if (o.rule.needs.empty() || std::any_of(o.rule.needs.begin(), o.rule.needs.end(), is_given)) return {};
    return invalid_argument("flag --{} has no effect without --{}", o.name, fmt::join(o.rule.needs, " or --"));
  }

  Status take_letter(const std::string& a) {
    const Option* option = options_.find_letter(a[1]);
    // "-temperature" is a long name with one dash short, not the letter t with
    // a value.
    const bool is_long = options_.find(std::string_view(a).substr(1, a.find('=') - 1)) != nullptr;
    if (!option || is_long || (a.size() > 2 && option->value.empty())) return unknown(a);
    const std::string name = a.substr(0, 2);
    if (a.size() == 2) return take_value(*option, name);
    return set(*option, name, a.substr(a[2] == '=' ? 3 : 2));
  }

  Status take_value(const Option& option, const std::string& name) {
    if (option.value.empty() && !option.is_argument) return set(option, name, "");
    if (next_ == arguments_.size())
      return invalid_argument("flag {} needs a value {}", name, option.is_argument ? option.name : option.value);
    const std::string& value = arguments_[next_];
    if (value.starts_with("--") && options_.find(std::string_view(value).substr(2)))
      return invalid_argument(
          "flag {} needs a value {}; the flag {} follows "
          "(write {}={} if that is the value)",
          name, option.is_argument ? option.name : option.value, value, name, value);
    ++next_;
    return set(option, name, value);
  }

  Status set(const Option& option, const std::string& name, const std::string& value) {
    parsed_.given.insert(option.name);
    if (!option.is_repeatable) {
      const auto [earlier, is_new] = given_.emplace(option.name, value);
      if (!is_new && option.value.empty() && !option.is_argument)
        return invalid_argument("flag {} is given twice", name);
      if (!is_new)
        return invalid_argument("flag {} is given twice, with {} and {}; give it once", name, earlier->second, value);
    }
    Status status = option.read(value);
    if (!status.ok())
      return invalid_argument("flag {}: {}{}{}", name, status.message(), option.rule.hint.empty() ? "" : "; ",
                              option.rule.hint);
    return {};
  }

  Status take_argument(const std::string& a) {
    for (const Option& o : options_.all()) {
      if (!o.is_argument || (given_.count(o.name) && !o.is_repeatable)) continue;
      given_.emplace(o.name, a);
      parsed_.given.insert(o.name);
      Status status = o.read(a);
      if (!status.ok()) return invalid_argument("argument {}: {}", o.name, status.message());
      return {};
    }
    return invalid_argument("unexpected argument '{}' (a text with spaces needs quotes); usage: {}", a,
                            usage_of(options_, program_));
  }

  Status unknown(const std::string& a) const {
    std::vector<std::string> names = {"help"};
    for (const Option& o : options_.all()) {
      if (!o.is_argument) names.push_back(o.name);
      for (const std::string& alias : o.rule.aliases)
        if (alias.starts_with("--")) names.push_back(alias.substr(2));
    }
    const std::string word = a.substr(a.find_first_not_of('-') == std::string::npos ? 0 : a.find_first_not_of('-'));
    std::string hint = nearest_hint(word.substr(0, word.find('=')), names, "--");
    if (hint.empty()) hint = fmt::format("; see {} --help; if it is text and no flag, put -- before it", program_);
    return invalid_argument("unknown flag {}{}", a, hint);
  }

  const OptionList& options_;
  std::span<const std::string> arguments_;
  std::string_view program_;
  size_t next_ = 0;
  std::map<std::string, std::string> given_;  // name -> text
  ParsedOptions parsed_;
};

}  // namespace

template <class T>
void OptionList::add(T& field, std::string name, std::string value, std::string help, OptionRule rule,
                     bool is_argument) {
  Option o{std::move(name), std::move(value), std::move(help), std::move(rule), is_argument};
  o.is_repeatable = std::is_same_v<T, std::vector<std::string>>;
  if constexpr (std::is_same_v<T, Precision>) o.rule.choices = precision_names();
  if constexpr (std::is_same_v<T, std::optional<Pooling>>) o.rule.choices = pooling_names();
  o.group = group_;
  o.default_text = !o.rule.shown_default.empty() ? o.rule.shown_default : show(field, o.rule);
  o.read = [&field, limits = o.rule](std::string_view text) { return read_value(text, field, limits); };
  options_.push_back(std::move(o));
}
#define REDLINE_OPTION_TYPE(...) \
  template void OptionList::add(__VA_ARGS__&, std::string, std::string, std::string, OptionRule, bool)
REDLINE_OPTION_TYPE(bool);
REDLINE_OPTION_TYPE(int);
REDLINE_OPTION_TYPE(int64_t);
REDLINE_OPTION_TYPE(float);
REDLINE_OPTION_TYPE(double);
REDLINE_OPTION_TYPE(Precision);
REDLINE_OPTION_TYPE(std::string);
REDLINE_OPTION_TYPE(std::optional<int64_t>);
REDLINE_OPTION_TYPE(std::optional<uint64_t>);
REDLINE_OPTION_TYPE(std::optional<float>);
REDLINE_OPTION_TYPE(std::optional<Pooling>);
REDLINE_OPTION_TYPE(std::optional<std::string>);
REDLINE_OPTION_TYPE(std::vector<std::string>);
REDLINE_OPTION_TYPE(std::vector<int64_t>);
#undef REDLINE_OPTION_TYPE

const Option* OptionList::find(std::string_view name) const {
  for (const Option& o : options_)
    if (o.name == name) return &o;
  return nullptr;
}

const Option* OptionList::find_letter(char letter) const {
  for (const Option& o : options_)
    if (letter != 0 && o.rule.letter == letter) return &o;
  return nullptr;
}

const Option* OptionList::find_alias(std::string_view name) const {
  for (const Option& o : options_)
    if (std::find(o.rule.aliases.begin(), o.rule.aliases.end(), name) != o.rule.aliases.end()) return &o;
  return nullptr;
}

const ForeignFlags* OptionList::find_foreign(std::string_view name) const {
  for (const ForeignFlags& f : foreign_)
    if (std::find(f.names.begin(), f.names.end(), name) != f.names.end()) return &f;
  return nullptr;
}

Result<ParsedOptions> parse_options(const OptionList& options, std::span<const std::string> arguments,
                                    std::string_view program) {
  return Parser(options, arguments, program).parse();
}

std::string usage_of(const OptionList& options, std::string_view program) {
  std::string usage = fmt::format("{} [options]", program);
  for (const Option& o : options.all())
    if (o.rule.is_required) usage += fmt::format(" --{} {}", o.name, o.value);
  for (const Option& o : options.all())
    if (o.is_argument)
      usage += fmt::format(" {}{}{}{}", o.rule.optional ? "[" : "", o.name, o.is_repeatable ? "..." : "",
                           o.rule.optional ? "]" : "");
  return usage;
}

std::string nearest_hint(std::string_view word, const std::vector<std::string>& candidates, std::string_view prefix) {
  const std::vector<std::string_view> views(candidates.begin(), candidates.end());
  const std::string_view near = nearest_name(word, views);
  return near.empty() ? "" : fmt::format("; did you mean {}{}?", prefix, near);
}

}  // namespace redline::cli
