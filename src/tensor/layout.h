// Tensor layouts: one description for packed weights, KV pages and rank shards.
//
// After Axe (arXiv 2601.19092) as summarized in the TVM tile layout documentation: a layout maps a logical coordinate
// to a set of physical coordinates on named axes.
//   shard    ordered iters (extent, stride, axis). The row-major logical index is split into digits by the extents,
//            innermost last; each digit adds digit * stride on its iter's axis
//   replica  unordered iters: every combination of digits is one more copy at the added offset
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
/// kRank is a process, kWorker a thread, kLane a vector lane.
enum class Axis : uint8_t { kMemory, kPage, kRank, kWorker, kLane };
inline constexpr int kNumAxes = 5;
std::string_view axis_name(Axis axis);

/// A coordinate on every axis.
using Place = std::array<int64_t, kNumAxes>;

/// One digit of an index: its extent, and the axis and stride that it is mapped to.
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
  /// Returns the dense row-major layout in memory.
  static Layout row_major(const std::vector<int64_t>& extents);

  const std::vector<Iter>& shard() const { return shard_; }
  const std::vector<Iter>& replica() const { return replica_; }
  const Place& offset() const { return offset_; }

  /// Returns the number of logical elements, the product of the shard extents.
  int64_t size() const;
  /// Returns 1 + the largest coordinate on `axis`, replicas and offset included; 0 for an empty layout.
  int64_t span(Axis axis) const;
  /// Returns the first copy of logical element `index` (row-major). Costs one division per iter.
  Place apply(int64_t index) const;
  /// Returns all copies of a logical element.
  std::vector<Place> apply_all(int64_t index) const;
  /// Returns the memory coordinate of the first copy.
  int64_t memory(int64_t index) const { return apply(index)[0]; }

  /// Drops iters of extent 1 and fuses adjacent ones with outer.stride == inner.extent * inner.stride on one axis.
  Layout canonical() const;
  /// Splits iters so that consecutive runs multiply to each extent of `shape`. invalid_argument when an extent does not
  /// divide.
  Result<std::vector<std::vector<Iter>>> group(const std::vector<int64_t>& shape) const;
  /// Returns `this` over tiles of `inner`: the logical shape is outer_shape[i] * inner_shape[i] per axis; strides of
  /// `this` are multiplied by inner's span on the same axis.
  Result<Layout> tile(const std::vector<int64_t>& outer_shape, const Layout& inner,
                      const std::vector<int64_t>& inner_shape) const;
  /// Returns the sub-box [begin, begin + extent) of the logical `shape`. nullopt when a side of the box cuts through an
  /// iter (it is then not a single layout), or when shape, begin and extent do not fit this layout.
  std::optional<Layout> slice(const std::vector<int64_t>& shape, const std::vector<int64_t>& begin,
                              const std::vector<int64_t>& extent) const;
  /// Returns the number of trailing logical elements that are contiguous in memory, in the same order.
  int64_t contiguous_run() const;
  /// Returns "(64:16@m, 16:1@m) + 0".
  std::string to_string() const;

  /// Compares canonical() forms: true if both map elements in the same way.
  friend bool operator==(const Layout& a, const Layout& b);

 private:
  std::vector<Iter> shard_, replica_;
  Place offset_ = {};
};

/// One run of a copy between two layouts of the same logical size: `length` elements from source + source_offset to
/// target + target_offset, in elements on the memory axis.
struct CopyRun {
  int64_t source_offset, target_offset, length;
};
/// Plans the runs that rearrange `source` into `target` in logical order, each as long as both sides are contiguous.
/// Reads the first copy of the source and writes every copy of the target, one full pass per copy. invalid_argument:
/// the sizes differ, or a layout uses an axis other than memory.
Result<std::vector<CopyRun>> plan_copy(const Layout& source, const Layout& target);
/// Executes plan_copy on elements of `element_bytes` without materializing the plan.
Status convert(const Layout& source, const void* source_data, const Layout& target, void* target_data,
               int64_t element_bytes);

}  // namespace redline
