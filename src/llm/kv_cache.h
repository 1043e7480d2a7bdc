// The paged cache of keys and values: one pool of page numbers for all layers and all sequences.
#pragma once

#include <vector>

#include "base/aligned_buffer.h"
#include "base/slab_allocator.h"
#include "graph/program.h"
#include "tensor/layout.h"

namespace redline {

/// Tokens of one page: small enough that a short text wastes little, large enough that a page of one head is a run of
/// memory and a step of tile products.
inline constexpr int64_t kPageTokens = kKvPageTokens;

struct KvCacheShape {
  int64_t num_layers, num_kv_heads, head_dim;
  int64_t num_pages;
  KvFormat format;
};

class KvCache {
 public:
  /// Pages are mapped when first written: `num_pages` costs address space, not memory.
  static Result<KvCache> make(const KvCacheShape& shape);

  /// Where element (page, layer, kv head, token, d) of the keys or of the values lies, head_dim counted up to a
  /// multiple of 2: the page axis is a number that a sequence's page table resolves, the others are memory. A page
  /// holds its tokens for all layers, so a short text touches little memory and a page can be shared, copied or moved
  /// as one run. Within a page and head the order is that of tile products (KvHeadView).
  enum class Table : uint8_t { kKeys, kValues };
  static Layout page_layout(const KvCacheShape& shape, Table table);

  SlabAllocator& pages() { return *pages_; }
  KvCacheView view() const;
  int64_t bytes_per_token() const;
  int64_t bytes() const { return memory_.size(); }

 private:
  KvCacheShape shape_{};
  AlignedBuffer memory_;
  std::vector<KvHeadView> heads_;  // [layers, kv heads]
  std::unique_ptr<SlabAllocator> pages_;
};

/// The pages of one sequence, in order of position. Gives them back when it goes.
class PageTable {
 public:
  explicit PageTable(KvCache& cache) : cache_(&cache) {}
  ~PageTable() { shrink(0); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  /// Room for `tokens`; out_of_memory (with both numbers) when the pool has too few pages, and nothing is taken then.
  Status grow(int64_t tokens);
  /// Keeps the pages that `tokens` need.
  void shrink(int64_t tokens);
  const int32_t* pages() const { return pages_.data(); }
  /// Page and place of a position, as attention kernels want it: page * kPageTokens + place.
  int32_t slot(int64_t position) const {
    return pages_[static_cast<size_t>(position / kPageTokens)] * static_cast<int32_t>(kPageTokens) +
           static_cast<int32_t>(position % kPageTokens);
  }

 private:
  KvCache* cache_;
  std::vector<int32_t> pages_;
};

}  // namespace redline
