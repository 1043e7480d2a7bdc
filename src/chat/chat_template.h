// Chat templates: a conversation to the text that a model was trained on.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "chat/jinja/evaluation.h"
#include "redline/chat.h"

namespace redline {

/// The chat template of a model's files.
struct ChatTemplateSource {
  std::string text;                 ///< Jinja; "": the model has no template
  std::string tool_use;             ///< the template named tool_use, for conversations with tools; "": the same
  std::string special_tokens_json;  ///< an object: {"bos_token": "<s>", ...}; variables of the template
};

struct ChatTemplateOptions {
  std::string tool_use;             ///< as in ChatTemplateSource
  std::string special_tokens_json;  ///< as in ChatTemplateSource
  jinja::Limits limits;
  std::optional<std::tm> now;  ///< of strftime_now; not set: the local time
};

/// Immutable; render() is thread-safe.
class ChatTemplate {
 public:
  /// invalid_argument or unsupported: line, column and reason.
  static Result<ChatTemplate> compile(std::string source, ChatTemplateOptions options = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// The same text as transformers' apply_chat_template(tokenize=False). invalid_argument: malformed JSON (named),
  /// an error of the template, also its own raise_exception, with line and column, or a limit exceeded.
  Result<std::string> render(const ChatInput& input) const;

  const std::string& source() const;
  /// How the template takes arguments of tool calls, found by rendering one: "object", "text", or "" where it renders
  /// neither.
  std::string_view argument_form() const;
  /// The switch of the thinking (ModelInfo::thinking_switch), found by rendering with both of its values; "": none.
  std::string_view thinking_switch() const;
  /// A tool that is given appears in the text.
  bool writes_tools() const;

 private:
  struct Parts;
  void probe_arguments();
  void probe_thinking();
  void probe_tools();
  explicit ChatTemplate(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// chat_template.jinja, chat_template.json and tokenizer_config.json of a Hugging Face folder.
Result<ChatTemplateSource> chat_template_from_folder(const std::string& folder);

/// Templates for models that have none, by the names of their formats: "chatml", ... nullptr: no such name.
const char* builtin_chat_template(std::string_view name);
std::vector<std::string> builtin_chat_template_names();
/// A file, or one of the built-in names. not_found lists them.
Result<std::string> read_chat_template(const std::string& file_or_name);

}  // namespace redline
