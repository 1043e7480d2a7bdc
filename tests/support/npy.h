// Reading NumPy's .npy files in tests: little-endian float32, float64 and int32/int64 arrays in C order.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline::testing {

struct NpyArray {
  std::vector<int64_t> shape;
  std::vector<double> values;  ///< whatever the file's type; exact for float32 and for int up to 2^53

  int64_t dim(size_t axis) const { return axis < shape.size() ? shape[axis] : 1; }
  /// Row `i` of the last axis.
  const double* row(int64_t i) const { return values.data() + i * (shape.empty() ? 1 : shape.back()); }
};

/// `bytes` is a whole .npy file, format version 1 or 2 (numpy.lib.format); `name` is for messages.
inline Result<NpyArray> parse_npy(const std::string& bytes, const std::string& name) {
  if (bytes.size() < 12 || bytes.compare(0, 6, "\x93NUMPY") != 0) return invalid_argument("{}: not a .npy file", name);
  const bool wide = bytes[6] >= 2;
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(bytes[i])); };
  const size_t start = wide ? 12 : 10;
  const size_t header_bytes = byte(8) | byte(9) << 8 | (wide ? byte(10) << 16 | byte(11) << 24 : 0);
  if (start + header_bytes > bytes.size()) return invalid_argument("{}: header runs past the end", name);
  const std::string header = bytes.substr(start, header_bytes);
  if (header.find("'fortran_order': False") == std::string::npos)
    return unsupported("{}: not in C order: {}", name, header);

  NpyArray array;
  size_t count = 1;
  const size_t open = header.find("'shape': (");
  if (open == std::string::npos) return invalid_argument("{}: no shape: {}", name, header);
  for (const char* p = header.c_str() + open + 10; *p != ')';) {
    char* end = nullptr;
    array.shape.push_back(std::strtoll(p, &end, 10));
    if (end == p) return invalid_argument("{}: bad shape: {}", name, header);
    count *= static_cast<size_t>(array.shape.back());
    for (p = end; *p == ',' || *p == ' '; ++p) continue;
  }
  const char* data = bytes.data() + start + header_bytes;
  const size_t have = bytes.size() - start - header_bytes;
  const auto read_as = [&](auto example) -> Status {
    using T = decltype(example);
    if (have != count * sizeof(T))
      return invalid_argument("{}: {} bytes of data, expected {}", name, have, count * sizeof(T));
    array.values.resize(count);
    for (size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, data + i * sizeof(T), sizeof(T));
      array.values[i] = static_cast<double>(value);
    }
    return {};
  };
  const auto is = [&](const char* type) { return header.find(std::string("'descr': '") + type) != std::string::npos; };
  if (is("<f4")) {
    REDLINE_TRY(read_as(0.0f));
  } else if (is("<f8")) {
    REDLINE_TRY(read_as(0.0));
  } else if (is("<i4")) {
    REDLINE_TRY(read_as(int32_t{}));
  } else if (is("<i8")) {
    REDLINE_TRY(read_as(int64_t{}));
  } else {
    return unsupported("{}: element type other than f4, f8, i4, i8: {}", name, header);
  }
  return array;
}

inline Result<NpyArray> read_npy(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("{}: cannot open", path);
  return parse_npy(std::string(std::istreambuf_iterator<char>(file), {}), path);
}

}  // namespace redline::testing
