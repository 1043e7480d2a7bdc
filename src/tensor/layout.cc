#include "tensor/layout.h"

#include <algorithm>
#include <cstring>

namespace redline {
namespace {

int axis_index(Axis axis) { return static_cast<int>(axis); }

int64_t product(const std::vector<int64_t>& extents) {
  int64_t p = 1;
  for (int64_t e : extents) p *= e;
  return p;
}

std::string list(const std::vector<int64_t>& values) { return fmt::format("[{}]", fmt::join(values, ", ")); }

/// Drops iters of extent 1 and fuses adjacent ones that a single iter can describe. An iter with stride 0 is put on
/// kMemory, so that equal mappings compare equal.
std::vector<Iter> fuse(const std::vector<Iter>& iters) {
  std::vector<Iter> fused;
  for (Iter iter : iters) {
    if (iter.extent == 1) continue;
    if (iter.stride == 0) iter.axis = Axis::kMemory;
    if (!fused.empty() && fused.back().axis == iter.axis && fused.back().stride == iter.extent * iter.stride)
      fused.back() = {fused.back().extent * iter.extent, iter.stride, iter.axis};
    else fused.push_back(iter);
  }
  return fused;
}

/// Adds the digits of `index` to `place`, innermost iter last; returns the remaining quotient.
int64_t add_digits(const std::vector<Iter>& iters, int64_t index, Place& place) {
  for (auto iter = iters.rbegin(); iter != iters.rend(); ++iter) {
    place[axis_index(iter->axis)] += index % iter->extent * iter->stride;
    index /= iter->extent;
  }
  return index;
}

/// The box [begin, begin + extent) of one group of iters; its start is added to `offset`.
std::optional<std::vector<Iter>> slice_group(std::vector<Iter> iters, int64_t begin, int64_t extent, Place& offset) {
  std::vector<Iter> kept;
  iters = fuse(iters);
  while (!iters.empty()) {
    const Iter inner = iters.back();
    const int64_t first = begin % inner.extent;
    if (first + extent <= inner.extent) {  // the box is within one sweep of this iter: outer digits are fixed
      add_digits(iters, begin, offset);
      kept.insert(kept.begin(), {extent, inner.stride, inner.axis});
      return kept;
    }
    if (first != 0 || extent % inner.extent != 0) return std::nullopt;
    kept.insert(kept.begin(), inner);
    begin /= inner.extent;
    extent /= inner.extent;
    iters.pop_back();
  }
  return kept;
}

/// Iterates over the memory coordinates of a layout in logical order without divisions.
class Walker {
 public:
  explicit Walker(const Layout& canonical) : iters_(canonical.shard()), at_(canonical.offset()[0]) {
    if (iters_.empty()) iters_.push_back({1, 1, Axis::kMemory});
    std::reverse(iters_.begin(), iters_.end());
    digits_.resize(iters_.size());
  }
  int64_t at() const { return at_; }
  /// Returns the number of elements from the current one on that are contiguous in memory.
  int64_t run() const { return iters_[0].stride == 1 ? iters_[0].extent - digits_[0] : 1; }
  /// Moves `count` elements on; count <= run().
  void advance(int64_t count) {
    digits_[0] += count;
    at_ += count * iters_[0].stride;
    for (size_t i = 0; i + 1 < iters_.size() && digits_[i] == iters_[i].extent; ++i) {
      digits_[i] = 0;
      at_ += iters_[i + 1].stride - iters_[i].extent * iters_[i].stride;
      ++digits_[i + 1];
    }
  }

 private:
  std::vector<Iter> iters_;  // innermost first
  std::vector<int64_t> digits_;
  int64_t at_;
};

Status check_copy(const Layout& source, const Layout& target) {
  if (source.size() != target.size())
    return invalid_argument("layout copy: the source {} has {} elements, the target {} has {}", source.to_string(),
                            source.size(), target.to_string(), target.size());
  for (const Layout& layout : {source.canonical(), target.canonical()}) {
    Place used = layout.offset();
    for (const std::vector<Iter>* iters : {&layout.shard(), &layout.replica()})
      for (const Iter& iter : *iters) used[axis_index(iter.axis)] |= iter.stride;
    for (int axis = 1; axis < kNumAxes; ++axis)
      if (used[axis] != 0)
        return invalid_argument("layout copy: {} uses the axis {}; only memory can be copied", layout.to_string(),
                                axis_name(static_cast<Axis>(axis)));
  }
  return {};
}

/// Calls `run` for the maximal runs in logical order; one full pass for each copy in the target.
template <class F>
void for_each_run(const Layout& source, const Layout& target, F&& run) {
  const Layout from = source.canonical(), to = target.canonical();
  const int64_t size = from.size();
  int64_t copies = 1;
  for (const Iter& iter : to.replica()) copies *= iter.extent;
  for (int64_t copy = 0; copy < copies && size > 0; ++copy) {
    Place shift = {};
    add_digits(to.replica(), copy, shift);
    Walker s(from), t(to);
    CopyRun current{s.at(), t.at() + shift[0], 0};
    for (int64_t done = 0; done < size;) {
      if (s.at() != current.source_offset + current.length ||
          t.at() + shift[0] != current.target_offset + current.length) {
        run(current);
        current = {s.at(), t.at() + shift[0], 0};
      }
      const int64_t step = std::min(s.run(), t.run());
      current.length += step;
      done += step;
      s.advance(step);
      t.advance(step);
    }
    run(current);
  }
}

}  // namespace

std::string_view axis_name(Axis axis) {
  static constexpr std::string_view kNames[kNumAxes] = {"m", "page", "rank", "worker", "lane"};
  return kNames[axis_index(axis)];
}

Layout::Layout(std::vector<Iter> shard, std::vector<Iter> replica, Place offset)
    : shard_(std::move(shard)), replica_(std::move(replica)), offset_(offset) {
  for (const std::vector<Iter>* iters : {&shard_, &replica_})
    for (const Iter& iter : *iters) REDLINE_CHECK(iter.extent >= 0);
}

Layout Layout::row_major(const std::vector<int64_t>& extents) {
  std::vector<Iter> shard(extents.size());
  int64_t stride = 1;
  for (size_t i = extents.size(); i-- > 0;) {
    shard[i] = {extents[i], stride, Axis::kMemory};
    stride *= extents[i];
  }
  return Layout(std::move(shard));
}

int64_t Layout::size() const {
  int64_t n = 1;
  for (const Iter& iter : shard_) n *= iter.extent;
  return n;
}

int64_t Layout::span(Axis axis) const {
  if (size() == 0) return 0;
  int64_t last = offset_[axis_index(axis)];
  for (const std::vector<Iter>* iters : {&shard_, &replica_})
    for (const Iter& iter : *iters)
      if (iter.axis == axis) last += std::max<int64_t>(0, (iter.extent - 1) * iter.stride);
  return 1 + last;
}

Place Layout::apply(int64_t index) const {
  Place place = offset_;
  [[maybe_unused]] const int64_t rest = add_digits(shard_, index, place);
  REDLINE_DCHECK(index >= 0 && rest == 0);
  return place;
}

std::vector<Place> Layout::apply_all(int64_t index) const {
  const Place first = apply(index);
  int64_t copies = 1;
  for (const Iter& iter : replica_) copies *= iter.extent;
  std::vector<Place> places(static_cast<size_t>(copies), first);
  for (int64_t copy = 0; copy < copies; ++copy) add_digits(replica_, copy, places[static_cast<size_t>(copy)]);
  return places;
}

Layout Layout::canonical() const {
  if (size() == 0) return Layout({{0, 0, Axis::kMemory}});
  std::vector<Iter> replica = replica_;
  // A replica iter with stride 0 repeats the same places; the order of the others does not matter.
  std::erase_if(replica, [](const Iter& iter) { return iter.extent == 1 || iter.stride == 0; });
  std::sort(replica.begin(), replica.end(), [](const Iter& a, const Iter& b) {
    if (a.axis != b.axis) return a.axis < b.axis;
    if (a.stride != b.stride) return a.stride > b.stride;
    return a.extent > b.extent;
  });
  return Layout(fuse(shard_), fuse(replica), offset_);
}

Result<std::vector<std::vector<Iter>>> Layout::group(const std::vector<int64_t>& shape) const {
  if (product(shape) != size())
    return invalid_argument("layout {} has {} elements, the shape {} has {}", to_string(), size(), list(shape),
                            product(shape));
  std::vector<std::vector<Iter>> groups(shape.size());
  if (size() == 0) {
    for (size_t dim = 0; dim < shape.size(); ++dim) groups[dim] = {{shape[dim], 0, Axis::kMemory}};
    return groups;
  }
  std::vector<Iter> rest = fuse(shard_);
  for (size_t dim = shape.size(); dim-- > 0;) {
    for (int64_t need = shape[dim]; need > 1;) {
      Iter& iter = rest.back();
      if (need % iter.extent == 0) {
        groups[dim].insert(groups[dim].begin(), iter);
        need /= iter.extent;
        rest.pop_back();
      } else if (iter.extent % need == 0) {
        groups[dim].insert(groups[dim].begin(), {need, iter.stride, iter.axis});
        iter = {iter.extent / need, iter.stride * need, iter.axis};
        need = 1;
      } else {
        return invalid_argument(
            "layout {} cannot be cut to the shape {}: axis {} of {} elements ends inside an iter of {}", to_string(),
            list(shape), dim, shape[dim], iter.extent);
      }
    }
  }
  return groups;
}

Result<Layout> Layout::tile(const std::vector<int64_t>& outer_shape, const Layout& inner,
                            const std::vector<int64_t>& inner_shape) const {
  if (outer_shape.size() != inner_shape.size())
    return invalid_argument("layout tile: the outer shape {} and the inner shape {} differ in rank", list(outer_shape),
                            list(inner_shape));
  REDLINE_ASSIGN(auto outer_groups, group(outer_shape));
  REDLINE_ASSIGN(auto inner_groups, inner.group(inner_shape));
  const auto scaled = [&](Iter iter) { return Iter{iter.extent, iter.stride * inner.span(iter.axis), iter.axis}; };

  std::vector<Iter> shard, replica;
  for (size_t dim = 0; dim < outer_shape.size(); ++dim) {
    for (const Iter& iter : outer_groups[dim]) shard.push_back(scaled(iter));
    shard.insert(shard.end(), inner_groups[dim].begin(), inner_groups[dim].end());
  }
  for (const Iter& iter : replica_) replica.push_back(scaled(iter));
  replica.insert(replica.end(), inner.replica_.begin(), inner.replica_.end());
  Place offset = inner.offset_;
  for (int axis = 0; axis < kNumAxes; ++axis) offset[axis] += offset_[axis] * inner.span(static_cast<Axis>(axis));
  return Layout(std::move(shard), std::move(replica), offset);
}

std::optional<Layout> Layout::slice(const std::vector<int64_t>& shape, const std::vector<int64_t>& begin,
                                    const std::vector<int64_t>& extent) const {
  if (begin.size() != shape.size() || extent.size() != shape.size()) return std::nullopt;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    if (begin[dim] < 0 || extent[dim] < 0 || begin[dim] > shape[dim] - extent[dim]) return std::nullopt;
  if (product(extent) == 0) return Layout({{0, 0, Axis::kMemory}});
  auto groups = group(shape);
  if (!groups.ok()) return std::nullopt;

  std::vector<Iter> shard;
  Place offset = offset_;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    auto kept = slice_group(groups.value()[dim], begin[dim], extent[dim], offset);
    if (!kept) return std::nullopt;
    shard.insert(shard.end(), kept->begin(), kept->end());
  }
  return Layout(std::move(shard), replica_, offset);
}

int64_t Layout::contiguous_run() const {
  const Layout layout = canonical();
  if (layout.shard_.empty()) return 1;
  const Iter& inner = layout.shard_.back();
  if (inner.extent == 0) return 0;
  return inner.stride == 1 && inner.axis == Axis::kMemory ? inner.extent : 1;
}

std::string Layout::to_string() const {
  const auto print = [](const std::vector<Iter>& iters) {
    std::string text;
    for (const Iter& iter : iters)
      text += fmt::format("{}{}:{}@{}", text.empty() ? "" : ", ", iter.extent, iter.stride, axis_name(iter.axis));
    return text;
  };
  std::string text = fmt::format("({})", print(shard_));
  if (!replica_.empty()) text += fmt::format(" [{}]", print(replica_));
  std::string offset;
  for (int axis = 0; axis < kNumAxes; ++axis)
    if (offset_[axis] != 0) offset += fmt::format(" + {}@{}", offset_[axis], axis_name(static_cast<Axis>(axis)));
  return text + (offset.empty() ? " + 0" : offset);
}

bool operator==(const Layout& a, const Layout& b) {
  const Layout x = a.canonical(), y = b.canonical();
  return x.shard_ == y.shard_ && x.replica_ == y.replica_ && x.offset_ == y.offset_;
}

Result<std::vector<CopyRun>> plan_copy(const Layout& source, const Layout& target) {
  REDLINE_TRY(check_copy(source, target));
  std::vector<CopyRun> runs;
  for_each_run(source, target, [&](const CopyRun& run) { runs.push_back(run); });
  return runs;
}

Status convert(const Layout& source, const void* source_data, const Layout& target, void* target_data,
               int64_t element_bytes) {
  REDLINE_TRY(check_copy(source, target));
  const auto* from = static_cast<const char*>(source_data);
  auto* to = static_cast<char*>(target_data);
  for_each_run(source, target, [&](const CopyRun& run) {
    std::memcpy(to + run.target_offset * element_bytes, from + run.source_offset * element_bytes,
                static_cast<size_t>(run.length * element_bytes));
  });
  return {};
}

}  // namespace redline
