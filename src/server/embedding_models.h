// The embedding models behind the port, by name, each with a queue of requests and a thread that computes them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "redline/embedding.h"
#include "server/http.h"
#include "server/json.h"

namespace redline::server {

/// Thread-safe.
class EmbeddingModel {
 public:
  /// `max_waiting`: requests beyond the one that is computed.
  EmbeddingModel(std::string name, std::unique_ptr<EmbeddingEngine> engine, int64_t max_waiting);
  /// Ends when the request in progress is finished; those that wait get an error.
  ~EmbeddingModel();
  const std::string& name() const { return name_; }
  const EmbeddingInfo& info() const { return engine_->info(); }
  const EmbeddingEngine& engine() const { return *engine_; }
  int64_t created() const { return created_; }

  /// What a request computes: the body of its answer, and the tokens that it took.
  struct Result {
    std::string body;
    int64_t tokens = 0;
  };
  using Work = std::function<Outcome<Result>(EmbeddingEngine& engine)>;
  /// An answer that waits for its turn; without a client that waits for it, work that has not begun is left out.
  /// 429: the queue is full.
  Outcome<std::unique_ptr<Answer>> submit(Work work, ErrorShape errors);

 private:
  class Task;
  class TaskAnswer;
  void run();

  const std::string name_;
  const std::unique_ptr<EmbeddingEngine> engine_;
  const int64_t created_;
  const size_t max_waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> waiting_;
  bool is_closing_ = false;
  std::thread thread_;
};

/// Thread-safe.
class EmbeddingModels {
 public:
  void add(std::shared_ptr<EmbeddingModel> model);
  std::vector<std::shared_ptr<EmbeddingModel>> all() const;
  /// "": the only model. Also Ollama's NAME:latest. 404 model_not_found with the names there are.
  Outcome<std::shared_ptr<EmbeddingModel>> find(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<EmbeddingModel>> models_;
};

/// "[0.1,-0.25]", with as many digits as tell the float from others.
void append_numbers(std::string& text, std::span<const float> values);

}  // namespace redline::server
