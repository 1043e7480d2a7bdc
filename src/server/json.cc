#include "server/json.h"

#include "base/ordered_json.h"

namespace redline::server {
namespace {

constexpr int kMaxDepth = 64;

/// Maximum memory of a value besides its text. It covers an object with its name and the growth of the list that holds
/// it.
constexpr int64_t kValueBytes = 96;
constexpr size_t kValuesBetweenLooks = size_t{1} << 14;

struct Extent {
  size_t values = 0;
  bool is_too_deep = false;
};

/// Computes number and depth of the values before they are made. The parser does not recurse, but the readers of its
/// result do.
Extent extent_of(std::string_view text) {
  Extent extent{.values = 1};
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        if (text[i] == '\\') ++i;
    } else if (c == '[' || c == '{') {
      ++extent.values;
      if (++depth > kMaxDepth) {
        extent.is_too_deep = true;
        return extent;
      }
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',') {
      ++extent.values;
    }
  }
  return extent;
}

/// Builds values, and checks at intervals whether the result is still wanted.
class Builder final : public OrderedJsonBuilder {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}
  bool is_abandoned() const { return is_abandoned_; }

 private:
  bool goes_on() override {
    if (++num_values_ % kValuesBetweenLooks != 0 || !limits_.is_abandoned) return true;
    is_abandoned_ = limits_.is_abandoned();
    return !is_abandoned_;
  }

  const JsonLimits& limits_;
  size_t num_values_ = 0;
  bool is_abandoned_ = false;
};

}  // namespace

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Outcome<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return bad_request("", "the body is empty; it must be a JSON object");
  // The parser would treat a zero byte as the end of the text.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos)
    return bad_request("", fmt::format("the body is not JSON: a zero byte at byte {}", zero));
  const Extent extent = extent_of(text);
  if (extent.is_too_deep) return bad_request("", fmt::format("the body is nested more than {} levels deep", kMaxDepth));
  if (extent.values > limits.max_values)
    return bad_request("",
                       fmt::format("the body has about {} values; the limit is {}", extent.values, limits.max_values));
  if (limits.take_memory && !limits.take_memory(static_cast<int64_t>(extent.values) * kValueBytes))
    return overloaded(503, "the requests that are being answered take up the memory for their bodies; try again", 1);
  try {
    Builder builder(limits);
    if (builder.parse(text)) return std::move(builder.root());
    if (builder.is_abandoned()) return overloaded(503, "the client has gone", 1);
    if (builder.is_out_of_range()) return bad_request("", "the body is not JSON: a number is out of range");
    std::string what = builder.error();
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
