// Rows of K and V of one head into cache pages, rounded to nearest even where the cache is narrower than float32.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace redline::REDLINE_ISA_NS {
namespace {

template <class Element>
void kv_append(const KvAppendArgs& a) {
  const int shift = __builtin_ctzll(static_cast<uint64_t>(a.cache.page_tokens));
  for (int64_t row = 0; row < a.rows; ++row) {
    const int64_t slot = a.slots[row];
    if (slot < 0) continue;
    const int64_t token = slot & (a.cache.page_tokens - 1);
    const int64_t offset = (slot >> shift) * a.cache.page_stride + token * a.cache.token_stride;
    Element* k = static_cast<Element*>(a.cache.k) + offset;
    Element* v = static_cast<Element*>(a.cache.v) + offset;
    for_lanes(a.head_dim, [&](int64_t d, auto lanes) {
      store(k + d, load(a.k + row * a.row_stride + d, lanes), lanes);
      store(v + d, load(a.v + row * a.row_stride + d, lanes), lanes);
    });
  }
}

}  // namespace

void fill_kv_append(CpuKernels& table) {
  table.kv_append[static_cast<int>(KvFormat::kF32)] = kv_append<float>;
  table.kv_append[static_cast<int>(KvFormat::kF16)] = kv_append<F16>;
  table.kv_append[static_cast<int>(KvFormat::kBF16)] = kv_append<BF16>;
}

}  // namespace redline::REDLINE_ISA_NS
