// Beam search over sequences of the public API: forks share pages, and one batch continues all beams.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "llm/sampler.h"
#include "models/checkpoint/weight_examiner.h"
#include "redline/text.h"

namespace redline {
namespace {

struct LiveBeam {
  std::unique_ptr<Sequence> sequence;
  std::vector<int32_t> tokens;
  double logprob = 0;
};

/// A beam with one more token.
struct Continuation {
  size_t beam;
  int32_t token;
  double logprob;
};

class BeamSearch {
 public:
  BeamSearch(TextEngine& engine, const BeamSearchRequest& request, Sampler sampler)
      : engine_(engine), request_(request), sampler_(std::move(sampler)),
        vocab_size_(static_cast<size_t>(engine.info().vocab_size)), width_(static_cast<size_t>(request.beam_width)) {}

  Result<std::vector<Beam>> run(const std::function<bool(int64_t)>& on_step) {
    REDLINE_TRY(read_prompt());
    FinishReason reason = FinishReason::kLength;
    for (int64_t step = 0; step < request_.max_tokens && !beams_.empty() && !is_decided(step); ++step) {
      if (prompt_end() + step > engine_.info().context) {
        reason = FinishReason::kContext;
        break;
      }
      REDLINE_ASSIGN(const std::vector<Continuation> best, continuations());
      const bool needs_logits = step + 1 < request_.max_tokens && prompt_end() + step < engine_.info().context;
      REDLINE_TRY(go_on(best, needs_logits));
      if (on_step && !on_step(step + 1)) {
        reason = FinishReason::kCancelled;
        break;
      }
    }
    for (LiveBeam& beam : beams_) ended_.push_back({std::move(beam.tokens), "", beam.logprob, 0, reason});
    return result();
  }

 private:
  int64_t prompt_tokens() const { return std::ssize(request_.prompt); }
  /// Returns where the text goes on. On a single axis, positions of rows may lead further than their number.
  int64_t prompt_end() const {
    const Prompt& prompt = request_.prompt;
    if (engine_.info().position_axes > 1) return prompt_tokens();
    return std::max(prompt_tokens(), PromptView(prompt).position_after(prompt.size()));
  }
  double score(double logprob, int64_t tokens) const {
    return logprob / std::pow(static_cast<double>(prompt_tokens() + tokens), request_.length_penalty);
  }

  Status read_prompt() {
    LiveBeam& first = beams_.emplace_back();
    REDLINE_ASSIGN(first.sequence, engine_.new_sequence(request_.adapters));
    REDLINE_ASSIGN(logits_, first.sequence->forward(request_.prompt));
    return {};
  }

  /// Returns true if no beam can still be among the best. Log probabilities only decrease, so a beam's score is largest
  /// at the current length or at max_tokens.
  bool is_decided(int64_t tokens) const {
    if (ended_.size() < width_) return false;
    std::vector<double> scores;
    for (const Beam& beam : ended_) scores.push_back(score(beam.logprob, std::ssize(beam.tokens)));
    std::nth_element(scores.begin(), scores.begin() + request_.beam_width - 1, scores.end(), std::greater<>());
    const double least = scores[width_ - 1];
    return std::all_of(beams_.begin(), beams_.end(), [&](const LiveBeam& beam) {
      return std::max(score(beam.logprob, tokens), score(beam.logprob, request_.max_tokens)) <= least;
    });
  }

  /// Ends texts at their stop tokens and returns the most likely continuations of the others.
  Result<std::vector<Continuation>> continuations() {
    const std::vector<int32_t>& stops = engine_.info().stop_tokens;
    std::vector<Continuation> all;
    for (size_t b = 0; b < beams_.size(); ++b) {
      const LiveBeam& beam = beams_[b];
      const std::span<const float> logits = std::span(logits_).subspan(b * vocab_size_, vocab_size_);
      const int64_t wanted = 2 * std::min<int64_t>(request_.beam_width, engine_.info().vocab_size);
      if (const auto found = sampler_.logprobs(logits, 0, wanted, top_); !found.ok())
        return found.status().code() == Code::internal ? WeightExaminer(engine_.info().path).explain(found.status())
                                                       : found.status();
      for (const TokenLogprob& next : top_) {
        if (std::isinf(next.logprob)) continue;
        const double logprob = beam.logprob + double{next.logprob};
        if (!request_.ignore_stop_tokens && std::binary_search(stops.begin(), stops.end(), next.id))
          ended_.push_back({beam.tokens, "", logprob, 0, FinishReason::kStop});
        else all.push_back({b, next.id, logprob});
      }
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Continuation& a, const Continuation& b) { return a.logprob > b.logprob; });
    if (all.size() > width_) all.resize(width_);
    return all;
  }

  Status go_on(const std::vector<Continuation>& best, bool needs_logits) {
    std::vector<LiveBeam> next;
    std::vector<size_t> uses(beams_.size());  // remaining continuations of each beam
    for (const Continuation& c : best) ++uses[c.beam];
    for (const Continuation& c : best) {
      LiveBeam& from = beams_[c.beam];
      LiveBeam& to = next.emplace_back();
      to.tokens = from.tokens;
      to.tokens.push_back(c.token);
      to.logprob = c.logprob;
      if (!needs_logits) continue;
      if (--uses[c.beam] == 0) {
        to.sequence = std::move(from.sequence);
      } else {
        REDLINE_ASSIGN(to.sequence, from.sequence->fork());
      }
    }
    beams_ = std::move(next);
    if (!needs_logits) return {};
    logits_.resize(beams_.size() * vocab_size_);
    const BatchLimits limits = engine_.batch_limits();
    const auto most = static_cast<size_t>(std::min({limits.sequences, limits.tokens, limits.logit_rows}));
    for (size_t begin = 0; begin < beams_.size(); begin += most) {
      std::vector<BatchEntry> batch;
      for (size_t b = begin; b < std::min(beams_.size(), begin + most); ++b)
        batch.push_back({beams_[b].sequence.get(), std::span(&beams_[b].tokens.back(), 1),
                         std::span(logits_).subspan(b * vocab_size_, vocab_size_)});
      REDLINE_TRY(engine_.run_batch(batch));
    }
    return {};
  }

  Result<std::vector<Beam>> result() {
    for (Beam& beam : ended_) beam.score = score(beam.logprob, std::ssize(beam.tokens));
    std::stable_sort(ended_.begin(), ended_.end(), [](const Beam& a, const Beam& b) { return a.score > b.score; });
    if (ended_.size() > width_) ended_.resize(width_);
    if (!engine_.info().has_tokenizer) return std::move(ended_);
    // The text is decoded together with the prompt, because the first token of a text may lose its space.
    REDLINE_ASSIGN(const std::string prompt, engine_.decode(request_.prompt.tokens()));
    for (Beam& beam : ended_) {
      std::vector<int32_t> tokens = request_.prompt.tokens();
      tokens.insert(tokens.end(), beam.tokens.begin(), beam.tokens.end());
      REDLINE_ASSIGN(beam.text, engine_.decode(tokens));
      if (beam.text.starts_with(prompt)) beam.text.erase(0, prompt.size());
    }
    return std::move(ended_);
  }

  TextEngine& engine_;
  const BeamSearchRequest& request_;
  Sampler sampler_;
  const size_t vocab_size_, width_;
  std::vector<LiveBeam> beams_;
  std::vector<float> logits_;  ///< [beams, vocab_size]
  std::vector<TokenLogprob> top_;
  std::vector<Beam> ended_;
};

}  // namespace

Result<std::vector<Beam>> beam_search(TextEngine& engine, const BeamSearchRequest& request,
                                      const std::function<bool(int64_t tokens)>& on_step) {
  if (request.prompt.empty()) return invalid_argument("beam search: the prompt is empty");
  if (request.beam_width < 1) return invalid_argument("beam_width is {}; allowed: 1 or more", request.beam_width);
  if (request.max_tokens < 0) return invalid_argument("max_tokens {} must not be negative", request.max_tokens);
  if (!std::isfinite(request.length_penalty))
    return invalid_argument("length_penalty is {}; allowed: a finite number", request.length_penalty);
  REDLINE_ASSIGN(Sampler sampler, Sampler::create({}, engine.info().vocab_size));
  return BeamSearch(engine, request, std::move(sampler)).run(on_step);
}

}  // namespace redline
