#include "runtime/device_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/tiles/library_choice.h"
#include "backends/tiles/tile_lowering.h"
#include "backends/tiles/tile_runner.h"
#include "graph/ops/linear.h"
#include "graph/ops/rms_norm.h"
#include "graph/ops/silu_mul.h"
#include "graph/pass.h"
#include "runtime/device.h"
#include "runtime/interpreter.h"
#include "tensor/dtype.h"

namespace redline {
namespace {

constexpr int64_t kHidden = 128, kFeatures = 192;
/// Numbers of rows to check: an incomplete row panel, more rows than kernels for few rows accept, and more than
/// Redline's own kernels multiply if there is a library.
constexpr int64_t kRowCounts[] = {3, 70, kOwnRows + 4};
constexpr int64_t kMaxRows = kOwnRows + 4;
/// Maximum error relative to the largest element. Kernels round the inputs of products to bfloat16, so each term of a
/// sum is off by at most 2^-9 of itself, and the down projection adds the errors of gate and up. A wrong kernel is off
/// by about the largest element.
constexpr double kTolerance = 0.03;
/// Time limit of a persistent step, which takes some microseconds.
constexpr double kHangSeconds = 2;

class Random {
 public:
  float number() { return std::uniform_real_distribution<float>(-1, 1)(engine_); }
  int code() { return std::uniform_int_distribution<int>(-127, 127)(engine_); }

 private:
  std::mt19937 engine_{7};
};

std::vector<uint8_t> bf16_matrix(int64_t rows, int64_t cols, Random& random) {
  std::vector<uint16_t> bits(static_cast<size_t>(rows * cols));
  for (uint16_t& each : bits) each = f32_to_bf16(random.number() / 8);
  std::vector<uint8_t> bytes(bits.size() * 2);
  std::memcpy(bytes.data(), bits.data(), bytes.size());
  return bytes;
}

/// Returns a random Q8_0 matrix: blocks of a float16 scale and 32 codes.
std::vector<uint8_t> q8_0_matrix(int64_t rows, int64_t cols, Random& random) {
  std::vector<uint8_t> bytes;
  for (int64_t block = 0; block < rows * cols / 32; ++block) {
    const uint16_t scale = f32_to_f16((1 + random.number() / 2) / 1024);
    bytes.push_back(static_cast<uint8_t>(scale));
    bytes.push_back(static_cast<uint8_t>(scale >> 8));
    for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<uint8_t>(random.code()));
  }
  return bytes;
}

/// The weights of the graph.
struct Weights {
  Random random;
  std::vector<float> norm = std::vector<float>(kHidden);
  std::vector<uint8_t> gate = bf16_matrix(kFeatures, kHidden, random), up = q8_0_matrix(kFeatures, kHidden, random),
                       down = q8_0_matrix(kHidden, kFeatures, random);
  Weights() {
    for (float& each : norm) each = 1 + random.number() / 4;
  }
};

Result<Graph> make_graph(const Weights& weights) {
  GraphBuilder g("device check");
  const auto weight = [&](const char* name, DType dtype, std::vector<int64_t> shape, const void* data) {
    return g.weight(name, {.view = {.dtype = dtype, .shape = std::move(shape), .data = data}});
  };
  const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(kHidden)});
  const Value normed = rms_norm(g, x, weight("norm", DType::kF32, {kHidden}, weights.norm.data()), {1e-5f});
  const Value gate = linear(g, normed, weight("gate", DType::kBF16, {kFeatures, kHidden}, weights.gate.data()));
  const Value up = linear(g, normed, weight("up", DType::kQ8_0, {kFeatures, kHidden}, weights.up.data()));
  const Value down = weight("down", DType::kQ8_0, {kHidden, kFeatures}, weights.down.data());
  g.output("y", linear(g, silu_mul(g, gate, up), down));
  return g.finish();
}

Status compare(const float* got, const HostTensor& expected, int64_t rows) {
  double largest = 0, worst = 0;
  for (size_t i = 0; i < expected.data.size(); ++i) {
    largest = std::max(largest, std::abs(expected.data[i]));
    const double error = std::abs(static_cast<double>(got[i]) - expected.data[i]);
    worst = std::isfinite(error) ? std::max(worst, error) : INFINITY;
  }
  if (worst <= kTolerance * largest) return {};
  return unsupported("its kernels compute wrong numbers: a product of {} rows is off by {:.2g} of its largest element",
                     rows, worst / largest);
}

Status run_check(std::shared_ptr<OpenDevice> device, WorkerTeam& team, bool is_persistent = false) {
  Weights weights;
  REDLINE_ASSIGN(Graph graph, make_graph(weights));
  REDLINE_ASSIGN(Interpreter interpreter, Interpreter::make(graph));
  TileCompileOptions options;
  options.bounds[Symbol::kTokens] = kMaxRows;
  REDLINE_TRY(run_passes(graph));
  REDLINE_ASSIGN(Program program, compile_tiles(std::move(graph), options, std::move(device), team));
  StepChoice steps;
  if (is_persistent) {
    REDLINE_ASSIGN(steps, choose_steps(StepMode::kAuto, program));
    if (steps.persistent_rows == 0) return {};
  }
  const int64_t most = is_persistent ? steps.persistent_rows : kMaxRows;
  TileRunner runner(std::move(program), {.steps = std::move(steps), .hang_seconds = kHangSeconds});
  for (const int64_t rows : kRowCounts) {
    if (rows > most) continue;
    StepContext step;
    step.sizes[Symbol::kTokens] = rows;
    HostTensor x{{rows, kHidden}, std::vector<double>(static_cast<size_t>(rows * kHidden))};
    for (double& each : x.data) each = weights.random.number();
    REDLINE_ASSIGN(auto expected, interpreter.run({{"x", x}}, step.sizes));
    // The first step launches, the second one is captured, the third one is the captured one.
    for (int again = 0; again < 3; ++again) {
      auto* to = static_cast<float*>(runner.host_input("x"));
      std::transform(x.data.begin(), x.data.end(), to, [](double each) { return static_cast<float>(each); });
      REDLINE_TRY(runner.step(step));
      REDLINE_TRY(compare(static_cast<const float*>(runner.host_output("y")), expected["y"], rows));
    }
  }
  if (runner.has_failed_products()) return unsupported("its library does not multiply");
  return {};
}

}  // namespace

Status check_device(const std::shared_ptr<OpenDevice>& device, WorkerTeam& team) {
  Status status = run_check(device, team);
  if (!status.ok() && device->table().library != nullptr) {
    const std::string why =
        fmt::format("{} is not used on {}: {}", device->table().library, device->name(), status.message());
    device->drop_library();
    status = run_check(device, team);
    if (status.ok()) note_device(why);
  }
  if (!status.ok()) return unsupported("{}", status.message());
  if (const Status persistent = run_check(device, team, true); !persistent.ok()) {
    note_device(fmt::format("{}: no step is persistent: {}", device->name(), persistent.message()));
    device->drop_persistent("the check of the device failed");
    // Checks that the device still works by launches.
    if (status = run_check(device, team); !status.ok()) return unsupported("{}", status.message());
  }
  return {};
}

}  // namespace redline
