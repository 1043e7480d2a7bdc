// The served embedding models, by name, each with a queue of requests and a thread that computes them.
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

/// Its engine may come and go. Thread-safe.
class EmbeddingModel final : public Resident {
 public:
  using Opener = std::function<redline::Result<std::unique_ptr<EmbeddingEngine>>()>;
  /// Opened by load(). `max_waiting`: requests beyond the one that is computed.
  EmbeddingModel(std::string name, Opener open, int64_t max_waiting);
  /// Ends when the request in progress is finished; those that wait get an error.
  ~EmbeddingModel() override;
  const std::string& name() const override { return name_; }
  std::string_view purpose() const override { return "embeddings and ranking; see /v1/embeddings"; }
  redline::Result<int64_t> load() override;
  void unload() override;
  /// Requires a loaded model obtained from EmbeddingModels::find().
  const EmbeddingEngine& engine() const { return *engine_; }
  /// nullopt: it was never loaded.
  std::optional<EmbeddingInfo> known_info() const;
  int64_t created() const { return created_; }
  /// Waits for the request in progress; those that wait get an error. The owner calls it before letting go: a request
  /// in progress must not be the last to hold the model, whose thread computes it.
  void close();

  /// What a request computes: the body of its answer, and the tokens that it took.
  struct Result {
    std::string body;
    int64_t tokens = 0;
  };
  /// `goes_on`: false when the client is gone.
  using Work = std::function<Outcome<Result>(EmbeddingEngine& engine, const std::function<bool()>& goes_on)>;
  /// `model`: as EmbeddingModels::find() gives it; it is kept loaded until the work is done.
  /// An answer that waits for its turn; without a client that waits for it, the work ends with its step.
  /// 429: the queue is full.
  static Outcome<std::unique_ptr<Answer>> submit(const std::shared_ptr<EmbeddingModel>& model, Work work,
                                                 ErrorShape errors);
  /// Makes the answer of the embeddings, or of the error.
  using Finish = std::function<Outcome<Result>(redline::Result<Embeddings> embeddings)>;
  /// The same for a request whose texts share steps with those of other clients: all that wait are computed together.
  static Outcome<std::unique_ptr<Answer>> embed(const std::shared_ptr<EmbeddingModel>& model, EmbedRequest request,
                                                Finish finish, ErrorShape errors);

 private:
  class Task;
  class TaskAnswer;
  static Outcome<std::unique_ptr<Answer>> queue(const std::shared_ptr<EmbeddingModel>& model,
                                                const std::shared_ptr<Task>& task, ErrorShape errors);
  /// Those that are computed next: one, or all embeddings that wait.
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

/// Thread-safe.
class EmbeddingModels {
 public:
  explicit EmbeddingModels(Residency& residency) : residency_(residency) {}
  ~EmbeddingModels();
  /// `expected_bytes`: as Residency::add().
  void add(std::shared_ptr<EmbeddingModel> model, int64_t expected_bytes);
  std::vector<std::shared_ptr<EmbeddingModel>> all() const;
  /// "": the only model. Also Ollama's NAME:latest. 404 model_not_found with the names there are. The pointer
  /// keeps the model loaded; not_loaded() if it is not.
  Outcome<std::shared_ptr<EmbeddingModel>> find(const std::string& name) const;

 private:
  Residency& residency_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<EmbeddingModel>> models_;
};

/// "[0.1,-0.25]", with as many digits as identify the float.
void append_numbers(std::string& text, std::span<const float> values);

/// Texts or lists of token ids of one request.
inline constexpr size_t kMaxEmbeddingInputs = 4096;
/// Reads a text, a list of texts, a list of token ids, or a list of such lists, which is not empty. `name`: its field.
std::optional<ApiError> read_embedding_input(const Json& input, const std::string& name, EmbedRequest& request);

}  // namespace redline::server
