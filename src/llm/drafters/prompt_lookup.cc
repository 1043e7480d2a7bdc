// Prompt lookup (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding) drafts the tokens that followed the
// longest earlier occurrence of the last tokens of the text.
#include <algorithm>
#include <unordered_map>

#include "base/hash.h"
#include "llm/drafters/drafter.h"

namespace redline {
namespace {

/// Number of last tokens that an earlier occurrence must share, and the number beyond which a longer match counts no
/// more. Two equal tokens are frequent in prose and rarely continue alike.
constexpr int64_t kMinMatch = 3, kMaxMatch = 32;
/// Number of occurrences that a proposal examines, the latest first.
constexpr int kMaxOccurrences = 64;

class PromptLookup final : public Drafter {
 public:
  Status propose(int64_t max_tokens, Draft& draft) override {
    const int64_t size = std::ssize(text_);
    if (size <= kMinMatch || max_tokens <= 0) return {};
    int64_t best = 0, best_length = 0;
    int64_t at = previous_.back();
    for (int i = 0; i < kMaxOccurrences && at >= 0 && best_length < kMaxMatch; ++i) {
      // Equal hashes need not be equal tokens.
      if (const int64_t length = match(at); length >= kMinMatch && length > best_length) {
        best = at;
        best_length = length;
      }
      at = previous_[static_cast<size_t>(at)];
    }
    // A text that repeats itself is continued beyond its end: drafted tokens follow as if they were part of it.
    for (int64_t i = best + 1; best_length > 0 && std::ssize(draft.tokens) < max_tokens; ++i) {
      const int32_t token = i < size ? text_[static_cast<size_t>(i)] : draft.tokens[static_cast<size_t>(i - size)];
      if (token < 0) break;
      draft.tokens.push_back(token);
    }
    return {};
  }

  void observe(std::span<const int32_t> tokens, int64_t /*num_accepted*/) override {
    for (const int32_t token : tokens) {
      text_.push_back(token);
      previous_.push_back(-1);
      if (!has_key()) continue;
      const auto [entry, is_new] = last_.try_emplace(key(), std::ssize(text_) - 1);
      if (is_new) continue;
      previous_.back() = entry->second;
      entry->second = std::ssize(text_) - 1;
    }
  }

  void roll_back(int64_t length) override {
    while (std::ssize(text_) > std::max<int64_t>(0, length)) {
      if (has_key()) {
        if (previous_.back() < 0) last_.erase(key());
        else last_[key()] = previous_.back();
      }
      text_.pop_back();
      previous_.pop_back();
    }
  }

 private:
  /// Returns true if the text ends with kMinMatch tokens of the vocabulary.
  bool has_key() const {
    return std::ssize(text_) >= kMinMatch &&
           std::all_of(text_.end() - kMinMatch, text_.end(), [](int32_t token) { return token >= 0; });
  }
  /// Returns a hash of the last kMinMatch tokens.
  uint64_t key() const {
    uint64_t hash = 0;
    for (auto token = text_.end() - kMinMatch; token != text_.end(); ++token)
      hash = hash_word(hash, static_cast<uint64_t>(*token));
    return hash;
  }
  /// Returns the number of tokens before and at `at` that equal the last tokens of the text, up to kMaxMatch.
  int64_t match(int64_t at) const {
    const auto end = text_.rbegin(), earlier = text_.rend() - (at + 1);
    const int64_t most = std::min(kMaxMatch, at + 1);
    int64_t length = 0;
    while (length < most && end[length] == earlier[length] && end[length] >= 0) ++length;
    return length;
  }

  std::vector<int32_t> text_;
  std::unordered_map<uint64_t, int64_t> last_;  ///< index of the last token of the latest occurrence, by key()
  /// [text]: index of the last token of the occurrence before, of the kMinMatch tokens that end here; -1: none
  std::vector<int64_t> previous_;
};

}  // namespace

extern const DrafterRow kPromptLookupDrafter = {
    .name = "prompt-lookup",
    .make = [](const DrafterContext&) -> std::unique_ptr<Drafter> { return std::make_unique<PromptLookup>(); },
};

}  // namespace redline
