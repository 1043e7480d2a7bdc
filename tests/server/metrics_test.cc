#include "server/metrics.h"

#include <gtest/gtest.h>

namespace redline::server {
namespace {

TEST(Metrics, TextFormat) {
  Metrics metrics;
  metrics.declare("b_total", Metrics::Kind::kCounter, "Things.");
  metrics.declare("a", Metrics::Kind::kGauge, "Now.");
  metrics.declare("h", Metrics::Kind::kHistogram, "Times.", {0.5, 1});
  metrics.add("b_total", Metrics::label("name", "x\"\\\n"));
  metrics.add("b_total", Metrics::label("name", "x\"\\\n"), 2);
  metrics.set("a", "", 1.5);
  const std::vector<double> times = {0.25, 0.5};
  metrics.observe("h", "m=\"t\"", times);
  for (const double value : {0.75, 4.0}) metrics.observe("h", "m=\"t\"", value);
  EXPECT_EQ(metrics.text(),
            "# HELP a Now.\n# TYPE a gauge\na 1.5\n"
            "# HELP b_total Things.\n# TYPE b_total counter\nb_total{name=\"x\\\"\\\\\\n\"} 3\n"
            "# HELP h Times.\n# TYPE h histogram\n"
            "h_bucket{m=\"t\",le=\"0.5\"} 2\nh_bucket{m=\"t\",le=\"1\"} 3\nh_bucket{m=\"t\",le=\"+Inf\"} 4\n"
            "h_sum{m=\"t\"} 5.5\nh_count{m=\"t\"} 4\n");
}

}  // namespace
}  // namespace redline::server
