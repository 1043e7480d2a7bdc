#include "cli/network_bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/settings.h"
#include "base/topology.h"
#include "cli/json.h"
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
    if (port.dtype != DType::kF32) continue;
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

/// Root mean square of the difference over that of the expected values, of all outputs together.
Result<double> check_answer(const std::string& name, const CpuKernels& kernels, WorkerTeam& team) {
  double difference = 0, size = 0;
  constexpr int64_t kCheckSide = 64;
  std::vector<std::vector<float>> answers[2];
  for (const bool interpret : {false, true}) {
    REDLINE_ASSIGN(RandomNetwork small, make_random_network(name, kCheckSide));
    small.sizes[Symbol::kTextTokens] = std::min<int64_t>(small.sizes[Symbol::kTextTokens], 8);
    NetworkOptions options = options_of(small.sizes, kernels, small.weights);
    options.interpret = interpret;
    REDLINE_ASSIGN(Network network, Network::make(std::move(small.graph), options, team));
    fill_inputs(network, small.sizes, 1);
    REDLINE_TRY(network.run(small.sizes));
    for (const Network::Port& port : network.outputs()) {
      const float* data = network.output(port.name);
      answers[interpret].emplace_back(data, data + num_elements(port.shape).eval(small.sizes));
    }
  }
  for (size_t i = 0; i < answers[0].size(); ++i)
    for (size_t k = 0; k < answers[0][i].size(); ++k) {
      const double got = answers[0][i][k], expected = answers[1][i][k];
      difference += (got - expected) * (got - expected);
      size += expected * expected;
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
  double error = -1;
  if (request.check) {
    REDLINE_ASSIGN(error, check_answer(request.network, *kernels, team));
    // Rounding of x and of cached keys to 8 bits of mantissa, weights of a block format to their own codes: some 2^-8 a
    // product, added up over a few.
    constexpr double kMost = 0.03;
    if (!(error < kMost))
      return internal("{}: the answer differs from the interpreter's by {:.2g} of its size", request.network, error);
  }
  REDLINE_ASSIGN(RandomNetwork made, make_random_network(request.network, request.side));
  NetworkOptions options = options_of(made.sizes, *kernels, made.weights);
  std::unique_ptr<Timeline> timeline;
  if (!request.trace.empty()) {
    timeline = std::make_unique<Timeline>(team.size(), settings.trace_events);
    options.timeline = timeline.get();
  }
  REDLINE_ASSIGN(Network network, Network::make(std::move(made.graph), options, team));
  REDLINE_ASSIGN(const Ceilings ceilings, measure_ceilings(*kernels, {.all_sets = true, .threads = team.size()}));
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(*kernels, team.size()));
  REDLINE_ASSIGN(const MachineState before, sampler.sample());

  const InterruptGuard guard;
  std::vector<double> seconds;
  const auto begin = std::chrono::steady_clock::now();
  const int64_t most = request.repeat.value_or(5);
  for (int64_t run = 0; run <= most; ++run) {  // the first warms up
    fill_inputs(network, made.sizes, static_cast<uint32_t>(run + 2));
    const auto start = std::chrono::steady_clock::now();
    REDLINE_TRY(network.run(made.sizes));
    const double taken = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (run > 0 || most == 0) seconds.push_back(taken);
    const double spent = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (!request.repeat && !seconds.empty() && spent + taken > request.seconds) break;
    if (InterruptGuard::interrupted()) return cancelled("interrupted");
  }
  REDLINE_ASSIGN(const MachineState after, sampler.sample());
  if (timeline && network.program()) REDLINE_TRY(timeline->write(request.trace));
  std::sort(seconds.begin(), seconds.end());

  const Ceiling* best = nullptr;
  for (const Ceiling& row : ceilings.rows) {
    if (row.instruction.empty() || (made.weights == DType::kF32 && row.name != "f32")) continue;
    const bool eight_bits = dtype_info(made.weights).is_block;
    if (row.name == "int8" && !eight_bits) continue;
    if (!best || row.all > best->all) best = &row;
  }
  const auto flops = static_cast<double>(network.flops(made.sizes));
  const double rate = flops / median(seconds) / 1e9;
  const double share = best && best->all > 0 ? rate / best->all : 0;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const ArenaPlan* arena = network.program() ? &network.program()->arena_plan : nullptr;
  const bool moved = differs(before, after);
  if (request.json) {
    Json json;
    json["network"] = made.name;
    json["about"] = made.about;
    json["weights"] = dtype_info(made.weights).name;
    json["threads"] = team.size();
    json["seconds"] = seconds;
    json["median_s"] = median(seconds);
    json["operations"] = flops;
    json["gop_per_s"] = rate;
    json["ceiling"] =
        best ? Json{{"name", best->name}, {"instruction", best->instruction}, {"gop_per_s", best->all}} : Json();
    json["share"] = share;
    json["error"] = error;
    json["weight_bytes"] = network.weight_bytes();
    json["arena_bytes"] = arena ? arena->bytes : 0;
    json["arena_bytes_without_reuse"] = arena ? arena->bytes_without_reuse : 0;
    json["peak_bytes"] = int64_t{usage.ru_maxrss} * 1024;
    json["state_changed"] = moved;
    return print_json(json, terminal);
  }
  terminal.print("{}: {}, weights {}, {} threads\n", made.name, made.about, dtype_info(made.weights).name, team.size());
  terminal.print("time     {:.1f} ms ({:.1f} .. {:.1f}, {} runs){}\n", median(seconds) * 1e3, seconds.front() * 1e3,
                 seconds.back() * 1e3, seconds.size(), moved ? "; the machine's state moved" : "");
  terminal.print("rate     {:.0f} GOP/s of {:.1f} GOP by count{}\n", rate, flops / 1e9,
                 best ? fmt::format(": {:.0f}% of {:.0f} GOP/s ({})", share * 100, best->all, best->instruction) : "");
  if (arena)
    terminal.print("memory   weights {:.1f} MB, arena {:.1f} MB ({:.1f} without overlap), peak {:.0f} MB\n",
                   static_cast<double>(network.weight_bytes()) / 1e6, static_cast<double>(arena->bytes) / 1e6,
                   static_cast<double>(arena->bytes_without_reuse) / 1e6,
                   static_cast<double>(usage.ru_maxrss) * 1.024e-3);
  if (request.check) terminal.print("answer   within {:.2g} of the float64 interpreter's at 64x64\n", error);
  else terminal.print("answer   not checked\n");
  return terminal.finish();
}

}  // namespace redline::cli
