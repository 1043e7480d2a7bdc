// /v1/conversations, OpenAI's API: items that requests of /v1/responses continue and add to.
#include "base/utc_time.h"
#include "server/app.h"
#include "server/generation.h"
#include "server/ids.h"
#include "server/response_items.h"

namespace redline::server {
namespace {

const Schema conversation_any_object{"AnyObject", {}, true};
const Field metadata_field{"metadata", kObject, "returned as it is", {.object = &conversation_any_object}};
const Field new_items_field{"items", kArray, "", {.max_items = 10000, .items = &response_item}};
const Schema conversation_create_schema{"ConversationRequest", {metadata_field, new_items_field}};
const Schema conversation_update_schema{
    "ConversationUpdate", {{"metadata", kObject, "", {.required = true, .object = &conversation_any_object}}}};
const Schema conversation_items_schema{
    "ConversationItemsRequest",
    {{"items", kArray, "", {.required = true, .max_items = 10000, .items = &response_item}},
     {"include", kArray, "", {.is_ignored = true}}}};
const Schema conversation_schema{"Conversation",
                                 {{"id", kString, "", {.required = true}},
                                  {"object", kString, "", {.required = true, .choices = {"conversation"}}},
                                  {"created_at", kInteger, "", {.required = true}},
                                  {"metadata", kObject, "", {.required = true, .object = &conversation_any_object}}}};
const Schema conversation_deleted_schema{
    "DeletedConversation",
    {{"id", kString, "", {.required = true}},
     {"object", kString, "", {.required = true, .choices = {"conversation.deleted"}}},
     {"deleted", kBoolean, "", {.required = true}}}};
const Schema conversation_item_schema{"ConversationItem", {{"id", kString, "", {.required = true}}}, true};

Json conversation_json(const Conversation& c) {
  return {{"id", c.id}, {"object", "conversation"}, {"created_at", c.created}, {"metadata", c.metadata}};
}
Outcome<std::shared_ptr<const Conversation>> conversation_of(const Call& call) {
  auto found = call.app.conversations().find(call.path_values[0], call.http.client);
  if (!found) return no_conversation(call.path_values[0], "conversation_id");
  return found;
}
/// Returns the items of a request as the API lists them. They are checked like those of /v1/responses.
Outcome<Json> items_of_request(Call& call) {
  const Json items = call.body.value("items", Json::array());
  Json messages = Json::array();
  if (auto error = append_messages(items, "items", messages, call.ignored)) return *error;
  return listed_items(items);
}
/// Applies change(Conversation&) to the conversation in the request's path and returns the result. `param`: the field
/// that an error about its size names.
template <class Change>
Outcome<std::shared_ptr<const Conversation>> changed_conversation(const Call& call, const char* param,
                                                                  const Change& change) {
  Conversations& all = call.app.conversations();
  const std::string& id = call.path_values[0];
  auto [result, value] = all.update(id, call.http.client, change);
  if (result == Conversations::Updated::kNotFound) return no_conversation(id, "conversation_id");
  if (result == Conversations::Updated::kTooLarge) return conversation_too_large(all, param);
  return std::move(value);
}
auto item_at(const Json& items, const std::string& id) {
  return std::find_if(items.begin(), items.end(), [&](const Json& item) { return item["id"] == id; });
}
ApiError no_item(const std::string& id) {
  return not_found_error("item_id", fmt::format("the conversation has no item \"{}\"", id.substr(0, 64)), "not_found");
}

AnswerOr post_conversations(Call& call) {
  SERVER_ASSIGN(Json items, items_of_request(call));
  Conversation c = {new_id("conv_"), call.http.client, unix_time(), call.body.value("metadata", Json::object()),
                    std::move(items)};
  const Json json = conversation_json(c);
  if (!call.app.conversations().keep(std::move(c))) return conversation_too_large(call.app.conversations(), "items");
  return json_answer(json);
}
AnswerOr get_conversation(Call& call) {
  SERVER_ASSIGN(const auto found, conversation_of(call));
  return json_answer(conversation_json(*found));
}
AnswerOr post_conversation(Call& call) {
  SERVER_ASSIGN(const auto changed,
                changed_conversation(call, "metadata", [&](Conversation& c) { c.metadata = call.body["metadata"]; }));
  return json_answer(conversation_json(*changed));
}
AnswerOr delete_conversation(Call& call) {
  const std::string& id = call.path_values[0];
  if (!call.app.conversations().erase(id, call.http.client)) return no_conversation(id, "conversation_id");
  return json_answer({{"id", id}, {"object", "conversation.deleted"}, {"deleted", true}});
}
AnswerOr get_conversation_items(Call& call) {
  SERVER_ASSIGN(const auto found, conversation_of(call));
  SERVER_ASSIGN(const Json page, items_page(found->items, call.body));
  return json_answer(page);
}
AnswerOr post_conversation_items(Call& call) {
  SERVER_ASSIGN(Json items, items_of_request(call));
  SERVER_ASSIGN(const auto changed, changed_conversation(call, "items", [&](Conversation& c) {
                  c.items.insert(c.items.end(), items.begin(), items.end());
                }));
  return json_answer(items_list(std::move(items)));
}
AnswerOr get_conversation_item(Call& call) {
  SERVER_ASSIGN(const auto found, conversation_of(call));
  const auto item = item_at(found->items, call.path_values[1]);
  if (item == found->items.end()) return no_item(call.path_values[1]);
  return json_answer(*item);
}
AnswerOr delete_conversation_item(Call& call) {
  bool is_there = false;
  SERVER_ASSIGN(const auto changed, changed_conversation(call, "", [&](Conversation& c) {
                  const auto item = item_at(c.items, call.path_values[1]);
                  is_there = item != c.items.cend();
                  if (is_there) c.items.erase(item);
                }));
  if (!is_there) return no_item(call.path_values[1]);
  return json_answer(conversation_json(*changed));
}

}  // namespace

std::vector<Endpoint> conversations_endpoints() {
  const DocumentedAnswer conversation = {200, "the conversation", &conversation_schema};
  return {{"POST",
           "/v1/conversations",
           "text",
           "a new conversation for /v1/responses (OpenAI's API)",
           {conversation},
           post_conversations,
           {.request = &conversation_create_schema}},
          {"GET",
           "/v1/conversations/{conversation}/items",
           "text",
           "the items of a conversation",
           {{200, "the items, page by page", &items_list_schema}},
           get_conversation_items,
           {.query = &items_query_schema, .error_statuses = {404}}},
          {"POST",
           "/v1/conversations/{conversation}/items",
           "text",
           "add items to a conversation",
           {{200, "the new items", &items_list_schema}},
           post_conversation_items,
           {.request = &conversation_items_schema, .error_statuses = {404}}},
          {"GET",
           "/v1/conversations/{conversation}/items/{item}",
           "text",
           "an item of a conversation",
           {{200, "the item", &conversation_item_schema}},
           get_conversation_item,
           {.error_statuses = {404}}},
          {"DELETE",
           "/v1/conversations/{conversation}/items/{item}",
           "text",
           "remove an item of a conversation",
           {conversation},
           delete_conversation_item,
           {.error_statuses = {404}}},
          {"GET",
           "/v1/conversations/{conversation}",
           "text",
           "a conversation",
           {conversation},
           get_conversation,
           {.error_statuses = {404}}},
          {"POST",
           "/v1/conversations/{conversation}",
           "text",
           "replace the metadata of a conversation",
           {conversation},
           post_conversation,
           {.request = &conversation_update_schema, .error_statuses = {404}}},
          {"DELETE",
           "/v1/conversations/{conversation}",
           "text",
           "forget a conversation; its responses stay",
           {{200, "it is gone", &conversation_deleted_schema}},
           delete_conversation,
           {.error_statuses = {404}}}};
}

}  // namespace redline::server
