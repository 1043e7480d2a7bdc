#include "base/settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <variant>

#include "base/text_distance.h"

extern char** environ;

namespace redline {
namespace {

struct Row {
  std::string_view name;
  std::variant<std::string Settings::*, int64_t Settings::*, double Settings::*> member;
  double low, high;  // inclusive bounds of a number
  std::string_view help;
};
const Row kRows[] = {
    {"REDLINE_CPU_ISA", &Settings::cpu_isa, 0, 0,
     "instruction set of the CPU kernels, one that `redline devices` lists; empty: the best of this machine"},
    {"REDLINE_DEVICE", &Settings::device, 0, 0,
     "device of models that are opened with device auto: cpu, emu, cuda or cuda:N; empty: the first GPU that works, "
     "else cpu"},
    {"REDLINE_DEVICE_STEPS", &Settings::device_steps, 0, 0,
     "how a GPU runs steps of up to 16 rows of a language model: persistent: in one launch, or the model is refused; "
     "graphs: by a launch for each stage; empty: in one launch where GPU and model allow it"},
    {"REDLINE_DEVICE_CHECK", &Settings::device_check, 0, 1,
     "1: a GPU that computes a small network wrongly is not used; 0: it is used all the same, so that tests can find "
     "the wrong kernel"},
    {"REDLINE_CUDA_LIBS", &Settings::cuda_libs, 0, 0,
     "folder of libcublasLt.so.13, which multiplies large matrices on GPUs; none: Redline's own kernels; empty: where "
     "the loader, the CUDA toolkit or the packages of Python have it"},
    {"REDLINE_CUDA_MODULE", &Settings::cuda_module, 0, 0,
     "file of the kernels for GPUs; empty: redline_cuda.so beside the program, or in ../lib/redline"},
    {"REDLINE_THREADS", &Settings::threads, 0, 1024, "worker threads; 0: one for each core that may be used"},
    {"REDLINE_SPIN_COUNT", &Settings::spin_count, 0, 1e9,
     "how often an idle worker looks for work before it sleeps; 0: never, for a machine that other programs use too"},
    {"REDLINE_HANG_SECONDS", &Settings::hang_seconds, 0, 86400,
     "a step without progress for this long ends with a dump of its events, on GPUs too; 0: never"},
    {"REDLINE_TRACE_EVENTS", &Settings::trace_events, 1, 1 << 28, "records that a timeline (--trace) has room for"},
    {"REDLINE_CACHE_DIR", &Settings::cache_dir, 0, 0,
     "folder that keeps packed weights, so that a model opens faster the next time; empty: redline in the user's cache "
     "folder"},
    {"REDLINE_CACHE_GB", &Settings::cache_gb, 0, 1e6,
     "maximum size of the folder of REDLINE_CACHE_DIR in GB; 0: nothing is kept"},
};

/// Parses all of `text` as a finite number within the row's bounds; false otherwise.
template <class T>
bool parse(std::string_view text, const Row& row, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(static_cast<double>(value)))
    return false;
  return static_cast<double>(value) >= row.low && static_cast<double>(value) <= row.high;
}

Status read_row(const Row& row, std::string_view text, Settings& settings) {
  if (const auto* member = std::get_if<std::string Settings::*>(&row.member)) {
    settings.*(*member) = text;
    return {};
  }
  const auto* integer = std::get_if<int64_t Settings::*>(&row.member);
  if (integer != nullptr ? parse(text, row, settings.*(*integer))
                         : parse(text, row, settings.*std::get<double Settings::*>(row.member)))
    return {};
  return invalid_argument("the environment variable {} is \"{}\"; expected {} from {:.0f} to {:.0f}, or unset",
                          row.name, text, integer != nullptr ? "an integer" : "a number", row.low, row.high);
}

}  // namespace

Result<Settings> read_settings() {
  Settings settings;
  for (const Row& row : kRows) {
    const char* text = std::getenv(row.name.data());
    if (text != nullptr && *text != '\0') REDLINE_TRY(read_row(row, text, settings));
  }
  return settings;
}

std::vector<SettingInfo> list_settings() {
  static constexpr std::string_view kTypes[] = {"text", "integer", "number"};
  const Settings defaults;
  std::vector<SettingInfo> list;
  for (const Row& row : kRows) {
    std::string value = std::visit([&](auto member) { return fmt::format("{}", defaults.*member); }, row.member);
    list.push_back({row.name, kTypes[row.member.index()], std::move(value), row.help});
  }
  return list;
}

std::vector<std::string> warn_unknown_settings() {
  std::vector<std::string_view> names;
  for (const Row& row : kRows) names.push_back(row.name);

  std::vector<std::string> warnings;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("REDLINE_") || std::find(names.begin(), names.end(), name) != names.end()) continue;
    warnings.push_back(fmt::format("the environment variable {} has no effect{}", name, did_you_mean(name, names)));
  }
  return warnings;
}

}  // namespace redline
