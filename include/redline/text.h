// The text engine: opens a model file and generates text. Start here.
//
//   auto engine = redline::TextEngine::open("assets/redline-tales");
//   if (!engine.ok()) return fail(engine.status());
//   auto prompt = (*engine)->encode("Once upon a time");
//   if (!prompt.ok()) return fail(prompt.status());
//   auto story = (*engine)->generate({.prompt = *prompt}, [](const redline::TextPiece& piece) {
//     std::cout << piece.text << std::flush;
//     return true;  // go on
//   });
//   if (!story.ok()) return fail(story.status());
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "redline/chat.h"
#include "redline/json_format.h"
#include "redline/option_types.h"
#include "redline/precision.h"
#include "redline/prompt.h"
#include "redline/runtime.h"
#include "redline/status.h"

namespace redline {

/// The name that Precision has for language models. kAuto: float32 accumulation; keys and values are cached in float16,
/// and block-quantized weights use int8 activations. kBF16, kQ8, kQ8_0 and kW8A8 convert the matrices when the model is
/// opened (WeightConversion) and compute as kAuto does.
using ComputeType = Precision;

/// Options of TextEngine::open(). The members that C, Python and the command line have too are the rows of
/// redline/text_engine_options.inc, one by one with type, default and meaning. Those below them are of C++ alone.
struct TextEngineOptions {
#define REDLINE_OPTION(type, name, value, ...) REDLINE_CPP_##type name = value;
#include "redline/text_engine_options.inc"
  /// Called by any thread with a sentence about a problem that does not stop the engine, such as a damaged file or a
  /// full disk. Must not call the engine.
  std::function<void(const std::string&)> on_notice;
  std::shared_ptr<Runtime> runtime;  ///< shared with other engines; null: one with `threads` and `trace_file`
  static constexpr int64_t kMaxSpeculativeTokens = 64;  ///< largest num_speculative_tokens
};

/// Description of a model, available without running it.
struct ModelInfo {
  std::string path, architecture, file_format;  ///< architecture: "llama"; file_format: "gguf" or "safetensors"
  std::string weight_types;                     ///< number of weight tensors per type: "bf16 x57, f32 x17"
  WeightConversion conversion;                  ///< how the weights differ from the stored ones
  int64_t parameters = 0, weight_bytes = 0;
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t model_context = 0;  ///< tokens of one sequence that the model was trained for; 0: unknown
  int64_t context = 0;        ///< maximum tokens of one sequence in this engine
  /// Maximum number of text bytes in one token. A text of n times as many bytes therefore has at least n tokens. 0:
  /// there is no maximum, because a run of unknown characters or of spaces may become one token, or there is no
  /// tokenizer.
  int64_t max_token_bytes = 0;
  bool takes_embeddings = false;  ///< prompts may have rows of embeddings, of hidden_size numbers
  int64_t position_axes = 1;      ///< axes of the positions: 3 for M-RoPE with embeddings, else 1
  int64_t num_layer_rows = 0;     ///< inputs for EmbeddingRows::layer_rows
  std::string left_out;  ///< vision and audio parts of the model, which are not used: "439 tensors of vision_tower"
  bool has_tokenizer = false;
  bool has_chat_template = false;  ///< render_chat() works
  std::string chat_template;       ///< the text of the template
  bool has_chat_markers = false;   ///< answers mark reasoning or tool calls, which chat_reader() separates
  bool has_tool_template = false;  ///< the chat template writes the tools of ChatInput::tools_json
  /// The switch that ChatInput::thinking sets: a variable of the chat template, such as "enable_thinking", or a word in
  /// the system message, such as "/no_think". "": the template has none.
  std::string thinking_switch;
  int threads = 0;
  std::string isa;  ///< instruction set of the kernels in use, or the device: "emu"
  /// How the device runs a step: "up to 16 rows in one launch, more by graphs of launches"; "": the CPU runs it.
  std::string device_steps;
  std::vector<int32_t> stop_tokens;  ///< tokens that end a text, sorted
};

/// Limits of TextEngine::encode(), for texts of unknown length.
struct EncodeLimits {
  /// Maximum bytes of text between two calls of on_slice.
  static constexpr int64_t kSliceBytes = int64_t{1} << 16;
  /// A text with more tokens is invalid_argument; the rest of the text is not encoded.
  int64_t max_tokens = INT64_MAX;
  /// Called after every processed slice of the text with its number of bytes, at most kSliceBytes. If the text is
  /// normalized before it is encoded, each pass over it is reported. Returning false ends the call as `cancelled`.
  std::function<bool(int64_t bytes)> on_slice;
};

/// How the next token is chosen. First `logit_bias` is added to the logits, and tokens that would complete one of
/// `bad_words` are excluded. Then the samplers in `samplers` run in order: each filters the candidates left by the
/// previous one. The result is sampled from the remaining distribution. Definitions are those of llama.cpp, unless a
/// row says otherwise. The numbers are the rows of redline/generate_options.inc, one by one with type, default and
/// meaning.
struct SamplingOptions {
#define REDLINE_OPTION(type, name, value, ...) REDLINE_CPP_##type name = value;
#include "redline/generate_options.inc"
  uint64_t seed = 0;  ///< the same seed gives the same text for any number of threads
  /// A repetition ends at a token within which one of these strings ends. Without effect if the model has no tokenizer.
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  std::vector<std::pair<int32_t, float>> logit_bias;  ///< token, addend; -inf excludes the token
  std::vector<std::string> samplers;   ///< names of default_samplers(), in order; others are off; empty: all
  std::vector<std::string> bad_words;  ///< strings that do not appear in the output
};

/// Returns the names of the samplers in their default order: "penalties" (repetition, presence and frequency), "dry",
/// "temperature" (with dynatemp), "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc".
const std::vector<std::string>& default_samplers();
/// Returns the name of default_samplers() for that name or another spelling: "typ_p", "temp", "top-k".
/// invalid_argument: there is no such sampler; the message lists the names.
Result<std::string> sampler_name(std::string_view text);
/// Returns the samplers that have an effect with these options, in order, including "mirostat". The last entry is
/// "greedy" or "draw". invalid_argument: a request with these options would be invalid.
Result<std::vector<std::string>> active_samplers(const SamplingOptions& options);

/// Returns the names for TextEngineOptions::speculate besides "none": "prompt-lookup", which drafts the tokens that
/// followed the longest earlier occurrence of the text's last tokens.
const std::vector<std::string>& drafters();

/// LoRA adapters, each by the name under which it was loaded and with a weight (1: as trained). Their products are
/// summed.
using AdapterWeights = std::vector<std::pair<std::string, double>>;

/// A format that the whole text must match. Tokens that would make a match impossible are excluded before sampling.
/// Tokens that end the text are allowed where the text is complete. Where nothing can follow, the text ends without
/// such a token (kStop).
struct OutputConstraint {
  enum class Kind : uint8_t {
    kNone,
    kGrammar,     ///< `text` in GBNF, the notation of llama.cpp
    kLark,        ///< `text` in the notation of Lark, the subset that OpenAI documents for custom tools
    kRegex,       ///< `text` is a regular expression (ECMA-262 without look-around and back references)
    kJsonSchema,  ///< `text` is a JSON Schema (draft 7, 2020-12); "{}": any JSON value
    kChoice,      ///< the text is one of `choices`
    /// the text calls tools of the list in `text` (OpenAI's), in the format that TextEngine::chat_reader() reads
    kToolCalls,
  };
  Kind kind = Kind::kNone;
  std::string text;
  std::vector<std::string> choices;
  std::string tools = {};  ///< OpenAI's list of tools whose calls match as well; "": none. Not used by kToolCalls
  bool allows_several_calls = false;  ///< more than one call is allowed if the model's format has several
  JsonFormat json = {};               ///< format of kJsonSchema, and of the arguments of calls
  bool operator==(const OutputConstraint&) const = default;
};

/// Prompt and options of TextEngine::generate() and submit(). Further members are the request rows of
/// redline/generate_options.inc: max_tokens, priority, timeout_ms (kTimeout), client, cache_salt, min_tokens,
/// stop_in_reasoning and num_speculative_tokens.
struct GenerateRequest {
  /// Tokens, and rows of embeddings; empty: starts from BOS, an error if the model has none. Penalties and samplers see
  /// the tokens only.
  Prompt prompt;
  SamplingOptions sampling;
#define REDLINE_REQUEST_OPTION(type, name, value, ...) REDLINE_CPP_##type name = value;
#include "redline/generate_options.inc"
  std::vector<std::string> stop;  ///< strings that end the generation; not part of the output
  /// The rendered chat prompt, or its end, if chat_reader() reads the answer. The model may then think first, as its
  /// chat template allows: the constraint and the stop strings apply to the text after the thinking. "": they apply
  /// from the first token.
  std::string chat_prompt;
  std::vector<int32_t> stop_tokens;  ///< further tokens that end the text
  bool ignore_stop_tokens = false;   ///< the model's own stop tokens do not end the text
  bool special = false;              ///< control tokens appear in the text; ChatReader needs them as markers
  int num_logprobs = -1;  ///< k >= 0: report log probabilities of each token and of the k most likely ones; -1: none
  AdapterWeights adapters;
  OutputConstraint constraint;  ///< generate() and submit() compile it and return its errors
};

struct TokenLogprob {
  int32_t id = -1;
  float logprob = 0;  ///< natural log, before temperature and truncation
};

/// The text added by one step. `text` may be empty: bytes of an incomplete character, and text that may become a stop
/// string, are held back.
struct TextPiece {
  std::string_view text;
  int32_t token = -1;
  float logprob = 0;
  std::span<const TokenLogprob> top;
};

/// kLength: max_tokens; kContext: the context is full.
enum class FinishReason : uint8_t { kStop, kLength, kCancelled, kContext, kTimeout };
inline constexpr size_t kNumFinishReasons = 5;
/// Returns "stop", "length", "cancelled", "context" or "timeout".
std::string_view finish_reason_name(FinishReason reason);

/// Why a request did not take more of its prompt from the prefix cache.
enum class CacheMiss : uint8_t {
  kNone,          ///< all tokens but the last were cached; the last is always computed, for its logits
  kDisabled,      ///< the engine has no prefix cache
  kNotStored,     ///< no stored prefix matches
  kOtherAdapter,  ///< a prefix with other adapters matches (entries under other salts are not reported)
  kEvicted,       ///< a prefix matched until its pages were evicted
  kWindow,        ///< a prefix matches, but the sliding window at this position is no longer stored
  kSnapshot,      ///< a prefix matches, but has no snapshot of the recurrent state at this position
};
/// Returns "none", "disabled", "not_stored", "other_adapter", "evicted", "window" or "snapshot".
std::string_view cache_miss_name(CacheMiss miss);

/// Result of a finished request.
struct GenerateResult {
  FinishReason reason = FinishReason::kStop;
  std::vector<int32_t> tokens;  ///< generated tokens, without the stop token
  std::string text;
  int64_t prompt_tokens = 0;  ///< tokens and rows of embeddings
  int64_t cached_tokens = 0;  ///< prompt tokens whose state came from the prefix cache
  CacheMiss cache_miss = CacheMiss::kNotStored;
  double queue_ms = 0;        ///< time from the call until the request got cache pages
  double first_token_ms = 0;  ///< time from the call to the first token
  double prefill_ms = 0;      ///< time from the call to the logits of the prompt
  double decode_ms = 0;       ///< time of the steps after the first token
  int64_t decode_tokens = 0;  ///< tokens generated in decode_ms
  /// Drafted tokens whose logits were computed, and how many of these were drawn.
  int64_t drafted_tokens = 0, accepted_tokens = 0;
};

/// A request in progress. Thread-safe; may outlive the engine, which cancels what is still running when it closes.
/// Dropping the handle cancels the request.
class Generation {
 public:
  virtual ~Generation() = default;
  /// Ends the request after the step in progress, with the text so far (kCancelled). Neither cancel() nor dropping the
  /// handle waits for a running callback: call wait() before destroying objects that `on_piece` uses.
  virtual void cancel() = 0;
  virtual bool is_done() const = 0;
  /// Waits for the end of the request and takes its result. No callback runs after it. invalid_argument: the result has
  /// been taken, or the call comes from a callback of the same engine.
  virtual Result<GenerateResult> wait() = 0;
};

/// One sequence and its state: cached keys and values. Not thread-safe; different sequences may be used from different
/// threads, and their steps take turns.
class Sequence {
 public:
  virtual ~Sequence() = default;
  /// Appends tokens, or a prompt with rows of embeddings, which count as tokens. Writes the logits after the last of
  /// them: logits.size() / vocab_size rows, which the caller owns. Empty `logits`: none are computed. On error the
  /// sequence is unchanged.
  /// invalid_argument: no tokens, an id outside the vocabulary, more tokens than the context holds (the message gives
  /// both numbers), logits that are not whole rows or more rows than tokens, or rows of embeddings of another width,
  /// number of axes or of layer rows than the model's. unsupported: rows of embeddings, without
  /// TextEngineOptions::prompt_embeddings. out_of_memory: the cache has too few free pages.
  virtual Status append(const PromptView& tokens, std::span<float> logits) = 0;
  /// append() with a callback after every step, for logits that do not fit in memory and for calls that may be
  /// cancelled. The logits of the last `rows` tokens are computed. `on_step` gets the number of tokens appended so far,
  /// and the logits of those rows that this step computed, [n, vocab_size], valid during the call. Returning false ends
  /// the call as `cancelled`. The logits equal those of a single append(), even if rope scaling depends on the length
  /// (dynamic NTK, longrope), whereas several append() calls would each use the length so far. Other sequences may run
  /// between the steps.
  using OnStep = std::function<bool(int64_t appended, std::span<const float> logits)>;
  virtual Status append_in_steps(const PromptView& tokens, int64_t rows, const OnStep& on_step) = 0;
  /// append() that returns the logits: after the last token, [vocab_size], or, if `all`, after each token, [tokens,
  /// vocab_size].
  Result<std::vector<float>> forward(const PromptView& tokens, bool all = false);

  /// Number of tokens so far, rows of embeddings included.
  virtual int64_t length() const = 0;
  /// Drops tokens from position `length` on and returns the number of tokens left. The result is smaller than `length`
  /// if the sequence is shorter, or if the state at that position is no longer kept: a sliding window keeps 256
  /// positions more than it reads, and a recurrent model keeps the state before the last step. The caller then appends
  /// the missing tokens again.
  virtual int64_t truncate(int64_t length) = 0;
  /// Returns a sequence with the same tokens. Both share the pages of their cache until one of them writes to a page
  /// (copy on write).
  virtual Result<std::unique_ptr<Sequence>> fork() const = 0;

 protected:
  virtual int64_t vocab_size() const = 0;
  /// Returns the error of append() with `rows` rows of logits, except errors that depend on memory.
  virtual Status check(const PromptView& tokens, int64_t rows) const = 0;
};

/// One sequence's part of a step: a chunk of its prompt, the last sampled token, or tokens to verify.
struct BatchEntry {
  Sequence* sequence = nullptr;  ///< a sequence of this engine; each at most once per batch
  PromptView tokens;             ///< tokens or a part of a prompt
  std::span<float> logits;       ///< as in Sequence::append(); written by run_batch()
};

/// Limits of one step and of the engine's cache.
struct BatchLimits {
  int64_t tokens = 0;        ///< tokens of one step, over all entries
  int64_t sequences = 0;     ///< number of entries of one step
  int64_t logit_rows = 0;    ///< rows of logits of one step, over all entries
  int64_t cache_tokens = 0;  ///< tokens in the cache over all sequences, each rounded up to whole pages
  int64_t page_tokens = 0;   ///< tokens of one page
};

/// State and counters of an engine. Counters are totals since it was opened.
struct EngineStats {
  int64_t running = 0;               ///< requests whose state is in the cache
  int64_t waiting = 0;               ///< requests waiting for cache pages, including preempted ones
  int64_t preemptions = 0;           ///< number of times that a running request lost its cache pages
  int64_t prompt_tokens = 0;         ///< prompt tokens of requests whose prompt is complete
  int64_t cached_prompt_tokens = 0;  ///< how many of prompt_tokens came from the prefix cache
  int64_t generated_tokens = 0;
  int64_t drafted_tokens = 0;   ///< drafted tokens whose logits were computed
  int64_t accepted_tokens = 0;  ///< how many of drafted_tokens were drawn
  int64_t steps = 0;            ///< steps, of requests and of sequences
  double step_seconds = 0;
  /// True if the step has made no progress for REDLINE_HANG_SECONDS. A dump of the workers is then on standard error.
  bool is_stalled = false;
  /// Lower bound, in seconds, of the time of all steps since EngineProfile::count_bounds() at the limits of the
  /// machine. For each kind of work in a step it is the time to read its weights or cached pages once, or to do its
  /// multiply-adds, whichever is longer. 0: the limits are unknown.
  double bound_seconds = 0;
  std::array<int64_t, kNumFinishReasons> requests_finished = {};  ///< number of requests by FinishReason
  int64_t requests_failed = 0;                                    ///< number of requests that ended with an error
  /// Cache pages of the layers that keep every position, or of all layers if none does. `cache_pages_used`: in use by
  /// requests and sequences. `cache_pages_stored`: held only by the prefix cache. `cache_pages`: all.
  int64_t cache_pages_used = 0, cache_pages_stored = 0, cache_pages = 0;
  int64_t page_tokens = 0;  ///< tokens of one page
};

/// An open language model. Thread-safe.
class TextEngine {
 public:
  /// Opens a GGUF file (any part of a split model) or a Hugging Face folder.
  static Result<std::unique_ptr<TextEngine>> open(const std::string& path, const TextEngineOptions& options = {});
  virtual ~TextEngine() = default;

  virtual const ModelInfo& info() const = 0;
  /// Returns the model's own defaults (generation_config.json; GGUF general.sampling.*), else temperature 0.8, top-p
  /// 0.95. If generation_config.json has do_sample, omitted fields take transformers' defaults; do_sample false is
  /// greedy.
  virtual const SamplingOptions& default_sampling() const = 0;

  /// Converts text to token ids. `special`: special-token names in the text become those tokens, and a text that starts
  /// with the name of the BOS token does not get a second one. not_found: the model has no tokenizer.
  Result<std::vector<int32_t>> encode(std::string_view text, bool special = false, bool add_bos = true) const {
    return encode(text, special, add_bos, {});
  }
  /// encode() with limits on the work. Its time is O(n log n) in the bytes of any text.
  virtual Result<std::vector<int32_t>> encode(std::string_view text, bool special, bool add_bos,
                                              const EncodeLimits& limits) const = 0;
  virtual Result<std::string> decode(std::span<const int32_t> tokens, bool special = false) const = 0;
  /// Returns the bytes of one token within a text, which may be part of a character. The joined bytes of a text's
  /// tokens are the text, except that the decoders of some models drop a space at the beginning. A control token gives
  /// the bytes of its name if `special`, else none. "": the id is outside the vocabulary, or there is no tokenizer.
  virtual std::string token_bytes(int32_t token, bool special = true) const = 0;

  /// Renders a conversation in the model's chat format, as text for encode(text, true). ChatInput::adapt_arguments is
  /// always on. Thread-safe. not_found: the model has no chat template. invalid_argument: malformed JSON, and errors of
  /// the template with line and column.
  virtual Result<std::string> render_chat(const ChatInput& input) const = 0;

  /// Returns a reader of the answer to `prompt`, the rendered text (its end suffices). `tools_json`: the tools, whose
  /// parameter types are needed for formats that write values without quotes; "": none. `constraint`: that of the
  /// request. With kJsonSchema, text after the reasoning is always content, even if its strings contain markers.
  /// Without a chat template everything is content.
  virtual std::unique_ptr<ChatReader> chat_reader(
      std::string_view prompt, std::string_view tools_json,
      OutputConstraint::Kind constraint = OutputConstraint::Kind::kNone) const = 0;

  /// Returns the keywords of a JSON Schema that a relaxed constraint ignores, each once, in alphabetical order. This
  /// compiles the constraint; requests with an equal constraint then reuse it. `chat_prompt`: as
  /// GenerateRequest::chat_prompt. Errors: as generate().
  virtual Result<std::vector<std::string>> unenforced_keywords(const OutputConstraint& constraint,
                                                               std::string_view chat_prompt = {}) = 0;

  /// Makes an empty sequence. The engine must outlive its sequences. A sequence and its forks keep their adapters.
  /// not_found: an adapter that is not loaded. invalid_argument: adapters whose ranks together exceed max_adapter_rank.
  virtual Result<std::unique_ptr<Sequence>> new_sequence(const AdapterWeights& adapters = {}) = 0;

  /// Reads a LoRA adapter as `name`, for requests and sequences that name it: a PEFT folder, or a GGUF adapter in
  /// llama.cpp's format. Requests of one step may use different adapters. Thread-safe.
  /// not_found: no such file. invalid_argument: a name in use, an adapter of another model (the message gives the
  /// module and both shapes), a rank above max_adapter_rank. unsupported: DoRA and other variants; the
  /// message names what is not supported.
  virtual Status load_adapter(const std::string& name, const std::string& path) = 0;
  /// load_adapter() that replaces an adapter with the same name. The name always refers to either the old or the new
  /// adapter. If the new one cannot be read, the old one stays. Errors as load_adapter(), except a name in use.
  virtual Status replace_adapter(const std::string& name, const std::string& path) = 0;
  /// Removes a name. Requests and sequences that use the adapter keep it. not_found: no such name.
  virtual Status unload_adapter(const std::string& name) = 0;

  /// Runs one step for several sequences: appends each entry's tokens to its sequence and writes its logits. Prompt
  /// chunks and single tokens may be mixed in any order. With TextEngineOptions::batch_invariant the logits of a
  /// sequence do not depend, to the last bit, on the other entries. On error every sequence is unchanged.
  /// invalid_argument, with the index of the entry: a sequence that occurs twice or belongs to another engine, a limit
  /// of batch_limits() exceeded, and the errors of Sequence::append(). unsupported: as there.
  /// out_of_memory: the cache has too few free pages.
  virtual Status run_batch(std::span<BatchEntry> batch) = 0;
  virtual BatchLimits batch_limits() const = 0;
  /// Returns the number of tokens that fit in the free cache pages of the layers that keep every position (or of all
  /// layers, if none does). Pages that only the prefix cache holds count as free. Schedulers outside the engine admit
  /// requests by this number.
  virtual int64_t free_cache_tokens() const = 0;
  /// Returns the counters. Does not wait for the step in progress.
  virtual EngineStats stats() const = 0;

  /// Runs a request. Calls `on_piece` after every token, between the steps of a long prompt, and with held-back text at
  /// the end (the latter two with token -1). Returning false ends the generation (kCancelled); `on_piece` is not called
  /// again. Requests that run at the same time share steps. Threads:
  ///   - The steps run on one of the threads inside generate(), or on the engine's own thread (submit()).
  ///   - Callbacks are called one at a time: by the thread that runs the steps, or, if that is the engine's own, by a
  ///     second one during the next step. With a single generate() everything runs on its thread.
  ///   - A callback may use the engine, but must not wait for another request: generate() inside it is an error,
  ///     submit() is not. It must not wait for a lock that another caller of generate() holds.
  ///   - An exception ends its request with an error.
  /// When the cache is full, the latest request of the lowest priority is preempted and recomputed later; the only
  /// running request ends as kLength, or with out_of_memory if its prompt does not fit.
  virtual Result<GenerateResult> generate(const GenerateRequest& request,
                                          const std::function<bool(const TextPiece&)>& on_piece = {}) = 0;

  /// Queues a request and returns at once. Returns an error for invalid arguments; Generation::wait() returns all other
  /// errors.
  virtual Result<std::shared_ptr<Generation>> submit(const GenerateRequest& request,
                                                     std::function<bool(const TextPiece&)> on_piece = {}) = 0;

  /// Bytes of the weights; of the arena, with and without reuse of buffers; of the cache of one full context
  /// (`kv_cache`); and of all pages of the cache (`cache_limit`), in which batch_limits().cache_tokens fit. A page
  /// takes memory when it is first written and is released after it has been unused for a while: `cache_touched` is the
  /// memory that pages take now.
  struct MemoryReport {
    int64_t packed_weights = 0, arena = 0, arena_without_reuse = 0, kv_cache = 0, cache_limit = 0, cache_touched = 0;
  };
  virtual MemoryReport memory() const = 0;
};

/// Input of beam_search().
struct BeamSearchRequest {
  Prompt prompt;  ///< tokens and rows of embeddings, at least one
  int64_t beam_width = 4;
  int64_t max_tokens = 256;
  double length_penalty = 1;  ///< see Beam::score
  bool ignore_stop_tokens = false;
  AdapterWeights adapters;
};

/// One text that beam_search() has found.
struct Beam {
  std::vector<int32_t> tokens;  ///< generated tokens, without the stop token
  std::string text;             ///< "" if the model has no tokenizer
  double logprob = 0;           ///< sum over the tokens, a stop token included
  double score = 0;  ///< logprob / n^length_penalty, where n counts the tokens of prompt and text without a stop token
  FinishReason reason = FinishReason::kLength;
};

/// Beam search as in vLLM. In each step every beam is extended by its 2 * beam_width most likely tokens. An extension
/// by a stop token is a finished text; of the other extensions, the beam_width most likely ones are the next beams. The
/// result has the beam_width best texts by score, finished ones and beams. The search stops early when no further step
/// can change the result. Beams share the cache pages of their common prefixes (copy on write).
///
/// `on_step` is called with the number of tokens after every step; returning false ends the search (kCancelled).
/// invalid_argument: an empty prompt or one that is longer than the context, beam_width < 1, max_tokens < 0, or a
/// length_penalty that is not finite. out_of_memory: the cache does not hold the beams.
Result<std::vector<Beam>> beam_search(TextEngine& engine, const BeamSearchRequest& request,
                                      const std::function<bool(int64_t tokens)>& on_step = {});

/// Returns the largest rank in a LoRA adapter for language models. Errors: those of TextEngine::load_adapter() that
/// concern the file alone.
Result<int64_t> text_adapter_rank(const std::string& path);

}  // namespace redline
