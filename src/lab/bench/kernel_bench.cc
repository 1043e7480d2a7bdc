#include "lab/bench/kernel_bench.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/settings.h"
#include "base/text_distance.h"
#include "base/topology.h"
#include "base/utc_time.h"
#include "machine/machine_json.h"
#include "machine/roofline.h"

namespace redline::lab {
namespace {

constexpr int kMaxPeakRuns = 3;  ///< peaks are measured again while a kernel seems faster than they are

/// Returns the default shape of a kind of kernel: the widest linear of a 1B model, with its rows.
std::vector<int64_t> usual_shape(std::string_view form) {
  if (form == "NxK") return {8192, 2048};
  if (form == "VxH") return {32000, 2048};
  if (form == "HEADSxD") return {32, 64};
  if (form == "KVxGxDxP") return {8, 4, 64, 4096};
  if (form == "V") return {128256};
  // A mobile network's depthwise layer; a layer of a video autoencoder; an audio encoder's second convolution; a layer
  // that doubles an image.
  if (form == "CxHxW") return {192, 56, 56};
  if (form == "NxCxFxHxW") return {96, 96, 4, 60, 104};
  if (form == "NxCxL") return {512, 512, 3000};
  if (form == "NxCxHxW") return {64, 128, 64, 64};
  return {2048};
}

std::vector<std::string> usual_types(const KernelKind& kind, const CpuKernels& table) {
  if (kind.type.empty()) return {""};
  if (kind.name == "prepare_x") return {"q8"};
  if (kind.name == "attention") return {"f16"};
  if (kind.name == "sampler") return sampler_type_names();
  if (kind.name.starts_with("conv_")) return {"f32", "bf16"};
  std::vector<std::string> types;
  if (kind.name == "onednn") {
    for (const DType type : onednn_types())
      if (type != DType::kF32) types.emplace_back(dtype_info(type).name);
    return types;
  }
  if (kind.name != "linear_i8") return {"q4_0"};
  for (int i = 0; i < kNumDTypes; ++i)
    if (table.linear_i8[i] != nullptr) types.emplace_back(dtype_info(static_cast<DType>(i)).name);
  return types;
}

std::string origin_of(const CpuKernels& table, const std::string& entry) {
  for (const KernelOrigin& origin : kernel_origins(table))
    if (origin.kernel == entry) return origin.isa;
  return "none";
}

/// Returns the axes by name: {"M": 4, "N": 8192, "K": 2048}.
Json axes_json(const KernelWorkload& workload) {
  Json axes = {{"M", workload.rows}};
  for (const KernelKind& kind : kernel_kinds()) {
    if (kind.name != workload.kernel) continue;
    std::string name;
    size_t i = 0;
    for (const char c : std::string(kind.shape) + "x") {
      if (c != 'x') name += c;
      else axes[std::exchange(name, "")] = workload.shape[i++];
    }
  }
  return axes;
}

/// Returns the name of the definition. Kernels that compute the same, such as the matrix products of one weight type,
/// are solutions of one definition.
std::string definition_of(const KernelWorkload& workload) {
  KernelWorkload plain = workload;
  if (workload.kernel.starts_with("linear_") || workload.kernel == "onednn") plain.kernel = "linear";
  return kernel_entry_name(plain);
}

/// Returns the baseline for comparison: the same matrix product with the same type.
KernelWorkload baseline_of(const KernelWorkload& workload, const std::string& baseline) {
  KernelWorkload other = workload;
  other.kernel = baseline;
  return other;
}

std::string cpu_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  utsname names = {};
  return uname(&names) == 0 ? names.machine : "unknown";
}

/// Returns all rows of the request, in order.
Result<std::vector<KernelBenchRow>> plan(const KernelBenchRequest& request, const CpuKernels& table, int threads) {
  const KernelKind* kind = nullptr;
  std::vector<std::string> names;
  for (const KernelKind& k : kernel_kinds()) {
    names.emplace_back(k.name);
    if (k.name == request.kernel) kind = &k;
  }
  if (kind == nullptr)
    return invalid_argument("flag --kernel: there is no \"{}\"{}; there are: {}; see --kernel help", request.kernel,
                            the_nearest(request.kernel, fmt::format("{}", fmt::join(names, ", "))),
                            fmt::join(names, ", "));
  std::vector<std::vector<int64_t>> shapes = request.shapes;
  if (shapes.empty()) shapes.push_back(usual_shape(kind->shape));
  std::vector<std::string> types = request.types;
  if (types.empty()) types = usual_types(*kind, table);
  std::vector<int64_t> rows = request.rows;
  if (rows.empty())
    rows = request.kernel == "sampler" || request.kernel.starts_with("conv_") ? std::vector<int64_t>{1}
                                                                              : std::vector<int64_t>{1, 4, 16, 64, 512};
  std::vector<KernelBenchRow> all;
  for (const std::string& type : types)
    for (const auto& shape : shapes)
      for (const int64_t m : rows) {
        KernelBenchRow one;
        one.workload = {request.kernel, type, m, shape, threads};
        one.isa = origin_of(table, kernel_entry_name(one.workload));
        if (request.kernel == "sampler") one.isa = origin_of(table, "block_exp_sum");
        if (request.kernel.starts_with("conv_"))
          one.isa = origin_of(table, request.kernel == "conv_depthwise" ? "conv_f32" : "linear." + type);
        // A baseline library uses the best instruction set of the machine, unless the request names one.
        if (request.kernel == "onednn") one.isa = request.isa.empty() ? std::string(cpu_isa_in_use()) : request.isa;
        one.threads = threads;
        one.cached = request.cached;
        one.baseline = request.baseline;
        // Validates the case now rather than after an hour.
        REDLINE_TRY(make_kernel_case(one.workload, table));
        if (!request.baseline.empty())
          REDLINE_TRY(make_kernel_case(baseline_of(one.workload, request.baseline), table));
        all.push_back(std::move(one));
      }
  return all;
}

Status measure(const CpuKernels& table, const KernelBenchOptions& options, KernelBenchRow& row) {
  REDLINE_ASSIGN(const auto kernel_case, make_kernel_case(row.workload, table));
  row.cost = kernel_case->cost();
  REDLINE_ASSIGN(row.timing, time_kernel(*kernel_case, table, options));
  if (row.baseline.empty()) return {};
  REDLINE_ASSIGN(const auto baseline_case, make_kernel_case(baseline_of(row.workload, row.baseline), table));
  REDLINE_ASSIGN(const KernelTiming baseline, time_kernel(*baseline_case, table, options));
  if (baseline.failure.empty()) row.baseline_seconds = baseline.median();
  return {};
}

/// Sets bound and verdict of the row. Returns true if the row is faster than its bound.
bool judge(KernelBenchRow& row, const MachinePeaks& peaks) {
  row.bound = kernel_bound(row.cost, peaks, row.threads, row.cached);
  row.verdict = audit_kernel(row.timing, row.bound);
  return row.verdict.status == KernelStatus::kQuarantined;
}
bool judge(KernelBenchReport& report) {
  bool is_too_fast = false;
  for (KernelBenchRow& row : report.rows) is_too_fast |= judge(row, report.peaks);
  return is_too_fast;
}

}  // namespace

Status KernelBenchReport::status() const {
  const auto bad = std::count_if(rows.begin(), rows.end(), [](const KernelBenchRow& row) {
    return row.verdict.status == KernelStatus::kWrong || row.verdict.status == KernelStatus::kQuarantined;
  });
  if (bad == 0) return {};
  return internal("{} of {} measurements {} not credible", bad, rows.size(), bad == 1 ? "is" : "are");
}

Result<KernelBenchReport> run_kernel_bench(const KernelBenchRequest& request) {
  REDLINE_ASSIGN(const Settings settings, read_settings());
  REDLINE_ASSIGN(const CpuKernels table, cpu_kernels_for(request.isa.empty() ? settings.cpu_isa : request.isa)
                                             .within(request.isa.empty() ? "REDLINE_CPU_ISA" : "flag --isa"));
  int threads = request.threads;
  if (threads == 0) threads = settings.threads > 0 ? static_cast<int>(settings.threads) : cpu_order().cores;
  KernelBenchReport report;
  REDLINE_ASSIGN(report.rows, plan(request, table, threads));
  // All rows are of one kernel, so one instruction set serves them, except for types without their own entry in a
  // richer set.
  REDLINE_ASSIGN(const CpuKernels own, cpu_kernels_for(report.rows.front().isa));
  const PeakOptions peak_options = {.quick = request.seconds < 0.01, .threads = threads};
  REDLINE_ASSIGN(report.peaks, measure_peaks(own, peak_options));

  const KernelBenchOptions options = {.threads = threads, .cached = request.cached, .seconds = request.seconds};
  int64_t done = 0;
  for (KernelBenchRow& row : report.rows) {
    report.failure = measure(table, options, row);
    if (!report.failure.ok()) break;
    judge(row, report.peaks);
    ++done;
    if (request.on_row) request.on_row(row);
    if (!request.on_progress || request.on_progress(done, std::ssize(report.rows))) continue;
    if (done < std::ssize(report.rows)) report.failure = cancelled("interrupted");
    break;
  }
  if (!report.failure.ok()) {
    if (done == 0) return report.failure;
    report.rows.resize(static_cast<size_t>(done));
    return report;
  }
  // The machine may have been slower while its peaks were measured.
  bool is_too_fast = judge(report);
  for (int again = 0; is_too_fast && again < kMaxPeakRuns; ++again) {
    report.is_judged_again = true;
    REDLINE_ASSIGN(const MachinePeaks others, measure_peaks(own, peak_options));
    raise_to(report.peaks, others);
    is_too_fast = judge(report);
  }
  return report;
}

namespace {

/// Returns the ceilings of all workers by name: {"read": 15.6, "f32": 175.4, ...}, in the units of peaks_json.
Json ceilings_json(const MachinePeaks& peaks) {
  const Json report = peaks_json(peaks);
  Json ceilings = Json::object();
  for (const auto& [name, peak] : report.items())
    if (peak.is_object() && peak.contains("all"))
      ceilings[name] = std::stod(fmt::format("{:.6g}", peak["all"].get<double>()));
  return ceilings;
}

}  // namespace

Json kernel_trace_json(const KernelBenchRow& m, const MachinePeaks& peaks) {
  const std::string entry = kernel_entry_name(m.workload);
  Json trace = {{"definition", definition_of(m.workload)},
                {"workload", axes_json(m.workload)},
                {"solution", {{"kernel", entry}, {"isa", m.isa}, {"sources_sha256", kernel_sources_hash(entry)}}},
                {"status", kernel_status_name(m.verdict.status)},
                {"why", m.verdict.why},
                {"error",
                 {{"of_bound", std::isfinite(m.timing.check.of_bound) ? Json(m.timing.check.of_bound) : Json(nullptr)},
                  {"absolute", std::isfinite(m.timing.check.absolute) ? Json(m.timing.check.absolute) : Json(nullptr)},
                  {"elements", m.timing.check.elements},
                  {"seeds", m.timing.seeds}}},
                {"threads", m.threads},
                {"cached", m.cached},
                {"latency", nullptr},
                {"bound",
                 {{"seconds", m.bound.seconds},
                  {"by", m.bound.by},
                  {"bytes", m.cost.bytes},
                  {"from_memory", m.cost.from_memory},
                  {"operations", m.cost.operations}}},
                {"baseline", nullptr},
                {"score", nullptr},
                {"machine", {{"cpu", cpu_name()}, {"ceilings", ceilings_json(peaks)}}},
                {"time", utc_text(unix_time())}};
  if (!m.timing.seconds.empty())
    trace["latency"] = {{"median", m.timing.median()},
                        {"min", m.timing.seconds.front()},
                        {"max", m.timing.seconds.back()},
                        {"laps", m.timing.seconds.size()},
                        {"runs_per_lap", m.timing.runs_per_iteration}};
  if (m.baseline_seconds > 0) {
    trace["baseline"] = {{"kernel", m.baseline}, {"median", m.baseline_seconds}};
    trace["score"] = m.score();
  }
  return trace;
}

/// Appends one line with a single write, so that two programs can append to the same file.
Status append_trace(const std::string& folder, const Json& trace) {
  const std::filesystem::path path =
      std::filesystem::path(folder) / "traces" / (trace["definition"].get<std::string>() + ".jsonl");
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return io("flag --record: {} cannot be written: {}", path.string(), std::strerror(errno));
  const std::string line = to_line(trace) + "\n";
  const ssize_t written = write(file, line.data(), line.size());
  const int reason = errno;
  close(file);
  if (written != static_cast<ssize_t>(line.size()))
    return io("flag --record: {} cannot be written: {}", path.string(), std::strerror(reason));
  return {};
}

}  // namespace redline::lab
