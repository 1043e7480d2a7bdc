// Python's operations on values. An error is kept in the Evaluation; the returned value then has no meaning.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chat/jinja/evaluation.h"

namespace redline::jinja {

/// Returns the name of a value for messages about missing attributes: "dict object", "None".
std::string_view owner_name(Value value);
/// Returns Python's name of the type: "str", "dict".
std::string_view type_name(Value value);
/// Fails with the error for using an undefined value.
Value fail_undefined(Evaluation& e, Value value);
/// Fails with the error for an integer of more than 64 bits.
Value fail_too_large(Evaluation& e);
constexpr double kTwo63 = 9223372036854775808.0;

bool truthy(Evaluation& e, Value value);
bool equal(Evaluation& e, Value a, Value b);
/// Returns a < b; fails for types without an order.
bool less(Evaluation& e, Value a, Value b);
/// Returns the result of less(); `op` is the comparison operator for messages.
bool ordered(Evaluation& e, Value a, Value b, std::string_view op);
bool contains(Evaluation& e, Value container, Value item);
/// Returns `a is b`.
bool identical(Value a, Value b);

enum class Arithmetic : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
Value arithmetic(Evaluation& e, Arithmetic op, Value a, Value b);
Value negate(Evaluation& e, Value a);
Value plus(Evaluation& e, Value a);

/// Returns str(value): the text of a string itself, else the printed form of the value in the arena.
std::string_view to_text(Evaluation& e, Value value);
Value to_string(Evaluation& e, Value value);
/// Appends str(value).
void append_text(Evaluation& e, std::string& out, Value value);
void append_repr(Evaluation& e, std::string& out, Value value);
int64_t length_of(const Str& text);
/// Returns len(value); fails for values for which Python fails.
int64_t length(Evaluation& e, Value value);
bool has_length(Value value);
bool is_callable(Value value);

/// Returns an iterator; nullptr, after an error, for values that cannot be iterated.
Iterator* iterate(Evaluation& e, Value value);
bool is_iterable(Value value);
bool collect(Evaluation& e, Value value, std::vector<Value>& items);
/// Returns reversed(value); nullptr, without an error, if Python raises TypeError.
Iterator* iterate_reversed(Evaluation& e, Value value);

/// Returns jinja2's x.name: the attribute, else the item, else undefined.
Value attribute(Evaluation& e, Value object, std::string_view name);
/// Returns the attribute only; missing() if there is none.
Value own_attribute(Evaluation& e, Value object, std::string_view name);
/// Returns jinja2's x[index]: the item, else the attribute.
Value item(Evaluation& e, Value object, Value index);
Value slice(Evaluation& e, Value object, Value start, Value stop, Value step);

// Dicts.
bool is_hashable(Value value);
/// Returns the hash of a key; fails for values that cannot be keys.
uint64_t hash(Evaluation& e, Value value);
/// Returns the value of a key; nullptr if there is no such key.
const Value* find(Evaluation& e, const Dict& dict, Value key);
const Value* find(const Dict& dict, std::string_view key);
void set(Evaluation& e, Dict& dict, Value key, Value value);

/// Return Python's int(text, base) and float(text); nullopt stands for ValueError.
std::optional<Value> parse_int(Evaluation& e, std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);
/// Returns int(value) of a float; fails for values outside the range of int64.
Value truncated(Evaluation& e, double value);

}  // namespace redline::jinja
