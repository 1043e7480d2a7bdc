// Computes hidden states of texts with an encoder, or a decoder that is used as one.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "models/registry.h"
#include "redline/embedding.h"
#include "runtime/executable.h"

namespace redline {

struct TokenSequence {
  std::span<const int32_t> ids;
  int64_t second = 0;  ///< ids from here on have token type 1; 0: none
  int64_t rows = 0;    ///< number of final tokens whose hidden states are read; 0: all
};

/// A compiled network of texts. Not thread-safe.
class TextNetwork {
 public:
  struct Limits {
    int64_t tokens = 0, sequences = 0;  ///< limits of one step
  };
  virtual ~TextNetwork() = default;
  virtual Limits limits() const = 0;
  /// Returns the maximum bytes of keys and values; 0 for encoders.
  virtual int64_t cache_bytes() const { return 0; }
  /// Calls take(index, hidden, rows) with the hidden states that are read of every sequence, [rows, width], valid
  /// during the call. An encoder calls it once, with the states of all tokens. A decoder calls it for each step that
  /// computes some of them, in order. The batch is within limits().
  using Take = std::function<void(size_t index, const float* hidden, int64_t rows)>;
  virtual Status run(std::span<const TokenSequence> batch, const Take& take) = 0;
};

/// Compiles an encoder. `options.max_length` and `max_batch_tokens` must be set.
Result<std::unique_ptr<TextNetwork>> make_encoder_network(EncoderModel& model, const EmbeddingOptions& options,
                                                          const DeviceChoice& device, RuntimeResources& runtime);
/// Compiles a language model whose graph has one output of hidden states.
Result<std::unique_ptr<TextNetwork>> make_decoder_network(LanguageModel& model, const EmbeddingOptions& options,
                                                          const DeviceChoice& device, RuntimeResources& runtime);
/// Compiles the head of a model, with bounds for `sequences` pooled vectors.
Result<Executable> make_head(Graph graph, int64_t sequences, const EmbeddingOptions& options,
                             const DeviceChoice& device, RuntimeResources& runtime);

}  // namespace redline
