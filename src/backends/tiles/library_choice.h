// The choice between own kernels and a device's matrix library for products.
#pragma once

#include <cstdint>

namespace redline {

/// Products of more rows than this are computed by the library, if the device has one. A library reads weights row by
/// row, so they are first written in that order: 4 bytes of traffic for each bfloat16 element, 0.93 ps at the 4.3 TB/s
/// that an H200 copies. The library multiplies at about 700 TFLOP/s, and saves 2 rows / 700 TFLOP/s if the device's own
/// kernel has half its speed, twice as much at a third: it makes up for the copy from 163 to 326 rows on. Where
/// `redline bench device --record` has measured the machine, its number is used instead (runtime/device_record.h). The
/// number is the same whether a copy of the weight is kept or not, so that the bits of a row do not depend on free
/// memory.
inline constexpr int64_t kOwnRows = 256;
/// Kept copies of weights in the library's order may use 1 / kKeptShare of the memory that is free when a weight is
/// first written for the library.
inline constexpr int64_t kKeptShare = 4;

}  // namespace redline
