// The time of day, and how it is written in JSON.
#pragma once

#include <cstdint>
#include <string>

namespace redline {

/// Returns seconds since 1970-01-01 UTC.
double unix_now();
/// Returns whole seconds since 1970-01-01 UTC.
int64_t unix_time();

/// Returns "2026-11-23T03:11:44Z" (RFC 3339).
std::string utc_text(int64_t seconds);
/// Returns "2026-11-23T03:11:44.123Z".
std::string utc_text_ms(double seconds);

}  // namespace redline
