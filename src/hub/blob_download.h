// One file of the Hub, fetched into its place in the cache.
#pragma once

#include <functional>
#include <string>

#include "hub/hub_cache.h"
#include "hub/hub_http.h"

namespace redline {

struct BlobDownload {
  const HubCache& cache;
  const HubSettings& settings;
  std::string repository, commit;
  HubFile file;                                 ///< with its size and etag
  std::function<void(int64_t bytes)> on_bytes;  ///< received; negative when a transfer restarts
  std::function<void(const std::string&)> on_notice;
};

/// Bytes of a file that are in the cache: all, those of an unfinished transfer, or 0.
int64_t bytes_in_cache(const HubCache& cache, const std::string& repository, const HubFile& file);

/// Returns when the file is in the cache, fetched by this process or by another one.
/// io: the network, the disk, a size or a checksum that is not what the Hub says. cancelled.
Status download_blob(const BlobDownload& download, HubHttp& http);

}  // namespace redline
