#include "lab/kernels/kernel_case.h"

#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/text_distance.h"

namespace redline::lab {

std::shared_ptr<uint8_t> map_bytes(int64_t bytes) {
  const auto size = static_cast<size_t>(std::max<int64_t>(bytes, 64));
  void* data = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
#if defined(MADV_HUGEPAGE)
  madvise(data, size, MADV_HUGEPAGE);
#endif
  return {static_cast<uint8_t*>(data), [size](uint8_t* p) { munmap(p, size); }};
}

Status SlotCopies::allocate(std::string_view what, int64_t slots, int64_t bytes, bool cached) {
  count_ = cached ? 1 : slots;
  bytes_ = bytes;
  data_ = map_bytes(bytes_ * count_);
  if (data_ == nullptr) return out_of_memory("{} copies of {} of {} bytes", count_, what, bytes_);
  return {};
}

void SlotCopies::copy_to(int64_t copies) {
  for (int64_t i = 1; i < std::min(copies, count_); ++i)
    std::memcpy(data_.get() + i * bytes_, data_.get(), static_cast<size_t>(bytes_));
}

void KernelCheck::add(double error, double bound) {
  const auto worse = [](double& worst, double value) {
    if (!(value <= worst)) worst = std::isnan(value) ? INFINITY : value;
  };
  worse(absolute, error);
  worse(of_bound, error == 0 ? 0 : error / bound);
  ++elements;
}

void KernelCase::poison(int64_t output) {
  std::memset(this->output(output), 0xff, static_cast<size_t>(output_bytes()));
}

uint8_t* KernelCase::output(int64_t i) const { return outputs_.get() + i * ((output_bytes() + 63) / 64 * 64); }

Status KernelCase::allocate_outputs(int64_t outputs) {
  const int64_t bytes = (output_bytes() + 63) / 64 * 64 * outputs;
  outputs_ = map_bytes(bytes);
  if (outputs_ == nullptr) return out_of_memory("{} outputs of {} bytes", outputs, output_bytes());
  return {};
}

Status SlotInputCase::allocate(int64_t slots, int64_t outputs, bool /*cached*/) {
  slots_ = slots;
  in_ = map_bytes(slot_bytes_ * slots);
  if (in_ == nullptr) return out_of_memory("{} inputs of {} bytes", slots, slot_bytes_);
  return allocate_outputs(outputs);
}

void SlotInputCase::spread() {
  for (int64_t s = kInputVariants; s < slots_; ++s)
    std::memcpy(inputs(s), inputs(s % kInputVariants), static_cast<size_t>(slot_bytes_));
}

const std::vector<KernelKind>& kernel_kinds() {
  static const std::vector<KernelKind> kinds = [] {
    std::vector<KernelKind> all = {
        {"linear", "NxK", "weight type", "y = x W^T, x in float32"},
        {"linear_q8", "NxK", "weight type", "y = x W^T, x rounded to int8 in groups"},
        {"linear_tiles", "NxK", "weight type", "y = x W^T, x in bfloat16 tiles"},
        {"linear_i8", "NxK", "weight type", "y = x W^T, x rounded to int8 with a scale for every 1024"},
        {"linear_requantized", "NxK", "weight type",
         "y = x W^T, x and blocks of w rounded to int8, scales for 128 and 256"},
        {"onednn", "NxK", "f32, bf16 or int8 rows with scales",
         "y = x W^T by oneDNN, a peer, where Redline was built with it"},
        {"prepare_x", "K", "q8, tiles or i8", "rows of x into the form that linear kernels read"},
        {"attention", "KVxGxDxP", "type of the cache", "G query heads of D for each KV head, over P positions"},
    };
    const std::span<const KernelKind> rows = row_kernel_kinds();
    all.insert(all.end(), rows.begin(), rows.end());
    const std::span<const KernelKind> convolutions = convolution_kernel_kinds();
    all.insert(all.end(), convolutions.begin(), convolutions.end());
    all.push_back(
        {"sampler", "V", "greedy, temperature, top_k (and top_p), top_p, min_p, flat_top_p", "a token from V logits"});
    return all;
  }();
  return kinds;
}

std::string kernel_entry_name(const KernelWorkload& workload) {
  return workload.type.empty() ? workload.kernel : workload.kernel + "." + workload.type;
}

Result<std::unique_ptr<KernelCase>> make_kernel_case(const KernelWorkload& workload, const CpuKernels& table) {
  const KernelKind* kind = nullptr;
  std::vector<std::string> names;
  for (const KernelKind& k : kernel_kinds()) {
    names.emplace_back(k.name);
    if (k.name == workload.kernel) kind = &k;
  }
  if (kind == nullptr)
    return invalid_argument("there is no kernel \"{}\" to measure{}; there are: {}", workload.kernel,
                            the_nearest(workload.kernel, fmt::format("{}", fmt::join(names, ", "))),
                            fmt::join(names, ", "));
  if (workload.type.empty() != kind->type.empty())
    return kind->type.empty()
               ? invalid_argument("kernel {} has no type; leave out \"{}\"", workload.kernel, workload.type)
               : invalid_argument("kernel {} needs a type: its {}", workload.kernel, kind->type);
  const auto sizes = static_cast<size_t>(std::count(kind->shape.begin(), kind->shape.end(), 'x')) + 1;
  if (workload.shape.size() != sizes)
    return invalid_argument("kernel {} needs a shape {}; {} number{} came", workload.kernel, kind->shape,
                            workload.shape.size(), workload.shape.size() == 1 ? "" : "s");
  // Larger sizes would overflow products of sizes, and exceed any machine's memory.
  constexpr int64_t kMax = int64_t{1} << 24, kMaxElements = int64_t{1} << 34;
  double elements = 1;
  for (const int64_t size : workload.shape) {
    if (size < 1 || size > kMax) return invalid_argument("shape: {} is out of range; allowed: 1 to {}", size, kMax);
    elements *= static_cast<double>(size);
  }
  if (workload.rows < 1 || workload.rows > kMax)
    return invalid_argument("rows: {} is out of range; allowed: 1 to {}", workload.rows, kMax);
  const auto widest = static_cast<double>(*std::max_element(workload.shape.begin(), workload.shape.end()));
  if (elements > kMaxElements || static_cast<double>(workload.rows) * widest > kMaxElements)
    return invalid_argument("{} rows of shape {} are more than {} elements", workload.rows,
                            fmt::join(workload.shape, "x"), kMaxElements);
  REDLINE_ASSIGN(auto linear, make_linear_case(workload, table));
  if (linear) return linear;
  REDLINE_ASSIGN(auto onednn, make_onednn_case(workload));
  if (onednn) return onednn;
  REDLINE_ASSIGN(auto attention, make_attention_case(workload, table));
  if (attention) return attention;
  REDLINE_ASSIGN(auto sampler, make_sampler_case(workload, table));
  if (sampler) return sampler;
  REDLINE_ASSIGN(auto convolution, make_convolution_case(workload, table));
  if (convolution) return convolution;
  return make_row_case(workload, table);
}

}  // namespace redline::lab
