// Downloads one file of the Hub to its place in the cache.
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
  HubFile file;  ///< the file, with size and etag
  /// called with the number of received bytes; negative if a transfer restarts
  std::function<void(int64_t bytes)> on_bytes;
  std::function<void(const std::string&)> on_notice;
};

/// Returns the bytes of a file that are in the cache: all of them, those of an unfinished transfer, or 0.
int64_t bytes_in_cache(const HubCache& cache, const std::string& repository, const HubFile& file);

/// Downloads a file. Returns when it is in the cache, downloaded by this process or by another one.
/// io: a failure of the network or the disk, or a size or checksum that differs from the Hub's. cancelled.
Status download_blob(const BlobDownload& download, HubHttp& http);

}  // namespace redline
