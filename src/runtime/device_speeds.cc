#include "runtime/device_speeds.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>

#include "backends/tiles/tile_lowering.h"
#include "backends/tiles/tile_runner.h"
#include "graph/ops/add.h"
#include "graph/ops/linear.h"
#include "graph/ops/scale.h"
#include "graph/pass.h"
#include "tensor/blocks/w8a8.h"
#include "tensor/dtype.h"

namespace redline {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

constexpr int kRepeats = 5;
/// Makes random numbers (Marsaglia's xorshift). Zeros would not do, because their products take less power.
class Numbers {
 public:
  float next() {
    state_ ^= state_ << 13, state_ ^= state_ >> 17, state_ ^= state_ << 5;
    return static_cast<float>(state_ >> 8) * 0x1p-23f - 1;
  }

 private:
  uint32_t state_ = 2463534242u;
};

/// Returns the seconds of the fastest of some runs.
Result<double> fastest(const std::function<Status()>& run) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i <= kRepeats; ++i) {
    const auto begin = Clock::now();
    REDLINE_TRY(run());
    if (i > 0) best = std::min(best, since(begin));  // the first one touches the memory
  }
  return best;
}

Status measure_memory(const std::shared_ptr<OpenDevice>& device, int64_t bytes, DeviceSpeeds& speeds) {
  std::vector<float> host(static_cast<size_t>(bytes / 4));
  Numbers numbers;
  for (float& each : host) each = numbers.next();
  REDLINE_ASSIGN(DeviceMemory a, DeviceMemory::make(device, bytes));
  REDLINE_ASSIGN(DeviceMemory b, DeviceMemory::make(device, bytes));
  const auto size = static_cast<double>(bytes);
  REDLINE_ASSIGN(const double uploaded, fastest([&]() -> Status {
                   REDLINE_TRY(device->upload(a.data(), host.data(), bytes));
                   return device->synchronize();
                 }));
  REDLINE_ASSIGN(const double downloaded, fastest([&] { return device->download(host.data(), a.data(), bytes); }));
  REDLINE_ASSIGN(const double copied, fastest([&]() -> Status {
                   REDLINE_TRY(device->copy(b.data(), a.data(), bytes));
                   return device->synchronize();
                 }));
  DeviceBufferMath math(device);
  REDLINE_TRY(math.prepare());
  REDLINE_ASSIGN(const double compared, fastest([&] { return math.compare(a.data(), b.data(), bytes / 4).status(); }));
  speeds.upload_bytes_per_s = size / uploaded;
  speeds.download_bytes_per_s = size / downloaded;
  speeds.copy_bytes_per_s = 2 * size / copied;
  speeds.read_bytes_per_s = 2 * size / compared;
  return {};
}

Result<std::unique_ptr<TileRunner>> make_runner(Graph graph, int64_t rows, const std::shared_ptr<OpenDevice>& device,
                                                WorkerTeam& team) {
  TileCompileOptions options;
  options.bounds[Symbol::kTokens] = rows;
  REDLINE_TRY(run_passes(graph));
  REDLINE_ASSIGN(Program program, compile_tiles(std::move(graph), options, device, team));
  return std::make_unique<TileRunner>(std::move(program), TileRunnerOptions{.steps = {0, ""}, .graphs = false});
}

Status measure_launches(const std::shared_ptr<OpenDevice>& device, WorkerTeam& team, DeviceSpeeds& speeds) {
  GraphBuilder g("nothing");
  g.output("y", scale(g, g.input("x", DType::kF32, {Symbol::kTokens, Dim(8)}), {2}));
  REDLINE_ASSIGN(Graph graph, g.finish());
  REDLINE_ASSIGN(const std::unique_ptr<TileRunner> runner, make_runner(std::move(graph), 1, device, team));
  StepContext step;
  step.sizes[Symbol::kTokens] = 1;
  REDLINE_ASSIGN(speeds.step_seconds, fastest([&] { return runner->step(step); }));
  constexpr double kSeconds = 0.02;
  REDLINE_ASSIGN(const std::vector<StageTime> times, runner->time_stages(kSeconds));
  speeds.launch_seconds = times.at(0).seconds;
  return {};
}

/// Returns the seconds of the product for each number of rows. Redline's own kernels compute products of up to
/// `own_rows` rows, the library the others. `weight` is square.
Result<std::vector<double>> time_products(const std::vector<int64_t>& rows, const TensorView& weight, int64_t own_rows,
                                          const std::shared_ptr<OpenDevice>& device, WorkerTeam& team) {
  const int64_t size = weight.shape[0];
  GraphBuilder g("product");
  const Value x = g.input("x", DType::kF32, {Symbol::kTokens, Dim(size)});
  const Value w = g.weight("w", {.view = weight});
  g.output("y", add(g, x, linear(g, x, w)));
  REDLINE_ASSIGN(Graph graph, g.finish());
  const int64_t kept = device->own_rows();
  device->set_own_rows(own_rows);
  Result<std::unique_ptr<TileRunner>> made = make_runner(std::move(graph), rows.back(), device, team);
  device->set_own_rows(kept);
  if (!made.ok()) return made.status();
  TileRunner& runner = **made;
  Numbers numbers;
  std::vector<double> seconds;
  for (const int64_t each : rows) {
    auto* to = static_cast<float*>(runner.host_input("x"));
    for (int64_t i = 0; i < each * size; ++i) to[i] = numbers.next();
    StepContext step;
    step.sizes[Symbol::kTokens] = each;
    REDLINE_TRY(runner.step(step));
    constexpr double kSeconds = 0.02;
    REDLINE_ASSIGN(const std::vector<StageTime> times, runner.time_stages(kSeconds));
    double sum = 0;
    for (const StageTime& time : times) sum += time.seconds * static_cast<double>(time.count);
    seconds.push_back(sum);
  }
  return seconds;
}

struct PeakType {
  const char* name;
  tiles::ProductType type;
  int64_t bytes;
};
constexpr PeakType kPeakTypes[] = {{"bf16", tiles::ProductType::kBF16, 2},
                                   {"e4m3", tiles::ProductType::kE4M3, 1},
                                   {"int8", tiles::ProductType::kI8, 1}};

/// Returns the bytes of `count` random numbers of a type.
std::vector<uint8_t> random_factor(const PeakType& type, int64_t count) {
  std::vector<uint8_t> bytes(static_cast<size_t>(count * type.bytes));
  Numbers numbers;
  for (int64_t i = 0; i < count; ++i) {
    const float number = numbers.next();
    if (type.type == tiles::ProductType::kBF16) {
      const uint16_t bits = f32_to_bf16(number);
      std::memcpy(bytes.data() + 2 * i, &bits, 2);
      continue;
    }
    auto code = static_cast<uint8_t>(static_cast<int>(number * 127) & 255);
    if (type.type == tiles::ProductType::kE4M3 && (code & 127) == 127) code ^= 1;  // not a number
    bytes[static_cast<size_t>(i)] = code;
  }
  return bytes;
}

/// Returns the operations per second of a product of two matrices [size, size] by the library.
Result<double> measure_peak(const std::shared_ptr<OpenDevice>& device, const PeakType& type, int64_t size) {
  const int64_t count = size * size, bytes = count * type.bytes;
  const std::vector<uint8_t> host = random_factor(type, count);
  REDLINE_ASSIGN(DeviceMemory x, DeviceMemory::make(device, bytes));
  REDLINE_ASSIGN(DeviceMemory w, DeviceMemory::make(device, bytes));
  REDLINE_ASSIGN(DeviceMemory y, DeviceMemory::make(device, count * 4));
  REDLINE_TRY(device->upload(x.data(), host.data(), bytes));
  REDLINE_TRY(device->upload(w.data(), host.data(), bytes));
  const auto side = static_cast<int32_t>(size);
  const tiles::MatrixProduct product = {x.data(), w.data(), y.data(), side, side, side, type.type};
  constexpr int kProducts = 8;  // in a row, so that the time of a launch does not count
  REDLINE_ASSIGN(const double seconds, fastest([&]() -> Status {
                   for (int i = 0; i < kProducts; ++i) REDLINE_TRY(device->multiply(product));
                   return device->synchronize();
                 }));
  return kProducts * 2.0 * static_cast<double>(count) * static_cast<double>(size) / seconds;
}

/// Returns the rate of the own kernel for W8A8, whose time includes rounding x.
Result<double> measure_own_i8(const std::shared_ptr<OpenDevice>& device, int64_t size, WorkerTeam& team) {
  std::vector<float> row(static_cast<size_t>(size));
  std::vector<uint8_t> codes(static_cast<size_t>(size * row_bytes(DType::kW8A8, size)));
  Numbers numbers;
  for (int64_t r = 0; r < size; ++r) {
    for (float& each : row) each = numbers.next();
    blocks::W8A8::round_row(row.data(), size, codes.data() + r * row_bytes(DType::kW8A8, size));
  }
  const TensorView weight = {.dtype = DType::kW8A8, .shape = {size, size}, .data = codes.data()};
  REDLINE_ASSIGN(const std::vector<double> seconds, time_products({size}, weight, size, device, team));
  return 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / seconds[0];
}

/// Measures the peak of each type. Without a library Redline's own kernels are measured; they have none for e4m3.
void measure_peaks(const std::shared_ptr<OpenDevice>& device, int64_t size, WorkerTeam& team, DeviceSpeeds& speeds) {
  const auto side = static_cast<int32_t>(size);
  for (const PeakType& type : kPeakTypes) {
    DeviceSpeeds::Peak& peak = speeds.peaks.emplace_back();
    peak.type = type.name;
    if (speeds.library.empty() && type.type == tiles::ProductType::kBF16) {
      peak.by = "own kernels";
      for (const DeviceSpeeds::Product& product : speeds.products)
        peak.operations_per_s = std::max(peak.operations_per_s, product.flops() / product.own_seconds);
      continue;
    }
    if (speeds.library.empty() && type.type == tiles::ProductType::kI8) {
      if (const Result<double> measured = measure_own_i8(device, speeds.products[0].size, team); measured.ok()) {
        peak.by = "own kernels";
        peak.operations_per_s = *measured;
      } else {
        peak.reason = measured.status().message();
      }
      continue;
    }
    if (speeds.library.empty()) {
      peak.reason = "there is no matrix library, and Redline's own kernels have no such product";
    } else if (!device->can_multiply(side, side, side, type.type)) {
      peak.reason = fmt::format("{} has no such product on {}", speeds.library, speeds.model);
    } else if (const Result<double> measured = measure_peak(device, type, size); measured.ok()) {
      peak.by = speeds.library;
      peak.operations_per_s = *measured;
    } else {
      peak.reason = fmt::format("{} fails: {}", speeds.library, measured.status().message());
    }
  }
}

}  // namespace

// Returns the limit that loses the least time over all sizes. The last size at which own kernels are faster would
// depend on a single measurement.
int64_t choose_own_rows(const std::vector<DeviceSpeeds::Product>& products) {
  const auto lost_by = [&](int64_t own_rows) {
    double lost = 0;
    for (const DeviceSpeeds::Product& product : products) {
      const double own = product.own_seconds, library = *product.library_seconds;
      lost += (product.rows <= own_rows ? own : library) / std::min(own, library) - 1;
    }
    return lost;
  };
  int64_t best = 0;
  for (const DeviceSpeeds::Product& product : products)
    if (lost_by(product.rows) <= lost_by(best)) best = product.rows;
  return best;
}

Result<DeviceSpeeds> measure_device_speeds(const std::shared_ptr<OpenDevice>& device, WorkerTeam& team,
                                           const std::function<bool()>& on_part) {
  const tiles::TileDevice& table = device->table();
  const bool is_emulated = table.gives_up_at_once != 0;
  DeviceSpeeds speeds;
  speeds.name = table.name;
  speeds.model = table.model;
  speeds.library = table.library != nullptr ? table.library : "";
  speeds.multiprocessors = table.multiprocessors;
  REDLINE_ASSIGN(const OpenDevice::Memory memory, device->memory());
  speeds.free_bytes = memory.free;
  speeds.total_bytes = memory.total;
  const auto goes_on = [&] { return !on_part || on_part(); };
  // Far more than any cache of the device holds.
  const int64_t most = is_emulated ? int64_t{1} << 18 : int64_t{1} << 30;
  REDLINE_TRY(measure_memory(device, std::min(most, memory.usable() / 4) / 256 * 256, speeds));
  if (!goes_on()) return cancelled("interrupted");
  REDLINE_TRY(measure_launches(device, team, speeds));
  const int64_t size = is_emulated ? 64 : 4096;
  const std::vector<int64_t> rows = is_emulated ? std::vector<int64_t>{16, 64}
                                                : std::vector<int64_t>{32, 64, 96, 128, 192, 256, 384, 512, 1024, 4096};
  std::vector<uint16_t> weight(static_cast<size_t>(size * size));
  Numbers numbers;
  for (uint16_t& each : weight) each = f32_to_bf16(numbers.next() / 64);
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  if (!goes_on()) return cancelled("interrupted");
  const TensorView view = {.dtype = DType::kBF16, .shape = {size, size}, .data = weight.data()};
  REDLINE_ASSIGN(const std::vector<double> own, time_products(rows, view, kAll, device, team));
  for (size_t i = 0; i < rows.size(); ++i) speeds.products.push_back({rows[i], size, own[i], {}});
  if (!goes_on()) return cancelled("interrupted");
  measure_peaks(device, is_emulated ? 32 : 8192, team, speeds);
  if (!goes_on()) return cancelled("interrupted");
  if (speeds.library.empty()) return speeds;
  REDLINE_ASSIGN(const std::vector<double> by_library, time_products(rows, view, 0, device, team));
  for (size_t i = 0; i < rows.size(); ++i) speeds.products[i].library_seconds = by_library[i];
  speeds.own_rows = choose_own_rows(speeds.products);
  return speeds;
}

}  // namespace redline
