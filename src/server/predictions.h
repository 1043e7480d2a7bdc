// Image requests, the queue of each image model, and results.
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
  int64_t preview_side = 0;  ///< pixels of the previews, which are made while somebody listens; 0: none
  int64_t num_previews = 0;  ///< evenly over the steps; 0: after each
  std::string client;        ///< name of the API key
  Json input;                ///< as the answer shows it
  std::optional<Webhook> webhook;

  /// Memory that it takes while it is kept: its images and texts.
  size_t bytes() const;
};

enum class PredictionStatus : uint8_t { kQueued, kProcessing, kSucceeded, kFailed, kCanceled };
std::string_view prediction_status_name(PredictionStatus status);  ///< "queued", "processing", "succeeded", ...

class ImageModel;

/// One request for images on its way. Thread-safe.
class Prediction {
 public:
  /// What is known of it.
  struct State {
    PredictionStatus status = PredictionStatus::kQueued;
    int64_t step = 0, steps = 0, computed = 0;
    double step_ms = 0;
    double started = 0, completed = 0;                         ///< seconds since 1970; 0: not yet
    Status error;                                              ///< of kFailed
    std::vector<std::shared_ptr<const std::string>> previews;  ///< JPEG, one per image
    std::vector<std::shared_ptr<const std::string>> outputs;   ///< files in the job's format
    std::vector<uint64_t> seeds;
    double text_ms = 0, loop_ms = 0, decode_ms = 0, executed_share = 1;
    std::string cache, solver;
    std::vector<std::string> warnings;
    bool is_over() const { return status >= PredictionStatus::kSucceeded; }
  };

  /// `model`: as ImageModels::find() gives it; it is kept loaded until this is over.
  Prediction(std::string id, const std::shared_ptr<ImageModel>& model, ImageJob job);
  const std::string& id() const { return id_; }
  const ImageJob& job() const { return job_; }
  const ImageModel& model() const { return *model_; }
  double created() const { return created_; }
  State state() const;
  /// Requests before it, 0 when it is next.
  int64_t queue_position() const;
  /// Takes effect at once in the queue, else after the step in progress.
  void cancel();
  /// `changed` is called from another thread after every change of the state, until unlisten() with the number
  /// returned.
  uint64_t listen(std::function<void()> changed);
  /// No call runs after it.
  void unlisten(uint64_t number);

  // For the model that runs it.
  /// Has no effect once it is over.
  void update(const std::function<void(State&)>& change);
  /// Calls the listeners: the state or the place in the queue has changed.
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

/// A served image model: one request at a time, the others wait in order of arrival. Its engine may be
/// unloaded and reloaded. Thread-safe.
class ImageModel final : public Resident, public std::enable_shared_from_this<ImageModel> {
 public:
  using Opener = std::function<Result<std::unique_ptr<ImageEngine>>()>;
  /// Opened by load(). `adapters`: names and paths, which are loaded with it.
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

  /// Of the jobs that wait, besides the first.
  static constexpr size_t kMaxWaitingBytes = size_t{512} << 20;
  /// To a model from ImageModels::find(). 429: the queue is full, by number or by bytes. invalid_request_error: an
  /// adapter that is not there.
  static Outcome<std::shared_ptr<Prediction>> submit(const std::shared_ptr<ImageModel>& model, ImageJob job);
  /// Requests before this one, 0 when it is next or does not wait.
  int64_t queue_position(const Prediction& prediction) const;
  /// Takes it out of the queue; false: it did not wait.
  bool withdraw(const Prediction& prediction);
  /// Requests that wait or run.
  int64_t in_flight() const;
  /// Cancels what has no webhook, waits so long for the rest, cancels that too, and accepts no more.
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
  size_t waiting_bytes() const;  ///< of waiting_; with the mutex
  std::shared_ptr<Prediction> running_;
  bool is_closing_ = false;
  std::thread thread_;
};

/// The image models by name, and the predictions that can still be queried. Thread-safe.
class ImageModels {
 public:
  explicit ImageModels(Residency& residency) : residency_(residency) {}
  ~ImageModels() { close(); }
  /// See Residency::add.
  void add(std::shared_ptr<ImageModel> model, int64_t expected_bytes);
  std::vector<std::shared_ptr<ImageModel>> all() const;
  /// "": the only model. 404 model_not_found with the names there are. The pointer keeps the model loaded; an error
  /// with `load`: it is not.
  Outcome<std::shared_ptr<ImageModel>> find(const std::string& name) const;

  /// Keeps a prediction until there are kMaxKept, or until its images and files and those of later ones exceed
  /// kMaxKeptBytes.
  void keep(std::shared_ptr<Prediction> prediction);
  /// 404: this client has no prediction of that id, or no longer.
  Outcome<std::shared_ptr<Prediction>> prediction(const std::string& id, const std::string& client) const;
  /// A client's own, newest first.
  std::vector<std::shared_ptr<Prediction>> predictions(const std::string& client) const;
  /// ImageModel::close of all, with so long for all together.
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

/// The state of a prediction as the predictions API and its webhooks give it.
Json prediction_json(const Prediction& prediction);

}  // namespace redline::server
