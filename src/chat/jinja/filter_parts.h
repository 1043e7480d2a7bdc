// Shared parts of the filters: arguments, and attributes by path.
#pragma once

#include <span>

#include "chat/jinja/builtins.h"
#include "chat/jinja/operations.h"

namespace redline::jinja {

using Values = std::span<const Value>;

inline bool is_given(Value value) { return !value.is_missing(); }
inline bool is_given_and_true(Evaluation& e, Value value) { return is_given(value) && truthy(e, value); }
/// Returns the value of an integer parameter, or `otherwise` if it is not given.
int64_t int_or(Evaluation& e, Value value, int64_t otherwise);
/// Calls object.name(values).
Value call_method(Evaluation& e, Value object, const char* name, std::initializer_list<Value> values = {});

/// A path of attributes, such as "a.b.0". Its steps are in the arena, because lazy filters keep it.
struct Path {
  List* steps = nullptr;
  Value otherwise = Value::none();  ///< replaces undefined values; none: undefined values are kept
  bool ignores_case = false;

  Value get(Evaluation& e, Value object) const;
};
Path path_of(Evaluation& e, Value attribute, bool ignores_case = false, Value otherwise = Value::none());

// These functions return the rows of each file.
std::span<const FilterRow> text_filters();
std::span<const FilterRow> collection_filters();

}  // namespace redline::jinja
