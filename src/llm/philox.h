// Counter-based random numbers.
#pragma once

#include <array>
#include <cstdint>

namespace redline {

/// Returns 128 random bits for a counter and a key, without state: Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011,
/// "Parallel random numbers: as easy as 1, 2, 3").
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// Returns a number in [0, 1) with 53 random bits that depends only on (seed, position, stream): the random number for
/// the token at `position` does not depend on earlier samples or on the number of threads.
double uniform_at(uint64_t seed, uint64_t position, uint32_t stream = 0);

}  // namespace redline
