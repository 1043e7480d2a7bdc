#include "server/response_items.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/chat.h"
#include "server/generation.h"

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
const Schema response_item_schema{
    "ResponseInputItem",
    {{"type", kString, "", {.choices = {"message", "function_call", "function_call_output", "reasoning"}}},
     {"id", kString, ""},
     {"status", kString, ""},
     {"role", kString, "of a message", {.choices = {"user", "assistant", "system", "developer"}}},
     {"content", kString | kArray, "of a message", {.items = &response_part}},
     {"phase", kString, "", {.is_ignored = true}},
     {"call_id", kString, "of a call and of its output"},
     {"name", kString, "of a call"},
     {"arguments", kString, "of a call"},
     {"output", kString | kArray, "of a call", {.items = &response_part}},
     {"summary", kArray, "", {.is_ignored = true}},
     {"caller", kObject, "", {.is_ignored = true}},
     {"namespace", kString, "", {.is_ignored = true}},
     {"encrypted_content", kString, "", {.is_ignored = true}}}};
const Field any_response_item{"", kAny, ""};
const Field included_with_items{"", kString, "", {.max_length = 1000}};

}  // namespace

const Field response_item{"", kObject, "", {.object = &response_item_schema}};
const Schema items_query_schema{"ResponseInputItemsQuery",
                                {{"limit", kInteger, "items of a page; default: 20", {.min = 1, .max = 100}},
                                 {"after", kString, "the id of an item: those that follow it", {.max_length = 1000}},
                                 {"order", kString, "by time; default: the newest first", {.choices = {"asc", "desc"}}},
                                 {"include", kArray, "", {.items = &included_with_items, .is_ignored = true}}}};
const Schema items_list_schema{"ResponseItemList",
                               {{"object", kString, "", {.required = true, .choices = {"list"}}},
                                {"data", kArray, "items", {.required = true, .items = &any_response_item}},
                                {"first_id", kString, "of the page", {.required = true, .is_nullable = true}},
                                {"last_id", kString, "of the page", {.required = true, .is_nullable = true}},
                                {"has_more", kBoolean, "", {.required = true}}}};

Json listed_items(const Json& items) {
  Json listed = Json::array();
  for (Json item : items) {
    const std::string type = item.value("type", std::string("message"));
    item["type"] = type;
    if (!item.contains("status") && type != "reasoning") item["status"] = "completed";
    const char* prefix = type == "message" ? "msg_" : type == "reasoning" ? "rs_" : "fc_";
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

std::optional<ApiError> append_messages(const Json& items, const char* name, Json& messages) {
  for (size_t i = 0; i < items.size(); ++i) {
    const Json& item = items[i];
    const std::string type = item.value("type", std::string("message"));
    const auto needs = [&](const char* field) {
      return bad_request(fmt::format("{}[{}].{}", name, i, field), fmt::format("{}[{}].{} is missing", name, i, field),
                         "missing_required_parameter");
    };
    const bool follows_assistant = !messages.empty() && messages.back()["role"] == "assistant";
    if (type == "message") {
      if (!item.contains("role")) return needs("role");
      if (!item.contains("content")) return needs("content");
      const Json role = item["role"] == "developer" ? Json("system") : item["role"];
      const auto* before = follows_assistant ? messages.back()["content"].get_ptr<const std::string*>() : nullptr;
      if (role == "assistant" && before && before->empty())  // after its reasoning
        messages.back()["content"] = text_of_parts(item["content"]);
      else messages.push_back({{"role", role}, {"content", text_of_parts(item["content"])}});
    } else if (type == "function_call") {
      for (const char* field : {"call_id", "name", "arguments"})
        if (!item.contains(field)) return needs(field);
      if (!follows_assistant) messages.push_back({{"role", "assistant"}, {"content", ""}});
      messages.back()["tool_calls"].push_back(tool_call_json({item["call_id"], item["name"], item["arguments"]}));
    } else if (type == "function_call_output") {
      for (const char* field : {"call_id", "output"})
        if (!item.contains(field)) return needs(field);
      messages.push_back(
          {{"role", "tool"}, {"tool_call_id", item["call_id"]}, {"content", text_of_parts(item["output"])}});
    } else {
      const std::string text = item.contains("content") ? text_of_parts(item["content"]) : "";
      messages.push_back({{"role", "assistant"}, {"content", ""}, {"reasoning_content", text}});
    }
  }
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
