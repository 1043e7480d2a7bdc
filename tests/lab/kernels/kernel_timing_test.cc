// Kernels under `bench --kernel`: right ones pass on every instruction set, wrong ones are found out. Nothing here
// depends on how long anything takes.
#include "lab/kernels/kernel_timing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "lab/kernels/kernel_score.h"
#include "lab/kernels/random_matrix.h"

namespace redline::lab {
namespace {

KernelTiming timed(const KernelWorkload& workload, const CpuKernels& table, KernelBenchOptions options = {}) {
  auto kernel_case = make_kernel_case(workload, table);
  EXPECT_TRUE(kernel_case.ok()) << kernel_case.status().to_string();
  if (!kernel_case.ok()) return {};
  options.seconds = 0;
  auto timing = time_kernel(**kernel_case, table, options);
  EXPECT_TRUE(timing.ok()) << timing.status().to_string();
  return timing.ok() ? *timing : KernelTiming();
}

/// Returns two workloads of every kind, one of a whole shape and one of a ragged shape, for every type that has such a
/// kernel.
std::vector<KernelWorkload> everything(const CpuKernels& table) {
  std::vector<KernelWorkload> all;
  for (const KernelKind& kind : kernel_kinds()) {
    const std::string name(kind.name);
    std::vector<std::string> types = {""};
    if (name == "prepare_x") types = {"q8", "tiles"};
    if (name == "onednn") continue;  // the same on every set; a test of its own
    if (name == "attention") types = {"f32", "f16", "bf16"};
    if (kind.type == "weight type") {
      types.clear();
      for (const DType type : weight_dtypes()) types.emplace_back(dtype_info(type).name);
    }
    std::vector<std::vector<int64_t>> shapes = {{256}, {96}};
    if (kind.shape == "NxK" || kind.shape == "VxH") shapes = {{48, 256}, {33, 768}};
    if (name == "sampler") types = sampler_type_names();
    if (kind.shape == "V") shapes = {{8192}, {5003}, {96}};
    if (kind.shape == "HEADSxD") shapes = {{4, 64}, {3, 10}};
    if (name.starts_with("conv_")) types = {"f32", "f16", "bf16"};
    if (kind.shape == "CxHxW") shapes = {{32, 5, 19}, {13, 4, 3}};
    if (kind.shape == "NxCxFxHxW") shapes = {{16, 32, 2, 5, 6}, {5, 3, 3, 4, 3}};
    if (kind.shape == "NxCxL") shapes = {{16, 32, 40}, {5, 3, 7}};
    if (kind.shape == "NxCxHxW") shapes = {{16, 32, 5, 6}, {5, 3, 3, 4}};
    if (kind.shape == "KVxGxDxP") shapes = {{2, 4, 64, 70}, {3, 1, 17, 600}};
    for (const std::string& type : types)
      for (const auto& shape : shapes)
        for (const int64_t rows : {1, 19}) {
          const KernelWorkload workload = {name, type, rows, shape};
          if (make_kernel_case(workload, table).status().code() != Code::unsupported) all.push_back(workload);
        }
  }
  return all;
}

TEST(KernelBench, EveryKernelOfEverySetPassesItsCheck) {
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  for (int i = 0; i < count; ++i) {
    if (!isas[i].supported()) continue;
    SCOPED_TRACE(isas[i].name);
    const CpuKernels table = *cpu_kernels_for(isas[i].name);
    const std::vector<KernelWorkload> all = everything(table);
    EXPECT_GT(all.size(), 60u);
    std::map<std::string, std::string> origin;
    for (const KernelOrigin& o : kernel_origins(table)) origin[o.kernel] = o.isa;
    for (const KernelWorkload& workload : all) {
      // Kernels that an instruction set takes from a set below it have been run there.
      const auto from = origin.find(kernel_entry_name(workload));
      if (from != origin.end() && from->second != isas[i].name) continue;
      SCOPED_TRACE(::testing::Message() << kernel_entry_name(workload) << " rows " << workload.rows << " of "
                                        << fmt::format("{}", fmt::join(workload.shape, "x")));
      const KernelTiming t = timed(workload, table, {.cached = true, .seeds = 2});
      EXPECT_EQ(t.failure, "");
      EXPECT_LE(t.check.of_bound, 1.0);
      EXPECT_EQ(t.seeds, 2);
      EXPECT_GE(static_cast<int64_t>(t.seconds.size()), kMinIterations);
      EXPECT_TRUE(std::is_sorted(t.seconds.begin(), t.seconds.end()));
    }
  }
}

TEST(KernelBench, RotatesAndSharesTheWork) {
  const CpuKernels table = *cpu_kernels_for("");
  for (const char* kernel : {"linear_q8", "silu_mul", "attention", "prepare_x", "embedding"}) {
    SCOPED_TRACE(kernel);
    const bool is_plain = std::string_view(kernel) == "silu_mul";
    KernelWorkload workload = {kernel, is_plain ? "" : "q4_0", 5, {256, 4096}};
    if (is_plain) workload.shape = {4096};
    if (workload.kernel == "attention") workload.type = "f16", workload.shape = {2, 2, 64, 900};
    if (workload.kernel == "prepare_x") workload.type = "q8", workload.shape = {4096};
    if (workload.kernel == "embedding") workload.type = "q8_0";
    const KernelTiming t = timed(workload, table, {.threads = 2, .seeds = 2, .rotation_bytes = int64_t{16} << 20});
    EXPECT_EQ(t.failure, "");
    EXPECT_GT(t.slots, 8);
    EXPECT_LE(t.runs_per_iteration, t.slots) << "an output would be written twice in a lap";
  }
}

TEST(KernelBench, OneDnnMultipliesTheSame) {
  const CpuKernels table = *cpu_kernels_for("");
  const auto available = make_kernel_case({"onednn", "f32", 1, {16, 32}}, table);
  if (!available.ok()) GTEST_SKIP() << available.status().to_string();
  std::string left_out;
  for (const char* type : {"f32", "bf16", "w8a8"}) {
    // The types that oneDNN multiplies depend on the CPU: no bfloat16 without AVX-512, no exact int8 sums without VNNI.
    const auto workload = make_kernel_case({"onednn", type, 37, {130, 1056}}, table);
    if (!workload.ok()) {
      EXPECT_EQ(workload.status().code(), Code::unsupported);
      EXPECT_STRNE(type, "f32") << workload.status().to_string();
      left_out += fmt::format("{}: {}; ", type, workload.status().message());
      continue;
    }
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(::testing::Message() << type << " " << threads);
      // Two columns are fewer than three workers.
      for (const auto& shape : {std::vector<int64_t>{2, 64}, {130, 1056}}) {
        const KernelTiming t = timed({"onednn", type, 37, shape, threads}, table,
                                     {.threads = threads, .seeds = 2, .rotation_bytes = 1 << 20});
        EXPECT_EQ(t.failure, "");
        EXPECT_GT(t.check.elements, 0);
      }
    }
  }
  if (!left_out.empty() && !HasFailure()) GTEST_SKIP() << "the rest passed; " << left_out;
}

// Kernels that cheat, each in its way.
int calls = 0;
void linear_nothing(const LinearArgs&) {}
void linear_right(const LinearArgs& a) {
  static const CpuKernels generic = *cpu_kernels_for("generic");
  generic.linear[static_cast<int>(DType::kF32)](a);
}
void linear_a_little_off(const LinearArgs& a) {
  linear_right(a);
  for (int64_t i = 0; i < a.rows * a.y_stride; ++i) a.y[i] *= 1.0f + 0x1p-10f;
}
void linear_one_element_missing(const LinearArgs& a) {
  linear_right(a);
  a.y[a.rows * a.y_stride - 1] = NAN;
}
void linear_right_until_it_is_timed(const LinearArgs& a) {
  linear_right(a);
  if (++calls > 12) a.y[0] += 1;
}
std::vector<float> kept;
void linear_keeps_its_answer(const LinearArgs& a) {
  const auto count = static_cast<size_t>(a.rows * a.y_stride);
  // Right for fresh inputs, until it believes that nothing new comes.
  if (++calls <= 11) {
    linear_right(a);
    kept.assign(a.y, a.y + count);
  } else {
    std::memcpy(a.y, kept.data(), count * 4);
  }
}

TEST(KernelBench, FindsWrongKernelsOut) {
  struct Case {
    void (*fn)(const LinearArgs&);
    const char* failure;
  };
  for (const Case& c : {Case{linear_right, ""},
                        {linear_nothing, "wrong answer"},
                        {linear_a_little_off, "wrong answer"},
                        {linear_one_element_missing, "wrong answer"},
                        {linear_right_until_it_is_timed, "another answer"},
                        {linear_keeps_its_answer, "another answer"}}) {
    calls = 0;
    CpuKernels table = *cpu_kernels_for("generic");
    table.linear[static_cast<int>(DType::kF32)] = c.fn;
    const KernelTiming t = timed({"linear", "f32", 3, {32, 64}}, table, {.rotation_bytes = 1 << 20});
    if (*c.failure == 0) EXPECT_EQ(t.failure, "");
    else EXPECT_NE(t.failure.find(c.failure), std::string::npos) << t.failure << " expected " << c.failure;
  }
}

TEST(KernelBench, SaysWhatCannotBeMeasured) {
  const CpuKernels table = *cpu_kernels_for("generic");
  const auto said = [&](const KernelWorkload& workload) {
    return make_kernel_case(workload, table).status().to_string();
  };
  EXPECT_NE(said({"lineal", "q4_0", 1, {16, 32}}).find("there is no kernel \"lineal\""), std::string::npos);
  EXPECT_NE(said({"linear", "", 1, {16, 32}}).find("needs a type"), std::string::npos);
  EXPECT_NE(said({"add", "f32", 1, {32}}).find("has no type"), std::string::npos);
  EXPECT_NE(said({"linear", "q4_0", 1, {16}}).find("needs a shape NxK"), std::string::npos);
  EXPECT_NE(said({"linear", "q4_0", 1, {16, 33}}).find("block of 32"), std::string::npos);
  EXPECT_NE(said({"linear", "q4_9", 1, {16, 32}}).find("q4_9"), std::string::npos);
  EXPECT_NE(said({"linear", "q4_0", 0, {16, 32}}).find("rows: 0"), std::string::npos);
  EXPECT_NE(said({"linear", "q4_0", 1, {16, int64_t{1} << 40}}).find("out of range"), std::string::npos);
  EXPECT_NE(said({"linear", "q4_0", 1, {1 << 24, 1 << 24}}).find("elements"), std::string::npos);
  EXPECT_NE(said({"linear_q8", "f32", 1, {16, 32}}).find("has no kernel linear_q8.f32"), std::string::npos);
  EXPECT_NE(said({"prepare_x", "q9", 1, {32}}).find("no form \"q9\""), std::string::npos);
  EXPECT_NE(said({"onednn", "q4_0", 9, {16, 32}}).find("not \"q4_0\""), std::string::npos);
  EXPECT_NE(said({"attention", "f16", 9, {1, 1, 64, 8}}).find("9 rows are more than the 8"), std::string::npos);
  EXPECT_NE(said({"attention", "q4_0", 1, {1, 1, 64, 8}}).find("no cache of type"), std::string::npos);
}

TEST(KernelScore, FollowsItsFormula) {
  EXPECT_DOUBLE_EQ(sol_score(1, 4, 1), 1);    // at the bound
  EXPECT_DOUBLE_EQ(sol_score(4, 4, 1), 0.5);  // at the baseline
  EXPECT_DOUBLE_EQ(sol_score(7, 4, 1), 1.0 / 3);
  EXPECT_GT(sol_score(0.5, 4, 1), 1);  // what the audit is for
  EXPECT_DOUBLE_EQ(sol_score(2, 1, 1), 0);
  EXPECT_DOUBLE_EQ(sol_score(1, 0.5, 1), 1);
}

MachinePeaks some_ceilings() {
  MachinePeaks peaks;
  const auto row = [](const char* name, double one, double all) {
    Peak c;
    c.name = name, c.per_thread = one, c.all = all;
    return c;
  };
  peaks.rows = {row("read", 10, 20), row("f32", 100, 200), row("bf16", 1000, 2000)};
  return peaks;
}

TEST(KernelScore, TheLongerOfMovingAndComputingIsTheBound) {
  const MachinePeaks peaks = some_ceilings();
  const KernelCase::Cost cost = {50e9, 20e9, 300e9, "f32"};
  EXPECT_DOUBLE_EQ(kernel_bound(cost, peaks, 1, false).seconds, 3);
  EXPECT_EQ(kernel_bound(cost, peaks, 1, false).by, "f32");
  EXPECT_DOUBLE_EQ(kernel_bound(cost, peaks, 2, false).seconds, 1.5);
  EXPECT_EQ(kernel_bound({50e9, 20e9, 300e9, "f32 f16 bf16"}, peaks, 1, false).by, "read");
  EXPECT_DOUBLE_EQ(kernel_bound({50e9, 20e9, 300e9, "f32 f16 bf16"}, peaks, 1, true).seconds, 0.3);
  EXPECT_EQ(kernel_bound({50e9, 20e9, 300e9, "int8"}, peaks, 1, true).seconds, 0) << "nothing that was measured";
  EXPECT_EQ(kernel_bound({50e9, 20e9, 300e9, ""}, peaks, 1, false).by, "read");
}

TEST(KernelScore, AuditHoldsBackWhatIsNotToBeBelieved) {
  KernelTiming timing;
  timing.seconds = {1.0, 1.01, 1.02, 1.03, 1.5};
  EXPECT_EQ(audit_kernel(timing, {0.9, "read"}).status, KernelStatus::kPassed);
  EXPECT_EQ(audit_kernel(timing, {1.01, "read"}).status, KernelStatus::kPassed) << "within what ceilings repeat";
  const KernelVerdict fast = audit_kernel(timing, {1.1, "read"});
  EXPECT_EQ(fast.status, KernelStatus::kQuarantined);
  EXPECT_NE(fast.why.find("faster than the bound of 1.1 s by read"), std::string::npos) << fast.why;
  timing.seconds = {1.0, 1.0, 1.4, 2.0, 3.0};
  EXPECT_EQ(audit_kernel(timing, {0.5, "read"}).status, KernelStatus::kUnsteady);
  timing.failure = "wrong answer";
  EXPECT_EQ(audit_kernel(timing, {0.5, "read"}).status, KernelStatus::kWrong);
  EXPECT_EQ(audit_kernel({}, {0.5, "read"}).status, KernelStatus::kWrong) << "nothing was timed";
}

TEST(KernelScore, EveryKernelHasSources) {
  const CpuKernels table = *cpu_kernels_for("");
  for (const KernelWorkload& workload : everything(table))
    EXPECT_EQ(kernel_sources_hash(kernel_entry_name(workload)).size(), 64u) << kernel_entry_name(workload);
  EXPECT_EQ(kernel_sources_hash("linear.q4_0"), kernel_sources_hash("linear_q8.q8_0"));
  EXPECT_NE(kernel_sources_hash("linear.q4_0"), kernel_sources_hash("attention.f16"));
  EXPECT_EQ(kernel_sources_hash("lineal"), "");
}

}  // namespace
}  // namespace redline::lab
