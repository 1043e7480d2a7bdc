#include "backends/cpu/linear_adapters.h"

#include <algorithm>
#include <optional>

namespace redline {

/// Parameters of a shrink stage.
struct AdapterShrink {
  struct Group {
    std::shared_ptr<AdapterSite> site;
    int64_t t_begin;  // first column of t
  };
  std::vector<Group> groups;
  int64_t t_cols, in_features;
  int tasks;
  Dim rows = 1;
  ActivationLayouts layouts;                                    // of x
  void (*down[kNumActivationLayouts])(const LinearArgs&) = {};  // by the layout of x
  Operand<const uint8_t> x;
  Operand<float> t;

  // Elements of the op's matrices, by which its product takes long, and those of an adapter of rank 1 that the product
  // reads or prefetches.
  double matrices = 0, factors = 0;
  std::weak_ptr<AdapterShrink> before;                       ///< of the program
  std::vector<std::shared_ptr<const AdapterShrink>> others;  ///< whose down matrices the product prefetches
};

namespace {

// A product that is short beside what it would prefetch leaves that to one of the two before it that has more time.
constexpr int kProductsBehind = 3;
constexpr double kWorthMoving = 1.5;

void choose_prefetching_product(const std::shared_ptr<AdapterShrink>& shrink, std::shared_ptr<AdapterShrink> before) {
  const double needed = static_cast<double>(shrink->in_features) * static_cast<double>(shrink->groups.size());
  const auto load_of = [&](const AdapterShrink& product) { return (product.factors + needed) / product.matrices; };
  AdapterShrink* best = before.get();
  for (int i = 0; i < kProductsBehind && before; ++i, before = before->before.lock())
    if (load_of(*before) * kWorthMoving < load_of(*best)) best = before.get();
  if (best == nullptr) return;
  best->factors += needed;
  best->others.push_back(shrink);
}

// Rows and columns of t that a task computes at a time. Both kernels and panels of x begin at multiples of them.
constexpr int64_t kShrinkRows = 256, kShrinkCols = 2 * kRowPanelRows;

// Rows whose t is prepared for the tile kernel at a time.
constexpr int64_t kExpandRows = 1024;

// Bytes of a row panel that are prefetched while the factors before it are multiplied: kernels prefetch this far ahead
// themselves, but do not have the address of the next adapter's factors.
constexpr int64_t kPrefetchBytes = 2048;

void prefetch_first(const void* data, int64_t bytes) {
  for (int64_t at = 0; at < std::min(bytes, kPrefetchBytes); at += 64)
    __builtin_prefetch(static_cast<const uint8_t*>(data) + at);
}

/// Rows [begin, end) and columns [n, n + kShrinkCols) of one adapter's x down^T.
struct ShrinkPart {
  const AdapterFactors* factors;
  float scale;
  int64_t begin, end, n;
  float* t;
};

void shrink(const AdapterShrink& s, const ShrinkPart& part, ActivationLayout layout, WorkerContext& worker) {
  // Rows before `begin` in its panel belong to another segment: their results are dropped.
  const int64_t first = part.begin / activation_layout_panel(layout) * activation_layout_panel(layout);
  const int64_t width = std::min(kShrinkCols, part.factors->rank - part.n);
  auto* products = static_cast<float*>(worker.buffer);
  LinearArgs args = {};
  args.x = s.x + activation_layout_bytes(layout, first, s.in_features);
  args.x_stride = args.in_features = s.in_features;
  args.rows = part.end - first;
  args.weight = part.factors->down;
  args.out_features = part.factors->rank;
  args.n_begin = part.n;
  args.n_end = part.n + width;
  args.y = products - part.n;  // kernels index columns from the first of the matrix
  args.y_stride = width;
  args.scratch = worker.scratch;
  s.down[static_cast<int>(layout)](args);
  for (int64_t row = part.begin; row < part.end; ++row)
    for (int64_t i = 0; i < width; ++i)
      part.t[row * s.t_cols + part.n + i] = part.scale * products[(row - first) * width + i];
}

/// body(group, part, task, number): the parts of all adapters are dealt to the tasks in turn; `number` counts those of
/// a task.
template <class Body>
void for_shrink_parts(const AdapterShrink& s, const StepContext& step, const Body& body) {
  const int64_t rows = s.rows.eval(step.sizes);
  int64_t number = 0;
  for (const AdapterShrink::Group& group : s.groups)
    for_adapted_rows(step.adapters, *group.site, step.sizes, 0, rows, [&](const AdaptedRows& adapted) {
      float* t = s.t + group.t_begin;
      int64_t rank = 0;
      for (const WeightedAdapter& each : adapted.adapters) {
        const AdapterFactors* factors = factors_at(each, *group.site);
        if (factors == nullptr) continue;
        REDLINE_CHECK(rank + factors->rank <= group.site->max_rank);
        const float scale = factors->scale * each.weight;
        for (int64_t begin = adapted.begin, end; begin < adapted.end; begin = end) {
          end = std::min(adapted.end, (begin / kShrinkRows + 1) * kShrinkRows);
          for (int64_t n = 0; n < factors->rank; n += kShrinkCols, ++number)
            body(group, ShrinkPart{factors, scale, begin, end, n, t + rank}, number % s.tasks, number / s.tasks);
        }
        rank += factors->rank;
      }
    });
}

const uint8_t* part_factors(const AdapterShrink& s, const AdapterShrink::Group& group, const ShrinkPart& part) {
  return static_cast<const uint8_t*>(part.factors->down) + packed_bytes(group.site->down_type, part.n, s.in_features);
}

void run_shrink(const AdapterShrink& s, const Tile& tile, const StepContext& step, WorkerContext& worker) {
  if (step.adapters.empty()) return;
  const ActivationLayout layout = s.layouts.for_rows(s.rows.eval(step.sizes));
  std::optional<ShrinkPart> next;  // prefetched
  for_shrink_parts(s, step, [&](const AdapterShrink::Group& group, const ShrinkPart& part, int64_t task, int64_t) {
    if (task != tile.index) return;
    prefetch_first(part_factors(s, group, part), packed_bytes(group.site->down_type, kRowPanelRows, s.in_features));
    if (next) shrink(s, *next, layout, worker);
    next = part;
  });
  if (next) shrink(s, *next, layout, worker);
}

}  // namespace

AdapterExpand AdapterExpand::choose(const CpuKernels& table, bool exact_f32) {
  AdapterExpand up = choose_plain(table, exact_f32);
  if (exact_f32 || up.by_tiles) return up;
  up.type = DType::kI8;
  up.by_rows = table.linear[static_cast<size_t>(up.type)];
  return up;
}

AdapterExpand AdapterExpand::choose_plain(const CpuKernels& table, bool exact_f32) {
  AdapterExpand up;
  up.type = exact_f32 ? DType::kF32 : DType::kBF16;
  up.by_rows = table.linear[static_cast<size_t>(up.type)];
  if (exact_f32 || !table.has_tile_unit) return up;
  up.by_tiles = table.linear_tiles[static_cast<size_t>(up.type)];
  up.prepare_tiles = table.prepare_x[static_cast<int>(ActivationLayout::kBf16Tiled)];
  return up;
}

void AdapterExpand::add(LinearArgs args, const AdapterFactors& factors, const float* t, int64_t t_stride,
                        int64_t segment_rows, void* buffer) const {
  args.weight = factors.up;
  args.in_features = factors.rank;
  args.bias = nullptr;
  args.residual = args.y;
  if (by_tiles && segment_rows >= kXTileRows) {
    prepare_tiles({.x = t,
                   .x_stride = t_stride,
                   .cols = factors.rank,
                   .row_begin = 0,
                   .row_end = args.rows,
                   .col_begin = 0,
                   .col_end = factors.rank,
                   .out = buffer});
    args.x = buffer;
    by_tiles(args);
  } else {
    args.x = t;
    args.x_stride = t_stride;
    by_rows(args);
  }
}

Status LinearAdapters::lower(LowerContext& c, std::vector<Matrix> matrices, const ActivationLayouts& layouts,
                             LoweredStage& stage) {
  matrices_ = std::move(matrices);
  layouts_ = layouts;
  auto shrink = std::make_shared<AdapterShrink>();
  int64_t max_rank = 0;
  for (const Matrix& matrix : matrices_) {
    // Two halves of one matrix share its x down^T.
    const auto known = std::find_if(shrink->groups.begin(), shrink->groups.end(),
                                    [&](const AdapterShrink::Group& group) { return group.site == matrix.site; });
    const bool is_new = matrix.site != nullptr && known == shrink->groups.end();
    t_begin_.push_back(known != shrink->groups.end() ? known->t_begin : t_cols_);
    if (!is_new) continue;
    shrink->groups.push_back({matrix.site, t_cols_});
    t_cols_ += matrix.site->max_rank;
    max_rank = std::max(max_rank, matrix.site->max_rank);
  }
  if (shrink->groups.empty()) return {};

  const CpuKernels& table = c.kernels();
  const bool exact = c.options().exact_f32;
  // A type whose kernels read x as the op does, so that x is prepared once.
  const std::optional<DType> down_type = weight_type_reading(table, layouts, exact);
  if (!down_type) return unsupported("no kernels for adapters whose x is as this product reads it");
  for (int i = 0; i < kNumActivationLayouts; ++i)
    shrink->down[i] = linear_kernel(table, *down_type, static_cast<ActivationLayout>(i));
  expand_ = AdapterExpand::choose(table, exact);
  for (const AdapterShrink::Group& group : shrink->groups) {
    group.site->down_type = *down_type;
    group.site->up_type = expand_.type;
  }
  const ValueId x = c.op().inputs[0];
  shrink->t_cols = t_cols_;
  shrink->in_features = c.graph().value(x).shape[1].constant();
  shrink->tasks = c.workers();
  shrink->rows = c.graph().value(x).shape[0];
  shrink->layouts = layouts;
  const ValueId t = c.add_temporary(c.op().name + ".shrink", {shrink->rows, Dim(t_cols_)});

  auto first = LoweredStage::make<run_shrink>(TaskGrid::work_partitions(c.workers(), t_cols_), shrink);
  first.name = c.op().name + ".shrink";
  first.read(shrink->x, x, Reads::kAll);
  first.write(shrink->t, t);
  first.buffer_bytes = (kShrinkRows + kXTileRows) * kShrinkCols * int64_t{sizeof(float)};
  c.add_stage(std::move(first));

  for (const AdapterShrink::Group& group : shrink->groups) {
    shrink->factors += static_cast<double>(group.site->out_features);
    shrink->matrices += static_cast<double>(group.site->out_features * group.site->in_features);
  }
  choose_prefetching_product(shrink, c.last_adapters());
  shrink->before = c.last_adapters();
  c.last_adapters() = shrink_ = shrink;
  stage.read(t_, t, Reads::kAll);
  buffer_at_ = (stage.buffer_bytes + 63) / 64 * 64;
  stage.buffer_bytes = buffer_at_ + expand_.buffer_bytes(kExpandRows, max_rank);
  return {};
}

bool LinearAdapters::active(const StepContext& step) const {
  return !step.adapters.empty() && std::any_of(matrices_.begin(), matrices_.end(), [&](const Matrix& matrix) {
    return is_adapted(step.adapters, matrix.site.get(), step.sizes);
  });
}

void LinearAdapters::prefetch(const StepContext& step, size_t matrix, const LinearArgs& args, int64_t first_row,
                              int64_t rows, Share share, Prefetch& result) const {
  result.list.count = 0;
  if (step.adapters.empty() || matrices_[matrix].site == nullptr) return;
  if (layouts_.for_rows(rows) != ActivationLayout::kI8Grouped) return;
  const AdapterSite& site = *matrices_[matrix].site;
  const int64_t first_feature = matrices_[matrix].first_feature;
  int64_t total = 0;
  result.list.pieces = result.pieces.data();
  const auto add_piece = [&](const void* data, int64_t begin, int64_t bytes) {
    total += bytes;
    if (result.list.count == Prefetch::kMaxPieces || total > Prefetch::kMaxBytes) return;
    result.pieces[static_cast<size_t>(result.list.count++)] = {static_cast<const uint8_t*>(data) + begin, bytes};
  };
  for_adapted_rows(step.adapters, site, step.sizes, first_row, first_row + args.rows, [&](const AdaptedRows& adapted) {
    for (const WeightedAdapter& each : adapted.adapters) {
      const AdapterFactors* factors = factors_at(each, site);
      if (factors == nullptr) continue;
      const int64_t begin = expand_.up_bytes(args.n_begin + first_feature, factors->rank);
      add_piece(factors->up, begin, expand_.up_bytes(args.n_end + first_feature, factors->rank) - begin);
    }
  });
  for (const std::shared_ptr<const AdapterShrink>& other : shrink_->others) {
    if (share.count < other->tasks) continue;
    // Tiles are dealt to the workers in blocks, and so are the parts of a shrink stage, a task each.
    const int64_t task = share.index * other->tasks / share.count,
                  begin = (task * share.count + other->tasks - 1) / other->tasks,
                  end = ((task + 1) * share.count + other->tasks - 1) / other->tasks;
    // What the first half of a worker's products would prefetch leaves its L2 cache before it is read.
    const int64_t first = begin + (end - begin) / 2;
    if (share.index < first) continue;
    for_shrink_parts(*other, step,
                     [&](const AdapterShrink::Group& group, const ShrinkPart& part, int64_t of, int64_t n) {
                       if (of != task || n % (end - first) != share.index - first) return;
                       const int64_t width = std::min(kShrinkCols, part.factors->rank - part.n);
                       add_piece(part_factors(*other, group, part), 0,
                                 packed_bytes(group.site->down_type, width, other->in_features));
                     });
  }
}

void LinearAdapters::multiply(void (*kernel)(const LinearArgs&), LinearArgs args, const StepContext& step,
                              size_t matrix, int64_t first_row, int64_t rows, Share share,
                              WorkerContext& worker) const {
  Prefetch factors;
  prefetch(step, matrix, args, first_row, rows, share, factors);
  if (factors.list.count > 0) args.end = &factors.list;
  kernel(args);
  add(step, matrix, args, first_row, worker);
}

void LinearAdapters::add(const StepContext& step, size_t matrix, const LinearArgs& args, int64_t first_row,
                         WorkerContext& worker) const {
  if (step.adapters.empty() || matrices_[matrix].site == nullptr) return;
  const AdapterSite& site = *matrices_[matrix].site;
  const int64_t first_feature = matrices_[matrix].first_feature;
  LinearArgs part = args;
  part.out_features = site.out_features;
  part.n_begin += first_feature;
  part.n_end += first_feature;
  part.end = nullptr;
  if (part.gate) part.gate -= first_feature;
  struct Up {
    const AdapterFactors* factors = nullptr;
    const float* products = nullptr;
    int64_t begin = 0, end = 0, segment_rows = 0;
  } next;  // prefetched
  const auto add_next = [&] {
    for (int64_t row = next.begin; row < next.end; row += kExpandRows) {
      part.rows = std::min(kExpandRows, next.end - row);
      part.y = args.y + (row - first_row) * args.y_stride - first_feature;
      expand_.add(part, *next.factors, next.products + row * t_cols_, t_cols_, next.segment_rows,
                  static_cast<uint8_t*>(worker.buffer) + buffer_at_);
    }
  };
  for_adapted_rows(step.adapters, site, step.sizes, first_row, first_row + args.rows, [&](const AdaptedRows& adapted) {
    const float* products = t_ + t_begin_[matrix];
    for (const WeightedAdapter& each : adapted.adapters) {
      const AdapterFactors* factors = factors_at(each, site);
      if (factors == nullptr) continue;
      prefetch_first(static_cast<const uint8_t*>(factors->up) + expand_.up_bytes(part.n_begin, factors->rank),
                     expand_.up_bytes(part.n_end - part.n_begin, factors->rank));
      if (next.factors) add_next();
      next = {factors, products, adapted.begin, adapted.end, adapted.segment_rows};
      products += factors->rank;
    }
  });
  if (next.factors) add_next();
}

}  // namespace redline
