// Lower bound of a step's time on this machine; the definition of every reported fraction of the bound.
//
//   bound of a step = sum over its kinds of work of max(bytes / read, operations / peak)
//
// bytes        the weights of that work, read once for all rows, and the cached keys and values that are read;
//              no other bytes (EngineProfile::op_costs). Work of one kind and one weight type has one ratio of bytes to
//              operations, so the sum over kinds is the sum over ops.
// operations   two for each multiply-add of linear ops and attention
// read         measured: reading repeatedly as many bytes as a decode step of this model reads, with all threads
// peak         measured: the fastest multiply-add in registers for that type of weight, with all threads:
//                f32 weights, and everything with --dtype f32   f32
//                f16, bf16 weights; attention over f16          f32, f16, bf16
//                block formats                                  f32, f16, bf16, and int8 on vector units
//              int8 on tile units is left out: a tile accumulates 64 values of K at once, and blocks change their
//              scale every 16 or 32. A format with one scale per row would use it.
// The sum over kinds instead of one maximum over the step follows SOL-ExecBench: a prompt's layers are bound by
// arithmetic and its row of logits by memory, and the two do not overlap.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "machine/peaks.h"
#include "redline/engine_profile.h"

namespace redline {

struct Bound {
  double seconds = 0;
  bool is_memory = true;  ///< reading takes most of the time
  std::string by;         ///< the peak that accounts for most of the time: "read", "bf16 tdpbf16ps"
};

/// The peaks that bound a model's steps. Holds no references.
class Roofline {
 public:
  Roofline(const MachinePeaks& peaks, bool exact_f32);
  /// Returns the bound of one step, or of several if `costs` is their sum.
  Bound bound_of(std::span<const EngineProfile::OpCost> costs) const;
  double read_bytes_per_s() const { return read_bytes_per_s_; }
  /// Returns the limits for weights of these types, for EngineStats::bound_seconds.
  MachineLimits limits(std::span<const std::string> types) const;
  /// Returns the peak for weights (or cached values) of one type; nullptr: not measured.
  const Peak* peak_of(std::string_view type) const;

 private:
  double read_bytes_per_s_ = 0;
  std::vector<Peak> peaks_;
  bool exact_f32_;
};

/// Returns the minimum time of one kind of work, whose reading and arithmetic overlap. A limit of 0 is unknown and
/// ignored. Kinds of work run one after the other, so the bound of a step is the sum over its kinds.
double min_seconds(const EngineProfile::OpCost& op, double read_bytes_per_s, double operations_per_s);

double min_seconds(std::span<const EngineProfile::OpCost> costs, const MachineLimits& limits);

/// Raises `peaks` to the better of two measurements of the same machine, peak by peak.
void raise_to(MachinePeaks& peaks, const MachinePeaks& other);

}  // namespace redline
