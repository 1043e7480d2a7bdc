// Image requests, the queue of each image model, and their results.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "media/image_file.h"
#include "redline/image.h"
#include "server/json.h"
#include "server/residency.h"
#include "server/webhook.h"

namespace redline::server {

/// A request for images.
struct ImageJob {
  ImageRequest request;
  std::vector<std::pair<std::string, double>> adapters;
  ImageFormat format = ImageFormat::kPng;
  /// Size in pixels of the previews, which are made only while someone listens; 0: no previews.
  int64_t preview_side = 0;
  int64_t num_previews = 0;  ///< number of previews, spread evenly over the steps; 0: one after each step
  std::string client;        ///< name of the API key
  Json input;                ///< the request's input, as the answer repeats it
  std::optional<Webhook> webhook;

  /// Returns the memory that the stored job takes: its images and texts.
  size_t bytes() const;
};

enum class PredictionStatus : uint8_t { kQueued, kProcessing, kSucceeded, kFailed, kCanceled };
std::string_view prediction_status_name(PredictionStatus status);  ///< "queued", "processing", "succeeded", ...

class ImageModel;

/// The state of one request for images, from the queue to its results. Thread-safe.
class Prediction {
 public:
  /// A snapshot of the prediction.
  struct State {
    PredictionStatus status = PredictionStatus::kQueued;
    int64_t step = 0, steps = 0, computed = 0;
    double step_ms = 0;
    double started = 0, completed = 0;                         ///< seconds since 1970; 0: not yet
    Status error;                                              ///< set if status is kFailed
    std::vector<std::shared_ptr<const std::string>> previews;  ///< JPEG, one per image
    std::vector<std::shared_ptr<const std::string>> outputs;   ///< files in the job's format
    std::vector<uint64_t> seeds;
    double text_ms = 0, loop_ms = 0, decode_ms = 0, executed_share = 1;
    std::string cache, solver;
    std::vector<std::string> warnings;
    bool is_over() const { return status >= PredictionStatus::kSucceeded; }
  };

  /// `model` must come from ImageModels::find(); it stays loaded until the prediction is over.
  Prediction(std::string id, const std::shared_ptr<ImageModel>& model, ImageJob job);
  const std::string& id() const { return id_; }
  const ImageJob& job() const { return job_; }
  const ImageModel& model() const { return *model_; }
  double created() const { return created_; }
  State state() const;
  /// Returns the number of requests before it; 0 when it is next.
  int64_t queue_position() const;
  /// Cancels the prediction: at once while it is queued, else after the current step.
  void cancel();
  /// Sets a listener: `changed` is called from another thread after every change of the state, until unlisten() with
  /// the returned number.
  uint64_t listen(std::function<void()> changed);
  /// Removes a listener. It is not called after this returns.
  void unlisten(uint64_t number);

  // Functions for the model that runs the prediction.
  /// Changes the state. Has no effect when the prediction is over.
  void update(const std::function<void(State&)>& change);
  /// Calls the listeners, because the state or the place in the queue has changed.
  void notify();
  bool has_listeners();
  bool is_canceled() const;

 private:
  const std::string id_;
  const std::shared_ptr<ImageModel> model_;
  const ImageJob job_;
  const double created_;
  mutable std::mutex mutex_;  // guards the members below
  State state_;
  std::shared_ptr<ImageModel> loaded_;
  bool is_canceled_ = false;
  std::mutex listening_;  // held while listeners run
  std::map<uint64_t, std::function<void()>> listeners_;
  uint64_t next_listener_ = 0;
};

/// A served image model. It runs one request at a time; the others wait in order of arrival. Its engine may be unloaded
/// and loaded again. Thread-safe.
class ImageModel final : public Resident, public std::enable_shared_from_this<ImageModel> {
 public:
  using Opener = std::function<Result<std::unique_ptr<ImageEngine>>()>;
  /// Serves an engine that load() opens. `adapters`: names and paths, loaded together with it.
  ImageModel(std::string name, Opener open, const ImageOptions& options, int64_t max_waiting,
             std::vector<std::pair<std::string, std::string>> adapters);
  ~ImageModel() override;
  const std::string& name() const override { return name_; }
  std::string_view purpose() const override { return "images; see /v1/images/generations"; }
  /// Requires a loaded model obtained from ImageModels::find().
  const ImageEngine& engine() const { return *engine_; }
  Result<int64_t> load() override;
  void unload() override;
  int64_t max_side() const { return max_side_; }
  int64_t max_batch() const { return max_batch_; }
  int64_t created() const { return created_; }
  std::vector<std::string> adapters() const;

  /// Maximum bytes of the waiting jobs, not counting the first.
  static constexpr size_t kMaxWaitingBytes = size_t{512} << 20;
  /// Queues a job for a model from ImageModels::find(). 429: the queue is full, by number or by bytes.
  /// invalid_request_error: the model has no such adapter.
  static Outcome<std::shared_ptr<Prediction>> submit(const std::shared_ptr<ImageModel>& model, ImageJob job);
  /// Returns the number of requests before this one; 0 when it is next or not queued.
  int64_t queue_position(const Prediction& prediction) const;
  /// Removes a prediction from the queue. Returns false if it was not queued.
  bool withdraw(const Prediction& prediction);
  /// Returns the number of requests that wait or run.
  int64_t in_flight() const;
  /// Accepts no more requests and cancels those without a webhook. Waits up to `seconds` for the others, then cancels
  /// them too.
  void close(double seconds = 1e6);

 private:
  void run();
  void run_one(const std::shared_ptr<Prediction>& prediction);

  const std::string name_;
  const Opener open_;
  const int64_t max_side_, max_batch_, max_waiting_, created_;
  mutable std::mutex mutex_;  // guards the members below; engine_ changes only while it is not in use
  std::condition_variable changed_;
  std::shared_ptr<ImageEngine> engine_;
  bool was_loaded_ = false;
  std::vector<std::pair<std::string, std::string>> adapters_;
  std::deque<std::shared_ptr<Prediction>> waiting_;
  size_t waiting_bytes() const;  ///< size of waiting_; requires the mutex
  std::shared_ptr<Prediction> running_;
  bool is_closing_ = false;
  std::thread thread_;
};

/// The image models by name, and the predictions that can still be queried. Thread-safe.
class ImageModels {
 public:
  explicit ImageModels(Residency& residency) : residency_(residency) {}
  ~ImageModels() { close(); }
  /// Adds a model; see Residency::add.
  void add(std::shared_ptr<ImageModel> model, int64_t expected_bytes);
  std::vector<std::shared_ptr<ImageModel>> all() const;
  /// Finds a loaded model; the pointer keeps it loaded. "" is the only model. 404 model_not_found lists the existing
  /// names. If the model is not loaded, the error has `load`.
  Outcome<std::shared_ptr<ImageModel>> find(const std::string& name) const;

  /// Stores a prediction. The oldest are dropped when there are more than kMaxKept, or when images and files exceed
  /// kMaxKeptBytes.
  void keep(std::shared_ptr<Prediction> prediction);
  /// Finds a prediction. 404: this client has no prediction of that id, or it has been dropped.
  Outcome<std::shared_ptr<Prediction>> prediction(const std::string& id, const std::string& client) const;
  /// Returns the predictions of a client, newest first.
  std::vector<std::shared_ptr<Prediction>> predictions(const std::string& client) const;
  /// Closes all models as ImageModel::close; `seconds` is the limit for all together.
  void close(double seconds = 1e6);

 private:
  static constexpr size_t kMaxKept = 1000;
  static constexpr size_t kMaxKeptBytes = size_t{256} << 20;
  void drop_old();

  Residency& residency_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ImageModel>> models_;
  std::deque<std::shared_ptr<Prediction>> kept_;  ///< oldest first
};

/// Returns the state of a prediction as the predictions API and its webhooks show it.
Json prediction_json(const Prediction& prediction);

}  // namespace redline::server
