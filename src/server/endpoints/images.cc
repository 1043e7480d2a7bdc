// OpenAI's API for images: /v1/images/generations and /v1/images/edits.
#include <algorithm>
#include <charconv>

#include "base/base64.h"
#include "base/utc_time.h"
#include "server/app.h"
#include "server/event_stream.h"
#include "server/generation.h"
#include "server/image_request.h"

namespace redline::server {
namespace {

/// Returns `own` and the fields that both requests have. Those that OpenAI does not define are the fields of a
/// prediction's input.
std::vector<Field> fields_with(std::vector<Field> own) {
  std::vector<Field> fields = {
      {"model", kString, "a name from /v1/models; may be left out if there is one for images", {.max_length = 1000}},
      {"n", kInteger, "images", {.min = 1, .max = 64}},
      {"size", kString, "\"WIDTHxHEIGHT\" or auto", {.max_length = 20}},
      {"response_format", kString, "default: b64_json", {.choices = {"b64_json", "url"}}},
      {"output_compression", kInteger, "files have the best quality", {.min = 0, .max = 100, .is_ignored = true}},
      {"background", kString, "", {.only = {"auto", "opaque"}, .why = "must be auto or opaque"}},
      {"stream", kBoolean, "send previews and the image as server-sent events"},
      {"partial_images", kInteger, "with stream: number of previews", {.min = 0, .max = 3}},
      {"moderation", kString, "there is none", {.is_ignored = true}},
      {"style", kString, "write it into the prompt", {.is_ignored = true}},
      {"input_fidelity", kString, "use strength", {.is_ignored = true}},
      {"user", kString, "nothing is recorded", {.is_ignored = true}},
      {"quality",
       kString | kNumber,
       "low, medium: a step cache of quality 0.25 or 0.5; high, hd: every step is computed; a number: the step cache's "
       "quality",
       {.min = 0, .max = 1, .choices = {"auto", "standard", "low", "medium", "high", "hd"}}}};
  for (Field& field : own) fields.push_back(std::move(field));
  for (const Field& field : image_input_schema().fields) {
    const auto is_it = [&](const Field& f) { return f.name == field.name; };
    if (std::none_of(fields.begin(), fields.end(), is_it)) fields.push_back(field);
  }
  return fields;
}

const Field image_item{"", kString, ""};
const Schema generation_schema{"ImageGenerationRequest", fields_with({})};
const Schema edit_schema{"ImageEditRequest", fields_with({{"image",
                                                           kString | kArray,
                                                           "the image; in a form, a file",
                                                           {.min_items = 1, .max_items = 16, .items = &image_item}}})};

const Schema image_schema{"Image",
                          {{"b64_json", kString, "base64 of the file"},
                           {"url", kString, "URL of the file, which is kept for some time"},
                           {"seed", kInteger, "", {.required = true}}}};
const Field generated_item{"", kObject, "", {.object = &image_schema}};
const Schema images_answer_schema{"ImageList",
                                  {{"created", kInteger, "", {.required = true}},
                                   {"data", kArray, "", {.required = true, .items = &generated_item}},
                                   {"size", kString, ""},
                                   {"output_format", kString, ""},
                                   {"background", kString, ""},
                                   {"warnings", kArray, "", {.items = &image_item}}}};

class ImagesAnswer final : public PredictionAnswer {
 public:
  struct Options {
    bool streams = false, by_url = false;
    std::string kind;      ///< prefix of the events' types: "image_generation"
    std::string base_url;  ///< "http://host:port"
  };
  ImagesAnswer(std::shared_ptr<Prediction> prediction, Options options)
      : PredictionAnswer(std::move(prediction), true), options_(std::move(options)) {
    if (options_.streams) become_event_stream(*this);
    is_made_apart = !options_.streams;  // base64 of images takes long to make
  }

  Progress poll(std::string& body) override {
    const Prediction::State s = prediction().state();
    if (!s.is_over()) return options_.streams ? send_previews(s, body) : Progress::kWaiting;
    if (s.status != PredictionStatus::kSucceeded) {
      ApiError error = api_error(s.error);
      if (error.status == 404) error = bad_request("", error.message);  // a missing solver or rule, not a missing path
      if (s.status == PredictionStatus::kCanceled)
        error = {.status = 503, .type = "unavailable_error", .message = "canceled"};
      if (options_.streams) body += sse("error", Json::parse(error_body(error, ErrorShape::kOpenAi)));
      else body += error_body(error, ErrorShape::kOpenAi);
      status = error.status;
      return Progress::kDone;
    }
    if (options_.streams) send_results(s, body);
    else body += to_text(list_json(s));
    return Progress::kDone;
  }

 private:
  Progress send_previews(const Prediction::State& s, std::string& body) {
    if (s.step == step_ || s.previews.empty()) return Progress::kWaiting;
    step_ = s.step;
    for (const auto& preview : s.previews) {
      Json event = event_json("partial_image", *preview);
      event["output_format"] = "jpeg";
      event["partial_image_index"] = num_previews_;
      body += sse(event["type"].get<std::string>(), event);
    }
    ++num_previews_;
    return Progress::kMore;
  }
  void send_results(const Prediction::State& s, std::string& body) const {
    for (size_t i = 0; i < s.outputs.size(); ++i) {
      Json event = event_json("completed", *s.outputs[i]);
      event["seed"] = s.seeds[i];
      event["usage"] = {{"input_tokens", 0},
                        {"output_tokens", 0},
                        {"total_tokens", 0},
                        {"input_tokens_details", {{"text_tokens", 0}, {"image_tokens", 0}}}};
      body += sse(event["type"].get<std::string>(), event);
    }
  }
  Json event_json(const char* what, const std::string& file) const {
    return {{"type", options_.kind + "." + what},
            {"b64_json", to_base64(file)},
            {"created_at", created_},
            {"size", size()},
            {"quality", "auto"},
            {"background", "opaque"},
            {"output_format", format()}};
  }
  Json list_json(const Prediction::State& s) const {
    Json data = Json::array();
    for (size_t i = 0; i < s.outputs.size(); ++i) {
      Json image = Json::object();
      if (options_.by_url)
        image["url"] = fmt::format("{}/v1/predictions/{}/images/{}", options_.base_url, prediction().id(), i);
      else image["b64_json"] = to_base64(*s.outputs[i]);
      image["seed"] = s.seeds[i];
      data.push_back(std::move(image));
    }
    Json json = {{"created", created_},
                 {"data", std::move(data)},
                 {"size", size()},
                 {"output_format", format()},
                 {"background", "opaque"}};
    if (!s.warnings.empty()) json["warnings"] = s.warnings;
    return json;
  }
  std::string size() const {
    const ImageRequest& r = prediction().job().request;
    return fmt::format("{}x{}", r.width, r.height);
  }
  std::string_view format() const { return image_format_name(prediction().job().format); }

  const Options options_;
  const int64_t created_ = unix_time();
  int64_t step_ = 0, num_previews_ = 0;
};

/// Converts a size such as "512x768" to width and height of the input. "auto" sets neither.
std::optional<ApiError> take_size(Json& body, Json& input) {
  const std::string size = body.value("size", "auto");
  if (size == "auto") return std::nullopt;
  const size_t x = size.find('x');
  int64_t width = 0, height = 0;
  const auto reads = [](std::string_view text, int64_t& value) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    return error == std::errc() && end == text.data() + text.size() && value > 0 && value <= 65536;
  };
  if (x == std::string::npos || !reads(std::string_view(size).substr(0, x), width) ||
      !reads(std::string_view(size).substr(x + 1), height))
    return bad_request("size", fmt::format("size is \"{}\"; it must be WIDTHxHEIGHT or auto", size), "invalid_value");
  if (body.contains("width") || body.contains("height"))
    return bad_request("size", "size and width or height exclude each other");
  input["width"] = width;
  input["height"] = height;
  return std::nullopt;
}

/// Converts the fields of a request to the input of a prediction.
Outcome<Json> input_of(Json& body) {
  Json input = Json::object();
  for (const Field& field : image_input_schema().fields)
    if (const auto found = body.find(field.name); found != body.end() && field.name != "quality")
      input[field.name] = *found;
  if (auto error = take_size(body, input)) return *error;
  if (const auto n = body.find("n"); n != body.end()) input["batch"] = *n;
  if (const auto image = input.find("image"); image != input.end() && image->is_array()) {
    if (image->size() > 1) return several_images("image");
    *image = Json((*image)[0]);
  }
  if (const auto quality = body.find("quality"); quality != body.end()) {
    if (quality->is_number()) input["quality"] = *quality;
    else if (*quality == "low") input["quality"] = 0.25;
    else if (*quality == "medium") input["quality"] = 0.5;
  }
  return input;
}

/// Changes the field that an error names from that of the prediction to that of the request.
ApiError under_name_of_request(ApiError error, const Json& body) {
  if ((error.param == "width" || error.param == "height") && body.contains("size")) error.param = "size";
  if (error.param == "batch" && body.contains("n")) error.param = "n";
  return error;
}

AnswerOr draw(Call& call, const char* kind, MaskForm masks) {
  SERVER_ASSIGN(const auto model, call.app.images().find(call.body.value("model", "")));
  SERVER_ASSIGN(Json input, input_of(call.body));
  auto made = image_job(call, *model, std::move(input), masks);
  if (!made.ok()) return under_name_of_request(made.error(), call.body);
  ImageJob job = std::move(*made);
  const bool streams = call.body.value("stream", false);
  job.num_previews = call.body.value("partial_images", int64_t{0});
  if (!streams || job.num_previews == 0) job.preview_side = 0;
  SERVER_ASSIGN(const auto prediction, ImageModel::submit(model, std::move(job)));
  const bool by_url = call.body.value("response_format", "b64_json") == "url";
  if (by_url) call.app.images().keep(prediction);
  const std::string host(call.http.header("host"));
  return std::unique_ptr<Answer>(std::make_unique<ImagesAnswer>(
      prediction, ImagesAnswer::Options{streams, by_url, kind, (call.http.is_tls ? "https://" : "http://") + host}));
}

AnswerOr generate(Call& call) { return draw(call, "image_generation", MaskForm::kWhite); }

AnswerOr edit(Call& call) {
  const bool has_file =
      std::any_of(call.files.begin(), call.files.end(), [](const FormFile& f) { return f.field == "image"; });
  if (!has_file && !call.body.contains("image"))
    return bad_request("image", "image is missing: the image to change", "missing_required_parameter");
  return draw(call, "image_edit", MaskForm::kTransparent);
}

}  // namespace

std::vector<Endpoint> images_endpoints() {
  const std::vector<DocumentedAnswer> answers = {{200, "the images; with stream, events", &images_answer_schema}};
  return {{"POST",
           "/v1/images/generations",
           "images",
           "draws images",
           answers,
           generate,
           {.request = &generation_schema, .needs_models = true, .error_statuses = {404, 500}}},
          {"POST",
           "/v1/images/edits",
           "images",
           "changes an image, or the part of it that a mask shows",
           answers,
           edit,
           {.request = &edit_schema, .takes_form = true, .needs_models = true, .error_statuses = {404, 500}}}};
}

}  // namespace redline::server
