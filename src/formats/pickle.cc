#include "formats/pickle.h"

#include <algorithm>

#include "formats/byte_reader.h"

namespace redline {
namespace {

using PickleKind = PickleValue::Kind;

constexpr uint32_t kNoValue = ~uint32_t{0};

class Machine {
 public:
  Machine(const std::string& path, int64_t offset, std::string_view bytes)
      : reader_(path, bytes), base_(static_cast<uint64_t>(offset)) {}

  Result<Pickle> run() {
    for (bool stopped = false; !stopped;) {
      at_ = reader_.offset();
      uint8_t op = 0;
      REDLINE_TRY(reader_.read(op, "an opcode"));
      REDLINE_TRY(step(op, stopped));
    }
    return std::move(pickle_);
  }

 private:
  template <class... A>
  Status wrong(fmt::format_string<A...> text, A&&... args) const {
    return reader_.error_at(base_ + at_, "pickle: {}", fmt::format(text, std::forward<A>(args)...));
  }
  PickleValue& value(uint32_t i) { return pickle_.values[i]; }

  Status push(PickleValue v) {
    if (pickle_.values.size() >= Pickle::kMaxValues)
      return unsupported("{}: the pickle has more than {} values", reader_.path(), Pickle::kMaxValues);
    stack_.push_back(static_cast<uint32_t>(pickle_.values.size()));
    pickle_.values.push_back(std::move(v));
    return {};
  }
  Status push(PickleKind kind, int64_t number = 0) {
    PickleValue v;
    v.kind = kind;
    v.number = number;
    return push(std::move(v));
  }
  /// Returns the number of values above the last mark; without a mark, of all values.
  size_t depth() const { return stack_.size() - (marks_.empty() ? 0 : marks_.back()); }
  Status pop(uint32_t& i) {
    if (depth() == 0) return wrong("nothing is left to take");
    i = stack_.back();
    stack_.pop_back();
    return {};
  }
  /// Replaces the last `count` values by one value with them as items.
  Status gather(PickleKind kind, size_t count) {
    if (depth() < count) return wrong("{} values are wanted, {} are left", count, depth());
    PickleValue v;
    v.kind = kind;
    v.items.assign(stack_.end() - static_cast<int64_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return push(std::move(v));
  }
  /// Pops the last mark; `count`: the number of values above it.
  Status close(size_t& count) {
    if (marks_.empty()) return wrong("there is no mark");
    count = depth();
    marks_.pop_back();
    return {};
  }
  /// Moves the last `count` values into the container below them.
  Status add_items(PickleKind kind, size_t count) {
    if (kind == PickleKind::kDict && count % 2 != 0) return wrong("a key has no value");
    if (depth() < count + 1) return wrong("there is nothing to add to");
    PickleValue& container = value(stack_[stack_.size() - count - 1]);
    if (container.kind != kind)
      return wrong("items are added to a value that is not a {}", kind == PickleKind::kDict ? "dictionary" : "list");
    container.items.insert(container.items.end(), stack_.end() - static_cast<int64_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return {};
  }
  template <class Length>
  Status text() {
    Length length = 0;
    REDLINE_TRY(reader_.read(length, "the length of a text"));
    PickleValue v;
    v.kind = PickleKind::kText;
    REDLINE_TRY(reader_.take(length, v.text, "a text"));
    return push(std::move(v));
  }
  template <class Number>
  Status integer() {
    Number number = 0;
    REDLINE_TRY(reader_.read(number, "a number"));
    return push(PickleKind::kInt, static_cast<int64_t>(number));
  }
  Status long_integer() {
    uint8_t length = 0;
    REDLINE_TRY(reader_.read(length, "the length of a number"));
    std::string_view bytes;
    REDLINE_TRY(reader_.take(length, bytes, "a number"));
    if (length > sizeof(int64_t)) return wrong("a number of {} bytes", length);
    uint64_t number = 0;
    for (size_t i = 0; i < bytes.size(); ++i) number |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    if (length > 0 && length < 8 && (bytes.back() & 0x80) != 0) number |= ~uint64_t{0} << (8 * length);  // sign
    return push(PickleKind::kInt, static_cast<int64_t>(number));
  }
  Status real() {
    uint64_t bits = 0;
    REDLINE_TRY(reader_.read(bits, "a number"));
    PickleValue v;
    v.kind = PickleKind::kFloat;
    v.real = __builtin_bit_cast(double, __builtin_bswap64(bits));  // big-endian
    return push(std::move(v));
  }
  Status line(std::string_view& text) {
    const uint64_t begin = reader_.offset();
    for (char c = 0; c != '\n';) REDLINE_TRY(reader_.read(c, "a name"));
    text = reader_.since(begin);
    text.remove_suffix(1);
    return {};
  }
  Status global() {
    PickleValue v;
    v.kind = PickleKind::kGlobal;
    REDLINE_TRY(line(v.module));
    REDLINE_TRY(line(v.text));
    return push(std::move(v));
  }
  Status stack_global() {
    uint32_t name = 0, module = 0;
    REDLINE_TRY(pop(name));
    REDLINE_TRY(pop(module));
    if (value(name).kind != PickleKind::kText || value(module).kind != PickleKind::kText)
      return wrong("the name of a global is not text");
    PickleValue v;
    v.kind = PickleKind::kGlobal;
    v.text = value(name).text;
    v.module = value(module).text;
    return push(std::move(v));
  }
  Status call() {
    if (depth() < 2) return wrong("a call lacks its arguments");
    const PickleValue &function = value(stack_[stack_.size() - 2]), &arguments = value(stack_.back());
    if (function.kind == PickleKind::kGlobal && function.module == "collections" && function.text == "OrderedDict" &&
        arguments.kind == PickleKind::kTuple && arguments.items.empty()) {
      stack_.resize(stack_.size() - 2);
      return push(PickleKind::kDict);
    }
    return gather(PickleKind::kCall, 2);
  }
  Status remember(uint32_t place) {
    if (depth() == 0) return wrong("there is nothing to remember");
    if (place >= Pickle::kMaxValues)
      return unsupported("{}: the pickle remembers a value as {}", reader_.path(), place);
    if (memo_.size() <= place) memo_.resize(place + 1, kNoValue);
    memo_[place] = stack_.back();
    return {};
  }
  template <class Place>
  Status remember_as() {
    Place place = 0;
    REDLINE_TRY(reader_.read(place, "a place"));
    return remember(place);
  }
  template <class Place>
  Status recall() {
    Place place = 0;
    REDLINE_TRY(reader_.read(place, "a place"));
    if (place >= memo_.size() || memo_[place] == kNoValue) return wrong("nothing was remembered as {}", place);
    stack_.push_back(memo_[place]);
    return {};
  }

  Status step(uint8_t op, bool& stopped) {
    size_t count = 0;
    uint32_t unused = 0;
    switch (op) {
      case 0x80: {  // PROTO
        uint8_t version = 0;
        REDLINE_TRY(reader_.read(version, "the protocol"));
        return version <= 5 ? Status() : unsupported("{}: pickle of protocol {}", reader_.path(), version);
      }
      case 0x95: {  // FRAME: a hint for buffers
        uint64_t bytes = 0;
        return reader_.read(bytes, "the length of a frame");
      }
      case '(': marks_.push_back(stack_.size()); return {};
      case ')': return push(PickleKind::kTuple);
      case 't': REDLINE_TRY(close(count)); return gather(PickleKind::kTuple, count);
      case 0x85: return gather(PickleKind::kTuple, 1);
      case 0x86: return gather(PickleKind::kTuple, 2);
      case 0x87: return gather(PickleKind::kTuple, 3);
      case ']': return push(PickleKind::kList);
      case 'a': return add_items(PickleKind::kList, 1);
      case 'e': REDLINE_TRY(close(count)); return add_items(PickleKind::kList, count);
      case '}': return push(PickleKind::kDict);
      case 's': return add_items(PickleKind::kDict, 2);
      case 'u': REDLINE_TRY(close(count)); return add_items(PickleKind::kDict, count);
      case 'X': return text<uint32_t>();
      case 0x8c: return text<uint8_t>();
      case 0x8d: return text<uint64_t>();
      case 'J': return integer<int32_t>();
      case 'K': return integer<uint8_t>();
      case 'M': return integer<uint16_t>();
      case 0x8a: return long_integer();
      case 'G': return real();
      case 'N': return push(PickleKind::kNone);
      case 0x88: return push(PickleKind::kBool, 1);
      case 0x89: return push(PickleKind::kBool, 0);
      case 'c': return global();
      case 0x93: return stack_global();
      case 'q': return remember_as<uint8_t>();
      case 'r': return remember_as<uint32_t>();
      case 0x94: return remember(static_cast<uint32_t>(memo_.size()));
      case 'h': return recall<uint8_t>();
      case 'j': return recall<uint32_t>();
      case 'R': return call();
      case 'Q': return gather(PickleKind::kPersistent, 1);
      case 'b':  // BUILD: object attributes, not needed for data
        REDLINE_TRY(pop(unused));
        return depth() > 0 ? Status() : wrong("there is nothing to give attributes to");
      case '.':
        stopped = true;
        if (!marks_.empty() || stack_.size() != 1) return wrong("it ends with {} values, not one", stack_.size());
        pickle_.root = stack_[0];
        return {};
      default:
        return unsupported("{}: at byte {}: pickle: opcode {:#04x}, which dictionaries of tensors do not use",
                           reader_.path(), base_ + at_, op);
    }
  }

  ByteReader reader_;
  uint64_t base_, at_ = 0;
  Pickle pickle_;
  std::vector<uint32_t> stack_, memo_;
  std::vector<size_t> marks_;
};

}  // namespace

Result<Pickle> Pickle::read(const std::string& path, int64_t offset, std::string_view bytes) {
  if (static_cast<int64_t>(bytes.size()) > kMaxBytes)
    return unsupported("{}: a pickle of {} bytes; dictionaries of tensors take at most {}", path, bytes.size(),
                       kMaxBytes);
  return Machine(path, offset, bytes).run();
}

}  // namespace redline
