#include "tensor/layout.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace redline {
namespace {

using Sizes = std::vector<int64_t>;

int64_t product(const Sizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>());
}

/// Row-major digits of `index` in `shape`.
Sizes digits(int64_t index, const Sizes& shape) {
  Sizes d(shape.size());
  for (size_t i = shape.size(); i-- > 0;) {
    d[i] = index % shape[i];
    index /= shape[i];
  }
  return d;
}
int64_t flat(const Sizes& at, const Sizes& shape) {
  int64_t index = 0;
  for (size_t i = 0; i < shape.size(); ++i) index = index * shape[i] + at[i];
  return index;
}

std::vector<Place> places(const Layout& layout) {
  std::vector<Place> all;
  for (int64_t i = 0; i < layout.size(); ++i) all.push_back(layout.apply(i));
  return all;
}
std::multiset<Place> place_set(const Layout& layout) {
  std::multiset<Place> all;
  for (int64_t i = 0; i < layout.size(); ++i)
    for (const Place& place : layout.apply_all(i)) all.insert(place);
  return all;
}

/// Uniform in [low, high). (RapidCheck's own range shrinks towards `low` in early cases: nearly all extents would be
/// 1.)
template <class T>
T pick_layout(T low, T high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<T>(low, high));
}
Sizes any_shape(size_t rank) {
  Sizes shape(rank);
  for (int64_t& size : shape) size = pick_layout<int64_t>(1, 7);
  return shape;
}

/// The dense layout of `shape` whose axes lie in memory in a random order.
Layout permuted(const Sizes& shape) {
  std::vector<size_t> order(shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[pick_layout<size_t>(0, i)]);
  std::vector<Iter> shard(shape.size());
  int64_t stride = 1;
  for (size_t dim : order) {
    shard[dim] = {shape[dim], stride, Axis::kMemory};
    stride *= shape[dim];
  }
  return Layout(shard);
}
/// Tiles of one permuted layout inside another: dense, 2 axes, sometimes two levels.
Layout tiled(Sizes* shape) {
  const Sizes outer = any_shape(2), inner = any_shape(2);
  *shape = {outer[0] * inner[0], outer[1] * inner[1]};
  return permuted(outer).tile(outer, permuted(inner), inner).value();
}
/// Anything: strides on all axes, of both signs, iters of one element, replicas, an offset.
Layout any_layout(bool memory_only = false) {
  const auto iters = [&](size_t most, int64_t min_stride) {
    std::vector<Iter> list(pick_layout<size_t>(0, most + 1));
    for (Iter& iter : list) {
      iter.extent = pick_layout<int64_t>(1, 5);
      iter.stride = pick_layout<int64_t>(min_stride, 13);
      if (!memory_only) iter.axis = static_cast<Axis>(pick_layout<int>(0, kNumAxes));
    }
    return list;
  };
  Place offset = {};
  for (int axis = 0; axis < (memory_only ? 1 : kNumAxes); ++axis) offset[axis] = pick_layout<int64_t>(0, 4);
  return Layout(iters(4, -3), iters(2, 1), offset);
}

RC_GTEST_PROP(Layout, PermutationsAndTilesAreDenseAndInjective, ()) {
  const bool use_tile = *rc::gen::arbitrary<bool>();
  Sizes shape = any_shape(pick_layout<size_t>(0, 5));
  const Layout layout = use_tile ? tiled(&shape) : permuted(shape);
  RC_ASSERT(layout.size() == product(shape));
  std::set<int64_t> seen;
  for (int64_t i = 0; i < layout.size(); ++i) seen.insert(layout.memory(i));
  RC_ASSERT(int64_t(seen.size()) == layout.size());
  RC_ASSERT(*seen.begin() == 0);
  RC_ASSERT(*seen.rbegin() + 1 == layout.span(Axis::kMemory));
  RC_ASSERT(layout.span(Axis::kMemory) == layout.size());
}

RC_GTEST_PROP(Layout, ApplyFollowsTheFormula, ()) {
  const Layout layout = any_layout();
  Sizes extents;
  for (const Iter& iter : layout.shard()) extents.push_back(iter.extent);
  for (int64_t i = 0; i < layout.size(); ++i) {
    Place expected = layout.offset();
    const Sizes d = digits(i, extents);
    for (size_t k = 0; k < d.size(); ++k) expected[int(layout.shard()[k].axis)] += d[k] * layout.shard()[k].stride;
    RC_ASSERT(layout.apply(i) == expected);
    RC_ASSERT(layout.apply_all(i).front() == expected);
  }
}

RC_GTEST_PROP(Layout, SpanIsTheLargestReach, ()) {
  const Layout layout = any_layout();
  Place reach;
  reach.fill(INT64_MIN);
  for (const Place& place : place_set(layout))
    for (int axis = 0; axis < kNumAxes; ++axis) reach[axis] = std::max(reach[axis], place[axis]);
  for (int axis = 0; axis < kNumAxes; ++axis) RC_ASSERT(layout.span(Axis(axis)) == reach[axis] + 1);
}

RC_GTEST_PROP(Layout, CanonicalKeepsTheMapping, ()) {
  const Layout layout = any_layout(), small = layout.canonical();
  RC_ASSERT(places(small) == places(layout));
  RC_ASSERT(place_set(small) == place_set(layout));
  RC_ASSERT(small.shard().size() <= layout.shard().size());
  RC_ASSERT(small.canonical().shard() == small.shard());
  RC_ASSERT(small == layout);
}

RC_GTEST_PROP(Layout, EqualMappingsCompareEqual, ()) {
  // Two ways to write one mapping: an iter cut in two at a divisor.
  const Layout layout = any_layout();
  std::vector<Iter> cut;
  for (const Iter& iter : layout.shard()) {
    const int64_t inner = *rc::gen::elementOf(Sizes{1, 2, 3, 4});
    if (iter.extent % inner != 0) {
      cut.push_back(iter);
      continue;
    }
    cut.push_back({iter.extent / inner, iter.stride * inner, iter.axis});
    cut.push_back({inner, iter.stride, iter.axis});
  }
  std::vector<Iter> replica = layout.replica();
  std::reverse(replica.begin(), replica.end());
  RC_ASSERT(Layout(cut, replica, layout.offset()) == layout);
  const Layout other = any_layout();
  if (places(other) != places(layout)) RC_ASSERT(!(other == layout));
  if (other.replica().empty() && layout.replica().empty() && places(other) == places(layout))
    RC_ASSERT(other == layout);
}

RC_GTEST_PROP(Layout, GroupCutsAtTheShape, ()) {
  Sizes shape;
  const Layout layout = tiled(&shape);
  const auto groups = layout.group(shape);
  RC_ASSERT(groups.ok());
  RC_ASSERT(groups.value().size() == shape.size());
  std::vector<Iter> all;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int64_t extent = 1;
    for (const Iter& iter : groups.value()[dim]) extent *= iter.extent;
    RC_ASSERT(extent == shape[dim]);
    all.insert(all.end(), groups.value()[dim].begin(), groups.value()[dim].end());
  }
  RC_ASSERT(places(Layout(all)) == places(layout));
}

TEST(Layout, GroupSaysWhatDoesNotFit) {
  const Layout layout({{4, 100, Axis::kMemory}, {9, 1, Axis::kMemory}});
  EXPECT_TRUE(layout.group({12, 3}).ok());
  EXPECT_EQ(layout.group({6, 6}).status().code(), Code::invalid_argument);
  EXPECT_EQ(
      layout.group({6, 6}).status().message(),
      "layout (4:100@m, 9:1@m) + 0 cannot be cut to the shape [6, 6]: axis 1 of 6 elements ends inside an iter of 9");
  EXPECT_EQ(layout.group({6, 7}).status().message(),
            "layout (4:100@m, 9:1@m) + 0 has 36 elements, the shape [6, 7] has 42");
  EXPECT_TRUE(Layout::row_major({4, 9}).group({6, 6}).ok());  // dense: one run, cut anywhere
}

RC_GTEST_PROP(Layout, TileIsOuterOverInner, ()) {
  const Sizes outer_shape = any_shape(2), inner_shape = any_shape(2);
  const Layout outer = permuted(outer_shape), inner = permuted(inner_shape);
  const auto layout = outer.tile(outer_shape, inner, inner_shape);
  RC_ASSERT(layout.ok());
  const Sizes shape = {outer_shape[0] * inner_shape[0], outer_shape[1] * inner_shape[1]};
  for (int64_t i = 0; i < product(shape); ++i) {
    const Sizes at = digits(i, shape);
    const int64_t o = flat({at[0] / inner_shape[0], at[1] / inner_shape[1]}, outer_shape);
    const int64_t n = flat({at[0] % inner_shape[0], at[1] % inner_shape[1]}, inner_shape);
    RC_ASSERT(layout.value().memory(i) == outer.memory(o) * inner.size() + inner.memory(n));
  }
}

TEST(Layout, TileKeepsAxesApart) {
  // Four ranks, each with two rows of eight: the rank stride is not scaled by the memory span.
  const Layout ranks({{4, 1, Axis::kRank}, {1, 0, Axis::kMemory}});
  const Layout layout = ranks.tile({4, 1}, Layout::row_major({2, 8}), {2, 8}).value();
  EXPECT_EQ(layout.span(Axis::kRank), 4);
  EXPECT_EQ(layout.span(Axis::kMemory), 16);
  const Place place = layout.apply(5 * 8 + 3);
  EXPECT_EQ(place[int(Axis::kRank)], 2);
  EXPECT_EQ(place[int(Axis::kMemory)], 11);
  EXPECT_FALSE(ranks.tile({4}, Layout::row_major({2, 8}), {2, 8}).ok());
}

RC_GTEST_PROP(Layout, SliceIsTheSubBox, ()) {
  Sizes shape;
  const Layout layout = tiled(&shape);
  Sizes begin, extent;
  for (int64_t size : shape) {
    begin.push_back(pick_layout<int64_t>(0, size));
    extent.push_back(pick_layout<int64_t>(1, size - begin.back() + 1));
  }
  const auto box = layout.slice(shape, begin, extent);
  RC_CLASSIFY(box.has_value());
  if (!box) return;
  RC_ASSERT(box->size() == product(extent));
  for (int64_t i = 0; i < box->size(); ++i) {
    const Sizes at = digits(i, extent);
    RC_ASSERT(box->apply(i) == layout.apply(flat({begin[0] + at[0], begin[1] + at[1]}, shape)));
  }
}

RC_GTEST_PROP(Layout, SliceOfWholeTilesAndOfRowMajorExists, ()) {
  const Sizes outer = any_shape(2), inner = any_shape(2);
  const Layout layout = permuted(outer).tile(outer, permuted(inner), inner).value();
  const Sizes shape = {outer[0] * inner[0], outer[1] * inner[1]};
  Sizes begin, extent, dense_begin, dense_extent;
  for (size_t dim = 0; dim < 2; ++dim) {
    begin.push_back(pick_layout<int64_t>(0, outer[dim]) * inner[dim]);
    extent.push_back(pick_layout<int64_t>(1, (shape[dim] - begin[dim]) / inner[dim] + 1) * inner[dim]);
    dense_begin.push_back(pick_layout<int64_t>(0, shape[dim]));
    dense_extent.push_back(pick_layout<int64_t>(0, shape[dim] - dense_begin[dim] + 1));
  }
  RC_ASSERT(layout.slice(shape, begin, extent).has_value());
  const auto dense = Layout::row_major(shape).slice(shape, dense_begin, dense_extent);
  RC_ASSERT(dense.has_value());
  RC_ASSERT(dense->size() == product(dense_extent));
}

TEST(Layout, SliceRefusesWhatIsNoBox) {
  const Layout layout = Layout::row_major({4, 6});
  EXPECT_FALSE(layout.slice({4, 6}, {3, 0}, {2, 6}));
  EXPECT_FALSE(layout.slice({4, 6}, {-1, 0}, {2, 6}));
  EXPECT_FALSE(layout.slice({4, 6}, {0}, {4}));
  EXPECT_FALSE(layout.slice({5, 5}, {0, 0}, {1, 1}));
  const Layout row_panels({{2, 100, Axis::kMemory}, {4, 1, Axis::kMemory}});
  EXPECT_TRUE(row_panels.slice({8}, {5}, {3}));
  EXPECT_FALSE(row_panels.slice({8}, {2}, {4}));  // crosses from one row panel to the next
}

RC_GTEST_PROP(Layout, CopyRunsCoverOnceAndAreMaximal, ()) {
  Layout source = any_layout(true), target = source;
  if (*rc::gen::arbitrary<bool>()) {
    Sizes shape;
    source = tiled(&shape);
    target = *rc::gen::arbitrary<bool>() ? permuted(shape) : Layout::row_major(shape);
  }
  target = Layout(target.shard(), {}, target.offset());
  const auto plan = plan_copy(source, target);
  RC_ASSERT(plan.ok());
  const std::vector<CopyRun>& runs = plan.value();
  int64_t index = 0;
  for (size_t r = 0; r < runs.size(); ++r) {
    RC_ASSERT(runs[r].length > 0);
    for (int64_t k = 0; k < runs[r].length; ++k, ++index) {
      RC_ASSERT(runs[r].source_offset + k == source.memory(index));
      RC_ASSERT(runs[r].target_offset + k == target.memory(index));
    }
    if (r > 0) {
      const bool joins = runs[r - 1].source_offset + runs[r - 1].length == runs[r].source_offset &&
                         runs[r - 1].target_offset + runs[r - 1].length == runs[r].target_offset;
      RC_ASSERT(!joins);
    }
  }
  RC_ASSERT(index == source.size());
}

RC_GTEST_PROP(Layout, ConvertRoundTrips, ()) {
  Sizes shape;
  const Layout packed = tiled(&shape), plain = Layout::row_major(shape);
  const int64_t element_bytes = *rc::gen::elementOf(Sizes{1, 2, 3, 18});
  std::vector<uint8_t> original(size_t(plain.size() * element_bytes)), there(original.size()), back(original.size());
  for (size_t i = 0; i < original.size(); ++i) original[i] = uint8_t(i * 37 + 11);
  RC_ASSERT(convert(plain, original.data(), packed, there.data(), element_bytes).ok());
  for (int64_t i = 0; i < plain.size(); ++i)
    RC_ASSERT(std::equal(&original[i * element_bytes], &original[i * element_bytes] + element_bytes,
                         &there[packed.memory(i) * element_bytes]));
  RC_ASSERT(convert(packed, there.data(), plain, back.data(), element_bytes).ok());
  RC_ASSERT(back == original);
}

TEST(Layout, ConvertWritesEveryReplica) {
  const Layout target({{3, 1, Axis::kMemory}}, {{2, 4, Axis::kMemory}});
  const std::string from = "abc";
  std::string to = "........";
  ASSERT_TRUE(convert(Layout::row_major({3}), from.data(), target, to.data(), 1).ok());
  EXPECT_EQ(to, "abc.abc.");
}

TEST(Layout, CopyRefusesOtherSizesAndAxes) {
  EXPECT_EQ(plan_copy(Layout::row_major({2, 3}), Layout::row_major({7})).status().message(),
            "layout copy: the source (2:3@m, 3:1@m) + 0 has 6 elements, the target (7:1@m) + 0 has 7");
  const Layout ranks({{2, 1, Axis::kRank}, {3, 1, Axis::kMemory}});
  EXPECT_EQ(plan_copy(ranks, Layout::row_major({6})).status().message(),
            "layout copy: (2:1@rank, 3:1@m) + 0 uses the axis rank; only memory can be copied");
  EXPECT_FALSE(plan_copy(Layout::row_major({2}), Layout({{2, 1, Axis::kMemory}}, {{2, 1, Axis::kPage}})).ok());
}

TEST(Layout, VnniRowPanelsOfTheWeights) {
  // 32 rows x 12 bytes in row panels of 16 rows x 4 bytes: [N/16][K/4][16][4].
  const Layout row_panels(
      {{2, 16 * 12, Axis::kMemory}, {16, 4, Axis::kMemory}, {3, 64, Axis::kMemory}, {4, 1, Axis::kMemory}});
  const Layout tile = Layout::row_major({2, 3}).tile({2, 3}, Layout::row_major({16, 4}), {16, 4}).value();
  EXPECT_EQ(row_panels, tile);
  EXPECT_EQ(row_panels.contiguous_run(), 4);
  EXPECT_EQ(plan_copy(Layout::row_major({32, 12}), row_panels).value().size(), 32u * 3 - 1);  // the two row panels meet
  EXPECT_EQ(row_panels.span(Axis::kMemory), 32 * 12);
}

TEST(Layout, EmptyAndScalar) {
  const Layout empty = Layout::row_major({3, 0, 2}), scalar;
  EXPECT_EQ(empty.size(), 0);
  EXPECT_EQ(empty.span(Axis::kMemory), 0);
  EXPECT_EQ(empty.contiguous_run(), 0);
  EXPECT_EQ(empty, Layout::row_major({0}));
  EXPECT_TRUE(empty.group({0, 5}).ok());
  EXPECT_TRUE(plan_copy(empty, Layout::row_major({0})).value().empty());
  EXPECT_EQ(scalar.size(), 1);
  EXPECT_EQ(scalar.memory(0), 0);
  EXPECT_EQ(scalar.contiguous_run(), 1);
  EXPECT_EQ(scalar, Layout::row_major({1, 1}));
  EXPECT_EQ(plan_copy(scalar, scalar).value().size(), 1u);
}

TEST(Layout, Prints) {
  EXPECT_EQ(Layout::row_major({64, 16}).to_string(), "(64:16@m, 16:1@m) + 0");
  EXPECT_EQ(Layout({{2, 1, Axis::kRank}}, {{2, 8, Axis::kLane}}, {3, 0, 1, 0, 0}).to_string(),
            "(2:1@rank) [2:8@lane] + 3@m + 1@rank");
}

}  // namespace
}  // namespace redline
