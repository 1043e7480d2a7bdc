// Reading NumPy's .npz in tests: a zip of .npy members, stored or deflated (zlib).
#pragma once

#include <zlib.h>

#include <map>

#include "support/npy.h"

namespace redline::testing {

/// Arrays by name, without ".npy". No zip64, no encryption: NumPy writes neither for files of this size.
inline Result<std::map<std::string, NpyArray>> read_npz(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return not_found("{}: cannot open", path);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  const auto number = [&](size_t at, int width) {
    size_t value = 0;
    for (int i = 0; i < width; ++i) value |= static_cast<size_t>(static_cast<unsigned char>(bytes.at(at + i))) << 8 * i;
    return value;
  };
  // The end record (22 bytes and a comment) points at the central directory, which has the true sizes.
  const size_t end = bytes.rfind("PK\x05\x06");
  if (end == std::string::npos || end + 22 > bytes.size()) return invalid_argument("{}: not a zip file", path);
  std::map<std::string, NpyArray> arrays;
  size_t entry = number(end + 16, 4);
  for (size_t left = number(end + 10, 2); left > 0; --left) {
    if (entry + 46 > bytes.size()) return invalid_argument("{}: directory runs past the end", path);
    const size_t method = number(entry + 10, 2), packed = number(entry + 20, 4), size = number(entry + 24, 4);
    const size_t name_bytes = number(entry + 28, 2), local = number(entry + 42, 4);
    std::string name = bytes.substr(entry + 46, name_bytes);
    entry += 46 + name_bytes + number(entry + 30, 2) + number(entry + 32, 2);
    const size_t data = local + 30 + number(local + 26, 2) + number(local + 28, 2);
    if (data + packed > bytes.size()) return invalid_argument("{}: {} runs past the end", path, name);
    std::string member(size, '\0');
    if (method == 0) {
      member = bytes.substr(data, size);
    } else {
      z_stream stream = {};
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + data));
      stream.avail_in = static_cast<uInt>(packed);
      stream.next_out = reinterpret_cast<Bytef*>(member.data());
      stream.avail_out = static_cast<uInt>(size);
      inflateInit2(&stream, -MAX_WBITS);  // a zip member has no zlib header
      const int result = inflate(&stream, Z_FINISH);
      inflateEnd(&stream);
      if (method != 8 || result != Z_STREAM_END) return invalid_argument("{}: {} cannot be inflated", path, name);
    }
    if (name.size() > 4 && name.compare(name.size() - 4, 4, ".npy") == 0) name.resize(name.size() - 4);
    REDLINE_ASSIGN(arrays[name], parse_npy(member, path + ":" + name));
  }
  return arrays;
}

}  // namespace redline::testing
