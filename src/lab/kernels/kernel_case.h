// One kernel on random inputs of one shape: generates the inputs, runs the kernel, and checks its output within derived
// error bounds. `redline bench --kernel` measures such cases; kernel_timing.h times them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace redline::lab {

/// The case to build: "linear_q8" of 4 rows by a q4_0 weight [8192, 2048].
struct KernelWorkload {
  std::string kernel;          ///< a name of kernel_kinds()
  std::string type;            ///< defined by the kind; "" for kinds without
  int64_t rows = 1;            ///< rows of activations
  std::vector<int64_t> shape;  ///< defined by the kind: {N, K}
  int threads = 1;             ///< workers that share a run, for baselines that prepare for them
};

/// Number of different inputs, so that output left over from the previous run is detected.
inline constexpr int64_t kInputVariants = 3;

/// Arguments of one run: `slot` selects inputs and weight, `output` the buffer for the result, `worker` the part to
/// compute.
struct KernelRun {
  int64_t slot = 0, output = 0;
  int worker = 0, workers = 1;
  void* scratch = nullptr;  ///< kScratchBytes of memory of this worker
};

/// Comparison with float64. of_bound is the largest ratio of error to bound, at most 1 for a correct result.
struct KernelCheck {
  double of_bound = 0;
  double absolute = 0;   ///< maximum absolute error
  int64_t elements = 0;  ///< number of compared elements; if not all, rows and columns were chosen at random

  /// Adds one element. A NaN counts as an infinite error.
  void add(double error, double bound);
};

class KernelCase {
 public:
  virtual ~KernelCase() = default;

  /// bytes: bytes read and written. from_memory: bytes that are read from memory, because their copies rotate past the
  /// caches. operations: 2 per multiply-add. peak: names of the peaks ("int8", "f32 f16 bf16"), of which the fastest
  /// bounds the operations; "" if arithmetic is not a bound.
  struct Cost {
    double bytes = 0, from_memory = 0, operations = 0;
    std::string peak;
  };
  virtual Cost cost() const = 0;
  /// Return the bytes of one slot and of one output.
  virtual int64_t slot_bytes() const = 0;
  virtual int64_t output_bytes() const = 0;

  /// Allocates slots (at least kInputVariants) and outputs. `cached`: slots share their weights.
  /// out_of_memory: the message has the number of bytes.
  virtual Status allocate(int64_t slots, int64_t outputs, bool cached) = 0;
  /// Writes new inputs to the first kInputVariants slots; slot s holds variant s % kInputVariants.
  virtual void fill(uint64_t seed) = 0;
  /// Copies the first slots into all others.
  virtual void spread() = 0;
  virtual void run(const KernelRun& run) const = 0;
  /// Checks that `output` has the result for the inputs of `slot`.
  virtual KernelCheck check(int64_t slot, int64_t output, uint64_t seed) const = 0;

  /// Fills an output with NaNs.
  void poison(int64_t output);
  uint8_t* output(int64_t i) const;

 protected:
  Status allocate_outputs(int64_t outputs);
  std::shared_ptr<uint8_t> outputs_;
};

/// A kernel whose inputs are one block of `bytes` per slot.
class SlotInputCase : public KernelCase {
 public:
  explicit SlotInputCase(int64_t bytes) : slot_bytes_((bytes + 63) / 64 * 64) {}
  int64_t slot_bytes() const override { return slot_bytes_; }
  Status allocate(int64_t slots, int64_t outputs, bool cached) override;
  void spread() override;

 protected:
  float* inputs(int64_t slot) const { return reinterpret_cast<float*>(in_.get() + slot * slot_bytes_); }

 private:
  int64_t slot_bytes_, slots_ = 0;
  std::shared_ptr<uint8_t> in_;
};

struct KernelKind {
  std::string_view name;
  std::string_view shape;    ///< meaning of --shape: "NxK"
  std::string_view type;     ///< meaning of --type; "" if there is none
  std::string_view summary;  ///< one line
};
const std::vector<KernelKind>& kernel_kinds();
/// Returns the kinds that make_row_case() makes.
std::span<const KernelKind> row_kernel_kinds();
/// Returns the kinds that make_convolution_case() makes.
std::span<const KernelKind> convolution_kernel_kinds();

/// Returns the name in kernel_origins(): "linear_q8.q4_0".
std::string kernel_entry_name(const KernelWorkload& workload);

/// Makes the case of a workload. invalid_argument: unknown kernel or type, a shape of the wrong length, or rows that
/// are not whole blocks of the type. unsupported: the table has no such kernel.
Result<std::unique_ptr<KernelCase>> make_kernel_case(const KernelWorkload& workload, const CpuKernels& table);

/// make_kernel_case() calls these, one per family and file. Each returns nullptr if the kind belongs to another family.
Result<std::unique_ptr<KernelCase>> make_linear_case(const KernelWorkload& workload, const CpuKernels& table);
Result<std::unique_ptr<KernelCase>> make_onednn_case(const KernelWorkload& workload);
/// Returns f32, bf16, and the quantized types that oneDNN multiplies as int8 by int8: those with a scale per row.
std::vector<DType> onednn_types();
Result<std::unique_ptr<KernelCase>> make_attention_case(const KernelWorkload& workload, const CpuKernels& table);
Result<std::unique_ptr<KernelCase>> make_sampler_case(const KernelWorkload& workload, const CpuKernels& table);
/// Returns the types of the kernel `sampler`, which are settings of samplers.
std::vector<std::string> sampler_type_names();
Result<std::unique_ptr<KernelCase>> make_convolution_case(const KernelWorkload& workload, const CpuKernels& table);
Result<std::unique_ptr<KernelCase>> make_row_case(const KernelWorkload& workload, const CpuKernels& table);

/// Returns `bytes` of memory, on huge pages if available, aligned to 64; nullptr: out of memory.
std::shared_ptr<uint8_t> map_bytes(int64_t bytes);

/// Data that is equal in every slot, a weight or a KV cache, as one copy per slot or one shared copy.
class SlotCopies {
 public:
  /// Allocates the copies. out_of_memory: the message has the number of bytes and `what`.
  Status allocate(std::string_view what, int64_t slots, int64_t bytes, bool cached);
  uint8_t* first() const { return data_.get(); }
  uint8_t* of(int64_t slot) const { return data_.get() + slot % count_ * bytes_; }
  /// Copies the first slot to the first kInputVariants slots, or to all.
  void copy_to_variants() { copy_to(kInputVariants); }
  void copy_to_all() { copy_to(count_); }

 private:
  void copy_to(int64_t copies);
  int64_t count_ = 1, bytes_ = 0;
  std::shared_ptr<uint8_t> data_;
};

}  // namespace redline::lab
