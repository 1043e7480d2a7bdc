#include "lab/bench/device_bench.h"

#include <algorithm>

#include "base/cache_folder.h"
#include "base/settings.h"
#include "base/topology.h"
#include "lab/random/random_networks.h"
#include "llm/llm_engine.h"
#include "models/files/random_model.h"
#include "runtime/device_record.h"
#include "runtime/runtime_resources.h"

namespace redline::lab {
namespace {

constexpr double kStageSeconds = 0.02;
/// A step with more rows than this is one prompt; a step with fewer has one token of each sequence.
constexpr int64_t kMaxSequences = 64;

/// Returns the times of the stages of a step with this number of rows.
Result<std::vector<StageTime>> time_step(LlmEngine& engine, int64_t rows) {
  const int64_t sequences = rows <= kMaxSequences ? rows : 1;
  std::vector<std::unique_ptr<Sequence>> open;
  const std::vector<int32_t> tokens(static_cast<size_t>(rows / sequences), 1);
  std::vector<std::vector<float>> logits(static_cast<size_t>(sequences));
  std::vector<BatchEntry> batch;
  for (auto& row : logits) {
    REDLINE_ASSIGN(open.emplace_back(), engine.new_sequence({}));
    row.resize(static_cast<size_t>(engine.info().vocab_size));
    BatchEntry& entry = batch.emplace_back();
    entry.sequence = open.back().get();
    entry.tokens = tokens;
    entry.logits = row;
  }
  REDLINE_TRY(engine.run_batch(batch));
  std::lock_guard lock(engine.stepper().mutex());
  return engine.stepper().time_stages(kStageSeconds);
}

Status time_model(const DeviceBenchRequest& request, std::shared_ptr<Runtime> runtime, DeviceBenchReport& report) {
  if (is_random_network(request.random)) {
    NetworkBenchRequest network;
    network.network = request.random;
    network.side = request.side;
    network.device = request.device;
    network.threads = request.threads;
    network.repeat = 1;
    network.check = false;
    network.stages = true;
    REDLINE_ASSIGN(NetworkBenchReport measured, run_network_bench(network));
    report.steps.push_back({0, std::move(measured.stages)});
    return {};
  }
  const int64_t most = *std::max_element(request.rows.begin(), request.rows.end());
  TextEngineOptions options;
  options.device = request.device;
  options.runtime = std::move(runtime);
  options.max_sequences = std::min(most, kMaxSequences);
  options.max_batch_tokens = most;
  options.context = std::max<int64_t>(most, 64);
  REDLINE_ASSIGN(const std::unique_ptr<TextEngine> engine,
                 TextEngine::open(std::string(kRandomPrefix) + request.random, options));
  auto& own = dynamic_cast<LlmEngine&>(*engine);
  for (const int64_t rows : request.rows) {
    if (request.on_progress && !request.on_progress(std::ssize(report.steps), std::ssize(request.rows)))
      return cancelled("interrupted");
    REDLINE_ASSIGN(std::vector<StageTime> stages, time_step(own, rows));
    report.steps.push_back({rows, std::move(stages)});
  }
  return {};
}

}  // namespace

double DeviceBenchReport::bound_seconds(const StageTime& stage) const {
  double flops_per_s = 0;
  for (const DeviceSpeeds::Product& product : speeds.products) {
    const double seconds = std::min(product.own_seconds, product.library_seconds.value_or(product.own_seconds));
    flops_per_s = std::max(flops_per_s, product.flops() / seconds);
  }
  for (const DeviceSpeeds::Peak& peak : speeds.peaks)
    if (peak.type == "bf16" || (peak.type == "int8" && is_i8))
      flops_per_s = std::max(flops_per_s, peak.operations_per_s);
  const double reading = speeds.read_bytes_per_s > 0 ? stage.bytes / speeds.read_bytes_per_s : 0;
  return std::max(reading, flops_per_s > 0 ? stage.flops / flops_per_s : 0);
}

Result<DeviceBenchReport> run_device_bench(const DeviceBenchRequest& request) {
  DeviceBenchReport report;
  if (!request.random.empty() && !is_random_network(request.random)) {
    REDLINE_TRY(check_random_model(request.random).within("flag --random"));
    if (request.rows.empty()) return invalid_argument("--random {}: name numbers of rows (--rows)", request.random);
  }
  REDLINE_ASSIGN(const DeviceChoice choice, choose_device(request.device));
  if (choice.kind == DeviceKind::kCpu)
    return unsupported(
        "bench device measures GPUs, and the device is the CPU; its ceilings are in redline devices, models on it in "
        "redline bench");
  report.device = device_name(choice);
  report.is_i8 = request.random.ends_with(":w8a8");
  REDLINE_ASSIGN(const CacheSettings cache, read_cache_settings());
  if (request.record && cache.folder.empty())
    return unsupported("--record: there is no cache folder (REDLINE_CACHE_DIR, REDLINE_CACHE_GB)");
  RuntimeOptions own;
  own.threads = request.threads;
  REDLINE_ASSIGN(const std::shared_ptr<Runtime> runtime, Runtime::open(own));
  RuntimeResources& resources = resources_of(*runtime);
  {
    REDLINE_ASSIGN(const std::shared_ptr<OpenDevice> device, resources.device(choice));
    if (request.record && device->table().library == nullptr)
      return unsupported("--record: {} has no matrix library, so Redline's kernels are always used", report.device);
    std::lock_guard lock(resources.mutex());
    const auto goes_on = [&] { return !request.on_progress || request.on_progress(0, 0); };
    REDLINE_ASSIGN(report.speeds, measure_device_speeds(device, resources.team(), goes_on));
  }
  if (request.record) {
    REDLINE_ASSIGN(report.record_file, write_device_record(cache.folder, {report.speeds.model, report.speeds.library,
                                                                          report.speeds.own_rows.value()}));
  }
  if (!request.random.empty()) REDLINE_TRY(time_model(request, runtime, report));
  return report;
}

Json device_bench_json(const DeviceBenchReport& report) {
  const DeviceSpeeds& s = report.speeds;
  Json json = {{"device", report.device},
               {"model", s.model},
               {"library", s.library},
               {"multiprocessors", s.multiprocessors},
               {"free_bytes", s.free_bytes},
               {"total_bytes", s.total_bytes},
               {"read_bytes_per_s", s.read_bytes_per_s},
               {"copy_bytes_per_s", s.copy_bytes_per_s},
               {"upload_bytes_per_s", s.upload_bytes_per_s},
               {"download_bytes_per_s", s.download_bytes_per_s},
               {"launch_seconds", s.launch_seconds},
               {"step_seconds", s.step_seconds},
               {"peaks", Json::array()},
               {"products", Json::array()},
               {"own_rows", s.own_rows ? Json(*s.own_rows) : Json()},
               {"record_file", report.record_file},
               {"steps", Json::array()}};
  for (const DeviceSpeeds::Peak& p : s.peaks)
    json["peaks"].push_back({{"type", p.type},
                             {"by", p.by},
                             {"operations_per_s", p.reason.empty() ? Json(p.operations_per_s) : Json()},
                             {"reason", p.reason}});
  for (const DeviceSpeeds::Product& p : s.products)
    json["products"].push_back({{"rows", p.rows},
                                {"size", p.size},
                                {"own_seconds", p.own_seconds},
                                {"library_seconds", p.library_seconds ? Json(*p.library_seconds) : Json()}});
  for (const DeviceBenchReport::Step& step : report.steps) {
    Json stages = stages_json(step.stages);
    for (size_t i = 0; i < step.stages.size(); ++i) stages[i]["bound_seconds"] = report.bound_seconds(step.stages[i]);
    json["steps"].push_back({{"rows", step.rows}, {"stages", std::move(stages)}});
  }
  return json;
}

}  // namespace redline::lab
