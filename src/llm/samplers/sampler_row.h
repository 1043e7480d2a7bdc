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

/// What `SamplerStep::cut` has found: all tokens that are left are in its output, or they are those not less likely
/// than `last`; neither, there is no shortcut.
struct RowCut {
  bool is_written = false;
  std::optional<Candidate> last;
};

/// The samplers that a back end applies, in its order (SampleRow).
enum class DeviceOrder : uint8_t { kNone, kPenalties, kTemperature, kTopK, kTopP, kMinP };

/// A sampler of one sequence.
class SamplerStep {
 public:
  virtual ~SamplerStep() = default;

  /// Removes candidates, or changes their logits or their temperature. At least one is left.
  virtual void apply(Candidates& candidates, int64_t position) = 0;
  /// The token that came out, if this step or a later one went through apply().
  virtual void observe(const Candidates::Drawn&) {}

  /// Adds the sampler to `row`. kNone: only the host has it.
  virtual DeviceOrder add_to(SampleRow&) const { return DeviceOrder::kNone; }

  // Shortcuts of the first steps, to which all tokens are candidates. The result is that of apply(), to the last bit.

  /// Changes the logits of the whole vocabulary. Steps of kind kPenalty only.
  virtual void apply_to_logits(std::span<float>) {}
  /// The temperature, if no candidate needs to be seen for it.
  virtual std::optional<float> fixed_temperature() const { return std::nullopt; }
  /// Whether cut() needs the sums that LogitRow::scan takes with a temperature.
  virtual bool needs_sums() const { return false; }
  /// Finds the tokens that are left without a look at most of the others.
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

/// Where a sampler stands among the others, and what turns it off.
enum class SamplerKind : uint8_t {
  kPenalty,      ///< PenaltyStep; acts on a greedy choice too
  kTemperature,  ///< off where the choice is greedy
  kTruncation,   ///< removes tokens; off where the choice is greedy, or a sampler of kind kFeedback is active
  kFeedback,     ///< the same, but always last, and in no list of samplers: its state follows the tokens that come out
};

/// What a step is made from. `history` outlives it.
struct SamplerContext {
  const SamplingOptions& options;
  TokenHistory& history;
  int64_t vocab_size;
};

struct SamplerRow {
  std::string_view name;
  std::span<const std::string_view> aliases = {};  ///< other spellings in SamplingOptions::samplers
  SamplerKind kind;
  std::string_view after = {};  ///< in the default order, the sampler of its kind that comes before; empty: the first
  std::span<const SamplingParameter> parameters;
  /// Whether it has an effect with these options, beside what its kind says.
  bool (*is_active)(const SamplingOptions& options);
  std::unique_ptr<SamplerStep> (*make)(const SamplerContext& context);
};

template <class T>
std::unique_ptr<SamplerStep> make_sampler_step(const SamplerContext& context) {
  return std::make_unique<T>(context);
}

}  // namespace redline
