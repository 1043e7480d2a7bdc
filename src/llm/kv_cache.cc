#include "llm/kv_cache.h"

namespace redline {
namespace {

int64_t element_bytes(KvFormat format) { return format == KvFormat::kF32 ? 4 : 2; }
int64_t padded_head_dim(const KvCacheShape& s) { return (s.head_dim + 1) / 2 * 2; }
int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

}  // namespace

Layout KvCache::page_layout(const KvCacheShape& s, Table table) {
  const int64_t width = padded_head_dim(s), head = kPageTokens * width, layer = 2 * s.num_kv_heads * head;
  std::vector<Iter> order = {
      {s.num_pages, 1, Axis::kPage}, {s.num_layers, layer, Axis::kMemory}, {s.num_kv_heads, head, Axis::kMemory}};
  constexpr int64_t block = kKvBlockTokens;
  if (table == Table::kKeys)
    order.insert(order.end(), {{kPageTokens / block, block * width, Axis::kMemory},
                               {block, 2, Axis::kMemory},
                               {width / 2, 2 * block, Axis::kMemory},
                               {2, 1, Axis::kMemory}});
  else
    order.insert(order.end(),
                 {{kPageTokens / 2, 2 * width, Axis::kMemory}, {2, 1, Axis::kMemory}, {width, 2, Axis::kMemory}});
  Place offset = {};
  if (table == Table::kValues) offset[static_cast<size_t>(Axis::kMemory)] = s.num_kv_heads * head;
  return Layout(std::move(order), {}, offset);
}

Result<KvCache> KvCache::make(const KvCacheShape& shape) {
  KvCache cache;
  cache.shape_ = shape;
  cache.pages_ = std::make_unique<SlabAllocator>(shape.num_pages);
  const Layout keys = page_layout(shape, Table::kKeys), values = page_layout(shape, Table::kValues);
  const int64_t page_stride = values.span(Axis::kMemory), bytes = element_bytes(shape.format);
  auto memory = AlignedBuffer::make(page_stride * shape.num_pages * bytes);
  if (!memory.ok()) return std::move(memory).status().within("key-value cache");
  cache.memory_ = std::move(memory).value();
  auto* base = static_cast<uint8_t*>(cache.memory_.data());
  const int64_t in_head = kPageTokens * padded_head_dim(shape);
  for (int64_t layer = 0; layer < shape.num_layers; ++layer)
    for (int64_t head = 0; head < shape.num_kv_heads; ++head) {
      const int64_t first = (layer * shape.num_kv_heads + head) * in_head;
      cache.heads_.push_back({base + keys.memory(first) * bytes, base + values.memory(first) * bytes, page_stride});
    }
  return cache;
}

KvCacheView KvCache::view() const { return {shape_.format, shape_.num_kv_heads, heads_.data()}; }

int64_t KvCache::bytes_per_token() const {
  return 2 * shape_.num_layers * shape_.num_kv_heads * padded_head_dim(shape_) * element_bytes(shape_.format);
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
