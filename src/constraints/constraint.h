// Output constraints determine the tokens that may follow, so that a text matches a grammar, a regular expression, a
// JSON Schema or one of several choices. The design follows XGrammar (Dong et al. 2024, arXiv:2411.15100): masks of
// automaton states are computed at the first visit and kept. Tokens that a mask cannot decide, because they depend on
// the stack, are decided for each stack.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constraints/automaton.h"
#include "constraints/token_trie.h"
#include "redline/json_format.h"

namespace redline {

class ConstraintCache;

/// Returns invalid_argument for a text longer than ConstraintLimits::max_input_bytes.
Status check_constraint_size(std::string_view text, const ConstraintLimits& limits);

/// A compiled constraint. It is immutable and shared by all sequences that use it; a mutex guards its cache.
class Constraint : public std::enable_shared_from_this<Constraint> {
 public:
  /// Each of these functions compiles a constraint. invalid_argument: the input is malformed or exceeds a limit; the
  /// message has the position and the reason. unsupported: a known construct that cannot be enforced; the message
  /// names it.
  static Result<std::shared_ptr<const Constraint>> from_grammar(std::string_view gbnf,
                                                                std::shared_ptr<const TokenTrie> trie,
                                                                const ConstraintLimits& limits = {});
  /// Compiles a regular expression, which the whole text must match.
  static Result<std::shared_ptr<const Constraint>> from_regex(std::string_view regex,
                                                              std::shared_ptr<const TokenTrie> trie,
                                                              const ConstraintLimits& limits = {});
  static Result<std::shared_ptr<const Constraint>> from_json_schema(std::string_view schema,
                                                                    std::shared_ptr<const TokenTrie> trie,
                                                                    const ConstraintLimits& limits = {},
                                                                    const JsonFormat& format = {});
  static Result<std::shared_ptr<const Constraint>> from_choices(std::span<const std::string> choices,
                                                                std::shared_ptr<const TokenTrie> trie,
                                                                const ConstraintLimits& limits = {});
  static Result<std::shared_ptr<const Constraint>> compile(const Grammar& grammar,
                                                           std::shared_ptr<const TokenTrie> trie,
                                                           const ConstraintLimits& limits, CompileDeadline& deadline);
  ~Constraint();

  const Automaton& automaton() const { return automaton_; }
  const TokenTrie& trie() const { return *trie_; }
  const ConstraintLimits& limits() const { return limits_; }
  /// Returns Grammar::unenforced.
  const std::set<std::string>& unenforced() const { return unenforced_; }
  /// Returns the bytes of the cached parse states and masks.
  size_t cache_bytes() const;

 private:
  friend class ConstraintState;
  Constraint(Automaton automaton, std::shared_ptr<const TokenTrie> trie, const ConstraintLimits& limits);
  Automaton automaton_;
  std::shared_ptr<const TokenTrie> trie_;
  ConstraintLimits limits_;
  std::set<std::string> unenforced_;
  mutable std::mutex mutex_;
  mutable std::shared_ptr<ConstraintCache> cache_;  ///< replaced by an empty one when it is full
};

/// The position of one sequence within a constraint. Not thread-safe.
class ConstraintState {
 public:
  static constexpr size_t kMaxRollback = 256;  ///< tokens

  explicit ConstraintState(std::shared_ptr<const Constraint> constraint);

  /// Writes the set of tokens that may follow. It has the tokens that end a text only if the text is complete.
  /// bits.size() is num_words() of the trie. invalid_argument: the grammar is so ambiguous here that a limit is
  /// exceeded.
  Status fill_mask(std::span<uint32_t> bits);
  /// Appends a token. invalid_argument: the token may not follow, or a limit is exceeded; the state is unchanged then.
  Status accept(TokenId token);
  /// Appends a text that is not given as tokens. rollback() counts it as one token. Errors: as accept().
  Status accept_text(std::string_view text);
  /// Removes the last n tokens. invalid_argument: more than were accepted, or more than kMaxRollback.
  Status rollback(size_t n);
  /// Returns true if the text so far matches.
  bool is_complete();
  /// Returns true if the text matches and nothing can follow, or a token has ended it.
  bool is_finished();
  /// Returns the bytes that must follow, at most 4096; "" if there is a choice.
  std::string forced_bytes();
  /// Returns true if `text` can be continued to a matching text; for tests.
  bool allows(std::string_view text);

  /// Returns the units of work so far, as counted by ConstraintLimits.
  uint64_t work_done() const { return work_done_; }

 private:
  class Access;
  /// Returns ConstraintCache::take_status(), or the error that max_text_work is exceeded.
  Status take_status();
  std::shared_ptr<const Constraint> constraint_;
  std::shared_ptr<ConstraintCache> cache_;
  uint64_t work_done_ = 0;
  uint64_t num_tokens_ = 0;        ///< number of tokens accepted so far
  std::vector<uint32_t> history_;  ///< parse state after each of the last tokens
  std::vector<uint8_t> ended_;     ///< for each entry of history_: a token has ended the text
};

}  // namespace redline
