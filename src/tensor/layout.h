// Where the elements of a tensor live: one description for packed weights, KV pages and rank shards.
//
// After Axe (arXiv 2601.19092) as summarised in the TVM tile layout documentation: a layout maps a logical coordinate
// to a set of physical coordinates on named axes.
//   shard    ordered iters (extent, stride, axis). The logical index, row-major, is split into digits by the extents,
//            innermost last; each digit adds digit * stride on its iter's axis
//   replica  unordered iters: every digit combination is one more copy at the added offset
//   offset   one constant per axis
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

/// Named resources. kMemory counts elements in one address space; kPage is a number resolved through a page table;
/// kRank is a process; kWorker a thread; kLane a vector lane.
enum class Axis : uint8_t { kMemory, kPage, kRank, kWorker, kLane };
inline constexpr int kNumAxes = 5;
std::string_view axis_name(Axis axis);

/// A coordinate on every axis.
using Place = std::array<int64_t, kNumAxes>;

struct Iter {
  int64_t extent = 1;
  int64_t stride = 0;
  Axis axis = Axis::kMemory;
  friend bool operator==(const Iter&, const Iter&) = default;
};

class Layout {
 public:
  Layout() = default;
  Layout(std::vector<Iter> shard, std::vector<Iter> replica = {}, Place offset = {});
  /// Dense row-major in memory.
  static Layout row_major(const std::vector<int64_t>& extents);

  const std::vector<Iter>& shard() const { return shard_; }
  const std::vector<Iter>& replica() const { return replica_; }
  const Place& offset() const { return offset_; }

  /// Product of the shard extents: number of logical elements.
  int64_t size() const;
  /// 1 + the largest reach on `axis` (replicas included) + offset; 0 for a layout of no elements.
  int64_t span(Axis axis) const;
  /// First copy of logical element `index` (row-major). Cost: one division per iter.
  Place apply(int64_t index) const;
  /// Every copy.
  std::vector<Place> apply_all(int64_t index) const;
  /// Memory coordinate only; the common case.
  int64_t memory(int64_t index) const { return apply(index)[0]; }

  /// Drops extent-1 iters and fuses neighbours with outer.stride == inner.extent * inner.stride on one axis.
  Layout canonical() const;
  /// Cuts iters so that consecutive runs multiply to each extent of `shape`; invalid_argument when a cut does not
  /// divide.
  Result<std::vector<std::vector<Iter>>> group(const std::vector<int64_t>& shape) const;
  /// `this` over tiles of `inner`: logical shape is outer_shape[i] * inner_shape[i] per axis, strides of `this` are
  /// multiplied by inner's span on the same axis.
  Result<Layout> tile(const std::vector<int64_t>& outer_shape, const Layout& inner,
                      const std::vector<int64_t>& inner_shape) const;
  /// The sub-box [begin, begin + extent) of the logical `shape`; nullopt when a border of the box cuts through an iter
  /// (no one layout then) or when shape, begin and extent do not fit this layout.
  std::optional<Layout> slice(const std::vector<int64_t>& shape, const std::vector<int64_t>& begin,
                              const std::vector<int64_t>& extent) const;
  /// Number of trailing logical elements that are contiguous and dense in memory, in the same order.
  int64_t contiguous_run() const;
  /// "(64:16@m, 16:1@m) + 0"
  std::string to_string() const;

  /// Same mapping, compared after canonical().
  friend bool operator==(const Layout& a, const Layout& b);

 private:
  std::vector<Iter> shard_, replica_;
  Place offset_ = {};
};

/// One run of a copy between two layouts of the same logical size: `length` elements from source + source_offset to
/// target + target_offset, memory axis, in elements.
struct CopyRun {
  int64_t source_offset, target_offset, length;
};
/// The runs that rearrange `source` into `target`, each the longest that is contiguous on both sides, in logical order.
/// The first copy of the source is read; every copy of the target is written, one whole pass after the other.
/// invalid_argument when the sizes differ or an axis other than memory is used.
Result<std::vector<CopyRun>> plan_copy(const Layout& source, const Layout& target);
/// Runs the plan of plan_copy over elements of `element_bytes` without materialising it.
Status convert(const Layout& source, const void* source_data, const Layout& target, void* target_data,
               int64_t element_bytes);

}  // namespace redline
