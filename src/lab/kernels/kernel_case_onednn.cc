// onednn: matrix products y = x W^T by oneDNN, measured like our own kernels: every worker computes its columns on its
// own thread, and weights are in oneDNN's preferred layout.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "lab/kernels/kernel_case_product.h"
#include "lab/kernels/onednn_matmul.h"

namespace redline::lab {
namespace {

class OneDnnCase : public ProductCase {
 public:
  OneDnnCase(const OneDnnModule& module, DType type, int64_t rows, int64_t n, int64_t k, int workers)
      : ProductCase(type, rows, n, k), module_(module), element_bytes_(type == DType::kF32    ? 4
                                                                       : type == DType::kBF16 ? 2
                                                                                              : 1),
        has_row_scales_(dtype_info(type).row_bytes > 0), scales_(static_cast<size_t>(n)),
        parts_(static_cast<size_t>(workers)) {
    for (int w = 0; w < workers; ++w) {
      parts_[static_cast<size_t>(w)].begin = n * w / workers;
      parts_[static_cast<size_t>(w)].end = n * (w + 1) / workers;
    }
  }
  OneDnnCase(const OneDnnCase&) = delete;
  OneDnnCase& operator=(const OneDnnCase&) = delete;
  ~OneDnnCase() override { release(); }

  /// Makes the primitives. Returns unsupported with oneDNN's own message. Scales are part of the primitives, so both
  /// change with the inputs.
  Status make_products() {
    release();
    slot_bytes_ = 0;
    for (Part& part : parts_) {
      if (part.begin == part.end) continue;
      char reason[256] = "";
      part.product = module_.make(
          {rows_, part.end - part.begin, k_, n_, has_row_scales_ ? DType::kI8 : type_, scales_.data() + part.begin},
          reason, sizeof reason);
      if (part.product == nullptr) return unsupported("oneDNN {}: {}", module_.version, reason);
      part.at = slot_bytes_;
      slot_bytes_ += (module_.weight_bytes(part.product) + 63) / 64 * 64;
    }
    return {};
  }

  Cost cost() const override {
    const auto m = static_cast<double>(rows_), n = static_cast<double>(n_), k = static_cast<double>(k_);
    const auto weight = static_cast<double>(slot_bytes_);
    const char* const peak = type_ == DType::kF32 ? "f32" : type_ == DType::kBF16 ? "bf16 f16" : "int8";
    return {weight + m * k * element_bytes_ + m * n * 4, weight, 2 * m * n * k, peak};
  }
  int64_t slot_bytes() const override { return slot_bytes_; }

  Status allocate(int64_t slots, int64_t outputs, bool cached) override {
    REDLINE_TRY(weights_.allocate("a weight", slots, slot_bytes_, cached));
    const int64_t x_bytes = rows_ * k_ * element_bytes_;
    rounded_ = map_bytes(kInputVariants * x_bytes);
    if (rounded_ == nullptr) return out_of_memory("{} inputs of {} bytes", kInputVariants, x_bytes);
    return allocate_outputs(outputs);
  }

  void fill(uint64_t seed) override {
    fill_inputs(seed);
    round_x();
    const auto* rows = static_cast<const uint8_t*>(matrix_->view().data);
    const int64_t row_bytes = k_ * element_bytes_, stored_bytes = redline::row_bytes(type_, k_);
    std::vector<uint8_t> plain(static_cast<size_t>(n_ * row_bytes));
    for (int64_t n = 0; n < n_; ++n) {
      std::memcpy(plain.data() + n * row_bytes, rows + n * stored_bytes, static_cast<size_t>(row_bytes));
      if (!has_row_scales_) continue;
      float scale;
      std::memcpy(&scale, rows + n * stored_bytes + row_bytes, sizeof scale);
      scales_[static_cast<size_t>(n)] = scale * unit_;
    }
    is_made_ = make_products().ok();
    if (!is_made_) return;  // the check then detects the missing output
    for (const Part& part : parts_)
      if (part.product != nullptr)
        module_.pack(part.product, plain.data() + part.begin * row_bytes, weights_.first() + part.at);
    weights_.copy_to_variants();
  }
  void spread() override { weights_.copy_to_all(); }

  void run(const KernelRun& run) const override {
    const Part& part = parts_[static_cast<size_t>(run.worker)];
    if (!is_made_ || part.product == nullptr) return;
    const uint8_t* x = rounded_.get() + run.slot % kInputVariants * rows_ * k_ * element_bytes_;
    const uint8_t* weight = weights_.of(run.slot) + part.at;
    module_.run(part.product, x, weight, reinterpret_cast<float*>(output(run.output)) + part.begin);
  }

 protected:
  std::vector<double> moves(const float*) const override {
    return std::vector<double>(static_cast<size_t>(k_), has_row_scales_ ? double{unit_} / 2 : 0.0);
  }
  double error_bound(const ProductSums& sums) const override {
    // Sums of int8 products are exact; the result is scaled, and x was rounded. Other types are accumulated in an
    // unspecified order, and x is rounded to the type.
    const auto k = static_cast<double>(k_);
    if (has_row_scales_) return sums.moved * (1 + 0x1p-14) + 8 * 0x1p-24 * sums.parts;
    return sums.products * ((type_ == DType::kBF16 ? 0x1p-8 : 0) + (k + 4) * 0x1p-24 * 1.01);
  }

 private:
  struct Part {
    int64_t begin = 0, end = 0;  ///< range of columns of y
    int64_t at = 0;              ///< offset of its weight in a slot
    void* product = nullptr;
  };

  void release() {
    for (Part& part : parts_)
      if (part.product != nullptr) module_.destroy(std::exchange(part.product, nullptr));
  }
  /// oneDNN 2 supports a single scale for all of x.
  void round_x() {
    float largest = 0;
    for (const float x : x_) largest = std::max(largest, std::abs(x));
    unit_ = largest / 127;
    for (size_t i = 0; i < x_.size(); ++i) {
      if (type_ == DType::kF32) reinterpret_cast<float*>(rounded_.get())[i] = x_[i];
      else if (type_ == DType::kBF16) reinterpret_cast<uint16_t*>(rounded_.get())[i] = f32_to_bf16(x_[i]);
      else reinterpret_cast<int8_t*>(rounded_.get())[i] = static_cast<int8_t>(std::lrintf(x_[i] / unit_));
    }
  }

  const OneDnnModule& module_;
  int64_t element_bytes_, slot_bytes_ = 0;
  bool has_row_scales_;
  std::vector<float> scales_;
  std::vector<Part> parts_;
  float unit_ = 1;
  bool is_made_ = false;
  SlotCopies weights_;
  std::shared_ptr<uint8_t> rounded_;
};

}  // namespace

std::vector<DType> onednn_types() {
  std::vector<DType> types = {DType::kF32, DType::kBF16};
  for (int i = 0; i < kNumDTypes; ++i)
    if (const auto type = static_cast<DType>(i); dtype_info(type).row_bytes > 0) types.push_back(type);
  return types;
}

Result<std::unique_ptr<KernelCase>> make_onednn_case(const KernelWorkload& workload) {
  if (workload.kernel != "onednn") return std::unique_ptr<KernelCase>();
  REDLINE_ASSIGN(const DType type, dtype_from_name(workload.type));
  if (const std::vector<DType> types = onednn_types(); std::find(types.begin(), types.end(), type) == types.end()) {
    std::vector<std::string_view> names;
    for (const DType known : types) names.push_back(dtype_info(known).name);
    return unsupported("oneDNN multiplies {} here, not \"{}\"", fmt::join(names, ", "), workload.type);
  }
  const int64_t n = workload.shape[0], k = workload.shape[1], block = dtype_info(type).block_elements;
  if (k % block != 0) return invalid_argument("K {} is not a multiple of {}", k, block);
  REDLINE_ASSIGN(const OneDnnModule* const module, onednn_module());
  auto made = std::make_unique<OneDnnCase>(*module, type, workload.rows, n, k, workload.threads);
  REDLINE_TRY(made->make_products());
  return std::unique_ptr<KernelCase>(std::move(made));
}

}  // namespace redline::lab
