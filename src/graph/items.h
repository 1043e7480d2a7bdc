// Rows of a value are items of a batch, one after the other: walking a tile item by item.
#pragma once

#include <algorithm>
#include <cstdint>

namespace redline {

/// body(item, begin, end) for each run of rows [begin, end) of [row_begin, row_end) that belong to one item, in order;
/// item i has rows [i * item_rows, (i + 1) * item_rows).
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
