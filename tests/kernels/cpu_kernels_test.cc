// Choosing the table: which sets there are, what REDLINE_CPU_ISA may say, which set serves which kernel; tiles; peaks.
#include "kernels/cpu/cpu_kernels.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <map>

#include "kernels/cpu/linear/linear_choice.h"
#include "support/isa_test.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using Table = IsaTest;
using Tiles = IsaTest;
using Peaks = IsaTest;

std::vector<std::string> isas(bool supported) {
  std::vector<std::string> names;
  int count = 0;
  const CpuIsa* all = cpu_isas(&count);
  for (int i = 0; i < count; ++i)
    if (all[i].supported() == supported) names.push_back(all[i].name);
  return names;
}

TEST(CpuKernels, UnknownNameListsTheGoodOnesAndTheNearest) {
  const Result<CpuKernels> table = cpu_kernels_for("nonsense");
  ASSERT_FALSE(table.ok());
  EXPECT_EQ(table.status().code(), Code::invalid_argument);
  EXPECT_THAT(table.status().message(), HasSubstr("\"nonsense\""));
  for (const std::string& name : isas(true)) EXPECT_THAT(table.status().message(), HasSubstr(name));
  EXPECT_THAT(cpu_kernels_for("genric").status().message(), HasSubstr("did you mean \"generic\"?"));
}

TEST(CpuKernels, NamesCompareExactly) {
  for (const char* name : {"Generic", "GENERIC", "generic ", " generic", "gen", "generic,avx2"})
    EXPECT_FALSE(cpu_kernels_for(name).ok()) << name;
}

TEST(CpuKernels, ASetThatTheMachineLacksIsAnError) {
  const std::vector<std::string> lacking = isas(false);
  if (lacking.empty()) GTEST_SKIP() << "this machine has every instruction set of the build";
  for (const std::string& name : lacking) {
    const Result<CpuKernels> table = cpu_kernels_for(name);
    ASSERT_FALSE(table.ok()) << name;
    EXPECT_THAT(table.status().message(), HasSubstr("lacks the instruction set \"" + name + "\"; it has generic"));
  }
}

TEST(CpuKernels, ASuffixTakesThePathsOfAnotherKindOfCpu) {
  for (const std::string& name : isas(true)) {
    const Result<CpuKernels> plain = cpu_kernels_for(name), tiles = cpu_kernels_for(name + "+tiles"),
                             dots = cpu_kernels_for(name + "+bf16_dot");
    ASSERT_TRUE(plain.ok() && tiles.ok() && dots.ok()) << name;
    EXPECT_TRUE(tiles->has_tile_unit);
    for (int t = 0; t < kNumDTypes; ++t) EXPECT_EQ(tiles->linear_i8[t], plain->linear_i8_tiles[t]);
    EXPECT_TRUE(dots->has_fast_bf16_dot);
    EXPECT_EQ(dots->has_tile_unit, plain->has_tile_unit);
    const auto uses_bf16 = [](const CpuKernels& table, DType type) {
      const ActivationLayouts forms = choose_linear(table, type, false).layouts;
      return forms.at[forms.count - 1].layout == ActivationLayout::kBf16Tiled;
    };
    EXPECT_TRUE(uses_bf16(*tiles, DType::kF16)) << name;
    EXPECT_TRUE(uses_bf16(*dots, DType::kBF16)) << name;
    // Neither dots nor tiles round the weights of a float32 file.
    EXPECT_FALSE(uses_bf16(*dots, DType::kF32) || uses_bf16(*tiles, DType::kF32)) << name;
    // A float16 weight has more bits than bfloat16 keeps: only where tiles make that many times as fast.
    EXPECT_EQ(uses_bf16(*dots, DType::kF16), plain->has_tile_unit) << name;
  }
  EXPECT_THAT(cpu_kernels_for("generic+magic").status().message(), HasSubstr("unknown suffix \"+magic\""));
  EXPECT_THAT(cpu_kernels_for("genric+tiles").status().message(), HasSubstr("did you mean \"generic\"?"));
}

TEST(CpuKernels, ASetIsLeftOutLackingOrThereButNeverUnknown) {
  const auto known = isas(false);
  for (const char* name :
       {"generic", "avx2", "avx2_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx", "amx_fp16"}) {
    const Result<CpuKernels> table = cpu_kernels_for(name);
    if (table.ok()) continue;
    const bool is_compiled = std::find(known.begin(), known.end(), name) != known.end();
    EXPECT_THAT(table.status().message(), HasSubstr(is_compiled ? "this machine lacks the instruction set"
                                                                : "Build with -DREDLINE_CPU_ISAS= (all instruction"))
        << name;
  }
}

// The variable is read once in a process, so each of these asks a child of its own.
void ask(const char* value) {
  setenv("REDLINE_CPU_ISA", value, 1);
  const Result<const CpuKernels*> table = cpu_kernels();
  if (!table.ok()) {
    fmt::print(stderr, "{}\n", table.status().to_string());
    std::exit(exit_code(table.status().code()));
  }
  fmt::print(stderr, "in use: [{}]\n", cpu_isa_in_use());
  std::exit(0);
}
TEST(CpuKernelsDeathTest, TheVariableCapsTheTable) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(ask("nonsense"), ::testing::ExitedWithCode(2),
              "invalid_argument: REDLINE_CPU_ISA: unknown instruction set .nonsense.; this machine has generic");
  EXPECT_EXIT(ask("generic"), ::testing::ExitedWithCode(0), "in use: .generic]");
  EXPECT_EXIT(ask("generic+tiles"), ::testing::ExitedWithCode(0), "in use: .generic.tiles]");
  EXPECT_EXIT(ask(""), ::testing::ExitedWithCode(0), "in use: ." + isas(true).back() + "]");
}

TEST_P(Table, EveryKernelComesFromTheRichestSetThatHasIt) {
  int count = 0;
  const CpuIsa* all = cpu_isas(&count);
  std::map<std::string, std::string> origin;
  for (const KernelOrigin& o : kernel_origins(kernels())) origin[o.kernel] = o.isa;
  const std::string base = all[base_isa(GetParam())].name;
  for (const char* kernel : {"rms_norm", "rope", "silu_mul", "add", "exp", "read_bytes", "peak_f32", "kv_append.f32",
                             "kv_append.f16", "kv_append.bf16", "attention.f32"})
    EXPECT_EQ(origin[kernel], base) << kernel;
  // Nothing from above the cap.
  for (const auto& [kernel, isa] : origin) {
    for (int i = GetParam() + 1; i < count; ++i) EXPECT_NE(isa, all[i].name) << kernel;
    // A base set replaces what the overlays of the one before it have.
    if (base == "avx512") {
      EXPECT_NE(isa, "avx2_vnni") << kernel;
    }
  }
  const std::string name = all[GetParam()].name;
  const std::map<std::string, std::vector<std::string>> own = {
      {"avx2_vnni",
       {"peak_i8", "linear_q8.q4_0", "linear_q8.q8_0", "linear_q8.q4_k", "linear_q8.q6_k", "linear_q8.w8a8",
        "linear_i8.w8a8", "linear.i8"}},
      {"avx512_vnni", {"peak_i8"}},
      {"avx512_bf16", {"peak_bf16", "linear_tiles.bf16"}},
      {"avx512_fp16", {"peak_f16"}},
      {"amx_fp16", {"peak_f16"}},
      {"amx",
       {"tile_product", "worker_begin", "worker_end", "peak_i8", "peak_bf16", "linear_tiles.q4_0", "attention.f16",
        "attention.bf16"}}};
  if (const auto row = own.find(name); row != own.end()) {
    for (const std::string& kernel : row->second) EXPECT_EQ(origin[kernel], name) << kernel;
  }
}

// Every table's tile product against plain sums; with amx these are the instructions, elsewhere the stand-in.
TEST_P(Tiles, ByteProductsAreExact) {
  for (TileProductArgs::Kind kind : {TileProductArgs::kS8S8, TileProductArgs::kU8S8}) {
    for (uint64_t seed = 0; seed < 4; ++seed) {
      const std::vector<float> bytes = test_values(2048, seed, 256.0f);
      std::vector<int8_t> a(1024), b(1024);
      std::vector<int32_t> c(256);
      for (int i = 0; i < 1024; ++i) a[i] = static_cast<int8_t>(static_cast<int>(bytes[i]));
      for (int i = 0; i < 1024; ++i) b[i] = static_cast<int8_t>(static_cast<int>(bytes[1024 + i]));
      if (seed == 0) a.assign(1024, -128), b.assign(1024, -128);  // the largest products
      for (int i = 0; i < 256; ++i) c[i] = i * 1000 - 99;
      std::vector<int32_t> want = c;
      for (int m = 0; m < 16; ++m)
        for (int n = 0; n < 16; ++n)
          for (int k = 0; k < 64; ++k) {
            const int left = kind == TileProductArgs::kU8S8 ? static_cast<uint8_t>(a[m * 64 + k]) : a[m * 64 + k];
            want[m * 16 + n] += left * b[k / 4 * 64 + n * 4 + k % 4];
          }
      kernels().tile_product({kind, a.data(), b.data(), c.data()});
      EXPECT_EQ(c, want);
    }
  }
}

TEST_P(Tiles, BFloatProductsHaveTheInstructionsBits) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const std::vector<float> values = test_values(1024, seed, seed % 2 == 0 ? 1.0f : 1e9f);
    std::vector<uint16_t> a(512), b(512);
    for (int i = 0; i < 512; ++i) a[i] = f32_to_bf16(values[i]), b[i] = f32_to_bf16(values[512 + i]);
    std::vector<float> c = test_values(256, seed + 100), want = c;
    std::vector<double> exact(c.begin(), c.end()), magnitude(256);
    for (int m = 0; m < 16; ++m)
      for (int n = 0; n < 16; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < 16; ++k) {
          const float a0 = bf16_to_f32(a[m * 32 + 2 * k]), a1 = bf16_to_f32(a[m * 32 + 2 * k + 1]);
          const float b0 = bf16_to_f32(b[k * 32 + 2 * n]), b1 = bf16_to_f32(b[k * 32 + 2 * n + 1]);
          even = std::fma(a0, b0, even), odd = std::fma(a1, b1, odd);
          exact[m * 16 + n] += double{a0} * b0 + double{a1} * b1;
          magnitude[m * 16 + n] += std::abs(double{a0} * b0) + std::abs(double{a1} * b1);
        }
        want[m * 16 + n] += even + odd;
      }
    kernels().tile_product({TileProductArgs::kBF16, a.data(), b.data(), c.data()});
    EXPECT_EQ(c, want);
    for (int i = 0; i < 256; ++i) EXPECT_NEAR(c[i], exact[i], 18 * kRounding * (magnitude[i] + 1));
  }
}

TEST_P(Peaks, CountTheirOperations) {
  EXPECT_EQ(kernels().peak_f32(0), 0);
  EXPECT_GT(kernels().peak_f32(10), 0);
  EXPECT_EQ(kernels().peak_f32(20), 2 * kernels().peak_f32(10));
  for (PeakFn peak : {kernels().peak_bf16, kernels().peak_i8}) {
    if (peak == nullptr) continue;
    EXPECT_EQ(peak(20), 2 * peak(10));
  }
}

TEST_P(Peaks, ReadStaysInsideItsBytes) {
  // The checksum depends on every whole line, and on nothing after the end.
  for (int64_t bytes : {0, 4095, 4096, 65536, 65536 + 4096 + 100}) {
    std::vector<uint8_t> data(bytes + 64, 1);
    const uint64_t check = kernels().read_bytes(data.data(), bytes);
    for (int64_t i = bytes; i < bytes + 64; ++i) data[i] = 9;
    EXPECT_EQ(kernels().read_bytes(data.data(), bytes), check);
    if (bytes < 4096) continue;
    data[bytes / 2] ^= 1;
    EXPECT_NE(kernels().read_bytes(data.data(), bytes), check);
  }
}

REDLINE_INSTANTIATE_PER_ISA(Table);
REDLINE_INSTANTIATE_PER_ISA(Tiles);
REDLINE_INSTANTIATE_PER_ISA(Peaks);

}  // namespace
}  // namespace redline
