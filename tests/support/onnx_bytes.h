// ONNX files written field by field, so that a test can make each of them wrong in one place.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "formats/onnx.h"

namespace redline::onnx_bytes {

inline std::string varint(uint64_t value) {
  std::string out;
  for (; value > 127; value >>= 7) out += static_cast<char>(value | 128);
  return out + static_cast<char>(value);
}
/// Fields of a message, by their number.
inline std::string number(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }
inline std::string bytes(uint32_t field, const std::string& content) {
  return varint(field << 3 | 2) + varint(content.size()) + content;
}
inline std::string f32(uint32_t field, float value) {
  std::string content(sizeof value, '\0');
  std::memcpy(content.data(), &value, sizeof value);
  return varint(field << 3 | 5) + content;
}

/// A TensorProto with the fields of its elements in `data`.
inline std::string tensor(OnnxType type, const std::vector<uint64_t>& sizes, const std::string& data,
                          const std::string& name = "w") {
  std::string out;
  for (const uint64_t size : sizes) out += number(1, size);
  return out + number(2, static_cast<uint64_t>(type)) + bytes(8, name) + data;
}
/// One entry of external_data.
inline std::string external(const std::string& key, const std::string& value) {
  return bytes(13, bytes(1, key) + bytes(2, value));
}
inline std::string opset(uint64_t version, const std::string& domain = "") {
  return bytes(8, bytes(1, domain) + number(2, version));
}
/// A ModelProto around the fields of its GraphProto.
inline std::string model(const std::string& graph, uint64_t version = 17, const std::string& more = "") {
  return number(1, 9) + bytes(7, graph) + opset(version) + more;
}

// Fields of a GraphProto.
inline std::string node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs, const std::string& name = "",
                        const std::string& attributes = "") {
  std::string out;
  for (const std::string& input : inputs) out += bytes(1, input);
  for (const std::string& output : outputs) out += bytes(2, output);
  return bytes(1, out + (name.empty() ? "" : bytes(3, name)) + bytes(4, op) + attributes);
}
inline std::string initializer(const std::string& content) { return bytes(5, content); }
inline std::string ints_initializer(const std::string& name, const std::vector<int64_t>& values) {
  std::string data;
  for (const int64_t value : values) data += number(7, static_cast<uint64_t>(value));
  return initializer(tensor(OnnxType::kInt64, {values.size()}, data, name));
}
/// An initializer of float32 zeros.
inline std::string zeros(const std::string& name, const std::vector<uint64_t>& sizes) {
  uint64_t count = 1;
  for (const uint64_t size : sizes) count *= size;
  return initializer(tensor(OnnxType::kFloat, sizes, bytes(9, std::string(4 * count, '\0')), name));
}
/// A ValueInfoProto. Sizes are numbers or names; "?" is an unknown one.
inline std::string value_info(const std::string& name, OnnxType type, const std::vector<std::string>& sizes) {
  std::string shape;
  for (const std::string& size : sizes)
    shape += bytes(1, size == "?"                        ? ""
                      : size[0] >= '0' && size[0] <= '9' ? number(1, std::stoull(size))
                                                         : bytes(2, size));
  return bytes(1, name) + bytes(2, bytes(1, number(1, static_cast<uint64_t>(type)) + bytes(2, shape)));
}
inline std::string input(const std::string& name, const std::vector<std::string>& sizes,
                         OnnxType type = OnnxType::kFloat) {
  return bytes(11, value_info(name, type, sizes));
}
/// An output without a declared type.
inline std::string output(const std::string& name) { return bytes(12, bytes(1, name)); }

// Fields of a NodeProto.
inline std::string int_attribute(const std::string& name, int64_t value) {
  return bytes(5, bytes(1, name) + number(3, static_cast<uint64_t>(value)) + number(20, 2));
}
inline std::string ints_attribute(const std::string& name, const std::vector<int64_t>& values) {
  std::string content = bytes(1, name) + number(20, 7);
  for (const int64_t value : values) content += number(8, static_cast<uint64_t>(value));
  return bytes(5, content);
}
inline std::string text_attribute(const std::string& name, const std::string& value) {
  return bytes(5, bytes(1, name) + bytes(4, value) + number(20, 3));
}
inline std::string graph_attribute(const std::string& name, const std::string& graph) {
  return bytes(5, bytes(1, name) + bytes(6, graph) + number(20, 5));
}

}  // namespace redline::onnx_bytes
