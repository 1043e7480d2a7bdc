#include "cli/kernel_bench.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/progress.h"
#include "base/settings.h"
#include "base/topology.h"
#include "cli/bench_bound.h"
#include "cli/ceilings_json.h"
#include "cli/json.h"
#include "cli/table.h"
#include "runtime/kernel_score.h"

namespace redline::cli {
namespace {

constexpr int kMostCeilings = 3;  ///< measured again, while a kernel seems faster than they are

/// "8192x2048,2048x2048".
Result<std::vector<std::vector<int64_t>>> parse_shapes(const std::string& text) {
  std::vector<std::vector<int64_t>> shapes(1);
  for (const char* at = text.data(); const char* const end = text.data() + text.size();) {
    int64_t size = 0;
    const auto [rest, error] = std::from_chars(at, end, size);
    if (error != std::errc() || (rest != end && *rest != 'x' && *rest != ','))
      return invalid_argument("flag --shape: \"{}\" should read like 8192x2048 or 8192x2048,2048x8192", text);
    shapes.back().push_back(size);
    if (rest == end) return shapes;
    if (*rest == ',') shapes.emplace_back();
    at = rest + 1;
  }
  return shapes;
}

std::vector<std::string> parse_names(const std::string& text) {
  std::vector<std::string> names(1);
  for (const char c : text) {
    if (c == ',') names.emplace_back();
    else names.back() += c;
  }
  return names;
}

/// What a kind is measured on when nobody says: the widest product of a model of 1B, and its rows.
const char* usual_shape(std::string_view form) {
  return form == "NxK"        ? "8192x2048"
         : form == "VxH"      ? "32000x2048"
         : form == "HEADSxD"  ? "32x64"
         : form == "KVxGxDxP" ? "8x4x64x4096"
                              : "2048";
}

struct Measured {
  KernelAsked asked;
  std::string isa;  ///< that serves the kernel
  int threads = 1;
  bool cached = false;
  KernelCase::Cost cost;
  KernelTiming timing;
  KernelBound bound;
  KernelVerdict verdict;
  std::string baseline;
  double baseline_seconds = 0;

  double score() const { return sol_score(timing.median(), baseline_seconds, bound.seconds); }
  double share() const { return timing.median() > 0 ? bound.seconds / timing.median() : 0; }
};

std::string origin_of(const CpuKernels& table, const std::string& entry) {
  for (const KernelOrigin& origin : kernel_origins(table))
    if (origin.kernel == entry) return origin.isa;
  return "none";
}

/// Axes by name: {"M": 4, "N": 8192, "K": 2048}.
Json axes_json(const KernelAsked& asked) {
  Json axes = {{"M", asked.rows}};
  for (const KernelKind& kind : kernel_kinds()) {
    if (kind.name != asked.kernel) continue;
    std::string name;
    size_t i = 0;
    for (const char c : std::string(kind.shape) + "x") {
      if (c != 'x') name += c;
      else axes[std::exchange(name, "")] = asked.shape[i++];
    }
  }
  return axes;
}

/// Two kernels that do the same are solutions of one definition: the products of one weight type.
std::string definition_of(const KernelAsked& asked) {
  KernelAsked plain = asked;
  if (asked.kernel == "linear_q8" || asked.kernel == "linear_tiles" || asked.kernel == "onednn")
    plain.kernel = "linear";
  if (asked.kernel == "linear_i8") plain.kernel = "linear", plain.type = "w8a8";
  return kernel_entry_name(plain);
}

/// The peer beside it: the same product of the same type.
KernelAsked baseline_of(const KernelAsked& asked, const std::string& baseline) {
  KernelAsked other = asked;
  other.kernel = baseline;
  if (asked.kernel == "linear_i8" && baseline == "onednn") other.type = "w8a8";
  return other;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
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

/// What stays of a measurement: nothing in it is changed later.
Json trace_json(const Measured& m, const Ceilings& ceilings) {
  const std::string entry = kernel_entry_name(m.asked);
  Json trace = {{"definition", definition_of(m.asked)},
                {"workload", axes_json(m.asked)},
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
                {"machine", {{"cpu", cpu_name()}, {"ceilings", ceilings_json(ceilings)}}},
                {"time", utc_now()}};
  if (!m.timing.seconds.empty())
    trace["latency"] = {{"median", m.timing.median()},
                        {"min", m.timing.seconds.front()},
                        {"max", m.timing.seconds.back()},
                        {"laps", m.timing.seconds.size()},
                        {"runs_per_lap", m.timing.runs_per_lap}};
  if (m.baseline_seconds > 0) {
    trace["baseline"] = {{"kernel", m.baseline}, {"median", m.baseline_seconds}};
    trace["score"] = m.score();
  }
  return trace;
}

/// One line, in one write, so that two programs may append to one file.
Status append_trace(const std::string& folder, const Json& trace) {
  const std::filesystem::path path =
      std::filesystem::path(folder) / "traces" / (trace["definition"].get<std::string>() + ".jsonl");
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) return io("flag --record: {} cannot be written: {}", path.string(), std::strerror(errno));
  const std::string line = to_text(trace, -1) + "\n";
  const ssize_t written = write(file, line.data(), line.size());
  const int reason = errno;
  close(file);
  if (written != static_cast<ssize_t>(line.size()))
    return io("flag --record: {} cannot be written: {}", path.string(), std::strerror(reason));
  return {};
}

std::string short_time(double seconds) {
  return seconds >= 0.1    ? fmt::format("{:.2f} s", seconds)
         : seconds >= 1e-4 ? fmt::format("{:.3f} ms", seconds * 1e3)
                           : fmt::format("{:.3f} us", seconds * 1e6);
}

void print_measured(const std::vector<Measured>& all, Terminal& terminal) {
  bool scored = false;
  for (const Measured& m : all) scored |= m.baseline_seconds > 0;
  std::vector<std::string> header = {"kernel", "isa",   "rows",       "shape",    "median", "spread",
                                     "GB/s",   "GOP/s", "of ceiling", "bound by", "error"};
  if (scored) {
    header.push_back(fmt::format("times as fast as {}", all.front().baseline));
    header.emplace_back("score");
  }
  header.emplace_back("");
  Table table(header, {2, 4, 5, 6, 7, 8, 10, 11, 12});
  for (const Measured& m : all) {
    std::vector<std::string> cells = {kernel_entry_name(m.asked), m.isa, fmt::format("{}", m.asked.rows),
                                      fmt::format("{}", fmt::join(m.asked.shape, "x"))};
    const double median = m.timing.median();
    if (median > 0)
      cells.insert(cells.end(), {short_time(median), fmt::format("{:.0f}%", 100 * m.timing.spread()),
                                 fmt::format("{:.2f}", m.cost.bytes / median / 1e9),
                                 fmt::format("{:.1f}", m.cost.operations / median / 1e9),
                                 m.bound.by.empty() ? "" : fmt::format("{:.1f}%", 100 * m.share()), m.bound.by});
    else cells.insert(cells.end(), {"-", "", "", "", "", ""});
    cells.push_back(fmt::format("{:.2f}", m.timing.check.of_bound));
    if (scored && m.baseline_seconds > 0 && median > 0) {
      cells.push_back(fmt::format("{:.2f}", m.baseline_seconds / median));
      cells.push_back(fmt::format("{:.3f}", m.score()));
    } else if (scored) {
      cells.insert(cells.end(), {"", ""});
    }
    cells.push_back(m.verdict.status == KernelStatus::kPassed
                        ? ""
                        : fmt::format("{}: {}", kernel_status_name(m.verdict.status), m.verdict.why));
    table.add(std::move(cells));
  }
  terminal.write(table.text());
}

/// Everything that is asked for, in order.
Result<std::vector<Measured>> plan(const KernelBenchArgs& args, const CpuKernels& table, int threads) {
  const KernelKind* kind = nullptr;
  std::vector<std::string> names;
  for (const KernelKind& k : kernel_kinds()) {
    names.emplace_back(k.name);
    if (k.name == args.kernel) kind = &k;
  }
  if (kind == nullptr)
    return invalid_argument("flag --kernel: there is no \"{}\"; there are: {}; see --kernel help", args.kernel,
                            fmt::join(names, ", "));
  REDLINE_ASSIGN(const auto shapes, parse_shapes(args.shape.empty() ? usual_shape(kind->shape) : args.shape));
  std::string types = args.type;
  if (types.empty() && !kind->type.empty())
    types = args.kernel == "prepare_x"   ? "q8"
            : args.kernel == "attention" ? "f16"
            : args.kernel == "onednn"    ? "bf16,w8a8"
                                         : "q4_0";
  std::vector<int64_t> rows = args.rows;
  if (rows.empty()) rows = {1, 4, 16, 64, 512};
  std::vector<Measured> all;
  for (const std::string& type : parse_names(types))
    for (const auto& shape : shapes)
      for (const int64_t m : rows) {
        Measured one;
        one.asked = {args.kernel, type, m, shape, threads};
        one.isa = origin_of(table, kernel_entry_name(one.asked));
        // A peer takes what the machine has.
        if (args.kernel == "onednn") one.isa = args.isa.empty() ? std::string(cpu_isa_in_use()) : args.isa;
        one.threads = threads;
        one.cached = args.cached;
        one.baseline = args.baseline;
        // Says now what it would say after an hour.
        REDLINE_TRY(make_kernel_case(one.asked, table));
        if (!args.baseline.empty()) REDLINE_TRY(make_kernel_case(baseline_of(one.asked, args.baseline), table));
        all.push_back(std::move(one));
      }
  return all;
}

Status measure(const CpuKernels& table, const KernelBenchOptions& options, Measured& m) {
  REDLINE_ASSIGN(const auto kernel_case, make_kernel_case(m.asked, table));
  m.cost = kernel_case->cost();
  REDLINE_ASSIGN(m.timing, time_kernel(*kernel_case, table, options));
  if (m.baseline.empty()) return {};
  REDLINE_ASSIGN(const auto baseline_case, make_kernel_case(baseline_of(m.asked, m.baseline), table));
  REDLINE_ASSIGN(const KernelTiming baseline, time_kernel(*baseline_case, table, options));
  if (baseline.failure.empty()) m.baseline_seconds = baseline.median();
  return {};
}

}  // namespace

void KernelBenchArgs::visit(OptionList& v) {
  v(kernel, "kernel", "NAME", "benchmark one kernel instead of a model; \"help\" lists them");
  v(rows, "rows", "M,..", "with --kernel: rows of activations", {.min = 1, .shown_default = "1,4,16,64,512"});
  v(shape, "shape", "NxK,..", "with --kernel: sizes, as listed by --kernel help",
    {.shown_default = "8192x2048 for linear kernels"});
  v(type, "type", "TYPE,..", "with --kernel: weight types", {.shown_default = "q4_0; f16 for attention"});
  v(isa, "isa", "SET", "with --kernel: the highest instruction set to use",
    {.shown_default = "REDLINE_CPU_ISA, else all"});
  v(cached, "cached", "", "with --kernel: keep inputs in the caches");
  v(seconds, "seconds", "S", "with --kernel: measuring time per row", {.min = 0.001, .max = 3600});
  v(baseline, "baseline", "NAME", "with --kernel: kernel of the same shape to score against");
  v(record, "record", "FOLDER", "with --kernel: append the results to FOLDER/traces", {.names_file = true});
}

Status run_kernel_bench(const KernelBenchArgs& args, int threads, bool json, Terminal& terminal) {
  if (args.kernel == "help") {
    Table table({"kernel", "--shape", "--type", ""});
    for (const KernelKind& k : kernel_kinds())
      table.add({std::string(k.name), std::string(k.shape), std::string(k.type), std::string(k.summary)});
    terminal.write(table.text());
    return {};
  }
  if (args.kernel == "onednn" && !args.record.empty())
    return invalid_argument("flag --record: records are of our own kernels; leave it out for onednn");
  REDLINE_ASSIGN(const Settings settings, read_settings());
  REDLINE_ASSIGN(const CpuKernels table, cpu_kernels_for(args.isa.empty() ? settings.cpu_isa : args.isa)
                                             .within(args.isa.empty() ? "REDLINE_CPU_ISA" : "flag --isa"));
  if (threads == 0) threads = settings.threads > 0 ? static_cast<int>(settings.threads) : cpu_order().cores;
  REDLINE_ASSIGN(std::vector<Measured> all, plan(args, table, threads));
  // All rows are of one kernel, so one set serves them, but for types without an entry of their own in a richer set.
  REDLINE_ASSIGN(const CpuKernels own, cpu_kernels_for(all.front().isa));
  REDLINE_ASSIGN(Ceilings ceilings, measure_ceilings(own, {.threads = threads}));

  const InterruptGuard guard;
  const KernelBenchOptions options = {.threads = threads, .cached = args.cached, .seconds = double{args.seconds}};
  bool is_too_fast = false;
  {
    Progress progress("bench", static_cast<int64_t>(all.size()));
    for (Measured& m : all) {
      REDLINE_TRY(measure(table, options, m));
      m.bound = kernel_bound(m.cost, ceilings, threads, args.cached);
      m.verdict = audit_kernel(m.timing, m.bound);
      is_too_fast |= m.verdict.status == KernelStatus::kQuarantined;
      progress.advance();
      if (InterruptGuard::interrupted()) return cancelled("interrupted");
    }
  }
  // The ceilings were perhaps taken while the machine was slower.
  for (int again = 0; is_too_fast && again < kMostCeilings; ++again) {
    REDLINE_ASSIGN(const Ceilings others, measure_ceilings(own, {.threads = threads}));
    raise_to(ceilings, others);
    is_too_fast = false;
    for (Measured& m : all) {
      m.bound = kernel_bound(m.cost, ceilings, threads, args.cached);
      m.verdict = audit_kernel(m.timing, m.bound);
      is_too_fast |= m.verdict.status == KernelStatus::kQuarantined;
    }
  }

  int bad = 0;
  Json traces = Json::array();
  for (const Measured& m : all) {
    const Json trace = trace_json(m, ceilings);
    if (!args.record.empty()) REDLINE_TRY(append_trace(args.record, trace));
    bad += m.verdict.status == KernelStatus::kWrong || m.verdict.status == KernelStatus::kQuarantined;
    traces.push_back(trace);
  }
  if (json) REDLINE_TRY(print_json(traces, terminal));
  else print_measured(all, terminal);
  if (bad == 0) return {};
  for (const Measured& m : all)
    if (!m.verdict.why.empty())
      terminal.note("{} of {} rows: {}", kernel_entry_name(m.asked), m.asked.rows, m.verdict.why);
  return internal("{} of {} measurements {} not to be believed", bad, all.size(), bad == 1 ? "is" : "are");
}

}  // namespace redline::cli
