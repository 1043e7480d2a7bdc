// The served models, by name, and their adapters.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "redline/text.h"
#include "server/api_error.h"
#include "server/known_texts.h"
#include "server/residency.h"
#include "server/work_queue.h"

namespace redline::server {

/// A LoRA adapter of a served model.
struct Adapter {
  int64_t id = 0;  ///< number of the adapter in llama.cpp's API
  std::string name, path;
  double scale = 0;  ///< scale for requests that name no adapter
  int64_t created = 0;
};

/// A language model, its adapters and its queue. Its engine may be unloaded and loaded again. Thread-safe.
class ServedModel final : public Resident {
 public:
  using Opener = std::function<Result<std::unique_ptr<TextEngine>>()>;
  /// Serves an engine that is never unloaded. `max_waiting`: number of requests beyond those of one step.
  ServedModel(std::string name, std::unique_ptr<TextEngine> engine, int64_t max_waiting);
  /// Serves an engine that load() opens. `adapters`: names and paths, loaded together with it.
  ServedModel(std::string name, Opener open, int64_t max_in_flight,
              const std::vector<std::pair<std::string, std::string>>& adapters);
  const std::string& name() const override { return name_; }
  std::string_view purpose() const override { return "text; see /v1/chat/completions"; }
  /// Requires a loaded model obtained from ModelTable::find() or Residency::use().
  TextEngine& engine() const { return *engine_; }
  const ModelInfo& info() const { return engine_->info(); }
  /// Returns the info of the model, or of its last load; unset if it was never loaded.
  std::optional<ModelInfo> known_info() const;
  bool is_loaded() const;
  int64_t created() const { return created_; }
  /// Returns counters that are totals over all loads.
  EngineStats stats() const;
  /// Opens the engine. An adapter that cannot be read is an error the first time; later it is dropped, with a line on
  /// standard error.
  Result<int64_t> load() override;
  void unload() override;

  std::vector<Adapter> adapters() const;
  std::optional<Adapter> adapter(const std::string& name) const;
  static constexpr size_t kMaxAdapters = 256;
  /// Loads an adapter as TextEngine::load_adapter. invalid_argument also: there are kMaxAdapters.
  Status load_adapter(const std::string& name, const std::string& path);
  /// Replaces an adapter as TextEngine::replace_adapter. Its id and its scale stay.
  Status replace_adapter(const std::string& name, const std::string& path);
  Status unload_adapter(const std::string& name);
  void set_scales(const std::map<int64_t, double>& scales);
  /// Returns the adapters whose scale is not 0.
  AdapterWeights default_adapters() const;

  /// Places in the queue for `count` generations, released by the destructor.
  class Ticket {
   public:
    Ticket(std::shared_ptr<const ServedModel> model, std::string client, int64_t count)
        : model_(std::move(model)), client_(std::move(client)), count_(count) {}
    Ticket(Ticket&&) noexcept = default;
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (model_) model_->leave(client_, count_);
    }

   private:
    std::shared_ptr<const ServedModel> model_;
    std::string client_;
    int64_t count_;
  };
  /// Takes places in the queue. nullopt: the queue is full, or the remaining places are reserved for other clients. In
  /// a queue of more than 2 * kShare places, a client may have kShare times as many places as stay free after it, so
  /// that no client takes the last ones.
  static constexpr int64_t kShare = 8;
  static std::optional<Ticket> admit(const std::shared_ptr<const ServedModel>& model, int64_t count,
                                     const std::string& client = "");
  /// Returns the texts of the model's conversations.
  KnownTexts& known_texts() { return known_texts_; }
  /// Returns the queue of beam searches, which run one at a time.
  WorkQueue& searches() { return searches_; }
  int64_t in_flight() const;
  int64_t max_in_flight() const { return max_in_flight_; }

 private:
  const std::string name_;
  const Opener open_;
  const int64_t created_, max_in_flight_;
  void leave(const std::string& client, int64_t count) const;
  Status check_adapter_count() const;
  mutable std::mutex counting_;  ///< guards the next two members
  mutable int64_t in_flight_ = 0;
  mutable std::map<std::string, int64_t> of_client_;  ///< clients that have places in the queue
  std::mutex changing_;       // held while an adapter is loaded or unloaded, so that adapters_ matches the engine
  mutable std::mutex mutex_;  // guards the members below; engine_ changes only while it is not in use
  std::shared_ptr<TextEngine> engine_;
  std::optional<ModelInfo> info_;
  EngineStats past_;  ///< statistics of earlier loads
  std::vector<Adapter> adapters_;
  int64_t next_id_ = 0;
  KnownTexts known_texts_;
  WorkQueue searches_;
};

/// A model and the adapters that one request uses.
struct ModelChoice {
  std::shared_ptr<ServedModel> model;  ///< as returned by find(), which keeps it loaded
  AdapterWeights adapters;
  std::string name;  ///< as the request wrote it, or the model's
};

/// The table of served language models. Thread-safe.
class ModelTable {
 public:
  explicit ModelTable(Residency& residency) : residency_(residency) {}
  ~ModelTable() {
    for (const auto& model : models_) model->searches().close();
  }
  /// Adds a model that is loaded.
  void add(std::shared_ptr<ServedModel> model);
  /// Adds a model that load() opens; see Residency::add.
  void add(std::shared_ptr<ServedModel> model, int64_t expected_bytes);
  std::vector<std::shared_ptr<ServedModel>> all() const;
  /// Finds a model, which may be unloaded. Accepts "" for the only model, NAME, NAME:ADAPTER, ADAPTER, and Ollama's
  /// NAME:latest, where NAME may be an alias; with ResidencyOptions::takes_any_name any name. 404 model_not_found lists
  /// the existing names.
  Outcome<ModelChoice> resolve(const std::string& name) const;
  /// Finds a loaded model as resolve(). If it is not loaded, the error has `load`.
  Outcome<ModelChoice> find(const std::string& name) const;

 private:
  Residency& residency_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ServedModel>> models_;
};

}  // namespace redline::server
