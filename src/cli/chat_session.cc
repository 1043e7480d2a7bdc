#include "cli/chat_session.h"

#include <algorithm>

#include "base/json_text.h"

namespace redline::cli {

std::string ChatSession::system() const {
  return !messages_.empty() && messages_[0].role == "system" ? messages_[0].content : "";
}

void ChatSession::set_system(const std::string& text) {
  if (!messages_.empty() && messages_[0].role == "system") messages_.erase(messages_.begin());
  if (!text.empty()) messages_.insert(messages_.begin(), {"system", text, ""});
}

std::string ChatSession::drop_last_turn() {
  for (size_t i = messages_.size(); i > 0; --i) {
    if (messages_[i - 1].role != "user") continue;
    std::string question = messages_[i - 1].content;
    messages_.resize(i - 1);
    return question;
  }
  return "";
}

void ChatSession::reset() {
  const std::string kept = system();
  messages_.clear();
  set_system(kept);
}

Json ChatSession::messages_json() const {
  Json list = Json::array();
  for (const ChatMessage& message : messages_) {
    Json json = {{"role", message.role}, {"content", message.content}};
    if (!message.reasoning.empty()) json["reasoning_content"] = message.reasoning;
    list.push_back(std::move(json));
  }
  return list;
}

Result<ChatTurn> ChatSession::answer(GenerateRequest request, const std::function<bool(const ChatDelta&)>& on_delta,
                                     const std::function<bool()>& on_step) {
  const std::string messages = to_text(messages_json(), -1);
  REDLINE_ASSIGN(
      const std::string prompt,
      engine_.render_chat(
          {.messages_json = messages, .tools_json = "", .variables_json = variables_json_, .thinking = thinking_}));
  REDLINE_ASSIGN(request.prompt, known_.encode(engine_, "", prompt, true));
  request.special = true;
  request.chat_prompt = prompt;
  const std::unique_ptr<ChatReader> reader = engine_.chat_reader(prompt, "", request.constraint.kind);
  ChatTurn turn;
  ChatMessage answer{"assistant", "", ""};
  std::vector<ChatDelta> deltas;
  bool is_reasoning = false;
  const auto take = [&] {
    bool goes_on = true;
    for (const ChatDelta& delta : deltas) {
      is_reasoning = delta.kind == ChatDelta::Kind::kReasoning;
      (is_reasoning ? answer.reasoning : answer.content) += delta.text;
      goes_on = on_delta(delta) && goes_on;
    }
    deltas.clear();
    return goes_on;
  };
  REDLINE_ASSIGN(turn.result, engine_.generate(request, [&](const TextPiece& piece) {
    if (piece.token < 0 && piece.text.empty()) return on_step();
    reader->push(piece.text, deltas);
    const bool goes_on = take();
    turn.reasoning_tokens += is_reasoning && piece.token >= 0;
    return goes_on && on_step();
  }));
  reader->finish(deltas, turn.result.reason != FinishReason::kStop);
  take();
  // Without a token the answer would be empty, and many templates refuse that.
  messages_.push_back(std::move(answer));
  if (const Result<std::string> written = engine_.decode(turn.result.tokens, true); written.ok()) {
    std::vector<int32_t> tokens = request.prompt.tokens();
    tokens.insert(tokens.end(), turn.result.tokens.begin(), turn.result.tokens.end());
    known_.add("", prompt + *written, std::move(tokens));
  }
  return turn;
}

Json ChatSession::to_json() const { return {{"model", engine_.info().path}, {"messages", messages_json()}}; }

Status ChatSession::load(const std::string& text) {
  const Json json = parse_json_or_discard<Json>(text);
  const bool has_member = json.is_object() && json.contains("messages");
  const Json& list = has_member ? json["messages"] : json;
  if (!list.is_array()) return invalid_argument("no conversation: expected a JSON list of messages");
  std::vector<ChatMessage> messages;
  for (const Json& entry : list) {
    const auto text_at = [&](const char* name) {
      return entry.contains(name) && entry[name].is_string() ? entry[name].get<std::string>() : std::string();
    };
    if (!entry.is_object() || text_at("role").empty() || !entry.contains("content") || !entry["content"].is_string())
      return invalid_argument("message {} has no role or no text as its content", messages.size());
    messages.push_back({text_at("role"), text_at("content"), text_at("reasoning_content")});
  }
  messages_ = std::move(messages);
  return {};
}

}  // namespace redline::cli
