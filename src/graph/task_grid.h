// Division of the work of a stage into tasks: parts of its rows times tiles of its columns.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tensor/dim.h"

namespace redline {

/// The part of a stage that one task computes.
struct Tile {
  int64_t row_begin, row_end;  ///< for TaskGrid::Kind::kWork: [i, i + 1) for work partition i
  int64_t col_begin, col_end;
  int32_t index;  ///< index of the task in its stage
};

/// The part of an input value that a task reads. The union of two parts is their bitwise or.
enum class Reads : uint8_t {
  kTile = 0,  ///< the rows and columns that the task writes
  kRows = 1,  ///< all columns of the rows that the task writes
  kCols = 2,  ///< all rows of the columns that the task writes
  kAll = 3,   ///< any part of the value
};
constexpr Reads operator|(Reads a, Reads b) {
  return static_cast<Reads>(static_cast<uint8_t>(a) | static_cast<uint8_t>(b));
}
constexpr bool reads_all_cols(Reads reads) { return (reads | Reads::kRows) == reads; }
constexpr bool reads_all_rows(Reads reads) { return (reads | Reads::kCols) == reads; }

/// The tasks of a stage, numbered by row part, then by column tile. Together they write the whole output, each element
/// once.
struct TaskGrid {
  enum class Kind : uint8_t {
    kFractions,  ///< row part i of n has rows [rows * i / n, rows * (i + 1) / n), rounded up to multiples of row_grain
    kFunction,   ///< `partition` gives every task's rows and columns at the sizes of a step; one column tile
    kWork,       ///< `row_parts` work partitions, which the stage defines. Every task runs, whatever the step's size
  };
  using Partition = Tile (*)(const TaskGrid& grid, int32_t index, const SymbolValues& sizes);

  Kind kind = Kind::kFractions;
  Dim rows = 1;      ///< rows of the output; not used by kWork
  Dim row_unit = 1;  ///< for `partition`: rows that stay together, such as the pixels of an image row
  int row_parts = 1;
  int64_t row_grain = 1;  ///< grain of row cuts; used by kFractions
  int64_t cols = 1;
  std::vector<int64_t> col_begin = {0, 1};  ///< [col_tiles + 1]
  int tiles_per_worker = 1;                 ///< tiles per worker, read by `partition`
  Partition partition = nullptr;            ///< depends on the grid and the sizes only: equal grids have equal tiles

  /// Returns a grid of one task; the caller sets row parts and column tiles afterwards.
  static TaskGrid of(const Dim& rows, int64_t cols) { return {.rows = rows, .cols = cols, .col_begin = {0, cols}}; }
  static TaskGrid work_partitions(int count, int64_t cols) {
    return {.kind = Kind::kWork, .row_parts = count, .cols = cols, .col_begin = {0, cols}};
  }

  int col_tiles() const { return static_cast<int>(col_begin.size()) - 1; }
  int num_tasks() const { return row_parts * col_tiles(); }
  /// Returns the tile of a task. `rows_now` is rows.eval(sizes). A tile without rows or without columns has no work.
  Tile tile(int32_t index, int64_t rows_now, const SymbolValues& sizes) const;
  /// Returns true if both grids cut the same rows, and each part of one lies within a part of the other.
  bool cuts_like(const TaskGrid& other) const;
  /// Returns the row parts [first, second) of this grid that tasks in row part `part` of `consumer` need if they read
  /// as `reads` says.
  std::pair<int, int> needed_parts(const TaskGrid& consumer, int part, Reads reads) const;
  /// Returns "rows tokens / 4, cols 512 / 2".
  std::string to_string() const;

  friend bool operator==(const TaskGrid&, const TaskGrid&) = default;
};

}  // namespace redline
