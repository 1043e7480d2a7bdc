// Builds JSON values whose members keep the order of the text, in linear time.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace redline {

/// Builds a nlohmann::ordered_json from the parser's events. The time is linear in the text: nlohmann's own builder
/// compares each name with all members before it, which takes hours for an object of a million members. If an object
/// has a name several times, the last value counts, at the place of the first.
class OrderedJsonBuilder : public nlohmann::json_sax<nlohmann::ordered_json> {
 public:
  using Value = nlohmann::ordered_json;

  /// Builds the value of a text. Returns false if it is not JSON, or if goes_on() ended the parse. Sets no limit to the
  /// depth and the number of values; check_json_bounds() does.
  bool parse(std::string_view text) { return Value::sax_parse(text, this); }
  /// Returns the value of the text.
  Value& root() { return root_; }
  /// Returns the position of the error in the text, as the parser counts bytes; 0: no error.
  size_t error_byte() const { return error_byte_; }
  /// Returns nlohmann's message "[json.exception.parse_error.101] parse error at line 1, column 2: ..."; "": no parse
  /// error.
  const std::string& error() const { return error_; }
  /// Returns true if the error is a number beyond the range of double.
  bool is_out_of_range() const { return is_out_of_range_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Value::object()); }
  bool start_array(size_t) override { return open(Value::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    name_ = std::move(name);
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr int kNumberOutOfRange = 406;
    error_byte_ = byte;
    error_ = error.what();
    is_out_of_range_ = error.id == kNumberOutOfRange;
    return false;
  }

 protected:
  /// Called after each value that is not an array or object. Returns false to end the parse.
  virtual bool goes_on() { return true; }

 private:
  /// An object with at least this many members finds a member of the same name by a table.
  static constexpr size_t kFewMembers = 32;
  /// An array or object whose end is not read yet.
  struct Level {
    Value* value;
    std::unordered_map<std::string, size_t> places;  ///< index of each member by name; empty for a small object
  };

  /// Stores a value in the innermost open array or object, or as the root. Returns its address.
  Value* place_for(Value value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      auto& list = level.value->get_ref<Value::array_t&>();
      list.push_back(std::move(value));
      return &list.back();
    }
    // An ordered_json object is a vector of pairs, and only its own functions compare names. The vector's do not.
    std::vector<Value::object_t::value_type>& members = level.value->get_ref<Value::object_t&>();
    Value::object_t::value_type* same = nullptr;
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
    place_for(Value(std::forward<T>(value)));
    return goes_on();
  }
  bool open(Value value) {
    levels_.push_back({place_for(std::move(value)), {}});
    return true;
  }
  bool close() {
    levels_.pop_back();
    return true;
  }

  Value root_;
  std::vector<Level> levels_;  ///< open arrays and objects, the innermost last
  std::string name_, error_;   ///< name of the next member, and message of the parse error
  size_t error_byte_ = 0;
  bool is_out_of_range_ = false;
};

}  // namespace redline
