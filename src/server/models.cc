#include "server/models.h"

#include <algorithm>

#include "base/text_distance.h"
#include "base/utc_time.h"

namespace redline::server {

namespace {

/// Adds the counters of an engine that was unloaded.
void add_counters(const EngineStats& past, EngineStats& now) {
  now.preemptions += past.preemptions;
  now.prompt_tokens += past.prompt_tokens;
  now.cached_prompt_tokens += past.cached_prompt_tokens;
  now.generated_tokens += past.generated_tokens;
  now.drafted_tokens += past.drafted_tokens;
  now.accepted_tokens += past.accepted_tokens;
  now.steps += past.steps;
  now.step_seconds += past.step_seconds;
  now.bound_seconds += past.bound_seconds;
  for (size_t i = 0; i < now.requests_finished.size(); ++i) now.requests_finished[i] += past.requests_finished[i];
  now.requests_failed += past.requests_failed;
}

}  // namespace

ServedModel::ServedModel(std::string name, std::unique_ptr<TextEngine> engine, int64_t max_waiting)
    : name_(std::move(name)), created_(unix_time()), max_in_flight_(engine->batch_limits().sequences + max_waiting),
      engine_(std::move(engine)), info_(engine_->info()) {}

ServedModel::ServedModel(std::string name, Opener open, int64_t max_in_flight,
                         const std::vector<std::pair<std::string, std::string>>& adapters)
    : name_(std::move(name)), open_(std::move(open)), created_(unix_time()), max_in_flight_(max_in_flight) {
  for (const auto& [adapter, path] : adapters) adapters_.push_back({next_id_++, adapter, path, 0, created_});
}

Result<int64_t> ServedModel::load() {
  REDLINE_ASSIGN(std::shared_ptr<TextEngine> engine, open_());
  for (const Adapter& a : adapters()) {
    const Status status = engine->load_adapter(a.name, a.path);
    if (status.ok()) continue;
    const std::lock_guard lock(mutex_);
    if (!info_) return status.within(fmt::format("adapter {}", a.name));
    note_dropped_adapter(name_, a.name, status);
    std::erase_if(adapters_, [&](const Adapter& other) { return other.id == a.id; });
  }
  const TextEngine::MemoryReport memory = engine->memory();
  const std::lock_guard lock(mutex_);
  info_ = engine->info();
  engine_ = std::move(engine);
  return memory.packed_weights + memory.cache_limit;
}

void ServedModel::unload() {
  known_texts_.clear();  // the model's files may have changed when it is loaded again
  std::shared_ptr<TextEngine> engine;
  const std::lock_guard lock(mutex_);
  EngineStats total = engine_->stats();
  add_counters(past_, total);
  past_ = total;
  engine.swap(engine_);
}

bool ServedModel::is_loaded() const {
  const std::lock_guard lock(mutex_);
  return engine_ != nullptr;
}

std::optional<ModelInfo> ServedModel::known_info() const {
  const std::lock_guard lock(mutex_);
  return info_;
}

EngineStats ServedModel::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats;
  if (engine_) stats = engine_->stats();
  add_counters(past_, stats);
  return stats;
}

std::vector<Adapter> ServedModel::adapters() const {
  const std::lock_guard lock(mutex_);
  return adapters_;
}

std::optional<Adapter> ServedModel::adapter(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(adapters_.begin(), adapters_.end(), [&](const Adapter& a) { return a.name == name; });
  return found == adapters_.end() ? std::nullopt : std::optional(*found);
}

Status ServedModel::check_adapter_count() const {
  if (adapters().size() < kMaxAdapters) return {};
  return invalid_argument("{} adapters are loaded, which is the limit; unload one first", kMaxAdapters);
}

Status ServedModel::load_adapter(const std::string& name, const std::string& path) {
  const std::lock_guard changing(changing_);
  REDLINE_TRY(check_adapter_count());
  REDLINE_TRY(engine_->load_adapter(name, path));  // reads a file, so the mutex is not held
  const std::lock_guard lock(mutex_);
  adapters_.push_back({next_id_++, name, path, 0, unix_time()});
  return {};
}

Status ServedModel::replace_adapter(const std::string& name, const std::string& path) {
  const std::lock_guard changing(changing_);
  if (!adapter(name)) REDLINE_TRY(check_adapter_count());
  REDLINE_TRY(engine_->replace_adapter(name, path));
  const std::lock_guard lock(mutex_);
  auto place = std::find_if(adapters_.begin(), adapters_.end(), [&](const Adapter& a) { return a.name == name; });
  if (place == adapters_.end()) place = adapters_.insert(place, {next_id_++, name, "", 0, 0});
  place->path = path;
  place->created = unix_time();
  return {};
}

Status ServedModel::unload_adapter(const std::string& name) {
  const std::lock_guard changing(changing_);
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

std::optional<ServedModel::Ticket> ServedModel::admit(const std::shared_ptr<const ServedModel>& model, int64_t count,
                                                      const std::string& client) {
  const std::lock_guard lock(model->counting_);
  const int64_t left = model->max_in_flight_ - model->in_flight_ - count;
  if (left < 0) return std::nullopt;
  const auto found = model->of_client_.find(client);
  const int64_t before = found == model->of_client_.end() ? 0 : found->second;
  const bool is_shared = !client.empty() && model->max_in_flight_ > 2 * kShare;
  if (is_shared && before > 0 && before + count > kShare * left) return std::nullopt;
  model->in_flight_ += count;
  model->of_client_[client] += count;
  return Ticket(model, client, count);
}

void ServedModel::leave(const std::string& client, int64_t count) const {
  const std::lock_guard lock(counting_);
  in_flight_ -= count;
  if (const auto found = of_client_.find(client); (found->second -= count) == 0) of_client_.erase(found);
}

int64_t ServedModel::in_flight() const {
  const std::lock_guard lock(counting_);
  return in_flight_;
}

void ModelTable::add(std::shared_ptr<ServedModel> model) {
  residency_.add_loaded(model);
  const std::lock_guard lock(mutex_);
  models_.push_back(std::move(model));
}

void ModelTable::add(std::shared_ptr<ServedModel> model, int64_t expected_bytes) {
  residency_.add(model, expected_bytes);
  const std::lock_guard lock(mutex_);
  models_.push_back(std::move(model));
}

std::vector<std::shared_ptr<ServedModel>> ModelTable::all() const {
  const std::lock_guard lock(mutex_);
  return models_;
}

Outcome<ModelChoice> ModelTable::find(const std::string& name) const {
  SERVER_ASSIGN(ModelChoice choice, resolve(name));
  auto use = residency_.use(*choice.model);
  if (!use) return not_loaded(residency_.load(*choice.model));
  choice.model = std::shared_ptr<ServedModel>(std::move(use), choice.model.get());
  return choice;
}

Outcome<ModelChoice> ModelTable::resolve(const std::string& name) const {
  const auto models = all();
  const auto other = [&] { return residency_.other_purpose(name); };
  if (models.empty())
    return not_found_error("model", name.empty() || other().empty() ? "this server has no language model" : other(),
                           "model_not_found");
  if (name.empty()) {
    if (models.size() > 1)
      return bad_request("model", fmt::format("model is missing: there are {}, see /v1/models", models.size()),
                         "missing_required_parameter");
    return ModelChoice{models[0], models[0]->default_adapters(), models[0]->name()};
  }
  for (const auto& model : models)
    if (model->is_named(name)) return ModelChoice{model, model->default_adapters(), name};
  std::vector<std::string> known;
  for (const auto& model : models) {
    known.push_back(model->name());
    known.insert(known.end(), model->aliases().begin(), model->aliases().end());
    for (const Adapter& a : model->adapters()) {
      known.push_back(model->name() + ":" + a.name);
      const bool has_suffix = name.ends_with(":" + a.name);
      if (name == a.name || (has_suffix && model->is_named(name.substr(0, name.size() - a.name.size() - 1))))
        return ModelChoice{model, {{a.name, 1.0}}, name};
    }
  }
  if (const std::string why = other(); !why.empty()) return not_found_error("model", why, "model_not_found");
  if (residency_.options().takes_any_name && models.size() == 1)
    return ModelChoice{models[0], models[0]->default_adapters(), name};
  const std::vector<std::string_view> views(known.begin(), known.end());
  const std::string shown = name.substr(0, 128);
  return not_found_error("model",
                         fmt::format("there is no model \"{}\"{}; there are {}", shown, did_you_mean(shown, views),
                                     fmt::join(known, ", ")),
                         "model_not_found");
}

}  // namespace redline::server
