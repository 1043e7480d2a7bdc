// Caches the tokens of short pieces: most pieces of a text are words that occur again.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "text/tokenizer.h"

namespace redline {

/// A cache of one thread for one tokenizer. Each piece has two possible slots; a new piece replaces the less recently
/// used of the two.
class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 15, kMaxIds = 4;
  /// Minimum length of a text for which a cache, which takes a megabyte, is used.
  static constexpr size_t kWorthBytes = 4096;

  /// Returns a number that identifies a tokenizer.
  static uint64_t next_owner() {
    static std::atomic<uint64_t> last{0};
    return ++last;
  }
  /// Returns the thread's cache, emptied if another tokenizer has used it.
  static PieceCache& of_thread(uint64_t owner) {
    thread_local PieceCache cache;
    if (cache.owner_ != owner || !cache.entries_) {
      if (cache.entries_) std::memset(static_cast<void*>(cache.entries_.get()), 0, kEntries * sizeof(Entry));
      else cache.entries_ = std::make_unique<Entry[]>(kEntries);
      cache.owner_ = owner;
    }
    return cache;
  }

  /// Appends the cached ids of `piece`, which has 1 to kMaxBytes bytes, or calls encode(piece), which appends them.
  /// Reads 16 bytes from the beginning of the piece if they lie before `end`.
  template <class Encode>
  void append(std::string_view piece, const char* end, std::vector<TokenId>& ids, const Encode& encode) {
    const Key key = key_of(piece, end);
    Entry* const places =
        &entries_[2 * (((key.low * 0x9E3779B97F4A7C15ull) ^ (key.high * 0xC2B2AE3D27D4EB4Full)) >> kShift)];
    const auto is_at = [&](const Entry& entry) {
      return entry.key.low == key.low && (entry.key.high & kKeyBits) == key.high;
    };
    if (!is_at(places[0]) && is_at(places[1])) std::swap(places[0], places[1]);
    if (const Entry& entry = places[0]; is_at(entry)) {
      const size_t count = entry.key.high >> kCountShift, size = ids.size();
      ids.resize(size + count);
      for (size_t i = 0; i < count; ++i) ids[size + i] = entry.ids[i];
      return;
    }
    const size_t size = ids.size();
    encode(piece);
    const size_t count = ids.size() - size;
    if (count == 0 || count > kMaxIds) return;
    places[1] = places[0];
    Entry& entry = places[0];
    entry.key = {key.low, key.high | static_cast<uint64_t>(count) << kCountShift};
    std::memcpy(entry.ids, ids.data() + size, count * sizeof(TokenId));
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 15;
  static constexpr int kShift = 64 - 14, kLengthShift = 56, kCountShift = 60;
  static constexpr uint64_t kKeyBits = (uint64_t{1} << kCountShift) - 1;
  /// The bytes of a piece, zero-padded. The last byte has the length, with the number of ids in the bits above it.
  struct Key {
    uint64_t low = 0, high = 0;
  };
  struct Entry {
    Key key;
    TokenId ids[kMaxIds] = {};
  };

  static Key key_of(std::string_view piece, const char* end) {
    Key key;
    if (piece.data() + sizeof(Key) <= end) std::memcpy(&key, piece.data(), sizeof(Key));
    else std::memcpy(&key, piece.data(), piece.size());
    const size_t bits = 8 * piece.size();
    constexpr size_t kWord = 64;
    if (bits < kWord) {
      key.low &= (uint64_t{1} << bits) - 1;
      key.high = 0;
    } else {
      key.high &= (uint64_t{1} << (bits - kWord)) - 1;
    }
    key.high |= static_cast<uint64_t>(piece.size()) << kLengthShift;
    return key;
  }

  uint64_t owner_ = 0;
  std::unique_ptr<Entry[]> entries_;
};

}  // namespace redline
