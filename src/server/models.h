// The models behind one port, by name, and their adapters.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "redline/text.h"
#include "server/api_error.h"

namespace redline::server {

struct Adapter {
  int64_t id = 0;  ///< as llama.cpp's clients name it
  std::string name, path;
  double scale = 0;  ///< with which requests use it that name no adapter
  int64_t created = 0;
};

/// Thread-safe.
class ServedModel {
 public:
  /// `max_waiting`: requests beyond those of one step.
  ServedModel(std::string name, std::unique_ptr<TextEngine> engine, int64_t max_waiting);
  const std::string& name() const { return name_; }
  TextEngine& engine() const { return *engine_; }
  const ModelInfo& info() const { return engine_->info(); }
  int64_t created() const { return created_; }

  std::vector<Adapter> adapters() const;
  std::optional<Adapter> adapter(const std::string& name) const;
  /// As TextEngine::load_adapter.
  Status load_adapter(const std::string& name, const std::string& path);
  Status unload_adapter(const std::string& name);
  void set_scales(const std::map<int64_t, double>& scales);
  /// Those whose scale is not 0.
  AdapterWeights default_adapters() const;

  /// Places for `count` generations, returned when the ticket goes. nullopt: the queue is full.
  class Ticket {
   public:
    Ticket(std::shared_ptr<const ServedModel> model, int64_t count) : model_(std::move(model)), count_(count) {}
    Ticket(Ticket&& other) noexcept : model_(std::move(other.model_)), count_(std::exchange(other.count_, 0)) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (model_) model_->in_flight_ -= count_;
    }

   private:
    std::shared_ptr<const ServedModel> model_;
    int64_t count_;
  };
  static std::optional<Ticket> admit(const std::shared_ptr<const ServedModel>& model, int64_t count);
  int64_t in_flight() const { return in_flight_; }
  int64_t max_in_flight() const { return max_in_flight_; }

 private:
  const std::string name_;
  const std::unique_ptr<TextEngine> engine_;
  const int64_t created_, max_in_flight_;
  mutable std::atomic<int64_t> in_flight_{0};
  mutable std::mutex mutex_;  // of the adapters
  std::vector<Adapter> adapters_;
  int64_t next_id_ = 0;
};

/// A model and the adapters that a request uses.
struct ModelChoice {
  std::shared_ptr<ServedModel> model;
  AdapterWeights adapters;
  std::string name;  ///< as the request wrote it, or the model's
};

/// Thread-safe.
class ModelTable {
 public:
  void add(std::shared_ptr<ServedModel> model);
  std::vector<std::shared_ptr<ServedModel>> all() const;
  /// "": the only model. NAME, NAME:ADAPTER, ADAPTER, and Ollama's NAME:latest. 404 model_not_found with the names there
  /// are.
  Outcome<ModelChoice> find(const std::string& name) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ServedModel>> models_;
};

}  // namespace redline::server
