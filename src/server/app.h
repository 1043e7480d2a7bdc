// The server without sockets: routes a request, checks its sender and its fields, and calls its endpoint.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "redline/engine_profile.h"
#include "server/access_log.h"
#include "server/api_keys.h"
#include "server/background_responses.h"
#include "server/conversations.h"
#include "server/embedding_models.h"
#include "server/endpoint.h"
#include "server/generation_counter.h"
#include "server/http_server.h"
#include "server/metrics.h"
#include "server/models.h"
#include "server/predictions.h"
#include "server/stored_responses.h"

namespace redline::server {

struct AppOptions {
  /// Origins whose pages may call the server; "*": any. Pages of the server itself always may.
  std::vector<std::string> origins;
  bool is_loopback = true;             ///< bound to a loopback address: the Host header must name one too
  bool allows_adapter_loading = true;  ///< clients may have files of this machine loaded as adapters
  bool allows_webhooks = true;         ///< clients may have events of predictions posted to URLs of theirs
  std::string webhook_secret;          ///< secret for signing events; "": events are not signed
  double request_timeout_s = 0;        ///< maximum time of a generation; 0: none
  double drain_timeout_s = 0;          ///< maximum time from the begin of draining to the end; 0: unlimited
  ResidencyOptions residency = {};     ///< limits and choice of the models in memory
  double load_timeout_s = 300;         ///< maximum time that a request waits for its model
  std::FILE* log = nullptr;            ///< one JSON object per line; null: no access log
  MachineLimitsOf machine_limits;      ///< source of bound_seconds in /v1/engine; empty: the field is omitted
};

class App final : public HttpApplication, public GenerationCounter {
 public:
  enum class State : uint8_t { kLoading, kReady, kDraining };

  explicit App(AppOptions options);
  ~App() override;
  ApiKeys& keys() { return keys_; }
  ModelTable& models() { return models_; }
  ImageModels& images() { return images_; }
  Residency& residency() { return residency_; }
  EmbeddingModels& embeddings() { return embeddings_; }
  StoredResponses& responses() { return responses_; }
  Conversations& conversations() { return conversations_; }
  BackgroundResponses& background() { return background_; }
  const std::shared_ptr<WebhookSender>& webhooks() const { return webhooks_; }
  const AppOptions& options() const { return options_; }
  State state() const { return state_; }
  /// Marks the models as loaded.
  void set_ready();
  /// Sets the server that the metrics describe.
  void watch(const HttpServer& server) { server_ = &server; }
  double uptime_s() const;
  /// Returns the text of /metrics.
  std::string metrics_text();
  void count(const ServedModel& model, const GenerateResult& result, std::span<const double> gaps_s) override;

  /// Finishes predictions that report to webhooks, and their reports, within the drain time.
  void close_predictions();

  /// Checks everything that the request's header decides: path, method, origin, host, key and its rate limit, and
  /// whether there are models.
  Admission admit(HttpRequest& request) override;
  /// Answers a request; admits it first if that was not done before.
  std::unique_ptr<Answer> handle(HttpRequest& request) override;
  std::unique_ptr<Answer> refuse(int status, const std::string& param, const std::string& message) override;
  void finished(const HttpRequest& request, const Answer& answer, const Served& served) override;
  void draining() override;
  /// Returns when the access log has written the requests served before.
  void flush_log();

 private:
  struct Route {
    const Endpoint* endpoint = nullptr;
    std::vector<std::string> path_values;
    std::vector<std::string> allowed;  ///< allowed methods of the path
  };
  static Route route_of(const std::string& method, const std::string& path);
  static Route route_of_exactly(const std::string& method, const std::string& path);
  bool allows_origin(const HttpRequest& request) const;
  bool allows_host(std::string_view host) const;
  std::optional<ApiError> check_head(HttpRequest& request, const Route& route);
  AnswerOr answer(HttpRequest& request, const Route& route);
  /// Calls the endpoint. If its model has to be loaded first, returns an answer that waits for that and calls the
  /// endpoint again.
  AnswerOr call_endpoint(const Endpoint& endpoint, Call call, std::chrono::steady_clock::time_point begin);
  /// Calls `make` and adds the common headers to the answer, or to its error.
  std::unique_ptr<Answer> finish(const HttpRequest& request, ErrorShape shape, const std::function<AnswerOr()>& make);
  class LoadingAnswer;
  void set_residency_metrics(const Resident& model);

  const AppOptions options_;
  ApiKeys keys_;
  Residency residency_;
  ModelTable models_;
  const std::shared_ptr<WebhookSender> webhooks_;
  ImageModels images_;
  EmbeddingModels embeddings_;
  StoredResponses responses_;
  Conversations conversations_;
  BackgroundResponses background_{responses_};
  Metrics metrics_;
  const HttpServer* server_ = nullptr;
  std::unique_ptr<AccessLog> log_;        ///< null: no access log
  std::atomic<int64_t> drain_end_ms_{0};  ///< end of draining by the steady clock; 0: not draining
  std::atomic<State> state_{State::kLoading};
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace redline::server
