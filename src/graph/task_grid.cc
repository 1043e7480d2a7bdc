#include "graph/task_grid.h"

namespace redline {

Tile TaskGrid::tile(int32_t index, int64_t rows_now, const SymbolValues& sizes) const {
  if (kind == Kind::kFunction) return partition(*this, index, sizes);
  // Decode steps: a task is a few microseconds, of which divisions would take a percent.
  if (row_parts == 1) {
    const auto col = static_cast<size_t>(index);
    return {0, kind == Kind::kWork ? 1 : rows_now, col_begin[col], col_begin[col + 1], index};
  }
  const int64_t part = index / col_tiles();
  const auto col = static_cast<size_t>(index % col_tiles());
  const int64_t all = kind == Kind::kWork ? row_parts : rows_now;
  return {all * part / row_parts, all * (part + 1) / row_parts, col_begin[col], col_begin[col + 1], index};
}

bool TaskGrid::parts_match(const TaskGrid& consumer, Reads reads) const {
  switch (kind) {
    case Kind::kFractions:
      return !reads_all_rows(reads) && consumer.kind == kind && consumer.rows == rows &&
             consumer.row_parts == row_parts;
    case Kind::kFunction:
      return reads == Reads::kTile && consumer == *this;  // other tasks may have other columns of the same rows
    case Kind::kWork: return false;
  }
  return false;
}

std::string TaskGrid::to_string() const {
  const std::string columns = fmt::format("cols {} / {}", cols, col_tiles());
  switch (kind) {
    case Kind::kFractions: return fmt::format("rows {} / {}, {}", rows.to_string(), row_parts, columns);
    case Kind::kFunction: return fmt::format("rows {} and cols {} in {} tiles", rows.to_string(), cols, row_parts);
    case Kind::kWork: return fmt::format("{} work partitions, {}", row_parts, columns);
  }
  return {};
}

}  // namespace redline
