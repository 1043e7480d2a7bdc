#include "cli/image_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>

#include "base/progress.h"
#include "cli/ceilings_json.h"
#include "cli/peak_memory.h"
#include "cli/table.h"
#include "kernels/cpu/cpu_kernels.h"
#include "redline/image.h"

namespace redline::cli {
namespace {

constexpr const char* kPrompt = "a large red circle on a blue background";
// The interpreter takes a second or so for this many bytes of weights at the smallest size.
constexpr int64_t kInterpretedBytes = 200'000'000;

using Clock = std::chrono::steady_clock;
double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

/// Steps of one size. The first two stand apart: what a new size costs is their difference.
struct SizeRow {
  int64_t side = 0;
  double text_ms = 0, first_ms = 0, second_ms = 0, decode_ms = 0;
  std::vector<double> step_ms;  ///< the others, sorted
  double operations = 0;        ///< of a step
  MachineState before, after;

  double median_ms() const { return step_ms[step_ms.size() / 2]; }
  double gop_per_s() const { return operations / median_ms() / 1e6; }
};

struct AdapterRow {
  std::string file;
  double load_ms = 0, swap_ms = 0;
};

ImageRequest request_at(const ImageEngine& engine, int64_t side, int64_t steps, uint64_t seed) {
  ImageRequest request = engine.defaults();
  request.prompts = {kPrompt};
  request.width = request.height = side;
  request.num_inference_steps = steps;
  request.seed = seed;
  request.cache = "none";
  return request;
}

Result<ImageResult> draw(ImageEngine& engine, const ImageRequest& request) {
  return engine.generate(request, [](const ImageProgress&) { return !InterruptGuard::interrupted(); });
}

Result<SizeRow> measure_size(ImageEngine& engine, int64_t side, int64_t repeat, MachineSampler& sampler) {
  SizeRow row;
  row.side = side;
  REDLINE_ASSIGN(row.before, sampler.sample());
  REDLINE_ASSIGN(const ImageResult result,
                 draw(engine, request_at(engine, side, repeat + 2, static_cast<uint64_t>(side))));
  REDLINE_ASSIGN(row.after, sampler.sample());
  double steps = 0;
  for (const double ms : result.step_ms) steps += ms;
  row.text_ms = result.text_ms;
  row.first_ms = result.step_ms[0] + (result.loop_ms - steps);  // with what comes before the first
  row.second_ms = result.step_ms[1];
  row.decode_ms = result.decode_ms;
  row.step_ms.assign(result.step_ms.begin() + 2, result.step_ms.end());
  std::sort(row.step_ms.begin(), row.step_ms.end());
  row.operations = result.operations / static_cast<double>(result.step_ms.size());
  return row;
}

/// Root mean square of the difference of the latents after one step at `side`, over that of the interpreter's.
Result<double> check_answer(const ImageBenchRequest& request, ImageEngine& engine, int64_t side) {
  ImageOptions options;
  REDLINE_ASSIGN(options.dtype, image_type_from_name(request.dtype));
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

/// The fastest instruction that may serve the products of `dtype`.
const Ceiling* best_ceiling(const Ceilings& ceilings, const std::string& dtype) {
  const Ceiling* best = nullptr;
  for (const Ceiling& row : ceilings.rows) {
    if (row.instruction.empty() || (dtype == "f32" && row.name != "f32") ||
        (row.name == "int8" && dtype != "q8" && dtype != "q8_0" && dtype != "w8a8"))
      continue;
    if (!best || row.all > best->all) best = &row;
  }
  return best;
}

}  // namespace

bool is_pipeline(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path + "/model_index.json", ignored);
}

Status run_image_bench(const ImageBenchRequest& request, Terminal& terminal) {
  ImageOptions options;
  REDLINE_ASSIGN(options.dtype, image_type_from_name(request.dtype).within("flag --dtype"));
  options.threads = request.threads;
  options.trace_file = request.trace;
  options.max_batch = 2;
  for (const std::string& file : request.lora) {
    REDLINE_ASSIGN(const int64_t rank, adapter_rank(file));
    options.max_adapter_rank = std::max(options.max_adapter_rank, rank);
  }
  if (request.side) options.max_side = std::max<int64_t>(*request.side, 64);
  PeakMemory peak_memory;
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  REDLINE_ASSIGN(const Ceilings ceilings, measure_ceilings(*kernels, {.all_sets = true, .threads = request.threads}));
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(*kernels, request.threads));
  peak_memory.begin();
  const Clock::time_point opening = Clock::now();
  REDLINE_ASSIGN(const std::unique_ptr<ImageEngine> engine, ImageEngine::open(request.folder, options));
  const double load_ms = ms_since(opening);
  constexpr int64_t kUnit = 16;  // every family's patches and latents divide it
  const int64_t own = engine->defaults().width;
  const auto part = [&](int64_t of_four) { return std::max(kUnit, own * of_four / 4 / kUnit * kUnit); };
  const std::vector<int64_t> sides = request.side ? std::vector{*request.side} : std::vector{part(4), part(3), part(2)};

  const InterruptGuard guard;
  // Another size before all, so that every row is one of a new size on an engine that has worked.
  REDLINE_TRY(draw(*engine, request_at(*engine, std::max(kUnit, sides[0] / 4 / kUnit * kUnit), 2, 1)));
  std::vector<SizeRow> rows;
  std::vector<AdapterRow> adapters;
  double adapted_ms = 0;
  {
    Progress progress("bench", std::ssize(sides) + std::ssize(request.lora));
    for (const int64_t side : sides) {
      REDLINE_ASSIGN(rows.emplace_back(), measure_size(*engine, side, request.repeat.value_or(5), sampler));
      progress.advance();
    }
    for (const std::string& file : request.lora) {
      AdapterRow& row = adapters.emplace_back();
      row.file = file;
      Clock::time_point begin = Clock::now();
      const std::string name = std::to_string(adapters.size());
      REDLINE_TRY(engine->load_adapter(name, file));
      row.load_ms = ms_since(begin);
      begin = Clock::now();
      REDLINE_TRY(engine->set_adapters({{name, 1.0}}));
      row.swap_ms = ms_since(begin);
      progress.advance();
    }
    if (!adapters.empty()) {
      REDLINE_ASSIGN(const SizeRow row, measure_size(*engine, sides[0], request.repeat.value_or(5), sampler));
      adapted_ms = row.median_ms();
    }
  }

  const Ceiling* best = best_ceiling(ceilings, request.dtype);
  const auto share = [&](const SizeRow& row) { return best && best->all > 0 ? row.gop_per_s() / best->all : 0; };
  const ImageEngine::MemoryReport memory = engine->memory();
  const int64_t peak = peak_memory.bytes();
  // Sizes are symbols: the arena has addresses for pictures of --max-side, and memory for those that were drawn.
  const double peak_ratio = static_cast<double>(peak) /
                            static_cast<double>(std::max<int64_t>(1, memory.packed_weights + memory.arena_touched));
  REDLINE_TRY(engine->set_adapters({}));
  double error = -1;
  if (request.check && engine->memory().packed_weights <= kInterpretedBytes) {
    constexpr int64_t kCheckSide = 64;
    REDLINE_ASSIGN(error, check_answer(request, *engine, kCheckSide));
    // Rounding of x to 8 bits of mantissa or of code in every product, some 2^-8 each, added up over the blocks.
    constexpr double kMost = 0.05;
    if (!(error < kMost))
      return internal("{}: one step differs from the interpreter's by {:.2g} of its size", request.folder, error);
  }
  if (request.json) {
    Json json;
    json["model"] = request.folder;
    json["family"] = engine->family();
    json["dtype"] = request.dtype;
    json["machine"] = ceilings_json(ceilings);
    json["load_ms"] = load_ms;
    json["error"] = error < 0 ? Json() : Json(error);
    json["rows"] = Json::array();
    for (const SizeRow& row : rows)
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
                              {"share", share(row)},
                              {"state_changed", differs(row.before, row.after)}});
    json["adapters"] = Json::array();
    for (const AdapterRow& row : adapters)
      json["adapters"].push_back({{"file", row.file}, {"load_ms", row.load_ms}, {"swap_ms", row.swap_ms}});
    json["adapted_step_ms"] = adapters.empty() ? Json() : Json(adapted_ms);
    json["packed_weight_bytes"] = memory.packed_weights;
    json["arena_bytes"] = memory.arena;
    json["arena_bytes_without_reuse"] = memory.arena_without_reuse;
    json["arena_touched_bytes"] = memory.arena_touched;
    json["peak_bytes"] = peak;
    json["peak_ratio"] = peak_ratio;
    return print_json(json, terminal);
  }
  terminal.print("{}: {}, {}; opened in {:.0f} ms\n\n", printable(request.folder), engine->family(), request.dtype,
                 load_ms);
  Table table({"size", "step", "spread", "first", "second", "picture", "computes", "rate", "of ceiling", ""},
              {1, 2, 3, 4, 5, 6, 7, 8});
  for (const SizeRow& row : rows)
    table.add({fmt::format("{}x{}", row.side, row.side), fmt::format("{:.1f} ms", row.median_ms()),
               fmt::format("{:.0f}%", 100 * (row.step_ms.back() - row.step_ms.front()) / row.median_ms()),
               fmt::format("{:.1f} ms", row.first_ms), fmt::format("{:.1f} ms", row.second_ms),
               fmt::format("{:.0f} ms", row.decode_ms), fmt::format("{:.2f} GOP", row.operations / 1e9),
               fmt::format("{:.0f} GOP/s", row.gop_per_s()), fmt::format("{:.0f}%", 100 * share(row)),
               differs(row.before, row.after) ? "the machine's state moved" : ""});
  terminal.write(table.text());
  if (best) terminal.print("\nceiling  {:.0f} GOP/s ({})\n", best->all, best->instruction);
  for (const AdapterRow& row : adapters)
    terminal.print("adapter  {}: read and packed in {:.1f} ms, swapped in {:.3f} ms\n", printable(row.file),
                   row.load_ms, row.swap_ms);
  if (!adapters.empty())
    terminal.print("         a step with it {:.1f} ms, without {:.1f} ms\n", adapted_ms, rows[0].median_ms());
  terminal.print(
      "memory   packed weights {}, arena {} ({} without overlap) of which pictures needed {}; peak {}: {:.2f} of "
      "weights "
      "and that\n",
      human_bytes(static_cast<double>(memory.packed_weights)), human_bytes(static_cast<double>(memory.arena)),
      human_bytes(static_cast<double>(memory.arena_without_reuse)),
      human_bytes(static_cast<double>(memory.arena_touched)), human_bytes(static_cast<double>(peak)), peak_ratio);
  if (error >= 0) terminal.print("answer   one step within {:.2g} of the float64 interpreter's\n", error);
  else terminal.print("answer   not checked{}\n", request.check ? ": too large for the interpreter" : "");
  return terminal.finish();
}

}  // namespace redline::cli
