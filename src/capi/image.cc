// The functions for image pipelines.
#include <chrono>
#include <limits>
#include <numeric>
#include <random>

#include "capi/handles.h"
#include "capi/json.h"
#include "capi/option_fields.h"

using namespace redline;
using namespace redline::capi;

struct redline_image_result {
  ImageResult result;
  uint64_t seed = 0;
};
struct redline_prompt_embeds {
  PromptEmbeds embeds;
};

namespace {

using Preview = std::function<Result<RgbImage>(int64_t index, int64_t max_side)>;
/// Interval at which a queued call checks for cancellation.
constexpr std::chrono::milliseconds kTurnPoll(20);

redline_image_pipeline_options default_pipeline_options() {
  const ImageOptions d;
  redline_image_pipeline_options o = {};
  o.struct_size = sizeof o;
#define REDLINE_OPTION(type, name, ...) write_default(d.name, o.name);
#include "redline/image_options.inc"
  return o;
}

Result<ImageOptions> image_engine_options(const redline_image_pipeline_options& o) {
  ImageOptions options;
#define REDLINE_OPTION(type, name, ...) REDLINE_TRY(read_option(o.name, options.name));
#include "redline/image_options.inc"
  REDLINE_ASSIGN(options.runtime, runtime_of(o.runtime));
  return options;
}

redline_image_request default_request(const ImageRequest& d) {
  redline_image_request o = {};
  o.struct_size = sizeof o;
#define REDLINE_OPTION(type, name, ...) borrow_option(d.name, o.name);
#include "redline/image_request.inc"
  o.num_images = d.batch;
  borrow_option(d.solver, o.scheduler);
  return o;
}

Result<FloatArray> read_array(const redline_float_array& given, const char* what) {
  FloatArray array;
  if (given.num_axes == 0 || given.num_axes > 8)
    return invalid_argument("{}: {} axes; an array has 1 to 8", what, given.num_axes);
  REDLINE_TRY(required(given.shape, what));
  REDLINE_TRY(required(given.data, what));
  REDLINE_ASSIGN(array.shape, shape_of(given.shape, given.num_axes, what));
  const int64_t size = std::accumulate(array.shape.begin(), array.shape.end(), int64_t{1}, std::multiplies<>());
  array.data.assign(given.data, given.data + size);
  return array;
}

Result<RgbImage> read_image(const redline_image& given, const char* what) {
  constexpr int64_t kMaxSide = int64_t{1} << 20;
  if (given.width <= 0 || given.height <= 0 || given.width > kMaxSide || given.height > kMaxSide)
    return invalid_argument("{}: {} x {} pixels", what, given.width, given.height);
  REDLINE_TRY(required(given.rgb, what));
  RgbImage image;
  image.width = given.width;
  image.height = given.height;
  image.rgb.assign(given.rgb, given.rgb + given.width * given.height * 3);
  return image;
}

/// Copies the arrays and images that the caller points to into the request.
Status read_pointers(const redline_image_request& o, ImageRequest& r) {
  const std::tuple<const redline_float_array*, std::shared_ptr<const FloatArray>*, const char*> arrays[] = {
      {o.init_noise, &r.init_noise, "init_noise"},
      {o.prompt_embeds, &r.prompt_embeds, "prompt_embeds"},
      {o.pooled_embeds, &r.pooled_embeds, "pooled_embeds"},
      {o.negative_prompt_embeds, &r.negative_prompt_embeds, "negative_prompt_embeds"},
      {o.negative_pooled_embeds, &r.negative_pooled_embeds, "negative_pooled_embeds"}};
  for (const auto& [given, to, name] : arrays) {
    if (given == nullptr) continue;
    REDLINE_ASSIGN(FloatArray array, read_array(*given, name));
    *to = std::make_shared<const FloatArray>(std::move(array));
  }
  const std::tuple<const redline_image*, std::shared_ptr<const RgbImage>*, const char*> images[] = {
      {o.init_image, &r.init_image, "init_image"}, {o.mask, &r.mask, "mask"}};
  for (const auto& [given, to, name] : images) {
    if (given == nullptr) continue;
    REDLINE_ASSIGN(RgbImage image, read_image(*given, name));
    *to = std::make_shared<const RgbImage>(std::move(image));
  }
  return {};
}

Result<ImageRequest> read_request(const redline_image_request& o, const ImageRequest& defaults) {
  ImageRequest r = defaults;
  REDLINE_ASSIGN(r.prompts, strings_of(o.prompts, o.num_prompts, "prompts"));
#define REDLINE_OPTION(type, name, ...) read_request_option(o.name, r.name);
#include "redline/image_request.inc"
  r.batch = o.num_images;
  r.seed = o.has_seed != 0 ? o.seed : std::random_device()();
  r.solver = text_or_empty(o.scheduler);
  REDLINE_TRY(read_pointers(o, r));
  return r;
}

redline_float_array borrow(const FloatArray& array) {
  return {array.data.data(), array.shape.data(), array.shape.size()};
}

bool show_progress(const void* engine, const redline_image_request& o, const ImageProgress& p) {
  if (is_cancelled(o.canceller)) return false;
  if (o.on_step == nullptr) return true;
  const CallbackScope scope(engine);
  redline_image_progress progress = {};
  progress.struct_size = sizeof progress;
  progress.step = p.step;
  progress.steps = p.steps;
  progress.step_ms = p.step_ms;
  progress.computed = p.computed;
  if (p.latents != nullptr) progress.latents = borrow(*p.latents);
  progress.sigma = p.sigma;
  progress.next_sigma = p.next_sigma;
  progress.preview = p.preview ? &p.preview : nullptr;
  return o.on_step(&progress, o.user_data) == 0;
}

/// Waits for the calls before this one. The caller may cancel meanwhile.
Result<std::unique_lock<std::timed_mutex>> take_turn(std::timed_mutex& turn, const redline_image_request& o) {
  std::unique_lock lock(turn, std::try_to_lock);
  while (!lock.owns_lock()) {
    if (is_cancelled(o.canceller) || (o.on_wait != nullptr && o.on_wait(o.user_data) != 0))
      return cancelled("image: cancelled while it waited for other calls of the pipeline");
    (void)lock.try_lock_for(kTurnPoll);
  }
  return lock;
}

Json result_json(const redline_image_result& r) {
  Json json = {{"seed", r.seed},
               {"cache", r.result.cache},
               {"solver", r.result.solver},
               {"step_ms", r.result.step_ms},
               {"computed", r.result.computed},
               {"text_ms", r.result.text_ms},
               {"loop_ms", r.result.loop_ms},
               {"decode_ms", r.result.decode_ms},
               {"operations", r.result.operations},
               {"executed_share", r.result.executed_share},
               {"warnings", r.result.warnings}};
  return json;
}

Json pipeline_json(const ImageContents& contents) {
  const ImageEngine& engine = *contents.engine;
  const ImageRequest& d = contents.defaults;
  Json json;
  json["family"] = engine.family();
  json["is_guidance_distilled"] = engine.is_guidance_distilled();
  json["takes_guidance_scale"] = engine.takes_guidance_scale();
  json["size_multiple"] = engine.size_multiple();
  json["defaults"] = {{"width", d.width},
                      {"height", d.height},
                      {"num_inference_steps", d.num_inference_steps},
                      {"guidance_scale", d.guidance_scale},
                      {"true_cfg_scale", d.true_cfg_scale},
                      {"negative_prompt", d.negative_prompt},
                      {"scheduler", d.solver},
                      {"cache", d.cache}};
  json["memory"] = memory_json(engine.memory());
  return json;
}

}  // namespace

void redline_image_pipeline_options_init(redline_image_pipeline_options* options, size_t struct_size) {
  init_struct(options, struct_size, default_pipeline_options());
}

redline_code redline_image_pipeline_open(const char* path, const redline_image_pipeline_options* options,
                                         redline_image_pipeline** pipeline, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(pipeline), "pipeline"));
    *pipeline = nullptr;
    REDLINE_TRY(required(path, "path"));
    REDLINE_ASSIGN(const redline_image_pipeline_options o,
                   read_struct(options, default_pipeline_options(), "redline_image_pipeline_options"));
    auto contents = std::make_shared<ImageContents>();
    REDLINE_ASSIGN(const ImageOptions given, image_engine_options(o));
    REDLINE_TRY(open_engine<ImageEngine>(*contents, path, given, o, adapter_rank));
    if (o.num_adapters > 0) REDLINE_TRY(contents->engine->set_adapters(contents->adapters->pairs()));
    contents->defaults = contents->engine->defaults();
    *pipeline = new redline_image_pipeline(std::move(contents));
    return {};
  });
}
redline_image_pipeline* redline_image_pipeline_retain(redline_image_pipeline* pipeline) { return retain(pipeline); }
void redline_image_pipeline_release(redline_image_pipeline* pipeline) { release(pipeline); }

redline_code redline_image_pipeline_describe(redline_image_pipeline* pipeline, char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(json), "json"));
    *json = nullptr;
    REDLINE_TRY(usable(pipeline, "pipeline"));
    return give_json(pipeline_json(*pipeline->shared), json);
  });
}

redline_code redline_image_pipeline_load_adapter(redline_image_pipeline* pipeline, const char* name, const char* path,
                                                 redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(pipeline, "pipeline"));
    REDLINE_TRY(required(name, "name"));
    REDLINE_TRY(required(path, "path"));
    REDLINE_TRY(check_not_in_callback(pipeline->shared->engine.get(), "pipeline"));
    return pipeline->shared->engine->load_adapter(name, path);
  });
}

redline_code redline_image_pipeline_set_adapters(redline_image_pipeline* pipeline,
                                                 const redline_adapter_weight* adapters, size_t num_adapters,
                                                 redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(pipeline, "pipeline"));
    REDLINE_ASSIGN(const AdapterWeights weights, adapter_weights(adapters, num_adapters));
    REDLINE_TRY(check_not_in_callback(pipeline->shared->engine.get(), "pipeline"));
    return pipeline->shared->engine->set_adapters(weights);
  });
}

redline_code redline_step_cache_rules(char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(json), "json"));
    *json = nullptr;
    Json rules = Json::array();
    for (const StepCacheRule& rule : step_cache_rules())
      rules.push_back({{"name", rule.name},
                       {"summary", rule.summary},
                       {"source", rule.source},
                       {"is_default", rule.is_default},
                       {"takes_quality", rule.takes_quality},
                       {"takes_budget", rule.takes_budget}});
    return give_json(rules, json);
  });
}

redline_code redline_image_adapter_rank(const char* path, int64_t* rank, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(rank, "rank"));
    *rank = 0;
    REDLINE_TRY(required(path, "path"));
    REDLINE_ASSIGN(*rank, adapter_rank(path));
    return {};
  });
}

redline_code redline_image_preview(const redline_image_progress* progress, int64_t index, int64_t max_side,
                                   uint8_t** rgb, int64_t* width, int64_t* height, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(rgb), "rgb"));
    REDLINE_TRY(required(width, "width"));
    REDLINE_TRY(required(height, "height"));
    *rgb = nullptr;
    *width = *height = 0;
    REDLINE_TRY(required(progress, "progress"));
    if (progress->preview == nullptr) return unsupported("this step has no preview");
    REDLINE_ASSIGN(const RgbImage image, (*static_cast<const Preview*>(progress->preview))(index, max_side));
    REDLINE_TRY(give_array(image.rgb, rgb));
    *width = image.width;
    *height = image.height;
    return {};
  });
}

void redline_image_request_init(redline_image_request* request, size_t struct_size, redline_image_pipeline* pipeline) {
  static const ImageRequest kDefaults;  // not a copy: the strings are borrowed from the pipeline
  const ImageRequest& defaults = pipeline != nullptr ? pipeline->shared->defaults : kDefaults;
  init_struct(request, struct_size, default_request(defaults));
}

redline_code redline_image_generate(redline_image_pipeline* pipeline, const redline_image_request* request,
                                    redline_image_result** result, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(result), "result"));
    *result = nullptr;
    REDLINE_TRY(usable(pipeline, "pipeline"));
    REDLINE_TRY(required(request, "request"));
    const std::shared_ptr<ImageContents> contents = pipeline->shared;
    REDLINE_ASSIGN(const redline_image_request o,
                   read_struct(request, default_request(contents->defaults), "redline_image_request"));
    REDLINE_TRY(check_not_in_callback(contents->engine.get(), "pipeline"));
    REDLINE_ASSIGN(const ImageRequest asked, read_request(o, contents->defaults));
    REDLINE_ASSIGN(const std::unique_lock<std::timed_mutex> turn, take_turn(contents->turn, o));
    auto made = std::make_unique<redline_image_result>();
    made->seed = asked.seed;
    REDLINE_ASSIGN(made->result, contents->engine->generate(asked, [&](const ImageProgress& progress) {
      return show_progress(contents->engine.get(), o, progress);
    }));
    *result = made.release();
    return {};
  });
}

size_t redline_image_result_count(const redline_image_result* result) {
  return result != nullptr ? result->result.images.size() : 0;
}
redline_image redline_image_result_image(const redline_image_result* result, size_t index) {
  if (result == nullptr || index >= result->result.images.size()) return {};
  const RgbImage& image = result->result.images[index];
  return {image.width, image.height, image.rgb.data()};
}
redline_float_array redline_image_result_latents(const redline_image_result* result) {
  if (result == nullptr || result->result.latents.shape.empty()) return {};
  return borrow(result->result.latents);
}
uint64_t redline_image_result_seed(const redline_image_result* result) { return result != nullptr ? result->seed : 0; }
redline_code redline_image_result_describe(const redline_image_result* result, char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(json), "json"));
    *json = nullptr;
    REDLINE_TRY(required(result, "result"));
    return give_json(result_json(*result), json);
  });
}
void redline_image_result_release(redline_image_result* result) { delete result; }

redline_code redline_image_encode_prompts(redline_image_pipeline* pipeline, const char* const* prompts,
                                          size_t num_prompts, int64_t max_sequence_length,
                                          redline_prompt_embeds** embeds, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(embeds), "embeds"));
    *embeds = nullptr;
    REDLINE_TRY(usable(pipeline, "pipeline"));
    const std::shared_ptr<ImageContents> contents = pipeline->shared;
    REDLINE_TRY(check_not_in_callback(contents->engine.get(), "pipeline"));
    REDLINE_ASSIGN(const std::vector<std::string> texts, strings_of(prompts, num_prompts, "prompts"));
    const std::lock_guard turn(contents->turn);
    auto made = std::make_unique<redline_prompt_embeds>();
    REDLINE_ASSIGN(made->embeds, contents->engine->encode_prompts(texts, max_sequence_length));
    *embeds = made.release();
    return {};
  });
}
redline_float_array redline_prompt_embeds_text(const redline_prompt_embeds* embeds) {
  return embeds != nullptr ? borrow(embeds->embeds.text) : redline_float_array{};
}
redline_float_array redline_prompt_embeds_pooled(const redline_prompt_embeds* embeds) {
  return embeds != nullptr ? borrow(embeds->embeds.pooled) : redline_float_array{};
}
redline_code redline_prompt_embeds_describe(const redline_prompt_embeds* embeds, char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(json), "json"));
    *json = nullptr;
    REDLINE_TRY(required(embeds, "embeds"));
    return give_json({{"warnings", embeds->embeds.warnings}}, json);
  });
}
void redline_prompt_embeds_release(redline_prompt_embeds* embeds) { delete embeds; }

redline_code redline_image_decode(redline_image_pipeline* pipeline, const redline_float_array* latents,
                                  redline_image_result** result, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(result), "result"));
    *result = nullptr;
    REDLINE_TRY(usable(pipeline, "pipeline"));
    REDLINE_TRY(required(latents, "latents"));
    const std::shared_ptr<ImageContents> contents = pipeline->shared;
    REDLINE_TRY(check_not_in_callback(contents->engine.get(), "pipeline"));
    REDLINE_ASSIGN(const FloatArray array, read_array(*latents, "latents"));
    const std::lock_guard turn(contents->turn);
    auto made = std::make_unique<redline_image_result>();
    REDLINE_ASSIGN(static_cast<MediaResult&>(made->result), contents->engine->decode(array));
    *result = made.release();
    return {};
  });
}

redline_code redline_save_png(const char* path, const redline_image* image, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(path, "path"));
    REDLINE_TRY(required(image, "image"));
    REDLINE_ASSIGN(const RgbImage copy, read_image(*image, "image"));
    return save_png(path, copy);
  });
}
