// redline cache: shows or clears the cache of packed weights.
#include <filesystem>

#include "base/cache_folder.h"
#include "cli/command.h"
#include "cli/json.h"
#include "cli/table.h"

namespace redline::cli {
namespace {

struct CacheArgs {
  bool clear = false, json = false;
  void visit(OptionList& v) {
    v(clear, "clear", "", "remove all files");
    v(json, "json", "", "print JSON");
  }
};

Status run_cache(const CacheArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const CacheSettings cache, read_cache_settings());
  const int64_t freed = args.clear && !cache.folder.empty() ? clear_cache(cache.folder) : 0;
  const std::vector<CacheFile> files = cache.folder.empty() ? std::vector<CacheFile>() : list_cache(cache.folder);
  int64_t bytes = 0;
  for (const CacheFile& file : files) bytes += file.bytes;
  if (args.json) {
    Json json = {{"folder", cache.folder},
                 {"max_bytes", cache.max_bytes},
                 {"bytes", bytes},
                 {"freed_bytes", freed},
                 {"files", Json::array()}};
    for (const CacheFile& file : files) json["files"].push_back({{"path", file.path}, {"bytes", file.bytes}});
    return print_json(json, terminal);
  }
  if (cache.folder.empty()) {
    terminal.print("nothing is kept: REDLINE_CACHE_GB is 0, or there is no home folder\n");
    return {};
  }
  if (args.clear) terminal.print("{:.2f} GB removed\n", static_cast<double>(freed) / 1e9);
  Table table({"file, most recently used first", "MB"}, {1});
  for (auto file = files.rbegin(); file != files.rend(); ++file)
    table.add({printable(std::filesystem::path(file->path).filename().string()),
               fmt::format("{:.0f}", static_cast<double>(file->bytes) / 1e6)});
  if (!files.empty()) terminal.write(table.text());
  terminal.print("{}: {:.2f} of {:.2f} GB\n", printable(cache.folder), static_cast<double>(bytes) / 1e9,
                 static_cast<double>(cache.max_bytes) / 1e9);
  return {};
}

}  // namespace

Command cache_command() {
  return make_command<CacheArgs, run_cache>(
             "cache", "show or clear the cache of packed weights",
             "When a model is first opened, its weights are packed into the layout that the kernels read and stored in "
             "REDLINE_CACHE_DIR (default: redline in the user's cache folder), so that later runs only map them. "
             "REDLINE_CACHE_GB limits the size of the folder; the least recently used files are removed first, and 0 "
             "disables "
             "the cache. Clearing it does not affect running programs.",
             {"redline cache", "redline cache --clear",
              "REDLINE_CACHE_GB=0 redline run model.gguf \"Once upon a time\""})
      .in("prepare", /*after_name=*/"calibrate");
}

}  // namespace redline::cli
