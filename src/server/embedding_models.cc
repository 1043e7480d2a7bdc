#include "server/embedding_models.h"

#include <fmt/ranges.h>

#include <new>
#include <utility>

#include "base/text_distance.h"
#include "base/utc_time.h"

namespace redline::server {

class EmbeddingModel::Task {
 public:
  Task(std::shared_ptr<EmbeddingModel> model, Work work) : loaded_(std::move(model)), work_(std::move(work)) {}
  Task(std::shared_ptr<EmbeddingModel> model, EmbedRequest request, Finish finish)
      : loaded_(std::move(model)), request_(std::move(request)), finish_(std::move(finish)) {}

  bool is_embedding() const { return finish_ != nullptr; }
  // Runs tasks and catches all exceptions, because one would end the thread, and with it the server.
  static void run(std::vector<std::shared_ptr<Task>> tasks) {
    std::erase_if(tasks, [](const auto& task) { return task->is_abandoned(); });
    if (tasks.empty()) return;
    std::optional<ApiError> error;
    try {
      if (!tasks[0]->is_embedding()) {
        Task& task = *tasks[0];
        return task.end(task.work_(*task.loaded_->engine_, [&task] { return !task.is_abandoned(); }));
      }
      embed(tasks);
    } catch (const std::bad_alloc&) {
      error = overloaded(503, "there is no memory for this request", 1);
    } catch (const std::exception& thrown) {
      error = api_error(internal("{}", thrown.what()));
    }
    if (error)
      for (const auto& task : tasks)
        if (!task->has_ended()) task->end(*error);
  }
  void end(Outcome<Result> result) {
    const std::lock_guard lock(mutex_);
    loaded_.reset();
    has_ended_ = true;
    result_ = std::move(result);
    if (wake_) wake_();
  }
  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return has_ended_;
  }
  void abandon() {
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    wake_ = {};
  }
  bool is_abandoned() {
    const std::lock_guard lock(mutex_);
    return is_abandoned_;
  }
  void on_ready(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
    if (result_) wake_();
  }
  /// Returns the result once. nullopt: it is not there yet.
  std::optional<Outcome<Result>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(result_, std::nullopt);
  }

 private:
  static void embed(const std::vector<std::shared_ptr<Task>>& tasks) {
    const std::shared_ptr<EmbeddingModel> loaded = tasks[0]->loaded_;
    std::vector<EmbedRequest> requests;
    requests.reserve(tasks.size());
    for (const auto& task : tasks) {
      requests.push_back(std::move(task->request_));
      requests.back().goes_on = [t = task.get()] { return !t->is_abandoned(); };
    }
    loaded->engine_->embed_all(requests, [&](size_t i, redline::Result<Embeddings> embeddings) {
      tasks[i]->end(tasks[i]->finish_(std::move(embeddings)));
    });
  }

  std::shared_ptr<EmbeddingModel> loaded_;
  const Work work_;
  EmbedRequest request_;
  const Finish finish_;
  std::mutex mutex_;
  bool is_abandoned_ = false, has_ended_ = false;
  std::optional<Outcome<Result>> result_;
  std::function<void()> wake_;
};

class EmbeddingModel::TaskAnswer final : public Answer {
 public:
  TaskAnswer(std::shared_ptr<Task> task, ErrorShape errors, std::string model)
      : task_(std::move(task)), errors_(errors) {
    facts.model = std::move(model);
  }
  ~TaskAnswer() override { task_->abandon(); }
  void on_ready(std::function<void()> wake) override { task_->on_ready(std::move(wake)); }
  Progress poll(std::string& body) override {
    auto result = task_->take();
    if (!result) return Progress::kWaiting;
    if (result->ok()) {
      facts.prompt_tokens = (*result)->tokens;
      body += (*result)->body;
    } else {
      status = result->error().status;
      body += error_body(result->error(), errors_);
    }
    return Progress::kDone;
  }

 private:
  const std::shared_ptr<Task> task_;
  const ErrorShape errors_;
};

EmbeddingModel::EmbeddingModel(std::string name, Opener open, int64_t max_waiting)
    : name_(std::move(name)), open_(std::move(open)), created_(unix_time()),
      max_waiting_(static_cast<size_t>(max_waiting)), thread_([this] { run(); }) {}

redline::Result<int64_t> EmbeddingModel::load() {
  REDLINE_ASSIGN(std::shared_ptr<EmbeddingEngine> engine, open_());
  const std::lock_guard lock(mutex_);
  info_ = engine->info();
  engine_ = std::move(engine);
  return info_->weight_bytes + info_->cache_bytes;
}

void EmbeddingModel::unload() {
  std::shared_ptr<EmbeddingEngine> engine;  // destroyed after the mutex has been unlocked
  const std::lock_guard lock(mutex_);
  engine.swap(engine_);
}

std::optional<EmbeddingInfo> EmbeddingModel::known_info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

EmbeddingModel::~EmbeddingModel() { close(); }

void EmbeddingModel::close() {
  std::deque<std::shared_ptr<Task>> waiting;
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    waiting.swap(waiting_);
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  for (const auto& task : waiting) task->end(overloaded(503, "the server is stopping", 1));
}

void EmbeddingModel::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_closing_ || !waiting_.empty(); });
    if (is_closing_) return;
    std::vector<std::shared_ptr<Task>> tasks = take_next();
    lock.unlock();
    Task::run(std::move(tasks));
    lock.lock();
  }
}

std::vector<std::shared_ptr<EmbeddingModel::Task>> EmbeddingModel::take_next() {
  std::vector<std::shared_ptr<Task>> tasks = {waiting_.front()};
  waiting_.pop_front();
  if (!tasks[0]->is_embedding()) return tasks;
  std::erase_if(waiting_, [&](const std::shared_ptr<Task>& task) {
    if (!task->is_embedding()) return false;
    tasks.push_back(task);
    return true;
  });
  return tasks;
}

Outcome<std::unique_ptr<Answer>> EmbeddingModel::submit(const std::shared_ptr<EmbeddingModel>& model, Work work,
                                                        ErrorShape errors) {
  return queue(model, std::make_shared<Task>(model, std::move(work)), errors);
}

Outcome<std::unique_ptr<Answer>> EmbeddingModel::embed(const std::shared_ptr<EmbeddingModel>& model,
                                                       EmbedRequest request, Finish finish, ErrorShape errors) {
  return queue(model, std::make_shared<Task>(model, std::move(request), std::move(finish)), errors);
}

Outcome<std::unique_ptr<Answer>> EmbeddingModel::queue(const std::shared_ptr<EmbeddingModel>& model,
                                                       const std::shared_ptr<Task>& task, ErrorShape errors) {
  {
    const std::lock_guard lock(model->mutex_);
    if (model->is_closing_) return overloaded(503, "the server is stopping", 1);
    std::erase_if(model->waiting_, [](const auto& waiting) { return waiting->is_abandoned(); });
    if (model->waiting_.size() > model->max_waiting_)
      return overloaded(429, fmt::format("{} requests wait for {} already", model->waiting_.size(), model->name_), 1);
    model->waiting_.push_back(task);
    model->changed_.notify_all();
  }
  return std::unique_ptr<Answer>(std::make_unique<TaskAnswer>(task, errors, model->name_));
}

EmbeddingModels::~EmbeddingModels() {
  for (const auto& model : all()) model->close();
}

void EmbeddingModels::add(std::shared_ptr<EmbeddingModel> model, int64_t expected_bytes) {
  residency_.add(model, expected_bytes);
  const std::lock_guard lock(mutex_);
  models_.push_back(std::move(model));
}

std::vector<std::shared_ptr<EmbeddingModel>> EmbeddingModels::all() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

std::vector<std::shared_ptr<EmbeddingModel>> EmbeddingModels::listed() const {
  auto models = all();
  std::erase_if(models, [](const auto& model) { return !model->is_listed(); });
  return models;
}

Outcome<std::shared_ptr<EmbeddingModel>> EmbeddingModels::find(const std::string& name) const {
  constexpr const char* kHint =
      "; a server that was started with --pooling last, or mean, also gives the embeddings of its language models";
  const auto models = all();
  if (models.empty()) {
    const std::string other = residency_.other_purpose(name);
    return not_found_error("model",
                           "this server has no model for embeddings" + (other.empty() ? "" : ": " + other) + kHint,
                           "model_not_found");
  }
  std::vector<std::string_view> names;
  for (const auto& model : models) {
    names.push_back(model->name());
    for (const std::string& alias : model->aliases()) names.push_back(alias);
    const bool takes_any = residency_.options().takes_any_name && residency_.other_purpose(name).empty();
    const bool is_only = (name.empty() || takes_any) && models.size() == 1;
    if (!is_only && !model->is_named(name)) continue;
    auto use = residency_.use(*model);
    if (!use) return not_loaded(residency_.load(*model));
    return std::shared_ptr<EmbeddingModel>(std::move(use), model.get());
  }
  if (name.empty())
    return bad_request("model", fmt::format("model is missing; there are {}", fmt::join(names, ", ")),
                       "missing_required_parameter");
  const std::string shown = name.substr(0, 128);
  if (const std::string why = residency_.other_purpose(name); !why.empty())
    return not_found_error("model", why, "model_not_found");
  return not_found_error(
      "model",
      fmt::format("there is no model for embeddings \"{}\"{}; there {} {}", shown, did_you_mean(shown, names),
                  names.size() == 1 ? "is" : "are", fmt::join(names, ", ")),
      "model_not_found");
}

void append_numbers(std::string& text, std::span<const float> values) {
  text += '[';
  for (size_t i = 0; i < values.size(); ++i)
    fmt::format_to(std::back_inserter(text), "{}{}", i > 0 ? "," : "", values[i]);
  text += ']';
}

namespace {

constexpr double kMaxTokenId = 2147483647;

Outcome<std::vector<int32_t>> token_ids(const Json& list, const std::string& place) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& id = list[i];
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > kMaxTokenId)
      return bad_request(fmt::format("{}[{}]", place, i), fmt::format("{}[{}] is not a token id", place, i),
                         "invalid_type");
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

std::optional<ApiError> read_embedding_input(const Json& input, const std::string& name, EmbedRequest& request) {
  if (input.is_string()) {
    request.texts = {input.get<std::string>()};
    return std::nullopt;
  }
  if (input[0].is_number()) {
    auto ids = token_ids(input, name);
    if (!ids.ok()) return ids.error();
    request.tokens = {std::move(*ids)};
    return std::nullopt;
  }
  if (input.size() > kMaxEmbeddingInputs)
    return bad_request(
        name, fmt::format("{} has {} texts; at most {} go in one request", name, input.size(), kMaxEmbeddingInputs),
        "array_above_max_length");
  for (size_t i = 0; i < input.size(); ++i) {
    const std::string place = fmt::format("{}[{}]", name, i);
    if (input[0].is_string() ? !input[i].is_string() : !input[i].is_array())
      return bad_request(place,
                         fmt::format("{} must be {}, as {}[0]", place,
                                     input[0].is_string() ? "a string" : "a list of token ids", name),
                         "invalid_type");
    if (input[i].is_string()) {
      request.texts.push_back(input[i].get<std::string>());
      continue;
    }
    auto ids = token_ids(input[i], place);
    if (!ids.ok()) return ids.error();
    request.tokens.push_back(std::move(*ids));
  }
  return std::nullopt;
}

}  // namespace redline::server
