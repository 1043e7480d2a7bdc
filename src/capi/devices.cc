// The library's version, the machine, and runtimes.
#include <unistd.h>

#include <fstream>

#include "base/available_memory.h"
#include "base/topology.h"
#include "capi/handles.h"
#include "capi/json.h"
#include "kernels/cpu/cpu_kernels.h"

namespace redline::capi {
namespace {

#define REDLINE_TEXT_(number) #number
#define REDLINE_TEXT(number) REDLINE_TEXT_(number)
constexpr const char* kVersion =
    REDLINE_TEXT(REDLINE_VERSION_MAJOR) "." REDLINE_TEXT(REDLINE_VERSION_MINOR) "." REDLINE_TEXT(REDLINE_VERSION_PATCH);

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string row; std::getline(file, row);) {
    const size_t colon = row.find(": ");
    if (row.starts_with("model name") && colon != std::string::npos) return row.substr(colon + 2);
  }
  return "";
}

Json cpu_json() {
  Json json;
  json["name"] = "cpu";
  json["description"] = cpu_name();
  json["cores"] = allowed_cpus().size();
  json["isas"] = Json::array();
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  for (int i = 0; i < count; ++i)
    if (isas[i].supported()) json["isas"].push_back(isas[i].name);
  json["isa"] = cpu_isa_in_use();
  json["memory_bytes"] = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  json["memory_available_bytes"] = available_memory();
  json["caches"] = Json::object();
  for (const auto& [name, bytes] : cache_sizes().named()) json["caches"][name] = bytes;
  return json;
}

redline_runtime_options default_runtime_options() { return {.struct_size = sizeof(redline_runtime_options)}; }

}  // namespace
}  // namespace redline::capi

using namespace redline;
using namespace redline::capi;

const char* redline_version() { return kVersion; }
int32_t redline_version_number() { return REDLINE_VERSION_NUMBER; }

redline_code redline_devices(char** json, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(json, "json"));
    *json = nullptr;
    REDLINE_TRY(cpu_kernels());  // returns an error if REDLINE_CPU_ISA names a set that this machine cannot run
    Json machine;
    machine["devices"].push_back(cpu_json());
    return give_json(machine, json);
  });
}

void redline_runtime_options_init(redline_runtime_options* options, size_t struct_size) {
  init_struct(options, struct_size, default_runtime_options());
}

redline_code redline_runtime_open(const redline_runtime_options* options, redline_runtime** runtime,
                                  redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(runtime, "runtime"));
    *runtime = nullptr;
    REDLINE_ASSIGN(const redline_runtime_options o,
                   read_struct(options, default_runtime_options(), "redline_runtime_options"));
    REDLINE_ASSIGN(std::shared_ptr<Runtime> opened,
                   Runtime::open({.threads = o.threads, .trace_file = text_or_empty(o.trace_file)}));
    *runtime = new redline_runtime(std::move(opened));
    return {};
  });
}
redline_runtime* redline_runtime_retain(redline_runtime* runtime) { return retain(runtime); }
void redline_runtime_release(redline_runtime* runtime) { release(runtime); }
int32_t redline_runtime_threads(const redline_runtime* runtime) {
  return runtime != nullptr ? runtime->shared->threads() : 0;
}
