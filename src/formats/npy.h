// NumPy .npy files, as documented in numpy.lib.format.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"

namespace redline {

struct NpyArray {
  std::vector<int64_t> shape;  ///< {} for a scalar
  std::vector<float> values;   ///< in C order
};

/// Reads an array of float16, float32 or float64 (rounded to float32), little-endian, in C order. invalid_argument: not
/// an .npy file, corrupt, or more than `max_values`. unsupported: another type or order; the message says how to save
/// the array in a supported one.
Result<NpyArray> read_npy(const std::string& path, int64_t max_values = int64_t{1} << 28);
/// Parses the bytes of a whole file; `name` is for messages.
Result<NpyArray> parse_npy(std::string_view bytes, const std::string& name, int64_t max_values = int64_t{1} << 28);

/// The parsed header, and the bytes that follow it.
struct NpyHeader {
  std::string type;            ///< "<f4"
  std::vector<int64_t> shape;  ///< non-negative, product below 2^62
  int64_t count = 1;           ///< the product of `shape`
  std::string_view values;     ///< the bytes after the header
};
Result<NpyHeader> parse_npy_header(std::string_view bytes, const std::string& name);

/// Writes a float32 array of any rank, version 1.0.
class NpyWriter {
 public:
  /// Creates the file. Errors as OutputFile::create.
  static Result<NpyWriter> create(const std::string& path, std::span<const int64_t> shape);

  /// Appends values in C order. internal: more values than the shape holds.
  Status append(std::span<const float> values);
  /// Finishes the file. internal: fewer values than the shape holds.
  Status close();

 private:
  NpyWriter(OutputFile file, int64_t count) : file_(std::move(file)), left_(count) {}
  OutputFile file_;
  int64_t left_;
};

/// Writes a whole array at once.
Status write_npy(const std::string& path, std::span<const int64_t> shape, std::span<const float> values);

}  // namespace redline
