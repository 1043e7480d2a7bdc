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

#include "redline/precision.h"
#include "redline/runtime.h"
#include "redline/text.h"

namespace redline {

/// How the hidden states of a text's tokens become one vector.
enum class Pooling : uint8_t {
  kMean,
  kCls,           ///< of the first token
  kLast,          ///< of the last token
  kMax,           ///< the largest of each element
  kMeanSqrt,      ///< the sum over the root of the number of tokens
  kWeightedMean,  ///< the mean with weights 1, 2, 3, ..
};
/// "mean", "cls", "last", "max", "mean_sqrt", "weighted_mean"
std::string_view pooling_name(Pooling pooling);
/// Also sentence-transformers' names ("lasttoken", "mean_sqrt_len_tokens", "weightedmean"). invalid_argument: another
/// name; the message lists them.
Result<Pooling> pooling_from_name(std::string_view name);

struct EmbeddingOptions {
  int threads = 0;                     ///< worker threads; 0: REDLINE_THREADS, else all cores available to the process
  Precision dtype = Precision::kAuto;  ///< 8 bits are for the matrices of the layers
  /// "cpu"; "emu": the kernels of GPUs on an emulated device, slowly; "cuda" or "cuda:N"; "auto": what REDLINE_DEVICE
  /// names, else a GPU that can run the model, else the CPU
  std::string device = "auto";
  std::optional<Pooling> pooling;    ///< instead of the model's own
  int64_t max_length = 0;            ///< maximum tokens of one text; 0: the model's own limit
  int64_t max_batch_tokens = 0;      ///< tokens of one step, over all its texts; 0: 2048, or one text of max_length
  bool use_interpreter = false;      ///< reference mode: run the graph op by op in float64, slowly
  std::string trace_file;            ///< write a timeline (Perfetto JSON) when the engine closes; "": none
  std::shared_ptr<Runtime> runtime;  ///< shared with other engines; null: one with `threads` and `trace_file`
};

/// Description of an embedding model.
struct EmbeddingInfo {
  std::string path, architecture, file_format;  ///< "bert"; "gguf" or "safetensors"
  std::string weight_types;                     ///< "f32 x103"
  int64_t parameters = 0;                       ///< number of weights
  int64_t weight_bytes = 0;                     ///< of the packed weights
  int64_t cache_bytes = 0;                      ///< keys and values of a decoder, at their limit
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, vocab_size = 0;
  int64_t dimensions = 0;  ///< of an embedding
  int64_t max_length = 0;  ///< tokens of one text, special tokens included
  Pooling pooling = Pooling::kMean;
  bool normalizes = true;  ///< embeddings have length 1, unless a request says otherwise
  int64_t num_labels = 0;  ///< of a classifier, such as a cross-encoder (1); 0: not a classifier
  /// Prefixes by task ("query", "document").
  std::vector<std::pair<std::string, std::string>> prompts;
  std::string default_prompt;  ///< name of the one that is used without another; "": none
  int threads = 0;             ///< worker threads
  std::string isa;             ///< instruction set of the kernels in use, or the device: "emu"
};

struct EmbedRequest {
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> tokens;  ///< instead of texts: ids, special tokens included
  std::optional<std::string> prompt_name;    ///< of EmbeddingInfo::prompts; "": no prompt; unset: the default one
  bool truncate = false;                     ///< cut texts that are longer than max_length
  std::optional<bool> normalize;             ///< to length 1; unset: as the model's files say
  int64_t dimensions = 0;                    ///< keep this many and normalize again (Matryoshka); 0: all
  bool keep_token_states = false;            ///< the result has token_states too; unsupported: the model is a decoder
  /// Called before each step, and after each slice of a text while it is encoded (EncodeLimits::kSliceBytes). False
  /// ends the call as `cancelled`. Empty: yes.
  std::function<bool()> goes_on;
};

struct Embeddings {
  int64_t count = 0;            ///< texts
  int64_t dimensions = 0;       ///< of each
  std::vector<float> values;    ///< [count, dimensions]
  std::vector<int64_t> tokens;  ///< of each text, as computed
  /// With keep_token_states: by text, the last layer's hidden states [tokens, hidden_size], as they are before pooling.
  std::vector<std::vector<float>> token_states;
  int64_t truncated = 0;  ///< number of texts that were cut
};

struct RankRequest {
  std::string query;
  std::vector<std::string> documents;
  bool truncate = false;          ///< cut documents, so that query and document fit
  std::function<bool()> goes_on;  ///< as EmbedRequest::goes_on
};

struct Ranking {
  std::vector<float> scores;  ///< by document
  int64_t tokens = 0;         ///< computed, over all documents
  int64_t truncated = 0;
};

/// A text encoder (BERT, RoBERTa, ModernBERT) or a decoder that is used as one (Qwen3-Embedding).
/// Thread-safe; calls take turns.
class EmbeddingEngine {
 public:
  /// `path`: a Hugging Face folder, with sentence-transformers' files if it has them (modules.json, 1_Pooling,
  /// config_sentence_transformers.json, sentence_bert_config.json), or a GGUF file.
  /// not_found: nothing there, or a model without a tokenizer. unsupported: a family, a pooling or a module that is not
  /// known; the message names it.
  static Result<std::unique_ptr<EmbeddingEngine>> open(const std::string& path, const EmbeddingOptions& options = {});
  virtual ~EmbeddingEngine() = default;

  virtual const EmbeddingInfo& info() const = 0;
  /// The tokens that embed() computes for a text: prompt, text, special tokens. invalid_argument: no such prompt.
  virtual Result<std::vector<int32_t>> encode(std::string_view text,
                                              const std::optional<std::string>& prompt_name = {}) const = 0;

  /// Texts of different lengths share steps without padding. The bits of an embedding do not depend on the other texts
  /// with dtype f32 and, on CPUs without a tile unit, for weights that are not block formats (docs/numerics.md).
  /// A text is encoded only as far as `truncate` keeps it, or until it has several times max_length tokens.
  /// invalid_argument, with the index of the text: it is longer than max_length (both numbers), has no tokens, or an id
  /// outside the vocabulary; a prompt that the model does not have; more dimensions than there are.
  virtual Result<Embeddings> embed(const EmbedRequest& request) = 0;
  /// Several requests whose texts share steps. `done` gets the number of a request and its result as soon as that is
  /// known, on the calling thread; what is wrong with one does not concern the others.
  virtual void embed_all(std::span<const EmbedRequest> requests,
                         const std::function<void(size_t, Result<Embeddings>)>& done) = 0;

  /// Relevance of each document. A cross-encoder with one label gives the sigmoid of its score; a language model that
  /// judges (Qwen3-Reranker) the probability of "yes" against "no"; any other model the cosine of the embeddings, with
  /// the prompts "query" and "document" where it has them.
  /// invalid_argument: as embed(); a classifier with several labels. unsupported: a language model whose files do not
  /// say that it is for embeddings.
  virtual Result<Ranking> rank(const RankRequest& request) = 0;
};

/// Whether the files say that the model makes embeddings or scores, not text: an encoder, a folder of
/// sentence-transformers, or a GGUF file with a pooling type. False if it cannot be read.
bool is_embedding_model(const std::string& path);

}  // namespace redline
