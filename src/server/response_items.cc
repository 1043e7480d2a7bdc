#include "server/response_items.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text_distance.h"
#include "server/chat.h"
#include "server/generation.h"
#include "server/ids.h"

namespace redline::server {
namespace {

const Schema response_part_schema{
    .name = "ResponsePart",
    .fields = {{"type",
                kString,
                "",
                {.required = true, .choices = {"input_text", "output_text", "text", "reasoning_text", "summary_text"}}},
               {"text", kString, "", {.required = true}},
               {"annotations", kArray, "", {.is_ignored = true}},
               {"logprobs", kArray, "", {.is_ignored = true}},
               {"prompt_cache_breakpoint", kObject, "", {.is_ignored = true}}},
    .refused = refused_parts()};
const Field response_part{"", kObject, "", {.object = &response_part_schema}};
const Schema response_open_schema{"AnyObject", {}, true};
const Schema response_item_schema{
    "ResponseInputItem",
    {{"type", kString, "message, function_call, custom_tool_call, reasoning ..."},
     {"id", kString, ""},
     {"status", kString, ""},
     {"role", kString, "role of a message", {.choices = {"user", "assistant", "system", "developer"}}},
     {"content", kString | kArray, "content of a message", {.items = &response_part}},
     {"phase", kString, "", {.is_ignored = true}},
     {"end_turn", kBoolean, "", {.is_ignored = true}},
     {"call_id", kString, "id of a call, also in its output"},
     {"name", kString, "name of the tool of a call"},
     {"namespace", kString, "namespace of the tool of a call"},
     {"arguments", kAny, "arguments of a call"},
     {"input", kString, "text of a call of a custom tool"},
     {"action", kObject, "command of a call of a shell", {.object = &response_open_schema}},
     {"operation", kObject, "operation of a call of apply_patch", {.object = &response_open_schema}},
     {"server_label", kString, "", {.is_ignored = true}},
     {"output", kAny, "output of a call"},
     {"summary", kArray, "summary of reasoning whose text is missing"},
     {"caller", kObject, "", {.is_ignored = true}},
     {"encrypted_content", kString, "", {.is_ignored = true}},
     {"tools", kArray, "", {.is_ignored = true}},
     {"execution", kString, "", {.is_ignored = true}}}};
const Field any_response_item{"", kAny, ""};
const Field included_with_items{"", kString, "", {.max_length = 100}};

}  // namespace

const Field response_item{"", kObject, "", {.object = &response_item_schema}};
const Schema items_query_schema{
    "ResponseInputItemsQuery",
    {{"limit", kInteger, "items of a page; default: 20", {.min = 1, .max = 100}},
     {"after", kString, "the id of an item: those that follow it", {.max_length = 100}},
     {"order", kString, "order by time; default: the newest first", {.choices = {"asc", "desc"}}},
     {"include", kArray, "", {.max_items = 8, .items = &included_with_items, .is_ignored = true}}}};
const Schema items_list_schema{
    "ResponseItemList",
    {{"object", kString, "", {.required = true, .choices = {"list"}}},
     {"data", kArray, "items", {.required = true, .items = &any_response_item}},
     {"first_id", kString, "id of the first item of the page", {.required = true, .is_nullable = true}},
     {"last_id", kString, "id of the last item of the page", {.required = true, .is_nullable = true}},
     {"has_more", kBoolean, "", {.required = true}}}};

Json listed_items(const Json& items) {
  Json listed = Json::array();
  for (Json item : items) {
    const std::string type = item.value("type", std::string("message"));
    item["type"] = type;
    if (!item.contains("status") && type != "reasoning") item["status"] = "completed";
    const char* prefix = type == "message"                      ? "msg_"
                         : type == "reasoning"                  ? "rs_"
                         : type.starts_with("custom_tool_call") ? "ctc_"
                                                                : "fc_";
    if (!item.contains("id")) item["id"] = new_id(prefix);
    if (type == "message" && item["content"].is_string()) {
      const bool is_answer = item["role"] == "assistant";
      Json part = {{"type", is_answer ? "output_text" : "input_text"}, {"text", std::move(item["content"])}};
      if (is_answer) part["annotations"] = Json::array();
      item["content"] = Json::array({std::move(part)});
    }
    listed.push_back(std::move(item));
  }
  return listed;
}

Json items_list(Json items, bool has_more) {
  Json list = {{"object", "list"}, {"data", std::move(items)}, {"has_more", has_more}};
  const Json& data = list["data"];
  list["first_id"] = data.empty() ? Json() : data.front()["id"];
  list["last_id"] = data.empty() ? Json() : data.back()["id"];
  return list;
}

Outcome<Json> items_page(const Json& items, const Json& query) {
  Json ordered = items;
  if (query.value("order", "desc") == "desc") std::reverse(ordered.begin(), ordered.end());
  auto begin = ordered.begin();
  if (const std::string after = query.value("after", std::string()); !after.empty()) {
    begin = std::find_if(ordered.begin(), ordered.end(), [&](const Json& item) { return item["id"] == after; });
    if (begin == ordered.end())
      return bad_request("after", fmt::format("there is no item \"{}\"", after.substr(0, 64)), "invalid_value");
    ++begin;
  }
  const auto end = begin + std::min<std::ptrdiff_t>(ordered.end() - begin, query.value("limit", 20));
  return items_list(Json(begin, end), end != ordered.end());
}

namespace {

std::string string_member(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

/// Types of items for what other servers' own tools have done. Only those servers can read them, so they are left out.
/// Types that are not in these lists are left out too.
constexpr std::string_view kLeftOut[] = {
    "web_search_call",    "file_search_call",   "code_interpreter_call", "image_generation_call", "tool_search_call",
    "tool_search_output", "mcp_list_tools",     "mcp_approval_request",  "mcp_approval_response", "compaction",
    "compaction_summary", "compaction_trigger", "context_compaction",    "ghost_snapshot",        "item_reference"};
constexpr std::string_view kUsed[] = {"message",          "reasoning",
                                      "function_call",    "function_call_output",
                                      "custom_tool_call", "custom_tool_call_output",
                                      "local_shell_call", "local_shell_call_output",
                                      "shell_call",       "shell_call_output",
                                      "apply_patch_call", "apply_patch_call_output",
                                      "mcp_call"};

/// Converts items to messages of OpenAI's chat API.
class ItemReader {
 public:
  ItemReader(const char* list, Json& messages, std::vector<std::string>& ignored)
      : list_(list), messages_(messages), ignored_(ignored) {}

  std::optional<ApiError> add(const Json& item, size_t i) {
    const std::string type = item.value("type", std::string("message"));
    path_ = fmt::format("{}[{}]", list_, i);
    if (type == "message") return add_message(item);
    if (type == "reasoning") return add_reasoning(item);
    if (type == "function_call" || type == "custom_tool_call" || type == "mcp_call") {
      const bool is_custom = type == "custom_tool_call", is_mcp = type == "mcp_call";
      const char* given = is_custom ? "input" : "arguments";
      for (const char* field : {is_mcp ? "id" : "call_id", "name", given})
        if (!item.contains(field)) return needs(field);
      const std::string call_id = item[is_mcp ? "id" : "call_id"];
      const std::string arguments = is_custom ? custom_arguments(item["input"]) : text_or_json(item["arguments"]);
      add_call({call_id, name_in_space(string_member(item, "namespace"), item["name"]), arguments});
      return is_mcp && item.contains("output") ? add_output(call_id, item["output"]) : std::nullopt;
    }
    if (type == "local_shell_call" || type == "shell_call" || type == "apply_patch_call") {
      const char* given = type == "apply_patch_call" ? "operation" : "action";
      if (!item.contains(given)) return needs(given);
      const std::string id = string_member(item, item.contains("call_id") ? "call_id" : "id");
      if (id.empty()) return needs("call_id");
      add_call({id, type.substr(0, type.size() - std::string_view("_call").size()), to_text(item[given])});
      return std::nullopt;
    }
    if (std::find(std::begin(kUsed), std::end(kUsed), type) != std::end(kUsed)) {  // types such as function_call_output
      const char* id = item.contains("call_id") ? "call_id" : "id";
      const bool may_have_id = type == "local_shell_call_output";
      if (!item.contains("call_id") && !(may_have_id && item.contains("id"))) return needs("call_id");
      if (!item.contains("output")) return needs("output");
      return add_output(item[id], item["output"]);
    }
    return leave_out(type);
  }

 private:
  ApiError needs(const char* field) const {
    return bad_request(fmt::format("{}.{}", path_, field), fmt::format("{}.{} is missing", path_, field),
                       "missing_required_parameter");
  }
  bool follows_assistant() const { return !messages_.empty() && messages_.back()["role"] == "assistant"; }
  static std::string text_or_json(const Json& value) {
    return value.is_string() ? value.get<std::string>() : to_text(value);
  }

  std::optional<ApiError> add_message(const Json& item) {
    if (!item.contains("role")) return needs("role");
    if (!item.contains("content")) return needs("content");
    const Json role = item["role"] == "developer" ? Json("system") : item["role"];
    const auto* before = follows_assistant() ? messages_.back()["content"].get_ptr<const std::string*>() : nullptr;
    const bool follows_reasoning = before && before->empty() && !messages_.back().contains("tool_calls");
    if (role == "assistant" && follows_reasoning) messages_.back()["content"] = text_of_parts(item["content"]);
    else messages_.push_back({{"role", role}, {"content", text_of_parts(item["content"])}});
    return std::nullopt;
  }
  std::optional<ApiError> add_reasoning(const Json& item) {
    std::string text = item.contains("content") ? text_of_parts(item["content"]) : "";
    if (text.empty() && item.contains("summary"))
      for (const Json& part : item["summary"])
        if (part.is_object()) text += (text.empty() ? "" : "\n") + string_member(part, "text");
    if (!text.empty()) messages_.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", text}});
    return std::nullopt;
  }
  void add_call(const ChatToolCall& call) {
    if (!follows_assistant()) messages_.push_back({{"role", "assistant"}, {"content", ""}});
    messages_.back()["tool_calls"].push_back(tool_call_json(call));
  }

  /// Adds the output of a tool: a text, parts with text, or the output and outcome of a shell command.
  std::optional<ApiError> add_output(const Json& call_id, const Json& output) {
    std::string text;
    if (output.is_array()) {
      for (size_t k = 0; k < output.size(); ++k) {
        const Json& part = output[k];
        const std::string place = fmt::format("{}.output[{}]", path_, k);
        if (!part.is_object()) return bad_request(place, place + " must be an object", "invalid_type");
        const std::string type = string_member(part, "type");
        std::string more;
        if (part.contains("text") && part["text"].is_string()) {
          more = part["text"];
        } else if (part.contains("stdout") || part.contains("stderr")) {
          more = to_text(part);
        } else {
          return bad_request(place,
                             fmt::format("{} is of type {}, which is not supported: conversations consist of text, "
                                         "without images, sound and files",
                                         place, type.empty() ? "unknown" : type.substr(0, 64)),
                             "unsupported_value");
        }
        text += (text.empty() ? "" : "\n") + more;
      }
    } else {
      if (!output.is_string())
        return bad_request(path_ + ".output", path_ + ".output must be a string or an array", "invalid_type");
      text = output;
    }
    messages_.push_back({{"role", "tool"}, {"tool_call_id", call_id}, {"content", std::move(text)}});
    return std::nullopt;
  }

  std::optional<ApiError> leave_out(const std::string& type) {
    const bool is_known = std::find(std::begin(kLeftOut), std::end(kLeftOut), type) != std::end(kLeftOut);
    const auto is_near = [&](std::string_view name) { return text_distance(name, type) <= 2; };
    const auto near = std::find_if(std::begin(kUsed), std::end(kUsed), is_near);
    if (!is_known && near != std::end(kUsed))
      return bad_request(path_ + ".type",
                         fmt::format("{}.type is \"{}\"; did you mean \"{}\"?", path_, type.substr(0, 64), *near),
                         "invalid_value");
    const std::string name = fmt::format("{}[{}]", list_, type.substr(0, 64));
    if (std::find(ignored_.begin(), ignored_.end(), name) == ignored_.end()) ignored_.push_back(name);
    return std::nullopt;
  }

  const char* list_;
  std::string path_;
  Json& messages_;
  std::vector<std::string>& ignored_;
};

}  // namespace

std::optional<ApiError> append_messages(const Json& items, const char* name, Json& messages,
                                        std::vector<std::string>& ignored) {
  ItemReader reader(name, messages, ignored);
  for (size_t i = 0; i < items.size(); ++i)
    if (auto error = reader.add(items[i], i)) return error;
  return std::nullopt;
}

ApiError no_conversation(const std::string& id, const char* param) {
  return not_found_error(param, fmt::format("there is no conversation \"{}\", or not any more", id.substr(0, 64)),
                         "not_found");
}

ApiError conversation_too_large(const Conversations& all, const char* param) {
  return {.status = 413,
          .message = fmt::format("the conversation would have more than {} bytes, which is all that the server keeps; "
                                 "delete some of its items, or begin another",
                                 all.max_bytes()),
          .param = param,
          .code = "conversation_too_large"};
}

}  // namespace redline::server
