#include "kernels/cpu/quantize.h"

#include "kernels/cpu/cpu_kernels.h"

namespace redline {

#define REDLINE_DECLARE_FILL(isa)                 \
  namespace isa_##isa {                           \
    void fill_quantize(QuantizeKernels& table);   \
    void fill_quantize_k(QuantizeKernels& table); \
  }
REDLINE_DECLARE_FILL(generic)
#if defined(__x86_64__)
REDLINE_DECLARE_FILL(avx2)
REDLINE_DECLARE_FILL(avx512)
#endif
#undef REDLINE_DECLARE_FILL

bool quantize_iq3_s(const QuantizeArgs& args);  // quantize_iq3.cc

QuantizeKernels quantize_kernels_for(std::string_view isa) {
  QuantizeKernels table;
  table.to[static_cast<int>(DType::kIQ3_S)] = quantize_iq3_s;
#define REDLINE_FILL(isa)            \
  isa_##isa::fill_quantize(table);   \
  isa_##isa::fill_quantize_k(table); \
  return table
#if defined(__x86_64__)
  if (isa.starts_with("avx512") || isa.starts_with("amx")) {
    REDLINE_FILL(avx512);
  }
  if (isa.starts_with("avx2")) {
    REDLINE_FILL(avx2);
  }
#endif
  REDLINE_FILL(generic);
#undef REDLINE_FILL
}

Result<const QuantizeKernels*> quantize_kernels() {
  REDLINE_TRY(cpu_kernels());
  static const QuantizeKernels table = quantize_kernels_for(cpu_isa_in_use());
  return &table;
}

}  // namespace redline
