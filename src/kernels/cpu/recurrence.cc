#include "kernels/cpu/recurrence.h"

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

#define REDLINE_DECLARE_FILL(isa)                    \
  namespace isa_##isa {                              \
    void fill_rms_norm(CpuKernels& table);           \
    void fill_causal_conv(RecurrenceKernels& table); \
    void fill_gated_scan(RecurrenceKernels& table);  \
    void fill_lstm_cell(RecurrenceKernels& table);   \
  }
REDLINE_DECLARE_FILL(generic)
#if defined(__x86_64__)
REDLINE_DECLARE_FILL(avx2)
REDLINE_DECLARE_FILL(avx512)
#endif
#undef REDLINE_DECLARE_FILL

namespace {

/// A base set, known by a kernel that no overlay replaces.
struct BaseSet {
  CpuKernels mark;
  RecurrenceKernels kernels;
};

template <class FillMark, class... Fill>
BaseSet base_set(const FillMark& mark, const Fill&... fill) {
  BaseSet set;
  mark(set.mark);
  (fill(set.kernels), ...);
  return set;
}

}  // namespace

const RecurrenceKernels& recurrence_kernels(const CpuKernels& table) {
#define REDLINE_BASE_SET(isa) \
  base_set(isa_##isa::fill_rms_norm, isa_##isa::fill_causal_conv, isa_##isa::fill_gated_scan, isa_##isa::fill_lstm_cell)
  static const BaseSet sets[] = {
    REDLINE_BASE_SET(generic),
#if defined(__x86_64__)
    REDLINE_BASE_SET(avx2),
    REDLINE_BASE_SET(avx512),
#endif
  };
#undef REDLINE_BASE_SET
  for (const BaseSet& set : sets)
    if (set.mark.rms_norm == table.rms_norm) return set.kernels;
  return sets[0].kernels;
}

}  // namespace redline
