// attention and kv_append over the pages of a few KV heads; workers split the heads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/cpu/attention/attention_args.h"
#include "lab/kernels/kernel_case.h"
#include "lab/kernels/random_matrix.h"
#include "tensor/kv_limits.h"

namespace redline::lab {
namespace {

constexpr const char* kFormats[kNumKvFormats] = {"f32", "f16", "bf16"};

float rounded(KvFormat format, float x) {
  if (format == KvFormat::kF32) return x;
  return format == KvFormat::kF16 ? f16_to_f32(f32_to_f16(x)) : bf16_to_f32(f32_to_bf16(x));
}

class AttentionCase : public KernelCase {
 public:
  struct Shape {
    int64_t rows, kv_heads, group, head_dim, positions;
  };
  AttentionCase(const CpuKernels& table, KvFormat format, const Shape& shape)
      : table_(table), format_(format), s_(shape), element_(kv_element_bytes(format)),
        pages_(kv_pages_for(shape.positions)), page_elements_(kKvPageTokens * kv_head_width(shape.head_dim)),
        kv_(s_.kv_heads * s_.positions * s_.head_dim), q_(s_.kv_heads * s_.group * s_.rows * s_.head_dim) {
    for (int64_t p = 0; p < pages_; ++p) page_numbers_.push_back(static_cast<int32_t>(pages_ - 1 - p));
  }

  Cost cost() const override {
    const double seen = static_cast<double>(s_.rows) * static_cast<double>(2 * s_.positions - s_.rows + 1) / 2;
    const auto kv = static_cast<double>(2 * kv_ * element_);
    return {kv + static_cast<double>(2 * q_ * 4), kv,
            4.0 * static_cast<double>(s_.kv_heads * s_.group * s_.head_dim) * seen,
            format_ == KvFormat::kF32 ? "f32" : "f32 f16 bf16"};
  }
  int64_t slot_bytes() const override { return (2 * s_.kv_heads * pages_ * page_elements_ * element_ + 63) / 64 * 64; }
  int64_t output_bytes() const override { return q_ * 4; }

  Status allocate(int64_t slots, int64_t outputs, bool cached) override {
    REDLINE_TRY(cache_.allocate("a cache", slots, slot_bytes(), cached));
    return allocate_outputs(outputs);
  }

  void fill(uint64_t seed) override {
    uint64_t state = seed;
    queries_.resize(static_cast<size_t>(kInputVariants * q_));
    keys_.resize(static_cast<size_t>(kv_));
    values_.resize(static_cast<size_t>(kv_));
    for (float& x : queries_) x = random_normal(state);
    for (float& x : keys_) x = random_normal(state);
    for (float& x : values_) x = random_normal(state);
    std::vector<int32_t> slots;
    for (int64_t p = 0; p < s_.positions; ++p)
      slots.push_back(static_cast<int32_t>(page_numbers_[static_cast<size_t>(p / kKvPageTokens)] * kKvPageTokens +
                                           p % kKvPageTokens));
    for (int64_t h = 0; h < s_.kv_heads; ++h) {
      const int64_t at = h * s_.positions * s_.head_dim;
      table_.kv_append[static_cast<int>(format_)](
          {keys_.data() + at, values_.data() + at, s_.head_dim, slots.data(), s_.positions, s_.head_dim, view(0, h)});
    }
    cache_.copy_to_variants();
    for (float& x : keys_) x = rounded(format_, x);
    for (float& x : values_) x = rounded(format_, x);
  }

  void spread() override { cache_.copy_to_all(); }

  void run(const KernelRun& run) const override {
    const int64_t width = s_.group * s_.head_dim;
    for (int64_t h = s_.kv_heads * run.worker / run.workers; h < s_.kv_heads * (run.worker + 1) / run.workers; ++h) {
      AttentionArgs a = {};
      a.q = queries_.data() + run.slot % kInputVariants * q_ + h * s_.rows * width;
      a.y = reinterpret_cast<float*>(output(run.output)) + h * s_.rows * width;
      a.q_stride = a.y_stride = width;
      a.rows = s_.rows, a.group = s_.group, a.head_dim = s_.head_dim;
      a.first_position = s_.positions - s_.rows;
      a.scale = scale();
      a.pages = page_numbers_.data();
      a.cache = view(run.slot, h);
      a.kv_end = std::numeric_limits<int64_t>::max();
      a.scratch = run.scratch;
      table_.attention[static_cast<int>(format_)](a);
    }
  }

  KernelCheck check(int64_t slot, int64_t output_index, uint64_t seed) const override {
    KernelCheck result;
    const auto* y = reinterpret_cast<const float*>(output(output_index));
    for (int64_t i = 0; i < q_; ++i)
      if (!std::isfinite(y[i])) result.of_bound = result.absolute = INFINITY;
    // Compares query rows (one row of one query head each): all of them, or as many as take little time.
    const int64_t lines = q_ / s_.head_dim;
    const int64_t some = std::clamp<int64_t>((int64_t{1} << 24) / (s_.positions * s_.head_dim), 8, lines);
    uint64_t state = seed;
    for (int64_t i = 0; i < std::min(some, lines); ++i)
      check_line(slot, some >= lines ? i : static_cast<int64_t>(next_random(state) % static_cast<uint64_t>(lines)), y,
                 result);
    return result;
  }

 private:
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(s_.head_dim)); }
  KvHeadView view(int64_t slot, int64_t head) const {
    uint8_t* base = cache_.of(slot) + head * 2 * pages_ * page_elements_ * element_;
    return {base, base + page_elements_ * element_, 2 * page_elements_};
  }

  void check_line(int64_t slot, int64_t line, const float* y, KernelCheck& result) const {
    const int64_t head = line / (s_.rows * s_.group), row = line / s_.group % s_.rows, d = s_.head_dim;
    const float* query = queries_.data() + slot % kInputVariants * q_ + line * d;
    const float* keys = keys_.data() + head * s_.positions * d;
    const float* values = values_.data() + head * s_.positions * d;
    const int64_t count = s_.positions - s_.rows + row + 1;
    std::vector<double> weight(static_cast<size_t>(count)), want(static_cast<size_t>(d));
    double top = -INFINITY, total = 0, largest = 0, query_norm = 0, key_norm = 0;
    for (int64_t i = 0; i < d; ++i) query_norm += double{query[i]} * double{query[i]};
    for (int64_t p = 0; p < count; ++p) {
      double dot = 0, norm = 0;
      for (int64_t i = 0; i < d; ++i) {
        const double k = double{keys[p * d + i]};
        dot += double{query[i]} * k;
        norm += k * k;
        largest = std::max(largest, std::abs(double{values[p * d + i]}));
      }
      key_norm = std::max(key_norm, norm);
      weight[static_cast<size_t>(p)] = dot * double{scale()};
      top = std::max(top, dot * double{scale()});
    }
    for (double& w : weight) total += w = std::exp(w - top);
    for (int64_t p = 0; p < count; ++p)
      for (int64_t i = 0; i < d; ++i)
        want[static_cast<size_t>(i)] += weight[static_cast<size_t>(p)] / total * double{values[p * d + i]};
    // Derived in tests/kernels/attention_test.cc. In tile products q and k have 16 bits of mantissa in calls with many
    // query rows, or q has bfloat16's 8 if the keys are bfloat16; softmax weights and v are rounded to bfloat16.
    const auto n = static_cast<double>(count), dim = static_cast<double>(d);
    const double scores = double{scale()} * std::sqrt(query_norm * key_norm);
    double bound = (2 * (dim + 2) * scores + 2 * (n + 4 * n / 32 + 16)) * 0x1p-24;
    const bool has_bf16 = format_ == KvFormat::kBF16;
    const double query_bits = has_bf16 ? 0x1p-9 : 4 * 0x1p-18;
    const double weight_error = table_.has_tile_unit ? (has_bf16 ? 5.9e-3 : 0x1p-9 + 1e-4) : 0x1p-8 + 7.5e-5;
    if (has_bf16 || (table_.has_tile_unit && format_ != KvFormat::kF32))
      bound += std::expm1(2 * scores * (query_bits + 3 * dim * 0x1p-24)) + 2 * weight_error;
    bound *= largest;
    for (int64_t i = 0; i < d; ++i) result.add(std::abs(double{y[line * d + i]} - want[static_cast<size_t>(i)]), bound);
  }

  const CpuKernels& table_;
  KvFormat format_;
  Shape s_;
  int64_t element_, pages_, page_elements_;  ///< elements of one page of K; V has as many
  int64_t kv_, q_;                           ///< elements of all keys, of all queries
  std::vector<int32_t> page_numbers_;
  std::vector<float> queries_, keys_, values_;
  SlotCopies cache_;
};

}  // namespace

Result<std::unique_ptr<KernelCase>> make_attention_case(const KernelWorkload& workload, const CpuKernels& table) {
  if (workload.kernel != "attention") return std::unique_ptr<KernelCase>();
  const AttentionCase::Shape shape = {workload.rows, workload.shape[0], workload.shape[1], workload.shape[2],
                                      workload.shape[3]};
  if (shape.rows > shape.positions)
    return invalid_argument("attention: {} rows are more than the {} positions of the cache, which hold them too",
                            shape.rows, shape.positions);
  if (shape.head_dim > kMaxKvHeadDim)
    return invalid_argument("attention: a head of {} is larger than {}", shape.head_dim, kMaxKvHeadDim);
  for (int f = 0; f < kNumKvFormats; ++f) {
    if (workload.type != kFormats[f]) continue;
    if (table.attention[f] == nullptr || table.kv_append[f] == nullptr)
      return unsupported("this instruction set has no kernel {}", kernel_entry_name(workload));
    return std::unique_ptr<KernelCase>(std::make_unique<AttentionCase>(table, static_cast<KvFormat>(f), shape));
  }
  return invalid_argument("attention has no cache of type \"{}\"; it has f32, f16, bf16", workload.type);
}

}  // namespace redline::lab
