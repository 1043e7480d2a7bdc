#include "llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace redline {

bool Sampler::needs_texts(const SamplingOptions& options) {
  return !options.bad_words.empty() || (TokenHistory::has_dry(options) && !options.dry_sequence_breakers.empty());
}

Result<Sampler> Sampler::create(const SamplingOptions& o, int64_t vocab_size,
                                std::shared_ptr<const TokenTrie> vocabulary, const CpuKernels* kernels) {
  REDLINE_ASSIGN(const std::vector<const SamplerRow*> samplers, active_sampler_rows(o));
  if (vocab_size < 1 || vocab_size > kMaxLogits)
    return invalid_argument("sampler: the vocabulary has {} tokens; allowed: 1 to {}", vocab_size, kMaxLogits);
  for (const auto& [token, bias] : o.logit_bias)
    if (token < 0 || token >= vocab_size)
      return invalid_argument("logit_bias: token {} is outside the vocabulary of {}", token, vocab_size);
  if (!o.bad_words.empty() && !vocabulary) return not_found("bad_words need a tokenizer, and the model has none");
  if (kernels == nullptr) {
    REDLINE_ASSIGN(kernels, cpu_kernels());
  }
  return Sampler(o, vocab_size, std::move(vocabulary), *kernels, samplers);
}

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size, std::shared_ptr<const TokenTrie> vocabulary,
                 const CpuKernels& kernels, std::span<const SamplerRow* const> samplers)
    : options_(options), history_(std::make_unique<TokenHistory>(options, vocab_size, vocabulary)),
      row_(kernels, vocab_size), candidates_(kernels) {
  if (!options.bad_words.empty()) bad_words_.emplace(options.bad_words, std::move(vocabulary));
  for (const SamplerRow* row : samplers) {
    if (row->kind == SamplerKind::kPenalty && first_penalties_ == steps_.size()) ++first_penalties_;
    steps_.push_back(row->make({options_, *history_, vocab_size}));
  }
  const auto size = static_cast<size_t>(vocab_size);
  if (!options.logit_bias.empty() || bad_words_ || first_penalties_ > 0) changed_.resize(size);
  candidates_.reserve(size);
}

void Sampler::accept_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens)
    if (token >= 0 && token < row_.vocab_size()) history_->accept_prompt(token);
}

void Sampler::accept(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= row_.vocab_size()) continue;
    history_->accept(token);
    if (bad_words_) bad_words_->accept(token);
  }
}

Sampler::Checkpoint Sampler::checkpoint() const {
  Checkpoint now{history_->checkpoint(), bad_words_ ? std::string(bad_words_->tail()) : std::string(), {}};
  now.steps.reserve(steps_.size());
  for (const std::unique_ptr<SamplerStep>& step : steps_) now.steps.push_back(step->state());
  return now;
}

void Sampler::roll_back(const Checkpoint& checkpoint) {
  history_->roll_back(checkpoint.history);
  if (bad_words_) bad_words_->roll_back(checkpoint.word_tail);
  for (size_t step = 0; step < steps_.size(); ++step) steps_[step]->set_state(checkpoint.steps[step]);
}

void Sampler::change_logits(std::span<const float> logits) {
  std::copy(logits.begin(), logits.end(), changed_.begin());
  for (const auto& [token, bias] : options_.logit_bias) changed_[static_cast<size_t>(token)] += bias;
  if (bad_words_)
    bad_words_->for_each_excluded(
        [&](int32_t token) { changed_[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity(); });
  for (size_t step = 0; step < first_penalties_; ++step) steps_[step]->apply_to_logits(changed_);
}

Result<int32_t> Sampler::sample(std::span<const float> logits, int64_t position) {
  size_t step = 0;
  const std::span<const float> given = logits;
  if (!changed_.empty() && std::ssize(logits) == row_.vocab_size()) {
    change_logits(logits);
    step = first_penalties_;
    logits = changed_;
  }
  const bool takes_best = step == steps_.size() && options_.temperature == 0;
  float temperature = 1;
  if (step < steps_.size())
    if (const std::optional<float> fixed = steps_[step]->fixed_temperature()) {
      temperature = *fixed;
      ++step;
    }
  SamplerStep* const first = step < steps_.size() ? steps_[step].get() : nullptr;
  const bool needs_sums = first != nullptr && first->needs_sums();
  if (Status status = row_.scan(logits, position, needs_sums ? temperature : 0); !status.ok()) {
    if ((bad_words_ || !options_.logit_bias.empty()) && row_.scan(given, position).ok())
      return invalid_argument("position {}: logit_bias and bad_words leave no token to choose", position);
    return status;
  }
  if (takes_best) return row_.best_id();

  const double u = uniform_at(options_.seed, static_cast<uint64_t>(position));
  if (first == nullptr) return row_.draw(temperature, u);
  const RowCut cut = first->cut(row_, temperature, candidates_);
  if (cut.is_written) {
    ++step;
  } else if (cut.last) {
    if (++step == steps_.size()) return row_.draw_down_to(*cut.last, temperature, u);
    row_.keep_down_to(*cut.last, temperature, candidates_);
  } else {
    row_.all(candidates_);
    candidates_.set_temperature(temperature);
  }
  for (; step < steps_.size(); ++step) steps_[step]->apply(candidates_, position);
  const Candidates::Drawn drawn = candidates_.draw(u);
  for (const std::unique_ptr<SamplerStep>& sampler : steps_) sampler->observe(drawn);
  return drawn.id;
}

SampleRow Sampler::device_row(int64_t position) const {
  SampleRow row;
  if (bad_words_) return row;
  row.edits.reserve(options_.logit_bias.size());
  for (const auto& [token, bias] : options_.logit_bias) row.edits.push_back({token, bias});
  std::sort(row.edits.begin(), row.edits.end(),
            [](const LogitEdit& a, const LogitEdit& b) { return a.token < b.token; });
  for (size_t i = 1; i < row.edits.size(); ++i)
    if (row.edits[i].token == row.edits[i - 1].token) return row;
  DeviceOrder last = DeviceOrder::kNone;
  for (const std::unique_ptr<SamplerStep>& step : steps_) {
    const DeviceOrder order = step->add_to(row);
    if (order <= last) return row;
    last = order;
  }
  row.u = uniform_at(options_.seed, static_cast<uint64_t>(position));
  const bool takes_best = last <= DeviceOrder::kPenalties && options_.temperature == 0;
  row.kind = takes_best ? SampleRow::Kind::kGreedy : SampleRow::Kind::kDraw;
  return row;
}

Result<float> Sampler::logprobs(std::span<const float> logits, int32_t token, int64_t count,
                                std::vector<TokenLogprob>& top) {
  REDLINE_TRY(row_.scan(logits, -1));
  if (token < 0 || token >= row_.vocab_size())
    return invalid_argument("sampler: token {} is outside the vocabulary of {}", token, logits.size());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - row_.best());
  const double log_sum = std::log(sum) + row_.best();

  top.clear();
  const int64_t wanted = std::clamp<int64_t>(count, 0, row_.vocab_size());
  if (wanted > 0) {
    if (!row_.top_k(wanted, 1, candidates_) || std::ssize(candidates_) < wanted) {
      candidates_.clear();
      for (size_t i = 0; i < logits.size(); ++i) candidates_.add({logits[i], static_cast<int32_t>(i)});
      candidates_.keep_top_k(wanted);
    }
    std::vector<Candidate> best(candidates_.tokens().begin(), candidates_.tokens().end());
    std::sort(best.begin(), best.end(), likelier);
    for (const Candidate& c : best) top.push_back({c.id, static_cast<float>(c.logit - log_sum)});
  }
  return static_cast<float>(logits[static_cast<size_t>(token)] - log_sum);
}

}  // namespace redline
