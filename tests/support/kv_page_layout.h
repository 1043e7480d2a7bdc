// The element order of KV pages on the CPU, for tests that look into pages.
#pragma once

#include "graph/graph.h"
#include "tensor/layout.h"

namespace redline::test {

/// Element order (page, kv head, token, d) of the keys or the values of one state in its pages, head_dim rounded up to
/// a multiple of 2, counted from the start of the state. A page table resolves the page axis.
enum class KvTable : uint8_t { kKeys, kValues };
inline Layout kv_page_layout(const StateAttrs& a, KvTable table, int64_t num_pages) {
  const int64_t width = kv_head_width(a.head_dim), head = kKvPageTokens * width;
  std::vector<Iter> order = {{num_pages, 1, Axis::kPage}, {a.num_heads, head, Axis::kMemory}};
  constexpr int64_t block = kKvBlockTokens;
  if (table == KvTable::kKeys)
    order.insert(order.end(), {{kKvPageTokens / block, block * width, Axis::kMemory},
                               {block, 2, Axis::kMemory},
                               {width / 2, 2 * block, Axis::kMemory},
                               {2, 1, Axis::kMemory}});
  else
    order.insert(order.end(),
                 {{kKvPageTokens / 2, 2 * width, Axis::kMemory}, {2, 1, Axis::kMemory}, {width, 2, Axis::kMemory}});
  Place offset = {};
  if (table == KvTable::kValues) offset[static_cast<size_t>(Axis::kMemory)] = a.num_heads * head;
  return Layout(std::move(order), {}, offset);
}

}  // namespace redline::test
