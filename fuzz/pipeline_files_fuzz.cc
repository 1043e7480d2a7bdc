// Reads any bytes as the settings files of a diffusers folder, separated by zero bytes: model_index.json, redline.json
// and scheduler/scheduler_config.json.
#include "diffusion/pipeline_files.h"
#include "fuzz_file.h"

using namespace redline;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static FuzzFolder folder;
  std::filesystem::create_directories(folder.path() + "/scheduler");
  std::string_view text = fuzz_text(data, size);
  for (const char* name : {"model_index.json", "redline.json", "scheduler/scheduler_config.json"}) {
    const size_t cut = std::min(text.find('\0'), text.size());
    folder.write(name, text.substr(0, cut));
    text.remove_prefix(std::min(cut + 1, text.size()));
  }
  const auto files = PipelineFiles::open(folder.path());
  if (!files.ok()) {
    require(!files.status().message().empty());
    return 0;
  }
  require(files->find("scheduler") != nullptr && files->scheduler_config.is_object());
  require(files->defaults.step_cache.find('/') == std::string::npos);
  for (const PipelineComponent& component : files->components) {
    // The name of a component must not lead out of this folder. Opening a component may fail with a message.
    require(component.name.find('/') == std::string::npos && component.name.find("..") == std::string::npos);
    const auto opened = files->open_component(component.name);
    require(opened.ok() || !opened.status().message().empty());
  }
  return 0;
}
