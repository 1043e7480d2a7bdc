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
  int64_t least_bytes = int64_t{64} << 20;  ///< less is packed faster than it is worth a file
  std::string kernels;                      ///< whose order the weights have: the instruction set in use
};

/// One packed weight and its place in the region that holds them all.
struct PackedWeight {
  const ValueInfo* value = nullptr;
  int64_t offset = 0, bytes = 0;
};

/// Writes a file beside the running program. Goes only when it is done or, after a moment of grace, has given up.
class WeightCacheWriter {
 public:
  virtual ~WeightCacheWriter() = default;
  /// Waits for the end; whether the file is there.
  virtual bool wait() = 0;
};

/// The file of one region. Its name hashes the model's files (device, inode, size, time of change), the weights' names,
/// types and places, the instruction set and the version of the format. What is mapped is checked: size, checksum of
/// the table, and of every weight one strip, drawn anew each time, against the same strip packed from the model. So a
/// change of the order of packing that nobody announced is found as well as a damaged file.
class WeightCache {
 public:
  WeightCache(WeightCacheOptions options, std::vector<PackedWeight> weights);

  /// False: this region is not to be cached, or there is no file for it that is whole and true; one that fails the
  /// check is removed. True: `region` (its pages up to the last weight) is now the file, read-only.
  bool load(void* region, WorkerTeam& team) const;
  /// Begins to write the file; null when there is no room for it. `region` outlives the writer.
  std::unique_ptr<WeightCacheWriter> store(const void* region) const;

  bool enabled() const { return enabled_; }
  const std::string& name() const { return name_; }

 private:
  std::string table() const;
  bool check_strips(const uint8_t* region, WorkerTeam& team) const;

  WeightCacheOptions options_;
  std::vector<PackedWeight> weights_;
  int64_t bytes_ = 0;  // of the region
  bool enabled_ = false;
  std::string name_;
};

}  // namespace redline
