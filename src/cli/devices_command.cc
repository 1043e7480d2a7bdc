// redline devices: this machine's instruction sets, measured peaks and settings.
#include <sched.h>

#include <algorithm>
#include <fstream>

#include "base/environment.h"
#include "base/progress.h"
#include "base/settings.h"
#include "base/topology.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/table.h"
#include "kernels/cpu/linear/linear_choice.h"
#include "kernels/cpu/linear/linear_record.h"
#include "machine/machine_json.h"
#include "machine/peaks_cache.h"
#include "redline/text.h"

namespace redline::cli {
namespace {

struct DevicesArgs {
  bool kernels = false, json = false;
  void visit(OptionList& v) {
    v(kernels, "kernels", "", "list which instruction set each kernel uses, without measuring");
    v(json, "json", "", "print JSON");
  }
};

/// Returns the value after "KEY :" in a text file of the operating system's kernel; "": not found.
std::string value_in(const char* file, std::string_view key) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (colon != std::string::npos && begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

int64_t kilobytes_in(const char* file, std::string_view key) {
  const std::string text = value_in(file, key);
  return std::atoll(text.c_str()) * 1024;
}

int allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

/// Returns a text such as "q8; tiles from 8 rows on".
std::string forms_text(const ActivationLayouts& forms) {
  std::string text = activation_layout_name(forms.at[0].layout);
  for (int i = 1; i < forms.count; ++i)
    text += fmt::format("; {} from {} rows on", activation_layout_name(forms.at[i].layout), forms.at[i].min_rows);
  return text;
}

/// Weight types that linear ops support, with the kernels that serve them.
struct LinearChoice {
  std::string type;
  ActivationLayouts layouts;
  const char* by;
};
std::vector<LinearChoice> linear_choices(const CpuKernels& table) {
  std::vector<LinearChoice> choices;
  for (int t = 0; t < kNumDTypes; ++t) {
    const auto type = static_cast<DType>(t);
    const LinearKernels kernels = choose_linear(table, type, false);
    if (kernels.run[0] != nullptr)
      choices.push_back({std::string(dtype_info(type).name), kernels.layouts,
                         is_linear_choice_recorded(table, type) ? "record" : "default"});
  }
  return choices;
}

Status print_kernels(const CpuKernels& table, bool json, Terminal& terminal) {
  if (json) {
    Json kernels = Json::object();
    for (const KernelOrigin& o : kernel_origins(table)) kernels[o.kernel] = o.isa;
    Json linear = Json::object();
    for (const LinearChoice& c : linear_choices(table)) {
      Json ranges = Json::array();
      for (int i = 0; i < c.layouts.count; ++i)
        ranges.push_back(
            {{"from_rows", c.layouts.at[i].min_rows}, {"form", activation_layout_name(c.layouts.at[i].layout)}});
      linear[c.type] = {{"ranges", std::move(ranges)}, {"by", c.by}};
    }
    return print_json(
        {{"isa_in_use", cpu_isa_in_use()}, {"kernels", std::move(kernels)}, {"linear", std::move(linear)}}, terminal);
  }
  Table rows({"kernel", "served by"});
  for (const KernelOrigin& o : kernel_origins(table)) rows.add({o.kernel, o.isa});
  terminal.write(rows.text());
  Table choices({"products by", "activations as", "chosen by"});
  for (const LinearChoice& c : linear_choices(table)) choices.add({c.type, forms_text(c.layouts), c.by});
  terminal.print("\n{}", choices.text());
  return {};
}

Json machine_json(const MachinePeaks& peaks, const MachineState& state) {
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  Json json = {{"cpu", value_in("/proc/cpuinfo", "model name")},
               {"cores_allowed", allowed_cores()},
               {"isas", Json::array()},
               {"isa_in_use", cpu_isa_in_use()},
               {"caches", Json::object()},
               {"memory_bytes", kilobytes_in("/proc/meminfo", "MemTotal")},
               {"memory_available_bytes", kilobytes_in("/proc/meminfo", "MemAvailable")},
               {"ceilings", peaks_json(peaks)},
               {"state", state_json(state)},
               {"devices", Json::array()},
               {"settings", Json::array()}};
  for (const DeviceInfo& d : list_devices())
    json["devices"].push_back({{"name", d.name},
                               {"available", d.is_available},
                               {"description", d.description},
                               {"reason", d.reason},
                               {"steps", d.steps},
                               {"free_bytes", d.free_bytes},
                               {"library", d.library}});
  for (int i = 0; i < count; ++i) json["isas"].push_back({{"name", isas[i].name}, {"supported", isas[i].supported()}});
  for (const auto& [name, bytes] : cache_sizes().named()) json["caches"][name] = bytes;
  for (const SettingInfo& s : list_settings())
    json["settings"].push_back({{"name", s.name},
                                {"value", environment_variable(std::string(s.name).c_str())},
                                {"default", s.default_value},
                                {"help", s.help}});
  return json;
}

std::string state_text(const MachineState& state) {
  std::string text = fmt::format("reads {:.1f} GB/s, f32 {:.0f} GOP/s", state.read_gb_s, state.f32_gop_s);
  if (state.ping_pong_ns > 0) text += fmt::format(", {:.0f} ns between cores", state.ping_pong_ns);
  return text + " (a sample of 20 ms; the speed of shared and virtual machines changes within seconds)";
}

void print_machine(const MachinePeaks& peaks, const MachineState& state, Terminal& terminal) {
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  std::vector<std::string> supported, missing, cache_texts;
  for (int i = 0; i < count; ++i) (isas[i].supported() ? supported : missing).push_back(isas[i].name);
  for (const auto& [name, bytes] : cache_sizes().named())
    cache_texts.push_back(fmt::format("{} {} KiB", name, bytes / 1024));

  Table facts({""});
  facts.add({"cpu", fmt::format("{}, {} core{} allowed", value_in("/proc/cpuinfo", "model name"), allowed_cores(),
                                allowed_cores() == 1 ? "" : "s")});
  facts.add(
      {"instructions",
       fmt::format("{}{}; in use: {}", fmt::join(supported, ", "),
                   missing.empty() ? "" : fmt::format(" (not here: {})", fmt::join(missing, ", ")), cpu_isa_in_use())});
  if (!cache_texts.empty()) facts.add({"caches", fmt::format("{}", fmt::join(cache_texts, ", "))});
  facts.add({"memory", fmt::format("{}, {} available",
                                   human_bytes(static_cast<double>(kilobytes_in("/proc/meminfo", "MemTotal"))),
                                   human_bytes(static_cast<double>(kilobytes_in("/proc/meminfo", "MemAvailable"))))});
  terminal.write(facts.text());

  Table devices({"device", "", "steps"});
  for (const DeviceInfo& d : list_devices()) {
    std::string text = d.is_available ? d.description : "not available: " + d.reason;
    if (d.free_bytes > 0) {
      text += fmt::format(", {} free, ", human_bytes(static_cast<double>(d.free_bytes)));
      text += d.library.empty() ? "no cuBLASLt 13 (REDLINE_CUDA_LIBS)" : d.library;
    }
    devices.add({d.name, text, d.steps});
  }
  terminal.print("\n{}", devices.text());

  Table rows({"ceiling", "by", "one thread", fmt::format("{} threads", peaks.threads), "", "spread"}, {2, 3, 5});
  for (const Peak& c : peaks.rows)
    rows.add({c.name, c.instruction.empty() ? c.isa : fmt::format("{} ({})", c.instruction, c.isa),
              fmt::format("{:.1f}", c.per_thread), fmt::format("{:.1f}", c.all), c.unit,
              fmt::format("{:.0f}%", 100 * c.spread)});
  terminal.print("\n{}", rows.text());
  if (peaks.ping_pong_ns > 0)
    terminal.print(
        "  between cores: {:.0f} ns for a cache line one way (worst pair {:.0f}), {:.1f} us to wake a sleeping "
        "thread\n",
        peaks.ping_pong_ns, peaks.ping_pong_worst_ns, peaks.wake_up_us);
  terminal.print("  now: {}\n", state_text(state));

  Table settings({"setting", "value", "default", "meaning"});
  for (const SettingInfo& s : list_settings())
    settings.add(
        {std::string(s.name), environment_variable(std::string(s.name).c_str()), s.default_value, std::string(s.help)});
  terminal.print("\n{}", settings.text());
}

Status run_devices(const DevicesArgs& args, Terminal& terminal) {
  REDLINE_TRY(read_settings());
  REDLINE_ASSIGN(const CpuKernels* table, cpu_kernels());
  if (args.kernels) return print_kernels(*table, args.json, terminal);
  const PeakOptions options = {.all_sets = true};
  const Progress measuring("measuring the machine", 0);
  REDLINE_ASSIGN(const MachinePeaks peaks, measure_peaks(*table, options));
  store_peaks(peaks, options);
  REDLINE_ASSIGN(MachineSampler sampler, MachineSampler::make(*table, peaks.threads));
  REDLINE_ASSIGN(const MachineState state, sampler.sample());
  if (args.json) return print_json(machine_json(peaks, state), terminal);
  print_machine(peaks, state, terminal);
  return {};
}

}  // namespace

Command devices_command() {
  return make_command<DevicesArgs, run_devices>(
             "devices", "show this machine, its ceilings and the settings",
             "Ceilings are measured: reading and copying memory, reading half of each core's L2 cache, and "
             "multiply-adds in "
             "registers, for every instruction set of this machine up to REDLINE_CPU_ISA. Each figure is the best of "
             "several "
             "short runs, on one thread and on all. A multiply-add counts as two operations. Spread is the distance of "
             "the "
             "median run from the best.",
             {"redline devices", "redline devices --kernels", "REDLINE_CPU_ISA=avx2 redline devices --kernels"})
      .in("measure", /*after_name=*/"compare");
}

}  // namespace redline::cli
