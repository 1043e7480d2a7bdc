#include "graph/ops/qkv.h"

#include <deque>
#include <numeric>

#include "graph/ops/rope.h"
#include "support/kv_page_layout.h"
#include "support/rounded_products.h"
#include "support/sequences.h"

namespace redline::test {
namespace {

constexpr int64_t kQkvIn = 64, kQkvPages = 8;
constexpr float kQkvEps = 1e-5f;

struct QkvHeads {
  int64_t q, kv, dim;
  bool has_bias, has_norm;
};

/// The matrix of q, k or v, its bias, and the norm of its heads.
struct QkvProjection {
  QkvProjection(DType type, int64_t out, uint32_t seed) : weight(type, out, kQkvIn, seed) {}
  testing::RandomWeight weight;
  std::vector<float> bias, norm;
};

/// RMS norm and rotation of one head in float64, with bounds of first order, doubled for what is smaller.
void finish_head(std::span<Bounded> head, const std::vector<float>& norm, int64_t position) {
  const size_t dim = head.size(), half = dim / 2;
  if (!norm.empty()) {
    double squares = 0, cross = 0;
    for (const Bounded& x : head) squares += x.value * x.value, cross += std::abs(x.value) * x.error;
    const double mean = squares / static_cast<double>(dim) + double{kQkvEps}, rms = std::sqrt(mean);
    const double rms_error = cross / static_cast<double>(dim) / rms;
    for (size_t i = 0; i < dim; ++i) {
      const double y = head[i].value / rms, w = norm[i];
      const double error =
          head[i].error / rms + std::abs(y) * (rms_error / rms + static_cast<double>(dim) * kRoundoffF32);
      head[i] = {y * w, 2 * error * std::abs(w)};
    }
  }
  for (size_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) / static_cast<double>(1 + i), c = std::cos(angle),
                 s = std::sin(angle);
    const Bounded a = head[i], b = head[i + half];
    // The angle is rounded to float32 (RopeTableAttrs), and the table and the products too.
    const double rounding = (std::abs(angle) + 4) * kRoundoffF32 * (std::abs(a.value) + std::abs(b.value));
    head[i] = {a.value * c - b.value * s, std::abs(c) * a.error + std::abs(s) * b.error + rounding};
    head[i + half] = {b.value * c + a.value * s, std::abs(c) * b.error + std::abs(s) * a.error + rounding};
  }
}

}  // namespace

// Queries, and the keys and values in the pages, against loops over the definition.
TEST(QkvOp, EqualsTheFormulaWithinTheRoundingOfItsActivations) {
  const QkvHeads cases[] = {{4, 2, 16, false, false}, {3, 3, 16, true, false}, {2, 1, 48, true, true}};
  for (const QkvHeads& h : cases)
    for (const DType type : testing::each_kind_of_weight())
      for (const bool exact : {false, true})
        for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16}) {
          SCOPED_TRACE(fmt::format("{} {} heads of {}{}{}", dtype_info(type).name, h.q, h.dim, exact ? " exact" : "",
                                   format == KvFormat::kF32 ? "" : " f16"));
          Numbers n(3);
          std::deque<QkvProjection> parts;
          for (const int64_t heads : {h.q, h.kv, h.kv}) {
            parts.emplace_back(type, heads * h.dim, static_cast<uint32_t>(parts.size()));
            if (h.has_bias) parts.back().bias = n.vector(heads * h.dim);
            if (h.has_norm && parts.size() < 3) parts.back().norm = n.vector(h.dim);
          }
          GraphBuilder g("test");
          const Dim tokens(Symbol::kTokens);
          const Value x = g.input("x", DType::kF32, {tokens, Dim(kQkvIn)});
          const Value positions = g.input("positions", DType::kI32, {tokens});
          RopeTableAttrs frequencies;
          for (int64_t i = 0; i < h.dim / 2; ++i)
            frequencies.inverse_frequencies.push_back(1.0f / static_cast<float>(1 + i));
          const Value table = rope_table(g, positions, {}, frequencies);
          StateAttrs cache;
          cache.num_heads = h.kv;
          cache.head_dim = h.dim;
          cache.format = format;
          QkvAttrs a;
          a.num_heads = h.q;
          a.num_kv_heads = h.kv;
          a.head_dim = h.dim;
          a.has_bias = h.has_bias;
          a.has_q_norm = a.has_k_norm = h.has_norm;
          a.q_norm_eps = a.k_norm_eps = kQkvEps;
          std::vector<Value> inputs = {x};
          const auto vector = [&](std::string name, const std::vector<float>& v) {
            const TensorView view = {DType::kF32, {std::ssize(v)}, v.data()};
            return g.weight(std::move(name), {.view = view, .source_row = {}, .file = {}});
          };
          for (size_t i = 0; i < 3; ++i)
            inputs.push_back(
                g.weight(fmt::format("w{}", i), {.view = parts[i].weight.view(), .source_row = {}, .file = {}}));
          for (size_t i = 0; i < 3 && h.has_bias; ++i) inputs.push_back(vector(fmt::format("b{}", i), parts[i].bias));
          for (size_t i = 0; i < 2 && h.has_norm; ++i) inputs.push_back(vector(fmt::format("n{}", i), parts[i].norm));
          inputs.push_back(table);
          const Value state = g.state("cache", cache);
          inputs.push_back(state);
          const Value q = g.add(kQkv, inputs, DType::kF32, {tokens, Dim(h.q * h.dim)}, a);
          g.add_output(q, "cache", DType::kF32, {Dim(0)});
          g.output("y", q);
          const Graph graph = std::move(g.finish()).value();

          for (const int workers : {1, 3}) {
            Compiled compiled = Compiled::make(graph, workers, sizes(70), {.exact_f32 = exact});
            EXPECT_TRUE(has_stage(*compiled.program, kQkv));
            const StatePlan& plan = compiled.program->states;
            const std::vector<int64_t> pages = {kQkvPages};
            TestSequences sequences(plan, compiled.executor->make_state_memory(pages).value(), kQkvPages, 1,
                                    {compiled.program->attention, h.q, h.kv, h.dim, 70, 1});
            Numbers in(6);
            int64_t begin = 0;
            for (const int64_t rows : {5, 1, 33, 70}) {  // over the end of a page
              SCOPED_TRACE(fmt::format("{} rows at {}, {} workers", rows, begin, workers));
              std::vector<int64_t> at(static_cast<size_t>(rows));
              std::iota(at.begin(), at.end(), begin);
              const HostTensor input = matrix(in, rows, kQkvIn);
              compiled.put("x", input);
              compiled.put("positions", integers(at));
              const StepContext step = sequences.begin({rows});
              ASSERT_TRUE(compiled.executor->step(step).ok());

              const ActivationLayout layout = layout_of(type, exact, rows);
              std::vector<Bounded> want[3];
              for (size_t i = 0; i < 3; ++i)
                for (int64_t r = 0; r < rows; ++r) {
                  const int64_t width = parts[i].weight.n;
                  const RoundedRow x_row(layout, input.row(r), kQkvIn);
                  std::vector<Bounded> row;
                  for (int64_t c = 0; c < width; ++c)
                    row.push_back(
                        x_row.product(parts[i].weight, c, h.has_bias ? parts[i].bias[static_cast<size_t>(c)] : 0));
                  for (int64_t head = 0; head < width / h.dim && i < 2; ++head)
                    finish_head(std::span(row).subspan(static_cast<size_t>(head * h.dim), static_cast<size_t>(h.dim)),
                                parts[i].norm, begin + r);
                  want[i].insert(want[i].end(), row.begin(), row.end());
                }
              expect_within(compiled.get("y", rows * h.q * h.dim), want[0]);

              // Compares the contents of the pages, in the order of kv_page_layout.
              const KvPlace place = plan.kv_place(graph, state.id);
              const StateStep& memory = step.states[place.group];
              for (const KvTable kind : {KvTable::kKeys, KvTable::kValues}) {
                const Layout order = kv_page_layout(cache, kind, kQkvPages);
                std::vector<float> got;
                std::vector<Bounded> stored = want[kind == KvTable::kKeys ? 1 : 2];
                for (int64_t r = 0; r < rows; ++r)
                  for (int64_t head = 0; head < h.kv; ++head)
                    for (int64_t d = 0; d < h.dim; ++d) {
                      const int64_t position = begin + r, page = memory.pages[0][position / kKvPageTokens];
                      const int64_t element =
                          ((page * h.kv + head) * kKvPageTokens + position % kKvPageTokens) * kv_head_width(h.dim) + d;
                      const Place to = order.apply(element);
                      ASSERT_EQ(to[static_cast<size_t>(Axis::kPage)], page);
                      const uint8_t* bytes = memory.memory + page * memory.page_bytes + plan.place(state.id).offset +
                                             to[static_cast<size_t>(Axis::kMemory)] * place.element_bytes;
                      float value;
                      if (format == KvFormat::kF32) std::memcpy(&value, bytes, 4);
                      else {
                        uint16_t half;
                        std::memcpy(&half, bytes, 2);
                        value = f16_to_f32(half);
                      }
                      got.push_back(value);
                    }
                if (format == KvFormat::kF16)
                  for (Bounded& b : stored) b.error += kRoundoffF16 * (std::abs(b.value) + b.error);
                expect_within(got, stored);
              }
              sequences.commit();
              begin += rows;
            }
          }
        }
}

}  // namespace redline::test
