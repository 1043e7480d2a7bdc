// Reading NumPy's .npy files in tests: little-endian float32, float64 and int32/int64 arrays in C order.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "formats/npy.h"

namespace redline::testing {

struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;  ///< whatever the file's type; exact for float32 and for int up to 2^53

  int64_t dim(size_t axis) const { return axis < shape.size() ? shape[axis] : 1; }
  /// Row `i` of the last axis.
  const double* row(int64_t i) const { return values.data() + i * (shape.empty() ? 1 : shape.back()); }
};

/// `bytes` is a whole .npy file; `name` is for messages.
inline Result<NpyArray> parse_npy(const std::string& bytes, const std::string& name) {
  REDLINE_ASSIGN(const NpyHeader header, parse_npy_header(bytes, name));
  NpyArray array;
  array.shape = header.shape;
  const auto count = static_cast<size_t>(header.count);
  const auto read_as = [&](auto example) -> Status {
    using T = decltype(example);
    if (header.values.size() != count * sizeof(T))
      return invalid_argument("{}: {} bytes of data, expected {}", name, header.values.size(), count * sizeof(T));
    array.values.resize(count);
    for (size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, header.values.data() + i * sizeof(T), sizeof(T));
      array.values[i] = static_cast<double>(value);
    }
    return {};
  };
  if (header.type == "<f4") {
    REDLINE_TRY(read_as(0.0f));
  } else if (header.type == "<f8") {
    REDLINE_TRY(read_as(0.0));
  } else if (header.type == "<i4") {
    REDLINE_TRY(read_as(int32_t{}));
  } else if (header.type == "<i8") {
    REDLINE_TRY(read_as(int64_t{}));
  } else {
    return unsupported("{}: element type {}, expected f4, f8, i4 or i8", name, header.type);
  }
  return array;
}

inline Result<NpyArray> read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("{}: cannot open", path);
  return parse_npy(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

}  // namespace redline::testing
