#include "machine/peaks_cache.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>

#include "base/cache_folder.h"
#include "base/json_text.h"
#include "base/mapped_file.h"
#include "base/topology.h"
#include "machine/roofline.h"

namespace redline {
namespace {

constexpr int kFormat = 1;
// Reads of kMemoryBytes or more measure the memory, whatever their size (PeakOptions::read_bytes).
constexpr int64_t kMemoryBytes = int64_t{128} << 20, kMinBytes = int64_t{4} << 20;

/// Returns the size under which a read is kept: sizes within a factor of two share an entry. 0 stands for the memory.
int64_t size_class(int64_t read_bytes) {
  if (read_bytes <= 0 || read_bytes >= kMemoryBytes) return 0;
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max(read_bytes, kMinBytes))));
}

std::string cpu_model() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 1));
  return "";
}

int threads_of(int threads) { return threads > 0 ? threads : cpu_order().cores; }

/// Returns a text of everything that a measurement depends on.
std::string machine_key(int threads, int64_t read_bytes) {
  return fmt::format("{}; {} of {} cpus in {} cores; {} threads; {}; reads {}", cpu_model(), cpu_order().cpus.size(),
                     sysconf(_SC_NPROCESSORS_CONF), cpu_order().cores, threads_of(threads), cpu_isa_in_use(),
                     size_class(read_bytes));
}

/// FNV-1a, 64 bits.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return hash;
}

std::string entry_name(const std::string& key) { return fmt::format("ceilings-{:016x}", hash_of(key)); }

PeakOptions quick_options(int threads, int64_t read_bytes) {
  return {.quick = true, .all_sets = true, .threads = threads, .read_bytes = size_class(read_bytes)};
}

std::optional<MachinePeaks> parse(const nlohmann::ordered_json& json, const std::string& key) {
  if (!json.is_object() || json.value("format", 0) != kFormat || json.value("machine", std::string()) != key)
    return std::nullopt;
  MachinePeaks peaks;
  peaks.isa = json.value("isa", std::string());
  peaks.threads = json.value("threads", 0);
  peaks.read_bytes = json.value("read_bytes", int64_t{0});
  const auto rows = json.find("rows");
  if (rows == json.end() || !rows->is_array()) return std::nullopt;
  for (const nlohmann::ordered_json& row : *rows) {
    if (!row.is_object()) return std::nullopt;
    peaks.rows.push_back({row.value("name", std::string()), row.value("isa", std::string()),
                          row.value("instruction", std::string()), row.value("unit", std::string()),
                          row.value("per_thread", 0.0), row.value("all", 0.0), row.value("spread", 0.0)});
  }
  return peaks;
}

}  // namespace

std::optional<MachinePeaks> load_peaks(int threads, int64_t read_bytes) {
  const Result<CacheSettings> cache = read_cache_settings();
  if (!cache.ok() || cache->folder.empty()) return std::nullopt;
  const std::string key = machine_key(threads, read_bytes), path = cache_path(cache->folder, entry_name(key));
  const Result<std::string> text = read_text_file(path, int64_t{1} << 20);
  if (!text.ok()) return std::nullopt;
  try {  // parse() throws if a value has another type than expected
    std::optional<MachinePeaks> peaks = parse(parse_json_or_discard<nlohmann::ordered_json>(*text), key);
    if (const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC); peaks && file >= 0) {
      mark_used(cache->folder, file);
      ::close(file);
    }
    return peaks;
  } catch (const nlohmann::ordered_json::exception&) {
    return std::nullopt;
  }
}

void store_peaks(const MachinePeaks& peaks, const PeakOptions& options) {
  const Result<CacheSettings> cache = read_cache_settings();
  if (!cache.ok() || cache->folder.empty()) return;
  const std::string key = machine_key(options.threads, options.read_bytes);
  nlohmann::ordered_json json = {{"format", kFormat},
                                 {"machine", key},
                                 {"isa", peaks.isa},
                                 {"threads", peaks.threads},
                                 {"read_bytes", peaks.read_bytes},
                                 {"rows", nlohmann::ordered_json::array()}};
  for (const Peak& row : peaks.rows)
    json["rows"].push_back({{"name", row.name},
                            {"isa", row.isa},
                            {"instruction", row.instruction},
                            {"unit", row.unit},
                            {"per_thread", row.per_thread},
                            {"all", row.all},
                            {"spread", row.spread}});
  const std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  std::error_code error;
  std::filesystem::create_directories(cache->folder, error);
  if (!make_cache_room(*cache, static_cast<int64_t>(text.size()))) return;
  Result<CacheWriter> writer = CacheWriter::create(cache->folder, entry_name(key));
  if (writer.ok() && writer->write(text.data(), static_cast<int64_t>(text.size()), 0).ok()) (void)writer->commit().ok();
}

std::optional<MachinePeaks> peaks_of_machine(const CpuKernels& kernels, int threads, int64_t read_bytes) {
  if (std::optional<MachinePeaks> kept = load_peaks(threads, read_bytes)) return kept;
  const Result<CacheSettings> cache = read_cache_settings();
  if (!cache.ok() || cache->folder.empty()) return std::nullopt;
  const PeakOptions options = quick_options(threads, read_bytes);
  Result<MachinePeaks> peaks = measure_peaks(kernels, options);
  if (!peaks.ok()) return std::nullopt;
  store_peaks(*peaks, options);
  return std::move(peaks).value();
}

MachineLimits limits_of_machine(const MachineQuestion& question) {
  const Result<const CpuKernels*> kernels = cpu_kernels();
  if (!kernels.ok()) return {};
  const auto peaks = question.may_measure ? peaks_of_machine(**kernels, question.threads, question.step_bytes)
                                          : load_peaks(question.threads, question.step_bytes);
  return peaks ? Roofline(*peaks, question.exact_f32).limits(question.types) : MachineLimits();
}

void raise_peaks(const CpuKernels& kernels, int threads, int64_t read_bytes, MachinePeaks& peaks) {
  const PeakOptions options = quick_options(threads, read_bytes);
  const Result<MachinePeaks> again = measure_peaks(kernels, options);
  if (!again.ok()) return;
  raise_to(peaks, *again);
  store_peaks(peaks, options);
}

}  // namespace redline
