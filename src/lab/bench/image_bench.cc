#include "lab/bench/image_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>

#include "base/elapsed.h"
#include "kernels/cpu/cpu_kernels.h"
#include "lab/bench/peak_memory.h"
#include "machine/machine_json.h"

namespace redline::lab {
namespace {

constexpr const char* kPrompt = "a large red circle on a blue background";
// The interpreter takes about a second for this many bytes of weights at the smallest size.
constexpr int64_t kInterpretedBytes = 200'000'000;
constexpr int64_t kUnit = 16;  // step of image sides in pixels; every family's patches and latents divide it

using Clock = std::chrono::steady_clock;
ImageRequest request_at(const ImageEngine& engine, int64_t side, int64_t steps, uint64_t seed) {
  ImageRequest request = engine.defaults();
  request.prompts = {kPrompt};
  request.width = request.height = side;
  request.num_inference_steps = steps;
  request.seed = seed;
  request.cache = "none";
  return request;
}

/// Generates images; calls on_progress after every step.
using Draw = std::function<Result<ImageResult>(ImageEngine& engine, const ImageRequest& request)>;

Result<ImageSizeRow> measure_size(const Draw& draw, ImageEngine& engine, int64_t side, int64_t repeat,
                                  MachineSampler& sampler) {
  ImageSizeRow row;
  row.side = side;
  REDLINE_ASSIGN(row.before, sampler.sample());
  REDLINE_ASSIGN(const ImageResult result,
                 draw(engine, request_at(engine, side, repeat + 2, static_cast<uint64_t>(side))));
  REDLINE_ASSIGN(row.after, sampler.sample());
  double steps = 0;
  for (const double ms : result.step_ms) steps += ms;
  row.text_ms = result.text_ms;
  row.first_ms = result.step_ms[0] + (result.loop_ms - steps);  // includes everything before the first step
  row.second_ms = result.step_ms[1];
  row.decode_ms = result.decode_ms;
  row.step_ms.assign(result.step_ms.begin() + 2, result.step_ms.end());
  std::sort(row.step_ms.begin(), row.step_ms.end());
  row.operations = result.operations / static_cast<double>(result.step_ms.size());
  return row;
}

/// Returns the RMS difference of the latents after one step at `side` from the interpreter's, relative to the RMS of
/// the interpreter's.
Result<double> check_step(const Draw& draw, const ImageBenchRequest& request, ImageEngine& engine, int64_t side) {
  ImageOptions options;
  REDLINE_ASSIGN(options.dtype, precision_from_name(request.dtype));
  options.threads = request.threads;
  options.max_side = std::max<int64_t>(side, 64);
  options.max_batch = 2;
  options.use_interpreter = true;
  REDLINE_ASSIGN(const auto interpreter, ImageEngine::open(request.folder, options));
  ImageRequest small = request_at(engine, side, 1, 1);
  small.keep_latents = true;
  REDLINE_ASSIGN(const ImageResult got, draw(engine, small));
  REDLINE_ASSIGN(const ImageResult expected, draw(*interpreter, small));
  double difference = 0, size = 0;
  for (size_t i = 0; i < expected.latents.data.size(); ++i) {
    const double e = expected.latents.data[i], d = got.latents.data[i] - e;
    difference += d * d;
    size += e * e;
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

/// Returns the peak of the fastest instruction that can execute the matrix products of `dtype`.
std::optional<Peak> best_peak(const MachinePeaks& peaks, const std::string& dtype) {
  std::optional<Peak> best;
  const Result<DType> type = dtype_from_name(dtype);
  const bool is_int8 = dtype == "q8" || (type.ok() && dtype_info(*type).is_block);
  for (const Peak& row : peaks.rows) {
    if (row.instruction.empty() || (dtype == "f32" && row.name != "f32") || (row.name == "int8" && !is_int8)) continue;
    if (!best || row.all > best->all) best = row;
  }
  return best;
}

}  // namespace

bool is_pipeline(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + "/model_index.json", ignored);
}

double ImageBenchReport::peak_ratio() const {
  return static_cast<double>(peak_bytes) /
         static_cast<double>(std::max<int64_t>(1, memory.packed_weights + memory.arena_touched));
}

namespace {

/// Makes all measurements on an open engine, in order. After an error the report keeps the measurements before it.
Status measure_all(const ImageBenchRequest& request, ImageEngine& engine, const std::vector<int64_t>& sides,
                   MachineSampler& sampler, PeakMemory& peak_memory, ImageBenchReport& report) {
  int64_t done = 0;
  const int64_t total = std::ssize(sides) + std::ssize(request.lora);
  const Draw draw = [&](ImageEngine& drawer, const ImageRequest& image) {
    return drawer.generate(
        image, [&](const ImageProgress&) { return !request.on_progress || request.on_progress(done, total); });
  };
  const int64_t repeat = request.repeat.value_or(5);
  // Runs another size first, so that every row measures a new size on a warm engine.
  REDLINE_TRY(draw(engine, request_at(engine, std::max(kUnit, sides[0] / 4 / kUnit * kUnit), 2, 1)));
  for (const int64_t side : sides) {
    REDLINE_ASSIGN(ImageSizeRow row, measure_size(draw, engine, side, repeat, sampler));
    report.rows.push_back(std::move(row));
    ++done;
    if (request.on_row) request.on_row(report, report.rows.back());
  }
  for (const std::string& file : request.lora) {
    ImageAdapterRow row;
    row.file = file;
    Clock::time_point begin = Clock::now();
    const std::string name = std::to_string(report.adapters.size() + 1);
    REDLINE_TRY(engine.load_adapter(name, file));
    row.load_ms = ms_since(begin);
    begin = Clock::now();
    REDLINE_TRY(engine.set_adapters({{name, 1.0}}));
    row.swap_ms = ms_since(begin);
    report.adapters.push_back(std::move(row));
    ++done;
  }
  if (!report.adapters.empty()) {
    REDLINE_ASSIGN(const ImageSizeRow row, measure_size(draw, engine, sides[0], repeat, sampler));
    report.adapted_ms = row.median_ms();
  }
  report.memory = engine.memory();
  report.peak_bytes = peak_memory.bytes();
  REDLINE_TRY(engine.set_adapters({}));
  if (!request.check || engine.memory().packed_weights > kInterpretedBytes) return {};
  constexpr int64_t kCheckSide = 64;
  REDLINE_ASSIGN(const double error, check_step(draw, request, engine, kCheckSide));
  // Rounding of x to 8 bits of mantissa or code in every matrix product, about 2^-8 each, accumulated over the blocks.
  constexpr double kMaxError = 0.05;
  if (!(error < kMaxError))
    return internal("{}: one step differs from the interpreter's by {:.2g} of its size", request.folder, error);
  report.error = error;
  return {};
}

}  // namespace

Result<ImageBenchReport> run_image_bench(const ImageBenchRequest& request) {
  ImageOptions options;
  REDLINE_ASSIGN(options.dtype, precision_from_name(request.dtype).within("flag --dtype"));
  options.threads = request.threads;
  options.device = request.device;
  options.trace_file = request.trace;
  options.max_batch = 2;
  for (const std::string& file : request.lora) {
    REDLINE_ASSIGN(const int64_t rank, adapter_rank(file));
    options.max_adapter_rank = std::max(options.max_adapter_rank, rank);
  }
  if (request.side) options.max_side = std::max<int64_t>(*request.side, 64);
  ImageBenchReport report;
  report.folder = request.folder;
  report.dtype = request.dtype;
  PeakMemory peak_memory;
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  REDLINE_ASSIGN(report.peaks, measure_peaks(*kernels, {.quick = request.repeat.value_or(5) <= 2,
                                                        .all_sets = true,
                                                        .threads = request.threads}));
  report.best = best_peak(report.peaks, request.dtype);
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(*kernels, request.threads));
  peak_memory.begin();
  const Clock::time_point opening = Clock::now();
  REDLINE_ASSIGN(const std::unique_ptr<ImageEngine> engine, ImageEngine::open(request.folder, options));
  report.load_ms = ms_since(opening);
  report.family = engine->family();
  const int64_t own = engine->defaults().width;
  const auto part = [&](int64_t of_four) { return std::max(kUnit, own * of_four / 4 / kUnit * kUnit); };
  const std::vector<int64_t> sides = request.side ? std::vector{*request.side} : std::vector{part(4), part(3), part(2)};

  report.failure = measure_all(request, *engine, sides, sampler, peak_memory, report);
  if (!report.failure.ok() && report.rows.empty()) return report.failure;
  return report;
}

Json image_bench_json(const ImageBenchReport& report) {
  Json json;
  json["model"] = report.folder;
  json["family"] = report.family;
  json["dtype"] = report.dtype;
  json["machine"] = peaks_json(report.peaks);
  json["load_ms"] = report.load_ms;
  json["error"] = report.error ? Json(*report.error) : Json();
  json["rows"] = Json::array();
  for (const ImageSizeRow& row : report.rows)
    json["rows"].push_back({{"width", row.side},
                            {"height", row.side},
                            {"text_ms", row.text_ms},
                            {"first_step_ms", row.first_ms},
                            {"second_step_ms", row.second_ms},
                            {"step_ms", row.step_ms},
                            {"median_step_ms", row.median_ms()},
                            {"decode_ms", row.decode_ms},
                            {"operations", row.operations},
                            {"gop_per_s", row.gop_per_s()},
                            {"share", report.share(row)},
                            {"state_changed", differs(row.before, row.after)}});
  json["adapters"] = Json::array();
  for (const ImageAdapterRow& row : report.adapters)
    json["adapters"].push_back({{"file", row.file}, {"load_ms", row.load_ms}, {"swap_ms", row.swap_ms}});
  json["adapted_step_ms"] = report.adapters.empty() ? Json() : Json(report.adapted_ms);
  json["packed_weight_bytes"] = report.memory.packed_weights;
  json["arena_bytes"] = report.memory.arena;
  json["arena_bytes_without_reuse"] = report.memory.arena_without_reuse;
  json["arena_touched_bytes"] = report.memory.arena_touched;
  json["peak_bytes"] = report.peak_bytes;
  json["peak_ratio"] = report.peak_ratio();
  if (!report.failure.ok()) json["stopped"] = report.failure.message();
  return json;
}

}  // namespace redline::lab
