// redline rm: removes models that were fetched from the Hub.
#include <filesystem>

#include "cli/command.h"
#include "cli/json.h"
#include "cli/table.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"

namespace redline::cli {
namespace {

struct RmArgs {
  std::vector<std::string> models;
  bool json = false;
  void visit(OptionList& v) {
    v.argument(
        models, "MODEL",
        "hf:owner/name for all files of a repository, or with :FILE or :QUANTIZATION as `redline list` prints it");
    v(json, "json", "", "print JSON");
  }
};

Status run_rm(const RmArgs& args, Terminal& terminal) {
  std::vector<HubName> names;
  names.reserve(args.models.size());
  for (const std::string& model : args.models) {
    std::error_code error;
    if (!is_hub_name(model) && std::filesystem::exists(model, error))
      return invalid_argument("{}: is not a model of the Hugging Face cache; remove it as any other file", model);
    REDLINE_ASSIGN(names.emplace_back(), parse_hub_name(is_hub_name(model) ? model : "hf:" + model));
  }
  REDLINE_ASSIGN(const HubSettings settings, read_hub_settings());
  const HubCache cache(settings.cache_folder);
  int64_t freed = 0;
  Json removed = Json::array();
  for (const HubName& name : names) {
    REDLINE_ASSIGN(const int64_t bytes, cache.remove(name));
    freed += bytes;
    removed.push_back(name.text());
    if (!args.json) terminal.print("{}: removed, {}\n", name.text(), human_bytes(static_cast<double>(bytes)));
  }
  return args.json ? print_json({{"removed", removed}, {"freed_bytes", freed}}, terminal) : Status();
}

}  // namespace

Command rm_command() {
  return make_command<RmArgs, run_rm>(
             "rm", "remove models that were fetched",
             "The cache is shared with huggingface_hub, so other programs have to fetch a removed model again too. "
             "Running programs that use the model are not affected. Models in files and folders outside the cache are "
             "not removed.",
             {"redline rm hf:Qwen/Qwen3-0.6B", "redline rm hf:ggml-org/gemma-3-270m-it-GGUF:Q8_0"})
      .in("models", /*after_name=*/"show");
}

}  // namespace redline::cli
