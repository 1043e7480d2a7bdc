#include "llm/token_history.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace redline {

bool TokenHistory::has_penalties(const SamplingOptions& o) {
  return o.penalty_last_n != 0 && (o.repetition_penalty != 1 || o.presence_penalty != 0 || o.frequency_penalty != 0);
}

bool TokenHistory::has_dry(const SamplingOptions& o) { return o.dry_multiplier > 0 && o.dry_penalty_last_n != 0; }

TokenHistory::TokenHistory(const SamplingOptions& options, int64_t vocab_size,
                           std::shared_ptr<const TokenTrie> vocabulary)
    : options_(options), has_penalties_(has_penalties(options)), has_dry_(has_dry(options)) {
  const auto size = static_cast<size_t>(vocab_size);
  if (has_penalties_) {
    counts_.resize(size);
    output_counts_.resize(size);
    is_listed_.resize(size);
  }
  if (has_dry_ && !options.dry_sequence_breakers.empty() && vocabulary) {
    vocabulary_ = std::move(vocabulary);
    breakers_ = WordMatcher(options.dry_sequence_breakers);
  }
}

void TokenHistory::push(int32_t token, bool is_output) {
  if (!has_penalties_ && !has_dry_) return;
  tokens_.push_back(token);
  if (!is_output) prompt_tokens_ = tokens_.size();
  if (has_penalties_) {
    const auto i = static_cast<size_t>(token);
    ++counts_[i];
    output_counts_[i] += is_output;
    if (!is_listed_[i]) {
      is_listed_[i] = 1;
      listed_.push_back(token);
    }
    if (options_.penalty_last_n > 0 &&
        std::ssize(tokens_) - static_cast<int64_t>(window_begin_) > options_.penalty_last_n) {
      const auto left = static_cast<size_t>(tokens_[window_begin_]);
      --counts_[left];
      output_counts_[left] -= window_begin_ >= prompt_tokens_;
      ++window_begin_;
    }
  }
  if (has_dry_) is_break_.push_back(vocabulary_ != nullptr && breakers_.accept(vocabulary_->text(token)));
}

void TokenHistory::roll_back(const Checkpoint& checkpoint) {
  for (; tokens_.size() > checkpoint.tokens; tokens_.pop_back()) {
    if (has_dry_) is_break_.pop_back();
    if (!has_penalties_) continue;
    const auto last = static_cast<size_t>(tokens_.back());
    --counts_[last];
    --output_counts_[last];
    if (window_begin_ == 0) continue;
    // Since the window is full, the last token has pushed another one out of it.
    --window_begin_;
    const auto back = static_cast<size_t>(tokens_[window_begin_]);
    ++counts_[back];
    output_counts_[back] += window_begin_ >= prompt_tokens_;
  }
  breakers_.roll_back(checkpoint.breaker_tail);
}

void TokenHistory::for_each_penalty(const std::function<void(const LogitEdit& edit)>& call) const {
  for (const int32_t token : listed_) {
    if (counts_[static_cast<size_t>(token)] == 0) continue;
    const uint32_t output = output_counts_[static_cast<size_t>(token)];
    call({token, 0, options_.repetition_penalty,
          output > 0 ? static_cast<float>(output) * options_.frequency_penalty + options_.presence_penalty : 0});
  }
}

void TokenHistory::penalize(const LogitOf& logit_of) const {
  for_each_penalty([&](const LogitEdit& edit) {
    float* const place = logit_of(edit.token);
    if (place == nullptr) return;
    float& logit = *place;
    const bool was_excluded = !(logit >= std::numeric_limits<float>::lowest());
    logit = logit > 0 ? logit / edit.repetition : logit * edit.repetition;
    logit -= edit.penalty;
    // Finite logits are kept finite: an extreme penalty must neither break a logit nor exclude a token.
    constexpr float kMaxLogit = std::numeric_limits<float>::max();
    if (!was_excluded) logit = std::clamp(logit, -kMaxLogit, kMaxLogit);
  });
}

/// Writes to continuations_, for each token that followed an earlier occurrence of the last n tokens, the largest such
/// n of at least dry_allowed_length. Ordered by token.
void TokenHistory::find_repetitions() {
  continuations_.clear();
  const int64_t size = std::ssize(tokens_), allowed = options_.dry_allowed_length;
  const int64_t n = options_.dry_penalty_last_n < 0 ? size : std::min(size, options_.dry_penalty_last_n);
  if (n <= allowed) return;
  int64_t limit = 0;  // tokens after the last break
  while (limit < n && !is_break_[static_cast<size_t>(size - 1 - limit)]) ++limit;
  if (limit < allowed) return;
  // Over the reversed text, matches_[i] is the length of the match between its beginning and its part from i on: the Z
  // function (Gusfield 1997, "Algorithms on strings, trees, and sequences", 1.4).
  const auto back = [&](int64_t i) { return tokens_[static_cast<size_t>(size - 1 - i)]; };
  matches_.assign(static_cast<size_t>(n), 0);
  int64_t left = 0, right = 0;  // the match that reaches farthest
  for (int64_t i = 1; i < n; ++i) {
    int64_t length = 0;
    if (i < right) length = std::min<int64_t>(right - i, matches_[static_cast<size_t>(i - left)]);
    while (i + length < n && back(length) == back(i + length)) ++length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    matches_[static_cast<size_t>(i)] = static_cast<int32_t>(length);
    if (std::min(length, limit) >= allowed) continuations_.emplace_back(back(i - 1), std::min(length, limit));
  }
  std::sort(continuations_.begin(), continuations_.end(), [](const auto& a, const auto& b) {
    return a.first < b.first || (a.first == b.first && a.second > b.second);
  });
  const auto end = std::unique(continuations_.begin(), continuations_.end(),
                               [](const auto& a, const auto& b) { return a.first == b.first; });
  continuations_.erase(end, continuations_.end());
}

void TokenHistory::apply_dry(const LogitOf& logit_of) {
  find_repetitions();
  for (const auto& [token, length] : continuations_) {
    const std::string_view text = vocabulary_ ? vocabulary_->text(token) : std::string_view();
    const auto is_within = [&](const std::string& breaker) { return text.find(breaker) != std::string_view::npos; };
    if (std::any_of(breakers_.words().begin(), breakers_.words().end(), is_within)) continue;
    float* const logit = logit_of(token);
    if (logit == nullptr) continue;
    constexpr double kLowest = std::numeric_limits<float>::lowest();
    const double penalty =
        double{options_.dry_multiplier} *
        std::pow(double{options_.dry_base}, static_cast<double>(length - options_.dry_allowed_length));
    // An excluded token stays excluded, and no other token becomes excluded.
    if (*logit > kLowest) *logit = static_cast<float>(std::max(*logit - penalty, kLowest));
  }
}

}  // namespace redline
