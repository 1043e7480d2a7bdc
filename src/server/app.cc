#include "server/app.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/elapsed.h"
#include "base/text_distance.h"
#include "base/utc_time.h"

namespace redline::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kPreflightMethods[] = "GET, POST, DELETE, OPTIONS";
constexpr char kPreflightHeaders[] =
    "Authorization, Content-Type, X-Api-Key, X-Request-Id, Anthropic-Version, Anthropic-Beta, "
    "Anthropic-Dangerous-Direct-Browser-Access, OpenAI-Organization, OpenAI-Project, X-Stainless-Arch, "
    "X-Stainless-Lang, "
    "X-Stainless-OS, X-Stainless-Package-Version, X-Stainless-Retry-Count, X-Stainless-Runtime, "
    "X-Stainless-Runtime-Version, X-Stainless-Timeout";

/// Removes the port: "localhost:8080" becomes "localhost", and "[::1]:80" becomes "[::1]".
std::string_view without_port(std::string_view host) {
  const size_t colon = host.rfind(':');
  return colon == std::string::npos || host.find(']', colon) != std::string::npos ? host : host.substr(0, colon);
}

int64_t steady_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
}

bool is_address(std::string_view name) {
  return name.starts_with('[') || (!name.empty() && name.find_first_not_of("0123456789.") == std::string::npos);
}

/// Returns true if `path` matches `pattern`, and sets `values` to the values of the pattern's {names}.
bool matches(std::string_view pattern, std::string_view path, std::vector<std::string>& values) {
  values.clear();
  while (true) {
    const size_t brace = pattern.find('{');
    if (brace == std::string::npos) return pattern == path;
    if (!path.starts_with(pattern.substr(0, brace))) return false;
    path.remove_prefix(brace);
    pattern.remove_prefix(pattern.find('}') + 1);
    const size_t end = pattern.empty() ? path.size() : std::min(path.find(pattern[0]), path.size());
    if (end == 0) return false;
    values.emplace_back(path.substr(0, end));
    path.remove_prefix(end);
  }
}

/// Returns a path in the form of the table of endpoints. Clients join a base URL and a path with two slashes, end a
/// path with a slash, or repeat "/v1".
std::string plain_path(const std::string& path) {
  std::string plain;
  for (const char c : path)
    if (c != '/' || !plain.ends_with('/')) plain += c;
  if (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  while (plain.starts_with("/v1/v1/")) plain.erase(0, 3);
  return plain;
}

std::unique_ptr<Answer> error_answer(const ApiError& error, ErrorShape shape) {
  auto answer = std::make_unique<FixedAnswer>(error_body(error, shape), error.status);
  if (error.retry_after_s > 0)
    answer->headers.emplace_back("Retry-After", fmt::format("{:.0f}", std::max(1.0, error.retry_after_s + 0.5)));
  if (error.status == 401) answer->headers.emplace_back("WWW-Authenticate", "Bearer");
  if (!error.allow.empty()) answer->headers.emplace_back("Allow", error.allow);
  return answer;
}

/// Returns the shape of errors for a path that is not in the table.
ErrorShape shape_of(const std::string& path) {
  if (path.starts_with("/api/")) return ErrorShape::kOllama;
  return path.starts_with("/v1/messages") ? ErrorShape::kAnthropic : ErrorShape::kOpenAi;
}

}  // namespace

/// Waits until a model is loaded, then calls the endpoint again.
class App::LoadingAnswer final : public Answer {
 public:
  LoadingAnswer(const Endpoint& endpoint, Call call, std::shared_ptr<PendingLoad> load, Clock::time_point begin)
      : endpoint_(&endpoint), load_(std::move(load)), begin_(begin),
        end_(begin + std::chrono::milliseconds(static_cast<int64_t>(call.app.options().load_timeout_s * 1e3))),
        work_(std::make_shared<Work>(Work{call.http, std::nullopt})) {
    work_->call.emplace(Call{call.app, work_->http, std::move(call.body), std::move(call.path_values), call.shape,
                             std::move(call.files), std::move(call.constraint), std::move(call.ignored)});
  }
  void on_ready(std::function<void()> wake) override { load_->on_ready(std::move(wake)); }
  double tick_s() const override { return std::max(0.001, std::chrono::duration<double>(end_ - Clock::now()).count()); }
  Progress poll(std::string&) override {
    return load_->is_done() || Clock::now() >= end_ ? Progress::kDone : Progress::kWaiting;
  }
  std::function<std::unique_ptr<Answer>()> continuation() override {
    return [work = work_, load = load_, endpoint = endpoint_, begin = begin_] {
      App& app = work->call->app;
      return app.finish(work->http, endpoint->rules.errors, [&]() -> AnswerOr {
        if (!load->is_done())
          return overloaded(503, fmt::format("the model was not loaded in {} s", app.options().load_timeout_s), 5);
        const Status status = load->status();
        if (status.code() == Code::cancelled) return overloaded(503, status.message(), 5);
        if (!status.ok())
          return ApiError{.status = 500,
                          .type = "server_error",
                          .message = "the model cannot be loaded: " + status.message(),
                          .param = "model",
                          .code = "model_load_failed"};
        return app.call_endpoint(*endpoint, std::move(*work->call), begin);
      });
    };
  }

 private:
  struct Work {
    HttpRequest http;
    std::optional<Call> call;  ///< refers to `http`
  };
  const Endpoint* const endpoint_;
  const std::shared_ptr<PendingLoad> load_;
  const Clock::time_point begin_, end_;
  const std::shared_ptr<Work> work_;
};

App::App(AppOptions options)
    : options_(std::move(options)), residency_(options_.residency), models_(residency_),
      webhooks_(std::make_shared<WebhookSender>(options_.webhook_secret)), images_(residency_),
      embeddings_(residency_) {
  if (options_.log) log_ = std::make_unique<AccessLog>(options_.log);
  using Kind = Metrics::Kind;
  const std::vector<double> seconds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25, 0.5,
                                       0.75,  1.0,   2.5,  5.0,  7.5,  10.0, 20.0, 40.0, 80.0};
  const std::vector<double> tokens = {1,   2,    5,    10,   20,    50,    100,   200,
                                      500, 1000, 2000, 5000, 10000, 20000, 50000, 100000};
  metrics_.declare("vllm:num_requests_running", Kind::kGauge, "Requests whose state is in the cache.");
  metrics_.declare("vllm:num_requests_waiting", Kind::kGauge, "Requests that wait for a place in the cache.");
  metrics_.declare("vllm:kv_cache_usage_perc", Kind::kGauge, "Share of the cache pages in use by requests; 1 is full.");
  metrics_.declare("vllm:num_preemptions_total", Kind::kCounter, "Evicted states to be recomputed.");
  metrics_.declare("vllm:prompt_tokens_total", Kind::kCounter, "Prompt tokens of requests whose prompt is complete.");
  metrics_.declare("vllm:generation_tokens_total", Kind::kCounter, "Generated tokens.");
  metrics_.declare("vllm:prefix_cache_queries_total", Kind::kCounter, "Prompt tokens looked up in the prefix cache.");
  metrics_.declare("vllm:prefix_cache_hits_total", Kind::kCounter, "Prompt tokens taken from the prefix cache.");
  metrics_.declare("vllm:spec_decode_num_draft_tokens_total", Kind::kCounter,
                   "Drafted tokens that steps have verified.");
  metrics_.declare("vllm:spec_decode_num_accepted_tokens_total", Kind::kCounter, "Drafted tokens that were accepted.");
  metrics_.declare("vllm:request_success_total", Kind::kCounter, "Requests that ended, by reason.");
  metrics_.declare("vllm:time_to_first_token_seconds", Kind::kHistogram, "Time to the first token.", seconds);
  metrics_.declare("vllm:request_time_per_output_token_seconds", Kind::kHistogram, "Mean time per token of a request.",
                   seconds);
  metrics_.declare("vllm:inter_token_latency_seconds", Kind::kHistogram, "Time between two tokens of a text.", seconds);
  metrics_.declare("vllm:request_queue_time_seconds", Kind::kHistogram,
                   "Time until a request has a place in the cache.", seconds);
  metrics_.declare("vllm:request_prefill_time_seconds", Kind::kHistogram, "Time from there to the first token.",
                   seconds);
  metrics_.declare("vllm:request_decode_time_seconds", Kind::kHistogram, "Time from there to the last token.", seconds);
  metrics_.declare("vllm:e2e_request_latency_seconds", Kind::kHistogram, "Time of a generation.", seconds);
  metrics_.declare("vllm:request_prompt_tokens", Kind::kHistogram, "Tokens of a prompt.", tokens);
  metrics_.declare("vllm:request_generation_tokens", Kind::kHistogram, "Tokens of a generation.", tokens);
  metrics_.declare("redline:prefix_miss_total", Kind::kCounter,
                   "Requests that did not reuse all of their prompt, by reason.");
  metrics_.declare("redline:steps_total", Kind::kCounter, "Steps of the model.");
  metrics_.declare("redline:step_seconds_total", Kind::kCounter, "Time in steps of the model.");
  metrics_.declare("redline:cache_pages", Kind::kGauge, "Pages of the cache, by holder.");
  metrics_.declare("redline:model_loaded", Kind::kGauge, "1: the model is in memory.");
  metrics_.declare("redline:model_bytes", Kind::kGauge, "Weights, and caches at their limit, of a loaded model.");
  metrics_.declare("redline:model_loads_total", Kind::kCounter, "How often the model was loaded.");
  metrics_.declare("redline:predictions_in_flight", Kind::kGauge, "Requests for images that wait or run.");
  metrics_.declare("redline:http_requests_total", Kind::kCounter, "Requests, by endpoint and status.");
  metrics_.declare("redline:http_connections", Kind::kGauge, "Open connections.");
  metrics_.declare("redline:http_body_bytes", Kind::kGauge, "Memory of --max-body-memory that is in use.");
  metrics_.declare("redline:log_lines_lost_total", Kind::kCounter, "Lines of the access log that were not written.");
  metrics_.declare("redline:webhooks_lost_total", Kind::kCounter, "Events that no receiver of a webhook has taken.");
}

App::~App() {
  background_.close();
  residency_.close();
}

void App::set_ready() {
  State loading = State::kLoading;
  state_.compare_exchange_strong(loading, State::kReady);
}

void App::draining() {
  if (drain_end_ms_ == 0) drain_end_ms_ = steady_ms() + static_cast<int64_t>(options_.drain_timeout_s * 1e3);
  state_ = State::kDraining;
}

void App::flush_log() {
  if (log_) log_->flush();
}

void App::close_predictions() {
  constexpr double kAtLeast_s = 1;  // time for the reports of predictions that have just ended
  const auto left_s = [&] {
    if (options_.drain_timeout_s == 0) return 1e6;
    return drain_end_ms_ == 0 ? options_.drain_timeout_s : static_cast<double>(drain_end_ms_ - steady_ms()) / 1e3;
  };
  images_.close(std::max(left_s(), 0.0));
  constexpr double kAttempt_s = 10;  // time for one attempt to send a report
  webhooks_->close(std::clamp(left_s(), kAtLeast_s, 2 * kAttempt_s));
}

double App::uptime_s() const { return seconds_since(begin_); }

void App::set_residency_metrics(const Resident& model) {
  const Residency::Entry entry = residency_.entry(model);
  const std::string name = Metrics::label("model_name", model.name());
  const bool is_loaded = entry.state == Residency::State::kLoaded;
  metrics_.set("redline:model_loaded", name, is_loaded ? 1 : 0);
  metrics_.set("redline:model_bytes", name, is_loaded ? static_cast<double>(entry.bytes) : 0);
  metrics_.set("redline:model_loads_total", name, static_cast<double>(entry.loads));
}

std::string App::metrics_text() {
  for (const auto& model : models_.all()) {
    const EngineStats s = model->stats();
    set_residency_metrics(*model);
    const std::string name = Metrics::label("model_name", model->name());
    const auto as_double = [](int64_t value) { return static_cast<double>(value); };
    metrics_.set("vllm:num_requests_running", name, as_double(s.running));
    metrics_.set("vllm:num_requests_waiting", name, as_double(s.waiting));
    metrics_.set("vllm:kv_cache_usage_perc", name,
                 s.cache_pages > 0 ? as_double(s.cache_pages_used) / as_double(s.cache_pages) : 0);
    metrics_.set("vllm:num_preemptions_total", name, as_double(s.preemptions));
    metrics_.set("vllm:prompt_tokens_total", name, as_double(s.prompt_tokens));
    metrics_.set("vllm:generation_tokens_total", name, as_double(s.generated_tokens));
    metrics_.set("vllm:prefix_cache_queries_total", name, as_double(s.prompt_tokens));
    metrics_.set("vllm:prefix_cache_hits_total", name, as_double(s.cached_prompt_tokens));
    metrics_.set("vllm:spec_decode_num_draft_tokens_total", name, as_double(s.drafted_tokens));
    metrics_.set("vllm:spec_decode_num_accepted_tokens_total", name, as_double(s.accepted_tokens));
    for (size_t i = 0; i < s.requests_finished.size(); ++i)
      metrics_.set("vllm:request_success_total",
                   name + "," + Metrics::label("finished_reason", finish_reason_name(static_cast<FinishReason>(i))),
                   as_double(s.requests_finished[i]));
    metrics_.set("redline:steps_total", name, as_double(s.steps));
    metrics_.set("redline:step_seconds_total", name, s.step_seconds);
    metrics_.set("redline:cache_pages", name + ",state=\"used\"", as_double(s.cache_pages_used));
    metrics_.set("redline:cache_pages", name + ",state=\"stored\"", as_double(s.cache_pages_stored));
    metrics_.set("redline:cache_pages", name + ",state=\"all\"", as_double(s.cache_pages));
  }
  for (const auto& model : images_.all()) {
    metrics_.set("redline:predictions_in_flight", Metrics::label("model_name", model->name()),
                 static_cast<double>(model->in_flight()));
    set_residency_metrics(*model);
  }
  for (const auto& model : embeddings_.all()) set_residency_metrics(*model);
  if (server_) {
    metrics_.set("redline:http_connections", "", static_cast<double>(server_->connections()));
    metrics_.set("redline:http_body_bytes", "", static_cast<double>(server_->body_bytes()));
  }
  if (log_) metrics_.set("redline:log_lines_lost_total", "", static_cast<double>(log_->num_lost()));
  metrics_.set("redline:webhooks_lost_total", "", static_cast<double>(webhooks_->num_lost()));
  return metrics_.text();
}

void App::count(const ServedModel& model, const GenerateResult& r, std::span<const double> gaps_s) {
  const std::string name = Metrics::label("model_name", model.name());
  if (r.first_token_ms > 0) {
    metrics_.observe("vllm:time_to_first_token_seconds", name, r.first_token_ms / 1e3);
    metrics_.observe("vllm:e2e_request_latency_seconds", name, (r.first_token_ms + r.decode_ms) / 1e3);
    metrics_.observe("vllm:request_queue_time_seconds", name, r.queue_ms / 1e3);
    metrics_.observe("vllm:request_prefill_time_seconds", name, (r.first_token_ms - r.queue_ms) / 1e3);
    metrics_.observe("vllm:request_decode_time_seconds", name, r.decode_ms / 1e3);
  }
  metrics_.observe("vllm:inter_token_latency_seconds", name, gaps_s);
  if (r.decode_tokens > 0)
    metrics_.observe("vllm:request_time_per_output_token_seconds", name,
                     r.decode_ms / 1e3 / static_cast<double>(r.decode_tokens));
  metrics_.observe("vllm:request_prompt_tokens", name, static_cast<double>(r.prompt_tokens));
  metrics_.observe("vllm:request_generation_tokens", name, static_cast<double>(r.tokens.size()));
  if (r.cache_miss != CacheMiss::kNone)
    metrics_.add("redline:prefix_miss_total", name + "," + Metrics::label("reason", cache_miss_name(r.cache_miss)));
}

// The last {name} of a pattern also matches slashes (in names of models), so several patterns may match. The longest
// one is used.
App::Route App::route_of(const std::string& method, const std::string& path) {
  Route route = route_of_exactly(method, path);
  if (route.allowed.empty())
    if (const std::string plain = plain_path(path); plain != path) return route_of_exactly(method, plain);
  return route;
}

App::Route App::route_of_exactly(const std::string& method, const std::string& path) {
  Route route;
  std::vector<std::string> values;
  std::ptrdiff_t length = 0;
  for (const Endpoint& endpoint : endpoints()) {
    if (!matches(endpoint.path, path, values)) continue;
    const std::ptrdiff_t slashes = std::count(endpoint.path.begin(), endpoint.path.end(), '/');
    if (slashes < length) continue;
    if (slashes > length) route = {};
    length = slashes;
    if (!route.endpoint && (endpoint.method == method || (method == "HEAD" && endpoint.method == "GET"))) {
      route.endpoint = &endpoint;
      route.path_values = values;
    }
    route.allowed.push_back(endpoint.method);
  }
  return route;
}

bool App::allows_host(std::string_view host) const {
  const std::string_view name = without_port(host);
  return !options_.is_loopback || name.empty() || is_address(name) || name == "localhost" ||
         name.ends_with(".localhost");
}

// Protects a server on a loopback address from pages of other sites: from requests that browsers send without a
// preflight, and from a site whose name resolves to this machine's address (DNS rebinding).
bool App::allows_origin(const HttpRequest& request) const {
  const std::string_view origin = request.header("origin"), host = request.header("host");
  const auto host_of = [](std::string_view url) { return url.substr(std::min(url.find("://"), url.size() - 3) + 3); };
  for (const std::string& o : options_.origins)
    if (o == "*" || o == origin || (origin.empty() && o.find("://") != std::string::npos && host_of(o) == host))
      return true;
  if (!allows_host(host)) return false;
  return origin.empty() || (origin.find("://") != std::string::npos && host_of(origin) == host);
}

std::optional<ApiError> App::check_head(HttpRequest& request, const Route& route) {
  if (!allows_origin(request))
    return ApiError{.status = 403,
                    .type = "permission_error",
                    .message =
                        "this origin, or this name in the header Host, is not allowed; the flag --cors-origin of the "
                        "server allows it",
                    .param = request.header("origin").empty() ? "host" : "origin",
                    .code = "origin_not_allowed"};
  if (!route.endpoint) {
    if (!route.allowed.empty())
      return ApiError{.status = 405,
                      .message = fmt::format("the method of {} is {}", request.path.substr(0, 128),
                                             fmt::join(route.allowed, " or ")),
                      .code = "method_not_allowed",
                      .allow = fmt::format("{}", fmt::join(route.allowed, ", "))};
    std::vector<std::string_view> paths;
    for (const Endpoint& endpoint : endpoints()) paths.push_back(endpoint.path);
    const std::string shown = request.path.substr(0, 128);
    return not_found_error("", fmt::format("there is no path {}{}", shown, did_you_mean(shown, paths)), "not_found");
  }
  const Endpoint& endpoint = *route.endpoint;
  if (endpoint.rules.needs_key && !keys_.empty()) {
    ApiKeys::Verdict verdict = keys_.check(request);
    if (!verdict.is_known)
      return ApiError{.status = 401,
                      .type = "authentication_error",
                      .message = "the API key is missing or wrong",
                      .code = "invalid_api_key"};
    request.client = std::move(verdict.name);
    if (verdict.retry_after_s > 0)
      return overloaded(429, fmt::format("the API key \"{}\" has made too many requests", request.client),
                        verdict.retry_after_s);
  }
  if (endpoint.rules.needs_models && state_ != State::kReady)
    return state_ == State::kLoading ? overloaded(503, "the models are being loaded", 1)
                                     : overloaded(503, "the server is stopping", 5);
  return std::nullopt;
}

AnswerOr App::answer(HttpRequest& request, const Route& route) {
  const Endpoint& endpoint = *route.endpoint;
  Call call{*this, request, {}, route.path_values, endpoint.rules.errors};
  const JsonLimits limits = {.take_memory = [&](int64_t bytes) { return !request.lease || request.lease->grow(bytes); },
                             .is_abandoned = [&] { return request.is_abandoned(); }};
  if (endpoint.rules.request) {
    if (request.is_abandoned()) return overloaded(503, "the client has gone", 1);
    if (endpoint.rules.takes_form && is_form(request.header("content-type"))) {
      // The parts of a form are copied out of the body.
      if (!limits.take_memory(std::ssize(request.body)))
        return overloaded(503, "the requests that are being answered take up the memory for their bodies; try again",
                          1);
      SERVER_ASSIGN(Form form, parse_form(request.header("content-type"), request.body, *endpoint.rules.request));
      call.body = std::move(form.fields);
      call.files = std::move(form.files);
    } else {
      SERVER_ASSIGN(call.body, parse_json(request.body, limits));
    }
    std::string().swap(request.body);
    if (auto error = validate(*endpoint.rules.request, call.body, call.ignored)) return *error;
  } else if (endpoint.rules.query) {
    SERVER_ASSIGN(call.body, parse_query(request.query, *endpoint.rules.query));
    if (auto error = validate(*endpoint.rules.query, call.body, call.ignored)) return *error;
  }
  return call_endpoint(endpoint, std::move(call), Clock::now());
}

AnswerOr App::call_endpoint(const Endpoint& endpoint, Call call, Clock::time_point begin) {
  const HandledRequest handled(call.http);
  AnswerOr outcome = endpoint.handle(call);
  if (!outcome.ok() && outcome.error().load)
    return std::unique_ptr<Answer>(
        std::make_unique<LoadingAnswer>(endpoint, std::move(call), outcome.error().load, begin));
  SERVER_ASSIGN(std::unique_ptr<Answer> answer, std::move(outcome));
  if (!call.ignored.empty())
    answer->headers.emplace_back("X-Redline-Ignored", fmt::format("{}", fmt::join(call.ignored, ", ")));
  return answer;
}

std::unique_ptr<Answer> App::finish(const HttpRequest& request, ErrorShape shape,
                                    const std::function<AnswerOr()>& make) {
  std::unique_ptr<Answer> result;
  ApiError error;
  try {
    AnswerOr outcome = make();
    if (outcome.ok()) result = std::move(*outcome);
    else error = outcome.error();
  } catch (const std::exception& thrown) {  // a bug, or out of memory; other requests continue
    error = {.status = 500, .type = "server_error", .message = thrown.what(), .code = "internal"};
  }
  if (!result) result = error_answer(error, shape);
  // Anthropic's clients read it under this name.
  if (shape == ErrorShape::kAnthropic) result->headers.emplace_back("Request-Id", request.id);
  const std::string_view origin = request.header("origin");
  if (!origin.empty() && allows_origin(request)) {
    result->headers.emplace_back("Access-Control-Allow-Origin", std::string(origin));
    result->headers.emplace_back("Access-Control-Expose-Headers",
                                 "X-Request-Id, Request-Id, X-Redline-Ignored, Retry-After");
    result->headers.emplace_back("Vary", "Origin");
  }
  return result;
}

Admission App::admit(HttpRequest& request) {
  const Route route = route_of(request.method, request.path);
  const bool is_preflight = request.method == "OPTIONS" && allows_origin(request);
  Admission admission{.is_quick = is_preflight || (route.endpoint && route.endpoint->rules.is_quick)};
  if (!is_preflight)
    if (auto error = check_head(request, route)) {
      const ErrorShape shape = route.endpoint ? route.endpoint->rules.errors : shape_of(request.path);
      admission.refusal = finish(request, shape, [&]() -> AnswerOr { return *error; });
    }
  request.is_admitted = !admission.refusal;
  admission.client = request.client.empty() ? request.peer : request.client;
  return admission;
}

std::unique_ptr<Answer> App::handle(HttpRequest& request) {
  if (!request.is_admitted)
    if (Admission admission = admit(request); admission.refusal) return std::move(admission.refusal);
  const Route route = route_of(request.method, request.path);
  const ErrorShape shape = route.endpoint ? route.endpoint->rules.errors : shape_of(request.path);
  return finish(request, shape, [&]() -> AnswerOr {
    if (request.method == "OPTIONS" && allows_origin(request)) {
      auto preflight = std::make_unique<FixedAnswer>("", 204);
      preflight->headers.emplace_back("Access-Control-Allow-Methods", kPreflightMethods);
      preflight->headers.emplace_back("Access-Control-Allow-Headers", kPreflightHeaders);
      preflight->headers.emplace_back("Access-Control-Max-Age", "600");
      return std::unique_ptr<Answer>(std::move(preflight));
    }
    return answer(request, route);
  });
}

std::unique_ptr<Answer> App::refuse(int status, const std::string& param, const std::string& message) {
  ApiError error = bad_request(param, message, "malformed_request");
  error.status = status;
  if (status == 503 || status == 429) error = overloaded(status, message, 1);
  return error_answer(error, ErrorShape::kOpenAi);
}

void App::finished(const HttpRequest& request, const Answer& answer, const Served& served) {
  const Route route = route_of(request.method, request.path);
  metrics_.add("redline:http_requests_total",
               fmt::format("{},status=\"{}\"", Metrics::label("path", route.endpoint ? route.endpoint->path : "other"),
                           answer.status));
  if (!log_) return;
  const AnswerFacts& f = answer.facts;
  Json line = {{"time", utc_text_ms(unix_now())},
               {"id", request.id},
               {"peer", request.peer},
               {"method", request.method},
               {"path", request.path.substr(0, AccessLog::kMaxText)},
               {"status", answer.status},
               {"bytes", served.bytes},
               {"ms", std::round(served.ms * 100) / 100}};
  if (!request.client.empty()) line["client"] = request.client;
  if (!served.is_complete) line["cut"] = true;
  if (!f.model.empty()) {
    line["model"] = f.model;
    line["prompt_tokens"] = f.prompt_tokens;
    line["cached_tokens"] = f.cached_tokens;
    line["tokens"] = f.generated_tokens;
    line["first_token_ms"] = std::round(f.first_token_ms * 100) / 100;
    line["finish"] = f.finish;
  }
  log_->write(line);
}

}  // namespace redline::server
