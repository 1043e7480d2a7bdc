// Chat templates, which render a conversation as the text format that a model was trained on.
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
  std::string tool_use;             ///< the template named tool_use, for conversations with tools; "": `text` is used
  std::string special_tokens_json;  ///< an object {"bos_token": "<s>", ...} of variables for the template
};

struct ChatTemplateOptions {
  std::string tool_use;             ///< as in ChatTemplateSource
  std::string special_tokens_json;  ///< as in ChatTemplateSource
  jinja::Limits limits;
  std::optional<std::tm> now;  ///< the time for strftime_now; unset: the local time
};

/// A compiled chat template. Immutable; render() is thread-safe.
class ChatTemplate {
 public:
  /// Compiles a template. Errors: invalid_argument or unsupported, with line, column and reason.
  static Result<ChatTemplate> compile(std::string source, ChatTemplateOptions options = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  /// Renders the same text as transformers' apply_chat_template(tokenize=False). invalid_argument: malformed JSON
  /// (named); an error of the template, including its raise_exception, with line and column; or an exceeded limit.
  Result<std::string> render(const ChatInput& input) const;

  const std::string& source() const;
  /// Returns the form in which the template takes arguments of tool calls: "object", "text", or "" if it renders
  /// neither. Found by rendering a tool call.
  std::string_view argument_form() const;
  /// Returns the switch of the thinking (ModelInfo::thinking_switch), found by rendering with both of its values; "":
  /// none.
  std::string_view thinking_switch() const;
  /// Returns true if the tools of the input appear in the text.
  bool writes_tools() const;

 private:
  struct Parts;
  void probe_arguments();
  void probe_thinking();
  void probe_tools();
  explicit ChatTemplate(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

/// Reads chat_template.jinja, chat_template.json and tokenizer_config.json of a Hugging Face folder.
Result<ChatTemplateSource> chat_template_from_folder(const std::string& folder);

/// Returns a built-in template, for models that have none, by the name of its format: "chatml", ... nullptr: no such
/// name.
const char* builtin_chat_template(std::string_view name);
std::vector<std::string> builtin_chat_template_names();
/// Reads a template from a file, or returns the built-in one of this name. not_found: the message lists the names.
Result<std::string> read_chat_template(const std::string& file_or_name);

}  // namespace redline
