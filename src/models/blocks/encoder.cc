#include "models/blocks/encoder.h"

#include "graph/ops/layer_norm.h"
#include "graph/ops/linear.h"

namespace redline {

Value EncoderBuilder::project(Value x, const std::string& name, int64_t out, int64_t in) {
  g_.set_scope(name);
  const Value weight = w_.take(name + ".weight", {out, in});
  return linear(g_, x, weight, w_.has(name + ".bias") ? w_.take(name + ".bias", {out}) : Value{});
}

Value EncoderBuilder::norm(Value x, const std::string& name, int64_t width) {
  g_.set_scope(name);
  const Value weight = w_.take(name + ".weight", {width});
  const Value bias = w_.has(name + ".bias") ? w_.take(name + ".bias", {width}) : Value{};
  return layer_norm(g_, x, weight, bias, {eps_, true});
}

std::string scope_of(const Checkpoint& checkpoint, std::string_view suffix) {
  for (const auto& [name, source] : checkpoint.tensors)
    if (name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  return "";
}

void ignore_tensors(const Checkpoint& checkpoint, WeightReader& w, std::string_view prefix) {
  for (const auto& [name, source] : checkpoint.tensors)
    if (name.starts_with(prefix)) w.ignore(name);
}

int64_t read_num_labels(ConfigReader& r) {
  constexpr int64_t kMaxLabels = 100000;
  const nlohmann::json* labels = r.object("id2label");
  return r.integer("num_labels", 1, kMaxLabels, labels ? static_cast<int64_t>(labels->size()) : 2);
}

}  // namespace redline
