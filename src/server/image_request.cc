#include "server/image_request.h"

#include <algorithm>
#include <random>
#include <tuple>

#include "base/base64.h"
#include "media/image_file.h"
#include "server/app.h"
#include "server/form.h"

namespace redline::server {
namespace {

constexpr double kMaxImageCharacters = 1 << 28;

const Schema adapter_schema{"ImageAdapter",
                            {{"name", kString, "a name given with --lora", {.required = true, .max_length = 1000}},
                             {"weight", kNumber, "1: as trained", {.min = -100, .max = 100}}}};
const Field adapter_item{"", kObject | kString, "", {.max_length = 1000, .object = &adapter_schema}};

/// Decodes an image in a field: a data URL, or base64.
Outcome<AlphaImage> decode_field(const std::string& text, const char* field) {
  std::string_view digits = text;
  if (digits.starts_with("http://") || digits.starts_with("https://"))
    return bad_request(field, fmt::format("{} is a URL; send the image itself, as a data URL or base64", field));
  if (digits.starts_with("data:")) {
    const size_t comma = digits.find(',');
    if (comma == std::string::npos || !digits.substr(0, comma).ends_with(";base64"))
      return bad_request(field, fmt::format("{} is a data URL without base64", field));
    digits.remove_prefix(comma + 1);
  }
  const std::optional<std::string> bytes = from_base64(digits);
  if (!bytes) return bad_request(field, fmt::format("{} is not base64", field));
  auto given = decode_alpha_image(*bytes, field);
  if (!given.ok()) return bad_request(field, given.status().message());
  return std::move(given).value();
}

}  // namespace

ApiError several_images(const char* field) {
  return bad_request(field,
                     fmt::format("there is more than one {}; this model changes one: send the one to change, or one "
                                 "that shows them all",
                                 field));
}

namespace {

/// Returns the image of a field. nullopt: the request has none.
Outcome<std::optional<AlphaImage>> alpha_image_field(const Call& call, const Json& input, const char* field) {
  std::optional<AlphaImage> given;
  for (const FormFile& file : call.files) {
    if (file.field != field) continue;
    if (given) return several_images(field);
    auto decoded = decode_alpha_image(file.bytes, field);
    if (!decoded.ok()) return bad_request(field, decoded.status().message());
    given = std::move(decoded).value();
  }
  if (const auto found = input.find(field); !given && found != input.end()) {
    SERVER_ASSIGN(given, decode_field(found->get_ref<const std::string&>(), field));
  }
  return given;
}

/// Sets the initial image and the mask of a request.
std::optional<ApiError> take_images(const Call& call, const Json& input, MaskForm masks, ImageRequest& r) {
  auto image = alpha_image_field(call, input, "image"), mask = alpha_image_field(call, input, "mask");
  if (!image.ok()) return image.error();
  if (!mask.ok()) return mask.error();
  if (!*image) {
    if (*mask) return bad_request("mask", "mask needs the image that it belongs to: image");
    return std::nullopt;
  }
  std::optional<RgbImage> region;
  if (*mask) {
    if (masks == MaskForm::kTransparent) region = transparent_region(**mask);
    if (!region) region = gray_mask(**mask);
  } else if (masks == MaskForm::kTransparent) {
    region = transparent_region(**image);
    if (region && !has_white(*region)) region.reset();  // only soft edges: no area is marked
  }
  if (region) r.mask = std::make_shared<const RgbImage>(std::move(*region));
  r.init_image = std::make_shared<const RgbImage>(std::move((*image)->image));
  return std::nullopt;
}

/// Returns the value of the first of these names that `input` has.
template <class T>
std::optional<T> pick(const Json& input, std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const auto found = input.find(name); found != input.end()) return found->get<T>();
  return std::nullopt;
}

std::optional<ApiError> check_size(const ImageModel& model, const char* name, int64_t value) {
  const int64_t unit = model.engine().size_multiple(), most = model.max_side() / unit * unit;
  if (value < unit || value > most)
    return bad_request(name, fmt::format("{} is {}; it must be from {} to {}", name, value, unit, most),
                       "invalid_value");
  if (value % unit != 0)
    return bad_request(name,
                       fmt::format("{} is {}; it must be a multiple of {}: {} or {}", name, value, unit,
                                   value / unit * unit, (value / unit + 1) * unit),
                       "invalid_value");
  return std::nullopt;
}

}  // namespace

const Schema& image_input_schema() {
  static const Schema schema{
      .name = "ImageInput",
      .fields = {
          {"prompt", kString, "text that describes the image", {.required = true, .max_length = 32000}},
          {"negative_prompt", kString, "text that describes what not to draw; needs guidance", {.max_length = 32000}},
          {"width",
           kInteger,
           "pixels; default: that of image, rounded to what the model takes, or the model's own",
           {.min = 1, .max = 65536}},
          {"height", kInteger, "pixels", {.min = 1, .max = 65536}},
          {"steps", kInteger, "denoising steps; default: the model's own", {.min = 1, .max = 1000}},
          {"num_inference_steps", kInteger, "the same as steps", {.min = 1, .max = 1000}},
          {"guidance", kNumber, "guidance scale; default: the model's own", {.min = 0, .max = 100}},
          {"guidance_scale", kNumber, "the same as guidance", {.min = 0, .max = 100}},
          {"true_cfg_scale",
           kNumber,
           "classifier-free guidance of a guidance-distilled model; 1: none",
           {.min = 0, .max = 100}},
          {"seed",
           kInteger,
           "the same seed gives the same image; image i has seed + i; default: random",
           {.min = 0, .max = kMaxJsonInteger}},
          {"batch", kInteger, "images", {.min = 1, .max = 64}},
          {"num_outputs", kInteger, "the same as batch", {.min = 1, .max = 64}},
          {"solver",
           kString,
           "scheduler instead of the model's own: flow-euler, euler, dpm++, unipc, lcm, ...",
           {.max_length = 100}},
          {"scheduler", kString, "the same as solver", {.max_length = 100}},
          {"cache", kString, "step cache: none, auto, or a rule with parameters", {.max_length = 200}},
          {"quality", kNumber, "step cache by quality: 1 computes every step", {.min = 0, .max = 1}},
          {"steps_budget", kInteger, "step cache: steps to compute; the others are forecast", {.min = 1, .max = 1000}},
          {"image",
           kString,
           "image to start from: a data URL, or base64 of a PNG, JPEG, WebP, GIF, BMP or TIFF file",
           {.max_length = static_cast<size_t>(kMaxImageCharacters)}},
          {"mask",
           kString,
           "white is regenerated, black is kept; in /v1/images/edits a mask with transparency is regenerated where it "
           "is "
           "transparent, as is an image with a transparent part and no mask",
           {.max_length = static_cast<size_t>(kMaxImageCharacters)}},
          {"resize",
           kString,
           "how image and mask are brought to the size of the result; default: stretch",
           {.choices = {"stretch", "crop", "fit"}}},
          {"strength", kNumber, "with image: fraction of the steps that run", {.min = 0.001, .max = 1}},
          {"keep_unmasked", kBoolean, "true: with mask, black pixels stay exactly as they are; default: true"},
          {"adapters",
           kArray,
           "LoRA adapters: names, or names with weights",
           {.max_items = 16, .items = &adapter_item}},
          {"max_sequence_length", kInteger, "text tokens of the prompt", {.min = 1, .max = 1024}},
          {"split_guidance", kBoolean, "guidance branches one after the other: less memory"},
          {"output_format", kString, "default: png", {.choices = {"png", "jpeg", "jpg", "webp"}}},
          {"preview_side",
           kInteger,
           "pixels of the previews among the events; 0: none; default: 256",
           {.min = 0, .max = 1024}}}};
  return schema;
}

std::string_view image_format_name(ImageFormat format) {
  return format == ImageFormat::kPng ? "png" : format == ImageFormat::kJpeg ? "jpeg" : "webp";
}

std::string image_content_type(ImageFormat format) { return fmt::format("image/{}", image_format_name(format)); }

std::string data_url(ImageFormat format, std::string_view bytes) {
  return fmt::format("data:{};base64,{}", image_content_type(format), to_base64(bytes));
}

Outcome<ImageJob> image_job(const Call& call, const ImageModel& model, Json input, MaskForm masks) {
  const ImageEngine& engine = model.engine();
  ImageJob job;
  job.client = call.http.client;
  ImageRequest& r = job.request = engine.defaults();
  if (auto error = take_images(call, input, masks, r)) return *error;
  r.prompts = {input["prompt"].get<std::string>()};
  r.negative_prompt = input.value("negative_prompt", "");
  for (const auto& [name, side] : {std::pair{"width", &r.width}, {"height", &r.height}}) {
    *side = input.value(name, int64_t{0});
    if (*side == 0) continue;
    if (auto error = check_size(model, name, *side)) return *error;
  }
  std::tie(r.width, r.height) = engine.size_of(r);
  r.resize = input.value("resize", "");
  if (const auto steps = pick<int64_t>(input, {"steps", "num_inference_steps"})) r.num_inference_steps = *steps;
  if (const auto guidance = pick<double>(input, {"guidance", "guidance_scale"})) {
    if (!engine.takes_guidance_scale())
      return bad_request("guidance", fmt::format("guidance has no effect with {}", model.name()));
    r.guidance_scale = *guidance;
  }
  if (const auto guidance = pick<double>(input, {"true_cfg_scale"})) {
    if (!engine.is_guidance_distilled())
      return bad_request("true_cfg_scale", fmt::format("{} is not guidance-distilled; use guidance", model.name()));
    r.true_cfg_scale = *guidance;
  }
  r.batch = pick<int64_t>(input, {"batch", "num_outputs"}).value_or(1);
  const double scale = engine.is_guidance_distilled() ? r.true_cfg_scale : r.guidance_scale;
  const int64_t most = model.max_batch() / (scale > 1 ? 2 : 1);
  if (r.batch > most)
    return bad_request("batch", fmt::format("batch is {}; with this guidance the limit is {}", r.batch, most),
                       "invalid_value");
  static thread_local std::mt19937_64 random{std::random_device{}()};
  r.seed = pick<uint64_t>(input, {"seed"}).value_or(random() >> 33);
  r.seed_each = true;
  r.solver = pick<std::string>(input, {"solver", "scheduler"}).value_or("");
  r.cache = input.value("cache", "");
  r.quality = input.value("quality", -1.0);
  r.steps_budget = input.value("steps_budget", int64_t{0});
  for (const char* needs_image : {"strength", "keep_unmasked", "resize"})
    if (input.contains(needs_image) && !r.init_image)
      return bad_request(needs_image, fmt::format("{} has no effect without image", needs_image));
  r.strength = input.value("strength", r.strength);
  r.keep_unmasked = r.mask && input.value("keep_unmasked", true);
  r.max_sequence_length = input.value("max_sequence_length", r.max_sequence_length);
  r.split_guidance = input.value("split_guidance", false);
  if (const auto adapters = input.find("adapters"); adapters != input.end())
    for (const Json& adapter : *adapters) {
      if (adapter.is_string()) job.adapters.emplace_back(adapter.get<std::string>(), 1.0);
      else job.adapters.emplace_back(adapter["name"].get<std::string>(), adapter.value("weight", 1.0));
    }
  const std::string format = input.value("output_format", "png");
  job.format = format == "png" ? ImageFormat::kPng : format == "webp" ? ImageFormat::kWebp : ImageFormat::kJpeg;
  job.preview_side = input.value("preview_side", int64_t{256});
  for (const char* image : {"image", "mask"})
    if (input.contains(image)) input[image] = "(an image)";
  input["seed"] = r.seed;
  job.input = std::move(input);
  return job;
}

PredictionAnswer::PredictionAnswer(std::shared_ptr<Prediction> prediction, bool owns_it)
    : prediction_(std::move(prediction)), owns_it_(owns_it) {
  facts.model = prediction_->model().name();
}

PredictionAnswer::~PredictionAnswer() {
  if (listener_) prediction_->unlisten(*listener_);
  if (owns_it_ && !prediction_->state().is_over()) prediction_->cancel();
}

void PredictionAnswer::on_ready(std::function<void()> wake) { listener_ = prediction_->listen(std::move(wake)); }

}  // namespace redline::server
