// The state of one rendering: memory, limits and the first error. Errors are sticky: after fail() every operation
// returns at once, so callers check failed() only before loops and side effects.
#pragma once

#include <ctime>
#include <initializer_list>
#include <optional>
#include <string>

#include "base/error.h"
#include "chat/jinja/value.h"

namespace redline::jinja {

/// Limits of a rendering, because templates are untrusted. Exceeding one is an error.
struct Limits {
  int64_t steps = 10'000'000;         ///< nodes evaluated, items visited, and one for each 32 bytes copied
  int64_t output_bytes = 64ll << 20;  ///< bytes of the output and of each intermediate string
  int nesting = 2000;  ///< nesting of calls, loops and expressions, and of values when they are traversed
};

struct Position {
  uint32_t line = 1, column = 1;
};

class Evaluation {
 public:
  explicit Evaluation(const Limits& limits) : limits_(limits), steps_left_(limits.steps) {}
  Evaluation(const Evaluation&) = delete;

  Arena arena;
  Position position;           ///< position of the expression being evaluated, for errors
  std::optional<std::tm> now;  ///< the time for strftime_now; unset: the local time

  bool failed() const { return failed_; }
  const std::string& message() const { return message_; }
  Position failed_at() const { return failed_at_; }
  Code code() const { return code_; }
  /// Keeps the first error. Returns a value that callers can return in turn.
  template <class... A>
  Value fail(fmt::format_string<A...> text, A&&... args) {
    set_error(Code::invalid_argument, fmt::format(text, std::forward<A>(args)...));
    return Value::none();
  }
  /// fail() for features of jinja2 that this engine does not have.
  template <class... A>
  Value fail_unsupported(fmt::format_string<A...> text, A&&... args) {
    set_error(Code::unsupported, fmt::format(text, std::forward<A>(args)...));
    return Value::none();
  }
  void set_error(Code code, std::string message);

  const Limits& limits() const { return limits_; }
  /// Counts steps. Returns false after an error, which may be the exceeded limit.
  bool charge(int64_t steps = 1) {
    steps_left_ -= steps;
    if (steps_left_ < 0) [[unlikely]]
      out_of_steps();
    return !failed_;
  }
  bool charge_bytes(size_t bytes);

  // Enter and leave a level of recursion in C++; see Nested.
  bool enter() {
    if (++depth_ > limits_.nesting) [[unlikely]]
      too_deep();
    return !failed_;
  }
  void leave() { --depth_; }

  // Values.
  Value string(std::string_view text);                                   ///< copies
  Value string_in_place(std::string_view text, bool is_markup = false);  ///< `text` must live as long as the arena
  /// `hint` is a literal.
  Value undefined(std::string_view hint) { return Value::undefined(arena.make(Undefined{hint, {}, {}})); }
  Value undefined_name(std::string_view name) { return Value::undefined(arena.make(Undefined{{}, name, {}})); }
  Value undefined_attribute(std::string_view owner, std::string_view name) {
    return Value::undefined(arena.make(Undefined{{}, name, owner}));
  }
  Value list(std::span<const Value> items);
  Value tuple(std::span<const Value> items);
  Value tuple(std::initializer_list<Value> items) { return tuple(std::span(items.begin(), items.size())); }
  Value function(const char* name, NativeFunction call, Value self = Value::missing(), const void* row = nullptr);
  const Str* text(std::string_view text);  ///< copies
  Dict* make_dict() { return arena.make(Dict{}); }
  List* make_list(std::span<const Value> items);

 private:
  void out_of_steps();
  void too_deep();

  Limits limits_;
  int64_t steps_left_;
  int depth_ = 0;
  bool failed_ = false;
  Code code_ = Code::ok;
  std::string message_;
  Position failed_at_;
};

/// Enters a level of recursion for its scope: if (Nested nested(e); nested) ...
class Nested {
 public:
  explicit Nested(Evaluation& e) : e_(e), ok_(e.enter()) {}
  ~Nested() { e_.leave(); }
  Nested(const Nested&) = delete;
  explicit operator bool() const { return ok_; }

 private:
  Evaluation& e_;
  bool ok_;
};

}  // namespace redline::jinja
