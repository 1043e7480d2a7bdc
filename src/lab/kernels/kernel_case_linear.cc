// linear, linear_q8, linear_tiles, linear_i8 and prepare_x: matrix products with a packed weight, and the activation
// layouts.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/linear/linear_choice.h"
#include "lab/kernels/kernel_case_product.h"
#include "tensor/packed_weight.h"

namespace redline::lab {
namespace {

constexpr int64_t line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// Returns an upper bound of the rounding error of each element of row `x` in this layout; zeros if the layout has no
/// shared scales.
std::vector<double> form_moves(ActivationLayout form, const float* x, int64_t k) {
  return form == ActivationLayout::kI8Tiled         ? code_moves(x, k, kI8Chunk, kI8Chunk, 0)
         : form == ActivationLayout::kI8TiledGroups ? code_moves(x, k, kI8Group, kI8Group, 0)  // finer steps move less
         : form == ActivationLayout::kI8Grouped     ? code_moves(x, k, kQ8Group, kQ8Step, kQ8MaxShift)
                                                    : std::vector<double>(static_cast<size_t>(k));
}

/// Returns the error bound of one element, derived in tests/kernels/linear_test.cc and linear_tiles_test.cc.
double form_error_bound(ActivationLayout form, DType type, int64_t k, const ProductSums& e) {
  const auto n = static_cast<double>(k);
  switch (form) {
    // Terms of even and odd k are accumulated separately, each with at most two roundings.
    case ActivationLayout::kF32: return (std::ceil(n / 2) + 4) * 0x1p-24 * 1.01 * e.products;
    // The error is the rounding of x and of scales, then of up to two sums per group of 16.
    case ActivationLayout::kI8Grouped:
      return e.moved * (1 + 0x1p-14) + e.w_moved + (n / 16 * 2 + 7) * 0x1p-24 * 1.01 * (e.parts + e.w_moved);
    // As kI8Grouped, per chunk, plus the weight's own scale.
    case ActivationLayout::kI8Tiled: return e.moved * (1 + 0x1p-14) + (n / kI8Chunk * 2 + 8) * 0x1p-24 * 1.01 * e.parts;
    // As kI8Grouped, for each 128 elements and each 256. The error of rounding w again is not counted, so the bound is
    // stricter than that of linear_requantized_test.
    case ActivationLayout::kI8TiledGroups:
      return e.moved * (1 + 0x1p-14) + e.w_moved + (n / kI8Group * 3 + 8) * 0x1p-24 * 1.01 * (e.parts + e.w_moved);
    // x and w are rounded to bfloat16, 2^-8 each unless they already are; one sum of 16, its reduction, and one sum per
    // 32 of K. A block may be unpacked in float16: three roundings to 11 bits.
    case ActivationLayout::kBf16Tiled: {
      const double w_rounding = type == DType::kBF16 ? 0 : 0x1p-8 + 0x1p-16;
      return e.products * (0x1p-8 + w_rounding * (1 + 0x1p-8)) +
             e.parts * (dtype_info(type).is_block ? 3 * 0x1p-11 * 1.01 : 0) +
             (std::ceil(n / 32) + 20) * 0x1p-24 * 1.01 * e.products * (1 + 0x1p-6) + n * 0x1p-120;
    }
  }
  return 0;
}

class LinearCase : public ProductCase {
 public:
  LinearCase(const CpuKernels& table, void (*fn)(const LinearArgs&), ActivationLayout form, DType type, int64_t rows,
             int64_t n, int64_t k)
      : ProductCase(type, rows, n, k), table_(table), fn_(fn), form_(form),
        weight_bytes_(line(packed_bytes(type, n, k))), x_bytes_(line(activation_layout_bytes(form, rows, k))) {}

  Cost cost() const override {
    const char* const peaks[] = {"f32", "int8", "bf16 f16", "int8", "int8"};
    const int64_t weight = packed_bytes(type_, n_, k_);
    return {static_cast<double>(weight + activation_layout_bytes(form_, rows_, k_) + rows_ * n_ * 4),
            static_cast<double>(weight),
            2.0 * static_cast<double>(rows_) * static_cast<double>(n_) * static_cast<double>(k_),
            peaks[static_cast<int>(form_)]};
  }
  int64_t slot_bytes() const override { return weight_bytes_; }

  Status allocate(int64_t slots, int64_t outputs, bool cached) override {
    REDLINE_TRY(weights_.allocate("a weight", slots, weight_bytes_, cached));
    prepared_ = map_bytes(x_bytes_ * kInputVariants);
    if (prepared_ == nullptr) return out_of_memory("{} inputs of {} bytes", kInputVariants, x_bytes_);
    return allocate_outputs(outputs);
  }

  void fill(uint64_t seed) override {
    fill_inputs(seed);
    pack_row_panels(matrix_->view(), 0, (n_ + kRowPanelRows - 1) / kRowPanelRows, weights_.first());
    weights_.copy_to_variants();
    for (int64_t v = 0; v < kInputVariants; ++v) {
      const float* x = x_.data() + v * rows_ * k_;
      uint8_t* out = prepared_.get() + v * x_bytes_;
      if (form_ == ActivationLayout::kF32) std::memcpy(out, x, static_cast<size_t>(rows_ * k_ * 4));
      else table_.prepare_x[static_cast<int>(form_)]({x, k_, k_, 0, rows_, 0, k_, out});
    }
  }

  void spread() override { weights_.copy_to_all(); }

  void run(const KernelRun& run) const override {
    const int64_t row_panels = (n_ + kRowPanelRows - 1) / kRowPanelRows;
    LinearArgs a = {};
    a.x = prepared_.get() + run.slot % kInputVariants * x_bytes_;
    a.x_stride = k_;
    a.rows = rows_;
    a.weight = weights_.of(run.slot);
    a.out_features = n_;
    a.in_features = k_;
    a.n_begin = row_panels * run.worker / run.workers * kRowPanelRows;
    a.n_end = std::min(n_, row_panels * (run.worker + 1) / run.workers * kRowPanelRows);
    a.y = reinterpret_cast<float*>(output(run.output));
    a.y_stride = n_;
    a.scratch = run.scratch;
    if (a.n_begin < a.n_end) fn_(a);
  }

  std::vector<double> moves(const float* x) const override { return form_moves(form_, x, k_); }
  double error_bound(const ProductSums& sums) const override { return form_error_bound(form_, type_, k_, sums); }

 private:
  const CpuKernels& table_;
  void (*fn_)(const LinearArgs&);
  ActivationLayout form_;
  int64_t weight_bytes_, x_bytes_;
  SlotCopies weights_;
  std::shared_ptr<uint8_t> prepared_;
};

class PrepareCase : public KernelCase {
 public:
  PrepareCase(void (*fn)(const PrepareXArgs&), ActivationLayout form, int64_t rows, int64_t k)
      : fn_(fn), form_(form), rows_(rows), k_(k), x_bytes_(line(rows * k * 4)) {}
  Cost cost() const override {
    const auto x = static_cast<double>(rows_ * k_ * 4);
    return {x + static_cast<double>(activation_layout_bytes(form_, rows_, k_)), x, 0, ""};
  }
  int64_t slot_bytes() const override { return x_bytes_; }
  int64_t output_bytes() const override { return activation_layout_bytes(form_, rows_, k_); }
  Status allocate(int64_t slots, int64_t outputs, bool) override {
    slots_ = slots;
    x_ = map_bytes(x_bytes_ * slots);
    if (x_ == nullptr) return out_of_memory("{} inputs of {} bytes", slots, x_bytes_);
    return allocate_outputs(outputs);
  }
  void fill(uint64_t seed) override {
    for (int64_t v = 0; v < kInputVariants; ++v) {
      uint64_t state = seed + static_cast<uint64_t>(v) * 0x51ed27;
      for (int64_t i = 0; i < rows_ * k_; ++i) at(v)[i] = random_normal(state);
    }
  }
  void spread() override {
    for (int64_t s = kInputVariants; s < slots_; ++s)
      std::memcpy(at(s), at(s % kInputVariants), static_cast<size_t>(rows_ * k_ * 4));
  }
  void run(const KernelRun& run) const override {
    // Workers split the columns, because tiles of rows are shared.
    const int64_t grain = activation_layout_grain(form_), cuts = (k_ + grain - 1) / grain,
                  begin = std::min(k_, cuts * run.worker / run.workers * grain),
                  end = std::min(k_, cuts * (run.worker + 1) / run.workers * grain);
    if (begin < end) fn_({at(run.slot) + begin, k_, k_, 0, rows_, begin, end, output(run.output)});
  }
  KernelCheck check(int64_t slot, int64_t output_index, uint64_t) const override {
    KernelCheck result;
    for (int64_t m = 0; m < rows_; ++m) {
      const float* x = at(slot) + m * k_;
      const std::vector<double> moves = form_moves(form_, x, k_);
      for (int64_t i = 0; i < k_; ++i) {
        const double move = moves[static_cast<size_t>(i)];
        // In the layouts of codes, the scale and its reciprocal are rounded too. In kBf16Tiled, x is rounded to
        // bfloat16.
        const double bound = form_ != ActivationLayout::kBf16Tiled
                                 ? move * (1 + 0x1p-14) + std::abs(double{x[i]}) * 0x1p-22
                                 : std::abs(double{x[i]}) * 0x1p-8;
        result.add(std::abs(value(output(output_index), m, i) - double{x[i]}), bound);
      }
    }
    return result;
  }

 private:
  float* at(int64_t slot) const { return reinterpret_cast<float*>(x_.get() + slot * x_bytes_); }
  /// Returns the stored value of x[m, i].
  double value(const uint8_t* out, int64_t m, int64_t i) const {
    if (form_ == ActivationLayout::kI8Grouped) {
      const uint8_t* row = out + m * q8_row_bytes(k_);
      Q8Numbers numbers;
      std::memcpy(&numbers, row + q8_numbers_at(k_) + i / kQ8Group * int64_t{sizeof(Q8Numbers)}, sizeof(numbers));
      const int step = 1 << numbers.shifts[i % kQ8Group / kQ8Step];
      return double{numbers.scale} * step * static_cast<int8_t>(row[i]);
    }
    if (form_ == ActivationLayout::kI8Tiled || form_ == ActivationLayout::kI8TiledGroups) {
      const int64_t group = form_ == ActivationLayout::kI8Tiled ? kI8Chunk : kI8Group;
      const uint8_t* panel = out + m / kXTileRows * i8_panel_bytes(k_, group);
      const uint8_t* numbers = panel + i8_scales_at(k_) + i / group * kI8ChunkScaleBytes + m % kXTileRows * 4;
      float scale;
      int32_t start = 0;
      std::memcpy(&scale, numbers, 4);
      if (form_ == ActivationLayout::kI8TiledGroups) std::memcpy(&start, numbers + kI8ChunkScaleBytes / 2, 4);
      scale /= static_cast<float>(1 << i8_shift(start, i % group / kQ8Step));
      const uint8_t code =
          panel[i / kI8TileColumns * kXTileRows * kXTileBytes + m % kXTileRows * kXTileBytes + i % kI8TileColumns];
      return double{scale} * static_cast<int8_t>(code);
    }
    const int64_t tile = m / kXTileRows * tiles_panel_bytes(k_) + i / 32 * kXTileRows * kXTileBytes;
    uint16_t bits;
    std::memcpy(&bits, out + tile + m % kXTileRows * kXTileBytes + i % 32 * 2, 2);
    return double{bf16_to_f32(bits)};
  }
  void (*fn_)(const PrepareXArgs&);
  ActivationLayout form_;
  int64_t rows_, k_, x_bytes_, slots_ = 0;
  std::shared_ptr<uint8_t> x_;
};

}  // namespace

Result<std::unique_ptr<KernelCase>> make_linear_case(const KernelWorkload& workload, const CpuKernels& table) {
  if (workload.kernel == "prepare_x") {
    for (int f = 0; f < kNumActivationLayouts; ++f) {
      const auto form = static_cast<ActivationLayout>(f);
      if (workload.type != activation_layout_name(form) || form == ActivationLayout::kF32) continue;
      if (table.prepare_x[f] == nullptr) return unsupported("this instruction set has no prepare_x.{}", workload.type);
      const bool has_steps = form == ActivationLayout::kI8Grouped || form == ActivationLayout::kI8TiledGroups;
      if (has_steps && workload.shape[0] % kQ8Step != 0)
        return invalid_argument("prepare_x.{}: K {} is not a multiple of {}", workload.type, workload.shape[0],
                                kQ8Step);
      return std::unique_ptr<KernelCase>(
          std::make_unique<PrepareCase>(table.prepare_x[f], form, workload.rows, workload.shape[0]));
    }
    return invalid_argument("prepare_x has no form \"{}\"; it makes q8, tiles, i8 and i8_groups", workload.type);
  }
  constexpr std::pair<std::string_view, ActivationLayout> kKernels[] = {
      {"linear", ActivationLayout::kF32},
      {"linear_q8", ActivationLayout::kI8Grouped},
      {"linear_tiles", ActivationLayout::kBf16Tiled},
      {"linear_i8", ActivationLayout::kI8Tiled},
      {"linear_requantized", ActivationLayout::kI8TiledGroups},
  };
  const auto* const kernel = std::find_if(std::begin(kKernels), std::end(kKernels),
                                          [&](const auto& each) { return each.first == workload.kernel; });
  if (kernel == std::end(kKernels)) return std::unique_ptr<KernelCase>();
  REDLINE_ASSIGN(const DType type, dtype_from_name(workload.type));
  if (type == DType::kI8) return unsupported("linear.i8 multiplies up matrices of adapters, which have no bench");
  const int64_t block = dtype_info(type).block_elements, n = workload.shape[0], k = workload.shape[1];
  if (k % block != 0) return invalid_argument("K {} is not a multiple of {}'s block of {}", k, workload.type, block);
  const ActivationLayout form = kernel->second;
  void (*fn)(const LinearArgs&) = linear_kernel(table, type, form);
  if (fn == nullptr) return unsupported("this instruction set has no kernel {}", kernel_entry_name(workload));
  return std::unique_ptr<KernelCase>(std::make_unique<LinearCase>(table, fn, form, type, workload.rows, n, k));
}

}  // namespace redline::lab
