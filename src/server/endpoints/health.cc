// GET /health: checks that every loaded model can run a step. GET /livez: only shows that the process answers.
#include <chrono>

#include "base/elapsed.h"
#include "server/app.h"
#include "server/choices.h"

namespace redline::server {
namespace {

const Schema health_schema{
    "Health",
    {{"status", kString, "", {.required = true, .choices = {"ok", "loading", "draining", "stalled"}}},
     {"message", kString, "what is wrong"},
     {"step_ms", kNumber, "time of the step that was run for this check"}}};

constexpr double kPatience_s = 20;

/// Waits for one token of each model.
class HealthAnswer final : public Answer {
 public:
  explicit HealthAnswer(std::vector<std::unique_ptr<Choices>> choices) : choices_(std::move(choices)) {}
  void on_ready(std::function<void()> wake) override {
    for (const auto& c : choices_) c->on_ready(wake);
  }
  double tick_s() const override { return 1; }
  Progress poll(std::string& body) override {
    const double elapsed_s = seconds_since(begin_);
    bool is_done = true;
    for (const auto& c : choices_) {
      while (c->next()) {}
      if (!c->all_ended()) is_done = false;
      else if (!c->result(0).ok())
        return finish(503, {{"status", "stalled"}, {"message", c->result(0).status().message()}}, body);
    }
    if (is_done) return finish(200, {{"status", "ok"}, {"step_ms", elapsed_s * 1e3}}, body);
    if (elapsed_s < kPatience_s) return Progress::kWaiting;
    return finish(503, {{"status", "stalled"}, {"message", fmt::format("no step in {:.0f} s", elapsed_s)}}, body);
  }

 private:
  Progress finish(int code, const Json& json, std::string& body) {
    status = code;
    body = to_text(json);
    return Progress::kDone;
  }
  std::vector<std::unique_ptr<Choices>> choices_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

AnswerOr get_health(Call& call) {
  if (call.app.state() != App::State::kReady) {
    const bool is_loading = call.app.state() == App::State::kLoading;
    auto answer = json_answer({{"status", is_loading ? "loading" : "draining"}}, 503);
    answer->headers.emplace_back("Retry-After", "1");
    return answer;
  }
  std::vector<std::unique_ptr<Choices>> all;
  for (const auto& given : call.app.models().all()) {
    auto use = call.app.residency().use(*given, false);
    if (!use) continue;
    const std::shared_ptr<ServedModel> model(std::move(use), given.get());
    if (model->engine().stats().is_stalled)
      return json_answer(
          {{"status", "stalled"}, {"message", fmt::format("{}: a step makes no progress", model->name())}}, 503);
    GenerateRequest request;
    request.prompt = {0};
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    request.ignore_stop_tokens = true;
    request.priority = std::numeric_limits<int>::min();
    request.cache_salt = "health";
    auto choices = Choices::start(model, {request});
    // A full queue is a reason to send no more requests, not to end the process.
    if (!choices.ok() && choices.error().status == 429) continue;
    SERVER_ASSIGN(auto started, std::move(choices));
    all.push_back(std::move(started));
  }
  return std::unique_ptr<Answer>(std::make_unique<HealthAnswer>(std::move(all)));
}

AnswerOr get_live(Call& call) { return json_answer({{"status", "ok"}}); }

}  // namespace

std::vector<Endpoint> health_endpoints() {
  const std::vector<DocumentedAnswer> answers = {{200, "every model makes steps", &health_schema},
                                                 {503, "not ready, or no step in time", &health_schema}};
  const std::string summary = "whether every model makes a step";
  const EndpointRules rules{.needs_key = false, .is_quick = true};
  return {{"GET", "/health", "operations", summary, answers, get_health, rules},
          {"GET", "/v1/health", "operations", summary, answers, get_health, rules},  // llama.cpp's
          {"GET", "/livez", "operations", "whether the process answers", {answers[0]}, get_live, rules}};
}

}  // namespace redline::server
