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

/// A cache of texts with their tokens. Generated tokens often differ from the tokenization of the same text. A
/// conversation therefore continues from the tokens themselves: the model wrote these tokens, so their cached state is
/// found. Thread-safe.
class KnownTexts {
 public:
  /// Keeps texts and tokens of at most `max_bytes`; the least recently used are evicted first.
  explicit KnownTexts(size_t max_bytes = size_t{16} << 20) : max_bytes_(max_bytes) {}

  /// Adds a text that was read and written as `tokens`. Texts are found within their `scope` only.
  void add(const std::string& scope, std::string text, std::vector<int32_t> tokens);
  void clear();

  /// Returns the tokens of `text`, a rendered conversation: the tokens of the longest known text that it begins with,
  /// then those of the rest. A known text is used only if nothing or a control token follows it, because no token can
  /// reach across that. Without a known text, returns engine.encode(text, true, add_bos) with its errors.
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
  /// Returns the known texts that `text` begins with, longest first.
  std::vector<Known> beginnings(const std::string& scope, std::string_view text);
  void remove(Entries::iterator entry);

  const size_t max_bytes_;
  std::mutex mutex_;  ///< guards the members below
  size_t bytes_ = 0;
  Entries entries_;  ///< the most recently used first
  std::unordered_map<uint64_t, Entries::iterator> by_hash_;
  std::map<size_t, size_t> lengths_;  ///< lengths of the texts, with the number of texts of each
};

}  // namespace redline::server
