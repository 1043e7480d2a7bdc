// redline list: the models that are on this machine.
#include <algorithm>
#include <filesystem>
#include <set>

#include "base/utc_time.h"
#include "cli/command.h"
#include "cli/file_kind.h"
#include "cli/json.h"
#include "cli/model_name.h"
#include "cli/table.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"

namespace redline::cli {
namespace {

namespace fs = std::filesystem;

struct ListArgs {
  bool json = false;
  void visit(OptionList& v) { v(json, "json", "", "print JSON"); }
};

struct ListRow {
  std::string name, kind, path, commit;
  int64_t bytes = 0, modified = 0;
};

/// Returns the row of a model in one of the folders in which bare names are looked up.
ListRow local_row(const std::string& path, FileKind kind) {
  ListRow row{.name = short_name(path), .kind = std::string(file_kind_name(kind)), .path = path, .commit = {}};
  std::error_code error;
  const auto take = [&](const fs::path& file) {
    const auto bytes = fs::file_size(file, error);
    if (error) return;
    row.bytes += static_cast<int64_t>(bytes);
    const auto age = fs::file_time_type::clock::now() - fs::last_write_time(file, error);
    const int64_t written = unix_time() - std::chrono::duration_cast<std::chrono::seconds>(age).count();
    if (!error) row.modified = std::max(row.modified, written);
  };
  if (!fs::is_directory(path, error)) take(path);
  else
    for (fs::recursive_directory_iterator at(path, error), end; !error && at != end; at.increment(error))
      if (at->is_regular_file(error)) take(at->path());
  return row;
}

std::vector<ListRow> all_rows(const HubCache& cache) {
  const std::vector<LocalModel> models = cache.list();
  std::vector<ListRow> rows;
  rows.reserve(models.size());
  for (const LocalModel& model : models)
    rows.push_back({model.name.text(), std::string(hub_kind_name(model.kind)), model.path, model.commit, model.bytes,
                    model.modified});
  std::set<std::string> seen;
  for (const std::string& path : bundled_models()) {
    const Result<FileKind> kind = detect_file_kind(path);
    if (kind.ok() && seen.insert(short_name(path)).second) rows.push_back(local_row(path, *kind));
  }
  return rows;
}

Status run_list(const ListArgs& args, Terminal& terminal) {
  REDLINE_ASSIGN(const HubSettings settings, read_hub_settings());
  const std::vector<ListRow> rows = all_rows(HubCache(settings.cache_folder));
  if (args.json) {
    Json json = {{"folder", settings.cache_folder}, {"models", Json::array()}};
    for (const ListRow& row : rows)
      json["models"].push_back({{"model", row.name},
                                {"kind", row.kind},
                                {"path", row.path},
                                {"commit", row.commit},
                                {"bytes", row.bytes},
                                {"modified", utc_text(row.modified)}});
    return print_json(json, terminal);
  }
  if (rows.empty()) {
    terminal.print("no models in {}; redline pull hf:owner/name fetches one\n", settings.cache_folder);
    return {};
  }
  constexpr size_t kDate = 10;  // length of the date in "2026-11-23T03:11:44Z"
  Table table({"MODEL", "kind", "size", "modified"}, {2});
  for (const ListRow& row : rows)
    table.add(
        {row.name, row.kind, human_bytes(static_cast<double>(row.bytes)), utc_text(row.modified).substr(0, kDate)});
  terminal.write(table.text());
  return {};
}

}  // namespace

Command list_command() {
  return make_command<ListArgs, run_list>("list", "list the models on this machine",
                                          "Models in the cache of Hugging Face, which Redline shares with "
                                          "huggingface_hub, and bundled ones. The first column is "
                                          "what other commands take as MODEL.",
                                          {"redline list", "redline list --json"})
      .in("models", /*after_name=*/"pull");
}

}  // namespace redline::cli
