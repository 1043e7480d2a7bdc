#include "server/embedding_models.h"

#include <fmt/ranges.h>

#include <ctime>

#include "base/text_distance.h"

namespace redline::server {

class EmbeddingModel::Task {
 public:
  explicit Task(Work work) : work_(std::move(work)) {}

  void run(EmbeddingEngine& engine) {
    {
      const std::lock_guard lock(mutex_);
      if (is_abandoned_) return;
    }
    end(work_(engine));
  }
  void end(Outcome<Result> result) {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    if (wake_) wake_();
  }
  void abandon() {
    const std::lock_guard lock(mutex_);
    is_abandoned_ = true;
    wake_ = {};
  }
  void on_ready(std::function<void()> wake) {
    const std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
    if (result_) wake_();
  }
  /// nullopt: not yet.
  std::optional<Outcome<Result>> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(result_, std::nullopt);
  }

 private:
  const Work work_;
  std::mutex mutex_;
  bool is_abandoned_ = false;
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

EmbeddingModel::EmbeddingModel(std::string name, std::unique_ptr<EmbeddingEngine> engine, int64_t max_waiting)
    : name_(std::move(name)), engine_(std::move(engine)), created_(std::time(nullptr)),
      max_waiting_(static_cast<size_t>(max_waiting)), thread_([this] { run(); }) {}

EmbeddingModel::~EmbeddingModel() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
  for (const auto& task : waiting_) task->end(overloaded(503, "the server is stopping", 1));
}

void EmbeddingModel::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return is_closing_ || !waiting_.empty(); });
    if (is_closing_) return;
    const std::shared_ptr<Task> task = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    task->run(*engine_);
    lock.lock();
  }
}

Outcome<std::unique_ptr<Answer>> EmbeddingModel::submit(Work work, ErrorShape errors) {
  auto task = std::make_shared<Task>(std::move(work));
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() > max_waiting_)
      return overloaded(429, fmt::format("{} requests wait for {} already", waiting_.size(), name_), 1);
    waiting_.push_back(task);
    changed_.notify_all();
  }
  return std::unique_ptr<Answer>(std::make_unique<TaskAnswer>(std::move(task), errors, name_));
}

void EmbeddingModels::add(std::shared_ptr<EmbeddingModel> model) {
  const std::lock_guard lock(mutex_);
  models_.push_back(std::move(model));
}

std::vector<std::shared_ptr<EmbeddingModel>> EmbeddingModels::all() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

Outcome<std::shared_ptr<EmbeddingModel>> EmbeddingModels::find(const std::string& name) const {
  const auto models = all();
  if (models.empty()) return not_found_error("model", "this server has no model for embeddings", "model_not_found");
  if (name.empty() && models.size() == 1) return models[0];
  std::vector<std::string_view> names;
  for (const auto& model : models) {
    if (model->name() == name || model->name() + ":latest" == name) return model;
    names.push_back(model->name());
  }
  if (name.empty())
    return bad_request("model", fmt::format("model is missing; there are {}", fmt::join(names, ", ")),
                       "missing_required_parameter");
  const std::string shown = name.substr(0, 128);
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

}  // namespace redline::server
