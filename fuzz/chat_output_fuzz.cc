// Parses any bytes as the output of a chat model. The first byte chooses the format, the second one how the text is cut
// into pieces. Checks that the joined deltas do not depend on the pieces, that calls have a name and a JSON object as
// arguments, and that nothing is made up: without calls and reasoning, the content is the text without ignored markers.
#include <nlohmann/json.hpp>

#include "chat/chat_output.h"
#include "fuzz_input.h"

using namespace redline;

namespace {

constexpr const char* kFormats[] = {
    "plain",    "harmony",         "atem",    "gemma", "minimax-nested", "minimax-invoke", "dsml",      "kimi",
    "deepseek", "deepseek-fenced", "hunyuan", "seed",  "qwen-xml",       "functionary",    "minicpm",   "glm",
    "command",  "apertus",         "solar",   "lfm2",  "gigachat",       "nemotron",       "functools", "phi",
    "granite",  "mistral",         "hermes",  "llama"};

std::string joined(const ChatOutput& output) {
  std::string text = output.content + "\1" + output.reasoning;
  for (const ChatToolCall& call : output.tool_calls) text += "\1" + call.id + "\2" + call.name + "\2" + call.arguments;
  return text;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const ChatOutputFormat* format = find_chat_output_format(kFormats[data[0] % std::size(kFormats)]);
  require(format != nullptr);
  std::string words = "<think>";
  for (const char* word : format->words)
    if (word) words += std::string(" ") + word;
  const ChatOutputOptions options{
      words, data[0] & 128 ? "<think>" : "",
      R"([{"function": {"name": "f", "parameters": {"properties": {"a": {"type": "string"}}}}}])"};
  const std::string_view text = fuzz_text(data + 2, size - 2);
  const ChatOutput whole = parse_chat_output(options, text);
  ChatOutputParser parser(options);
  std::vector<ChatDelta> deltas;
  const size_t step = 1 + data[1] % 16;
  for (size_t at = 0; at < text.size(); at += step) parser.push(text.substr(at, step), deltas);
  parser.finish(deltas);
  ChatOutput pieces;
  for (const ChatDelta& delta : deltas) pieces.add(delta);
  require(joined(pieces) == joined(whole));
  for (const ChatToolCall& call : whole.tool_calls) {
    require(!call.name.empty());
    require(nlohmann::json::accept(call.arguments) && call.arguments.starts_with('{'));
  }
  // Tools are offered, so that a template without a format of its own has calls in the form of Hermes.
  if (format->name == std::string_view("plain") && whole.tool_calls.empty() && whole.reasoning.empty() &&
      text.find("<think>") == text.npos && !(data[0] & 128))
    require(whole.content == text);
  return 0;
}
