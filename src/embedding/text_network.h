// Hidden states of texts: an encoder, or a decoder that is used as one.
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
};

/// Not thread-safe.
class TextNetwork {
 public:
  struct Limits {
    int64_t tokens = 0, sequences = 0;  ///< of one step
  };
  virtual ~TextNetwork() = default;
  virtual Limits limits() const = 0;
  /// Keys and values, at their limit.
  virtual int64_t cache_bytes() const { return 0; }
  /// Calls take(index, hidden, rows) for every sequence: its last `rows` hidden states, [rows, width], valid during the
  /// call. A decoder has one row, that of the last token. The batch is within limits().
  using Take = std::function<void(size_t index, const float* hidden, int64_t rows)>;
  virtual Status run(std::span<const TokenSequence> batch, const Take& take) = 0;
};

/// `options.max_length` and `max_batch_tokens` are set.
Result<std::unique_ptr<TextNetwork>> make_encoder_network(EncoderModel& model, const EmbeddingOptions& options,
                                                          const DeviceChoice& device, RuntimeResources& runtime);
/// The hidden states after the last tokens of a language model.
Result<std::unique_ptr<TextNetwork>> make_decoder_network(LanguageModel& model, const EmbeddingOptions& options,
                                                          const DeviceChoice& device, RuntimeResources& runtime);
/// An executable with bounds for `sequences` pooled vectors.
Result<Executable> make_head(Graph graph, int64_t sequences, const EmbeddingOptions& options,
                             const DeviceChoice& device, RuntimeResources& runtime);

}  // namespace redline
