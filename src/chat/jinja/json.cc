#include "chat/jinja/json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "chat/jinja/operations.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

/// Builds values from the events of nlohmann's SAX parser, which does not recurse.
class Builder {
 public:
  explicit Builder(Evaluation& e) : e_(e) {}

  Value result() const { return result_; }
  const std::string& error() const { return error_; }

  // The SAX interface of nlohmann::json.
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = std::string;
  using binary_t = nlohmann::json::binary_t;

  bool null() { return add(Value::none()); }
  bool boolean(bool b) { return add(Value::boolean(b)); }
  bool number_integer(int64_t i) { return add(Value::integer(i)); }
  bool number_unsigned(uint64_t i) {
    if (i <= static_cast<uint64_t>(INT64_MAX)) return add(Value::integer(static_cast<int64_t>(i)));
    return add(Value::big_int(e_.text(fmt::format("{}", i))));
  }
  bool number_float(double d, const std::string& text) {
    // An integer of more than 64 bits keeps its digits.
    if (text.find_first_of(".eE") == std::string::npos) return add(Value::big_int(e_.text(text)));
    return add(Value::number(d));
  }
  bool string(std::string& text) { return add(e_.string(text)); }
  bool binary(binary_t&) { return false; }
  bool start_object(size_t) { return open(Value::dict(e_.make_dict())); }
  bool end_object() { return close(); }
  bool start_array(size_t) { return open(Value::list(e_.arena.make(List{}))); }
  bool end_array() {
    Level& level = levels_.back();
    *level.value.as_list() = *e_.make_list(level.items);
    return close();
  }
  bool key(std::string& text) {
    levels_.back().key = e_.string(text);
    return e_.charge();
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& problem) {
    error_ = problem.what();
    return false;
  }

 private:
  struct Level {
    Value value, key;
    std::vector<Value> items;
  };

  bool open(Value value) {
    levels_.push_back({value, {}, {}});
    if (static_cast<int>(levels_.size()) > e_.limits().nesting / 4) {
      e_.fail("values are nested deeper than {} levels", e_.limits().nesting / 4);
      return false;
    }
    return true;
  }
  bool close() {
    const Value value = levels_.back().value;
    levels_.pop_back();
    return add(value);
  }
  bool add(Value value) {
    if (levels_.empty()) {
      result_ = value;
    } else if (Level& level = levels_.back(); level.value.is_dict()) {
      set(e_, *level.value.as_dict(), level.key, value);
    } else {
      level.items.push_back(value);
    }
    return e_.charge();
  }

  Evaluation& e_;
  std::vector<Level> levels_;
  Value result_;
  std::string error_;
};

void append_json_text(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (size_t pos = 0; pos < text.size();) {
    const size_t at = pos;
    const uint32_t c = next_char(text, pos);
    switch (c) {
      case '"': out += "\\\""; continue;
      case '\\': out += "\\\\"; continue;
      case '\n': out += "\\n"; continue;
      case '\r': out += "\\r"; continue;
      case '\t': out += "\\t"; continue;
      case '\f': out += "\\f"; continue;
      case '\b': out += "\\b"; continue;
      default: break;
    }
    if (c < 0x20) {
      out += fmt::format("\\u{:04x}", c);
    } else if (c < 0x7F || !ensure_ascii) {
      out.append(text.substr(at, pos - at));
    } else if (c < 0x10000) {
      out += c == 0x7F ? "\x7F" : fmt::format("\\u{:04x}", c);
    } else {
      const uint32_t rest = c - 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }
  }
  out += '"';
}

std::string float_json(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
  return float_repr(value);
}

class Writer {
 public:
  Writer(Evaluation& e, std::string& out, const JsonStyle& style) : e_(e), out_(out), style_(style) {}

  void write(Value value) {
    const Nested nested(e_);
    if (!nested || !e_.charge()) return;
    if (static_cast<int64_t>(out_.size()) > e_.limits().output_bytes) {
      e_.charge_bytes(out_.size());
      return;
    }
    switch (value.kind()) {
      case Kind::kNone: out_ += "null"; return;
      case Kind::kBool: out_ += value.as_bool() ? "true" : "false"; return;
      case Kind::kInt: out_ += fmt::format("{}", value.as_int()); return;
      case Kind::kBigInt: out_ += value.text(); return;
      case Kind::kFloat: out_ += float_json(value.as_double()); return;
      case Kind::kString:
        if (e_.charge_bytes(value.text().size())) append_json_text(out_, value.text(), style_.ensure_ascii);
        return;
      case Kind::kList:
      case Kind::kTuple: return write_list(value.as_list()->span());
      case Kind::kDict: return write_dict(*value.as_dict());
      default: e_.fail("Object of type {} is not JSON serializable", type_name(value));
    }
  }

 private:
  void new_line() {
    if (!style_.is_indented) return;
    out_ += '\n';
    for (int i = 0; i < level_; ++i) out_ += style_.indent;
  }

  void write_list(std::span<const Value> items) {
    out_ += '[';
    if (items.empty()) {
      out_ += ']';
      return;
    }
    ++level_;
    bool is_first = true;
    for (const Value item : items) {
      if (e_.failed()) return;
      if (!std::exchange(is_first, false)) out_ += style_.item_separator;
      new_line();
      write(item);
    }
    --level_;
    new_line();
    out_ += ']';
  }

  void write_dict(const Dict& dict) {
    out_ += '{';
    if (dict.size == 0) {
      out_ += '}';
      return;
    }
    std::vector<const Entry*> entries;
    for (const Entry& entry : dict.span()) entries.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(entries.begin(), entries.end(),
                       [&](const Entry* a, const Entry* b) { return !e_.failed() && less(e_, a->key, b->key); });
    ++level_;
    bool is_first = true;
    for (const Entry* entry : entries) {
      if (e_.failed()) return;
      if (!std::exchange(is_first, false)) out_ += style_.item_separator;
      new_line();
      write_key(entry->key);
      out_ += style_.key_separator;
      write(entry->value);
    }
    --level_;
    new_line();
    out_ += '}';
  }

  void write_key(Value key) {
    switch (key.kind()) {
      case Kind::kString: return append_json_text(out_, key.text(), style_.ensure_ascii);
      case Kind::kNone: out_ += "\"null\""; return;
      case Kind::kBool: out_ += key.as_bool() ? "\"true\"" : "\"false\""; return;
      case Kind::kInt: out_ += fmt::format("\"{}\"", key.as_int()); return;
      case Kind::kFloat: out_ += fmt::format("\"{}\"", float_json(key.as_double())); return;
      default: e_.fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  Evaluation& e_;
  std::string& out_;
  const JsonStyle& style_;
  int level_ = 0;
};

}  // namespace

Result<Value> parse_json_value(Evaluation& e, std::string_view text, std::string_view what) {
  // The parser would take a zero byte for the end of the text, so the text is refused here.
  if (text.find('\0') != std::string::npos) return invalid_argument("{}: not JSON: it has a zero byte", what);
  Builder builder(e);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    if (e.failed()) return invalid_argument("{}: {}", what, e.message());
    std::string_view problem = builder.error();
    if (const size_t at = problem.find("] "); at != std::string::npos) problem.remove_prefix(at + 2);
    return invalid_argument("{}: not JSON: {}", what, problem);
  }
  return builder.result();
}

void append_json(Evaluation& e, std::string& out, Value value, const JsonStyle& style) {
  Writer(e, out, style).write(value);
}

}  // namespace redline::jinja
