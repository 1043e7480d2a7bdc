// Values of a template, with the semantics of Python's objects. Everything that a rendering makes lies in its Arena and
// is freed with it: values are plain pointers, cycles are harmless and destructors do not run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace redline::jinja {

/// Memory that is freed all at once.
class Arena {
 public:
  void* allocate(size_t bytes, size_t alignment);
  template <class T>
  T* make(T value) {
    static_assert(std::is_trivially_destructible_v<T>);
    return new (allocate(sizeof(T), alignof(T))) T(std::move(value));
  }
  template <class T>
  T* array(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    return static_cast<T*>(allocate(count * sizeof(T), alignof(T)));
  }
  std::string_view copy(std::string_view text);

 private:
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
  size_t block_bytes_ = 4096;
};

enum class Kind : uint8_t {
  kMissing,  ///< internal: no value
  kUndefined,
  kNone,
  kBool,
  kInt,
  kBigInt,  ///< an integer of the input beyond int64, which can be printed and compared but not used in arithmetic
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kView,  ///< dict.keys(), values(), items()
  kRange,
  kIterator,  ///< generators and reversed(), which can be consumed once
  kNamespace,
  kFunction,
  kMacro,
  kLoop,
  kCycler,
  kJoiner,
};

struct Str {
  std::string_view text;        ///< UTF-8
  mutable int64_t length = -1;  ///< characters; -1: not counted yet
  bool is_markup = false;       ///< markupsafe.Markup: text that is added to it is escaped
};
/// The reason of an undefined value, for the error when it is used.
struct Undefined {
  std::string_view hint;   ///< the whole message; "": it is made from `name` and `owner`
  std::string_view name;   ///< name of the variable, or of the attribute that `owner` lacks
  std::string_view owner;  ///< "dict object"; "": the name is that of a variable
};
struct List;
struct Dict;
struct View;
struct Range;
class Iterator;
struct Namespace;
struct Function;
struct Macro;
struct Loop;
struct Cycler;
struct Joiner;

class Value {
 public:
  constexpr Value() = default;
  static constexpr Value missing() { return Value(); }
  static constexpr Value none() { return Value(Kind::kNone); }
  static Value undefined(const Undefined* why) {
    Value v(Kind::kUndefined);
    v.undefined_ = why;
    return v;
  }
  static constexpr Value boolean(bool b) {
    Value v(Kind::kBool);
    v.int_ = b;
    return v;
  }
  static constexpr Value integer(int64_t i) {
    Value v(Kind::kInt);
    v.int_ = i;
    return v;
  }
  static constexpr Value number(double f) {
    Value v(Kind::kFloat);
    v.float_ = f;
    return v;
  }
  static Value string(const Str* s) {
    Value v(Kind::kString);
    v.string_ = s;
    return v;
  }
  static Value big_int(const Str* digits) {
    Value v(Kind::kBigInt);
    v.string_ = digits;
    return v;
  }
  static Value list(List* l) { return Value(Kind::kList, l); }
  static Value tuple(List* l) { return Value(Kind::kTuple, l); }
  static Value dict(Dict* d) { return Value(Kind::kDict, d); }
  static Value view(View* v) { return Value(Kind::kView, v); }
  static Value range(Range* r) { return Value(Kind::kRange, r); }
  static Value iterator(Iterator* i) { return Value(Kind::kIterator, i); }
  static Value names(Namespace* n) { return Value(Kind::kNamespace, n); }
  static Value function(Function* f) { return Value(Kind::kFunction, f); }
  static Value macro(Macro* m) { return Value(Kind::kMacro, m); }
  static Value loop(Loop* l) { return Value(Kind::kLoop, l); }
  static Value cycler(Cycler* c) { return Value(Kind::kCycler, c); }
  static Value joiner(Joiner* j) { return Value(Kind::kJoiner, j); }

  Kind kind() const { return kind_; }
  bool is(Kind k) const { return kind_ == k; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_markup() const { return is_string() && string_->is_markup; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_int() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }  ///< as in Python, a bool is an int
  bool is_number() const { return is_int() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // Each requires the kind.
  bool as_bool() const { return int_ != 0; }
  int64_t as_int() const { return int_; }
  double as_double() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  const Str* as_str() const { return string_; }
  const Undefined* as_undefined() const { return undefined_; }
  std::string_view text() const { return string_->text; }
  List* as_list() const { return static_cast<List*>(object_); }
  Dict* as_dict() const { return static_cast<Dict*>(object_); }
  View* as_view() const { return static_cast<View*>(object_); }
  Range* as_range() const { return static_cast<Range*>(object_); }
  Iterator* as_iterator() const { return static_cast<Iterator*>(object_); }
  Namespace* as_names() const { return static_cast<Namespace*>(object_); }
  Function* as_function() const { return static_cast<Function*>(object_); }
  Macro* as_macro() const { return static_cast<Macro*>(object_); }
  Loop* as_loop() const { return static_cast<Loop*>(object_); }
  Cycler* as_cycler() const { return static_cast<Cycler*>(object_); }
  Joiner* as_joiner() const { return static_cast<Joiner*>(object_); }
  const void* address() const { return object_; }

 private:
  constexpr explicit Value(Kind kind) : kind_(kind) {}
  Value(Kind kind, void* object) : kind_(kind), object_(object) {}

  Kind kind_ = Kind::kMissing;
  union {
    int64_t int_ = 0;
    double float_;
    const Str* string_;
    const Undefined* undefined_;
    void* object_;
  };
};

/// A list or a tuple. Templates cannot change it.
struct List {
  Value* items = nullptr;
  size_t size = 0;
  bool is_group = false;  ///< a tuple made by groupby, which has the attributes grouper and list
  std::span<Value> span() const { return {items, size}; }
};

struct Entry {
  Value key, value;
  uint64_t hash = 0;
};
/// A dict in order of insertion. Small dicts are searched linearly, larger ones by an index.
struct Dict {
  Entry* entries = nullptr;
  uint32_t size = 0, capacity = 0;
  uint32_t* index = nullptr;  ///< open addressing: entry + 1, 0 for none
  uint32_t index_size = 0;    ///< a power of two, or 0
  std::span<Entry> span() const { return {entries, size}; }
};

struct View {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  Dict* dict;
  Part part;
};

struct Range {
  int64_t start, stop, step;
  int64_t size() const {
    if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
    return start > stop ? (start - stop - 1) / -step + 1 : 0;
  }
};

struct Namespace {
  Dict* attributes;
};

struct Cycler {
  List* items;
  size_t position = 0;
};

struct Joiner {
  Value separator;
  bool used = false;
};

class Evaluation;

/// Arguments of a call.
struct Args {
  std::span<const Value> positional;
  std::span<const std::pair<std::string_view, Value>> keywords;
};
struct Function;
using NativeFunction = Value (*)(Evaluation&, const Function& called, const Args&);

/// A global function, or a method bound to its object.
struct Function {
  const char* name;
  NativeFunction call;
  Value self;
  const void* row;  ///< the row that describes a method, for `call`
};

/// One pass over an iterable. It is in the arena, like everything that it refers to.
class Iterator {
 public:
  /// Reads the next item. Returns false at the end, and after an error.
  virtual bool next(Evaluation& e, Value& item) = 0;
  const char* type_name = "generator";

 protected:
  Iterator() = default;
  ~Iterator() = default;
};

}  // namespace redline::jinja
