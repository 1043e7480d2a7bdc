// Iteration, attributes, items, slices and dicts.
#include <algorithm>
#include <cmath>
#include <functional>

#include "chat/jinja/methods.h"
#include "chat/jinja/objects.h"
#include "chat/jinja/operations.h"
#include "chat/jinja/python_text.h"

namespace redline::jinja {
namespace {

// Iterators
// ------------------------------------------------------------------------------------------------------------

struct ListIterator final : Iterator {
  explicit ListIterator(std::span<const Value> s) : items(s) { type_name = "list_iterator"; }
  bool next(Evaluation& e, Value& item) override {
    if (at >= items.size() || !e.charge()) return false;
    item = items[at++];
    return true;
  }
  std::span<const Value> items;
  size_t at = 0;
};

struct TextIterator final : Iterator {
  explicit TextIterator(std::string_view t) : text(t) {}
  bool next(Evaluation& e, Value& item) override {
    if (at >= text.size() || !e.charge()) return false;
    const size_t begin = at;
    next_char(text, at);
    item = e.string_in_place(text.substr(begin, at - begin));
    return true;
  }
  std::string_view text;
  size_t at = 0;
};

struct DictIterator final : Iterator {
  DictIterator(const Dict* d, View::Part p, bool r) : dict(d), part(p), reversed(r) {}
  bool next(Evaluation& e, Value& item) override {
    if (at >= dict->size || !e.charge()) return false;
    const Entry& entry = dict->entries[reversed ? dict->size - 1 - at : at];
    ++at;
    item = part == View::Part::kKeys     ? entry.key
           : part == View::Part::kValues ? entry.value
                                         : e.tuple({entry.key, entry.value});
    return true;
  }
  const Dict* dict;
  View::Part part;
  bool reversed;
  uint32_t at = 0;
};

struct RangeIterator final : Iterator {
  RangeIterator(int64_t f, int64_t s, int64_t n) : first(f), step(s), count(n) {}
  bool next(Evaluation& e, Value& item) override {
    if (at >= count || !e.charge()) return false;
    item = Value::integer(first + at++ * step);
    return true;
  }
  int64_t first, step, count, at = 0;
};

// Hash
// -----------------------------------------------------------------------------------------------------------------

uint64_t mixed(uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDull;
  x ^= x >> 33;
  return x;
}

uint64_t hash_text(std::string_view text) { return std::hash<std::string_view>()(text); }

void grow(Evaluation& e, Dict& dict) {
  const uint32_t capacity = std::max<uint32_t>(4, 2 * dict.capacity);
  if (!e.charge(3 * static_cast<int64_t>(capacity))) return;
  Entry* entries = e.arena.array<Entry>(capacity);
  std::copy_n(dict.entries, dict.size, entries);
  dict.entries = entries;
  dict.capacity = capacity;
  if (capacity <= 8) return;
  dict.index_size = 2 * capacity;
  dict.index = e.arena.array<uint32_t>(dict.index_size);
  std::fill_n(dict.index, dict.index_size, 0);
  for (uint32_t i = 0; i < dict.size; ++i) {
    uint64_t at = dict.entries[i].hash;
    while (dict.index[at & (dict.index_size - 1)]) ++at;
    dict.index[at & (dict.index_size - 1)] = i + 1;
  }
}

template <class Equal>
Entry* find_entry(const Dict& dict, uint64_t hash, Equal&& is_equal) {
  if (!dict.index) {
    for (uint32_t i = 0; i < dict.size; ++i)
      if (dict.entries[i].hash == hash && is_equal(dict.entries[i].key)) return &dict.entries[i];
    return nullptr;
  }
  for (uint64_t at = hash;; ++at) {
    const uint32_t i = dict.index[at & (dict.index_size - 1)];
    if (i == 0) return nullptr;
    if (dict.entries[i - 1].hash == hash && is_equal(dict.entries[i - 1].key)) return &dict.entries[i - 1];
  }
}

// Indexes
// --------------------------------------------------------------------------------------------------------------

/// The bounds of a slice over `size` items: first, count and step.
struct SliceBounds {
  int64_t first = 0, count = 0, step = 1;
};
std::optional<SliceBounds> slice_bounds(Evaluation& e, int64_t size, Value start, Value stop, Value step) {
  for (const Value v : {start, stop, step}) {
    if (v.is_none() || v.is_int()) continue;
    if (v.is(Kind::kBigInt)) fail_too_large(e);
    e.fail("slice indices must be integers or None");
    return std::nullopt;
  }
  SliceBounds bounds;
  bounds.step = step.is_none() ? 1 : step.as_int();
  if (bounds.step == 0) {
    e.fail("slice step cannot be zero");
    return std::nullopt;
  }
  if (bounds.step == INT64_MIN) bounds.step = -INT64_MAX;
  const bool is_forward = bounds.step > 0;
  const auto clamped = [&](Value v, int64_t otherwise) {
    if (v.is_none()) return otherwise;
    int64_t at = v.as_int();
    if (at < 0) at += size;
    return std::clamp<int64_t>(at, is_forward ? 0 : -1, is_forward ? size : size - 1);
  };
  bounds.first = clamped(start, is_forward ? 0 : size - 1);
  const int64_t last = clamped(stop, is_forward ? size : -1);
  bounds.count = Range{bounds.first, last, bounds.step}.size();
  return bounds;
}

Value char_at(Evaluation& e, Value string, int64_t index) {
  const Str* s = string.as_str();
  const bool is_ascii = length_of(*s) == static_cast<int64_t>(s->text.size());
  if (!is_ascii && !e.charge(index / 32)) return string;
  const size_t begin = is_ascii ? static_cast<size_t>(index) : char_offset(s->text, index);
  size_t end = begin;
  next_char(s->text, end);
  return e.string_in_place(s->text.substr(begin, end - begin), s->is_markup);
}

}  // namespace

// Iteration
// ------------------------------------------------------------------------------------------------------------

bool is_iterable(Value value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kView:
    case Kind::kRange:
    case Kind::kIterator:
    case Kind::kLoop: return true;
    default: return false;
  }
}

Iterator* iterate(Evaluation& e, Value value) {
  switch (value.kind()) {
    case Kind::kUndefined: return e.arena.make(ListIterator({}));
    case Kind::kString: return e.arena.make(TextIterator(value.text()));
    case Kind::kList:
    case Kind::kTuple: return e.arena.make(ListIterator(value.as_list()->span()));
    case Kind::kDict: return e.arena.make(DictIterator(value.as_dict(), View::Part::kKeys, false));
    case Kind::kView: return e.arena.make(DictIterator(value.as_view()->dict, value.as_view()->part, false));
    case Kind::kRange: {
      const Range& r = *value.as_range();
      return e.arena.make(RangeIterator(r.start, r.step, r.size()));
    }
    case Kind::kIterator: return value.as_iterator();
    case Kind::kLoop: e.fail_unsupported("iterating over 'loop' is not supported"); return nullptr;
    default: e.fail("'{}' object is not iterable", type_name(value)); return nullptr;
  }
}

Iterator* iterate_reversed(Evaluation& e, Value value) {
  switch (value.kind()) {
    case Kind::kUndefined: return e.arena.make(ListIterator({}));
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple: {
      std::vector<Value> items;
      collect(e, value, items);
      std::reverse(items.begin(), items.end());
      return e.arena.make(ListIterator(e.make_list(items)->span()));
    }
    case Kind::kDict: return e.arena.make(DictIterator(value.as_dict(), View::Part::kKeys, true));
    case Kind::kView: return e.arena.make(DictIterator(value.as_view()->dict, value.as_view()->part, true));
    case Kind::kRange: {
      const Range& r = *value.as_range();
      return e.arena.make(RangeIterator(r.start + (r.size() - 1) * r.step, -r.step, r.size()));
    }
    default: return nullptr;
  }
}

bool collect(Evaluation& e, Value value, std::vector<Value>& items) {
  Iterator* iterator = iterate(e, value);
  Value item;
  while (iterator && iterator->next(e, item)) items.push_back(item);
  return !e.failed();
}

// Attributes and items
// -------------------------------------------------------------------------------------------------

Value own_attribute(Evaluation& e, Value object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kNamespace: {
      const Value* value = find(*object.as_names()->attributes, name);
      return value ? *value : Value::missing();
    }
    case Kind::kLoop: return loop_attribute(e, *object.as_loop(), name);
    case Kind::kMacro: return macro_attribute(e, *object.as_macro(), name);
    default: return find_method(e, object, name);
  }
}

Value attribute(Evaluation& e, Value object, std::string_view name) {
  if (object.is_undefined()) return fail_undefined(e, object);
  if (const Value own = own_attribute(e, object, name); !own.is_missing()) return own;
  if (object.is_dict())
    if (const Value* value = find(*object.as_dict(), name)) return *value;
  return e.undefined_attribute(owner_name(object), name);
}

Value item(Evaluation& e, Value object, Value index) {
  if (object.is_undefined()) return fail_undefined(e, object);
  if (object.is_dict()) {
    if (is_hashable(index))
      if (const Value* value = find(e, *object.as_dict(), index)) return *value;
  } else if (index.is_int()) {
    const bool has_items = object.is_sequence() || object.is_string() || object.is(Kind::kRange);
    const int64_t size = has_items ? length(e, object) : 0;
    const int64_t at = index.as_int() < 0 ? index.as_int() + size : index.as_int();
    if (at >= 0 && at < size) {
      if (object.is_sequence()) return object.as_list()->items[at];
      if (object.is_string()) return char_at(e, object, at);
      return Value::integer(object.as_range()->start + at * object.as_range()->step);
    }
  }
  if (index.is_string()) {
    if (const Value own = own_attribute(e, object, index.text()); !own.is_missing()) return own;
    return e.undefined_attribute(owner_name(object), index.text());
  }
  return e.undefined_attribute(owner_name(object), to_text(e, index));
}

Value slice(Evaluation& e, Value object, Value start, Value stop, Value step) {
  if (object.is_undefined()) return fail_undefined(e, object);
  if (!object.is_sequence() && !object.is_string() && !object.is(Kind::kRange))
    return e.fail("'{}' object cannot be sliced", type_name(object));
  const auto bounds = slice_bounds(e, length(e, object), start, stop, step);
  if (!bounds) return object;
  const auto [first, count, stride] = *bounds;
  if (object.is(Kind::kRange)) {
    const Range& r = *object.as_range();
    return Value::range(
        e.arena.make(Range{r.start + first * r.step, r.start + (first + count * stride) * r.step, r.step * stride}));
  }
  if (!e.charge(count)) return object;
  if (object.is_sequence()) {
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) items.push_back(object.as_list()->items[first + i * stride]);
    return object.is(Kind::kList) ? e.list(items) : e.tuple(items);
  }
  const std::string_view text = object.text();
  const bool is_ascii = length_of(*object.as_str()) == static_cast<int64_t>(text.size());
  if (count == 0) return e.string_in_place({}, object.is_markup());
  if (stride == 1) {
    const size_t begin = is_ascii ? static_cast<size_t>(first) : char_offset(text, first);
    const size_t bytes = is_ascii ? static_cast<size_t>(count) : char_offset(text.substr(begin), count);
    return e.string_in_place(text.substr(begin, bytes), object.is_markup());
  }
  std::vector<std::string_view> chars;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    next_char(text, pos);
    chars.push_back(text.substr(begin, pos - begin));
  }
  std::string out;
  for (int64_t i = 0; i < count; ++i) out += chars[static_cast<size_t>(first + i * stride)];
  return e.string_in_place(e.text(out)->text, object.is_markup());
}

// Dicts
// ----------------------------------------------------------------------------------------------------------------

bool is_hashable(Value value) {
  if (value.is(Kind::kTuple)) {
    const auto items = value.as_list()->span();  // hash() checks nested tuples, because it bounds their nesting
    return std::none_of(items.begin(), items.end(), [](Value v) { return !v.is(Kind::kTuple) && !is_hashable(v); });
  }
  if (value.is(Kind::kView)) return value.as_view()->part == View::Part::kValues;
  return !value.is(Kind::kList) && !value.is_dict();
}

uint64_t hash(Evaluation& e, Value value) {
  switch (value.kind()) {
    case Kind::kBool:
    case Kind::kInt: return mixed(static_cast<uint64_t>(value.as_int()));
    case Kind::kFloat: {
      const double d = value.as_double();
      if (d == std::floor(d) && std::abs(d) < kTwo63) return mixed(static_cast<uint64_t>(static_cast<int64_t>(d)));
      return std::hash<double>()(d);
    }
    case Kind::kString:
    case Kind::kBigInt: e.charge_bytes(value.text().size()); return hash_text(value.text());
    case Kind::kTuple: {
      const Nested nested(e);
      uint64_t sum = 7;
      for (const Value item : value.as_list()->span()) {
        if (!nested || !e.charge()) break;
        sum = mixed(sum * 31 + hash(e, item));
      }
      return sum;
    }
    case Kind::kNone:
    case Kind::kUndefined: return 1;
    case Kind::kList:
    case Kind::kDict: e.fail("unhashable type: '{}'", type_name(value)); return 0;
    case Kind::kRange: return mixed(static_cast<uint64_t>(value.as_range()->size()));
    default: return mixed(reinterpret_cast<uintptr_t>(value.address()));
  }
}

const Value* find(Evaluation& e, const Dict& dict, Value key) {
  const uint64_t h = hash(e, key);
  if (e.failed()) return nullptr;
  const Entry* entry = find_entry(dict, h, [&](Value other) { return equal(e, other, key); });
  return entry ? &entry->value : nullptr;
}

const Value* find(const Dict& dict, std::string_view key) {
  const Entry* entry =
      find_entry(dict, hash_text(key), [&](Value other) { return other.is_string() && other.text() == key; });
  return entry ? &entry->value : nullptr;
}

void set(Evaluation& e, Dict& dict, Value key, Value value) {
  const uint64_t h = hash(e, key);
  if (e.failed()) return;
  if (Entry* entry = find_entry(dict, h, [&](Value other) { return equal(e, other, key); })) {
    entry->value = value;
    return;
  }
  if (dict.size == dict.capacity) grow(e, dict);
  if (e.failed()) return;
  dict.entries[dict.size++] = {key, value, h};
  if (!dict.index) return;
  uint64_t at = h;
  while (dict.index[at & (dict.index_size - 1)]) ++at;
  dict.index[at & (dict.index_size - 1)] = dict.size;
}

}  // namespace redline::jinja
