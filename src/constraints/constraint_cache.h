// Caches the visited parse states of an automaton, their transitions and their masks.
//
// A parse state is a set of (automaton state, number of repetitions, stack). A stack is a set of frames; each has the
// state after the call, the repetitions there, and the stack below. All calls of a rule at one position thus share one
// stack, as in Earley's and Tomita's parsers. Parse states and stacks are numbered and never stored twice; a transition
// is computed once. The mask of an automaton state is computed for an unknown stack: tokens that stay within the rule
// are decided for every stack. Tokens that leave the rule are kept as a trie over their bytes after its end. The trie
// is traversed with the parse state after the call, and the result is kept for each pair of automaton state and parse
// state.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "constraints/automaton.h"
#include "constraints/token_trie.h"

namespace redline {

/// Maps sequences of 32-bit words to numbers, in order of insertion.
class WordInterner {
 public:
  WordInterner() : slots_(64, 0) {}
  /// Returns the number of `words`, and true if it is new.
  std::pair<uint32_t, bool> insert(std::span<const uint32_t> words);
  std::span<const uint32_t> words(uint32_t id) const {
    return std::span(words_).subspan(begins_[id], begins_[id + 1] - begins_[id]);
  }
  size_t size() const { return begins_.size() - 1; }
  size_t bytes() const { return words_.size() * 4 + begins_.size() * 8 + slots_.size() * 4; }

 private:
  void grow();
  std::vector<uint32_t> words_, begins_ = {0}, slots_, hashes_;
};

class ConstraintCache {
 public:
  static constexpr uint32_t kDead = 0;  ///< the parse state from which nothing matches

  ConstraintCache(const Automaton& automaton, const TokenTrie& trie, const ConstraintLimits& limits);

  std::mutex& mutex() { return mutex_; }
  uint32_t start() const { return start_; }
  /// Returns the parse state after one more byte.
  uint32_t step(uint32_t state, uint8_t byte) {
    if (state == kDead) return kDead;
    const uint32_t row = rows_of_[state];
    if (row != kNone) {
      const uint32_t next = rows_[row + classes_[byte]];
      if (next != kNone) return next;
    }
    return compute_step(state, byte);
  }
  /// Returns the parse state after a token: by its bytes, or as a whole if the grammar names the token.
  uint32_t step_token(uint32_t state, TokenId token);
  bool is_accepting(uint32_t state) const { return flags_[state] & kAccepts; }
  bool has_tokens(uint32_t state) const { return flags_[state] & kHasTokens; }
  bool can_go_on(uint32_t state) const { return flags_[state] & kGoesOn; }
  /// Sets the bits of the tokens that may follow, without those that end the text.
  void add_mask(uint32_t state, std::span<uint32_t> bits);

  size_t bytes() const {
    return stacks_.bytes() + configs_.bytes() + (rows_.size() + rows_of_.size() + pops_.size()) * 4 + mask_bytes_;
  }
  /// Returns the value of bytes() when the mutex was last released. Thread-safe.
  size_t known_bytes() const { return known_bytes_.load(std::memory_order_relaxed); }
  void publish_bytes() { known_bytes_.store(bytes(), std::memory_order_relaxed); }
  /// Returns an error if a limit was exceeded since the last call; the results since then are incomplete.
  Status take_status() {
    work_done_ = 0;
    return std::exchange(status_, Status());
  }
  /// Returns the units of work since the last take_status(), as counted by ConstraintLimits::max_step_work.
  uint64_t work_done() const { return work_done_; }
  /// Copies `states` of another cache of the same automaton to this one, and replaces their numbers by those of this
  /// cache.
  void import(const ConstraintCache& from, std::span<uint32_t> states);

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  /// kRootStack: the end of the text follows; kOpenStack: an unknown stack
  static constexpr uint32_t kRootStack = 0, kOpenStack = 1;
  enum Flags : uint8_t { kAccepts = 1, kLeaves = 2, kGoesOn = 4, kHasTokens = 8 };
  struct Entry {
    uint32_t state, count, stack;
    bool operator==(const Entry&) const = default;
  };
  struct Frame {
    uint32_t state, count, stack;
    auto operator<=>(const Frame&) const = default;  // NOLINT(modernize-use-nullptr): of the defaulted operator
  };
  /// The tokens allowed in an automaton state with an unknown stack.
  struct StateMask {
    std::vector<TokenId> few;  ///< the allowed tokens, if `bits` is empty
    TokenBits bits;
    ByteTrie open;  ///< tokens that leave the rule, by their bytes after its end
    /// tokens of `open` that are allowed, by the parse state after the call
    std::unordered_map<uint32_t, std::vector<TokenId>> behind;
  };

  static bool is_before(const Entry& a, const Entry& b);
  uint32_t compute_step(uint32_t state, uint8_t byte);
  /// Follows empty edges, ends of rules and calls from the entries in `work_`, and returns the number of the resulting
  /// parse state.
  uint32_t close();
  void add_entry(Entry entry);
  uint32_t intern_config(uint8_t flags, std::vector<Entry>& entries);
  uint32_t intern_frames(std::vector<Frame>& frames);
  size_t num_frames(uint32_t stack) const { return stacks_.words(stack).size() / 3; }
  Frame frame(uint32_t stack, size_t i) const {
    const auto w = stacks_.words(stack);
    return {w[3 * i], w[3 * i + 1], w[3 * i + 2]};
  }
  size_t num_entries(uint32_t config) const { return configs_.words(config).size() / 3; }
  Entry entry(uint32_t config, size_t i) const {
    const auto w = configs_.words(config);
    return {w[3 * i + 1], w[3 * i + 2], w[3 * i + 3]};
  }
  uint32_t with_flag(uint32_t config, Flags flag);
  /// Returns the parse state after a call with this stack.
  uint32_t behind(uint32_t stack);
  /// Returns a number of repetitions that has the same mask as `count`, for tokens of at most `exact_bytes` bytes,
  /// which the call may lower.
  uint32_t canonical_count(uint32_t state, uint32_t count, size_t& exact_bytes) const;
  /// Returns true if `next` is `config` one repetition later and each further repetition is like this one, up to the
  /// rule's bound.
  bool is_next_round(uint32_t config, uint32_t next, const Automaton::Rule& rule) const;
  /// Returns the number of plain characters that may follow, whichever they are, without the end of the rule in
  /// between; nullopt if this depends on the characters.
  std::optional<size_t> free_plain_chars(uint32_t config, Entry entry);
  std::unique_ptr<StateMask> make_state_mask(uint32_t state, uint32_t count);
  /// Returns the parse state after a plain character, if it is the same for all plain characters; kDead if none may
  /// follow; else kNone.
  uint32_t after_plain(uint32_t config);
  void fail(std::string_view what);
  /// Counts work. Returns false if a limit is exceeded, now or before.
  bool spend(uint64_t work) {
    work_done_ += work;
    if (work_done_ > limits_.max_step_work) fail_by_work();
    return status_.ok();
  }
  void fail_by_work();
  /// Returns the frames of the calls of this rule at the current position of close().
  std::vector<Frame>& frames_of_call(uint32_t rule);

  const Automaton& automaton_;
  const TokenTrie& trie_;
  const ConstraintLimits& limits_;
  std::mutex mutex_;
  const std::array<uint8_t, 256>& classes_;
  const uint32_t num_classes_;
  WordInterner stacks_, configs_;
  std::vector<uint8_t> flags_;
  std::vector<uint32_t> rows_of_, rows_, after_plain_;
  std::vector<uint32_t> pops_;  ///< behind() of each stack
  uint32_t start_ = 0;
  Status status_;
  uint64_t work_done_ = 0;  ///< work since take_status()

  std::unordered_map<uint64_t, std::unique_ptr<StateMask>> state_masks_;
  struct KeptMask {
    uint32_t visits = 0;
    TokenBits bits;
  };
  std::unordered_map<uint32_t, KeptMask> masks_;
  size_t mask_bytes_ = 0;
  std::atomic<size_t> known_bytes_{0};

  // Buffers of close(), kept to reuse their memory.
  std::vector<Entry> work_, essential_;
  std::vector<uint32_t> seen_slots_, words_;
  std::vector<std::pair<uint32_t, std::vector<Frame>>> calls_;  ///< rule and frames
  std::vector<uint32_t> call_of_rule_;                          ///< index into calls_, or kNone
  std::vector<std::pair<uint32_t, uint32_t>> next_calls_;       ///< heap of rank and rule, the smallest rank first
  size_t seen_size_ = 0;
};

}  // namespace redline
