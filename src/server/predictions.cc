#include "server/predictions.h"

#include <algorithm>
#include <new>

#include "base/elapsed.h"
#include "base/utc_time.h"
#include "server/ids.h"

namespace redline::server {
namespace {

/// Returns a time as text; null: the event has not happened yet.
Json time_json(double seconds) {
  if (seconds == 0) return nullptr;
  return utc_text_ms(seconds);
}

}  // namespace

std::string_view prediction_status_name(PredictionStatus status) {
  constexpr std::array<std::string_view, 5> kNames = {"queued", "processing", "succeeded", "failed", "canceled"};
  return kNames[static_cast<size_t>(status)];
}

size_t ImageJob::bytes() const {
  size_t sum = to_text(input).size() + request.negative_prompt.size();
  for (const std::string& prompt : request.prompts) sum += prompt.size();
  for (const auto& image : {request.init_image, request.mask})
    if (image) sum += image->rgb.size();
  if (webhook) sum += webhook->url.size();
  return sum;
}

// --- Prediction ---

Prediction::Prediction(std::string id, const std::shared_ptr<ImageModel>& model, ImageJob job)
    : id_(std::move(id)), model_(model->shared_from_this()), job_(std::move(job)), created_(unix_now()),
      loaded_(model) {}

Prediction::State Prediction::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

int64_t Prediction::queue_position() const { return model_->queue_position(*this); }

void Prediction::update(const std::function<void(State&)>& change) {
  std::shared_ptr<ImageModel> unused;
  {
    const std::lock_guard lock(mutex_);
    if (state_.is_over()) return;
    change(state_);
    if (state_.is_over()) unused.swap(loaded_);
  }
  unused.reset();
  notify();
  if (!job_.webhook) return;
  const State now = state();
  if (now.is_over()) job_.webhook->send("completed", prediction_json(*this));
  else if (now.status == PredictionStatus::kProcessing && now.step == 0)
    job_.webhook->send("start", prediction_json(*this));
}

void Prediction::notify() {
  const std::lock_guard lock(listening_);
  for (const auto& [number, listener] : listeners_) listener();
}

void Prediction::cancel() {
  const bool was_waiting = model_->withdraw(*this);
  {
    const std::lock_guard lock(mutex_);
    is_canceled_ = true;
  }
  if (was_waiting)
    update([](State& s) {
      s.status = PredictionStatus::kCanceled;
      s.completed = unix_now();
    });
}

bool Prediction::has_listeners() {
  const std::lock_guard lock(listening_);
  return !listeners_.empty();
}

bool Prediction::is_canceled() const {
  const std::lock_guard lock(mutex_);
  return is_canceled_;
}

uint64_t Prediction::listen(std::function<void()> changed) {
  const std::lock_guard lock(listening_);
  listeners_[next_listener_] = std::move(changed);
  return next_listener_++;
}

void Prediction::unlisten(uint64_t number) {
  const std::lock_guard lock(listening_);
  listeners_.erase(number);
}

// --- ImageModel ---

ImageModel::ImageModel(std::string name, Opener open, const ImageOptions& options, int64_t max_waiting,
                       std::vector<std::pair<std::string, std::string>> adapters)
    : name_(std::move(name)), open_(std::move(open)), max_side_(options.max_side), max_batch_(options.max_batch),
      max_waiting_(max_waiting), created_(unix_time()), adapters_(std::move(adapters)), thread_([this] { run(); }) {}

ImageModel::~ImageModel() { close(); }

void ImageModel::close(double seconds) {
  const auto cancel_all = [this](bool with_webhook) {
    std::deque<std::shared_ptr<Prediction>> all;
    {
      const std::lock_guard lock(mutex_);
      all = waiting_;
      if (running_) all.push_back(running_);
    }
    for (const auto& prediction : all)
      if (with_webhook || !prediction->job().webhook) prediction->cancel();
  };
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) return;
    is_closing_ = true;
    changed_.notify_all();
  }
  cancel_all(false);
  {
    std::unique_lock lock(mutex_);
    const auto time = std::chrono::milliseconds(static_cast<int64_t>(std::min(seconds, 1e6) * 1e3));
    changed_.wait_for(lock, time, [&] { return waiting_.empty() && !running_; });
  }
  cancel_all(true);
  thread_.join();
}

std::vector<std::string> ImageModel::adapters() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, path] : adapters_) names.push_back(name);
  return names;
}

Result<int64_t> ImageModel::load() {
  REDLINE_ASSIGN(std::shared_ptr<ImageEngine> engine, open_());
  const std::lock_guard lock(mutex_);
  for (auto adapter = adapters_.begin(); adapter != adapters_.end();) {
    const Status status = engine->load_adapter(adapter->first, adapter->second);
    if (!status.ok() && !was_loaded_) return status.within("adapter " + adapter->first);
    if (!status.ok()) note_dropped_adapter(name_, adapter->first, status);
    adapter = status.ok() ? adapter + 1 : adapters_.erase(adapter);
  }
  was_loaded_ = true;
  engine_ = std::move(engine);
  return engine_->memory().packed_weights;
}

void ImageModel::unload() {
  std::shared_ptr<ImageEngine> engine;  // destroyed after the mutex has been unlocked
  const std::lock_guard lock(mutex_);
  engine.swap(engine_);
}

int64_t ImageModel::queue_position(const Prediction& prediction) const {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& w) { return w.get() == &prediction; });
  return found == waiting_.end() ? 0 : found - waiting_.begin() + (running_ ? 1 : 0);
}

bool ImageModel::withdraw(const Prediction& prediction) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(waiting_.begin(), waiting_.end(), [&](const auto& w) { return w.get() == &prediction; });
  if (found == waiting_.end()) return false;
  waiting_.erase(found);
  return true;
}

int64_t ImageModel::in_flight() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(waiting_) + (running_ ? 1 : 0);
}

size_t ImageModel::waiting_bytes() const {
  size_t sum = 0;
  for (const auto& prediction : waiting_) sum += prediction->job().bytes();
  return sum;
}

Outcome<std::shared_ptr<Prediction>> ImageModel::submit(const std::shared_ptr<ImageModel>& model, ImageJob job) {
  const std::vector<std::string> known = model->adapters();
  for (const auto& [adapter, weight] : job.adapters)
    if (std::find(known.begin(), known.end(), adapter) == known.end())
      return bad_request("adapters", known.empty()
                                         ? fmt::format("{} has no adapters", model->name_)
                                         : fmt::format("there is no adapter \"{}\"; {} has {}", adapter.substr(0, 64),
                                                       model->name_, fmt::join(known, ", ")));
  auto prediction = std::make_shared<Prediction>(new_id("pred_"), model, std::move(job));
  const std::lock_guard lock(model->mutex_);
  if (model->is_closing_) return overloaded(503, "the server is stopping", 5);
  const auto num_waiting = std::ssize(model->waiting_);
  if (num_waiting >= model->max_waiting_)
    return overloaded(429, fmt::format("the queue is full: {} requests for images are waiting", num_waiting), 5);
  const size_t bytes = model->waiting_bytes(), own = prediction->job().bytes();
  if (bytes > 0 && bytes + own > kMaxWaitingBytes)
    return overloaded(429,
                      fmt::format("the queue is full: the images in {} requests for images that wait take {} MiB",
                                  num_waiting, bytes >> 20),
                      5);
  model->waiting_.push_back(prediction);
  model->changed_.notify_all();
  return prediction;
}

void ImageModel::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closing_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    running_ = std::move(waiting_.front());
    waiting_.pop_front();
    const std::deque<std::shared_ptr<Prediction>> moved_up = waiting_;
    const std::shared_ptr<Prediction> prediction = running_;
    lock.unlock();
    for (const auto& waiting : moved_up) waiting->notify();
    run_one(prediction);
    lock.lock();
    running_.reset();
    changed_.notify_all();
  }
}

void ImageModel::run_one(const std::shared_ptr<Prediction>& prediction) {
  const ImageJob& job = prediction->job();
  prediction->update([](Prediction::State& s) {
    s.status = PredictionStatus::kProcessing;
    s.started = unix_now();
  });
  const ImageRequest& request = job.request;
  const auto num_images = std::max<int64_t>(request.batch, std::ssize(request.prompts));
  const auto on_step = [&](const ImageProgress& p) {
    std::vector<std::shared_ptr<const std::string>> previews;
    const int64_t n = job.num_previews > 0 ? job.num_previews : p.steps;
    const bool is_due = p.step * n / p.steps > (p.step - 1) * n / p.steps && p.step < p.steps;
    for (int64_t i = 0; is_due && job.preview_side > 0 && i < num_images && prediction->has_listeners(); ++i) {
      const auto image = p.preview(i, job.preview_side);
      if (!image.ok()) break;
      auto file = encode_image(*image, ImageFormat::kJpeg);
      if (!file.ok()) break;
      previews.push_back(std::make_shared<const std::string>(std::move(file).value()));
    }
    prediction->update([&](Prediction::State& s) {
      s.step = p.step;
      s.steps = p.steps;
      s.step_ms = p.step_ms;
      s.computed = p.computed;
      s.previews = std::move(previews);
    });
    return !prediction->is_canceled();
  };
  const auto draw = [&]() -> Result<ImageResult> {
    if (prediction->is_canceled()) return cancelled("canceled");
    try {
      REDLINE_TRY(engine_->set_adapters(job.adapters));
      return engine_->generate(request, on_step);
    } catch (const std::bad_alloc&) {  // it would end the thread, and with it the server
      return out_of_memory("there is no memory for this request");
    }
  };
  Result<ImageResult> result = draw();
  Status error = result.status();
  std::vector<std::shared_ptr<const std::string>> outputs;
  for (size_t i = 0; result.ok() && i < result->images.size(); ++i) {
    auto file = encode_image(result->images[i], job.format);
    error = file.status();
    if (!file.ok()) break;
    outputs.push_back(std::make_shared<const std::string>(std::move(file).value()));
  }
  prediction->update([&](Prediction::State& s) {
    s.completed = unix_now();
    s.previews.clear();
    if (!error.ok()) {
      s.status = error.code() == Code::cancelled ? PredictionStatus::kCanceled : PredictionStatus::kFailed;
      s.error = std::move(error);
      return;
    }
    s.status = PredictionStatus::kSucceeded;
    s.outputs = std::move(outputs);
    for (int64_t i = 0; i < num_images; ++i) s.seeds.push_back(request.seed + static_cast<uint64_t>(i));
    s.step = s.steps;
    s.text_ms = result->text_ms;
    s.loop_ms = result->loop_ms;
    s.decode_ms = result->decode_ms;
    s.executed_share = result->executed_share;
    s.cache = result->cache;
    s.solver = result->solver;
    s.warnings = result->warnings;
  });
}

// --- ImageModels ---

void ImageModels::add(std::shared_ptr<ImageModel> model, int64_t expected_bytes) {
  residency_.add(model, expected_bytes);
  const std::lock_guard lock(mutex_);
  models_.push_back(std::move(model));
}

std::vector<std::shared_ptr<ImageModel>> ImageModels::all() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

Outcome<std::shared_ptr<ImageModel>> ImageModels::find(const std::string& name) const {
  const auto models = all();
  if (models.empty()) {
    const std::string other = residency_.other_purpose(name);
    return not_found_error("model", "this server has no model for images" + (other.empty() ? "" : ": " + other),
                           "model_not_found");
  }
  std::vector<std::string> names;
  for (const auto& model : models) {
    names.push_back(model->name());
    names.insert(names.end(), model->aliases().begin(), model->aliases().end());
    const bool takes_any = residency_.options().takes_any_name && residency_.other_purpose(name).empty();
    if (!model->is_named(name) && !((name.empty() || takes_any) && models.size() == 1)) continue;
    auto use = residency_.use(*model);
    if (!use) return not_loaded(residency_.load(*model));
    return std::shared_ptr<ImageModel>(std::move(use), model.get());
  }
  if (name.empty()) return bad_request("model", fmt::format("model is missing; there are {}", fmt::join(names, ", ")));
  if (const std::string why = residency_.other_purpose(name); !why.empty())
    return not_found_error("model", why, "model_not_found");
  return not_found_error("model",
                         fmt::format("there is no model for images \"{}\"; there {} {}", name.substr(0, 64),
                                     names.size() == 1 ? "is" : "are", fmt::join(names, ", ")),
                         "model_not_found");
}

void ImageModels::keep(std::shared_ptr<Prediction> prediction) {
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(prediction));
  drop_old();
}

void ImageModels::drop_old() {
  size_t bytes = 0, kept = 0;
  std::deque<std::shared_ptr<Prediction>> rest;
  for (auto p = kept_.rbegin(); p != kept_.rend(); ++p) {
    const Prediction::State state = (*p)->state();
    bytes += (*p)->job().bytes();
    for (const auto& file : state.outputs) bytes += file->size();
    if (state.is_over() && (++kept > kMaxKept || bytes > kMaxKeptBytes)) continue;
    rest.push_front(*p);
  }
  kept_ = std::move(rest);
}

Outcome<std::shared_ptr<Prediction>> ImageModels::prediction(const std::string& id, const std::string& client) const {
  const std::lock_guard lock(mutex_);
  for (const auto& prediction : kept_)
    if (prediction->id() == id && prediction->job().client == client) return prediction;
  return not_found_error("id", fmt::format("there is no prediction {}, or it has expired", id.substr(0, 64)),
                         "not_found");
}

std::vector<std::shared_ptr<Prediction>> ImageModels::predictions(const std::string& client) const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Prediction>> own;
  std::copy_if(kept_.rbegin(), kept_.rend(), std::back_inserter(own),
               [&](const auto& prediction) { return prediction->job().client == client; });
  return own;
}

void ImageModels::close(double seconds) {
  const auto begin = std::chrono::steady_clock::now();
  for (const auto& model : all()) model->close(std::max(0.0, seconds - seconds_since(begin)));
}

Json prediction_json(const Prediction& p) {
  const Prediction::State s = p.state();
  const std::string url = "/v1/predictions/" + p.id();
  Json output = nullptr;
  if (s.status == PredictionStatus::kSucceeded) {
    output = Json::array();
    for (size_t i = 0; i < s.outputs.size(); ++i) output.push_back(fmt::format("{}/images/{}", url, i));
  }
  Json json = {{"id", p.id()},
               {"model", p.model().name()},
               {"status", prediction_status_name(s.status)},
               {"queue_position", s.status == PredictionStatus::kQueued ? Json(p.queue_position()) : Json(nullptr)},
               {"input", p.job().input},
               {"output", std::move(output)},
               {"seeds", s.seeds},
               {"error", s.status == PredictionStatus::kFailed ? Json(s.error.message()) : Json(nullptr)},
               {"progress", {{"step", s.step}, {"steps", s.steps}}},
               {"created_at", time_json(p.created())},
               {"started_at", time_json(s.started)},
               {"completed_at", time_json(s.completed)},
               {"warnings", s.warnings},
               {"urls", {{"get", url}, {"cancel", url + "/cancel"}, {"events", url + "/events"}}}};
  if (s.status == PredictionStatus::kSucceeded)
    json["metrics"] = {{"predict_time", s.completed - s.started},
                       {"total_s", s.completed - s.started},
                       {"text_ms", s.text_ms},
                       {"loop_ms", s.loop_ms},
                       {"decode_ms", s.decode_ms},
                       {"executed_share", s.executed_share},
                       {"cache", s.cache},
                       {"solver", s.solver}};
  return json;
}

}  // namespace redline::server
