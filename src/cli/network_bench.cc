#include "cli/network_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/settings.h"
#include "base/topology.h"
#include "cli/json.h"
#include "cli/peak_memory.h"
#include "models/random_networks.h"
#include "runtime/ceilings.h"
#include "runtime/machine_state.h"
#include "runtime/network.h"

namespace redline::cli {
namespace {

/// Every input filled with values of about unit size, another sequence for another `salt`.
void fill_inputs(Network& network, const SymbolValues& sizes, uint32_t salt) {
  uint32_t state = 2463534242u + salt * 7919u;
  for (const Network::Port& port : network.inputs()) {
    if (port.dtype != DType::kF32 || port.is_bound()) continue;
    float* data = network.input(port.name);
    const int64_t n = num_elements(port.shape).eval(sizes);
    for (int64_t i = 0; i < n; ++i) {
      state ^= state << 13, state ^= state >> 17, state ^= state << 5;  // Marsaglia's xorshift
      data[i] = (static_cast<float>(state >> 8) * 0x1p-24f - 0.5f) * 3.4f;
    }
  }
}

NetworkOptions options_of(const SymbolValues& bounds, const CpuKernels& kernels, DType weights) {
  NetworkOptions options;
  options.compile.bounds = bounds;
  options.compile.kernels = &kernels;
  options.compile.exact_f32 = weights == DType::kF32;
  options.compile.kv_format = joint_kv_format(kernels, options.compile.exact_f32);
  return options;
}

/// What steps have in common, computed once, and the step.
struct SplitNetwork {
  Network once, step;
  std::map<std::string, std::vector<float>> kept;

  static Result<SplitNetwork> make(RandomNetwork made, const NetworkOptions& options, WorkerTeam& team) {
    SplitNetwork network;
    if (!made.once.ops.empty()) {
      REDLINE_ASSIGN(network.once, Network::make(std::move(made.once), options, team));
    }
    REDLINE_ASSIGN(network.step, Network::make(std::move(made.graph), options, team));
    return network;
  }
  Status prepare(const SymbolValues& sizes) {
    if (once.empty()) return {};
    fill_inputs(once, sizes, 0);
    for (const Network::Port& port : once.outputs()) {
      std::vector<float>& values = kept[port.name];
      values.resize(static_cast<size_t>(num_elements(port.shape).eval(sizes)));
      once.bind(port.name, values.data());
      step.bind(port.name, values.data());
    }
    return once.run(sizes);
  }
  Result<std::vector<float>> answer(const SymbolValues& sizes) {
    REDLINE_TRY(prepare(sizes));
    fill_inputs(step, sizes, 1);
    REDLINE_TRY(step.run(sizes));
    std::vector<float> values;
    for (const Network::Port& port : step.outputs()) {
      const float* data = step.output(port.name);
      values.insert(values.end(), data, data + num_elements(port.shape).eval(sizes));
    }
    return values;
  }
};

/// Root mean square of the difference over that of the expected values, of all outputs together, at a small size of the
/// same network with the same weights.
Result<double> check_answer(const NetworkBenchRequest& request, SplitNetwork& network, const CpuKernels& kernels,
                            WorkerTeam& team) {
  REDLINE_ASSIGN(RandomNetwork made, make_random_network(request.network, request.side));
  const SymbolValues sizes = made.check_sizes;
  NetworkOptions options = options_of(sizes, kernels, made.weights);
  options.interpret = true;
  REDLINE_ASSIGN(SplitNetwork interpreted, SplitNetwork::make(std::move(made), options, team));
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

double median(const std::vector<double>& sorted) { return sorted[sorted.size() / 2]; }

}  // namespace

Status run_network_bench(const NetworkBenchRequest& request, Terminal& terminal) {
  REDLINE_ASSIGN(const Settings settings, read_settings());
  REDLINE_ASSIGN(const int threads, choose_threads(request.threads, settings.threads));
  REDLINE_ASSIGN(const CpuKernels* kernels, cpu_kernels());
  WorkerTeam team(threads, std::pair{kernels->worker_begin, kernels->worker_end});
  PeakMemory peak;
  REDLINE_ASSIGN(const Ceilings ceilings, measure_ceilings(*kernels, {.all_sets = true, .threads = team.size()}));
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(*kernels, team.size()));
  peak.begin();
  REDLINE_ASSIGN(RandomNetwork made, make_random_network(request.network, request.side));
  NetworkOptions options = options_of(made.sizes, *kernels, made.weights);
  std::unique_ptr<Timeline> timeline;
  if (!request.trace.empty()) {
    timeline = std::make_unique<Timeline>(team.size(), settings.trace_events);
    options.timeline = timeline.get();
  }
  const SymbolValues sizes = made.sizes, check_sizes = made.check_sizes;
  const std::string name = made.name, about = made.about;
  const DType weights = made.weights;
  REDLINE_ASSIGN(SplitNetwork split, SplitNetwork::make(std::move(made), options, team));
  Network& network = split.step;
  REDLINE_TRY(split.prepare(sizes));
  REDLINE_ASSIGN(const MachineState before, sampler.sample());

  const InterruptGuard guard;
  std::vector<double> seconds;
  const auto begin = std::chrono::steady_clock::now();
  const int64_t most = request.repeat.value_or(5);
  for (int64_t run = 0; run <= most; ++run) {  // the first warms up
    fill_inputs(network, sizes, static_cast<uint32_t>(run + 2));
    const auto start = std::chrono::steady_clock::now();
    REDLINE_TRY(network.run(sizes));
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (run > 0 || most == 0) seconds.push_back(taken);
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!request.repeat && !seconds.empty() && spent + taken > request.seconds) break;
    if (InterruptGuard::interrupted()) return cancelled("interrupted");
  }
  REDLINE_ASSIGN(const MachineState after, sampler.sample());
  const int64_t peak_bytes = peak.bytes();
  if (timeline && network.program()) REDLINE_TRY(timeline->write(request.trace));
  double error = -1;
  if (request.check) {
    REDLINE_ASSIGN(error, check_answer(request, split, *kernels, team));
    // Rounding of x and of cached keys to 8 bits of mantissa, weights of a block format to their own codes: some 2^-8 a
    // product, added up over a few.
    constexpr double kMost = 0.03;
    if (!(error < kMost))
      return internal("{}: the answer differs from the interpreter's by {:.2g} of its size", request.network, error);
  }
  std::sort(seconds.begin(), seconds.end());

  const Ceiling* best = nullptr;
  for (const Ceiling& row : ceilings.rows) {
    if (row.instruction.empty() || (weights == DType::kF32 && row.name != "f32")) continue;
    const bool eight_bits = dtype_info(weights).is_block;
    if (row.name == "int8" && !eight_bits) continue;
    if (!best || row.all > best->all) best = &row;
  }
  const auto flops = static_cast<double>(network.flops(sizes));
  const double rate = flops / median(seconds) / 1e9;
  const double share = best && best->all > 0 ? rate / best->all : 0;
  const int64_t weight_bytes = network.weight_bytes() + split.once.weight_bytes();
  int64_t arena = 0, arena_without_reuse = 0;
  for (const Network* part : {&split.once, &split.step}) {
    if (!part->program()) continue;
    arena += part->program()->arena_plan.bytes;
    arena_without_reuse += part->program()->arena_plan.bytes_without_reuse;
  }
  for (const auto& [kept, values] : split.kept)
    arena += std::ssize(values) * 4, arena_without_reuse += std::ssize(values) * 4;
  const double peak_ratio = static_cast<double>(peak_bytes) / static_cast<double>(weight_bytes + arena);
  const double once_flops = split.once.empty() ? 0 : static_cast<double>(split.once.flops(sizes));
  const bool moved = differs(before, after);
  if (request.json) {
    Json json;
    json["network"] = name;
    json["about"] = about;
    json["weights"] = dtype_info(weights).name;
    json["threads"] = team.size();
    json["seconds"] = seconds;
    json["median_s"] = median(seconds);
    json["operations"] = flops;
    json["gop_per_s"] = rate;
    json["ceiling"] =
        best ? Json{{"name", best->name}, {"instruction", best->instruction}, {"gop_per_s", best->all}} : Json();
    json["share"] = share;
    json["error"] = error;
    json["once_operations"] = once_flops;
    json["weight_bytes"] = weight_bytes;
    json["arena_bytes"] = arena;
    json["arena_bytes_without_reuse"] = arena_without_reuse;
    json["peak_bytes"] = peak_bytes;
    json["peak_ratio"] = peak_ratio;
    json["state_changed"] = moved;
    return print_json(json, terminal);
  }
  terminal.print("{}: {}, weights {}, {} threads\n", name, about, dtype_info(weights).name, team.size());
  terminal.print("time     {:.1f} ms ({:.1f} .. {:.1f}, {} runs){}\n", median(seconds) * 1e3, seconds.front() * 1e3,
                 seconds.back() * 1e3, seconds.size(), moved ? "; the machine's state moved" : "");
  terminal.print("rate     {:.0f} GOP/s of {:.1f} GOP by count{}\n", rate, flops / 1e9,
                 best ? fmt::format(": {:.0f}% of {:.0f} GOP/s ({})", share * 100, best->all, best->instruction) : "");
  if (once_flops > 0) terminal.print("once     {:.2f} GOP, not in these times\n", once_flops / 1e9);
  terminal.print(
      "memory   weights {:.1f} MB, arena {:.1f} MB ({:.1f} without overlap), peak {:.1f} MB: {:.2f} of both\n",
      static_cast<double>(weight_bytes) / 1e6, static_cast<double>(arena) / 1e6,
      static_cast<double>(arena_without_reuse) / 1e6, static_cast<double>(peak_bytes) / 1e6, peak_ratio);
  if (request.check)
    terminal.print("answer   within {:.2g} of the float64 interpreter's at {}x{}\n", error,
                   check_sizes[Symbol::kWidth] * 8, check_sizes[Symbol::kHeight] * 8);
  else terminal.print("answer   not checked\n");
  return terminal.finish();
}

}  // namespace redline::cli
