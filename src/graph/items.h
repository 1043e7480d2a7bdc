// Iterates over a tile whose rows belong to consecutive batch items, one item at a time.
#pragma once

#include <algorithm>
#include <cstdint>

namespace redline {

/// Calls body(item, begin, end) in order for each run of rows [begin, end) of [row_begin, row_end) that belongs to one
/// item. Item i has rows [i * item_rows, (i + 1) * item_rows).
template <class Body>
void for_items(int64_t row_begin, int64_t row_end, int64_t item_rows, const Body& body) {
  while (row_begin < row_end) {
    const int64_t item = row_begin / item_rows;
    const int64_t end = std::min(row_end, (item + 1) * item_rows);
    body(item, row_begin, end);
    row_begin = end;
  }
}

}  // namespace redline
