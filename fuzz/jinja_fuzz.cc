// Renders any bytes as a chat template, with JSON messages after a zero byte, if there is one. A template must have an
// error with a position, or give the same text twice within its limits. Any text must survive a variable, and tojson
// must return it.
#include <nlohmann/json.hpp>

#include "chat/chat_template.h"
#include "fuzz_input.h"
#include "text/unicode.h"

using namespace redline;

namespace {

ChatTemplateOptions bounded() {
  ChatTemplateOptions options;
  options.special_tokens_json = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  options.limits.steps = 200'000;
  options.limits.output_bytes = 1 << 20;
  options.now = std::tm{};
  options.now->tm_mday = 1;
  return options;
}

void try_template(std::string_view source, std::string_view messages) {
  const auto compiled = ChatTemplate::compile(std::string(source), bounded());
  if (!compiled.ok()) return require(compiled.status().message().find("line ") != std::string::npos);
  const ChatInput input{messages, R"([{"type": "function", "function": {"name": "f", "parameters": {"a": [1, 2.5]}}}])",
                        R"({"x": {"y": "z"}, "n": 3})"};
  const auto once = compiled->render(input), again = compiled->render(input);
  require(once.ok() == again.ok());
  if (!once.ok())
    return require(!once.status().message().empty() && once.status().message() == again.status().message());
  require(*once == *again);
  require(static_cast<int64_t>(once->size()) <= bounded().limits.output_bytes);
  require(repair_utf8(*once) == *once);
}

void try_text(const std::string& text) {
  static const auto compiled = ChatTemplate::compile(
      "{{ messages[0] }}{% for c in messages[0] %}{{ c }}{% endfor %}{{ messages[0]|tojson }}", bounded());
  if (text.size() > 4096) return;
  const std::string messages = nlohmann::json::array({text}).dump();
  const auto rendered = compiled->render({messages, "", ""});
  require(rendered.ok());
  require(rendered->starts_with(text + text));
  require(nlohmann::json::parse(rendered->substr(2 * text.size())) == text);
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz_text(data, size);
  const size_t cut = text.find('\0');
  try_template(text.substr(0, cut), cut == text.npos ? R"([{"role": "user", "content": "Hi"}])" : text.substr(cut + 1));
  try_text(repair_utf8(text));
  return 0;
}
