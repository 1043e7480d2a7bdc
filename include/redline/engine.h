// The engine: a model file in, text out. Start here.
//
//   auto engine = redline::Engine::open("assets/redline-tales");
//   if (!engine.ok()) return fail(engine.status());
//   redline::GenerateRequest request;
//   request.prompt = (*engine)->encode("Once upon a time").value();
//   (*engine)->generate(request, [](const redline::TextPiece& p) { std::cout << p.text << std::flush; return true; });
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redline/status.h"

namespace redline {

enum class ComputeType : uint8_t {
  kAuto,  ///< float32 sums; cached keys and values in float16; block formats meet activations rounded to int8
  kF32,   ///< float32 throughout, whatever the weights are
};
/// "auto" or "f32"; invalid_argument otherwise.
Result<ComputeType> compute_type_from_name(std::string_view name);

struct EngineOptions {
  int threads = 0;  ///< worker threads; 0: REDLINE_THREADS, else every core this process may use
  ComputeType dtype = ComputeType::kAuto;
  int64_t context = 0;           ///< most tokens of one sequence; 0: the model's own, at most 4096
  int64_t max_chunk = 512;       ///< most tokens of one step, of all its sequences together
  int64_t max_sequences = 64;    ///< most sequences of one step
  int64_t cache_tokens = 0;      ///< most tokens that all sessions hold together; 0: max_sequences full contexts
  bool use_interpreter = false;  ///< run the plain graph op by op in float64: slow, the reference
  std::string trace_file;        ///< write a timeline (Perfetto JSON) when the engine closes; "" for none
};

/// What a model is, without running it.
struct ModelInfo {
  std::string path, architecture, file_format;  ///< "llama"; "gguf" or "safetensors"
  std::string weight_types;                     ///< "bf16 x57, f32 x17"
  int64_t parameters = 0, weight_bytes = 0;
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, intermediate_size = 0;
  int64_t vocab_size = 0, model_context = 0, context = 0;
  bool has_tokenizer = false;
  int threads = 0;
  std::string isa;  ///< instruction set of the kernels in use
};

/// Order: repetition penalty, temperature, top-k, top-p, min-p; then one draw. Zero temperature is greedy.
struct SamplingOptions {
  float temperature = 0.8f;
  int64_t top_k = 0;                ///< 0: off
  float top_p = 1.0f;               ///< 1: off
  float min_p = 0.0f;               ///< 0: off
  float repetition_penalty = 1.0f;  ///< 1: off; over prompt and output (Keskar et al. 2019, arXiv:1909.05858)
  uint64_t seed = 0;                ///< same seed, same text, whatever the number of threads
};

struct GenerateRequest {
  std::vector<int32_t> prompt;  ///< token ids; empty: starts from BOS, an error when the model has none
  SamplingOptions sampling;
  int64_t max_tokens = 256;
  std::vector<std::string> stop;  ///< text that ends the generation; it is not part of the output
  bool ignore_stop_tokens = false;
  int num_logprobs = -1;  ///< -1: none; k >= 0: logprob of each token and of the k likeliest
};

struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0;  ///< natural log, of the distribution before temperature and truncation
};

/// What one step adds to the text. `text` may be empty: bytes of an unfinished character, or text that may yet become a
/// stop string, are held back.
struct TextPiece {
  std::string_view text;
  int32_t token = -1;
  float logprob = 0;
  std::span<const TokenLogprob> top;
};

enum class FinishReason : uint8_t { kStop, kLength, kCancelled };
std::string_view finish_reason_name(FinishReason reason);  ///< "stop", "length", "cancelled"

struct GenerateResult {
  FinishReason reason = FinishReason::kStop;
  std::vector<int32_t> tokens;  ///< generated, the stop token not included
  std::string text;
  int64_t prompt_tokens = 0;
  double first_token_ms = 0;  ///< from the call to the first token
  double prefill_ms = 0;      ///< prompt only
  double decode_ms = 0;       ///< the steps after the first token
  int64_t decode_tokens = 0;  ///< tokens made in decode_ms
};

/// One sequence with its cached keys and values. Not for use by two threads at once; sessions of one engine take turns.
class Session {
 public:
  virtual ~Session() = default;
  /// Appends tokens and returns the logits after the last one, [vocab_size], or after each of them when `all`,
  /// [tokens, vocab_size]; valid until the next call. `total_length` is the length the text is known to reach (dynamic
  /// rope scaling looks at it); 0: up to these tokens.
  /// invalid_argument: an id outside the vocabulary, or more tokens than the context holds (both numbers are named).
  /// After an error the session is as it was.
  virtual Result<std::span<const float>> forward(std::span<const int32_t> tokens, bool all = false,
                                                 int64_t total_length = 0) = 0;
  /// Tokens so far.
  virtual int64_t length() const = 0;
  /// Forgets every token from `length` on.
  virtual void truncate(int64_t length) = 0;
};

/// What one sequence adds to a step: a chunk of its prompt, the token that was last drawn, or tokens to verify.
struct BatchEntry {
  Session* session = nullptr;  ///< of this engine; each at most once in a batch
  std::span<const int32_t> tokens;
  int64_t logit_rows = 1;    ///< logits are wanted after the last so many of the tokens; 0: none, as within a prompt
  int64_t total_length = 0;  ///< as in Session::forward
  /// Set by run_batch: [logit_rows, vocab_size]; valid until the next step of the engine, whoever takes it.
  std::span<const float> logits;
};

/// What a step and the cache of an engine hold.
struct BatchLimits {
  int64_t tokens = 0;        ///< of one step, of all entries together
  int64_t sequences = 0;     ///< entries of one step
  int64_t logit_rows = 0;    ///< of one step, of all entries together
  int64_t cache_tokens = 0;  ///< of all sessions together, each rounded up to whole pages
  int64_t page_tokens = 0;   ///< tokens of one page
};

class Engine {
 public:
  /// `path`: a GGUF file (any part of a split), or a Hugging Face folder.
  static Result<std::unique_ptr<Engine>> open(const std::string& path, const EngineOptions& options = {});
  virtual ~Engine() = default;

  virtual const ModelInfo& info() const = 0;
  /// The model's own defaults (generation_config.json; GGUF general.sampling.*), else temperature 0.8, top-p 0.95. A
  /// generation_config.json that has do_sample means transformers' defaults by what it leaves out; false is greedy.
  virtual const SamplingOptions& default_sampling() const = 0;

  /// Text to ids; `special`: names of special tokens in the text become those tokens, and a text that begins with the
  /// first token's name gets no second one. not_found: the model has no tokenizer.
  virtual Result<std::vector<int32_t>> encode(std::string_view text, bool special = false,
                                              bool add_bos = true) const = 0;
  virtual Result<std::string> decode(std::span<const int32_t> tokens, bool special = false) const = 0;

  /// The engine outlives its sessions.
  virtual Result<std::unique_ptr<Session>> new_session() = 0;

  /// One step for several sequences: appends each entry's tokens to its session and sets its logits. Prompt chunks and
  /// single tokens may be mixed in any order; with dtype f32 a sequence's logits have the same bits whatever runs
  /// beside it. All or nothing: after an error every session is as it was.
  /// invalid_argument, naming the entry: no tokens, an id outside the vocabulary, more tokens than the context holds,
  /// the same session twice, one of another engine, logit_rows above the tokens, more than batch_limits() says.
  /// out_of_memory: the cache has too few free pages.
  virtual Status run_batch(std::span<BatchEntry> batch) = 0;
  virtual BatchLimits batch_limits() const = 0;
  /// Tokens for which whole pages are free: what a scheduler admits by.
  virtual int64_t free_cache_tokens() const = 0;

  /// Calls `on_piece` after every token, between the steps of a long prompt and with what was held back at the end
  /// (both with token -1), from the calling thread; returning false ends the generation (kCancelled), and nothing is
  /// called after that.
  virtual Result<GenerateResult> generate(const GenerateRequest& request,
                                          const std::function<bool(const TextPiece&)>& on_piece = {}) = 0;

  /// Bytes the weights, the arena (with and without reuse) and the cache take.
  struct MemoryReport {
    int64_t packed_weights = 0, arena = 0, arena_without_reuse = 0, kv_cache = 0;
  };
  virtual MemoryReport memory() const = 0;
};

}  // namespace redline
