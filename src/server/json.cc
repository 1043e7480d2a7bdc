#include "server/json.h"

#include <unordered_map>
#include <vector>

namespace redline::server {
namespace {

constexpr int kMaxDepth = 64;

/// An object with more members finds those of the same name by a table.
constexpr size_t kFewMembers = 32;
/// Maximum memory of a value besides its text: for an object, with its name and the growth of the list that it is in.
constexpr int64_t kValueBytes = 96;
constexpr size_t kValuesBetweenLooks = size_t{1} << 14;

struct Extent {
  size_t values = 0;
  bool is_too_deep = false;
};

/// Read before the values are made: the parser does not recurse, but what reads its result does.
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

/// Makes the values that the parser reports. nlohmann's own looks for each name among all members before it.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}
  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    name_ = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    what_ = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    is_out_of_range_ = error.id == 406;
    return false;
  }

  Json& root() { return root_; }
  const std::string& what() const { return what_; }
  bool is_out_of_range() const { return is_out_of_range_; }
  bool is_abandoned() const { return is_abandoned_; }

 private:
  struct Level {
    Json* value;
    std::unordered_map<std::string, size_t> places;  ///< of the names of a large object
  };
  Json* place_for(Json value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      auto& list = level.value->get_ref<Json::array_t&>();
      list.push_back(std::move(value));
      return &list.back();
    }
    // The members are a list of pairs, which looks for a name only when it is asked to.
    std::vector<Json::object_t::value_type>& members = level.value->get_ref<Json::object_t&>();
    Json::object_t::value_type* same = nullptr;
    if (members.size() < kFewMembers) {
      for (auto& member : members)
        if (member.first == name_) same = &member;
    } else {
      if (level.places.empty())
        for (size_t i = 0; i < members.size(); ++i) level.places.emplace(members[i].first, i);
      const auto [at, is_new] = level.places.emplace(name_, members.size());
      if (!is_new) same = &members[at->second];
    }
    if (same) {
      same->second = std::move(value);
      return &same->second;
    }
    members.emplace_back(std::move(name_), std::move(value));
    return &members.back().second;
  }
  template <class T>
  bool add(T&& value) {
    place_for(Json(std::forward<T>(value)));
    if (++num_values_ % kValuesBetweenLooks != 0 || !limits_.is_abandoned) return true;
    is_abandoned_ = limits_.is_abandoned();
    return !is_abandoned_;
  }
  bool open(Json value) {
    levels_.push_back({place_for(std::move(value)), {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json root_;
  std::vector<Level> levels_;
  std::string name_, what_;
  size_t num_values_ = 0;
  bool is_out_of_range_ = false, is_abandoned_ = false;
};

}  // namespace

std::string to_text(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Outcome<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return bad_request("", "the body is empty; it must be a JSON object");
  const Extent extent = extent_of(text);
  if (extent.is_too_deep) return bad_request("", fmt::format("the body is nested more than {} levels deep", kMaxDepth));
  if (extent.values > limits.max_values)
    return bad_request("",
                       fmt::format("the body has about {} values; the limit is {}", extent.values, limits.max_values));
  if (limits.take_memory && !limits.take_memory(static_cast<int64_t>(extent.values) * kValueBytes))
    return overloaded(503, "the requests that are being answered take up the memory for their bodies; try again", 1);
  try {
    Builder builder(limits);
    if (Json::sax_parse(text, &builder)) return std::move(builder.root());
    if (builder.is_abandoned()) return overloaded(503, "the client has gone", 1);
    if (builder.is_out_of_range()) return bad_request("", "the body is not JSON: a number is out of range");
    std::string what = builder.what();
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
