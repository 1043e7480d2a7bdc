#include "graph/task_grid.h"

#include <algorithm>

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
  const auto begin = [&](int64_t i) {
    const int64_t row = all * i / row_parts;
    return row_grain == 1 ? row : std::min(all, (row + row_grain - 1) / row_grain * row_grain);
  };
  return {begin(part), begin(part + 1), col_begin[col], col_begin[col + 1], index};
}

bool TaskGrid::cuts_like(const TaskGrid& other) const {
  if (kind != Kind::kFractions || other.kind != kind || !(other.rows == rows)) return false;
  if (row_parts == 1 || other.row_parts == 1) return true;
  // Part i of n begins where part i * k of n * k does, for every number of rows.
  return other.row_grain == row_grain && (row_parts % other.row_parts == 0 || other.row_parts % row_parts == 0);
}

std::pair<int, int> TaskGrid::needed_parts(const TaskGrid& consumer, int part, Reads reads) const {
  const std::pair all(0, row_parts);
  switch (kind) {
    case Kind::kFractions: {
      if (reads_all_rows(reads) || !cuts_like(consumer)) return all;
      if (row_parts % consumer.row_parts == 0) {
        const int each = row_parts / consumer.row_parts;
        return {part * each, (part + 1) * each};
      }
      const int own = part / (consumer.row_parts / row_parts);
      return {own, own + 1};
    }
    case Kind::kFunction:
      // Other tasks may have other columns of the same rows.
      return reads == Reads::kTile && consumer == *this ? std::pair(part, part + 1) : all;
    case Kind::kWork: return all;
  }
  return all;
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
