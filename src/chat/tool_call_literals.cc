// Calls written as expressions: Python's and Gemma's.
#include <cctype>

#include "base/json_text.h"
#include "chat/tool_call_parts.h"

namespace redline {

using namespace tool_calls;

namespace {

/// Reads literals of Python, JSON and Gemma, and writes them as JSON. After an error or the end of the text, it stays
/// in that state.
class LiteralReader {
 public:
  LiteralReader(std::string_view text, std::string_view quote) : text_(text), quote_(quote) {}

  bool failed() const { return failed_; }
  bool ended() const { return ended_; }
  size_t at() const { return at_; }
  bool ok() const { return !failed_ && !ended_; }
  void spaces() { at_ = skip_spaces(text_, at_); }

  bool skip(std::string_view word) {
    spaces();
    const std::string_view rest = text_.substr(at_);
    if (rest.starts_with(word)) {
      at_ += word.size();
      return true;
    }
    if (word.starts_with(rest)) ended_ = true;
    return false;
  }
  void expect(std::string_view word) {
    if (!skip(word) && !ended_) failed_ = true;
  }

  std::string name() {
    spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) || text_[at_] == '_' ||
                                  text_[at_] == '.' || text_[at_] == '-'))
      ++at_;
    if (at_ == text_.size()) ended_ = true;
    else if (at_ == begin) failed_ = true;
    return std::string(text_.substr(begin, at_ - begin));
  }

  std::string value(int depth = 0) {
    spaces();
    if (depth > kMaxNesting) failed_ = true;
    if (at_ >= text_.size()) ended_ = true;
    if (!ok()) return "";
    if (!quote_.empty()) {
      if (skip(quote_)) return json_text(until(quote_));
      if (!ok()) return "";
    }
    const char c = text_[at_];
    if (c == '\'' || c == '"') return json_text(string(c));
    if (c == '[' || c == '(') return list(c == '[' ? "]" : ")", depth);
    if (c == '{') return dict(depth);
    const size_t begin = at_;
    while (at_ < text_.size() && std::string_view(",:()[]{}= \t\r\n<").find(text_[at_]) == std::string_view::npos)
      ++at_;
    if (at_ == text_.size()) ended_ = true;
    const std::string_view word = text_.substr(begin, at_ - begin);
    if (word == "True" || word == "true") return "true";
    if (word == "False" || word == "false") return "false";
    if (word == "None" || word == "null") return "null";
    if (ok() && (word.empty() || !is_json(word))) failed_ = true;
    return std::string(word);
  }

  /// Reads members up to and with '}'. Keys may be without quotes.
  std::string dict(int depth) {
    expect("{");
    ArgumentWriter members;
    while (ok() && !skip("}")) {
      if (!ok()) break;
      const std::string key = key_text(depth);
      expect(":");
      const std::string member = value(depth + 1);
      if (!ok()) break;
      members.add(key, member);
      if (!skip(",") && ok()) {
        expect("}");
        break;
      }
    }
    return members.finish();
  }

 private:
  std::string key_text(int depth) {
    spaces();
    if (at_ >= text_.size()) {
      ended_ = true;
      return "";
    }
    const char c = text_[at_];
    const bool is_quoted = c == '\'' || c == '"' || (!quote_.empty() && text_.substr(at_).starts_with(quote_));
    if (is_quoted) {
      const std::string json = value(depth + 1);
      return ok() ? OrderedJson::parse(json).get<std::string>() : "";
    }
    if (!quote_.empty() && quote_.starts_with(text_.substr(at_))) {
      ended_ = true;
      return "";
    }
    return name();
  }

  std::string list(std::string_view close, int depth) {
    ++at_;
    std::string out;
    while (ok() && !skip(close)) {
      if (!ok()) break;
      const std::string item = value(depth + 1);
      if (!ok()) break;
      out += (out.empty() ? "" : ", ") + item;
      if (!skip(",") && ok()) {
        expect(close);
        break;
      }
    }
    return "[" + out + "]";
  }

  std::string_view until(std::string_view stop) {
    const size_t end = text_.find(stop, at_);
    if (end == std::string::npos) {
      ended_ = true;
      return {};
    }
    const std::string_view found = text_.substr(at_, end - at_);
    at_ = end + stop.size();
    return found;
  }

  std::string string(char quote) {
    std::string out;
    for (++at_; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == quote) {
        ++at_;
        return out;
      }
      if (c != '\\' || at_ + 1 >= text_.size()) {
        out += c;
        continue;
      }
      const char escaped = text_[++at_];
      if (escaped == 'n') out += '\n';
      else if (escaped == 't') out += '\t';
      else if (escaped == 'r') out += '\r';
      else if (escaped == 'u' && at_ + 4 < text_.size()) {
        const OrderedJson c16 = OrderedJson::parse(fmt::format("\"\\u{}\"", text_.substr(at_ + 1, 4)), nullptr, false);
        if (c16.is_string()) out += c16.get<std::string>();
        at_ += 4;
      } else {
        if (escaped != '\\' && escaped != '\'' && escaped != '"' && escaped != '/') out += '\\';
        out += escaped;
      }
    }
    ended_ = true;
    return out;
  }

  std::string_view text_, quote_;
  size_t at_ = 0;
  bool failed_ = false, ended_ = false;
};

}  // namespace

bool tool_calls::is_json(std::string_view text) {
  return check_json_bounds(text, "").ok() && OrderedJson::accept(text.begin(), text.end());
}

std::string tool_calls::json_text(std::string_view text) {
  return OrderedJson(std::string(text)).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

std::optional<std::string> tool_calls::literal_as_json(std::string_view text) {
  const std::string ended = std::string(text) + " ";  // the reader would wait for more text at the end of a word
  LiteralReader reader(ended, "");
  std::string json = reader.value();
  reader.spaces();
  if (!reader.ok() || reader.at() != ended.size() || !is_json(json)) return std::nullopt;
  return json;
}

Reading read_python_calls(const ToolCallSyntax& syntax, std::string_view text, bool is_all,
                          const ToolSchemas& schemas) {
  const size_t begin = skip_spaces(text, 0);
  if (begin >= text.size()) return more_or_failed(is_all);
  if (text[begin] == '{') return read_json_calls(syntax, text, is_all, schemas);
  LiteralReader reader(text, "");
  const auto stopped = [&] { return reader.failed() ? failed() : more_or_failed(is_all); };
  const bool is_list = reader.skip("[");
  if (is_list && skip_spaces(text, reader.at()) < text.size() && text[skip_spaces(text, reader.at())] == '{')
    return read_json_calls(syntax, text, is_all, schemas);
  std::vector<ChatToolCall> calls;
  do {
    ChatToolCall call;
    call.name = reader.name();
    if (!reader.ok()) return stopped();
    if (call.name.ends_with(".call")) call.name.resize(call.name.size() - 5);
    reader.expect("(");
    ArgumentWriter arguments;
    while (reader.ok() && !reader.skip(")")) {
      if (!reader.ok()) break;
      const std::string key = reader.name();
      reader.expect("=");
      const std::string value = reader.value();
      if (!reader.ok()) break;
      arguments.add(key, value);
      if (!reader.skip(",") && reader.ok()) {
        reader.expect(")");
        break;
      }
    }
    if (!reader.ok()) return stopped();
    call.arguments = arguments.finish();
    calls.push_back(std::move(call));
  } while (is_list && reader.skip(","));
  if (is_list) {
    if (!reader.ok() && !is_all) return stopped();
    reader.expect("]");
    if (!reader.ok()) return stopped();
  }
  return closed(syntax, text, reader.at(), is_all, std::move(calls));
}

Reading read_gemma_call(const ToolCallSyntax& syntax, std::string_view text, bool is_all, const ToolSchemas&) {
  LiteralReader reader(text, syntax.first);
  ChatToolCall call;
  call.name = reader.name();
  if (!reader.ok()) return reader.failed() ? failed() : more_or_failed(is_all);
  call.arguments = reader.dict(0);
  if (!reader.ok()) return reader.failed() ? failed() : more_or_failed(is_all);
  return closed(syntax, text, reader.at(), is_all, {std::move(call)});
}

}  // namespace redline
