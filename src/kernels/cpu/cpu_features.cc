#include "kernels/cpu/cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <vector>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace redline {

#if defined(__x86_64__)
namespace {

struct Feature {
  std::string_view name;
  bool is_present = false;
};

uint64_t enabled_state() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

/// Linux saves tile state only for processes that request it: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA).
bool request_tile_state() {
#if defined(__linux__) && defined(SYS_arch_prctl)
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}

/// Returns the features that cpuid reports and the operating system saves on a context switch (Intel SDM 1, 13.2;
/// XCR0).
std::vector<Feature> detect() {
  uint32_t a, b, c, d;
  const auto has = [](uint32_t reg, std::initializer_list<int> bits) {
    return std::all_of(bits.begin(), bits.end(), [&](int bit) { return (reg >> bit & 1) != 0; });
  };
  // osxsave, avx, fma, f16c, popcnt
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, {27, 28, 12, 29, 23})) return {};
  const uint64_t state = enabled_state();
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return {};
  const bool avx2 = (state & 0x6) == 0x6 && has(b, {5, 8});                           // avx2, bmi2; xmm, ymm
  const bool avx512 = avx2 && (state & 0xe6) == 0xe6 && has(b, {16, 17, 30, 31});     // f, dq, bw, vl; opmask, zmm
  const bool tiles = avx512 && (state & 0x60000) == 0x60000 && has(d, {22, 24, 25});  // bf16, tile, int8
  const bool vnni = avx512 && has(c, {11}), vbmi = avx512 && has(c, {1}), fp16 = avx512 && has(d, {23});
  const bool has_leaf_1 = a >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d);
  const bool avx_vnni = avx2 && has_leaf_1 && has(a, {4}), bf16 = avx512 && has_leaf_1 && has(a, {5});
  const bool amx = tiles && request_tile_state();
  return {{"avx2", avx2},        {"avx_vnni", avx_vnni}, {"avx512", avx512},
          {"avx512_vnni", vnni}, {"avx512_vbmi", vbmi},  {"avx512_fp16", fp16},
          {"avx512_bf16", bf16}, {"amx", amx},           {"amx_fp16", amx && has_leaf_1 && has(a, {21})}};
}

}  // namespace

bool cpu_has(std::string_view feature) {
  static const std::vector<Feature> features = detect();
  return std::any_of(features.begin(), features.end(),
                     [&](const Feature& f) { return f.name == feature && f.is_present; });
}
#else
bool cpu_has(std::string_view) { return false; }
#endif

}  // namespace redline
