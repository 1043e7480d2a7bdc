#include "server/thinking_fields.h"

namespace redline::server {
namespace {

const Schema template_variables_schema{"TemplateVariables", {}, true};

}  // namespace

const std::vector<Field>& thinking_fields() {
  static const std::vector<Field> fields = {
      {"reasoning_effort",
       kString,
       "a variable of the chat template; none: no thinking, auto: as the template has it",
       {.choices = {"none", "minimal", "low", "medium", "high", "xhigh", "max", "auto"}}},
      {"enable_thinking", kBoolean, "a variable of the chat template: whether the model thinks before it answers"},
      {"chat_template_kwargs",
       kObject,
       "further variables of the chat template",
       {.object = &template_variables_schema}}};
  return fields;
}

std::string thinking_of(const Json& body) {
  const auto enabled = body.find("enable_thinking");
  return thinking_of(enabled == body.end() ? std::nullopt : std::optional(enabled->get<bool>()),
                     body.value("reasoning_effort", std::string()));
}

std::string thinking_of(std::optional<bool> is_enabled, const std::string& effort) {
  if (is_enabled == false) return "off";
  if (!effort.empty() && effort != "auto") return effort;
  return is_enabled ? "on" : "";
}

const std::vector<Field>& reasoning_place_fields() {
  static const std::vector<Field> fields = {
      {"include_reasoning", kBoolean, "false: the answer has no reasoning; the model thinks all the same"},
      {"reasoning_format",
       kString,
       "none, raw: reasoning is part of the content, between <think> and </think>; hidden: the answer has none; the "
       "others: in reasoning_content, which is the default",
       {.choices = {"auto", "none", "deepseek", "deepseek-legacy", "parsed", "raw", "hidden"}}}};
  return fields;
}

ReasoningPlace reasoning_place_of(const Json& body) {
  const std::string format = body.value("reasoning_format", std::string());
  if (format == "hidden" || !body.value("include_reasoning", true)) return ReasoningPlace::kNowhere;
  return format == "none" || format == "raw" ? ReasoningPlace::kContent : ReasoningPlace::kApart;
}

}  // namespace redline::server
