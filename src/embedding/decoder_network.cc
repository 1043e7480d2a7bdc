// A language model as an encoder: the hidden state after the last token of each text (Qwen3-Embedding,
// arXiv:2506.05176).
#include <algorithm>
#include <mutex>
#include <numeric>

#include "embedding/text_network.h"
#include "graph/ops/linear.h"
#include "graph/ops/soft_cap.h"
#include "llm/stepper.h"

namespace redline {
namespace {

constexpr int64_t kMaxDecoderSequences = 64;

/// Removes the LM head and the soft cap after it: rows of "logits" are then hidden states after the last norm.
Status keep_hidden(Graph& graph) {
  const auto cap = std::find_if(graph.ops.begin(), graph.ops.end(),
                                [&](const Op& op) { return op.def == &kSoftCap && op.outputs[0] == graph.outputs[0]; });
  if (cap != graph.ops.end()) {
    std::swap(graph.values[static_cast<size_t>(cap->inputs[0])].name,
              graph.values[static_cast<size_t>(cap->outputs[0])].name);
    graph.outputs[0] = cap->inputs[0];
    graph.ops.erase(cap);
  }
  const auto head = std::find_if(graph.ops.begin(), graph.ops.end(),
                                 [&](const Op& op) { return op.def == &kLinear && op.outputs[0] == graph.outputs[0]; });
  if (graph.outputs.size() != 1 || head == graph.ops.end()) return internal("{}: no output matrix", graph.name);
  graph.outputs[0] = head->inputs[0];
  std::swap(graph.values[static_cast<size_t>(head->inputs[0])].name,
            graph.values[static_cast<size_t>(head->outputs[0])].name);
  graph.ops.erase(head);
  return {};
}

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
    std::vector<size_t> ends;  // indices of the texts whose last token is in this step
    for (size_t first = 0; first < batch.size();) {
      step.clear();
      ends.clear();
      int64_t room = limits.tokens;
      for (size_t i = first; i < batch.size() && room > 0 && std::ssize(step) < limits.sequences; ++i) {
        const auto rest = batch[i].ids.subspan(static_cast<size_t>(states[i]->length()));
        const auto part = rest.first(static_cast<size_t>(std::min(room, std::ssize(rest))));
        const bool is_last = part.size() == rest.size();
        step.push_back({.state = states[i].get(),
                        .tokens = part,
                        .logit_rows = is_last ? 1 : 0,
                        .expected_length = std::ssize(batch[i].ids)});
        if (is_last) ends.push_back(i);
        room -= std::ssize(part);
      }
      REDLINE_TRY(stepper_->step(step));
      for (size_t row = 0; row < ends.size(); ++row) {
        take(ends[row], stepper_->logits() + static_cast<int64_t>(row) * width_, 1);
        states[ends[row]].reset();
      }
      first += ends.size();
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
  REDLINE_TRY(keep_hidden(model.graph));
  TextModel description;
  description.config = model.config;
  description.info.context = options.max_length;
  description.info.vocab_size = model.config.vocab_size;
  TextEngineOptions o;
  o.dtype = options.dtype == Precision::kF32 ? ComputeType::kF32 : ComputeType::kAuto;
  o.use_interpreter = options.use_interpreter;
  o.max_sequences = kMaxDecoderSequences;
  o.max_batch_tokens = options.max_batch_tokens;
  // The cache holds one batch of texts, each on whole pages.
  const int64_t tokens = std::max(options.max_batch_tokens, options.max_length);
  o.cache_tokens = tokens + kMaxDecoderSequences * kKvPageTokens;
  const int64_t width = model.config.hidden_size;
  REDLINE_ASSIGN(auto stepper, Stepper::make(std::move(model.graph), description, o, device, runtime));
  return std::unique_ptr<TextNetwork>(new DecoderNetwork(std::move(stepper), width, tokens));
}

}  // namespace redline
