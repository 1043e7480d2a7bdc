// Shared functions of the fuzz targets.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/mapped_file.h"

namespace redline {

/// Returns the bytes of an input as text.
inline std::string_view fuzz_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Reads every byte, so that the address sanitizer detects a range that is not fully accessible.
inline void touch(const void* data, int64_t bytes) {
  uint8_t sum = 0;
  for (int64_t i = 0; i < bytes; ++i) sum = static_cast<uint8_t>(sum + static_cast<const uint8_t*>(data)[i]);
  volatile uint8_t sink = sum;
  (void)sink;
}

/// Aborts unless a property that the reader guarantees holds.
inline void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace redline

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
