#include "llm/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "base/elapsed.h"
#include "models/checkpoint/weight_examiner.h"

namespace redline {

// A constraint sees every byte of the text, a prefix space too.
constexpr auto kUnconstrained = OutputConstraint::Kind::kNone;
// A constraint that takes longer for one token delays other requests if its next masks are computed while rows are
// sampled, so that the request drafts no more. Nearly all constraints take a hundredth of it.
constexpr double kSlowConstraintMs = 2;

Result<std::shared_ptr<TextGeneration>> TextGeneration::make(const TextModel& model, const GenerateRequest& request,
                                                             Callback on_piece) {
  const ModelInfo& info = model.info;
  Prompt prompt = request.prompt;
  if (prompt.empty()) {
    if (model.bos < 0)
      return invalid_argument("the prompt is empty and {} names no token to begin a text with", info.path);
    prompt.push_back(model.bos);
  }
  REDLINE_TRY(model.ports.check(prompt));
  if (request.max_tokens < 0) return invalid_argument("max_tokens {} must not be negative", request.max_tokens);
  for (const int32_t id : request.stop_tokens)
    if (id < 0 || id >= info.vocab_size)
      return invalid_argument("stop token {} is outside the vocabulary of {}", id, info.vocab_size);
  if (request.num_speculative_tokens < -1 || request.num_speculative_tokens > TextEngineOptions::kMaxSpeculativeTokens)
    return invalid_argument("num_speculative_tokens {} is outside [-1, {}]; -1 is the engine's own number",
                            request.num_speculative_tokens, TextEngineOptions::kMaxSpeculativeTokens);
  if (request.min_tokens < 0) return invalid_argument("min_tokens {} must not be negative", request.min_tokens);
  if (!std::isfinite(request.timeout_ms) || request.timeout_ms < 0)
    return invalid_argument("timeout_ms {} must be finite and not negative", request.timeout_ms);
  const int64_t length = std::ssize(prompt);
  if (length > info.context)
    return invalid_argument("the prompt has {} tokens, the context holds {}; raise --context or shorten the prompt",
                            length, info.context);
  if (const int64_t end = PromptView(prompt).position_after(prompt.size()); end > model.max_position())
    return invalid_argument(
        "the positions of embeddings lead to {}; {} is the largest: raise the context or give smaller positions", end,
        model.max_position());
  const bool needs_texts = model.tokenizer && Sampler::needs_texts(request.sampling);
  REDLINE_ASSIGN(Sampler sampler, Sampler::create(request.sampling, info.vocab_size,
                                                  needs_texts ? model.constraints->vocabulary() : nullptr));
  std::shared_ptr<TextGeneration> g(new TextGeneration(model, std::move(sampler)));
  REDLINE_ASSIGN(g->stops_, StopStrings::create(request.stop));
  if (!request.stop.empty() && !model.tokenizer)
    return invalid_argument("stop strings need a tokenizer, and {} has none", info.path);
  if (model.tokenizer)
    g->decoder_ = std::make_unique<StreamDecoder>(
        *model.tokenizer,
        length == 1 && prompt.keys()[0] == token_key(model.bos) && request.constraint.kind == kUnconstrained,
        request.special);
  REDLINE_ASSIGN(const auto constraint, model.constraints->compile(request.constraint, request.chat_prompt));
  // Without its control tokens the text does not show where the answer begins.
  if (!request.stop.empty() && !request.chat_prompt.empty() && request.special && !request.stop_in_reasoning)
    g->answer_ = model.chat_reader(request.chat_prompt, request.constraint.tools, request.constraint.kind);
  if (constraint) {
    g->constraint_.emplace(constraint);
    g->allowed_.resize(constraint->trie().num_words());
    if (!request.chat_prompt.empty() && model.chat_template) {
      g->reasoning_.emplace(model.chat_template->source(), request.chat_prompt);
      REDLINE_ASSIGN(g->closing_, model.encode(g->reasoning_->end_marker(), true, false, {}));
      const auto ends = [&](int32_t id) {
        return std::binary_search(model.stop_tokens.begin(), model.stop_tokens.end(), id);
      };
      if (std::any_of(g->closing_.begin(), g->closing_.end(), ends)) g->closing_.clear();
    }
    // The first mask is computed here, on the thread of the caller, and not in the step that samples the first token.
    g->mask_status_ = g->constraint_->fill_mask(g->allowed_);
    g->has_mask_ = true;
  }
  if (constraint || request.min_tokens > 0) g->masked_.resize(static_cast<size_t>(info.vocab_size));
  REDLINE_ASSIGN(g->adapters_, model.adapters->select(request.adapters));
  g->prefix_key_ = PrefixKey(g->adapters_, request.cache_salt);
  g->request_ = request;
  g->request_.prompt = {};
  if (request.timeout_ms > 0) g->deadline_ms_ = now_ms() + request.timeout_ms;
  g->on_piece_ = std::move(on_piece);
  g->result_.prompt_tokens = length;
  g->text_ = std::move(prompt);
  return g;
}

PromptView TextGeneration::pending() const {
  const auto done = static_cast<size_t>(state_ ? state_->length() : 0);
  return PromptView(text_).subview(done, text_.size() - done);
}

void TextGeneration::set_cached(int64_t tokens, CacheMiss miss) {
  if (std::exchange(was_admitted_, true)) return;
  result_.queue_ms = ms_since_start();
  result_.cached_tokens = tokens;
  result_.cache_miss = miss;
}

double TextGeneration::now_ms() {
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

double TextGeneration::ms_since_start() const { return ms_since(start_); }

bool TextGeneration::show(std::string_view text, int32_t token, float logprob, std::span<const TokenLogprob> top) {
  result_.text += text;
  if (!on_piece_) return true;
  try {
    return on_piece_(TextPiece{text, token, logprob, top});
  } catch (...) {  // other requests share the thread
    delivery_.status = internal("on_piece has thrown an exception");
    return false;
  }
}

bool TextGeneration::is_stop_token(int32_t token) const {
  const std::vector<int32_t>& more = request_.stop_tokens;
  if (std::find(more.begin(), more.end(), token) != more.end()) return true;
  return !request_.ignore_stop_tokens &&
         std::binary_search(model_.stop_tokens.begin(), model_.stop_tokens.end(), token);
}

bool TextGeneration::is_context_full() const {
  if (std::ssize(text_) == model_.info.context) return true;
  return text_.has_embeddings() && PromptView(text_).position_after(text_.size()) >= model_.max_position();
}

std::span<const float> TextGeneration::without_stops(std::span<const float> logits) {
  if (num_sampled_ >= request_.min_tokens) return logits;
  if (logits.data() != masked_.data()) std::copy(logits.begin(), logits.end(), masked_.begin());
  constexpr float kExcluded = -std::numeric_limits<float>::infinity();
  std::vector<std::pair<int32_t, float>> stops;
  const auto exclude = [&](std::span<const int32_t> ids) {
    for (const int32_t id : ids) {
      if (id < 0 || id >= std::ssize(masked_)) continue;
      float& logit = masked_[static_cast<size_t>(id)];
      stops.emplace_back(id, std::exchange(logit, kExcluded));
    }
  };
  exclude(request_.stop_tokens);
  if (!request_.ignore_stop_tokens) exclude(model_.stop_tokens);
  if (constraint_ && std::all_of(masked_.begin(), masked_.end(), [](float x) { return x == kExcluded; }))
    for (auto stop = stops.rbegin(); stop != stops.rend(); ++stop)  // nothing but the end may follow
      masked_[static_cast<size_t>(stop->first)] = stop->second;
  return masked_;
}

void TextGeneration::accept_prompt() {
  if (std::exchange(has_accepted_prompt_, true)) return;
  const PromptView prompt = text_;
  size_t place = 0;
  for (const PromptView::RowSpan& rows : prompt.row_spans()) {
    sampler_.accept_prompt(prompt.tokens().subspan(place, rows.place - place));
    place = rows.place + static_cast<size_t>(rows.count);
  }
  sampler_.accept_prompt(prompt.tokens().subspan(place));
}

std::vector<SampleRow> TextGeneration::device_samples() {
  if (constraint_ || request_.num_logprobs >= 0) return {};
  accept_prompt();
  const size_t count = std::max<size_t>(1, draft_.size());
  std::vector<SampleRow> rows(count);
  Sampler::Checkpoint checkpoint;
  if (count > 1) checkpoint = sampler_.checkpoint();
  bool has_any = false;
  try {
    for (size_t i = 0; i < count; ++i) {
      // The device applies the penalties of a row as if the tokens drafted before it were accepted.
      if (i > 0) sampler_.accept(draft_[i]);
      const auto more = static_cast<int64_t>(i);
      if (num_sampled_ + more >= request_.min_tokens) rows[i] = sampler_.device_row(std::ssize(text_) + more);
      has_any = has_any || rows[i].kind != SampleRow::Kind::kHost;
    }
  } catch (const std::bad_alloc&) {  // the host samples
    has_any = false;
  }
  if (count > 1) sampler_.roll_back(checkpoint);
  if (!has_any) rows.clear();
  return rows;
}

void TextGeneration::set_drafter(std::unique_ptr<Drafter> drafter, int64_t max_tokens) {
  drafter_ = std::move(drafter);
  max_draft_ = max_tokens;
}

int64_t TextGeneration::max_draft() const {
  if (!drafter_ || !state_ || !has_prefilled_ || has_ended() || pending().size() != 1) return 0;
  // The last token of a text needs no step.
  int64_t most = std::min(max_draft_, request_.max_tokens - num_sampled_ - 1);
  most = std::min(most, model_.info.context - std::ssize(text_));
  if (text_.has_embeddings())
    most = std::min(most, model_.max_position() - PromptView(text_).position_after(text_.size()));
  return std::max<int64_t>(0, most);
}

std::span<const int32_t> TextGeneration::draft(int64_t max_tokens) try {
  draft_.clear();
  max_tokens = std::min(max_tokens, max_draft());
  if (max_tokens <= 0) return draft_;
  // Tokens of an earlier draft that no step has accepted are dropped.
  drafter_->roll_back(static_cast<int64_t>(num_observed_) + num_accepted_);
  if (const PromptView text = text_; num_observed_ < text.size()) {
    std::vector<int32_t> tokens(text.tokens().begin() + static_cast<std::ptrdiff_t>(num_observed_),
                                text.tokens().end());
    for (const PromptView::RowSpan& rows : text.subview(num_observed_, tokens.size()).row_spans())
      std::fill_n(tokens.begin() + static_cast<std::ptrdiff_t>(rows.place), rows.count, -1);
    drafter_->observe(tokens, num_accepted_);
    num_observed_ = text.size();
  }
  num_accepted_ = 0;
  Draft proposed;
  if (!drafter_->propose(max_tokens, proposed).ok()) {
    drafter_ = nullptr;
    return draft_;
  }
  draft_.push_back(text_.tokens().back());
  const size_t most = std::min(proposed.tokens.size(), static_cast<size_t>(max_tokens));
  for (size_t i = 0; i < most; ++i) {
    // Steps have no mask for the branches of a tree, so the chain that begins it is verified.
    const bool follows =
        proposed.parents.empty() || (i < proposed.parents.size() && proposed.parents[i] == static_cast<int32_t>(i) - 1);
    const int32_t token = proposed.tokens[i];
    if (!follows || token < 0 || token >= model_.info.vocab_size) break;
    draft_.push_back(token);
  }
  if (draft_.size() == 1) draft_.clear();
  return draft_;
} catch (const std::bad_alloc&) {  // a request that has no memory for drafts goes on without them
  drafter_ = nullptr;
  draft_.clear();
  return draft_;
}

int64_t TextGeneration::sample_rows(std::span<const float> logits, std::span<const int32_t> sampled) {
  const size_t rows = std::max<size_t>(1, draft_.size()), vocab = logits.size() / rows;
  size_t row = 0, accepted = 0;
  while (true) {
    const size_t count = sampled_.size();
    sample(logits.subspan(row * vocab, vocab), sampled.empty() ? -1 : sampled[row]);
    ++row;
    if (row == rows || sampled_.size() == count) break;
    Sampled& last = sampled_.back();
    if (last.token != draft_[row] || last.ends_text) break;
    ++accepted;
    if (has_ended()) break;
    if (!constraint_) continue;
    const Clock::time_point start = Clock::now();
    advance_constraint(last, true);
    if (ms_since(start) > kSlowConstraintMs) {
      max_draft_ = 0;
      break;
    }
    if (last.completes_constraint || !last.status.ok()) break;
  }
  if (rows > 1) num_accepted_ = static_cast<int64_t>(accepted);
  result_.drafted_tokens += static_cast<int64_t>(rows) - 1;
  result_.accepted_tokens += static_cast<int64_t>(accepted);
  return static_cast<int64_t>(row);
}

// This runs on a worker's thread, which an exception would end.
void TextGeneration::sample(std::span<const float> logits, int32_t sampled) try {
  if (!has_prefilled_) {
    has_prefilled_ = true;
    result_.prefill_ms = ms_since_start();
    accept_prompt();
  }
  if (num_sampled_ == request_.max_tokens) return end(FinishReason::kLength);
  if (constraint_ && constraint_->is_finished()) return end(FinishReason::kStop);
  Result<Sampled> next = Sampled{.token = sampled};
  if (sampled >= 0) next->ends_text = is_stop_token(sampled);
  else next = take(logits);
  if (!next.ok()) {
    const bool is_broken = std::any_of(logits.begin(), logits.end(),
                                       [](float x) { return !(x < std::numeric_limits<float>::infinity()); });
    return fail(is_broken ? explain_not_finite(next.status(), model_.info.path) : next.status());
  }
  const int32_t token = next->token;
  sampled_.push_back(std::move(next).value());
  if (sampled_.back().ends_text) return end(FinishReason::kStop);
  sampler_.accept(token);
  if (++num_sampled_ == request_.max_tokens) return end(FinishReason::kLength);
  if (is_context_full()) return end(FinishReason::kContext);
  text_.push_back(token);
} catch (const std::bad_alloc&) {
  fail(out_of_memory("no room to sample a token"));
}

Result<TextGeneration::Sampled> TextGeneration::take(std::span<const float> logits) {
  try {
    Sampled next;
    if (num_closed_ > 0 && num_closed_ < closing_.size()) {
      next.token = closing_[num_closed_++];
    } else {
      REDLINE_ASSIGN(const std::span<const float> allowed, constrained(logits));
      REDLINE_ASSIGN(next.token, sampler_.sample(without_stops(allowed), std::ssize(text_)));
      const std::vector<int32_t>& ends = model_.stop_tokens;
      if (may_close_reasoning() && std::binary_search(ends.begin(), ends.end(), next.token))
        next.token = closing_[num_closed_++];
    }
    if (request_.num_logprobs >= 0) {
      REDLINE_ASSIGN(next.logprob, sampler_.logprobs(logits, next.token, request_.num_logprobs, next.top));
    }
    next.ends_text = is_stop_token(next.token);
    return next;
  } catch (const std::bad_alloc&) {
    return out_of_memory("no room to sample a token");
  }
}

bool TextGeneration::may_close_reasoning() const {
  return reasoning_ && reasoning_->is_reasoning() && !closing_.empty() && num_closed_ == 0 &&
         !request_.ignore_stop_tokens;
}

Result<std::span<const float>> TextGeneration::constrained(std::span<const float> logits) {
  if (!constraint_) return logits;
  if (!std::exchange(has_mask_, false)) mask_status_ = constraint_->fill_mask(allowed_);
  REDLINE_TRY(mask_status_);
  const size_t size = std::min(logits.size(), masked_.size());
  constexpr float kExcluded = -std::numeric_limits<float>::infinity();
  bool has_any = false;
  for (size_t i = 0; i < size; i += 32) {
    const uint32_t bits = allowed_[i / 32];
    has_any = has_any || bits != 0;
    for (size_t j = i; j < std::min(size, i + 32); ++j) masked_[j] = bits >> (j - i) & 1 ? logits[j] : kExcluded;
  }
  if (request_.ignore_stop_tokens) {
    bool only_stops = true;
    for (size_t w = 0; w < allowed_.size(); ++w) {
      uint32_t bits = allowed_[w];
      for (const int32_t id : model_.stop_tokens)
        if (static_cast<size_t>(id) / 32 == w) bits &= ~(1U << (id % 32));
      only_stops = only_stops && bits == 0;
    }
    if (!only_stops)
      for (const int32_t id : model_.stop_tokens)
        if (id >= 0 && static_cast<size_t>(id) < size) masked_[static_cast<size_t>(id)] = kExcluded;
  }
  if (may_close_reasoning())
    for (const int32_t id : model_.stop_tokens)
      if (id >= 0 && static_cast<size_t>(id) < size) masked_[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)];
  if (!has_any) return invalid_argument("no token of the vocabulary continues the text as the constraint demands");
  return std::span<const float>(masked_);
}

bool TextGeneration::begin_delivery(bool ran) {
  if (is_settled_ || (!ran && !has_ended())) return false;
  delivery_ = {};
  delivery_.is_pending = true;
  delivery_.sampled = std::exchange(sampled_, {});
  delivery_.reason = reason_;
  delivery_.status = status_;
  return true;
}

bool TextGeneration::needs_preparation() const {
  return delivery_.is_pending && !delivery_.is_prepared && constraint_ && !delivery_.sampled.empty() &&
         !delivery_.sampled.back().ends_text && !delivery_.sampled.back().is_advanced;
}

void TextGeneration::prepare() {
  if (!needs_preparation()) return;
  delivery_.is_prepared = true;
  advance_constraint(delivery_.sampled.back(), !delivery_.reason);
}

void TextGeneration::advance_constraint(Sampled& sampled, bool goes_on) {
  sampled.is_advanced = true;
  try {
    sampled.status = constraint_->accept(sampled.token);
    if (reasoning_ && !reasoning_->has_ended()) {
      const Result<std::string> text = model_.decode(std::span(&sampled.token, 1), true);
      reasoning_->add(text.ok() ? *text : "");
    }
    sampled.completes_constraint = constraint_->is_finished();
    if (sampled.completes_constraint || !goes_on || !sampled.status.ok()) return;
    mask_status_ = constraint_->fill_mask(allowed_);
  } catch (const std::bad_alloc&) {
    mask_status_ = out_of_memory("no room for the output constraint");
  }
  has_mask_ = true;
}

void TextGeneration::deliver() {
  Delivery& d = delivery_;
  if (!d.is_pending) return;
  try {
    const std::optional<FinishReason> reason = std::exchange(d.reason, std::nullopt);
    Status status = std::exchange(d.status, {});
    for (const Sampled& sampled : d.sampled) {
      if (is_cancelled() && !sampled.ends_text) d.reason = FinishReason::kCancelled;
      else deliver_token(sampled);
      if (d.reason || !d.status.ok()) break;
    }
    const bool is_progress = d.sampled.empty() && !reason && status.ok();
    if (is_progress && (is_cancelled() || !show("", -1, 0, {}))) d.reason = FinishReason::kCancelled;
    if (!d.reason && d.status.ok()) {
      d.reason = reason;
      d.status = std::move(status);
    }
    if (d.reason) deliver_end();
  } catch (const std::bad_alloc&) {
    d.status = out_of_memory("no room for the text of a request");
  }
}

void TextGeneration::deliver_token(const Sampled& sampled) {
  Delivery& d = delivery_;
  if (const int64_t made = std::ssize(result_.tokens); made == 0) {
    result_.first_token_ms = ms_since_start();
    decode_start_ = Clock::now();
  } else {
    result_.decode_tokens = made;
    result_.decode_ms = ms_since(decode_start_);
  }
  if (sampled.ends_text) return;
  if (!sampled.status.ok()) {
    d.status = sampled.status;
    return;
  }
  result_.tokens.push_back(sampled.token);
  ++d.tokens;
  const std::string text = decoder_ ? shown_of(decoder_->push(sampled.token)) : "";
  const bool go_on = show(text, sampled.token, sampled.logprob, sampled.top);
  if (stops_.found() || (go_on && sampled.completes_constraint)) d.reason = FinishReason::kStop;
  else if (!go_on) d.reason = FinishReason::kCancelled;
}

/// Applies stop strings to the answer only; the text of the reasoning is passed on unchanged.
std::string TextGeneration::shown_of(std::string_view text) {
  if (!answer_) return stops_.push(text);
  std::vector<ChatDelta> unused;
  answer_->push(text, unused);
  undecided_ += text;
  std::string shown;
  for (const ChatOutputParser::Part& part : answer_->take_parts()) {
    const std::string piece = undecided_.substr(0, part.bytes);
    undecided_.erase(0, part.bytes);
    if (stops_.found()) break;
    shown += part.is_answer ? stops_.push(piece) : stops_.finish() + piece;
  }
  return shown;
}

// Emits text that was held back as a possible part of a character or of a stop string.
void TextGeneration::deliver_end() {
  if (!delivery_.status.ok()) return;
  result_.reason = *delivery_.reason;
  std::string rest = decoder_ && !stops_.found() ? shown_of(decoder_->finish()) : "";
  if (!stops_.found()) rest += stops_.push(std::exchange(undecided_, {}));
  if (!stops_.found()) rest += stops_.finish();
  if (rest.empty()) return;
  if (*delivery_.reason == FinishReason::kCancelled) result_.text += rest;
  else show(rest, -1, 0, {});
}

int64_t TextGeneration::settle() {
  Delivery& d = delivery_;
  if (!std::exchange(d.is_pending, false)) return 0;
  if (d.reason || !d.status.ok()) {
    reason_ = d.reason;
    status_ = std::move(d.status);
    is_settled_ = true;
  }
  return d.tokens;
}

void TextGeneration::end(FinishReason reason) {
  if (!has_ended()) reason_ = reason;
}

void TextGeneration::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void TextGeneration::publish() {
  on_piece_ = nullptr;  // it may hold the handle of this request
  std::lock_guard lock(mutex_);
  done_.store(true, std::memory_order_release);
  published_.notify_all();
}

Result<GenerateResult> TextGeneration::wait() {
  std::unique_lock lock(mutex_);
  published_.wait(lock, [&] { return is_done(); });
  if (is_taken_) return invalid_argument("the result of this request has been taken");
  is_taken_ = true;
  if (!status_.ok()) return status_;
  return std::move(result_);
}

}  // namespace redline
