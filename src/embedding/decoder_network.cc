// A language model as an encoder: the hidden states of the tokens of each text, of which an embedding takes the last
// (Qwen3-Embedding, arXiv:2506.05176) or the mean.
#include <algorithm>
#include <mutex>

#include "embedding/text_network.h"
#include "llm/stepper.h"

namespace redline {
namespace {

constexpr int64_t kMaxDecoderSequences = 64;

class DecoderNetwork final : public TextNetwork {
 public:
  DecoderNetwork(std::unique_ptr<Stepper> stepper, int64_t width, int64_t tokens)
      : stepper_(std::move(stepper)), width_(width), limits_{tokens, stepper_->limits().sequences} {}

  Limits limits() const override { return limits_; }
  int64_t cache_bytes() const override { return stepper_->cache_bytes(); }

  Status run(std::span<const TokenSequence> batch, const Take& take) override {
    const std::lock_guard lock(stepper_->mutex());
    const BatchLimits limits = stepper_->limits();
    std::vector<std::unique_ptr<SequenceState>> states;
    for (size_t i = 0; i < batch.size(); ++i) states.push_back(std::make_unique<SequenceState>(stepper_->pool()));
    std::vector<StepEntry> step;
    for (size_t first = 0; first < batch.size();) {
      step.clear();
      size_t ended = 0;  // texts whose last token is in this step
      int64_t room = limits.tokens;
      for (size_t i = first; i < batch.size() && room > 0 && std::ssize(step) < limits.sequences; ++i) {
        const auto rest = batch[i].ids.subspan(static_cast<size_t>(states[i]->length()));
        const auto part = rest.first(static_cast<size_t>(std::min(room, std::ssize(rest))));
        // The rows that are read are the last ones of the text.
        const int64_t length = std::ssize(batch[i].ids), end = states[i]->length() + std::ssize(part),
                      unread = batch[i].rows > 0 ? length - batch[i].rows : 0;
        step.push_back({.state = states[i].get(),
                        .tokens = part,
                        .hidden_rows = std::clamp<int64_t>(end - unread, 0, std::ssize(part)),
                        .expected_length = length});
        if (end == length) ++ended;
        room -= std::ssize(part);
      }
      REDLINE_TRY(stepper_->step(step));
      const float* hidden = stepper_->hidden();
      for (size_t i = 0; i < step.size(); ++i) {
        if (step[i].hidden_rows > 0) take(first + i, hidden, step[i].hidden_rows);
        hidden += step[i].hidden_rows * width_;
      }
      for (size_t i = 0; i < ended; ++i) states[first + i].reset();
      first += ended;
    }
    return {};
  }

 private:
  std::unique_ptr<Stepper> stepper_;
  int64_t width_;
  Limits limits_;
};

}  // namespace

Result<std::unique_ptr<TextNetwork>> make_decoder_network(LanguageModel& model, const EmbeddingOptions& options,
                                                          const DeviceChoice& device, RuntimeResources& runtime) {
  TextEngineOptions o;
  // The weights were converted when the checkpoint was read.
  o.dtype = options.dtype == Precision::kF32 ? Precision::kF32 : Precision::kAuto;
  o.use_interpreter = options.use_interpreter;
  o.max_sequences = kMaxDecoderSequences;
  o.max_batch_tokens = options.max_batch_tokens;
  // The cache holds one batch of texts, each on whole pages.
  const int64_t tokens = std::max(options.max_batch_tokens, options.max_length);
  o.cache_tokens = tokens + kMaxDecoderSequences * kKvPageTokens;
  const int64_t width = model.config.hidden_size;
  StepModel step_model;
  step_model.graph = std::move(model.graph);
  step_model.vocab_size = model.config.vocab_size;
  step_model.context = options.max_length;
  REDLINE_ASSIGN(auto stepper, Stepper::make(std::move(step_model), o, device, runtime));
  return std::unique_ptr<TextNetwork>(new DecoderNetwork(std::move(stepper), width, tokens));
}

}  // namespace redline
