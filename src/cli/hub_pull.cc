#include "cli/hub_pull.h"

#include <cstdio>

#include "base/progress.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace redline::cli {
namespace {

void note(const std::string& text) {
  Progress::hide_shown();
  std::fputs(fmt::format("redline: {}\n", printable(text)).c_str(), stderr);
}

}  // namespace

Result<PullResult> pull_for_command(const HubName& name, const HubSettings& settings, PullOptions options) {
  const InterruptGuard guard;
  options.is_cancelled = [] { return InterruptGuard::interrupted(); };
  if (!options.on_notice) options.on_notice = note;
  return pull_model(name, settings, options);
}

Result<std::string> find_hub_model(const std::string& text) {
  REDLINE_ASSIGN(const HubName name, parse_hub_name(text));
  REDLINE_ASSIGN(const HubSettings settings, read_hub_settings());
  Result<LocalModel> local = HubCache(settings.cache_folder).find(name);
  if (local.ok()) return std::move(local->path);
  if (settings.is_offline)
    return not_found("model {}, and nothing is fetched because HF_HUB_OFFLINE is set", local.status().message());
  note(fmt::format("{} is not on this machine yet; pulling it from {}", name.text(), settings.endpoint));
  REDLINE_ASSIGN(PullResult pulled, pull_for_command(name, settings, {}));
  note(fmt::format("pulled {}: {} files, {}; redline rm {} removes it", pulled.model.path, pulled.model.files,
                   human_bytes(static_cast<double>(pulled.model.bytes)), name.text()));
  return std::move(pulled.model.path);
}

}  // namespace redline::cli
