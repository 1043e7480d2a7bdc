#include "diffusion/row_buffers.h"

namespace redline {

Status RowBuffer::resize(const Executable& executable, int64_t rows, int64_t row_elements) {
  row_elements_ = row_elements;
  if (memory_ && rows * row_elements <= capacity_) return {};
  const int64_t bytes = rows * row_elements * int64_t{sizeof(float)};
  REDLINE_ASSIGN(memory_, executable.make_buffer(bytes));
  REDLINE_ASSIGN(compact_, executable.make_buffer(bytes));  // takes memory only if rows are not contiguous
  capacity_ = rows * row_elements;
  return {};
}

void RowBuffer::bind(Executable& executable, std::string_view port, std::span<const int64_t> rows, bool step_writes) {
  uint8_t* data =
      is_contiguous(rows) ? memory_->address(step_writes) + rows.front() * row_bytes() : compact_->address(step_writes);
  executable.bind(port, reinterpret_cast<float*>(data));
}

void RowBuffer::bind_input(Executable& executable, std::string_view port, std::span<const int64_t> rows) {
  if (!is_contiguous(rows)) {
    int64_t to = 0;
    for (const int64_t r : rows) compact_->copy(row_bytes() * to++, *memory_, r * row_bytes(), row_bytes());
  }
  bind(executable, port, rows, false);
}

void RowBuffer::bind_output(Executable& executable, std::string_view port, std::span<const int64_t> rows) {
  bind(executable, port, rows, true);
}

void RowBuffer::bind_output_from(Executable& executable, std::string_view port, int64_t first) {
  bind(executable, port, {&first, 1}, true);
}

void RowBuffer::take_output(std::span<const int64_t> rows) {
  if (is_contiguous(rows)) return;
  int64_t from = 0;
  for (const int64_t r : rows) memory_->copy(r * row_bytes(), *compact_, row_bytes() * from++, row_bytes());
}

}  // namespace redline
