// Items of the Responses and Conversations APIs, in three forms: as a request gives them, as the APIs list them, and as
// messages of a chat.
#pragma once

#include <optional>

#include "server/conversations.h"
#include "server/schema.h"

namespace redline::server {

/// The field of a request that holds an item.
extern const Field response_item;
/// The schemas of the query for a list of items, and of the list.
extern const Schema items_query_schema, items_list_schema;

/// Returns `items` of a checked request as the APIs list them: with ids, status and parts.
Json listed_items(const Json& items);
/// Returns the page of `items` that a checked query selects. `items` are oldest first. 400: `after` is not among them.
Outcome<Json> items_page(const Json& items, const Json& query);
/// Returns a list of all of `items`.
Json items_list(Json items, bool has_more = false);

/// Appends `items`, a list named `name` in the request, to the messages of a chat. Items without content for the model
/// are left out, and their types added to `ignored`. 400: an item lacks a field, or has no text.
std::optional<ApiError> append_messages(const Json& items, const char* name, Json& messages,
                                        std::vector<std::string>& ignored);

/// Returns the 404 error for an unknown conversation.
ApiError no_conversation(const std::string& id, const char* param);
/// Returns the 413 error for a conversation that would exceed the limit of the store.
ApiError conversation_too_large(const Conversations& all, const char* param);

}  // namespace redline::server
