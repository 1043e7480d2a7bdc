#include "llm/kv_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace redline::test {
namespace {

constexpr KvCacheShape kShape = {3, 2, 20, 10, KvFormat::kF16};

}  // namespace

TEST(KvCache, HeadViewsFollowTheLayout) {
  auto cache = KvCache::make(kShape);
  ASSERT_TRUE(cache.ok());
  const KvCacheView view = cache->view();
  const auto* base = static_cast<const uint16_t*>(view.head(0, 0).k);
  const int64_t layer = 2, width = kShape.head_dim;
  for (auto table : {KvCache::Table::kKeys, KvCache::Table::kValues}) {
    const Layout layout = KvCache::page_layout(kShape, table);
    for (int64_t page : {0, 1, 9})
      for (int64_t head : {0, 1})
        for (int64_t token : {0, 1, 17, 31})
          for (int64_t d : {0, 7, 19}) {
            const int64_t in_layer = (page * kShape.num_layers + layer) * kShape.num_kv_heads + head;
            const Place place = layout.apply((in_layer * kPageTokens + token) * width + d);
            EXPECT_EQ(place[static_cast<size_t>(Axis::kPage)], page);
            const KvHeadView& h = view.head(layer, head);
            // What KvHeadView says.
            const int64_t in_page = table == KvCache::Table::kKeys
                                        ? ((token / 16 * (width / 2) + d / 2) * 16 + token % 16) * 2 + d % 2
                                        : (token / 2 * width + d) * 2 + token % 2;
            const auto* at = static_cast<const uint16_t*>(table == KvCache::Table::kKeys ? h.k : h.v) +
                             page * h.page_stride + in_page;
            EXPECT_EQ(at - base, page * h.page_stride + place[static_cast<size_t>(Axis::kMemory)]);
          }
  }
}

TEST(KvCache, NoTwoElementsShareAPlace) {
  for (const int64_t head_dim : {20, 5}) {
    KvCacheShape shape = kShape;
    shape.head_dim = head_dim;
    auto cache = KvCache::make(shape);
    ASSERT_TRUE(cache.ok());
    const int64_t padded = (head_dim + 1) / 2 * 2;
    std::set<std::pair<int64_t, int64_t>> places;
    size_t count = 0;
    for (auto table : {KvCache::Table::kKeys, KvCache::Table::kValues}) {
      const Layout layout = KvCache::page_layout(shape, table);
      EXPECT_EQ(layout.size(), 10 * 3 * 2 * kPageTokens * padded);
      for (int64_t i = 0; i < layout.size(); ++i, ++count) {
        const Place place = layout.apply(i);
        places.emplace(place[static_cast<size_t>(Axis::kPage)], place[static_cast<size_t>(Axis::kMemory)]);
      }
    }
    EXPECT_EQ(places.size(), count);
    EXPECT_EQ(static_cast<int64_t>(count) * 2, cache->bytes());
    EXPECT_EQ(cache->bytes_per_token() * kPageTokens * 10, cache->bytes());
  }
}

TEST(PageTable, GrowsShrinksAndGivesPagesBack) {
  auto cache = KvCache::make(kShape);
  ASSERT_TRUE(cache.ok());
  {
    PageTable a(*cache), b(*cache);
    ASSERT_TRUE(a.grow(1).ok());
    ASSERT_TRUE(a.grow(kPageTokens).ok());
    EXPECT_EQ(cache->pages().num_allocated(), 1);
    ASSERT_TRUE(b.grow(kPageTokens * 3 + 1).ok());
    ASSERT_TRUE(a.grow(kPageTokens + 1).ok());
    EXPECT_EQ(cache->pages().num_allocated(), 6);
    EXPECT_EQ(a.slot(kPageTokens + 2), a.pages()[1] * kPageTokens + 2);
    const Status full = a.grow(kPageTokens * 7);
    EXPECT_EQ(full.code(), Code::out_of_memory);
    EXPECT_EQ(full.message(), "key-value cache: 5 more pages of 32 tokens are needed, 4 of 10 are free");
    EXPECT_EQ(cache->pages().num_allocated(), 6);  // nothing was taken
    b.shrink(1);
    EXPECT_EQ(cache->pages().num_allocated(), 3);
  }
  EXPECT_EQ(cache->pages().num_allocated(), 0);
}

}  // namespace redline::test
