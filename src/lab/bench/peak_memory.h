// Peak memory of this process, without the buffers of the bench itself.
#pragma once

#include <cstdint>

namespace redline::lab {

class PeakMemory {
 public:
  /// Memory allocated between construction and begin() belongs to the bench: buffers for measuring the machine.
  PeakMemory();
  /// Resets the peak where the system supports it; otherwise the peak counts from the start of the process.
  void begin();
  /// Peak resident bytes, excluding those of the bench.
  int64_t bytes() const;

 private:
  int64_t at_first_ = 0, own_ = 0;
};

}  // namespace redline::lab
