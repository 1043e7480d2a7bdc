#include "lab/bench/text_report.h"

#include "base/conversion_json.h"
#include "machine/machine_json.h"

namespace redline::lab {
namespace {

Json row_json(const BenchRow& row) {
  Json json = {
      {"phase", phase_name(row.phase)}, {"tokens", row.tokens}, {"depth", row.depth}, {"streams", row.streams}};
  if (!row.is_measured()) {
    json["skipped"] = row.skipped;
    return json;
  }
  const double median = row.median(), tokens = static_cast<double>(row.tokens * row.streams);
  json["seconds"] = median;
  json["seconds_min"] = row.seconds.front();
  json["seconds_max"] = row.seconds.back();
  json["spread"] = row.spread();
  json["repeats"] = row.seconds.size();
  json["cold"] = row.is_cold;
  json["tokens_per_s"] = row.tokens_per_s(median);
  json["tokens_per_s_min"] = row.tokens_per_s(row.seconds.back());
  json["tokens_per_s_max"] = row.tokens_per_s(row.seconds.front());
  json["step_seconds"] = median / row.steps();
  json["bytes"] = row.bytes();
  json["operations"] = row.operations();
  json["bytes_per_token"] = row.bytes() / tokens;
  json["flops_per_token"] = row.operations() / tokens;
  json["gb_per_s"] = row.bytes() / median / 1e9;
  json["gflop_per_s"] = row.operations() / median / 1e9;
  json["ceiling_share"] = row.share();
  json["bound"] = row.bound.is_memory ? "memory" : "compute";
  json["bound_by"] = row.bound.by;
  json["bound_seconds"] = row.bound.seconds;
  if (row.phase == BenchPhase::kStart) json["peak_memory_bytes"] = row.peak_memory;
  json["state_before"] = state_json(row.before);
  json["state_after"] = state_json(row.after);
  json["state_changed"] = row.state_changed();
  if (!row.error.empty()) json["error"] = row.error;
  return json;
}

Json model_json(const ModelInfo& info) {
  Json json = {{"path", info.path},          {"architecture", info.architecture}, {"format", info.file_format},
               {"types", info.weight_types}, {"parameters", info.parameters},     {"weight_bytes", info.weight_bytes},
               {"context", info.context}};
  add_conversion(info.conversion, json);
  return json;
}

}  // namespace

const BenchRow* BenchReport::start() const {
  for (const BenchRow& row : rows)
    if (row.phase == BenchPhase::kStart && row.is_measured()) return &row;
  return nullptr;
}

Json bench_json(const BenchReport& report) {
  Json json = {{"model", model_json(report.model)},         {"machine", peaks_json(report.peaks)},
               {"threads", report.model.threads},           {"isa", report.model.isa},
               {"device_steps", report.model.device_steps}, {"dtype", report.dtype},
               {"check", check_json(report.check)},         {"rows", Json::array()}};
  for (const BenchRow& row : report.rows) json["rows"].push_back(row_json(row));
  if (!report.failure.ok()) json["stopped"] = report.failure.message();
  return json;
}

}  // namespace redline::lab
