// Items of the Responses and Conversations APIs: what a request gives, as the APIs list it, and as messages of a chat.
#pragma once

#include <optional>

#include "server/conversations.h"
#include "server/schema.h"

namespace redline::server {

/// An item of a request.
extern const Field response_item;
/// The query of a list of items, and the list.
extern const Schema items_query_schema, items_list_schema;

/// `items` of a checked request as the APIs list them: with ids, status and parts.
Json listed_items(const Json& items);
/// The page of `items`, the oldest first, that a checked query asks for. 400: `after` is not among them.
Outcome<Json> items_page(const Json& items, const Json& query);
/// A list of all of `items`.
Json items_list(Json items, bool has_more = false);

/// Appends `items`, a list named `name` in the request, to the messages of a chat. Items that say nothing to the model
/// are left out, and their types added to `ignored`. 400: an item lacks something, or has no text.
std::optional<ApiError> append_messages(const Json& items, const char* name, Json& messages,
                                        std::vector<std::string>& ignored);

/// 404 for an unknown conversation.
ApiError no_conversation(const std::string& id, const char* param);
/// 413 for one that would be larger than what is kept of all.
ApiError conversation_too_large(const Conversations& all, const char* param);

}  // namespace redline::server
