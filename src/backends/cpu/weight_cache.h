// Packed weights kept in a file between runs: mapping it takes milliseconds, packing reads and writes the whole model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/cache_folder.h"
#include "base/worker_team.h"
#include "graph/graph.h"

namespace redline {

struct WeightCacheOptions {
  CacheSettings cache;
  /// Models below this size are not cached: packing them takes less than the file is worth.
  int64_t min_bytes = int64_t{64} << 20;
  std::string kernels;  ///< name of the instruction set in use, which determines the packed order
};

/// A packed weight and its position in the region of all weights.
struct PackedWeight {
  const ValueInfo* value = nullptr;
  int64_t offset = 0, bytes = 0;
};

/// Writes a file while the program runs. The destructor waits until it is done or, after a grace period, aborts it.
class WeightCacheWriter {
 public:
  virtual ~WeightCacheWriter() = default;
  /// Waits for the writer to finish. Returns true if the file exists.
  virtual bool wait() = 0;
};

/// The cache file of one region. Its name is a hash of the model's files (device, inode, size, modification time), the
/// weights' names, types and positions, the instruction set and the format version. A mapped file is validated: its
/// size, the checksum of the table, and one randomly chosen row panel of every weight, compared with the same panel
/// packed from the model. This detects damaged files as well as a changed packing order without a new version.
class WeightCache {
 public:
  WeightCache(WeightCacheOptions options, std::vector<PackedWeight> weights);

  /// Maps the file. True: `region` (its pages up to the last weight) is now a read-only mapping of the file. False: the
  /// region is not to be cached, or there is no complete and valid file for it; an invalid file is removed.
  bool load(void* region, WorkerTeam& team) const;
  /// Starts writing the file; returns null if there is no disk space for it. `region` must outlive the writer.
  std::unique_ptr<WeightCacheWriter> store(const void* region) const;

  bool enabled() const { return enabled_; }
  const std::string& name() const { return name_; }

 private:
  std::string table() const;
  bool check_row_panels(const uint8_t* region, WorkerTeam& team) const;

  WeightCacheOptions options_;
  std::vector<PackedWeight> weights_;
  int64_t bytes_ = 0;  // size of the region
  bool enabled_ = false;
  std::string name_;
};

}  // namespace redline
