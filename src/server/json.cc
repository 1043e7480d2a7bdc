#include "server/json.h"

namespace redline::server {
namespace {

constexpr int kMaxDepth = 64;

/// The parser itself does not recurse, but what reads its result does.
bool is_too_deep(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Outcome<Json> parse_json(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return bad_request("", "the body is empty; it must be a JSON object");
  if (is_too_deep(text)) return bad_request("", fmt::format("the body is nested more than {} levels deep", kMaxDepth));
  try {
    return Json::parse(text);
  } catch (const Json::parse_error& error) {
    std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    if (const size_t end = what.find("] "); end != std::string::npos) what.erase(0, end + 2);
    if (what.size() > 200) what.resize(200);
    for (char& c : what)
      if (static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~') c = '?';
    return bad_request("", "the body is not JSON: " + what);
  } catch (const Json::exception&) {
    return bad_request("", "the body is not JSON: a number is out of range");
  }
}

}  // namespace redline::server
