// The choice between own kernels and a device's matrix library for products.
#pragma once

#include <cstdint>

namespace redline {

/// Products of more rows than this are computed by the library, if the device has one. A library reads weights row by
/// row, so they are first written in that order: 4 bytes of traffic for each bfloat16 element, 0.93 ps at the 4.3 TB/s
/// that an H200 copies. The library multiplies at about 700 TFLOP/s. If Redline's kernel runs at half of that, the
/// library saves 2 rows / 700 TFLOP/s per element, and twice as much if it runs at a third. The library therefore makes
/// up for the copy from 163 to 326 rows on. If `redline bench device --record` has measured the device, the measured
/// number is used instead (runtime/device_record.h). The number does not depend on whether a copy of the weight is
/// kept, so that the bits of a row do not depend on free memory.
inline constexpr int64_t kOwnRows = 256;
/// Kept copies of weights in the library's order may use 1 / kKeptShare of the memory that is free when a weight is
/// first written for the library.
inline constexpr int64_t kKeptShare = 4;

}  // namespace redline
