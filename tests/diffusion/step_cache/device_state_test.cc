// Step caches over values in the memory of a device: the decisions and forecasts of the host, of which nothing but sums
// comes to the host.
#include <cmath>

#include "backends/tiles/buffer_math.h"
#include "diffusion/step_cache/cache_trace.h"
#include "diffusion/step_cache/measures.h"
#include "graph/ops/scale.h"
#include "support/tile_harness.h"

namespace redline::testing {
namespace {

/// Largest download, and all of them, of the device that tests run on.
struct Downloads {
  int64_t largest = 0, bytes = 0;
  decltype(tiles::TileDevice::download) original = nullptr;
};
Downloads g_downloads;
int32_t count_download(void* self, void* to, const void* from, int64_t bytes) {
  g_downloads.largest = std::max(g_downloads.largest, bytes);
  g_downloads.bytes += bytes;
  return g_downloads.original(self, to, from, bytes);
}

class DeviceStates : public ::testing::Test {
 protected:
  void SetUp() override {
    GraphBuilder g("buffers");
    g.output("y", scale(g, g.input("x", DType::kF32, {Dim(Symbol::kTokens), Dim(8)}), {2}));
    device_ = test::TileCompiled::make(std::move(g.finish()).value(), test::sizes(1));
    ASSERT_TRUE(device_.status.ok()) << device_.status.to_string();
  }
  std::unique_ptr<BackendBuffer> buffer(const Tensor& values) {
    auto made = device_.runner->make_buffer(std::ssize(values) * 4);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    write(**made, values);
    return std::move(made).value();
  }
  static void write(BackendBuffer& buffer, const Tensor& values) {
    std::copy(values.begin(), values.end(), reinterpret_cast<float*>(buffer.host()));
    (void)buffer.address(false);  // on the device from here on
  }
  test::TileCompiled device_;
};

TEST_F(DeviceStates, SumsAndMeasuresAreThoseOfFloat64) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  // Two tasks of a kernel, the second of one number.
  for (const int64_t n : {0, 1, 31, 257, tiles::StateSum::kBlock + 1}) {
    std::vector<Tensor> host(10, Tensor(static_cast<size_t>(n)));
    std::vector<std::unique_ptr<BackendBuffer>> buffers;
    std::vector<StateView> views;
    for (Tensor& t : host) {
      for (float& v : t) v = normal(random);
      buffers.push_back(buffer(n > 0 ? t : Tensor(1)));
      views.emplace_back(*buffers.back(), 0, n);
    }
    std::vector<double> weights(9);
    for (double& w : weights) w = normal(random);
    weights[4] = 0;
    StateTensor out, difference;
    out.resize_like(views[0]);
    difference.resize_like(views[0]);
    weighted_sum(views[9], weights, std::span(views).first(9), out);
    subtract(views[0], views[1], difference);
    double moved = 0, square = 0, change = 0;
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      moved += std::abs(static_cast<double>(host[0][i]) - host[1][i]);
      square += static_cast<double>(host[2][i]) * host[2][i];
      change += (static_cast<double>(host[0][i]) - host[1][i]) * (static_cast<double>(host[2][i]) - host[3][i]);
      if (i > 300 && i + 300 < static_cast<size_t>(n) && i % 97 != 0) continue;  // a sample of the middle
      double want = host[9][i], parts = std::abs(want);
      for (size_t k = 0; k < 9; ++k) want += weights[k] * host[k][i], parts += std::abs(weights[k] * host[k][i]);
      // Ten products and sums in float32.
      EXPECT_NEAR(out[static_cast<int64_t>(i)], want, 10 * 0x1p-24 * parts) << n << ": " << i;
      EXPECT_EQ(difference[static_cast<int64_t>(i)], host[0][i] - host[1][i]);
    }
    // Differences are rounded to float32.
    EXPECT_NEAR(mean_abs_difference(views[0], views[1]) * static_cast<double>(n), moved, 1e-6 * moved);
    EXPECT_NEAR(dot(views[2], views[2]), square, 1e-6 * square);
    EXPECT_NEAR(product_of_changes(views[0], views[1], views[2], views[3]), change, 1e-6 * static_cast<double>(n));
  }
}

TEST_F(DeviceStates, RulesDecideAndForecastAsOnTheHost) {
  const char* const rules[] = {"fbcache:threshold=0.08",
                               "dbcache:threshold=0.12",
                               "dicache",
                               "teacache:threshold=0.3",
                               "taylorseer",
                               "mask:span=middle,forecast=dmd",
                               "mask:span=blocks,forecast=foca",
                               "mask:span=middle,forecast=probe",
                               "mask:span=middle,forecast=measured"};
  for (const char* rule : rules) {
    SCOPED_TRACE(rule);
    RuleRequest request;
    request.rule = rule;
    auto made = StepCache::make(request);
    if (!made.ok()) {
      ADD_FAILURE() << made.status().to_string();
      continue;
    }
    auto other = StepCache::make(request);
    StepCache &on_host = *made, &on_device = *other;
    const CacheTrace trace = make_trace(16, 5, 500, 60);
    struct Values {
      std::unique_ptr<BackendBuffer> embedded, front_image, front_text, modulated, middle_image, middle_text;
    } v = {buffer(trace.embedded[0]),  buffer(trace.front_image[0]),  buffer(trace.front_text[0]),
           buffer(trace.modulated[0]), buffer(trace.middle_image[0]), buffer(trace.middle_text[0])};
    tiles::TileDevice& table = device_.device->table();
    g_downloads = {};
    g_downloads.original = table.download;
    int skipped = 0;
    for (int64_t step = 0; step < trace.steps; ++step) {
      Outcome want, got;
      std::vector<CacheRow> host = {trace_row(trace, step, want)}, device = {trace_row(trace, step, got)};
      run_step(on_host, host, {&trace}, {&want});
      const auto view = [](std::unique_ptr<BackendBuffer>& b, const Tensor& t) {
        return StateView(*b, 0, std::ssize(t));
      };
      CacheRow& row = device[0];
      row.middle_image = view(v.middle_image, trace.middle_image[step]);
      row.middle_text = view(v.middle_text, trace.middle_text[step]);
      write(*v.embedded, trace.embedded[step]);
      write(*v.front_image, trace.front_image[step]);
      write(*v.front_text, trace.front_text[step]);
      write(*v.modulated, trace.modulated[step]);
      table.download = count_download;
      ASSERT_TRUE(on_device.before(device).ok());
      row.embedded = view(v.embedded, trace.embedded[step]);
      row.front_image = view(v.front_image, trace.front_image[step]);
      row.front_text = view(v.front_text, trace.front_text[step]);
      if (on_device.reads().modulated) row.modulated = view(v.modulated, trace.modulated[step]);
      ASSERT_TRUE(on_device.after_front(device).ok());
      table.download = g_downloads.original;
      ASSERT_EQ(static_cast<int>(row.action), static_cast<int>(host[0].action)) << "step " << step;
      if (row.action == CacheAction::kCompute) {
        write(*v.middle_image, trace.middle_image[step]);
        write(*v.middle_text, trace.middle_text[step]);
        got.model_output = trace.model_output[step];
        row.model_output = got.model_output;
      } else {
        ++skipped;
        // Coefficients of the forecast are the same to float64; ten weights of at most ten.
        for (const auto& [buffer, wanted] :
             {std::pair{v.middle_image.get(), &want.middle_image}, std::pair{v.middle_text.get(), &want.middle_text}}) {
          const StateView values(*buffer, 0, std::ssize(*wanted));
          const std::span<float> forecast = values.host();
          for (size_t i = 0; i < wanted->size(); ++i) ASSERT_NEAR(forecast[i], (*wanted)[i], 2e-5) << "step " << step;
        }
      }
      table.download = count_download;
      ASSERT_TRUE(on_device.after_tail(device).ok());
      table.download = g_downloads.original;
    }
    EXPECT_GT(skipped, 2);
    EXPECT_LE(g_downloads.largest, int64_t{tiles::kConsumerWarps * 8}) << "only sums come to the host";
  }
}

}  // namespace
}  // namespace redline::testing
