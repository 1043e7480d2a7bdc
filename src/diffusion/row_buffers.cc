#include "diffusion/row_buffers.h"

#include <algorithm>

namespace redline {

Status RowBuffer::resize(const Executable& executable, int64_t rows, int64_t row_elements) {
  row_elements_ = row_elements;
  if (memory_ && rows * row_elements <= capacity_) return {};
  const int64_t bytes = rows * row_elements * int64_t{sizeof(float)};
  REDLINE_ASSIGN(memory_, executable.make_buffer(bytes));
  REDLINE_ASSIGN(compact_, executable.make_buffer(bytes));  // touched only where rows have gaps
  capacity_ = rows * row_elements;
  return {};
}

void RowBuffer::bind_input(Executable& executable, std::string_view port, std::span<const int64_t> rows) {
  if (is_contiguous(rows)) return executable.bind(port, row(rows.front()));
  float* to = compact();
  for (const int64_t r : rows) to = std::copy_n(row(r), row_elements_, to);
  executable.bind(port, compact());
}

void RowBuffer::bind_output(Executable& executable, std::string_view port, std::span<const int64_t> rows) {
  executable.bind(port, is_contiguous(rows) ? row(rows.front()) : compact());
}

void RowBuffer::take_output(std::span<const int64_t> rows) {
  if (is_contiguous(rows)) return;
  const float* from = compact();
  for (const int64_t r : rows) {
    std::copy_n(from, row_elements_, row(r));
    from += row_elements_;
  }
}

}  // namespace redline
