// Writing NumPy's .npy files, version 1.0: numpy.lib.format documents them.
#pragma once

#include <cstdio>
#include <span>
#include <string>

#include "base/error.h"

namespace redline::cli {

/// A float32 matrix, written row by row under a temporary name and renamed by
/// close(): never half a file.
class NpyWriter {
 public:
  /// invalid_argument: `path` is a folder or device. io: the file cannot be made.
  static Result<NpyWriter> create(const std::string& path, int64_t rows, int64_t columns);
  NpyWriter(NpyWriter&& other) noexcept;
  NpyWriter& operator=(NpyWriter&&) = delete;
  /// Removes what was written unless close() succeeded.
  ~NpyWriter();

  /// Whole rows. internal: more than `rows` in all, or a part of a row.
  Status append(std::span<const float> values);
  /// internal: fewer rows than create() was told.
  Status close();

 private:
  NpyWriter() = default;
  std::string path_, temporary_;
  std::FILE* file_ = nullptr;
  int64_t columns_ = 0, left_ = 0;
};

}  // namespace redline::cli
