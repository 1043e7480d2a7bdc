// Conversations: from messages to a prompt, and from generated text to messages. The APIs differ only in the shapes of
// messages; all are converted to OpenAI's.
#pragma once

#include "redline/chat.h"
#include "server/client_tools.h"
#include "server/generation.h"
#include "server/logprobs.h"
#include "server/thinking_fields.h"

namespace redline::server {

/// Messages and tools in the shape of OpenAI's chat API, with text as content.
struct ChatPrompt {
  Json messages = Json::array();
  Json tools = nullptr;             ///< null: no tools
  ClientTools client_tools;         ///< `tools` under the client's names
  Json forced_tools = nullptr;      ///< the tools of which one must be called; null: no call is required
  bool several_calls = true;        ///< false: an answer has at most one call
  Json variables = Json::object();  ///< further variables of the template
  std::string thinking;             ///< see ChatInput::thinking
  bool adds_generation_prompt = true;
  bool continues_last = false;  ///< the text continues the last message
  bool merges_system = false;   ///< later system messages are joined to the first even if the template accepts them
  std::string text;             ///< the rendered prompt, after set_prompt()
  std::vector<int32_t> tokens;  ///< the tokens of `text`
  std::string scope;            ///< scope of the known texts that the prompt may continue (KnownTexts)
  /// Constraint of the answer, after set_prompt().
  OutputConstraint::Kind constraint = OutputConstraint::Kind::kNone;
};

/// Renders the prompt with the model's template. 400: the model has no template, or the template refuses the messages.
Outcome<std::string> render_chat(const TextEngine& engine, const ChatPrompt& prompt);
/// Renders the prompt into the request and checks it against the context. Text that the model generated before is
/// continued from its own tokens. `param`: the field that errors name.
std::optional<ApiError> set_prompt(ServedModel& model, ChatPrompt& prompt, const char* param, GenerateRequest& request);

/// Requires a call of tool `name`, or of any tool (""). A response format then has no effect, since there is no text.
/// Must be called before set_prompt(). 400: there are no tools, or none of that name.
std::optional<ApiError> force_call(Call& call, ChatPrompt& prompt, const std::string& name);

/// Reads `tool_choice` of OpenAI's APIs, for force_call(). allowed_tools removes all other tools from the prompt.
Outcome<ToolDemand> take_tool_choice(const Json& body, ChatPrompt& prompt);

/// A message, complete or as far as it has been generated.
struct ChatMessage {
  std::string content, reasoning;
  std::vector<ChatToolCall> tool_calls;
  int64_t reasoning_tokens = 0;
  std::string stop;  ///< the stop string that ended it
  FinishReason reason = FinishReason::kStop;
};

/// Returns "length" for a message that was cut, whatever it holds, else "tool_calls" or "stop".
const char* openai_finish_reason(const ChatMessage& message);

/// An answer made of messages, one per choice.
class ChatAnswer : public GenerationAnswer {
 public:
  ChatAnswer(Call& call, const ModelChoice& choice, std::unique_ptr<Choices> choices, bool streams,
             const ChatPrompt& prompt, std::vector<std::string> stop);

 protected:
  /// Called for every token, in streams and in whole answers; appends to `out` only for streams.
  virtual void on_token(const Event& event, std::string& out) {}
  virtual void on_delta(size_t choice, const ChatDelta& delta, std::string& out) {}
  virtual void on_message(size_t choice, const ChatMessage& message, std::string& out) {}
  const ChatMessage& message(size_t choice) const { return messages_[choice]; }
  /// Returns log probabilities of a token and of the most likely ones: {"token", "logprob", "bytes", "top_logprobs"}.
  Json logprob_json(const Event& event) const;
  int64_t reasoning_tokens() const;  ///< total over all messages

 private:
  void take(const Event& event, std::string& out) final;
  void end_choice(size_t choice, const GenerateResult& result, std::string& out) final;
  void apply(size_t choice, std::vector<ChatDelta> deltas, std::string& out);
  /// Moves reasoning to the place that the request selects.
  std::vector<ChatDelta> placed(size_t choice, std::vector<ChatDelta> deltas);

  std::vector<std::unique_ptr<ChatReader>> readers_;  ///< null: the model has no markers, so all text is content
  std::vector<ChatMessage> messages_;
  std::vector<bool> is_reasoning_;  ///< the last token of each choice was
  const bool names_ids_;            ///< TokenFields::names_ids
  const std::vector<std::string> stop_;
  const bool several_calls_, includes_stop_;
  const ReasoningPlace reasoning_place_;
  std::vector<bool> is_thinking_;  ///< the content of each choice ends within its reasoning
  const std::string prompt_text_, scope_;
  const std::vector<int32_t> prompt_;
};

/// Returns the content of a message as text: a string, or a list of parts of type text.
std::string text_of_parts(const Json& content);
/// Returns the fields of message parts that are not text, for Schema::refused.
std::vector<std::pair<std::string, std::string>> refused_parts();
/// The schemas of messages and tools, for the endpoints.
extern const Schema chat_message_schema, chat_tool_schema;
/// Returns {"id", "type", "function": {"name", "arguments"}}.
Json tool_call_json(const ChatToolCall& call);
/// kOptional: results of tools need not name their call, as in Ollama's API.
enum class CallIds : uint8_t { kRequired, kOptional };
/// Checks messages. 400: a message without content, calls and reasoning, or the result of a tool without the id of its
/// call. `name`: the field of the messages.
std::optional<ApiError> check_messages(const Json& messages, const std::string& name, CallIds ids);
/// Returns true if a message is the beginning of the answer: an assistant's with `prefix` or `partial` set.
bool begins_answer(const Json& message);
/// Converts `messages` of a checked body in OpenAI's shape. 400: a call without a function.
Outcome<Json> plain_messages(const Json& messages);

}  // namespace redline::server
