#include "graph/ops/low_rank.h"

#include "graph/ops/add.h"
#include "graph/ops/conv2d.h"
#include "graph/ops/linear.h"
#include "graph/passes/passes.h"
#include "runtime/executable.h"
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
std::vector<uint8_t> pack(const std::vector<float>& plain, const std::vector<int64_t>& shape, DType type) {
  const auto [rows, cols] = packed_matrix({type, shape, nullptr});
  const std::vector<uint8_t> source = rounded(plain.data(), rows, cols, type);
  std::vector<uint8_t> packed(static_cast<size_t>(packed_bytes(type, rows, cols)));
  pack_strips({type, shape, source.data()}, 0, (rows + 15) / 16, packed.data());
  return packed;
}

/// An adapter's two matrices for a slot of a compiled program.
struct Factors {
  int64_t rank;
  std::vector<float> down, up;
  std::vector<uint8_t> packed_down, packed_up;

  static Factors make(Numbers& n, const AdapterSlot& slot, int64_t rank, float size) {
    Factors f{rank, n.vector(rank * slot.in_features, size), n.vector(slot.out_features * rank, 0.3f), {}, {}};
    if (slot.up_type != DType::kF32)
      for (auto* list : {&f.down, &f.up})
        for (float& v : *list) v = bf16_to_f32(f32_to_bf16(v));
    f.packed_down = pack(f.down, slot.down_shape(rank), slot.down_type);
    f.packed_up = pack(f.up, {slot.out_features, rank}, slot.up_type);
    return f;
  }
  AdapterPart part(float scale) const {
    return {rank, packed_down.data(), packed_up.data(), scale, down.data(), up.data()};
  }
};

class LowRank : public ::testing::TestWithParam<DType> {};

// One or two adapters, in and out again, over float32, bfloat16 and w8a8: what the reference says each time, and
// without any the bits of the product alone.
TEST_P(LowRank, PartsAreSwappedBetweenSteps) {
  const bool exact = GetParam() == DType::kF32;
  constexpr int64_t kIn = 64, kOut = 37, kMaxRows = 40, kMaxRank = 24;
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
  RuntimeResources runtime(3, *kernels.value());
  ExecutableOptions options;
  options.compile.exact_f32 = exact;
  options.compile.bounds = sizes(kMaxRows);
  auto network = Executable::make(*graph, options, runtime), alone = Executable::make(plain, options, runtime);
  options.interpret = true;
  auto reference = Executable::make(*graph, options, runtime);
  ASSERT_TRUE(network.ok() && alone.ok() && reference.ok());

  const Factors first = Factors::make(n, *slots[0], 8, 0.2f), second = Factors::make(n, *slots[0], 16, 0.2f);
  const std::vector<std::vector<AdapterPart>> settings = {
      {}, {first.part(0.7f)}, {first.part(-1.0f), second.part(2.0f)}, {second.part(1.0f)}, {}};
  for (const auto& parts : settings)
    for (const int64_t rows : {1, 5, 16, 17, 40}) {
      slots[0]->parts = parts;
      const std::vector<float> input = n.vector(rows * kIn);
      for (Executable* each : {&*network, &*alone, &*reference}) {
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

/// A convolution with all that one may have around it: norm, bias, bias of items, residual.
struct Convolution {
  int64_t in, out;
  Conv2dAttrs attrs;
  DType type;
  bool has_norm = false, has_residual = false;
};
const Dim kB = Symbol::kBatch, kH = Symbol::kHeight, kW = Symbol::kWidth, kH2 = Symbol::kHeight2, kW2 = Symbol::kWidth2;

Graph graph_of(const Convolution& c, Numbers& n, std::vector<uint8_t>& weight) {
  GraphBuilder g("test");
  const int64_t k = c.attrs.kernel;
  const bool halves = c.attrs.stride == 2;
  const Dim in_height = c.attrs.upsample ? kH2 : kH, in_width = c.attrs.upsample ? kW2 : kW;
  const Dim height = halves ? kH2 : kH, width = halves ? kW2 : kW;
  Value x = g.input("x", DType::kF32, {kB * in_height * in_width, Dim(c.in)});
  WeightSource source = n.weight({c.out, c.in, k, k}, 0.1f);
  if (c.type != DType::kF32) {
    weight = rounded(static_cast<const float*>(source.view.data), c.out, c.in * k * k, c.type);
    source.view = {c.type, source.view.shape, weight.data()};
  }
  if (c.has_norm)
    x = group_norm(g, {x, in_height, in_width}, kB, g.weight("n", n.weight({c.in})), g.weight("nb", n.weight({c.in})),
                   {8, 1e-6f, true});
  const Value items = g.input("items", DType::kF32, {kB, Dim(c.out)});
  const Value y = conv2d(g, {x, in_height, in_width}, kB, g.weight("w", source), g.weight("b", n.weight({c.out})),
                         height, width, c.attrs, items)
                      .value;
  g.output("y", c.has_residual ? add(g, g.input("rest", DType::kF32, {kB * height * width, Dim(c.out)}), y) : y);
  return std::move(g.finish()).value();
}

// As above, beside convolutions by vectors, by patches and by tiles of lines: items in one region and in many, columns
// shared among workers, lines cut into blocks.
TEST(LowRankConvolution, PartsAreSwappedBetweenSteps) {
  const std::vector<Convolution> all = {{8, 20, {}, DType::kF32},
                                        {8, 20, {.stride = 2}, DType::kF32, false, true},
                                        {8, 20, {.upsample = true}, DType::kBF16},
                                        {32, 40, {.stride = 2}, DType::kBF16},
                                        {32, 40, {.upsample = true}, DType::kBF16, false, true},
                                        {64, 72, {}, DType::kBF16, true, true}};
  auto kernels = cpu_kernels();
  ASSERT_TRUE(kernels.ok());
  const auto picture = [](int64_t batch, int64_t height, int64_t width) {
    SymbolValues s;
    s[Symbol::kBatch] = batch;
    set_latent_size(s, height, width);
    return s;
  };
  const std::vector<SymbolValues> steps = {picture(1, 1, 1), picture(2, 3, 5), picture(1, 34, 47)};
  for (const Convolution& c : all) {
    const bool exact = c.type == DType::kF32;
    SCOPED_TRACE(fmt::format("{} channels, stride {}, {}", c.in, c.attrs.stride, dtype_info(c.type).name));
    Numbers n;
    std::vector<uint8_t> weight;
    Graph graph = graph_of(c, n, weight);
    Graph plain = graph;
    const AdapterSlots slots = add_adapter_slots(graph, 24, [](const std::string& name) { return name == "w"; });
    ASSERT_EQ(slots.size(), 1u);
    ExecutableOptions options;
    options.compile.exact_f32 = exact;
    options.compile.bounds = bounds_of(steps);
    options.interpret = true;
    RuntimeResources runtime(1, *kernels.value());
    auto reference = Executable::make(graph, options, runtime);
    options.interpret = false;
    ASSERT_TRUE(run_passes(graph).ok() && run_passes(plain).ok());
    std::vector<std::unique_ptr<RuntimeResources>> runtimes;
    std::vector<Executable> networks;  // the last one without room for adapters
    for (const int workers : {1, 2, 5, 2}) {
      const bool last = networks.size() == 3;
      runtimes.push_back(std::make_unique<RuntimeResources>(workers, *kernels.value()));
      auto network = Executable::make(last ? plain : graph, options, *runtimes.back());
      ASSERT_TRUE(network.ok()) << network.status().message();
      networks.push_back(std::move(network).value());
    }
    const Factors first = Factors::make(n, *slots[0], 8, 0.1f), second = Factors::make(n, *slots[0], 3, 0.1f);
    const std::vector<std::vector<AdapterPart>> settings = {
        {}, {first.part(0.7f)}, {first.part(-1.0f), second.part(2.0f)}, {second.part(1.0f)}, {}};
    for (const auto& parts : settings)
      for (const SymbolValues& now : steps) {
        slots[0]->parts = parts;
        std::map<std::string, std::vector<float>> in;
        for (const Executable::Port& port : reference->inputs())
          in[port.name] = n.vector(num_elements(port.shape).eval(now));
        const auto run = [&](Executable& network) {
          for (const auto& [name, values] : in) std::copy(values.begin(), values.end(), network.input(name));
          ASSERT_TRUE(network.run(now).ok());
        };
        run(*reference);
        for (Executable& network : networks) run(network);
        const int64_t count = num_elements(reference->outputs()[0].shape).eval(now);
        double most = 0, error = 0;
        bool same_on_all = true, same_as_alone = true;
        for (int64_t i = 0; i < count; ++i) {
          const double expected = reference->output("y")[i];
          const float got = networks[0].output("y")[i];
          most = std::max(most, std::abs(expected));
          error = std::max(error, std::abs(got - expected));
          same_on_all &= got == networks[1].output("y")[i] && got == networks[2].output("y")[i];
          same_as_alone &= got == networks[3].output("y")[i];
        }
        // float32: 72 + 24 roundings. bfloat16: x, x down^T and, by the norm before, what it made, each to 2^-9.
        EXPECT_LE(error, most * (exact ? 1e-5 : 1.5e-2)) << parts.size() << " parts";
        EXPECT_TRUE(same_on_all) << parts.size() << " parts";
        EXPECT_EQ(same_as_alone, parts.empty());
      }
  }
}

}  // namespace
}  // namespace redline::test
