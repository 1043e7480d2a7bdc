#include "server/models.h"

#include <algorithm>

#include "base/text_distance.h"
#include "base/utc_time.h"

namespace redline::server {

ServedModel::ServedModel(std::string name, std::unique_ptr<TextEngine> engine, int64_t max_waiting)
    : name_(std::move(name)), engine_(std::move(engine)), created_(unix_time()),
      max_in_flight_(engine_->batch_limits().sequences + max_waiting) {}

std::vector<Adapter> ServedModel::adapters() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

std::optional<Adapter> ServedModel::adapter(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(adapters_.begin(), adapters_.end(), [&](const Adapter& a) { return a.name == name; });
  return found == adapters_.end() ? std::nullopt : std::optional(*found);
}

Status ServedModel::load_adapter(const std::string& name, const std::string& path) {
  REDLINE_TRY(engine_->load_adapter(name, path));  // reads a file: without the mutex
  const std::lock_guard lock(mutex_);
  adapters_.push_back({next_id_++, name, path, 0, unix_time()});
  return {};
}

Status ServedModel::unload_adapter(const std::string& name) {
  REDLINE_TRY(engine_->unload_adapter(name));
  const std::lock_guard lock(mutex_);
  std::erase_if(adapters_, [&](const Adapter& a) { return a.name == name; });
  return {};
}

void ServedModel::set_scales(const std::map<int64_t, double>& scales) {
  const std::lock_guard lock(mutex_);
  for (Adapter& a : adapters_) {
    const auto found = scales.find(a.id);
    a.scale = found == scales.end() ? 0 : found->second;
  }
}

AdapterWeights ServedModel::default_adapters() const {
  const std::lock_guard lock(mutex_);
  AdapterWeights weights;
  for (const Adapter& a : adapters_)
    if (a.scale != 0) weights.emplace_back(a.name, a.scale);
  return weights;
}

std::optional<ServedModel::Ticket> ServedModel::admit(const std::shared_ptr<const ServedModel>& model, int64_t count) {
  int64_t now = model->in_flight_;
  do {
    if (now + count > model->max_in_flight_) return std::nullopt;
  } while (!model->in_flight_.compare_exchange_weak(now, now + count));
  return Ticket(model, count);
}

void ModelTable::add(std::shared_ptr<ServedModel> model) {
  const std::lock_guard lock(mutex_);
  models_.push_back(std::move(model));
}

std::vector<std::shared_ptr<ServedModel>> ModelTable::all() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

Outcome<ModelChoice> ModelTable::find(const std::string& name) const {
  const auto models = all();
  if (models.empty()) return overloaded(503, "the models are being loaded", 1);
  if (name.empty()) {
    if (models.size() > 1)
      return bad_request("model", fmt::format("model is missing: there are {}, see /v1/models", models.size()),
                         "missing_required_parameter");
    return ModelChoice{models[0], models[0]->default_adapters(), models[0]->name()};
  }
  for (const auto& model : models)
    if (model->name() == name || model->name() + ":latest" == name)
      return ModelChoice{model, model->default_adapters(), name};
  std::vector<std::string> known;
  for (const auto& model : models) {
    known.push_back(model->name());
    for (const Adapter& a : model->adapters()) {
      known.push_back(model->name() + ":" + a.name);
      if (name == a.name || name == known.back()) return ModelChoice{model, {{a.name, 1.0}}, name};
    }
  }
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string shown = name.substr(0, 128);
  return not_found_error("model",
                         fmt::format("there is no model \"{}\"{}; there are {}", shown, did_you_mean(shown, views),
                                     fmt::join(known, ", ")),
                         "model_not_found");
}

}  // namespace redline::server
