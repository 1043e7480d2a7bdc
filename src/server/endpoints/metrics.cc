// GET /metrics, for Prometheus.
#include "server/app.h"

namespace redline::server {
namespace {

AnswerOr get_metrics(Call& call) {
  auto answer = std::make_unique<FixedAnswer>(call.app.metrics_text());
  answer->content_type = "text/plain; version=0.0.4; charset=utf-8";
  return std::unique_ptr<Answer>(std::move(answer));
}

}  // namespace

std::vector<Endpoint> metrics_endpoints() {
  return {{"GET",
           "/metrics",
           "operations",
           "counters, gauges and histograms, for Prometheus",
           {{200, "the text format of Prometheus", nullptr, "text/plain"}},
           get_metrics,
           {.is_quick = true}}};
}

}  // namespace redline::server
