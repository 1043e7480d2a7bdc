// Python's operations on values. An error is kept in the Evaluation; what is returned then has no meaning.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "chat/jinja/evaluation.h"

namespace redline::jinja {

/// "dict object", "None": the owner in messages about missing attributes.
std::string_view owner_name(Value value);
/// Python's name of the type: "str", "dict".
std::string_view type_name(Value value);
/// What using an undefined value fails with.
Value fail_undefined(Evaluation& e, Value value);
/// An integer of more than 64 bits.
Value fail_too_large(Evaluation& e);
constexpr double kTwo63 = 9223372036854775808.0;

bool truthy(Evaluation& e, Value value);
bool equal(Evaluation& e, Value a, Value b);
/// a < b; fails for types without an order.
bool less(Evaluation& e, Value a, Value b);
/// `op` is how the comparison is written in messages.
bool ordered(Evaluation& e, Value a, Value b, std::string_view op);
bool contains(Evaluation& e, Value container, Value item);
/// a is b.
bool identical(Value a, Value b);

enum class Arithmetic : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
Value arithmetic(Evaluation& e, Arithmetic op, Value a, Value b);
Value negate(Evaluation& e, Value a);
Value plus(Evaluation& e, Value a);

/// str(value): the text of a string itself, else its printed form in the arena.
std::string_view to_text(Evaluation& e, Value value);
Value to_string(Evaluation& e, Value value);
/// Appends str(value).
void append_text(Evaluation& e, std::string& out, Value value);
void append_repr(Evaluation& e, std::string& out, Value value);
int64_t length_of(const Str& text);
/// len(value); fails where Python does.
int64_t length(Evaluation& e, Value value);
bool has_length(Value value);
bool is_callable(Value value);

/// nullptr, after an error, for values that cannot be iterated.
Iterator* iterate(Evaluation& e, Value value);
bool is_iterable(Value value);
bool collect(Evaluation& e, Value value, std::vector<Value>& items);
/// reversed(value); nullptr, without an error, where Python raises TypeError.
Iterator* iterate_reversed(Evaluation& e, Value value);

/// jinja2's x.name: the attribute, else the item. Undefined where there is neither.
Value attribute(Evaluation& e, Value object, std::string_view name);
/// The attribute only; missing: there is none.
Value own_attribute(Evaluation& e, Value object, std::string_view name);
/// jinja2's x[index]: the item, else the attribute.
Value item(Evaluation& e, Value object, Value index);
Value slice(Evaluation& e, Value object, Value start, Value stop, Value step);

// Dicts.
bool is_hashable(Value value);
/// Fails for values that cannot be keys.
uint64_t hash(Evaluation& e, Value value);
/// nullptr: no such key.
const Value* find(Evaluation& e, const Dict& dict, Value key);
const Value* find(const Dict& dict, std::string_view key);
void set(Evaluation& e, Dict& dict, Value key, Value value);

/// int(text, base) and float(text) as Python reads them; nullopt: ValueError.
std::optional<Value> parse_int(Evaluation& e, std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);
/// int(value) of a float; fails for values out of range of int64.
Value truncated(Evaluation& e, double value);

}  // namespace redline::jinja
