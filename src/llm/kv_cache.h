// The paged KV cache: one pool of page numbers for all layers and all sequences.
#pragma once

#include <vector>

#include "base/aligned_buffer.h"
#include "base/slab_allocator.h"
#include "graph/program.h"
#include "tensor/layout.h"

namespace redline {

/// Tokens per page: few enough that a short sequence wastes little, enough that a page of one head is contiguous memory
/// and one step of tile matmuls.
inline constexpr int64_t kPageTokens = kKvPageTokens;

struct KvCacheShape {
  int64_t num_layers, num_kv_heads, head_dim;
  int64_t num_pages;
  KvFormat format;
};

class KvCache {
 public:
  /// Pages are mapped on first write: `num_pages` costs address space, not memory.
  static Result<KvCache> make(const KvCacheShape& shape);

  /// Element order (page, layer, kv head, token, d) of keys or values, head_dim rounded up to a multiple of 2. A
  /// sequence's page table resolves the page axis; the other axes are contiguous in memory. A page holds its tokens for
  /// all layers, so a short sequence touches little memory, and a page can be shared, copied or moved as one block.
  /// Within a page and head the order is that of tile matmuls (KvHeadView).
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

/// The pages of one sequence, in order of position. Frees them on destruction.
class PageTable {
 public:
  explicit PageTable(KvCache& cache) : cache_(&cache) {}
  ~PageTable() { shrink(0); }
  PageTable(const PageTable&) = delete;
  PageTable& operator=(const PageTable&) = delete;

  /// Reserves pages for `tokens`. out_of_memory (with both numbers): the pool has too few pages; nothing is reserved.
  Status grow(int64_t tokens);
  /// Keeps the pages for `tokens` tokens and frees the others.
  void shrink(int64_t tokens);
  const int32_t* pages() const { return pages_.data(); }
  /// Page and offset of a position in the form that attention kernels use: page * kPageTokens + offset.
  int32_t slot(int64_t position) const {
    return pages_[static_cast<size_t>(position / kPageTokens)] * static_cast<int32_t>(kPageTokens) +
           static_cast<int32_t>(position % kPageTokens);
  }

 private:
  KvCache* cache_;
  std::vector<int32_t> pages_;
};

}  // namespace redline
