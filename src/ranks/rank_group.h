// Ranks that compute one model together, and the exchange of data between them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace redline {

/// One operation of a program by which ranks exchange data, such as the sum after a layer, with its rounds from step to
/// step. A round has three phases: every rank arrives with its part; all ranks read all parts; every rank leaves, after
/// which the parts may be overwritten. Phases may run on different threads, one after the other.
class RankExchange {
 public:
  virtual ~RankExchange() = default;
  /// Begins a round with this rank's part, `bytes` at `data`, which must stay as it is until leave() returns. Does not
  /// wait.
  virtual void arrive(const void* data, int64_t bytes) = 0;
  /// Waits until all ranks have arrived. Returns their parts in the order of ranks; empty: the group has failed. May be
  /// called by several threads.
  virtual std::span<const void* const> parts() = 0;
  /// Ends the round: waits until all ranks have left, or the group has failed and no rank reads a part.
  virtual void leave() = 0;
};

/// The ranks of a group, as one of them sees it. All ranks call the same operations in the same order. A rank that
/// cannot take part calls fail(), and then no rank waits for it. Thread-safe.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns the exchange of this name, the same one in every call. It lives as long as the group.
  virtual RankExchange& exchange(const std::string& name) = 0;
  /// Notes the resources on which this rank runs steps, which hold a lock meanwhile. invalid_argument: another rank has
  /// them, and would wait for that lock while this rank waits for it.
  virtual Status claim(const void* resources) = 0;
  /// Makes every operation of every rank fail from now on; the first status is kept.
  virtual void fail(Status status) = 0;
  /// Returns the first failure of any rank, or success.
  virtual Status status() const = 0;

  /// Waits until all ranks have called it.
  Status barrier();
  /// Sets `values` on every rank to the sum over all ranks. Each sum is taken in the order of ranks, in the type
  /// itself: ((v0 + v1) + v2) + ..., so that all ranks get the same bits, whatever the number of threads.
  Status all_reduce(std::span<float> values) { return all_reduce_of(values); }
  Status all_reduce(std::span<double> values) { return all_reduce_of(values); }
  /// Sets `all` to the bytes of all ranks, in the order of ranks. `all` is size() times as long as `mine`.
  Status all_gather(std::span<const uint8_t> mine, std::span<uint8_t> all);

 private:
  template <class T>
  Status all_reduce_of(std::span<T> values);
};

struct ThreadRanksOptions {
  /// A rank that waits for another one for so long makes the group fail, with a message that names the ranks that are
  /// missing.
  double timeout_seconds = 30;
};

/// Returns the views of a group of `size` ranks that are threads of this process and read each other's memory. They
/// live as long as one of them. invalid_argument: size is outside [1, 64].
Result<std::vector<std::shared_ptr<RankGroup>>> make_thread_ranks(int size, const ThreadRanksOptions& options = {});

}  // namespace redline
