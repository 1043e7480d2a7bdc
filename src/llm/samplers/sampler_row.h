// The row of a sampler. Each file in samplers/ defines one, which the build finds: top_k.cc defines kTopKSampler.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "llm/candidates.h"
#include "llm/logit_row.h"
#include "llm/token_history.h"
#include "redline/sampling_parameters.h"

namespace redline {

/// Result of SamplerStep::cut(). If `is_written`, `out` has all remaining tokens. If `last` is set, the remaining
/// tokens are those at least as likely as it. Otherwise nothing is known: there is no shortcut.
struct RowCut {
  bool is_written = false;
  std::optional<Candidate> last;
};

/// The samplers that a back end can apply, in its fixed order (SampleRow).
enum class DeviceOrder : uint8_t { kNone, kPenalties, kTemperature, kTopK, kTopP, kMinP };

/// A sampler with the state of one sequence.
class SamplerStep {
 public:
  virtual ~SamplerStep() = default;

  /// Removes candidates, or changes their logits or their temperature. At least one candidate remains.
  virtual void apply(Candidates& candidates, int64_t position) = 0;
  /// Receives the sampled token, if apply() was called for this step or a later one.
  virtual void observe(const Candidates::Drawn&) {}
  /// Returns the state that observe() changes, for set_state(), which returns to it.
  virtual double state() const { return 0; }
  virtual void set_state(double) {}

  /// Adds the sampler to `row` and returns its place there; kNone: only the host has this sampler.
  virtual DeviceOrder add_to(SampleRow&) const { return DeviceOrder::kNone; }

  // Shortcuts for the first steps, for which all tokens are candidates. The result equals that of apply() to the last
  // bit.

  /// Changes the logits of the whole vocabulary. Steps of kind kPenalty only.
  virtual void apply_to_logits(std::span<float>) {}
  /// Returns the temperature, if it does not depend on the candidates.
  virtual std::optional<float> fixed_temperature() const { return std::nullopt; }
  /// Returns true if cut() needs the sums that LogitRow::scan() computes with a temperature.
  virtual bool needs_sums() const { return false; }
  /// Finds the remaining tokens without examining most of the others.
  virtual RowCut cut(LogitRow&, float /*temperature*/, Candidates& /*out*/) { return {}; }
};

/// A sampler that changes the logits of single tokens by the text so far.
class PenaltyStep : public SamplerStep {
 public:
  void apply(Candidates& candidates, int64_t /*position*/) final {
    penalize([&](int32_t token) { return candidates.logit_of(token); });
  }
  void apply_to_logits(std::span<float> logits) final {
    penalize([&](int32_t token) { return &logits[static_cast<size_t>(token)]; });
  }

 private:
  virtual void penalize(const TokenHistory::LogitOf& logit_of) = 0;
};

/// Place of a sampler among the others, and the conditions under which it is off.
enum class SamplerKind : uint8_t {
  kPenalty,      ///< a PenaltyStep; also acts on a greedy choice
  kTemperature,  ///< off if the choice is greedy
  kTruncation,   ///< removes tokens; off if the choice is greedy or a sampler of kind kFeedback is active
  /// removes tokens by a state that follows the sampled tokens; always last, and not in SamplingOptions::samplers
  kFeedback,
};

/// Arguments of SamplerRow::make. `history` outlives the step.
struct SamplerContext {
  const SamplingOptions& options;
  TokenHistory& history;
  int64_t vocab_size;
};

struct SamplerRow {
  std::string_view name;
  std::span<const std::string_view> aliases = {};  ///< other spellings in SamplingOptions::samplers
  SamplerKind kind;
  std::string_view after = {};  ///< the preceding sampler of the same kind in the default order; empty: the first
  std::span<const SamplingParameter> parameters;
  /// Returns true if the sampler has an effect with these options, apart from the conditions of its kind.
  bool (*is_active)(const SamplingOptions& options);
  std::unique_ptr<SamplerStep> (*make)(const SamplerContext& context);
};

template <class T>
std::unique_ptr<SamplerStep> make_sampler_step(const SamplerContext& context) {
  return std::make_unique<T>(context);
}

}  // namespace redline
