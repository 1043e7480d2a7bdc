// A redline_cuda.so whose GPU is the emulated device: with fake_cuda_driver.c, everything between `--device cuda` and
// the kernels runs as with a GPU. FAKE_GPU has words that say how it fails:
//
//   error=TEXT        it does not open
//   other_build       its table is another one
//   memory=MIB        what the GPU has
//   no_cooperative    persistent steps are not launched
//   wrong             results are wrong
//   lost=N            after N steps, every call gives an error, as after an illegal address
//   hang=N            after N persistent steps, the next one hangs
//   lost_copy=N       after N steps, weights of a launch do not arrive
//   library           it multiplies, if libcublasLt.so.13 is in one of the folders
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <string>

#include "kernels/emu/emulated_device.h"

namespace redline::tiles {
namespace {

std::string word(const std::string& name) {
  const char* text = std::getenv("FAKE_GPU");
  std::istringstream words(text != nullptr ? text : "");
  for (std::string each; std::getline(words, each, ',');)
    if (each == name || each.starts_with(name + "=")) return each.substr(std::min(each.size(), name.size() + 1)) + " ";
  return "";
}
bool has(const std::string& name) { return !word(name).empty(); }
/// -1: not given.
int64_t number(const std::string& name) { return has(name) ? std::atoll(word(name).c_str()) : -1; }

TileDevice g_emulated;  // its own functions
TileDevice* g_table = nullptr;
int64_t g_steps = 0;
std::string g_library;

bool is_lost() { return number("lost") >= 0 && g_steps > number("lost"); }

int32_t launch(void* self, const ProgramTables* program, int32_t stage, KernelId kernel, int32_t blocks) {
  if (is_lost()) return 1;
  if (number("lost_copy") >= 0)
    emu::set_machine_options(*g_table,
                             {.fault = g_steps >= number("lost_copy") ? emu::Fault::kLostCopy : emu::Fault::kNone});
  return g_emulated.launch(self, program, stage, kernel, blocks);
}
int32_t run_program(void* self, const ProgramTables* program, int32_t blocks) {
  if (is_lost()) return 1;
  if (number("hang") >= 0)
    emu::set_machine_options(*g_table,
                             {.fault = g_steps == number("hang") ? emu::Fault::kLostNotify : emu::Fault::kNone});
  return g_emulated.run_program(self, program, blocks);
}
int32_t download(void* self, void* to, const void* from, int64_t bytes) {
  if (is_lost()) return 1;
  const int32_t result = g_emulated.download(self, to, from, bytes);
  if (has("wrong") && bytes > 64) static_cast<float*>(to)[bytes / 8] += 100;
  return result;
}
int32_t synchronize(void* self, uint64_t limit_ns) {
  ++g_steps;
  return is_lost() ? 1 : g_emulated.synchronize(self, limit_ns);
}
const char* last_error(void* self) {
  return is_lost() ? "cuda/sm90: step: an illegal memory access was encountered" : g_emulated.last_error(self);
}

}  // namespace
}  // namespace redline::tiles

extern "C" __attribute__((visibility("default"))) int32_t redline_open_cuda(int32_t abi, int32_t, const char* libraries,
                                                                            redline::tiles::TileDevice** device,
                                                                            char* error, int32_t error_bytes) {
  using namespace redline;
  using namespace redline::tiles;
  const auto fails = [&](const std::string& why) {
    std::snprintf(error, static_cast<size_t>(error_bytes), "%s", why.c_str());
    return 1;
  };
  if (has("other_build") || abi != kTileDeviceAbi) return fails("redline_cuda.so is of another build");
  if (has("error")) return fails(word("error"));
  emu::EmulatedDeviceOptions options;
  options.memory_bytes = std::max<int64_t>(0, number("memory")) << 20;
  options.persistent_blocks = has("no_cooperative") ? 0 : -1;
  options.has_library = has("library");
  g_table = emu::open_emulated_device(options);
  g_emulated = *g_table;
  g_table->name = "cuda/sm90";
  g_table->launch = launch;
  g_table->run_program = run_program;
  g_table->download = download;
  g_table->synchronize = synchronize;
  g_table->last_error = last_error;
  if (options.has_library) {
    g_table->library = nullptr;
    std::istringstream folders(libraries);
    for (std::string folder; std::getline(folders, folder, ':');)
      if (!folder.empty() && std::filesystem::exists(folder + "/libcublasLt.so.13"))
        g_library = "cuBLASLt of " + folder, g_table->library = g_library.c_str();
  }
  *device = g_table;
  return 0;
}
