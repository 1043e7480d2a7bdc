#include "cli/npy.h"

#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/output_path.h"

namespace redline::cli {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

Result<NpyWriter> NpyWriter::create(const std::string& path, int64_t rows, int64_t columns) {
  NpyWriter writer;
  REDLINE_ASSIGN(writer.path_, output_path(path));
  writer.temporary_ = fmt::format("{}.{}.tmp", writer.path_, getpid());
  writer.columns_ = columns;
  writer.left_ = rows;
  writer.file_ = std::fopen(writer.temporary_.c_str(), "wbx");
  if (!writer.file_) return io("{}: cannot be written: {}", path, std::strerror(errno));
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", rows, columns);
  // Magic, version and length take 10 bytes; the data begins at a multiple
  // of 64.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  std::string start = {'\x93',
                       'N',
                       'U',
                       'M',
                       'P',
                       'Y',
                       1,
                       0,
                       static_cast<char>(header.size() & 0xff),
                       static_cast<char>(header.size() >> 8)};
  start += header;
  if (std::fwrite(start.data(), 1, start.size(), writer.file_) != start.size())
    return io("{}: writing failed: {}", path, std::strerror(errno));
  return writer;
}

NpyWriter::NpyWriter(NpyWriter&& other) noexcept
    : path_(std::move(other.path_)), temporary_(std::move(other.temporary_)),
      file_(std::exchange(other.file_, nullptr)), columns_(other.columns_), left_(other.left_) {}

NpyWriter::~NpyWriter() {
  if (!file_) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

Status NpyWriter::append(std::span<const float> values) {
  const auto count = static_cast<int64_t>(values.size());
  if (columns_ == 0 ? count != 0 : count % columns_ != 0 || count / columns_ > left_)
    return internal("{}: {} values do not fill rows of {}, of which {} are left", path_, count, columns_, left_);
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_) != values.size())
    return io("{}: writing failed: {}", path_, std::strerror(errno));
  if (columns_ > 0) left_ -= count / columns_;
  return {};
}

Status NpyWriter::close() {
  if (columns_ > 0 && left_ != 0) return internal("{}: {} rows were not written", path_, left_);
  std::FILE* file = std::exchange(file_, nullptr);
  if (std::fclose(file) != 0 || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    Status status = io("{}: writing failed: {}", path_, std::strerror(errno));
    std::remove(temporary_.c_str());
    return status;
  }
  return {};
}

}  // namespace redline::cli
