#include "graph/ops/low_rank.h"

#include "graph/ops/linear.h"
#include "graph/passes/passes.h"
#include "runtime/network.h"
#include "support/graph_harness.h"
#include "tensor/packed_weight.h"

namespace redline::test {
namespace {

/// Row-major bytes, rounded to nearest.
std::vector<uint8_t> rounded(const float* plain, int64_t rows, int64_t cols, DType type) {
  std::vector<uint8_t> source;
  const int64_t bytes = row_bytes(type, cols);
  source.resize(static_cast<size_t>(rows * bytes));
  for (int64_t r = 0; type == DType::kW8A8 && r < rows; ++r) {
    float most = 0;
    for (int64_t i = 0; i < cols; ++i) most = std::max(most, std::abs(plain[r * cols + i]));
    const float scale = most / 127;
    uint8_t* row = source.data() + r * bytes;
    for (int64_t i = 0; i < cols; ++i)
      row[i] = static_cast<uint8_t>(static_cast<int8_t>(std::nearbyint(plain[r * cols + i] / scale)));
    std::memcpy(row + cols, &scale, sizeof(scale));
  }
  for (int64_t i = 0; type != DType::kW8A8 && i < rows * cols; ++i) {
    const float v = plain[i];
    const uint16_t half = f32_to_bf16(v);
    if (type == DType::kF32) std::memcpy(source.data() + 4 * i, &v, 4);
    else std::memcpy(source.data() + 2 * i, &half, 2);
  }
  return source;
}
std::vector<uint8_t> pack(const std::vector<float>& plain, int64_t rows, int64_t cols, DType type) {
  const std::vector<uint8_t> source = rounded(plain.data(), rows, cols, type);
  std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(type, rows, cols)));
  pack_strips({type, {rows, cols}, source.data()}, 0, (rows + 15) / 16, packed.data());
  return packed;
}

class LowRank : public ::testing::TestWithParam<DType> {};

// One or two adapters, in and out again, over float32, bfloat16 and w8a8: what the reference says each time, and
// without any the bits of the product alone.
TEST_P(LowRank, PartsAreSwappedBetweenSteps) {
  const bool exact = GetParam() == DType::kF32;
  constexpr int64_t kIn = 64, kOut = 37, kMostRows = 40, kMaxRank = 24;
  Numbers n;
  GraphBuilder g("test");
  const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(kIn)});
  WeightSource weight = n.weight({kOut, kIn}, 0.1f);
  std::vector<uint8_t> own;
  if (!exact) {
    own = rounded(static_cast<const float*>(weight.view.data), kOut, kIn, GetParam());
    weight.view = {GetParam(), {kOut, kIn}, own.data()};
  }
  g.output("y", linear(g, x, g.weight("w", weight)));
  auto graph = g.finish();
  ASSERT_TRUE(graph.ok());
  const Graph plain = *graph;
  const AdapterSlots slots = add_adapter_slots(*graph, kMaxRank, [](const std::string& name) { return name == "w"; });
  ASSERT_EQ(slots.size(), 1u);
  EXPECT_EQ(slots[0]->weight, "w");

  auto kernels = cpu_kernels();
  ASSERT_TRUE(kernels.ok());
  WorkerTeam team(3, std::pair{kernels.value()->worker_begin, kernels.value()->worker_end});
  NetworkOptions options;
  options.compile.kernels = kernels.value();
  options.compile.exact_f32 = exact;
  options.compile.bounds = sizes(kMostRows);
  auto network = Network::make(*graph, options, team), alone = Network::make(plain, options, team);
  options.interpret = true;
  auto reference = Network::make(*graph, options, team);
  ASSERT_TRUE(network.ok() && alone.ok() && reference.ok());

  struct Plain {
    std::vector<float> down, up;
    std::vector<uint8_t> packed_down, packed_up;
  };
  const auto make = [&](int64_t rank) {
    Plain p{n.vector(rank * kIn, 0.2f), n.vector(kOut * rank, 0.3f), {}, {}};
    if (!exact)
      for (auto* list : {&p.down, &p.up})
        for (float& v : *list) v = bf16_to_f32(f32_to_bf16(v));
    p.packed_down = pack(p.down, rank, kIn, slots[0]->down_type);
    p.packed_up = pack(p.up, kOut, rank, slots[0]->up_type);
    return p;
  };
  const Plain first = make(8), second = make(16);
  const auto part = [](const Plain& p, int64_t rank, float scale) {
    return AdapterPart{rank, p.packed_down.data(), p.packed_up.data(), scale, p.down.data(), p.up.data()};
  };
  const std::vector<std::vector<AdapterPart>> settings = {
      {}, {part(first, 8, 0.7f)}, {part(first, 8, -1.0f), part(second, 16, 2.0f)}, {part(second, 16, 1.0f)}, {}};
  for (const auto& parts : settings)
    for (const int64_t rows : {1, 5, 16, 17, 40}) {
      slots[0]->parts = parts;
      const std::vector<float> input = n.vector(rows * kIn);
      for (Network* each : {&*network, &*alone, &*reference}) {
        std::copy(input.begin(), input.end(), each->input("x"));
        ASSERT_TRUE(each->run(sizes(rows)).ok());
      }
      double most = 0, error = 0;
      bool same_as_alone = true;
      for (int64_t i = 0; i < rows * kOut; ++i) {
        const double expected = reference->output("y")[i];
        most = std::max(most, std::abs(expected));
        error = std::max(error, std::abs(network->output("y")[i] - expected));
        same_as_alone &= network->output("y")[i] == alone->output("y")[i];
      }
      // float32: 64 + 24 roundings; bfloat16: x, and x down^T again, to 2^-9 each; w8a8: x and down to their rows'
      // largest over 254, 0.6 % each of a normal row of 64, of a largest output that is 2.5 times as large as most for
      // up to 4.5 deviations.
      EXPECT_LE(error, most * (exact                        ? 1e-5
                               : GetParam() == DType::kBF16 ? 1.5e-2
                                                            : 2.5e-2))
          << rows << " rows, " << parts.size() << " parts";
      EXPECT_EQ(same_as_alone, parts.empty());
    }
}

INSTANTIATE_TEST_SUITE_P(Types, LowRank, ::testing::Values(DType::kF32, DType::kBF16, DType::kW8A8),
                         [](const auto& info) { return std::string(dtype_info(info.param).name); });

}  // namespace
}  // namespace redline::test
