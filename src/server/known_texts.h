// Texts whose tokens are known because a model has read and written them.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "redline/text.h"

namespace redline::server {

/// Generated tokens often differ from the tokenization of the same text. A conversation therefore continues from
/// the tokens themselves: they are what the model has written, and their cached state is found. Thread-safe.
class KnownTexts {
 public:
  /// Keeps texts and tokens of at most `max_bytes`; those that were used least recently go first.
  explicit KnownTexts(size_t max_bytes = size_t{16} << 20) : max_bytes_(max_bytes) {}

  /// `text` was read and written as `tokens`. Texts are found within their `scope` only.
  void add(const std::string& scope, std::string text, std::vector<int32_t> tokens);
  void clear();

  /// The tokens of `text`, a rendered conversation: those of the longest known text that it begins with, then those of
  /// the rest. A known text counts if nothing or a control token follows, across which no token can reach. Without one,
  /// that is engine.encode(text, true, add_bos), whose errors it returns.
  Result<std::vector<int32_t>> encode(const TextEngine& engine, const std::string& scope, std::string_view text,
                                      bool add_bos, const EncodeLimits& limits = {});

 private:
  struct Entry {
    std::string scope, text;
    std::shared_ptr<const std::vector<int32_t>> tokens;
    uint64_t hash = 0;
    size_t bytes() const { return sizeof(Entry) + scope.size() + text.size() + tokens->size() * sizeof(int32_t); }
  };
  using Entries = std::list<Entry>;
  struct Known {
    size_t length = 0;
    std::shared_ptr<const std::vector<int32_t>> tokens;
  };
  /// Known texts that `text` begins with, the longest first.
  std::vector<Known> beginnings(const std::string& scope, std::string_view text);
  void remove(Entries::iterator entry);

  const size_t max_bytes_;
  std::mutex mutex_;  ///< guards the members below
  size_t bytes_ = 0;
  Entries entries_;  ///< used most recently first
  std::unordered_map<uint64_t, Entries::iterator> by_hash_;
  std::map<size_t, size_t> lengths_;  ///< of the texts; how many have each
};

}  // namespace redline::server
