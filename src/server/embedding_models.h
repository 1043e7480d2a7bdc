// The served embedding models, by name. Each has a queue of requests and a thread that computes them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "redline/embedding.h"
#include "server/http.h"
#include "server/json.h"
#include "server/residency.h"

namespace redline::server {

/// An embedding model. Its engine may be unloaded and loaded again. Thread-safe.
class EmbeddingModel final : public Resident {
 public:
  using Opener = std::function<redline::Result<std::unique_ptr<EmbeddingEngine>>()>;
  /// Serves an engine that load() opens. `max_waiting`: number of requests beyond the one that is computed.
  EmbeddingModel(std::string name, Opener open, int64_t max_waiting);
  /// Waits for the request in progress; waiting requests get an error.
  ~EmbeddingModel() override;
  const std::string& name() const override { return name_; }
  std::string_view purpose() const override { return "embeddings and ranking; see /v1/embeddings"; }
  redline::Result<int64_t> load() override;
  void unload() override;
  /// Requires a loaded model obtained from EmbeddingModels::find().
  const EmbeddingEngine& engine() const { return *engine_; }
  /// Returns the info of the last load; nullopt if it was never loaded.
  std::optional<EmbeddingInfo> known_info() const;
  int64_t created() const { return created_; }
  /// Waits for the request in progress; waiting requests get an error. The owner must call it before releasing the
  /// model: a request in progress must not hold the last reference, because the model's own thread would then destroy
  /// it.
  void close();

  /// The result of a request: the body of its answer, and the number of tokens processed.
  struct Result {
    std::string body;
    int64_t tokens = 0;
  };
  /// Computes a request. `goes_on` returns false when the client is gone.
  using Work = std::function<Outcome<Result>(EmbeddingEngine& engine, const std::function<bool()>& goes_on)>;
  /// Queues work and returns an answer that waits for it. `model` must come from EmbeddingModels::find(); it stays
  /// loaded until the work is done. If the client leaves, the work ends after its current step. 429: the queue is full.
  static Outcome<std::unique_ptr<Answer>> submit(const std::shared_ptr<EmbeddingModel>& model, Work work,
                                                 ErrorShape errors);
  /// Makes the answer from the embeddings, or from the error.
  using Finish = std::function<Outcome<Result>(redline::Result<Embeddings> embeddings)>;
  /// Queues texts and returns an answer that waits for them. All waiting texts, also of other clients, are computed
  /// together and share steps.
  static Outcome<std::unique_ptr<Answer>> embed(const std::shared_ptr<EmbeddingModel>& model, EmbedRequest request,
                                                Finish finish, ErrorShape errors);

 private:
  class Task;
  class TaskAnswer;
  static Outcome<std::unique_ptr<Answer>> queue(const std::shared_ptr<EmbeddingModel>& model,
                                                const std::shared_ptr<Task>& task, ErrorShape errors);
  /// Returns the batch to compute next: all waiting embeddings, or one other request.
  std::vector<std::shared_ptr<Task>> take_next();
  void run();

  const std::string name_;
  const Opener open_;
  const int64_t created_;
  const size_t max_waiting_;
  mutable std::mutex mutex_;  // guards the members below; the engine in use comes from EmbeddingModels::find()
  std::shared_ptr<EmbeddingEngine> engine_;
  std::optional<EmbeddingInfo> info_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Task>> waiting_;
  bool is_closing_ = false;
  std::thread thread_;
};

/// The table of served embedding models. Thread-safe.
class EmbeddingModels {
 public:
  explicit EmbeddingModels(Residency& residency) : residency_(residency) {}
  ~EmbeddingModels();
  /// Adds a model. `expected_bytes` as for Residency::add().
  void add(std::shared_ptr<EmbeddingModel> model, int64_t expected_bytes);
  std::vector<std::shared_ptr<EmbeddingModel>> all() const;
  /// Returns the models that lists of models show.
  std::vector<std::shared_ptr<EmbeddingModel>> listed() const;
  /// Finds a loaded model; the pointer keeps it loaded. Accepts "" for the only model, and Ollama's NAME:latest. 404
  /// model_not_found lists the existing names. The error is not_loaded() if the model is not loaded.
  Outcome<std::shared_ptr<EmbeddingModel>> find(const std::string& name) const;

 private:
  Residency& residency_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<EmbeddingModel>> models_;
};

/// Appends "[0.1,-0.25]", with as many digits as identify each float.
void append_numbers(std::string& text, std::span<const float> values);

/// Maximum number of texts or lists of token ids in one request.
inline constexpr size_t kMaxEmbeddingInputs = 4096;
/// Reads a non-empty input: a text, a list of texts, a list of token ids, or a list of such lists. `name` is the
/// field's name.
std::optional<ApiError> read_embedding_input(const Json& input, const std::string& name, EmbedRequest& request);

}  // namespace redline::server
