#include "chat/chat_output.h"

#include <algorithm>
#include <utility>

namespace redline {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";

std::string_view without_end_spaces(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpaces) + 1);
}

/// Returns the size of the longest suffix of `text` that is a prefix of `marker`.
size_t held_back(std::string_view text, std::string_view marker) {
  for (size_t size = std::min(text.size(), marker.size() - 1); size > 0; --size)
    if (marker.starts_with(text.substr(text.size() - size))) return size;
  return 0;
}

}  // namespace

void ChatOutput::add(const ChatDelta& delta) {
  switch (delta.kind) {
    case ChatDelta::Kind::kContent: content += delta.text; break;
    case ChatDelta::Kind::kReasoning: reasoning += delta.text; break;
    case ChatDelta::Kind::kToolCall: tool_calls.push_back(delta.call); break;
  }
}

ChatOutputParser::ChatOutputParser(const ChatOutputOptions& options)
    : format_(options.tools_json.empty() ? &chat_output_format(options.chat_template)
                                         : &tool_call_format(options.chat_template)),
      reasoning_(reasoning_markers(options.chat_template)), schemas_(options.tools_json),
      has_tools_(!options.tools_json.empty()), content_(options.content) {
  if (format_->has_channels) {
    markers_ = {{"<|channel|>", Marker::Kind::kHeader, nullptr},    {"<|start|>", Marker::Kind::kHeader, nullptr},
                {"<|end|>", Marker::Kind::kMessageEnd, nullptr},    {"<|eom|>", Marker::Kind::kMessageEnd, nullptr},
                {"<|return|>", Marker::Kind::kMessageEnd, nullptr}, {"<|call|>", Marker::Kind::kMessageEnd, nullptr}};
    for (const Marker& marker : markers_) reasoning_ends_.push_back(marker.text);
    // The answer begins in its header if the prompt ends there.
    const size_t start = options.prompt.rfind("<|start|>");
    if (start != std::string::npos && options.prompt.find("<|message|>", start) == std::string::npos)
      state_ = State::kHeader;
  } else if (*reasoning_.open) {
    markers_.push_back({reasoning_.open, Marker::Kind::kReasoning, nullptr});
    reasoning_ends_ = {reasoning_.close};
    const std::string_view open = without_end_spaces(reasoning_.open);
    if (without_end_spaces(options.prompt).ends_with(open)) state_ = State::kReasoning;
  }
  for (const ToolCallSyntax& syntax : format_->syntaxes) {
    if (!syntax.read) continue;
    if (content_ == ContentKind::kJson && !has_tools_) continue;
    if (*syntax.begin) markers_.push_back({syntax.begin, Marker::Kind::kCall, &syntax});
    else may_begin_with_call_ = true;
  }
  for (const char* ignored : format_->ignored)
    if (ignored) markers_.push_back({ignored, Marker::Kind::kIgnored, nullptr});
}

void ChatOutputParser::push(std::string_view piece, std::vector<ChatDelta>& out) {
  buffer_ += piece;
  // A call ends with one of these characters. Reading a long argument again after every token would take quadratic
  // time.
  if (state_ == State::kCall && piece.find_first_of("}])>|") == std::string::npos) return;
  run(false, out);
}

void ChatOutputParser::finish(std::vector<ChatDelta>& out, bool was_cut) {
  was_cut_ = was_cut;
  run(true, out);
  const bool is_dropped = has_answer_parts_ && (num_calls_ > 0 || (!has_content_ && content_ != ContentKind::kMatched));
  if (!spaces_.empty() && state_ != State::kReasoning && !is_dropped)
    out.push_back({ChatDelta::Kind::kContent, std::exchange(spaces_, {}), {}, 0});
}

void ChatOutputParser::consume(size_t bytes, bool is_answer) {
  buffer_.erase(0, bytes);
  const size_t given = std::min(bytes, bytes_ahead_);
  bytes_ahead_ -= given;
  if (bytes > given) parts_.push_back({bytes - given, is_answer});
}

std::vector<ChatOutputParser::Part> ChatOutputParser::take_parts() {
  std::vector<Part> parts = std::exchange(parts_, {});
  // In content, the rest of the buffer may become a marker. In the other states it is known what the rest belongs to.
  if (state_ != State::kContent && buffer_.size() > bytes_ahead_) {
    parts.push_back({buffer_.size() - bytes_ahead_, state_ == State::kCall || state_ == State::kJson});
    bytes_ahead_ = buffer_.size();
  }
  return parts;
}

void ChatOutputParser::run(bool is_all, std::vector<ChatDelta>& out) {
  for (bool goes_on = true; goes_on;) {
    switch (state_) {
      case State::kContent: goes_on = run_content(is_all, out); break;
      case State::kJson: goes_on = run_json(out); break;
      case State::kReasoning: goes_on = run_reasoning(is_all, out); break;
      case State::kCall: goes_on = run_call(is_all, out); break;
      case State::kHeader: goes_on = run_header(is_all); break;
    }
  }
}

/// Appends a delta with `text`. White space at its end is held back, because before a marker it is not part of the
/// text.
void ChatOutputParser::emit(ChatDelta::Kind kind, std::string_view text, std::vector<ChatDelta>& out) {
  bool& has_text = kind == ChatDelta::Kind::kContent ? has_content_ : has_reasoning_;
  const bool strips =
      !has_text && (kind == ChatDelta::Kind::kReasoning || (has_answer_parts_ && content_ != ContentKind::kMatched));
  spaces_ += text;
  const size_t end = without_end_spaces(spaces_).size();
  if (end == 0) {
    if (strips) spaces_.clear();
    return;
  }
  const size_t begin = strips ? spaces_.find_first_not_of(kSpaces) : 0;
  out.push_back({kind, spaces_.substr(begin, end - begin), {}, 0});
  spaces_.erase(0, end);
  has_text = true;
}

/// Drops the white space that belongs to the end of the reasoning. White space after it belongs to the content.
bool ChatOutputParser::drop_separator(bool is_all) {
  size_t same = 0;
  while (same < buffer_.size() && same < separator_.size() && buffer_[same] == separator_[same]) ++same;
  consume(same, false);
  separator_.remove_prefix(same);
  if (buffer_.empty() && !is_all) return false;
  separator_ = {};
  return true;
}

bool ChatOutputParser::run_content(bool is_all, std::vector<ChatDelta>& out) {
  if (!separator_.empty() && !drop_separator(is_all)) return false;
  if (may_begin_with_call_ && !has_content_) {
    const size_t first = buffer_.find_first_not_of(kSpaces);
    if (first == std::string::npos && !is_all) return false;
    may_begin_with_call_ = false;
    if (first != std::string::npos && buffer_[first] == '{') {
      for (const ToolCallSyntax& syntax : format_->syntaxes)
        if (syntax.read && !*syntax.begin) syntax_ = &syntax;
      state_ = State::kCall;
      return true;
    }
  }
  size_t at = std::string::npos;
  const Marker* found = nullptr;
  for (const Marker& marker : markers_) {
    const size_t place = buffer_.find(marker.text);
    if (place < at || (place == at && found && place != std::string::npos && marker.text.size() > found->text.size())) {
      at = place;
      found = &marker;
    }
  }
  // A marker that began before the one found, or a longer one at its place, may still be incomplete.
  size_t held = 0;
  if (!is_all || was_cut_)
    for (const Marker& marker : markers_) held = std::max(held, held_back(buffer_, marker.text));
  if (found && buffer_.size() - held <= at) found = nullptr;
  if (content_ == ContentKind::kJson && !has_content_) {
    // JSON begins with the first character that is neither space nor part of a marker. Its strings may have markers.
    const size_t first = buffer_.find_first_not_of(kSpaces);
    const size_t begin = found ? at : buffer_.size() - held;
    if (first < begin) {
      consume(first, false);
      spaces_.clear();
      is_scalar_ = buffer_[0] != '{' && buffer_[0] != '[' && buffer_[0] != '"';
      state_ = State::kJson;
      return true;
    }
  }
  if (!found) {
    const size_t size = buffer_.size() - held;
    emit(ChatDelta::Kind::kContent, std::string_view(buffer_).substr(0, size), out);
    consume(size, true);
    if (is_all && held > 0) {  // the text ends within a marker
      const bool is_first = !has_content_ && num_calls_ == 0;
      if (is_first || has_tools_ || held > 2) spaces_.clear();
      else emit(ChatDelta::Kind::kContent, buffer_, out);
      consume(buffer_.size(), true);
    }
    return false;
  }
  emit(ChatDelta::Kind::kContent, std::string_view(buffer_).substr(0, at), out);
  consume(at, true);
  const bool is_answer = found->kind == Marker::Kind::kCall || found->kind == Marker::Kind::kIgnored;
  consume(found->text.size(), is_answer);
  switch (found->kind) {
    case Marker::Kind::kReasoning:
      state_ = State::kReasoning;
      has_answer_parts_ = true;
      spaces_ = has_reasoning_ ? "\n" : "";
      break;
    case Marker::Kind::kCall:
      state_ = State::kCall;
      syntax_ = found->syntax;
      break;
    case Marker::Kind::kHeader: state_ = State::kHeader; break;
    case Marker::Kind::kIgnored:
    case Marker::Kind::kMessageEnd: break;
  }
  return true;
}

/// Reads up to the end of one JSON value. After it there may be markers again.
bool ChatOutputParser::run_json(std::vector<ChatDelta>& out) {
  size_t at = 0;
  bool has_ended = false;
  for (; at < buffer_.size() && !has_ended; ++at) {
    const char c = buffer_[at];
    if (is_scalar_) {
      if (kSpaces.find(c) == std::string_view::npos && c != '<' && c != '[') continue;
      has_ended = true;
      break;
    }
    if (is_escaped_) is_escaped_ = false;
    else if (in_string_ && c == '\\') is_escaped_ = true;
    else if (c == '"') in_string_ = !in_string_;
    else if (!in_string_ && (c == '{' || c == '[')) ++json_depth_;
    else if (!in_string_ && (c == '}' || c == ']')) --json_depth_;
    has_ended = !in_string_ && json_depth_ <= 0;
  }
  emit(ChatDelta::Kind::kContent, std::string_view(buffer_).substr(0, at), out);
  consume(at, true);
  if (has_ended) state_ = State::kContent;
  return has_ended;
}

bool ChatOutputParser::run_reasoning(bool is_all, std::vector<ChatDelta>& out) {
  size_t at = std::string::npos, held = 0;
  std::string_view found;
  for (const std::string& end : reasoning_ends_) {
    const size_t place = buffer_.find(end);
    if (place < at) {
      at = place;
      found = end;
    }
    if (!is_all || was_cut_) held = std::max(held, held_back(buffer_, end));
  }
  if (at == std::string::npos) {
    const size_t size = buffer_.size() - held;
    emit(ChatDelta::Kind::kReasoning, std::string_view(buffer_).substr(0, size), out);
    consume(is_all ? buffer_.size() : size, false);  // a cut marker is not part of the reasoning
    return false;
  }
  emit(ChatDelta::Kind::kReasoning, std::string_view(buffer_).substr(0, at), out);
  const bool is_header = format_->has_channels && (found == "<|channel|>" || found == "<|start|>");
  consume(at + found.size(), false);
  spaces_.clear();
  has_answer_parts_ = true;
  if (content_ == ContentKind::kMatched) separator_ = reasoning_.separator;
  state_ = is_header ? State::kHeader : State::kContent;
  return true;
}

/// Returns true if the text that is left is a call that the token limit has cut. A call without a marker may as well be
/// a JSON answer, unless it names one of the tools.
bool ChatOutputParser::is_cut_call() const {
  if (!was_cut_) return false;
  return *syntax_->begin || syntax_ == &channel_syntax_ || schemas_.begins_json_call(buffer_);
}

bool ChatOutputParser::run_call(bool is_all, std::vector<ChatDelta>& out) {
  ToolCallSyntax::Reading reading;
  if (is_all) {  // malformed text is content; text that could have become a call is a cut call
    reading = syntax_->read(*syntax_, buffer_, false, schemas_);
    if (reading.outcome == ToolCallSyntax::Outcome::kMore) {
      reading = syntax_->read(*syntax_, buffer_, true, schemas_);
      if (reading.outcome == ToolCallSyntax::Outcome::kFailed && is_cut_call()) {
        spaces_.clear();
        has_answer_parts_ = true;
        consume(buffer_.size(), true);
        state_ = State::kContent;
        return false;
      }
    }
  } else {
    reading = syntax_->read(*syntax_, buffer_, false, schemas_);
  }
  switch (reading.outcome) {
    case ToolCallSyntax::Outcome::kMore: return false;
    case ToolCallSyntax::Outcome::kFailed: {
      state_ = State::kContent;
      std::string marker = syntax_->begin;
      if (marker.empty() && content_ == ContentKind::kJson) {
        state_ = State::kJson;
        return true;
      }
      if (marker.empty()) {  // the text itself: its first character is content
        marker = buffer_.substr(0, 1);
        consume(1, true);
      }
      emit(ChatDelta::Kind::kContent, marker, out);
      return true;
    }
    case ToolCallSyntax::Outcome::kDone: break;
  }
  spaces_.clear();
  has_answer_parts_ = true;
  for (ChatToolCall call : reading.calls) {
    if (call.name.empty()) call.name = channel_tool_;
    out.push_back({ChatDelta::Kind::kToolCall, {}, std::move(call), num_calls_++});
  }
  consume(reading.used, true);
  state_ = State::kContent;
  return true;
}

namespace {

/// Reads the body of a message to a tool, which is the arguments of the call.
ToolCallSyntax::Reading read_arguments(const ToolCallSyntax& syntax, std::string_view text, bool is_all,
                                       const ToolSchemas&) {
  // The body is read as if a name of one character came before it. The name is dropped below.
  const std::string whole = "x<|message|>" + std::string(text);
  ToolCallSyntax named = syntax;
  named.first = "<|message|>";
  ToolCallSyntax::Reading reading = read_named_json(named, whole, is_all, {});
  constexpr size_t kAdded = 12;
  reading.used = reading.used > kAdded ? reading.used - kAdded : 0;
  for (ChatToolCall& call : reading.calls) call.name.clear();
  return reading;
}

}  // namespace

/// Reads the header of a message, such as <|channel|>commentary to=functions.name <|constrain|>json<|message|>.
bool ChatOutputParser::run_header(bool is_all) {
  constexpr std::string_view kEnd = "<|message|>";
  const size_t end = buffer_.find(kEnd);
  if (end == std::string::npos) {
    if (is_all && was_cut_) consume(buffer_.size(), false);  // the text ends within a header
    if (is_all) state_ = State::kContent;                    // no header: an answer without channels
    return is_all;
  }
  const std::string header = buffer_.substr(0, end);
  consume(end + kEnd.size(), false);
  spaces_.clear();
  std::string recipient;
  if (const size_t to = header.find("to="); to != std::string::npos)
    recipient = header.substr(to + 3, header.find_first_of(" <\t\n", to) - to - 3);
  const bool is_reasoning = header.find("analysis") != std::string::npos || recipient == "self";
  std::string tool = recipient.starts_with("functions.") ? recipient.substr(10) : recipient;
  const bool is_call = !tool.empty() && recipient != "self" && recipient != "user" && recipient != "assistant";
  if (is_call && !*format_->channel_call) {
    channel_tool_ = std::move(tool);
    channel_syntax_ = {"", "", read_arguments};
    syntax_ = &channel_syntax_;
    state_ = State::kCall;
  } else if (is_reasoning && !is_call) {
    state_ = State::kReasoning;
    spaces_ = has_reasoning_ ? "\n" : "";
  } else {
    state_ = State::kContent;
  }
  return true;
}

ChatOutput parse_chat_output(const ChatOutputOptions& options, std::string_view text) {
  ChatOutputParser parser(options);
  std::vector<ChatDelta> deltas;
  parser.push(text, deltas);
  parser.finish(deltas);
  ChatOutput output;
  for (const ChatDelta& delta : deltas) output.add(delta);
  return output;
}

}  // namespace redline
