// One kernel on random inputs of one shape: makes the inputs, runs it, and knows how far its answer may be from the
// true one. What `redline bench --kernel` measures; kernel_bench.h times it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"

namespace redline::lab {

/// What is asked for: "linear_q8" of 4 rows by a q4_0 weight [8192, 2048].
struct KernelAsked {
  std::string kernel;          ///< of kernel_kinds()
  std::string type;            ///< as the kind says; "" for kinds without
  int64_t rows = 1;            ///< rows of activations
  std::vector<int64_t> shape;  ///< as the kind says: {N, K}
  int threads = 1;             ///< workers that will share a run, for a peer that prepares for them
};

/// Inputs come in this many variants, so that an answer that is kept from the last run is a wrong one.
inline constexpr int64_t kInputVariants = 3;

/// One run: `slot` says which inputs and which weight, `output` where the answer goes, `worker` which part is made.
struct KernelRun {
  int64_t slot = 0, output = 0;
  int worker = 0, workers = 1;
  void* scratch = nullptr;  ///< kScratchBytes of this worker
};

/// How an answer compares with float64: the largest error over its bound, at most 1 for a right answer.
struct KernelCheck {
  double of_bound = 0;
  double absolute = 0;   ///< the largest error
  int64_t elements = 0;  ///< that were compared; when not all, rows and columns were drawn at random

  /// One more element. A NaN is the worst that there can be.
  void add(double error, double bound);
};

class KernelCase {
 public:
  virtual ~KernelCase() = default;

  /// Bytes that are read and written, those of them that rotate past the caches and must be read again, operations that
  /// must be done (2 for a multiply-add), and the peak that bounds these: the fastest of some ("int8", "f32 f16
  /// bf16"); "" when arithmetic is no bound.
  struct Cost {
    double bytes = 0, from_memory = 0, operations = 0;
    std::string peak;
  };
  virtual Cost cost() const = 0;
  /// Memory that a slot takes, and one output.
  virtual int64_t slot_bytes() const = 0;
  virtual int64_t output_bytes() const = 0;

  /// Room for so many slots (at least kInputVariants) and outputs. `cached`: slots share what they can.
  /// out_of_memory: what was asked for.
  virtual Status allocate(int64_t slots, int64_t outputs, bool cached) = 0;
  /// New inputs in the first kInputVariants slots; slot s holds variant s % kInputVariants.
  virtual void fill(uint64_t seed) = 0;
  /// Copies the first slots into all others.
  virtual void spread() = 0;
  virtual void run(const KernelRun& run) const = 0;
  /// The answer for the inputs of `slot` that lies in `output`.
  virtual KernelCheck check(int64_t slot, int64_t output, uint64_t seed) const = 0;

  /// NaNs into an output.
  void poison(int64_t output);
  uint8_t* output(int64_t i) const;

 protected:
  Status allocate_outputs(int64_t outputs);
  std::shared_ptr<uint8_t> outputs_;
};

struct KernelKind {
  std::string_view name;
  std::string_view shape;    ///< what --shape means: "NxK"
  std::string_view type;     ///< what --type means; "" when it has none
  std::string_view summary;  ///< one line
};
const std::vector<KernelKind>& kernel_kinds();

/// The name in kernel_origins(): "linear_q8.q4_0".
std::string kernel_entry_name(const KernelAsked& asked);

/// invalid_argument: no such kernel or type, a shape of the wrong length or that the type's blocks do not fill.
/// unsupported: the table has no such kernel.
Result<std::unique_ptr<KernelCase>> make_kernel_case(const KernelAsked& asked, const CpuKernels& table);

/// Of the kinds, each in its file; nullptr when the kind is not one of theirs. For make_kernel_case.
Result<std::unique_ptr<KernelCase>> make_linear_case(const KernelAsked& asked, const CpuKernels& table);
Result<std::unique_ptr<KernelCase>> make_onednn_case(const KernelAsked& asked);
Result<std::unique_ptr<KernelCase>> make_attention_case(const KernelAsked& asked, const CpuKernels& table);
Result<std::unique_ptr<KernelCase>> make_row_case(const KernelAsked& asked, const CpuKernels& table);

/// `bytes` of memory on large pages where the system gives them, aligned to 64; nullptr when there are none.
std::shared_ptr<uint8_t> map_bytes(int64_t bytes);

/// What every slot holds alike, a weight or a cache: a copy for each, or one that all share.
class SlotCopies {
 public:
  /// out_of_memory: says how many, of `what`.
  Status allocate(std::string_view what, int64_t slots, int64_t bytes, bool cached);
  uint8_t* first() const { return data_.get(); }
  uint8_t* of(int64_t slot) const { return data_.get() + slot % count_ * bytes_; }
  /// The first to the first kInputVariants slots, or to all.
  void copy_to_variants() { copy_to(kInputVariants); }
  void copy_to_all() { copy_to(count_); }

 private:
  void copy_to(int64_t copies);
  int64_t count_ = 1, bytes_ = 0;
  std::shared_ptr<uint8_t> data_;
};

}  // namespace redline::lab
