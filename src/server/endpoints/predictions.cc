// The predictions API, in the form of Replicate's: creates, lists and cancels predictions, and returns their events and
// files.
#include <charconv>
#include <chrono>

#include "server/app.h"
#include "server/event_stream.h"
#include "server/generation.h"
#include "server/image_request.h"

namespace redline::server {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kMaxWait_s = 60;

const Field event_item{"", kString, "", {.choices = {"start", "completed"}}};
const Schema predictions_request_schema{
    "PredictionRequest",
    {{"model", kString, "a name from /v1/models; may be left out if there is one for images", {.max_length = 1000}},
     {"input", kObject, "description of the image", {.required = true, .object = &image_input_schema()}},
     {"webhook", kString, "URL to which its start and its end are posted", {.max_length = 2000}},
     {"webhook_events_filter", kArray, "which of them", {.max_items = 8, .items = &event_item}},
     {"version", kString, "models have one version", {.is_ignored = true}},
     {"stream", kBoolean, "events are always there, under urls.events", {.is_ignored = true}}}};

const Field predictions_text_item{"", kString, ""}, seed_item{"", kInteger, ""};
const Schema progress_schema{"PredictionProgress",
                             {{"step", kInteger, "", {.required = true}}, {"steps", kInteger, "", {.required = true}}}};
const Schema urls_schema{"PredictionUrls",
                         {{"get", kString, "", {.required = true}},
                          {"cancel", kString, "", {.required = true}},
                          {"events", kString, "", {.required = true}}}};
const Schema metrics_schema{
    "PredictionMetrics",
    {{"predict_time", kNumber, "seconds from its start to its end", {.required = true}},
     {"total_s", kNumber, "another name of predict_time"},
     {"text_ms", kNumber, "prompt encoding"},
     {"loop_ms", kNumber, "denoising"},
     {"decode_ms", kNumber, "time from latents to pixels"},
     {"executed_share", kNumber, "executed operations, as a share of those without a step cache"},
     {"cache", kString, "the step cache's rule"},
     {"solver", kString, ""}}};
const Schema predictions_answer_schema{
    "Prediction",
    {{"id", kString, "", {.required = true}},
     {"model", kString, "", {.required = true}},
     {"status",
      kString,
      "",
      {.required = true, .choices = {"queued", "processing", "succeeded", "failed", "canceled"}}},
     {"queue_position", kInteger, "requests before it, 0 when it is next", {.required = true, .is_nullable = true}},
     {"input", kObject, "", {.required = true}},
     {"output",
      kArray,
      "URLs of the images on this server",
      {.required = true, .items = &predictions_text_item, .is_nullable = true}},
     {"seeds", kArray, "seed of each image", {.required = true, .items = &seed_item}},
     {"error", kString, "", {.required = true, .is_nullable = true}},
     {"progress", kObject, "", {.required = true, .object = &progress_schema}},
     {"created_at", kString, "", {.required = true}},
     {"started_at", kString, "", {.required = true, .is_nullable = true}},
     {"completed_at", kString, "", {.required = true, .is_nullable = true}},
     {"warnings", kArray, "", {.required = true, .items = &predictions_text_item}},
     {"urls", kObject, "", {.required = true, .object = &urls_schema}},
     {"metrics", kObject, "", {.object = &metrics_schema}}}};
const Field answer_item{"", kObject, "", {.object = &predictions_answer_schema}};
const Schema predictions_list_schema{"PredictionList",
                                     {{"results", kArray, "newest first", {.required = true, .items = &answer_item}},
                                      {"next", kString, "", {.required = true, .is_nullable = true}},
                                      {"previous", kString, "", {.required = true, .is_nullable = true}}}};

/// Waits for the end of a prediction, at most as long as the client has asked for.
class WaitingAnswer final : public PredictionAnswer {
 public:
  WaitingAnswer(std::shared_ptr<Prediction> prediction, double wait_s)
      : PredictionAnswer(std::move(prediction), false),
        end_(Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(wait_s * 1e3))) {
    status = 201;
  }
  double tick_s() const override { return std::max(0.01, std::chrono::duration<double>(end_ - Clock::now()).count()); }
  Progress poll(std::string& body) override {
    if (!prediction().state().is_over() && Clock::now() < end_) return Progress::kWaiting;
    body += to_text(prediction_json(prediction()));
    return Progress::kDone;
  }

 private:
  const Clock::time_point end_;
};

/// Server-sent events: `queue` {position}, `progress` {step, steps, ...}, and `done` with the prediction.
class EventsAnswer final : public PredictionAnswer {
 public:
  explicit EventsAnswer(std::shared_ptr<Prediction> prediction) : PredictionAnswer(std::move(prediction), false) {
    become_event_stream(*this);
  }
  Progress poll(std::string& body) override {
    const Prediction::State s = prediction().state();
    if (s.status == PredictionStatus::kQueued) {
      const int64_t position = prediction().queue_position();
      if (position == position_) return Progress::kWaiting;
      position_ = position;
      body += sse("queue", {{"position", position}});
      return Progress::kMore;
    }
    if (s.is_over()) {
      body += sse("done", prediction_json(prediction()));
      return Progress::kDone;
    }
    if (s.step == step_) return Progress::kWaiting;
    step_ = s.step;
    Json event = {{"step", s.step}, {"steps", s.steps}, {"step_ms", s.step_ms}, {"computed", s.computed}};
    for (const auto& preview : s.previews) event["previews"].push_back(data_url(ImageFormat::kJpeg, *preview));
    body += sse("progress", event);
    return Progress::kMore;
  }

 private:
  int64_t position_ = -1, step_ = -1;
};

/// Returns the seconds of "Prefer: wait" or "Prefer: wait=5".
double wait_of(const HttpRequest& request) {
  std::string_view prefer = request.header("prefer");
  if (!prefer.starts_with("wait")) return 0;
  if (!prefer.starts_with("wait=")) return kMaxWait_s;
  return std::clamp(std::strtod(std::string(prefer.substr(5)).c_str(), nullptr), 0.0, kMaxWait_s);
}

AnswerOr create(Call& call) {
  SERVER_ASSIGN(const auto model, call.app.images().find(call.body.value("model", "")));
  SERVER_ASSIGN(ImageJob job, image_job(call, *model, std::move(call.body["input"])));
  if (const auto url = call.body.find("webhook"); url != call.body.end()) {
    if (!call.app.options().allows_webhooks)
      return bad_request("webhook", "webhooks are off; the server was started without --allow-webhooks");
    if (const Status status = check_webhook_url(url->get<std::string>()); !status.ok())
      return bad_request("webhook", "webhook " + status.message());
    job.webhook = Webhook{call.app.webhooks(), url->get<std::string>(),
                          call.body.value("webhook_events_filter", std::vector<std::string>())};
  }
  SERVER_ASSIGN(const auto prediction, ImageModel::submit(model, std::move(job)));
  call.app.images().keep(prediction);
  std::unique_ptr<Answer> answer = std::make_unique<WaitingAnswer>(prediction, wait_of(call.http));
  answer->headers.emplace_back("Location", "/v1/predictions/" + prediction->id());
  return answer;
}

AnswerOr get(Call& call) {
  SERVER_ASSIGN(const auto prediction, call.app.images().prediction(call.path_values[0], call.http.client));
  return json_answer(prediction_json(*prediction));
}

AnswerOr list(Call& call) {
  Json results = Json::array();
  for (const auto& prediction : call.app.images().predictions(call.http.client))
    results.push_back(prediction_json(*prediction));
  return json_answer({{"results", std::move(results)}, {"next", nullptr}, {"previous", nullptr}});
}

AnswerOr cancel(Call& call) {
  SERVER_ASSIGN(const auto prediction, call.app.images().prediction(call.path_values[0], call.http.client));
  prediction->cancel();
  return json_answer(prediction_json(*prediction));
}

AnswerOr watch(Call& call) {
  SERVER_ASSIGN(const auto prediction, call.app.images().prediction(call.path_values[0], call.http.client));
  return std::unique_ptr<Answer>(std::make_unique<EventsAnswer>(prediction));
}

AnswerOr get_image(Call& call) {
  SERVER_ASSIGN(const auto prediction, call.app.images().prediction(call.path_values[0], call.http.client));
  const Prediction::State state = prediction->state();
  const std::string& number = call.path_values[1];
  size_t index = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (error != std::errc() || end != number.data() + number.size() || index >= state.outputs.size())
    return not_found_error(
        "image", fmt::format("there is no image {}; the prediction has {}", number.substr(0, 20), state.outputs.size()),
        "not_found");
  auto answer = std::make_unique<FixedAnswer>(*state.outputs[index]);
  answer->content_type = image_content_type(prediction->job().format);
  answer->headers.emplace_back("Cache-Control", "private, max-age=31536000, immutable");
  return std::unique_ptr<Answer>(std::move(answer));
}

}  // namespace

std::vector<Endpoint> predictions_endpoints() {
  const DocumentedAnswer one{200, "the prediction", &predictions_answer_schema};
  return {{"POST",
           "/v1/predictions",
           "images",
           "draws images in the background; with the header Prefer: wait=SECONDS the answer waits for the end",
           {{201, "the prediction, just created or over", &predictions_answer_schema}},
           create,
           {.request = &predictions_request_schema, .needs_models = true, .error_statuses = {404}}},
          {"GET",
           "/v1/predictions",
           "images",
           "the predictions that are remembered",
           {{200, "all of them", &predictions_list_schema}},
           list},
          {"GET",
           "/v1/predictions/{id}/events",
           "images",
           "progress with previews, as server-sent events",
           {{200, "events queue, progress and done", nullptr, "text/event-stream"}},
           watch,
           {.error_statuses = {404}}},
          {"GET",
           "/v1/predictions/{id}/images/{number}",
           "images",
           "an image that was drawn",
           {{200, "the file", nullptr, "image/png"}},
           get_image,
           {.error_statuses = {404}}},
          {"POST",
           "/v1/predictions/{id}/cancel",
           "images",
           "stops it, in the queue at once, else after a step",
           {one},
           cancel,
           {.error_statuses = {404}}},
          {"GET", "/v1/predictions/{id}", "images", "a prediction", {one}, get, {.error_statuses = {404}}}};
}

}  // namespace redline::server
