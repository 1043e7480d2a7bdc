// Kernels that make one pass over rows: norms, rope, elementwise ops, and embedding lookup.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>

#include "lab/kernels/kernel_case.h"
#include "lab/kernels/random_matrix.h"
#include "tensor/packed_weight.h"

namespace redline::lab {
namespace {

/// An op to measure. `inputs` float arrays of [rows, k] are consecutive in a slot.
struct RowOp {
  int inputs;
  float scale;  ///< standard deviation of the random inputs
  /// Computes rows [begin, end) of one run with the values that `constants` counts.
  std::function<void(const float* in, float* y, const std::vector<float>& constants, int64_t begin, int64_t end)> run;
  /// Returns the exact value of y[row, i] and the error bound of a float32 kernel.
  std::function<std::pair<double, double>(const float* in, const std::vector<float>& constants, int64_t row, int64_t i)>
      expect;
  int64_t constants = 0;  ///< number of float values shared by all rows: a norm's weight, cosines and sines
};

class RowCase : public SlotInputCase {
 public:
  RowCase(RowOp op, int64_t rows, int64_t k)
      : SlotInputCase(op.inputs * rows * k * 4), op_(std::move(op)), rows_(rows), k_(k) {}
  Cost cost() const override {
    const auto input = static_cast<double>(rows_ * k_ * 4);
    return {(op_.inputs + 1) * input, op_.inputs * input, 0, ""};
  }
  int64_t output_bytes() const override { return rows_ * k_ * 4; }
  void fill(uint64_t seed) override {
    uint64_t state = seed;
    constants_.resize(static_cast<size_t>(op_.constants));
    for (float& c : constants_) c = random_normal(state, 0.5f);
    for (int64_t v = 0; v < kInputVariants; ++v)
      for (int64_t i = 0; i < op_.inputs * rows_ * k_; ++i) inputs(v)[i] = random_normal(state, op_.scale);
  }
  void run(const KernelRun& run) const override {
    const int64_t begin = rows_ * run.worker / run.workers, end = rows_ * (run.worker + 1) / run.workers;
    if (begin < end) op_.run(inputs(run.slot), reinterpret_cast<float*>(output(run.output)), constants_, begin, end);
  }
  KernelCheck check(int64_t slot, int64_t output_index, uint64_t seed) const override {
    const auto* y = reinterpret_cast<const float*>(output(output_index));
    KernelCheck result;
    constexpr int64_t kRows = 64;
    uint64_t state = seed;
    for (int64_t j = 0; j < std::min(rows_, kRows); ++j) {
      const int64_t row = rows_ <= kRows ? j
                          : j == 0       ? rows_ - 1
                                         : static_cast<int64_t>(next_random(state) % static_cast<uint64_t>(rows_));
      for (int64_t i = 0; i < k_; ++i) {
        const auto [value, bound] = op_.expect(inputs(slot), constants_, row, i);
        result.add(std::abs(double{y[row * k_ + i]} - value), bound);
      }
    }
    for (int64_t i = 0; i < rows_ * k_; ++i)
      if (!std::isfinite(y[i])) result.of_bound = INFINITY;
    return result;
  }

 private:
  RowOp op_;
  int64_t rows_, k_;
  std::vector<float> constants_;
};

constexpr KernelKind kRowKinds[] = {
    {"pack", "NxK", "weight type", "rows of a model file in the order that kernels read, whatever the number of rows"},
    {"embedding", "VxH", "weight type", "rows of a packed table"},
    {"rms_norm", "K", "", "y = x w / rms(x)"},
    {"rope", "HEADSxD", "", "rotates pairs of every head"},
    {"silu_mul", "K", "", "y = silu(gate) up"},
    {"add", "K", "", "y = a + b"},
    {"exp", "K", "", "y = e^x"},
};

constexpr double kRounding = 0x1p-24;
constexpr float kEps = 1e-5f;

/// Returns the op of a kind of kernel, without `run` if the kind belongs to another family. Bounds are those of
/// tests/kernels/elementwise_test.cc.
RowOp row_op(const KernelWorkload& workload, const CpuKernels& t) {
  const int64_t rows = workload.rows,
                k = workload.shape.size() == 2 ? workload.shape[0] * workload.shape[1] : workload.shape[0];
  RowOp op = {1, 4.0f, {}, {}};
  const std::string& name = workload.kernel;
  if (name == "add" && t.add) {
    op.inputs = 2;
    op.run = [=, fn = t.add](const float* in, float* y, const auto&, int64_t begin, int64_t end) {
      fn({in + begin * k, in + (rows + begin) * k, y + begin * k, (end - begin) * k});
    };
    op.expect = [=](const float* in, const auto&, int64_t r, int64_t i) {
      const double sum = double{in[r * k + i]} + double{in[(rows + r) * k + i]};
      return std::pair(sum, kRounding * std::abs(sum));
    };
  } else if (name == "silu_mul" && t.silu_mul) {
    op.inputs = 2;
    op.run = [=, fn = t.silu_mul](const float* in, float* y, const auto&, int64_t begin, int64_t end) {
      fn({in + begin * k, in + (rows + begin) * k, y + begin * k, (end - begin) * k});
    };
    op.expect = [=](const float* in, const auto&, int64_t r, int64_t i) {
      const double gate = double{in[r * k + i]};
      const double value = gate / (1 + std::exp(-gate)) * double{in[(rows + r) * k + i]};
      return std::pair(value, 5 * kRounding * std::abs(value) + 1e-37);
    };
  } else if (name == "exp" && t.exp) {
    op.run = [=, fn = t.exp](const float* in, float* y, const auto&, int64_t begin, int64_t end) {
      fn({in + begin * k, y + begin * k, (end - begin) * k});
    };
    op.expect = [=](const float* in, const auto&, int64_t r, int64_t i) {
      const double value = std::exp(double{in[r * k + i]});
      return std::pair(value, 1.2e-7 * value);
    };
  } else if (name == "rms_norm" && t.rms_norm) {
    op.constants = k;
    op.run = [=, fn = t.rms_norm](const float* in, float* y, const std::vector<float>& w, int64_t begin, int64_t end) {
      fn({in + begin * k, w.data(), y + begin * k, end - begin, k, kEps});
    };
    op.expect = [=, last = int64_t{-1}, inverse = 0.0](const float* in, const std::vector<float>& w, int64_t r,
                                                       int64_t i) mutable {
      if (i == 0 || last != r) {
        double sum = 0;
        for (int64_t c = 0; c < k; ++c) sum += double{in[r * k + c]} * double{in[r * k + c]};
        inverse = 1 / std::sqrt(sum / static_cast<double>(k) + double{kEps});
        last = r;
      }
      const double value = double{in[r * k + i]} * inverse * double{w[static_cast<size_t>(i)]};
      return std::pair(value, ((static_cast<double>(k) / 16 + 8) / 2 + 6) * kRounding * std::abs(value));
    };
  } else if (name == "rope" && t.rope) {
    // Cosines and sines of each row, consecutive; any numbers will do.
    const int64_t heads = workload.shape[0], d = workload.shape[1], half = d / 2;
    op.constants = 2 * rows * half;
    op.run = [=, fn = t.rope](const float* in, float* y, const std::vector<float>& c, int64_t begin, int64_t end) {
      fn({in + begin * k, y + begin * k, c.data() + begin * half, c.data() + (rows + begin) * half, end - begin, heads,
          d, half * 2});
    };
    op.expect = [=](const float* in, const std::vector<float>& c, int64_t r, int64_t i) {
      const int64_t at = i % d;
      const double x = double{in[r * k + i]};
      if (at >= half * 2) return std::pair(x, 0.0);
      const bool first = at < half;
      const double other = double{in[r * k + (first ? i + half : i - half)]};
      const double co = double{c[static_cast<size_t>(r * half + at % half)]};
      const double si = double{c[static_cast<size_t>((rows + r) * half + at % half)]};
      return std::pair(first ? x * co - other * si : x * co + other * si,
                       3 * kRounding * (std::abs(x * co) + std::abs(other * si)));
    };
  }
  return op;
}

class EmbeddingCase : public KernelCase {
 public:
  EmbeddingCase(void (*fn)(const EmbeddingArgs&), DType type, int64_t rows, int64_t n, int64_t k)
      : fn_(fn), type_(type), rows_(rows), n_(n), k_(k), weight_bytes_((packed_bytes(type, n, k) + 63) / 64 * 64) {}
  Cost cost() const override {
    // A token may occur twice, and its row is then read from a cache: only the first row is certain to come from
    // memory.
    const auto row = static_cast<double>(row_bytes(type_, k_));
    return {static_cast<double>(rows_) * (row + static_cast<double>(k_ * 4)), row, 0, ""};
  }
  int64_t slot_bytes() const override { return weight_bytes_; }
  int64_t output_bytes() const override { return rows_ * k_ * 4; }
  Status allocate(int64_t slots, int64_t outputs, bool cached) override {
    REDLINE_TRY(weights_.allocate("a table", slots, weight_bytes_, cached));
    return allocate_outputs(outputs);
  }
  void fill(uint64_t seed) override {
    matrix_.emplace(type_, n_, k_, seed);
    pack_row_panels(matrix_->view(), 0, (n_ + kRowPanelRows - 1) / kRowPanelRows, weights_.first());
    weights_.copy_to_variants();
    uint64_t state = ~seed;
    tokens_.resize(static_cast<size_t>(kInputVariants * rows_));
    for (int32_t& token : tokens_) token = static_cast<int32_t>(next_random(state) % static_cast<uint64_t>(n_));
  }
  void spread() override { weights_.copy_to_all(); }
  void run(const KernelRun& run) const override {
    const int64_t begin = rows_ * run.worker / run.workers, end = rows_ * (run.worker + 1) / run.workers;
    if (begin < end)
      fn_({tokens_.data() + run.slot % kInputVariants * rows_ + begin, end - begin, weights_.of(run.slot), n_, k_,
           reinterpret_cast<float*>(output(run.output)) + begin * k_});
  }
  KernelCheck check(int64_t slot, int64_t output_index, uint64_t) const override {
    KernelCheck result;
    std::vector<float> row(static_cast<size_t>(k_));
    for (int64_t r = 0; r < rows_; ++r) {
      matrix_->row(tokens_[static_cast<size_t>(slot % kInputVariants * rows_ + r)], row.data());
      const auto* y = reinterpret_cast<const float*>(output(output_index)) + r * k_;
      for (size_t i = 0; i < row.size(); ++i) {
        result.add(std::abs(double{y[i]} - double{row[i]}), 0);  // must equal the unpacked values exactly
      }
    }
    return result;
  }

 private:
  void (*fn_)(const EmbeddingArgs&);
  DType type_;
  int64_t rows_, n_, k_, weight_bytes_;
  std::optional<RandomMatrix> matrix_;
  std::vector<int32_t> tokens_;
  SlotCopies weights_;
};

/// A case that packs a weight, as when a model is opened.
class PackCase : public KernelCase {
 public:
  PackCase(void (*embedding)(const EmbeddingArgs&), DType type, int64_t n, int64_t k)
      : embedding_(embedding), type_(type), n_(n), k_(k), source_bytes_((row_bytes(type, k) * n + 63) / 64 * 64) {}
  Cost cost() const override {
    const auto source = static_cast<double>(row_bytes(type_, k_) * n_);
    return {source + static_cast<double>(output_bytes()), source, 0, ""};
  }
  int64_t slot_bytes() const override { return source_bytes_; }
  int64_t output_bytes() const override { return packed_bytes(type_, n_, k_); }
  Status allocate(int64_t slots, int64_t outputs, bool cached) override {
    REDLINE_TRY(sources_.allocate("a weight", slots, source_bytes_, cached));
    return allocate_outputs(outputs);
  }
  void fill(uint64_t seed) override {
    matrix_.emplace(type_, n_, k_, seed);
    std::memcpy(sources_.first(), matrix_->view().data, static_cast<size_t>(row_bytes(type_, k_) * n_));
    sources_.copy_to_variants();
  }
  void spread() override { sources_.copy_to_all(); }
  void run(const KernelRun& run) const override {
    const int64_t panels = (n_ + kRowPanelRows - 1) / kRowPanelRows;
    pack_row_panels({type_, {n_, k_}, sources_.of(run.slot)}, panels * run.worker / run.workers,
                    panels * (run.worker + 1) / run.workers, output(run.output));
  }
  /// Checks the packed weight with the kernel that reads rows of a packed table.
  KernelCheck check(int64_t, int64_t output_index, uint64_t seed) const override {
    KernelCheck result;
    std::vector<float> want(static_cast<size_t>(k_)), got(static_cast<size_t>(k_));
    constexpr int64_t kRows = 64;
    uint64_t state = seed;
    for (int64_t j = 0; j < std::min(n_, kRows); ++j) {
      const auto row =
          static_cast<int32_t>(n_ <= kRows ? j
                               : j == 0    ? n_ - 1
                                           : static_cast<int64_t>(next_random(state) % static_cast<uint64_t>(n_)));
      matrix_->row(row, want.data());
      embedding_({&row, 1, output(output_index), n_, k_, got.data()});
      for (size_t i = 0; i < want.size(); ++i) result.add(std::abs(double{got[i]} - double{want[i]}), 0);
    }
    return result;
  }

 private:
  void (*embedding_)(const EmbeddingArgs&);
  DType type_;
  int64_t n_, k_, source_bytes_;
  std::optional<RandomMatrix> matrix_;
  SlotCopies sources_;
};

}  // namespace

std::span<const KernelKind> row_kernel_kinds() { return kRowKinds; }

Result<std::unique_ptr<KernelCase>> make_row_case(const KernelWorkload& workload, const CpuKernels& table) {
  const int64_t k = workload.shape.size() == 2 ? workload.shape[0] * workload.shape[1] : workload.shape[0];
  if (workload.kernel == "embedding" || workload.kernel == "pack") {
    REDLINE_ASSIGN(const DType type, dtype_from_name(workload.type));
    const int64_t block = dtype_info(type).block_elements, n = workload.shape[0], hidden = workload.shape[1];
    if (hidden % block != 0)
      return invalid_argument("{} {} is not a multiple of {}'s block of {}", workload.kernel == "pack" ? "K" : "H",
                              hidden, workload.type, block);
    auto* const fn = table.embedding[static_cast<int>(type)];
    if (fn && workload.kernel == "pack")
      return std::unique_ptr<KernelCase>(std::make_unique<PackCase>(fn, type, n, hidden));
    if (fn) return std::unique_ptr<KernelCase>(std::make_unique<EmbeddingCase>(fn, type, workload.rows, n, hidden));
    return unsupported("this instruction set has no kernel {}", kernel_entry_name(workload));
  }
  RowOp op = row_op(workload, table);
  if (!op.run) return unsupported("this instruction set has no kernel {}", workload.kernel);
  return std::unique_ptr<KernelCase>(std::make_unique<RowCase>(std::move(op), workload.rows, k));
}

}  // namespace redline::lab
