// Decodes GGUF metadata values. The parser has validated every payload.
#include <cmath>
#include <limits>

#include "formats/byte_reader.h"
#include "formats/gguf.h"
#include "formats/gguf_parser.h"

namespace redline {
namespace {

constexpr std::string_view kTypeNames[kNumGgufTypes] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                        "bool", "string", "array", "u64", "i64", "f64"};

template <class T>
T load(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::optional<int64_t> load_int(GgufType type, const char* at) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kBool: return load<uint8_t>(at);
    case GgufType::kI8: return load<int8_t>(at);
    case GgufType::kU16: return load<uint16_t>(at);
    case GgufType::kI16: return load<int16_t>(at);
    case GgufType::kU32: return load<uint32_t>(at);
    case GgufType::kI32: return load<int32_t>(at);
    case GgufType::kI64: return load<int64_t>(at);
    case GgufType::kU64: {
      const auto value = load<uint64_t>(at);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    default: return std::nullopt;
  }
}

std::optional<double> load_double(GgufType type, const char* at) {
  if (type == GgufType::kF32) return load<float>(at);
  if (type == GgufType::kF64) return load<double>(at);
  if (type == GgufType::kU64) return static_cast<double>(load<uint64_t>(at));
  if (const auto value = load_int(type, at)) return static_cast<double>(*value);
  return std::nullopt;
}

bool is_number(GgufType type) { return gguf_fixed_bytes(type) != 0; }

std::string scalar_to_string(GgufType type, const char* at) {
  if (type == GgufType::kBool) return load<uint8_t>(at) != 0 ? "true" : "false";
  if (type == GgufType::kF32) return fmt::format("{}", load<float>(at));
  if (type == GgufType::kF64) return fmt::format("{}", load<double>(at));
  if (type == GgufType::kU64) return fmt::format("{}", load<uint64_t>(at));
  return fmt::format("{}", load_int(type, at).value_or(0));
}

}  // namespace

std::string_view gguf_value_type_name(GgufType type) {
  const auto number = static_cast<uint32_t>(type);
  return number < kNumGgufTypes ? kTypeNames[number] : "?";
}

uint64_t gguf_fixed_bytes(GgufType type) {
  switch (type) {
    case GgufType::kU8:
    case GgufType::kI8:
    case GgufType::kBool: return 1;
    case GgufType::kU16:
    case GgufType::kI16: return 2;
    case GgufType::kU32:
    case GgufType::kI32:
    case GgufType::kF32: return 4;
    case GgufType::kU64:
    case GgufType::kI64:
    case GgufType::kF64: return 8;
    case GgufType::kString:
    case GgufType::kArray: break;
  }
  return 0;
}

std::optional<int64_t> GgufValue::as_int() const {
  return type == GgufType::kBool || !is_number(type) ? std::nullopt : load_int(type, payload.data());
}
std::optional<double> GgufValue::as_double() const {
  return type == GgufType::kBool || !is_number(type) ? std::nullopt : load_double(type, payload.data());
}
std::optional<bool> GgufValue::as_bool() const {
  return type == GgufType::kBool ? std::optional(payload[0] != 0) : std::nullopt;
}
std::optional<std::string_view> GgufValue::as_string() const {
  return type == GgufType::kString ? std::optional(payload) : std::nullopt;
}
std::optional<GgufStrings> GgufValue::as_strings() const {
  if (type != GgufType::kArray || element_type != GgufType::kString) return std::nullopt;
  return GgufStrings(payload, count);
}

std::optional<int64_t> GgufValue::int_at(uint64_t index) const {
  if (type != GgufType::kArray || index >= count || !is_number(element_type)) return std::nullopt;
  return load_int(element_type, payload.data() + index * gguf_fixed_bytes(element_type));
}
std::optional<double> GgufValue::double_at(uint64_t index) const {
  if (type != GgufType::kArray || index >= count || !is_number(element_type)) return std::nullopt;
  return load_double(element_type, payload.data() + index * gguf_fixed_bytes(element_type));
}

std::optional<std::vector<int64_t>> GgufValue::as_ints() const {
  if (type != GgufType::kArray || !is_number(element_type)) return std::nullopt;
  std::vector<int64_t> values(count);
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = int_at(i);
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  return values;
}
std::optional<std::vector<double>> GgufValue::as_doubles() const {
  if (type != GgufType::kArray || !is_number(element_type)) return std::nullopt;
  std::vector<double> values(count);
  for (uint64_t i = 0; i < count; ++i) values[i] = double_at(i).value_or(NAN);
  return values;
}

std::optional<std::vector<GgufValue>> GgufValue::as_array() const {
  if (type != GgufType::kArray) return std::nullopt;
  std::vector<GgufValue> values;
  values.reserve(count);
  static const std::string kNoPath;
  ByteReader reader(kNoPath, payload);
  for (uint64_t i = 0; i < count; ++i) {
    GgufValue& value = values.emplace_back();
    value.type = element_type;
    if (!read_gguf_payload(reader, value).ok()) return std::nullopt;  // unreachable: validated by the parser
  }
  return values;
}

std::string GgufValue::to_string(size_t max_length) const {
  if (type == GgufType::kString) return in_quotes(payload, max_length);
  if (type != GgufType::kArray) return scalar_to_string(type, payload.data());
  std::string text = fmt::format("[{} {}{}", count, gguf_value_type_name(element_type), count == 1 ? "" : "s");
  static const std::string kNoPath;
  ByteReader reader(kNoPath, payload);
  for (uint64_t i = 0; i < count; ++i) {
    text += i == 0 ? ": " : ", ";
    GgufValue value;
    value.type = element_type;
    if (text.size() >= max_length || !read_gguf_payload(reader, value).ok()) return text + "...]";
    text += value.to_string(text.size() < max_length ? max_length - text.size() : 1);
  }
  return text + "]";
}

}  // namespace redline
