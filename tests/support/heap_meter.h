// How much heap a piece of code needs at its worst: tests of memory bounds.
#pragma once

#include <cstdint>

namespace redline {

/// Counts what operator new hands out in this program. Needs heap_meter_new.cc's replacement of operator new: include
/// "support/heap_meter_new.h" in exactly one source of the test program.
class HeapMeter {
 public:
  HeapMeter();
  /// The largest number of bytes held at once since the constructor, beyond those held then.
  int64_t peak_growth() const;

 private:
  int64_t before_;
};

}  // namespace redline
