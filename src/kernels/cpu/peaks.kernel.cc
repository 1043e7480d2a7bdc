// Loops that measure the peaks of a core: read bandwidth, and register-resident multiply-adds.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/peak_loops.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// Reads four streams at a time, since one leaves bandwidth unused on Intel server cores (33 against 30 GB/s with two
/// threads; no difference on Zen 4). Returns a checksum, so that the loads are not removed. Bytes past the last whole 4
/// KiB are not read.
uint64_t read_bytes(const void* data, int64_t bytes) {
  constexpr int64_t kStreams = 4, kVectorBytes = 4 * kWidth;
  const int64_t stream_bytes = bytes / kStreams & ~int64_t{1023};
  const char* p = static_cast<const char*>(data);
  VecI32 sum[kStreams][2];
  for (auto& s : sum) s[0] = s[1] = zero_i32();
  for (int64_t i = 0; i < stream_bytes; i += 2 * kVectorBytes) {
    for (int s = 0; s < kStreams; ++s) {
      const char* line = p + s * stream_bytes + i;
      __builtin_prefetch(line + 2048, 0, 2);
      sum[s][0] = sum[s][0] ^ load_i32(line);
      sum[s][1] = sum[s][1] ^ load_i32(line + kVectorBytes);
    }
  }
  VecI32 all = zero_i32();
  for (auto& s : sum) all = all ^ s[0] ^ s[1];
  int32_t lanes[kWidth];
  store(lanes, all, Full{});
  uint64_t check = 0;
  for (int32_t lane : lanes) check = check * 31 + static_cast<uint32_t>(lane);
  return check;
}

double peak_f32(int64_t iterations) { return peak_f32_loop(iterations); }
double peak_i8(int64_t iterations) { return peak_i8_loop(iterations); }

}  // namespace

void fill_peaks(CpuKernels& table) {
  table.read_bytes = read_bytes;
  table.peak_f32 = peak_f32;
  // The generic set has no byte products, so its int8 peak is meaningless. bfloat16 needs an overlay.
  if (kWidth > 4) table.peak_i8 = peak_i8;
}

}  // namespace redline::REDLINE_ISA_NS
