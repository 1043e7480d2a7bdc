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
  const Layout layout = KvCache::page_layout(kShape);
  const KvCacheView view = cache->view();
  const auto* base = static_cast<const uint16_t*>(view.head(0, 0).k);
  const int64_t layer = 2;
  for (int64_t page : {0, 1, 9})
    for (int64_t head : {0, 1})
      for (int64_t token : {int64_t{0}, int64_t{1}, kPageTokens - 1})
        for (int64_t d : {0, 19})
          for (int64_t is_value : {0, 1}) {
            const int64_t table = (page * kShape.num_layers + layer) * 2 + is_value;
            const Place place =
                layout.apply(((table * kShape.num_kv_heads + head) * kPageTokens + token) * kShape.head_dim + d);
            EXPECT_EQ(place[static_cast<size_t>(Axis::kPage)], page);
            const KvHeadView& h = view.head(layer, head);
            const auto* at =
                static_cast<const uint16_t*>(is_value ? h.v : h.k) + page * h.page_stride + token * h.token_stride + d;
            EXPECT_EQ(at - base, page * h.page_stride + place[static_cast<size_t>(Axis::kMemory)]);
          }
}

TEST(KvCache, NoTwoElementsShareAPlace) {
  auto cache = KvCache::make(kShape);
  ASSERT_TRUE(cache.ok());
  std::set<const uint16_t*> places;
  size_t count = 0;
  for (int64_t layer = 0; layer < 3; ++layer)
    for (int64_t head = 0; head < 2; ++head)
      for (const void* table : {cache->view().head(layer, head).k, cache->view().head(layer, head).v})
        for (int64_t page = 0; page < 10; ++page)
          for (int64_t token = 0; token < kPageTokens; ++token) {
            const KvHeadView& h = cache->view().head(layer, head);
            for (int64_t d = 0; d < kShape.head_dim; ++d, ++count)
              places.insert(static_cast<const uint16_t*>(table) + page * h.page_stride + token * h.token_stride + d);
          }
  EXPECT_EQ(places.size(), count);
  EXPECT_EQ(static_cast<int64_t>(count) * 2, cache->bytes());
  EXPECT_EQ(cache->bytes_per_token() * kPageTokens * 10, cache->bytes());
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
