#include "constraints/constraint.h"

#include <algorithm>

#include "constraints/constraint_cache.h"
#include "constraints/gbnf.h"
#include "constraints/json_schema.h"
#include "constraints/plain_grammars.h"

namespace redline {

Constraint::Constraint(Automaton automaton, std::shared_ptr<const TokenTrie> trie, const ConstraintLimits& limits)
    : automaton_(std::move(automaton)), trie_(std::move(trie)), limits_(limits),
      cache_(std::make_shared<ConstraintCache>(automaton_, *trie_, limits_)) {}
Constraint::~Constraint() = default;

Result<std::shared_ptr<const Constraint>> Constraint::compile(const Grammar& grammar,
                                                              std::shared_ptr<const TokenTrie> trie,
                                                              const ConstraintLimits& limits,
                                                              CompileDeadline& deadline) {
  REDLINE_ASSIGN(Automaton automaton, Automaton::compile(grammar, limits, deadline));
  std::shared_ptr<Constraint> constraint(new Constraint(std::move(automaton), std::move(trie), limits));
  constraint->unenforced_ = grammar.unenforced;
  REDLINE_TRY(constraint->cache_->take_status());
  return std::shared_ptr<const Constraint>(std::move(constraint));
}

Status check_constraint_size(std::string_view text, const ConstraintLimits& limits) {
  if (text.size() <= limits.max_input_bytes) return {};
  return invalid_argument("the constraint has {} bytes; at most {} are allowed", text.size(), limits.max_input_bytes);
}

Result<std::shared_ptr<const Constraint>> Constraint::from_grammar(std::string_view gbnf,
                                                                   std::shared_ptr<const TokenTrie> trie,
                                                                   const ConstraintLimits& limits) {
  REDLINE_TRY(check_constraint_size(gbnf, limits));
  CompileDeadline deadline(limits);
  REDLINE_ASSIGN(const Grammar grammar, parse_gbnf(gbnf, *trie, deadline));
  return compile(grammar, std::move(trie), limits, deadline);
}

Result<std::shared_ptr<const Constraint>> Constraint::from_regex(std::string_view regex,
                                                                 std::shared_ptr<const TokenTrie> trie,
                                                                 const ConstraintLimits& limits) {
  REDLINE_TRY(check_constraint_size(regex, limits));
  CompileDeadline deadline(limits);
  REDLINE_ASSIGN(const Grammar grammar, grammar_of_regex(regex, deadline));
  return compile(grammar, std::move(trie), limits, deadline);
}

Result<std::shared_ptr<const Constraint>> Constraint::from_json_schema(std::string_view schema,
                                                                       std::shared_ptr<const TokenTrie> trie,
                                                                       const ConstraintLimits& limits,
                                                                       const JsonFormat& format) {
  REDLINE_TRY(check_constraint_size(schema, limits));
  CompileDeadline deadline(limits);
  REDLINE_ASSIGN(const Grammar grammar, grammar_of_json_schema(schema, format, deadline));
  return compile(grammar, std::move(trie), limits, deadline);
}

Result<std::shared_ptr<const Constraint>> Constraint::from_choices(std::span<const std::string> choices,
                                                                   std::shared_ptr<const TokenTrie> trie,
                                                                   const ConstraintLimits& limits) {
  CompileDeadline deadline(limits);
  REDLINE_ASSIGN(const Grammar grammar, grammar_of_choices(choices, limits, deadline));
  return compile(grammar, std::move(trie), limits, deadline);
}

/// Holds the cache's mutex while it lives. If the cache is full, the sequence moves to a new cache of the constraint.
class ConstraintState::Access {
 public:
  explicit Access(ConstraintState& state) {
    const Constraint& constraint = *state.constraint_;
    std::unique_lock whole(constraint.mutex_);
    if (constraint.cache_->known_bytes() > constraint.limits_.cache_bytes && constraint.cache_ == state.cache_)
      constraint.cache_ =
          std::make_shared<ConstraintCache>(constraint.automaton_, *constraint.trie_, constraint.limits_);
    if (constraint.cache_ != state.cache_) {
      const std::shared_ptr<ConstraintCache> old = std::move(state.cache_);
      state.cache_ = constraint.cache_;
      std::scoped_lock both(old->mutex(), state.cache_->mutex());
      state.cache_->import(*old, state.history_);
    }
    whole.unlock();
    cache_ = state.cache_.get();
    lock_ = std::unique_lock(cache_->mutex());
  }
  ~Access() { cache_->publish_bytes(); }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  ConstraintCache* cache_;
  std::unique_lock<std::mutex> lock_;
};

size_t Constraint::cache_bytes() const {
  const std::lock_guard lock(mutex_);
  return cache_->known_bytes();
}

ConstraintState::ConstraintState(std::shared_ptr<const Constraint> constraint) : constraint_(std::move(constraint)) {
  std::lock_guard lock(constraint_->mutex_);
  cache_ = constraint_->cache_;
  history_ = {cache_->start()};
  ended_ = {0};
}

Status ConstraintState::take_status() {
  work_done_ += cache_->work_done();
  REDLINE_TRY(cache_->take_status());
  const ConstraintLimits& limits = constraint_->limits();
  constexpr uint64_t kTokens = 50;  // number of tokens that together may take the work of one step
  if (work_done_ <= limits.max_text_work + num_tokens_ * (limits.max_step_work / kTokens)) return {};
  return invalid_argument(
      "the constraint is too ambiguous: its {} tokens so far take more than {} steps (ConstraintLimits::max_text_work)",
      num_tokens_, limits.max_text_work);
}

Status ConstraintState::fill_mask(std::span<uint32_t> bits) {
  const TokenTrie& trie = constraint_->trie();
  if (bits.size() != trie.num_words())
    return invalid_argument("a mask of {} tokens has {} words, not {}", trie.vocab_size(), trie.num_words(),
                            bits.size());
  std::fill(bits.begin(), bits.end(), 0);
  const Access access(*this);
  if (!ended_.back()) cache_->add_mask(history_.back(), bits);
  const bool may_end = cache_->is_accepting(history_.back());
  for (const TokenId id : trie.end_tokens()) {
    bits[static_cast<size_t>(id) / 32] &= ~(1U << (static_cast<uint32_t>(id) % 32));
    if (may_end) set_bit(bits, id);
  }
  return take_status();
}

Status ConstraintState::accept(TokenId token) {
  const TokenTrie& trie = constraint_->trie();
  if (token < 0 || token >= trie.vocab_size()) return invalid_argument("token {} is outside the vocabulary", token);
  const Access access(*this);
  uint32_t next = history_.back();
  const bool ends = trie.is_end(token);
  if (ends) {
    if (!cache_->is_accepting(next)) return invalid_argument("the text is not complete");
  } else {
    next = ended_.back() ? ConstraintCache::kDead : cache_->step_token(next, token);
    REDLINE_TRY(take_status());
    if (next == ConstraintCache::kDead) return invalid_argument("token {} does not match the constraint", token);
  }
  ++num_tokens_;
  history_.push_back(next);
  ended_.push_back(ends);
  if (history_.size() > 2 * kMaxRollback + 2) {
    history_.erase(history_.begin(), history_.end() - static_cast<std::ptrdiff_t>(kMaxRollback) - 1);
    ended_.erase(ended_.begin(), ended_.end() - static_cast<std::ptrdiff_t>(kMaxRollback) - 1);
  }
  return {};
}

Status ConstraintState::accept_text(std::string_view text) {
  const Access access(*this);
  uint32_t next = ended_.back() ? ConstraintCache::kDead : history_.back();
  // Each byte of a text counts as one token in the limit of work.
  for (const char c : text) {
    next = cache_->step(next, static_cast<uint8_t>(c));
    ++num_tokens_;
    REDLINE_TRY(take_status());
  }
  if (next == ConstraintCache::kDead) return invalid_argument("the text does not match the constraint");
  history_.push_back(next);
  ended_.push_back(0);
  return {};
}

Status ConstraintState::rollback(size_t n) {
  if (n > kMaxRollback || n >= history_.size())
    return invalid_argument("{} tokens cannot be taken back; {} are kept", n,
                            std::min(kMaxRollback, history_.size() - 1));
  history_.resize(history_.size() - n);
  ended_.resize(ended_.size() - n);
  return {};
}

bool ConstraintState::is_complete() {
  const Access access(*this);
  return cache_->is_accepting(history_.back());
}

bool ConstraintState::is_finished() {
  const Access access(*this);
  return ended_.back() || (cache_->is_accepting(history_.back()) && !cache_->can_go_on(history_.back()));
}

std::string ConstraintState::forced_bytes() {
  constexpr size_t kMaxForced = 4096;
  const Access access(*this);
  std::string forced;
  uint32_t state = ended_.back() ? ConstraintCache::kDead : history_.back();
  while (forced.size() < kMaxForced && state != ConstraintCache::kDead && !cache_->is_accepting(state)) {
    int only = -1;
    uint32_t next = ConstraintCache::kDead;
    for (int b = 0; b < 256; ++b) {
      const uint32_t after = cache_->step(state, static_cast<uint8_t>(b));
      if (after == ConstraintCache::kDead) continue;
      if (only >= 0) {
        only = -1;
        break;
      }
      only = b;
      next = after;
    }
    if (only < 0 || cache_->has_tokens(state)) break;
    forced.push_back(static_cast<char>(only));
    state = next;
  }
  (void)cache_->take_status();
  return forced;
}

bool ConstraintState::allows(std::string_view text) {
  const Access access(*this);
  uint32_t next = history_.back();
  for (const char c : text) next = cache_->step(next, static_cast<uint8_t>(c));
  return cache_->take_status().ok() && next != ConstraintCache::kDead;
}

}  // namespace redline
