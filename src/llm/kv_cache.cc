#include "llm/kv_cache.h"

namespace redline {
namespace {

int64_t element_bytes(KvFormat format) { return format == KvFormat::kF32 ? 4 : 2; }
int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

Layout KvCache::page_layout(const KvCacheShape& s) {
  const int64_t head = kPageTokens * s.head_dim, table = s.num_kv_heads * head;
  return Layout({{s.num_pages, 1, Axis::kPage},
                 {s.num_layers, 2 * table, Axis::kMemory},
                 {2, table, Axis::kMemory},
                 {s.num_kv_heads, head, Axis::kMemory},
                 {kPageTokens, s.head_dim, Axis::kMemory},
                 {s.head_dim, 1, Axis::kMemory}});
}

Result<KvCache> KvCache::make(const KvCacheShape& shape) {
  KvCache cache;
  cache.shape_ = shape;
  cache.pages_ = std::make_unique<SlabAllocator>(shape.num_pages);
  const Layout layout = page_layout(shape);
  const int64_t page_stride = layout.span(Axis::kMemory), bytes = element_bytes(shape.format);
  auto memory = AlignedBuffer::make(page_stride * shape.num_pages * bytes);
  if (!memory.ok()) return std::move(memory).status().within("key-value cache");
  cache.memory_ = std::move(memory).value();
  auto* base = static_cast<uint8_t*>(cache.memory_.data());
  const int64_t in_head = kPageTokens * shape.head_dim;
  for (int64_t layer = 0; layer < shape.num_layers; ++layer)
    for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
      auto table = [&](int64_t is_value) {
        return base + layout.memory(((layer * 2 + is_value) * shape.num_kv_heads + head) * in_head) * bytes;
      };
      cache.heads_.push_back({table(0), table(1), page_stride, layout.memory(shape.head_dim), kPageTokens});
    }
  return cache;
}

KvCacheView KvCache::view() const { return {shape_.format, kPageTokens, shape_.num_kv_heads, heads_.data()}; }

int64_t KvCache::bytes_per_token() const {
  return 2 * shape_.num_layers * shape_.num_kv_heads * shape_.head_dim * element_bytes(shape_.format);
}

Status PageTable::grow(int64_t tokens) {
  const int64_t more = pages_for(tokens) - static_cast<int64_t>(pages_.size());
  SlabAllocator& pool = cache_->pages();
  if (more > pool.num_free())
    return out_of_memory("key-value cache: {} more pages of {} tokens are needed, {} of {} are free", more, kPageTokens,
                         pool.num_free(), pool.capacity());
  for (int64_t i = 0; i < more; ++i) pages_.push_back(static_cast<int32_t>(*pool.allocate()));
  return {};
}

void PageTable::shrink(int64_t tokens) {
  while (static_cast<int64_t>(pages_.size()) > pages_for(tokens)) {
    cache_->pages().free(pages_.back());
    pages_.pop_back();
  }
}

}  // namespace redline
