// The most memory that this process held, without what only measuring it takes.
#pragma once

#include <cstdint>

namespace redline::lab {

class PeakMemory {
 public:
  /// What is taken between here and begin() is the bench's own: buffers that the machine is measured with.
  PeakMemory();
  /// The peak counts from here on, where the system lets a process say so; else from its start.
  void begin();
  /// Resident bytes at the peak, without the bench's own.
  int64_t bytes() const;

 private:
  int64_t at_first_ = 0, own_ = 0;
};

}  // namespace redline::lab
