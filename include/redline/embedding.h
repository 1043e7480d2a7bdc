// Embeddings of texts, and scores of documents for a query.
//
//   auto engine = redline::EmbeddingEngine::open("all-MiniLM-L6-v2");
//   if (!engine.ok()) return fail(engine.status());
//   redline::EmbedRequest request;
//   request.texts = {"A man is eating food.", "Someone has a meal."};
//   auto embeddings = (*engine)->embed(request);
//   if (!embeddings.ok()) return fail(embeddings.status());
//   const std::vector<float>& v = embeddings->values;  // two rows of embeddings->dimensions
//   const float cosine = std::inner_product(v.begin(), v.begin() + embeddings->dimensions,
//                                           v.begin() + embeddings->dimensions, 0.0f);
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redline/option_types.h"
#include "redline/precision.h"
#include "redline/runtime.h"
#include "redline/text.h"

namespace redline {

/// How the hidden states of a text's tokens become one vector.
enum class Pooling : uint8_t {
  kMean,
  kCls,           ///< the hidden state of the first token
  kLast,          ///< the hidden state of the last token
  kMax,           ///< the maximum over the tokens, per element
  kMeanSqrt,      ///< the sum divided by the square root of the number of tokens
  kWeightedMean,  ///< the mean with weights 1, 2, 3, ..
};
/// Returns "mean", "cls", "last", "max", "mean_sqrt" or "weighted_mean".
std::string_view pooling_name(Pooling pooling);
/// Parses a name of pooling_name() or of sentence-transformers ("lasttoken", "mean_sqrt_len_tokens", "weightedmean").
/// invalid_argument: an unknown name; the message lists the known ones.
Result<Pooling> pooling_from_name(std::string_view name);

/// Options of EmbeddingEngine::open(). The members that C, Python and the command line have too are the rows of
/// redline/embedding_options.inc, one by one with type, default and meaning.
struct EmbeddingOptions {
#define REDLINE_OPTION(type, name, value, ...) REDLINE_CPP_##type name = value;
#include "redline/embedding_options.inc"
  std::shared_ptr<Runtime> runtime;  ///< shared with other engines; null: one with `threads` and `trace_file`
};

/// Description of an embedding model.
struct EmbeddingInfo {
  std::string path, architecture, file_format;  ///< architecture: "bert"; file_format: "gguf" or "safetensors"
  std::string weight_types;                     ///< number of weight tensors per type: "f32 x103"
  int64_t parameters = 0;                       ///< number of weights
  int64_t weight_bytes = 0;                     ///< bytes of the packed weights
  int64_t cache_bytes = 0;                      ///< maximum bytes of a decoder's keys and values; 0 for encoders
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, vocab_size = 0;
  int64_t dimensions = 0;  ///< elements of one embedding
  int64_t max_length = 0;  ///< maximum tokens of one text, special tokens included
  Pooling pooling = Pooling::kMean;
  bool normalizes = true;  ///< embeddings have length 1, unless a request says otherwise
  int64_t num_labels = 0;  ///< labels of a classifier, such as a cross-encoder (1); 0: not a classifier
  /// Name of each task ("query", "document") and the prefix that its texts get.
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;  ///< name of the prompt that is used if a request names none; "": none
  int threads = 0;             ///< worker threads
  std::string isa;             ///< instruction set of the kernels in use, or the device: "emu"
};

/// Input and options of EmbeddingEngine::embed().
struct EmbedRequest {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> tokens;  ///< token ids that replace `texts`, special tokens included
  std::optional<std::string> prompt_name;  ///< a name of EmbeddingInfo::prompts; "": no prompt; unset: the default one
  bool truncate = false;                   ///< cut texts that are longer than max_length
  std::optional<bool> normalize;           ///< scales embeddings to length 1; unset: as the model's files say
  int64_t dimensions = 0;                  ///< keep this many and normalize again (Matryoshka); 0: all
  bool keep_token_states = false;          ///< also returns token_states
  /// Called before each step, and after each slice of a text while it is encoded (EncodeLimits::kSliceBytes). False
  /// ends the call as `cancelled`. May be empty.
  std::function<bool()> goes_on;
};

/// Result of EmbeddingEngine::embed().
struct Embeddings {
  int64_t count = 0;            ///< number of texts
  int64_t dimensions = 0;       ///< elements of one embedding
  std::vector<float> values;    ///< [count, dimensions]
  std::vector<int64_t> tokens;  ///< number of computed tokens of each text
  /// With keep_token_states: for each text, the last layer's hidden states before pooling, [tokens, hidden_size].
  std::vector<std::vector<float>> token_states;
  int64_t truncated = 0;  ///< number of texts that were cut
};

/// Input of EmbeddingEngine::rank().
struct RankRequest {
  std::string query;
  std::vector<std::string> documents;
  bool truncate = false;          ///< cut documents, so that query and document fit
  std::function<bool()> goes_on;  ///< as EmbedRequest::goes_on
};

/// Result of EmbeddingEngine::rank().
struct Ranking {
  std::vector<float> scores;  ///< one score per document
  int64_t tokens = 0;         ///< computed tokens over all documents
  int64_t truncated = 0;
};

/// A text encoder (BERT, RoBERTa, ModernBERT) or a decoder that is used as one (Qwen3-Embedding).
/// Thread-safe; calls take turns.
class EmbeddingEngine {
 public:
  /// `path`: a Hugging Face folder, with sentence-transformers' files if it has them (modules.json, 1_Pooling,
  /// config_sentence_transformers.json, sentence_bert_config.json), or a GGUF file.
  /// not_found: no such file, or a model without a tokenizer. unsupported: an unknown family, pooling or module; the
  /// message names it.
  static Result<std::unique_ptr<EmbeddingEngine>> open(const std::string& path, const EmbeddingOptions& options = {});
  virtual ~EmbeddingEngine() = default;

  virtual const EmbeddingInfo& info() const = 0;
  /// Returns the tokens that embed() computes for a text: prompt, text, special tokens. invalid_argument: no such
  /// prompt.
  virtual Result<std::vector<int32_t>> encode(std::string_view text,
                                              const std::optional<std::string>& prompt_name = {}) const = 0;

  /// Computes embeddings. Texts of different lengths share steps without padding. The bits of an embedding do not
  /// depend on the other texts with dtype f32 and, on CPUs without a tile unit, for weights that are not block formats
  /// (docs/numerics.md). A text is encoded only as far as `truncate` keeps it, or until it has several times max_length
  /// tokens. invalid_argument, with the index of the text: it is longer than max_length (the message has both numbers),
  /// has no tokens, or has an id outside the vocabulary. Also invalid_argument: an unknown prompt name, or `dimensions`
  /// above those of the model.
  virtual Result<Embeddings> embed(const EmbedRequest& request) = 0;
  /// Computes several requests whose texts share steps. Calls `done` with the index of a request and its result as soon
  /// as it is known, on the calling thread. An error of one request does not affect the others.
  virtual void embed_all(std::span<const EmbedRequest> requests,
                         const std::function<void(size_t, Result<Embeddings>)>& done) = 0;

  /// Computes the relevance of each document. A cross-encoder with one label gives the sigmoid of its score; a language
  /// model used as a judge (Qwen3-Reranker) the probability of "yes" against "no". Any other model gives the cosine of
  /// the embeddings, with its prompts "query" and "document" if it has them.
  /// invalid_argument: as embed(); a classifier with several labels. unsupported: a language model whose files do not
  /// say that it is for embeddings.
  virtual Result<Ranking> rank(const RankRequest& request) = 0;
};

/// Returns true if the files say that the model makes embeddings or scores, not text: an encoder, a folder of
/// sentence-transformers, or a GGUF file with a pooling type. False if the files cannot be read.
bool is_embedding_model(const std::string& path);

}  // namespace redline
