// A fast hash of bytes, the same in every process, for file names and checksums. Not secure against an adversary.
#pragma once

#include <cstdint>
#include <cstring>

namespace redline {

/// Adds one word to a hash (splitmix64).
inline uint64_t hash_word(uint64_t hash, uint64_t value) {
  uint64_t x = hash + 0x9e3779b97f4a7c15u + value;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

inline uint64_t hash_bytes(uint64_t hash, const void* data, size_t bytes) {
  const auto* from = static_cast<const unsigned char*>(data);
  hash = hash_word(hash, bytes);
  // Four chains, so that their products overlap.
  uint64_t chain[4] = {hash, hash + 1, hash + 2, hash + 3};
  for (; bytes >= 32; bytes -= 32, from += 32) {
    for (int i = 0; i < 4; ++i) {
      uint64_t word;
      std::memcpy(&word, from + 8 * i, 8);
      chain[i] = (chain[i] ^ word) * 0x9e3779b97f4a7c15u;
      chain[i] ^= chain[i] >> 29;
    }
  }
  for (const uint64_t part : chain) hash = hash_word(hash, part);
  for (; bytes > 0; --bytes, ++from) hash = hash_word(hash, *from);
  return hash;
}

}  // namespace redline
