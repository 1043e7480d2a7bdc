// The callback by which a bench reports its progress and is cancelled.
#pragma once

#include <cstdint>
#include <functional>

namespace redline::lab {

/// Called with the number of completed rows and of all rows, several times for each row. Returning false ends the bench
/// with Code::cancelled.
using BenchProgress = std::function<bool(int64_t done, int64_t total)>;

}  // namespace redline::lab
