// Measures the peak memory of this process, without the buffers of the bench itself.
#pragma once

#include <cstdint>

namespace redline::lab {

class PeakMemory {
 public:
  /// Memory allocated between construction and begin() counts as memory of the bench: buffers for measuring the
  /// machine.
  PeakMemory();
  /// Resets the peak if the system supports it; otherwise the peak counts from the start of the process.
  void begin();
  /// Returns the peak resident bytes without those of the bench.
  int64_t bytes() const;

 private:
  int64_t at_first_ = 0, own_ = 0;
};

}  // namespace redline::lab
