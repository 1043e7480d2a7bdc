#include "backends/cpu/linear_adapters.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <optional>

namespace redline {

namespace {

// Rows and columns of t that are computed at a time. Both kernels and panels of x begin at multiples of them.
constexpr int64_t kShrinkRows = 256, kShrinkCols = 2 * kRowPanelRows;
constexpr int64_t kFewRows = 2;
constexpr int64_t kShrinkBytes = (kShrinkRows + kXTileRows) * kShrinkCols * int64_t{sizeof(float)};

// Number of rows of t = x down^T that are prepared for the tile kernel at a time.
constexpr int64_t kExpandRows = 1024;

// Number of shares of x down^T for each worker. A worker without shares left takes one of another worker.
constexpr int kSharesPerWorker = 4;

// Number of times that a worker that shares its core yields before it sleeps while another worker computes a share.
// Such waits are short unless the other worker has lost its core.
constexpr int kShareYields = 64;

// Bytes of a row panel that are prefetched while the factors before it are multiplied: kernels prefetch this far ahead
// themselves, but do not have the address of the next adapter's factors.
constexpr int64_t kPrefetchBytes = 2048;

void prefetch_first(const void* data, int64_t bytes) {
  for (int64_t at = 0; at < std::min(bytes, kPrefetchBytes); at += 64)
    __builtin_prefetch(static_cast<const uint8_t*>(data) + at);
}

}  // namespace

/// Computes t = x down^T for all matrices of one op. The tasks of the op share the work.
struct AdapterShrink {
  /// An adapter of some rows at a site; its columns of t begin at t_begin.
  struct Up {
    AdapterFactors factors;
    int64_t t_begin, begin, end, segment_rows;
    float scale;  ///< scale of the factors times that of the adapter
  };
  struct Group {
    std::shared_ptr<AdapterSite> site;
    int64_t t_begin;      // first column of the site in t
    std::vector<Up> ups;  // adapters of the step at the site
  };
  /// Rows [begin, end) and columns [n, n + width) of one adapter's x down^T.
  struct Part {
    const uint8_t* down;
    int64_t down_bytes, begin, end, n, width, t_begin;
    float scale;
  };
  std::vector<Group> groups;
  int64_t t_cols = 0, in_features = 0;
  int workers = 1;
  Dim rows = 1;
  ActivationLayouts layouts;                                    // layouts of x
  void (*down[kNumActivationLayouts])(const LinearArgs&) = {};  // kernel for each layout of x
  void (*down_few)(const LinearArgs&) = nullptr;                // kernel for up to kFewRows in kI8Grouped, or nullptr
  Operand<const uint8_t> x;
  Operand<float> t;
  ActivationLayout layout = ActivationLayout::kF32;  // layout of x in this step
  std::vector<Part> parts;                           // parts of this step; part i is in share i % num_shares()
  // [shares] 2 s if step s was the last in which a worker took the share, 2 s + 1 once it is computed.
  std::unique_ptr<std::atomic<uint64_t>[]> taken;

  int num_shares() const { return workers * kSharesPerWorker; }
  /// Returns the number of shares that have parts; they are the first ones.
  int num_filled() const { return static_cast<int>(std::min<size_t>(parts.size(), static_cast<size_t>(num_shares()))); }
  /// Returns the number of the i-th share of a worker. The order spreads a few parts over the workers.
  int share_of(int worker, int i) const { return i * workers + worker; }
  bool is_open(int share, const WorkerContext& worker) const {
    return taken[static_cast<size_t>(share)].load(std::memory_order_relaxed) < 2 * worker.step;
  }
  /// Calls body(part) for each part of a share.
  template <class Body>
  void for_parts(int share, const Body& body) const {
    for (auto i = static_cast<size_t>(share); i < parts.size(); i += static_cast<size_t>(num_shares())) body(parts[i]);
  }
  void begin_step(const StepContext& step);
  void compute(const Part& part, float* products, WorkerContext& worker) const;
  void compute(int share, float* products, WorkerContext& worker) const;
  /// Computes a share unless another task has taken it. `products`: kShrinkBytes.
  void take(int share, float* products, WorkerContext& worker) const;
  /// Returns true when t is complete.
  bool is_finished(const WorkerContext& worker) const;
  /// Waits until t is complete; computes shares that are left.
  void finish(float* products, WorkerContext& worker) const;
};

// Collects the factors of the step's adapters once for all tasks of the op, because each lookup reads other cache
// lines.
void AdapterShrink::begin_step(const StepContext& step) {
  const int64_t num_rows = rows.eval(step.sizes);
  layout = layouts.for_rows(num_rows);
  parts.clear();
  for (Group& group : groups) {
    group.ups.clear();
    const DType type = group.site->down_type;
    for_adapted_rows(step.adapters, *group.site, step.sizes, 0, num_rows, [&](const AdaptedRows& adapted) {
      int64_t rank = 0;
      for (const WeightedAdapter& each : adapted.adapters) {
        const AdapterFactors* factors = factors_at(each, *group.site);
        if (factors == nullptr) continue;
        REDLINE_CHECK(rank + factors->rank <= group.site->max_rank);
        const int64_t t_begin = group.t_begin + rank;
        const float scale = factors->scale * each.weight;
        group.ups.push_back({*factors, t_begin, adapted.begin, adapted.end, adapted.segment_rows, scale});
        for (int64_t begin = adapted.begin, end; begin < adapted.end; begin = end) {
          end = std::min(adapted.end, (begin / kShrinkRows + 1) * kShrinkRows);
          for (int64_t n = 0; n < factors->rank; n += kShrinkCols) {
            const int64_t width = std::min(kShrinkCols, factors->rank - n);
            parts.push_back({static_cast<const uint8_t*>(factors->down), packed_bytes(type, width, in_features), begin,
                             end, n, width, t_begin, scale});
            parts.back().down += packed_bytes(type, n, in_features);
          }
        }
        rank += factors->rank;
      }
    });
  }
}

void AdapterShrink::compute(const Part& part, float* products, WorkerContext& worker) const {
  // Rows before `begin` in its panel belong to another segment: their results are dropped.
  const int64_t first = part.begin / activation_layout_panel(layout) * activation_layout_panel(layout);
  LinearArgs args = {};
  args.x = x + activation_layout_bytes(layout, first, in_features);
  args.x_stride = args.in_features = in_features;
  args.rows = part.end - first;
  args.weight = part.down;
  args.out_features = args.n_end = part.width;
  float* const out = t + part.begin * t_cols + part.t_begin + part.n;
  const bool is_direct = first == part.begin;
  args.y = is_direct ? out : products;
  args.y_stride = is_direct ? t_cols : part.width;
  float scale[kShrinkCols];
  std::fill_n(scale, part.width, part.scale);
  args.gate = scale;
  args.scratch = worker.scratch;
  const bool is_few = down_few && layout == ActivationLayout::kI8Grouped && args.rows <= kFewRows;
  (is_few ? down_few : down[static_cast<int>(layout)])(args);
  for (int64_t row = part.begin; row < part.end && !is_direct; ++row)
    std::copy_n(products + (row - first) * part.width, part.width, out + (row - part.begin) * t_cols);
}

void AdapterShrink::compute(int share, float* products, WorkerContext& worker) const {
  const Part* next = nullptr;  // prefetched
  for_parts(share, [&](const Part& part) {
    prefetch_first(part.down, part.down_bytes);
    if (next) compute(*next, products, worker);
    next = &part;
  });
  if (next) compute(*next, products, worker);
}

void AdapterShrink::take(int share, float* products, WorkerContext& worker) const {
  const uint64_t begun = 2 * worker.step;
  std::atomic<uint64_t>& state = taken[static_cast<size_t>(share)];
  uint64_t before = state.load(std::memory_order_relaxed);
  if (before >= begun || !state.compare_exchange_strong(before, begun, std::memory_order_relaxed)) return;
  compute(share, products, worker);
  state.store(begun + 1, std::memory_order_release);
}

bool AdapterShrink::is_finished(const WorkerContext& worker) const {
  for (int share = 0; share < num_filled(); ++share)
    if (taken[static_cast<size_t>(share)].load(std::memory_order_acquire) != 2 * worker.step + 1) return false;
  return true;
}

void AdapterShrink::finish(float* products, WorkerContext& worker) const {
  // A worker's own shares, which it has prefetched, come first.
  for (int i = 0; i < num_shares(); ++i) {
    const int share = share_of((worker.worker + i / kSharesPerWorker) % workers, i % kSharesPerWorker);
    if (share < num_filled()) take(share, products, worker);
  }
  // The shares of others are being computed: none of these workers waits for anything meanwhile.
  for (int look = 0; !is_finished(worker); ++look)
    if (look >= (worker.shares_core ? kShareYields : kWaitSpins)) nanosleep(&kWaitNap, nullptr);
    else if (worker.shares_core) sched_yield();
    else spin_pause();
}

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

void AdapterExpand::add_bias(const LinearArgs& args, const AdapterFactors& factors, float scale) {
  if (factors.bias == nullptr) return;
  for (int64_t row = 0; row < args.rows; ++row)
    for (int64_t n = args.n_begin; n < args.n_end; ++n)
      args.y[row * args.y_stride + n] += scale * (args.gate ? args.gate[n] : 1) * factors.bias[n];
}

Status LinearAdapters::lower(LowerContext& c, const std::vector<Matrix>& matrices, const ActivationLayouts& layouts,
                             LoweredStage& stage) {
  auto shrink = std::make_shared<AdapterShrink>();
  int64_t max_rank = 0;
  for (const Matrix& matrix : matrices) {
    // Two halves of one matrix share its x down^T.
    const auto known = std::find_if(shrink->groups.begin(), shrink->groups.end(),
                                    [&](const AdapterShrink::Group& group) { return group.site == matrix.site; });
    places_.push_back({static_cast<size_t>(known - shrink->groups.begin()), matrix.first_feature});
    if (!matrix.site) places_.back().group = kNoGroup;
    if (!matrix.site || known != shrink->groups.end()) continue;
    shrink->groups.push_back({matrix.site, shrink->t_cols, {}});
    shrink->t_cols += matrix.site->max_rank;
    max_rank = std::max(max_rank, matrix.site->max_rank);
  }
  if (shrink->groups.empty()) return {};

  const CpuKernels& table = c.kernels();
  const bool exact = c.options().exact_f32;
  // A type whose kernels read x as the op does, so that x is prepared once.
  const std::optional<DType> down_type = weight_type_reading(table, layouts, exact);
  if (!down_type) return unsupported("no kernel multiplies adapters with x in the layouts of this product");
  for (int i = 0; i < kNumActivationLayouts; ++i)
    shrink->down[i] = linear_kernel(table, *down_type, static_cast<ActivationLayout>(i));
  if (*down_type == DType::kQ8_0) shrink->down_few = table.linear_q8[static_cast<size_t>(DType::kI8)];
  expand_ = AdapterExpand::choose(table, exact);
  for (const AdapterShrink::Group& group : shrink->groups) {
    group.site->down_type = *down_type;
    group.site->up_type = expand_.type;
  }
  const ValueId x = c.op().inputs[0];
  shrink->in_features = c.graph().value(x).shape[1].constant();
  shrink->workers = c.workers();
  shrink->rows = c.graph().value(x).shape[0];
  shrink->layouts = layouts;
  shrink->taken = std::make_unique<std::atomic<uint64_t>[]>(static_cast<size_t>(shrink->num_shares()));
  c.before_steps([shrink](const StepContext& step) { shrink->begin_step(step); });
  // Any task may compute any row of t.
  stage.row_cuts = RowCuts::kNone;
  stage.read(shrink->x, x, Reads::kAll);
  stage.write(shrink->t, c.add_temporary(c.op().name + ".shrink", {shrink->rows, Dim(shrink->t_cols)}));
  buffer_at_ = (stage.buffer_bytes + 63) / 64 * 64;
  stage.buffer_bytes = buffer_at_ + std::max(kShrinkBytes, expand_.buffer_bytes(kExpandRows, max_rank));
  shrink_ = std::move(shrink);
  return {};
}

bool LinearAdapters::active(const StepContext& step) const {
  return shrink_ && !step.adapters.empty() && !shrink_->parts.empty();
}

/// The factors that a kernel prefetches, in the order in which later kernels read them.
struct LinearAdapters::Factors {
  static constexpr int64_t kMaxPieces = 128;
  std::array<LinearPrefetch::Piece, kMaxPieces> pieces;
  int64_t count = 0;

  void add(const void* data, int64_t size) {
    if (count < kMaxPieces) pieces[static_cast<size_t>(count++)] = {static_cast<const uint8_t*>(data), size};
  }
};

void LinearAdapters::add_ups(const Place& place, const LinearArgs& args, int64_t first_row, Factors& factors) const {
  for (const AdapterShrink::Up& up : shrink_->groups[place.group].ups) {
    if (up.end <= first_row || up.begin >= first_row + args.rows) continue;
    const int64_t begin = expand_.up_bytes(args.n_begin + place.first_feature, up.factors.rank);
    factors.add(static_cast<const uint8_t*>(up.factors.up) + begin,
                expand_.up_bytes(args.n_end + place.first_feature, up.factors.rank) - begin);
  }
}

void LinearAdapters::multiply(void (*kernel)(const LinearArgs&), LinearArgs args, const StepContext& step,
                              size_t matrix, int64_t first_row, WorkerContext& worker) const {
  const Place& place = places_[matrix];
  if (!active(step) || place.group == kNoGroup) return kernel(args);
  if (shrink_->layout != ActivationLayout::kI8Grouped) {
    kernel(args);
    return add(step, matrix, args, first_row, worker);
  }
  Factors factors;
  for (int i = 0; i < kSharesPerWorker; ++i)
    if (const int share = shrink_->share_of(worker.worker, i); shrink_->is_open(share, worker))
      shrink_->for_parts(share, [&](const AdapterShrink::Part& part) { factors.add(part.down, part.down_bytes); });
  add_ups(place, args, first_row, factors);
  LinearPrefetch list;
  list.pieces = factors.pieces.data();
  list.count = factors.count;
  if (list.count > 0) args.end = &list;
  kernel(args);
  add(step, matrix, args, first_row, worker);
}

void LinearAdapters::add(const StepContext& step, size_t matrix, const LinearArgs& args, int64_t first_row,
                         WorkerContext& worker) const {
  const Place& place = places_[matrix];
  if (!active(step) || place.group == kNoGroup) return;
  shrink_->finish(reinterpret_cast<float*>(static_cast<uint8_t*>(worker.buffer) + buffer_at_), worker);
  expand(place, args, first_row, worker);
}

void LinearAdapters::expand(const Place& place, const LinearArgs& args, int64_t first_row,
                            WorkerContext& worker) const {
  auto* const buffer = static_cast<uint8_t*>(worker.buffer) + buffer_at_;
  const AdapterShrink::Group& group = shrink_->groups[place.group];
  LinearArgs part = args;
  part.out_features = group.site->out_features;
  part.n_begin += place.first_feature;
  part.n_end += place.first_feature;
  part.end = nullptr;
  if (part.gate) part.gate -= place.first_feature;
  const auto add_up = [&](const AdapterShrink::Up& up) {
    const int64_t begin = std::max(up.begin, first_row), end = std::min(up.end, first_row + args.rows);
    for (int64_t row = begin; row < end; row += kExpandRows) {
      part.rows = std::min(kExpandRows, end - row);
      part.y = args.y + (row - first_row) * args.y_stride - place.first_feature;
      expand_.add(part, up.factors, shrink_->t + row * shrink_->t_cols + up.t_begin, shrink_->t_cols, up.segment_rows,
                  buffer);
      AdapterExpand::add_bias(part, up.factors, up.scale);
    }
  };
  const AdapterShrink::Up* next = nullptr;  // prefetched
  for (const AdapterShrink::Up& up : group.ups) {
    if (up.end <= first_row || up.begin >= first_row + args.rows) continue;
    prefetch_first(static_cast<const uint8_t*>(up.factors.up) + expand_.up_bytes(part.n_begin, up.factors.rank),
                   expand_.up_bytes(part.n_end - part.n_begin, up.factors.rank));
    if (next) add_up(*next);
    next = &up;
  }
  if (next) add_up(*next);
}

}  // namespace redline
