#include "server/client_tools.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_text.h"

namespace redline::server {
namespace {

constexpr char kCustomInput[] = "input";

const Schema any_members{"AnyObject", {}, true};
const Field any_member{"", kAny, ""};
const Schema allowed_tools_schema{
    "AllowedTools",
    {{"mode", kString, "required: one of them is called", {.choices = {"auto", "required"}}},
     {"tools", kArray, "the tools that may be called", {.items = &any_member}}}};
const Schema chosen_name_schema{"ToolName", {{"name", kString, "", {.required = true, .max_length = 1000}}}};

std::string text_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Returns the name of a tool. 400: it does not have 1 to 1000 characters.
Outcome<std::string> checked_name(const Json& tool, const std::string& path) {
  const auto found = tool.find("name");
  if (found == tool.end() || found->is_null())
    return bad_request(path + ".name", path + ".name is missing", "missing_required_parameter");
  constexpr size_t kMaxName = 1000;
  if (!found->is_string() || found->get_ref<const std::string&>().empty() ||
      found->get_ref<const std::string&>().size() > kMaxName)
    return bad_request(path + ".name", fmt::format("{}.name must be a string of 1 to {} bytes", path, kMaxName),
                       "invalid_value");
  return found->get<std::string>();
}

/// Returns the description of a custom tool's text for the model.
std::string custom_description(const Json& custom) {
  std::string text = text_member(custom, "description");
  const Json format = custom.value("format", Json());
  if (!format.is_object() || text_member(format, "type") != "grammar") return text;
  // The Chat API has the members in an object `grammar`, the Responses API in the format itself.
  const Json grammar = format.value("grammar", format);
  const std::string definition = grammar.is_object() ? text_member(grammar, "definition") : "";
  if (definition.empty()) return text;
  const bool is_regex = text_member(grammar, "syntax") == "regex";
  return text + (text.empty() ? "" : "\n\n") +
         fmt::format("The input matches this {}:\n{}", is_regex ? "regular expression" : "Lark grammar", definition);
}

class ToolReader {
 public:
  std::optional<ApiError> function(const Json& tool, const std::string& space, const std::string& path,
                                   const char* parameters) {
    auto name = checked_name(tool, path);
    if (!name.ok()) return name.error();
    Json shown = {{"name", name_in_space(space, *name)}};
    if (std::string_view(parameters) == "input_schema") shown["description"] = "";
    for (const auto& [from, to] : {std::pair{"description", "description"}, std::pair{parameters, "parameters"}})
      if (const auto found = tool.find(from); found != tool.end() && !found->is_null()) shown[to] = *found;
    if (shown.contains("parameters") && !shown["parameters"].is_object())
      return bad_request(fmt::format("{}.{}", path, parameters),
                         fmt::format("{}.{} must be an object", path, parameters), "invalid_type");
    const auto strict = tool.find("strict");
    add(std::move(shown), {*name, space, false, nullptr, strict != tool.end() && *strict == true});
    return std::nullopt;
  }
  std::optional<ApiError> custom(const Json& tool, const std::string& space, const std::string& path) {
    auto name = checked_name(tool, path);
    if (!name.ok()) return name.error();
    Json shown = {{"name", name_in_space(space, *name)}};
    if (const std::string description = custom_description(tool); !description.empty())
      shown["description"] = description;
    shown["parameters"] = {{"type", "object"},
                           {"properties", {{kCustomInput, {{"type", "string"}}}}},
                           {"required", Json::array({kCustomInput})},
                           {"additionalProperties", false}};
    const Json format = tool.value("format", Json());
    const bool has_grammar = format.is_object() && text_member(format, "type") == "grammar";
    add(std::move(shown), {*name, space, true, has_grammar ? format : Json()});
    return std::nullopt;
  }
  void skip(const std::string& what) {
    const std::string text = fmt::format("tools[{}]", what.substr(0, 64));
    if (std::find(tools_.skipped.begin(), tools_.skipped.end(), text) == tools_.skipped.end())
      tools_.skipped.push_back(text);
  }
  ClientTools take() { return std::move(tools_); }

 private:
  void add(Json function, ClientTool tool) {
    tools_.known.emplace(function["name"].get<std::string>(), std::move(tool));
    tools_.functions.push_back({{"type", "function"}, {"function", std::move(function)}});
  }
  ClientTools tools_;
};

}  // namespace

const Schema tool_choice_schema{
    .name = "ToolChoice",
    .fields = {
        {"type", kString, "function, custom or allowed_tools", {.required = true, .max_length = 1000}},
        {"name", kString, "name of a tool", {.min_length = 1, .max_length = 1000}},
        {"namespace", kString, "namespace of the tool", {.max_length = 1000}},
        {"function", kObject, "object with the name, in the Chat API", {.object = &chosen_name_schema}},
        {"custom", kObject, "object with the name, in the Chat API", {.object = &chosen_name_schema}},
        {"mode", kString, "mode of allowed_tools: auto or required", {.choices = {"auto", "required"}}},
        {"tools", kArray, "tools of allowed_tools", {.items = &any_member}},
        {"allowed_tools", kObject, "object with mode and tools, in the Chat API", {.object = &allowed_tools_schema}}}};

ClientTool ClientTools::find(const std::string& name) const {
  const auto found = known.find(name);
  return found == known.end() ? ClientTool{name, "", false} : found->second;
}

std::string name_in_space(const std::string& space, const std::string& name) {
  if (space.empty()) return name;
  return space + (space.ends_with("__") ? "" : "__") + name;
}

std::string custom_arguments(const std::string& input) { return to_text(Json{{kCustomInput, input}}); }

std::string custom_input(const std::string& arguments) {
  const Json json = parse_json_or_discard<Json>(arguments);
  if (!json.is_object()) return arguments;
  if (const auto input = json.find(kCustomInput); input != json.end() && input->is_string())
    return input->get<std::string>();
  return json.size() == 1 && json.front().is_string() ? json.front().get<std::string>() : arguments;
}

Outcome<ClientTools> response_tools(const Json& tools) {
  ToolReader reader;
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& tool = tools[i];
    const std::string path = fmt::format("tools[{}]", i), type = text_member(tool, "type");
    std::optional<ApiError> error;
    if (type.empty()) return bad_request(path + ".type", path + ".type is missing", "missing_required_parameter");
    if (type == "function") {
      error = reader.function(tool, "", path, "parameters");
    } else if (type == "custom") {
      error = reader.custom(tool, "", path);
    } else if (type == "namespace") {
      auto space = checked_name(tool, path);
      if (!space.ok()) return space.error();
      const Json nested = tool.value("tools", Json::array());
      for (size_t k = 0; k < nested.size() && !error; ++k) {
        const std::string place = fmt::format("{}.tools[{}]", path, k);
        if (!nested[k].is_object()) return bad_request(place, place + " must be an object", "invalid_type");
        const std::string kind = text_member(nested[k], "type");
        if (kind == "function" || kind.empty()) error = reader.function(nested[k], *space, place, "parameters");
        else if (kind == "custom") error = reader.custom(nested[k], *space, place);
        else reader.skip(*space + "." + kind);
      }
    } else {
      reader.skip(type);
    }
    if (error) return *error;
  }
  return reader.take();
}

Outcome<ClientTools> chat_tools(const Json& tools) {
  ToolReader reader;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i), type = text_member(tools[i], "type");
    if (type.empty()) return bad_request(path + ".type", path + ".type is missing", "missing_required_parameter");
    if (type != "function" && type != "custom") {
      reader.skip(type);
      continue;
    }
    const auto nested = tools[i].find(type);
    const std::string place = fmt::format("{}.{}", path, type);
    if (nested == tools[i].end() || !nested->is_object())
      return bad_request(place, place + " is missing: an object with the name of the tool",
                         "missing_required_parameter");
    auto error =
        type == "function" ? reader.function(*nested, "", place, "parameters") : reader.custom(*nested, "", place);
    if (error) return *error;
  }
  return reader.take();
}

Outcome<ClientTools> message_tools(const Json& tools) {
  ToolReader reader;
  for (size_t i = 0; i < tools.size(); ++i) {
    const std::string path = fmt::format("tools[{}]", i), type = text_member(tools[i], "type");
    if (!type.empty() && type != "custom") {
      reader.skip(type);
      continue;
    }
    if (!tools[i].contains("input_schema"))
      return bad_request(path + ".input_schema", path + ".input_schema is missing: a JSON Schema",
                         "missing_required_parameter");
    if (auto error = reader.function(tools[i], "", path, "input_schema")) return *error;
  }
  return reader.take();
}

void note_ignored(Call& call, const std::vector<std::string>& names) {
  for (const std::string& name : names)
    if (std::find(call.ignored.begin(), call.ignored.end(), name) == call.ignored.end()) call.ignored.push_back(name);
}

namespace {

/// Returns the model's name of the tool that `choice` names in the shape of either API.
Outcome<std::string> chosen_tool(const Json& choice, const ClientTools& tools, bool is_chat) {
  const std::string type = text_member(choice, "type");
  if (type != "function" && type != "custom")
    return bad_request("tool_choice",
                       fmt::format("tool_choice names a tool of type \"{}\", which this server does not run; it can "
                                   "name tools of type function and custom",
                                   type.substr(0, 64)),
                       "unsupported_value");
  std::string name = text_member(choice, "name");
  if (name.empty() && choice.contains(type) && choice[type].is_object()) name = text_member(choice[type], "name");
  if (name.empty()) {
    const std::string path = is_chat ? fmt::format("tool_choice.{}", type) : "tool_choice.name";
    return bad_request(path, path + " is missing: the tool to call", "missing_required_parameter");
  }
  const std::string space = text_member(choice, "namespace");
  for (const auto& [shown, tool] : tools.known)
    if (tool.name == name && (space.empty() || tool.space == space)) return shown;
  return name;  // unknown tool: force_call() returns the error, which lists the known ones
}

}  // namespace

Outcome<ToolDemand> tool_demand(const Json& choice, ClientTools& tools, bool is_chat) {
  if (choice.is_string()) return ToolDemand{choice == "required" || choice == "any", ""};  // "any" is Mistral's name
  if (!choice.is_object()) return ToolDemand{};
  if (text_member(choice, "type") != "allowed_tools") {
    SERVER_ASSIGN(std::string name, chosen_tool(choice, tools, is_chat));
    return ToolDemand{true, std::move(name)};
  }
  const Json& allowed = choice.contains("allowed_tools") ? choice["allowed_tools"] : choice;
  std::vector<std::string> names;
  for (const Json& entry : allowed.value("tools", Json::array())) {
    const std::string type = entry.is_object() ? text_member(entry, "type") : "";
    if (type != "function" && type != "custom") continue;  // errors of `tools` have named it already
    SERVER_ASSIGN(std::string name, chosen_tool(entry, tools, is_chat));
    names.push_back(std::move(name));
  }
  Json kept = Json::array();
  for (Json& tool : tools.functions)
    if (std::find(names.begin(), names.end(), tool["function"]["name"].get<std::string>()) != names.end())
      kept.push_back(std::move(tool));
  tools.functions = std::move(kept);
  return ToolDemand{text_member(allowed, "mode") == "required", ""};
}

}  // namespace redline::server
