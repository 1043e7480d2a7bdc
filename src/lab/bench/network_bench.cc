#include "lab/bench/network_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/elapsed.h"
#include "base/settings.h"
#include "base/topology.h"
#include "lab/bench/peak_memory.h"
#include "lab/random/random_networks.h"
#include "machine/machine_state.h"
#include "runtime/executable.h"

namespace redline::lab {
namespace {

/// Fills every input with values of about unit size; `salt` selects the sequence.
void fill_inputs(Executable& network, const SymbolValues& sizes, uint32_t salt) {
  uint32_t state = 2463534242u + salt * 7919u;
  for (const Executable::Port& port : network.inputs()) {
    if (port.dtype != DType::kF32 || port.is_bound()) continue;
    float* data = network.input(port.name);
    const int64_t n = num_elements(port.shape).eval(sizes);
    for (int64_t i = 0; i < n; ++i) {
      state ^= state << 13, state ^= state >> 17, state ^= state << 5;  // Marsaglia's xorshift
      data[i] = (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 3.4f;
    }
  }
}

ExecutableOptions options_of(const SymbolValues& bounds, DType weights) {
  ExecutableOptions options;
  options.bounds = bounds;
  options.exact_f32 = weights == DType::kF32;
  return options;
}

/// The sequences of a network with recurrent states. All are equally long. Each step resets them from a page of zeros.
class NetworkSequences {
 public:
  static Result<NetworkSequences> make(const Executable& network, int64_t sequences) {
    NetworkSequences s;
    const StatePlan& plan = network.states();
    const std::vector<int64_t> pages(plan.groups.size(), sequences + 1);
    REDLINE_ASSIGN(s.memory_, network.make_state_memory(pages));
    s.pages_.reserve(static_cast<size_t>(sequences));
    s.tables_.reserve(static_cast<size_t>(sequences));
    for (int32_t i = 0; i < sequences; ++i) s.pages_.push_back({0, i + 1});
    for (const std::array<int32_t, 2>& of_sequence : s.pages_) s.tables_.push_back(of_sequence.data());
    for (size_t group = 0; group < plan.groups.size(); ++group) {
      s.memory_->clear_page(group, 0);
      s.states_.push_back({.memory = s.memory_->pages(group),
                           .page_bytes = plan.groups[group].page_bytes,
                           .pages = s.tables_.data(),
                           .attention = {}});
    }
    return s;
  }
  /// Returns the context of a step. It is valid until the next call.
  StepContext context(const SymbolValues& sizes) {
    const int64_t sequences = sizes[Symbol::kSequences];
    const auto rows = static_cast<int32_t>(sizes[Symbol::kTokens] / sequences);
    rows_.clear();
    rows_.reserve(static_cast<size_t>(sequences));
    for (int32_t i = 0; i < sequences; ++i) rows_.push_back({i * rows, rows, 0});
    StepContext step;
    step.sizes = sizes;
    step.sequences = rows_;
    step.states = states_;
    return step;
  }

 private:
  std::unique_ptr<StateMemory> memory_;
  std::vector<std::array<int32_t, 2>> pages_;
  std::vector<const int32_t*> tables_;
  std::vector<StateStep> states_;
  std::vector<SequenceRows> rows_;
};

/// A network in two parts: the step invariants, which are computed once, and the step.
struct SplitNetwork {
  Executable once, step;
  std::map<std::string, std::unique_ptr<BackendBuffer>> kept;
  int64_t kept_bytes = 0;
  std::optional<NetworkSequences> sequences;

  static Result<SplitNetwork> make(RandomNetwork made, const ExecutableOptions& options, RuntimeResources& runtime) {
    SplitNetwork network;
    if (!made.once.ops.empty()) {
      REDLINE_ASSIGN(network.once, Executable::make(std::move(made.once), options, runtime));
    }
    REDLINE_ASSIGN(network.step, Executable::make(std::move(made.graph), options, runtime));
    if (const int64_t count = made.sizes[Symbol::kSequences]; count > 0) {
      REDLINE_ASSIGN(network.sequences, NetworkSequences::make(network.step, count));
    }
    return network;
  }
  Status run(const SymbolValues& sizes) { return sequences ? step.run(sequences->context(sizes)) : step.run(sizes); }
  Status prepare(const SymbolValues& sizes) {
    if (once.empty()) return {};
    fill_inputs(once, sizes, 0);
    kept_bytes = 0;
    for (const Executable::Port& port : once.outputs()) {
      std::unique_ptr<BackendBuffer>& values = kept[port.name];
      const int64_t bytes = num_elements(port.shape).eval(sizes) * 4;
      kept_bytes += bytes;
      REDLINE_ASSIGN(values, once.make_buffer(bytes));
      auto* const address = reinterpret_cast<float*>(values->address(true));
      once.bind(port.name, address);
      step.bind(port.name, address);
    }
    return once.run(sizes);
  }
  Result<std::vector<float>> answer(const SymbolValues& sizes) {
    REDLINE_TRY(prepare(sizes));
    fill_inputs(step, sizes, 1);
    REDLINE_TRY(run(sizes));
    std::vector<float> values;
    for (const Executable::Port& port : step.outputs()) {
      const float* data = step.output(port.name);
      values.insert(values.end(), data, data + num_elements(port.shape).eval(sizes));
    }
    return values;
  }
};

/// Returns the RMS difference divided by the RMS of the expected values, over all outputs, at a small size of the same
/// network with the same weights.
Result<double> check_network(const NetworkBenchRequest& request, SplitNetwork& network, RuntimeResources& runtime) {
  REDLINE_ASSIGN(RandomNetwork made, make_random_network(request.network, request.side));
  const SymbolValues sizes = made.check_sizes;
  ExecutableOptions options = options_of(sizes, made.weights);
  options.interpret = true;
  REDLINE_ASSIGN(SplitNetwork interpreted, SplitNetwork::make(std::move(made), options, runtime));
  REDLINE_ASSIGN(const std::vector<float> got, network.answer(sizes));
  REDLINE_ASSIGN(const std::vector<float> expected, interpreted.answer(sizes));
  double difference = 0, size = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i], d = got[i] - e;
    difference += d * d;
    size += e * e;
  }
  return std::sqrt(difference / std::max(size, 1e-30));
}

/// Returns the peak of the fastest instruction that can execute matrix products with `weights`.
std::optional<Peak> best_peak_of_type(const MachinePeaks& peaks, DType weights) {
  std::optional<Peak> best;
  for (const Peak& row : peaks.rows) {
    if (row.instruction.empty() || (weights == DType::kF32 && row.name != "f32")) continue;
    const bool eight_bits = dtype_info(weights).is_block;
    if (row.name == "int8" && !eight_bits) continue;
    if (!best || row.all > best->all) best = row;
  }
  return best;
}

/// Returns the seconds of each run, sorted. The first run is a warm-up and counts only if it is the only one.
Result<std::vector<double>> time_runs(const NetworkBenchRequest& request, SplitNetwork& network,
                                      const SymbolValues& sizes) {
  std::vector<double> seconds;
  const auto begin = std::chrono::steady_clock::now();
  const int64_t most = request.repeat.value_or(5);
  for (int64_t run = 0; run <= most; ++run) {
    fill_inputs(network.step, sizes, static_cast<uint32_t>(run + 2));
    const auto start = std::chrono::steady_clock::now();
    REDLINE_TRY(network.run(sizes));
    const double taken = seconds_since(start);
    if (run > 0 || most == 0) seconds.push_back(taken);
    const double spent = seconds_since(begin);
    if (!request.repeat && !seconds.empty() && spent + taken > request.seconds) break;
    if (request.on_progress && !request.on_progress(run + 1, most + 1)) return cancelled("interrupted");
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds;
}

void count_memory(const SplitNetwork& split, NetworkBenchReport& report) {
  report.weight_bytes = split.step.weight_bytes() + split.once.weight_bytes();
  for (const Executable* part : {&split.once, &split.step}) {
    if (!part->program()) continue;
    report.arena_bytes += part->program()->arena_plan.bytes;
    report.arena_bytes_without_reuse += part->program()->arena_plan.bytes_without_reuse;
  }
  report.arena_bytes += split.kept_bytes;
  report.arena_bytes_without_reuse += split.kept_bytes;
}

}  // namespace

Result<NetworkBenchReport> run_network_bench(const NetworkBenchRequest& request) {
  REDLINE_ASSIGN(const Settings settings, read_settings());
  REDLINE_ASSIGN(const int threads, choose_threads(request.threads, settings.threads));
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  PeakMemory peak;
  REDLINE_ASSIGN(
      const MachinePeaks peaks,
      measure_peaks(*kernels,
                    {.quick = quick_peaks_do(request.repeat, request.seconds), .all_sets = true, .threads = threads}));
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(*kernels, threads));
  peak.begin();
  REDLINE_ASSIGN(RandomNetwork made, make_random_network(request.network, request.side));
  ExecutableOptions options = options_of(made.sizes, made.weights);
  REDLINE_ASSIGN(options.device, choose_engine_device(request.device, false));
  TimelineFile timeline;
  if (!request.trace.empty()) {
    REDLINE_ASSIGN(timeline, TimelineFile::open(request.trace, threads, settings.trace_events));
  }
  RuntimeResources runtime(threads, *kernels, std::move(timeline));
  NetworkBenchReport report;
  report.name = made.name;
  report.about = made.about;
  report.weights = made.weights;
  report.device = device_name(options.device);
  report.threads = threads;
  // Peaks of devices are not known here; `redline bench device` measures them.
  if (options.device.kind == DeviceKind::kCpu) report.best = best_peak_of_type(peaks, made.weights);
  report.check_about = made.check_about;
  const SymbolValues sizes = made.sizes;
  REDLINE_ASSIGN(SplitNetwork split, SplitNetwork::make(std::move(made), options, runtime));
  REDLINE_TRY(split.prepare(sizes));
  REDLINE_ASSIGN(const MachineState before, sampler.sample());
  REDLINE_ASSIGN(report.seconds, time_runs(request, split, sizes));
  constexpr double kStageSeconds = 0.02;
  if (request.stages) {
    REDLINE_ASSIGN(report.stages, split.step.time_stages(kStageSeconds));
    REDLINE_TRY(split.prepare(sizes));
  }
  REDLINE_ASSIGN(const MachineState after, sampler.sample());
  report.state_changed = differs(before, after);
  report.peak_bytes = peak.bytes();
  if (request.check) {
    REDLINE_ASSIGN(const double error, check_network(request, split, runtime));
    // x and cached keys are rounded to 8 bits of mantissa, block-quantized weights to their codes: about 2^-8 per
    // matrix product, accumulated over a few.
    constexpr double kMaxError = 0.03;
    if (!(error < kMaxError))
      return internal("{}: the answer differs from the interpreter's by {:.2g} of its size", request.network, error);
    report.error = error;
  }
  report.operations = static_cast<double>(split.step.flops(sizes));
  report.once_operations = split.once.empty() ? 0 : static_cast<double>(split.once.flops(sizes));
  count_memory(split, report);
  return report;
}

Json stages_json(const std::vector<StageTime>& stages) {
  Json all = Json::array();
  for (const StageTime& stage : stages)
    all.push_back({{"op", stage.op},
                   {"rows", stage.rows},
                   {"cols", stage.cols},
                   {"count", stage.count},
                   {"by_library", stage.is_by_library},
                   {"seconds", stage.seconds},
                   {"bytes", stage.bytes},
                   {"flops", stage.flops}});
  return all;
}

Json network_bench_json(const NetworkBenchReport& report) {
  const std::optional<Peak>& best = report.best;
  Json json;
  json["network"] = report.name;
  json["about"] = report.about;
  json["device"] = report.device;
  json["weights"] = dtype_info(report.weights).name;
  json["threads"] = report.threads;
  json["seconds"] = report.seconds;
  json["median_s"] = report.median();
  json["operations"] = report.operations;
  json["gop_per_s"] = report.gop_per_s();
  json["ceiling"] =
      best ? Json{{"name", best->name}, {"instruction", best->instruction}, {"gop_per_s", best->all}} : Json();
  json["share"] = report.share();
  json["error"] = report.error ? Json(*report.error) : Json();
  json["once_operations"] = report.once_operations;
  json["weight_bytes"] = report.weight_bytes;
  json["arena_bytes"] = report.arena_bytes;
  json["arena_bytes_without_reuse"] = report.arena_bytes_without_reuse;
  json["peak_bytes"] = report.peak_bytes;
  json["peak_ratio"] = report.peak_ratio();
  json["stages"] = stages_json(report.stages);
  json["state_changed"] = report.state_changed;
  return json;
}

}  // namespace redline::lab
