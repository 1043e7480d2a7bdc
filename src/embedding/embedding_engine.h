// Implements include/redline/embedding.h: tokens, steps, pooling.
#pragma once

#include <mutex>

#include "embedding/causal_reranker.h"
#include "embedding/embedding_config.h"
#include "embedding/text_network.h"

namespace redline {

class TextEmbeddingEngine final : public EmbeddingEngine {
 public:
  static Result<std::unique_ptr<EmbeddingEngine>> make(Checkpoint checkpoint, EmbeddingOptions options);

  const EmbeddingInfo& info() const override { return info_; }
  Result<std::vector<int32_t>> encode(std::string_view text,
                                      const std::optional<std::string>& prompt_name) const override;
  Result<Embeddings> embed(const EmbedRequest& request) override;
  void embed_all(std::span<const EmbedRequest> requests,
                 const std::function<void(size_t, Result<Embeddings>)>& done) override;
  Result<Ranking> rank(const RankRequest& request) override;

 private:
  TextEmbeddingEngine() = default;
  /// An encoded text with its special tokens. `second`: first token of the second text; `skip`: first tokens that
  /// pooling ignores.
  struct Encoded {
    std::vector<int32_t> ids;
    int64_t second = 0, skip = 0;
  };
  Status choose_machine(const EmbeddingOptions& options);
  Status open_encoder(const EncoderFamily& family, Checkpoint& checkpoint, EmbeddingOptions& options);
  Status open_decoder(Checkpoint& checkpoint, EmbeddingOptions& options);
  /// Does the common part of opening an encoder or a decoder. `max_tokens`: limit of the network.
  Status set_up(Checkpoint& checkpoint, const Graph& graph, int64_t max_tokens, EmbeddingOptions& options);
  Result<std::string> prompt_of(const std::optional<std::string>& name) const;
  /// Returns TokenSequence::rows for a text: all, or the last one where pooling reads no other.
  int64_t rows_read(bool all) const;
  std::vector<int32_t> encode_plain(std::string_view text) const;
  /// Limits that a caller sets for its texts.
  struct TextLimits {
    bool truncate = false;
    const std::function<bool()>& goes_on;  ///< as EmbedRequest::goes_on
  };
  /// Encodes a text without special tokens; `around` other tokens go before and after it. Texts with more than
  /// max_length tokens are cut, and counted in `truncated`, or are invalid_argument. cancelled: `goes_on` returned
  /// false.
  Result<std::vector<int32_t>> encode_within(std::string_view text, int64_t around, const TextLimits& limits,
                                             int64_t& truncated) const;
  Result<Encoded> encode_text(const std::string& prompt, std::string_view text, const TextLimits& limits,
                              int64_t& truncated) const;
  Status check_ids(std::span<const int32_t> ids) const;
  /// A request whose texts are encoded and whose values are not computed yet.
  struct Encoding {
    std::vector<Encoded> texts;
    Embeddings result;
    int64_t left = 0;  ///< number of texts that are not computed yet
  };
  Result<Encoding> encode_request(const EmbedRequest& request) const;
  /// Runs all texts in as few steps as fit. The caller holds mutex_.
  Status run(std::span<const Encoded> texts, const std::function<bool()>& goes_on, const TextNetwork::Take& take);
  Result<Ranking> rank_by_cosine(const RankRequest& request);
  Result<Ranking> rank_by_classifier(const RankRequest& request);
  Result<Ranking> rank_by_causal_reranker(const RankRequest& request);
  /// Calls add(scores) with the scores of each row of `pooled`, [texts, hidden_size].
  Status run_head(std::span<const float> pooled, const std::function<void(const float* scores)>& add);

  DeviceChoice device_;
  std::shared_ptr<Runtime> runtime_;
  std::unique_ptr<Tokenizer> tokenizer_;
  EmbeddingConfig config_;
  EmbeddingInfo info_;
  std::unique_ptr<TextNetwork> network_;
  Executable head_;
  int64_t head_rows_ = 0;
  bool is_encoder_ = false;
  bool has_second_type_ = true;  ///< the network has a second token type
  bool head_means_ = false;
  std::unique_ptr<CausalReranker> reranker_;  ///< set for a decoder that ranks; head_ is its head
  bool is_plain_decoder_ = false;             ///< no file marks its hidden states as embeddings
  std::mutex mutex_;                          // protects the network and the head
};

}  // namespace redline
