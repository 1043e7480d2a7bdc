// Fetches models from the Hub into the cache.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/hub_cache.h"
#include "hub/hub_settings.h"

namespace redline {

struct PullOptions {
  int jobs = 4;             ///< files that are fetched at the same time
  bool is_dry_run = false;  ///< only looks up the files
  /// Polled; returning true ends the pull. Fetched data is kept for the next pull.
  std::function<bool()> is_cancelled;
  /// Called by any thread, one at a time, with a sentence about the progress.
  std::function<void(const std::string&)> on_notice;
};

struct PullResult {
  LocalModel model;
  std::vector<HubFile> files;  ///< files of the model
  int64_t fetched_bytes = 0;   ///< bytes that the Hub has sent
  int64_t missing_bytes = 0;   ///< bytes that were missing before the pull
};

/// Asks the Hub for the commit of the revision and fetches the files of the model that are not in the cache, each
/// checked by size and checksum. Broken transfers are resumed, in this call and in the next. The model appears in the
/// cache when all of its files are there. Several processes may pull the same model. A progress bar is on standard
/// error. not_found: no such repository, revision, file or quantization. unsupported: no weights in a format that
/// Redline reads. io: the network, access, a full disk, or files that differ from the Hub's description. cancelled: by
/// is_cancelled.
Result<PullResult> pull_model(const HubName& name, const HubSettings& settings, const PullOptions& options);

}  // namespace redline
