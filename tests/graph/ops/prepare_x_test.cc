#include "graph/ops/prepare_x.h"

#include "graph/ops/linear.h"
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/quantize.h"
#include "support/rounded_products.h"

namespace redline::test {
namespace {

void unit_matrix(testing::RandomWeight& w) {
  std::vector<float> row(static_cast<size_t>(w.k));
  for (int64_t r = 0; r < w.k; ++r) {
    uint8_t* bytes = w.bytes.data() + r * row_bytes(w.dtype, w.k);
    std::fill(row.begin(), row.end(), 0.0f);
    row[static_cast<size_t>(r)] = 1;
    if (w.dtype == DType::kW8A8) {
      const float scale = 1.0f / 127;
      std::memset(bytes, 0, static_cast<size_t>(w.k));
      bytes[r] = 127;
      std::memcpy(bytes + w.k, &scale, sizeof(scale));
    } else if (w.dtype == DType::kF32) {
      std::memcpy(bytes, row.data(), static_cast<size_t>(w.k) * sizeof(float));
    } else if (w.dtype == DType::kBF16) {
      for (int64_t c = 0; c < w.k; ++c)
        reinterpret_cast<uint16_t*>(bytes)[c] = f32_to_bf16(row[static_cast<size_t>(c)]);
    } else {
      const QuantizeFn quantize = cpu_kernels().value()->quantize[static_cast<size_t>(w.dtype)];
      ASSERT_TRUE(quantize({DType::kF32, row.data(), nullptr, bytes, 1, w.k}));
    }
    unpack_row(w.dtype, bytes, w.values.data() + r * w.k, w.k);
  }
}

}  // namespace

// Products with the unit matrix give back what an activation was rounded to.
TEST(PrepareXOp, RoundsAsItsLayoutSaysOnceForAllReaders) {
  for (const DType type : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kW8A8})
    for (const int64_t k : {int64_t{32}, int64_t{160}})
      for (const bool exact : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {}{}", dtype_info(type).name, k, exact ? " exact" : ""));
        testing::RandomWeight unit(type, k, k, 1);
        unit_matrix(unit);
        for (int64_t r = 0; r < k; ++r)
          for (int64_t c = 0; c < k; ++c)
            ASSERT_NEAR(unit.values[static_cast<size_t>(r * k + c)], r == c ? 1 : 0, 1e-3) << "the unit matrix";
        std::fill(unit.moves.begin(), unit.moves.end(), 0.0f);  // of scales that are powers of two or kept as they are
        unit.parts = unit.values;
        unit.largest.assign(unit.values.size(), 8.0f / 7);  // at most: codes go to -8 or -128, and 1 may be 7 or 127
        for (float& part : unit.parts) part = std::abs(part);

        GraphBuilder g("test");
        const Value x = g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(k)});
        const auto product = [&](const char* name) {
          return linear(g, x, g.weight(name, {.view = unit.view(), .source_row = {}, .file = {}}));
        };
        const Value first = product("first");
        g.output("y", first);
        g.output("z", product("second"));
        const Graph graph = std::move(g.finish()).value();
        Compiled c = Compiled::make(graph, 2, sizes(83), {.exact_f32 = exact});
        int prepared = 0;
        for (const StagePlan& stage : c.program->stages) prepared += stage.op == kPrepareX.name;
        const CpuTarget target(*cpu_kernels().value(), exact, 2);
        EXPECT_EQ(prepared, target.activation_layouts(type).only_f32() ? 0 : 1);

        Numbers n(4);
        for (const int64_t rows : {0, 1, 7, 8, 13, 33, 83}) {
          SCOPED_TRACE(fmt::format("{} rows", rows));
          HostTensor input = matrix(n, rows, k);
          for (size_t i = 0; i < input.data.size(); i += 11) input.data[i] *= 40;  // groups whose elements differ much
          c.put("x", input);
          StepContext step;
          step.sizes = sizes(rows);
          ASSERT_TRUE(c.executor->step(step).ok());
          std::vector<Bounded> want;
          const ActivationLayout layout = layout_of(type, exact, rows);
          for (int64_t r = 0; r < rows; ++r) {
            const RoundedRow row(layout, input.row(r), k);
            for (int64_t i = 0; i < k; ++i) want.push_back(row.product(unit, i, 0));
          }
          expect_within(c.get("y", rows * k), want);
          EXPECT_EQ(c.get("y", rows * k), c.get("z", rows * k));
        }
      }
}

}  // namespace redline::test
