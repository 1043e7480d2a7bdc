#include "embedding/text_network.h"

#include <algorithm>

namespace redline {
namespace {

constexpr int64_t kMaxEncoderSequences = 256;

ExecutableOptions executable_options(const EmbeddingOptions& options, const DeviceChoice& device) {
  ExecutableOptions e;
  e.device = device;
  e.interpret = options.use_interpreter;
  e.exact_f32 = options.dtype == Precision::kF32;
  e.batch_invariance = BatchInvariance::kWhereFree;
  // The format does not depend on the machine, although another one may be faster: vectors are stored and compared for
  // years, and attention is a small part of their time.
  e.pack_kv_format = e.exact_f32 ? KvFormat::kF32 : KvFormat::kF16;
  return e;
}

class EncoderNetwork final : public TextNetwork {
 public:
  EncoderNetwork(Executable network, const EncoderModel& model, Limits limits)
      : network_(std::move(network)), limits_(limits), width_(model.width), first_position_(model.first_position) {}

  Limits limits() const override { return limits_; }

  Status run(std::span<const TokenSequence> batch, const Take& take) override {
    int32_t *tokens = network_.input_i32("tokens"), *positions = network_.input_i32("positions"),
            *offsets = network_.input_i32("offsets"),
            *types = network_.has_input("token_types") ? network_.input_i32("token_types") : nullptr;
    int32_t row = 0;
    *offsets = 0;
    for (const TokenSequence& sequence : batch) {
      const auto count = static_cast<int64_t>(sequence.ids.size());
      std::copy(sequence.ids.begin(), sequence.ids.end(), tokens + row);
      for (int64_t i = 0; i < count; ++i) {
        positions[row + i] = static_cast<int32_t>(first_position_ + i);
        if (types) types[row + i] = sequence.second > 0 && i >= sequence.second ? 1 : 0;
      }
      row += static_cast<int32_t>(count);
      *++offsets = row;
    }
    SymbolValues sizes;
    sizes[Symbol::kTokens] = row;
    sizes[Symbol::kSequences] = static_cast<int64_t>(batch.size());
    REDLINE_TRY(network_.run(sizes));
    const float* hidden = network_.output("hidden");
    for (size_t i = 0; i < batch.size(); ++i) {
      const auto count = static_cast<int64_t>(batch[i].ids.size());
      take(i, hidden, count);
      hidden += count * width_;
    }
    return {};
  }

 private:
  Executable network_;
  Limits limits_;
  int64_t width_, first_position_;
};

}  // namespace

Result<std::unique_ptr<TextNetwork>> make_encoder_network(EncoderModel& model, const EmbeddingOptions& options,
                                                          const DeviceChoice& device, RuntimeResources& runtime) {
  const TextNetwork::Limits limits = {options.max_batch_tokens,
                                      std::min(options.max_batch_tokens, kMaxEncoderSequences)};
  ExecutableOptions e = executable_options(options, device);
  e.bounds[Symbol::kTokens] = limits.tokens;
  e.bounds[Symbol::kSequences] = limits.sequences;
  REDLINE_ASSIGN(Executable network, Executable::make(std::move(model.graph), e, runtime));
  return std::unique_ptr<TextNetwork>(new EncoderNetwork(std::move(network), model, limits));
}

Result<Executable> make_head(Graph graph, int64_t sequences, const EmbeddingOptions& options,
                             const DeviceChoice& device, RuntimeResources& runtime) {
  ExecutableOptions e = executable_options(options, device);
  e.bounds[Symbol::kSequences] = sequences;
  return Executable::make(std::move(graph), e, runtime);
}

}  // namespace redline
