#include "chat/jinja/evaluation.h"

#include <algorithm>
#include <cstring>

namespace redline::jinja {

void* Arena::allocate(size_t bytes, size_t alignment) {
  const size_t skip = -reinterpret_cast<uintptr_t>(next_) & (alignment - 1);
  if (bytes + skip > left_) {
    constexpr size_t kLargest = 1 << 20;
    if (bytes > block_bytes_ / 4) {  // large values get a block of their own; the current one stays in use
      blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
      return blocks_.back().get();
    }
    blocks_.push_back(std::make_unique_for_overwrite<std::byte[]>(block_bytes_));
    next_ = blocks_.back().get();
    left_ = block_bytes_;
    block_bytes_ = std::min(2 * block_bytes_, kLargest);
    return allocate(bytes, alignment);
  }
  void* place = next_ + skip;
  next_ += skip + bytes;
  left_ -= skip + bytes;
  return place;
}

std::string_view Arena::copy(std::string_view text) {
  if (text.empty()) return {};
  char* place = array<char>(text.size());
  std::memcpy(place, text.data(), text.size());
  return {place, text.size()};
}

void Evaluation::set_error(Code code, std::string message) {
  if (failed_) return;
  failed_ = true;
  code_ = code;
  message_ = std::move(message);
  failed_at_ = position;
}

void Evaluation::out_of_steps() { fail("the template takes more than {} steps", limits_.steps); }

void Evaluation::too_deep() { fail("recursion is deeper than {} levels", limits_.nesting); }

bool Evaluation::charge_bytes(size_t bytes) {
  if (static_cast<int64_t>(bytes) > limits_.output_bytes) {
    fail("a text has more than {} bytes", limits_.output_bytes);
    return false;
  }
  return charge(static_cast<int64_t>(bytes / 32));
}

const Str* Evaluation::text(std::string_view text) {
  return arena.make(Str{charge_bytes(text.size()) ? arena.copy(text) : std::string_view()});
}

Value Evaluation::string(std::string_view s) { return Value::string(text(s)); }

Value Evaluation::string_in_place(std::string_view text, bool is_markup) {
  return Value::string(arena.make(Str{text, -1, is_markup}));
}

List* Evaluation::make_list(std::span<const Value> items) {
  if (!charge(static_cast<int64_t>(items.size()))) return arena.make(List{});
  Value* place = arena.array<Value>(items.size());
  std::copy(items.begin(), items.end(), place);
  return arena.make(List{place, items.size()});
}

Value Evaluation::list(std::span<const Value> items) { return Value::list(make_list(items)); }
Value Evaluation::tuple(std::span<const Value> items) { return Value::tuple(make_list(items)); }

Value Evaluation::function(const char* name, NativeFunction call, Value self, const void* row) {
  return Value::function(arena.make(Function{name, call, self, row}));
}

}  // namespace redline::jinja
