// The engine: a model file in, text out. Start here.
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
#include "redline/runtime.h"
#include "redline/status.h"

namespace redline {

enum class ComputeType : uint8_t {
  kAuto,  ///< float32 accumulation; keys and values cached in float16; block-quantized weights use int8 activations
  kF32,   ///< float32 throughout, for any weight type
};
/// Accepts "auto" and "f32"; anything else is invalid_argument.
Result<ComputeType> compute_type_from_name(std::string_view name);

struct TextEngineOptions {
  int threads = 0;  ///< worker threads; 0: REDLINE_THREADS, else all cores available to the process
  ComputeType dtype = ComputeType::kAuto;
  /// "cpu"; "emu": the kernels of GPUs on an emulated device, slowly; "cuda" or "cuda:N"; "auto": what REDLINE_DEVICE
  /// names, else a GPU that can run the model, else the CPU. An op without a kernel is `unsupported`, by name.
  std::string device = "auto";
  int64_t gpu_layers = -1;  ///< layers on the device, from the first on; others on the CPU. -1: by speed
  int64_t context = 0;      ///< maximum tokens of one sequence; 0: the model's own limit, as far as memory allows
  int64_t max_batch_tokens = 512;  ///< maximum tokens of one step, over all its sequences
  int64_t max_sequences = 64;      ///< maximum number of sequences in one step
  int64_t max_prefill_tokens = 0;  ///< maximum prompt tokens of a step that also decodes; 0: what the step has room for
  /// Upper bound, estimated from earlier steps, on step time relative to a decode-only step. Prefill chunks shrink to
  /// keep it. 0: unlimited.
  double max_slowdown = 0;
  int64_t cache_tokens = 0;  ///< maximum tokens in all caches; 0: max_sequences contexts, within half of the memory
  int64_t cache_memory = 0;  ///< maximum bytes of the pages of all caches; 0: from cache_tokens
  /// Requests start from the state of earlier ones with the same beginning. Unused states may occupy what cache_tokens
  /// or cache_memory allow, or a quarter of the available memory.
  bool prefix_cache = true;
  /// Whole pages of the prefix cache are also kept in this folder and reloaded after eviction, also by a later engine
  /// with the same model, adapters and kernels. Texts can be recovered from the files: restrict access to them. "":
  /// none.
  std::string cache_folder;
  int64_t cache_folder_bytes = int64_t{16} << 30;  ///< maximum; pages used least recently go first
  /// Called by any thread with a sentence about a problem that does not stop the engine, such as a damaged file or a
  /// full disk. Must not call the engine.
  std::function<void(const std::string&)> on_notice;
  /// Logits of a sequence have the same bits alone or in any batch, and for any cut of its prompt. This holds in any
  /// case with dtype f32 and, on CPUs without a tile unit (AMX), for weights that are not block formats. For others it
  /// makes prompts slower (docs/numerics.md).
  bool batch_invariant = false;
  bool use_interpreter = false;      ///< reference mode: run the graph op by op in float64, slowly
  std::string trace_file;            ///< write a timeline (Perfetto JSON) when the engine closes; "": none
  std::string chat_template;         ///< file or built-in name ("chatml"); "": the model's own
  int64_t max_adapter_rank = 0;      ///< maximum sum of the ranks of one request's LoRA adapters; 0: none can be loaded
  std::shared_ptr<Runtime> runtime;  ///< shared with other engines; null: one with `threads` and `trace_file`
};

/// Description of a model, available without running it.
struct ModelInfo {
  std::string path, architecture, file_format;  ///< "llama"; "gguf" or "safetensors"
  std::string weight_types;                     ///< "bf16 x57, f32 x17"
  int64_t parameters = 0, weight_bytes = 0;
  int64_t num_layers = 0, hidden_size = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0, intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t model_context = 0;  ///< tokens of one sequence that the model was trained for; 0: its files do not say
  int64_t context = 0;        ///< tokens of one sequence in this engine (TextEngineOptions::context)
  /// Maximum number of bytes of text that become one token: n times as many bytes have at least n tokens. 0: there is
  /// no maximum, because a run of unknown characters or of spaces may become one token, or there is no tokenizer.
  int64_t max_token_bytes = 0;
  std::string left_out;  ///< vision and audio parts of the model, which are not run: "439 tensors of vision_tower"
  bool has_tokenizer = false;
  bool has_chat_template = false;  ///< render_chat() works
  std::string chat_template;       ///< its text
  bool has_chat_markers = false;   ///< answers mark reasoning or tool calls, which chat_reader() tells apart
  bool has_tool_template = false;  ///< the chat template writes the tools that it is given
  /// The switch that ChatInput::thinking sets: a variable of the chat template, as "enable_thinking", or a word in the
  /// system message, as "/no_think". "": the template has none.
  std::string thinking_switch;
  int threads = 0;
  std::string isa;  ///< instruction set of the kernels in use, or the device: "emu"
  /// How the device runs a step: "up to 16 rows in one launch, more by graphs of launches"; "": the CPU runs it.
  std::string device_steps;
  std::vector<int32_t> stop_tokens;  ///< tokens that end a text, sorted
};

/// Bounds of TextEngine::encode() for texts of any length.
struct EncodeLimits {
  /// Maximum number of bytes in one slice of the work.
  static constexpr int64_t kSliceBytes = int64_t{1} << 16;
  /// A text with more tokens is invalid_argument; the rest of the text is not encoded.
  int64_t max_tokens = INT64_MAX;
  /// Called after every slice with its number of bytes, at most kSliceBytes. A text that is normalized before it is
  /// encoded is counted once for each pass over it. Returning false ends the call as `cancelled`.
  std::function<bool(int64_t bytes)> on_slice;
};

/// How the next token is chosen. Logits get `logit_bias`, and tokens that would complete one of `bad_words` are
/// excluded. The samplers in `samplers` follow in order: each filters the candidates left by the previous one. The
/// result is sampled from the remaining distribution. Definitions are those of llama.cpp, unless a member says
/// otherwise.
struct SamplingOptions {
  float temperature = 0.8f;         ///< 0: greedy, the most likely token after bias, penalties and dry
  int64_t top_k = 0;                ///< only the k most likely tokens; 0: off
  float top_p = 1.0f;               ///< the most likely tokens with this share of the probability; 1: off
  float min_p = 0.0f;               ///< tokens at least this likely, relative to the most likely one; 0: off
  float repetition_penalty = 1.0f;  ///< 1: off; over prompt and output (Keskar et al. 2019, arXiv:1909.05858)
  uint64_t seed = 0;                ///< the same seed gives the same text for any number of threads
  float presence_penalty = 0;       ///< subtracted from the logit of each token of the output (OpenAI)
  float frequency_penalty = 0;      ///< the same, times the number of its occurrences
  int64_t penalty_last_n = -1;      ///< the three penalties see the last n tokens of the text; -1: all, 0: none
  float typical_p = 1.0f;           ///< locally typical tokens (Meister et al. 2022, arXiv:2202.00666); 1: off
  float top_n_sigma = 0;            ///< logits within n standard deviations of the largest (arXiv:2411.07641); 0: off
  float xtc_probability = 0;        ///< how often XTC removes all but the least likely of the tokens that are at least
  float xtc_threshold = 0.1f;       ///< this likely; above 0.5 there is at most one, and XTC is off
  /// DRY: a token that would continue a repetition of n >= dry_allowed_length tokens loses
  /// dry_multiplier * dry_base^(n - dry_allowed_length) of its logit. 0: off.
  float dry_multiplier = 0;
  float dry_base = 1.75f;
  int64_t dry_allowed_length = 2;
  int64_t dry_penalty_last_n = -1;  ///< repetitions are searched for in this many tokens; -1: all, 0: none
  /// A repetition ends at a token within which one of these strings ends. Without effect if the model has no tokenizer.
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  /// 1, 2: Mirostat (Basu et al. 2020, arXiv:2007.14966) in either version, in place of all samplers but penalties, dry
  /// and temperature; 0: off.
  int mirostat = 0;
  float mirostat_tau = 5.0f;  ///< surprise to hold, in bits
  float mirostat_eta = 0.1f;  ///< learning rate
  float dynatemp_range = 0;   ///< the temperature depends on the entropy: temperature - range (at least 0) if it is
  float dynatemp_exponent = 1.0f;  ///< zero, temperature + range if all tokens are equally likely; 0: off
  std::vector<std::pair<int32_t, float>> logit_bias;  ///< token, addend; -inf excludes the token
  std::vector<std::string> samplers;                  ///< of default_samplers(); what is left out is off; empty: all
  std::vector<std::string> bad_words;                 ///< strings that do not appear in the output
};

/// The names of the samplers in the order in which they are applied by default: "penalties" (repetition, presence and
/// frequency), "dry", "temperature" (with dynatemp), "top_n_sigma", "top_k", "typical_p", "top_p", "min_p", "xtc".
const std::vector<std::string>& default_samplers();
/// The name of a sampler as default_samplers() has it, from that or another spelling: "typ_p", "temp", "top-k".
/// invalid_argument: there is no such sampler; the message has the list.
Result<std::string> sampler_name(std::string_view text);
/// The samplers that have an effect with these options, in their order, and "mirostat". The last one is "greedy" or
/// "draw". invalid_argument: as for requests with these options.
Result<std::vector<std::string>> active_samplers(const SamplingOptions& options);

/// LoRA adapters by the names under which they were loaded, each with its weight (1: as trained). Their products are
/// added up.
using AdapterWeights = std::vector<std::pair<std::string, double>>;

/// What a text must match, from its first to its last byte. Every token that would make that impossible is excluded
/// before sampling; tokens that end the text are allowed where it is complete. The text ends by itself (kStop) where
/// nothing can follow.
struct OutputConstraint {
  enum class Kind : uint8_t {
    kNone,
    kGrammar,     ///< `text` in GBNF, the notation of llama.cpp
    kLark,        ///< `text` in the notation of Lark, the subset that OpenAI documents for custom tools
    kRegex,       ///< `text` is a regular expression (ECMA-262 without look-around and back references)
    kJsonSchema,  ///< `text` is a JSON Schema (draft 7, 2020-12); "{}": any JSON value
    kChoice,      ///< one of `choices`
    kToolCalls,   ///< calls of the tools in `text`, OpenAI's list, as TextEngine::chat_reader() reads them
  };
  Kind kind = Kind::kNone;
  std::string text;
  std::vector<std::string> choices;
  std::string tools = {};  ///< OpenAI's list of tools: calls of these match as well; "": none. Not for kToolCalls
  bool allows_several_calls = false;  ///< more than one call, where the model's family writes several
  JsonFormat json = {};               ///< kJsonSchema, and the arguments of calls
  bool operator==(const OutputConstraint&) const = default;
};

struct GenerateRequest {
  std::vector<int32_t> prompt;  ///< token ids; empty: starts from BOS, an error if the model has none
  SamplingOptions sampling;
  int64_t max_tokens = 256;
  std::vector<std::string> stop;  ///< strings that end the generation; not part of the output
  /// The rendered prompt, or its end, of an answer that chat_reader() reads. The model may then think first, as its
  /// chat template has it: the constraint holds for what follows the thinking, and stop strings end only that. "": the
  /// constraint and the stop strings hold from the first token.
  std::string chat_prompt;
  bool stop_in_reasoning = false;    ///< stop strings end the thinking, too
  std::vector<int32_t> stop_tokens;  ///< further tokens that end the text
  bool ignore_stop_tokens = false;   ///< the model's own do not end it
  int64_t min_tokens = 0;  ///< tokens that end the text are excluded before, unless a constraint allows no other
  bool special = false;    ///< control tokens appear in the text: markers of tool calls, for ChatReader
  int num_logprobs = -1;   ///< -1: none; k >= 0: log probability of each token and of the k most likely ones
  AdapterWeights adapters;
  std::string client;           ///< requests of one client share its turn; "": a client of its own
  int priority = 0;             ///< lower runs first
  double timeout_ms = 0;        ///< from the call; then the request ends as kTimeout with its text so far. 0: none
  std::string cache_salt;       ///< states are shared only between requests with equal salts
  OutputConstraint constraint;  ///< compiled by generate() and submit(), which return its errors
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
/// "stop", "length", "cancelled", "context", "timeout"
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
/// "none", "disabled", "not_stored", "other_adapter", "evicted", "window", "snapshot"
std::string_view cache_miss_name(CacheMiss miss);

struct GenerateResult {
  FinishReason reason = FinishReason::kStop;
  std::vector<int32_t> tokens;  ///< generated tokens, without the stop token
  std::string text;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  ///< prompt tokens whose state came from the prefix cache
  CacheMiss cache_miss = CacheMiss::kNotStored;
  double queue_ms = 0;        ///< from the call until its state had a place in the cache
  double first_token_ms = 0;  ///< from the call to the first token
  double prefill_ms = 0;      ///< from the call to the logits of the prompt
  double decode_ms = 0;       ///< the steps after the first token
  int64_t decode_tokens = 0;  ///< tokens generated in decode_ms
};

/// A request in progress. Thread-safe; may outlive the engine, which cancels what is still running when it closes.
/// Dropping the handle cancels the request.
class Generation {
 public:
  virtual ~Generation() = default;
  /// Takes effect with the step in progress; the result is then what was generated so far (kCancelled). Neither
  /// cancel() nor dropping waits for a callback that is running: wait() before what `on_piece` refers to goes away.
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
  /// Appends tokens and writes the logits after the last of them: logits.size() / vocab_size rows, which the caller
  /// owns. Empty `logits`: none are computed. On error the sequence is unchanged.
  /// invalid_argument: no tokens, an id outside the vocabulary, more tokens than the context holds (the message gives
  /// both numbers), or logits that are not whole rows or more rows than tokens. out_of_memory: the cache has too few
  /// free pages.
  virtual Status append(std::span<const int32_t> tokens, std::span<float> logits) = 0;
  /// append() in sight of the caller, for logits that are more than memory holds, or a call that may be cancelled:
  /// after every step, `on_step` gets the number of `tokens` that have been appended, and the logits of those of the
  /// last `rows` of them that were in this step, [n, vocab_size], valid during the call. Returning false ends the call
  /// as `cancelled`. The logits are those of one append(), also where rope scaling depends on the length (dynamic NTK,
  /// longrope): a prompt that is cut into several calls takes the length after each. Other sequences may run between
  /// the steps.
  using OnStep = std::function<bool(int64_t appended, std::span<const float> logits)>;
  virtual Status append_in_steps(std::span<const int32_t> tokens, int64_t rows, const OnStep& on_step) = 0;
  /// append(), with the logits after the last token, [vocab_size], or after each token if `all`, [tokens, vocab_size].
  Result<std::vector<float>> forward(std::span<const int32_t> tokens, bool all = false);

  /// Number of tokens so far.
  virtual int64_t length() const = 0;
  /// Drops tokens from position `length` on and returns the number of tokens left. Besides for a shorter sequence, it
  /// is smaller than `length` when the state at that position is gone: a sliding window keeps 256 positions more than
  /// it reads, a recurrent state that before the last step. The caller then appends the missing tokens again.
  virtual int64_t truncate(int64_t length) = 0;
  /// A sequence with the same tokens. Both share the pages of their cache until one of them writes to a page (copy on
  /// write).
  virtual Result<std::unique_ptr<Sequence>> fork() const = 0;

 protected:
  virtual int64_t vocab_size() const = 0;
  /// Errors of append() that do not depend on memory, for `rows` rows of logits.
  virtual Status check(std::span<const int32_t> tokens, int64_t rows) const = 0;
};

/// One sequence's part of a step: a chunk of its prompt, the last sampled token, or tokens to verify.
struct BatchEntry {
  Sequence* sequence = nullptr;  ///< a sequence of this engine; each at most once per batch
  std::span<const int32_t> tokens;
  std::span<float> logits;  ///< as in Sequence::append, written by run_batch
};

/// Limits of one step and of the engine's cache.
struct BatchLimits {
  int64_t tokens = 0;        ///< of one step, over all entries
  int64_t sequences = 0;     ///< entries of one step
  int64_t logit_rows = 0;    ///< of one step, over all entries
  int64_t cache_tokens = 0;  ///< over all sequences, each rounded up to whole pages
  int64_t page_tokens = 0;   ///< tokens of one page
};

/// What an engine does and has done. Counters are totals since it was opened.
struct EngineStats {
  int64_t running = 0;               ///< requests whose state is in the cache
  int64_t waiting = 0;               ///< requests waiting for cache pages, including preempted ones
  int64_t preemptions = 0;           ///< evicted states to be recomputed
  int64_t prompt_tokens = 0;         ///< of requests whose prompt is complete
  int64_t cached_prompt_tokens = 0;  ///< of these, taken from the prefix cache
  int64_t generated_tokens = 0;
  int64_t steps = 0;  ///< of requests and of sequences
  double step_seconds = 0;
  /// The step in progress has made no progress for REDLINE_HANG_SECONDS; a dump of its workers is on standard error.
  bool is_stalled = false;
  /// What the steps since EngineProfile::count_bounds() would have taken at the limits of the machine: each weight and
  /// each cached page read once per step, or its multiply-adds, whichever takes longer. 0: the limits are unknown.
  double bound_seconds = 0;
  std::array<int64_t, kNumFinishReasons> requests_finished = {};  ///< by FinishReason
  int64_t requests_failed = 0;                                    ///< ended with an error
  /// Pages of the layers that keep every position, or of all layers if none does. `cache_pages_used` are those of
  /// requests and sequences, `cache_pages_stored` those that only the prefix cache holds.
  int64_t cache_pages_used = 0, cache_pages_stored = 0, cache_pages = 0;
  int64_t page_tokens = 0;  ///< tokens of one page
};

/// Thread-safe.
class TextEngine {
 public:
  /// `path`: a GGUF file (any part of a split model) or a Hugging Face folder.
  static Result<std::unique_ptr<TextEngine>> open(const std::string& path, const TextEngineOptions& options = {});
  virtual ~TextEngine() = default;

  virtual const ModelInfo& info() const = 0;
  /// The model's own defaults (generation_config.json; GGUF general.sampling.*), else temperature 0.8, top-p 0.95. If
  /// generation_config.json has do_sample, omitted fields take transformers' defaults; do_sample false is greedy.
  virtual const SamplingOptions& default_sampling() const = 0;

  /// Text to ids; `special`: special-token names in the text become those tokens, and a text that starts with the name
  /// of the BOS token does not get a second one. not_found: the model has no tokenizer.
  Result<std::vector<int32_t>> encode(std::string_view text, bool special = false, bool add_bos = true) const {
    return encode(text, special, add_bos, {});
  }
  /// encode() that stops early. Time is linear in the bytes of the text (times a logarithm), whatever they are.
  virtual Result<std::vector<int32_t>> encode(std::string_view text, bool special, bool add_bos,
                                              const EncodeLimits& limits) const = 0;
  virtual Result<std::string> decode(std::span<const int32_t> tokens, bool special = false) const = 0;
  /// The bytes of one token within a text, which may be a part of a character. Joined over the tokens of a text they
  /// are its bytes, except that the decoder of some models drops a space at the begin. Control tokens have the bytes of
  /// their names if `special`, else none. "": an id outside the vocabulary, or no tokenizer.
  virtual std::string token_bytes(int32_t token, bool special = true) const = 0;

  /// The text of a conversation in the model's format, for encode(text, true); ChatInput::adapt_arguments is always on.
  /// Thread-safe. not_found: the model has no chat template. invalid_argument: malformed JSON, and errors of the
  /// template with line and column.
  virtual Result<std::string> render_chat(const ChatInput& input) const = 0;

  /// A reader of the answer to `prompt`, the rendered text (its end suffices). `tools_json`: types of parameters, for
  /// formats that write values without quotes; "": none. Without a chat template everything is content. `constraint`:
  /// of the request. After the reasoning, text of a JSON schema is content as it is, whatever markers its strings have.
  virtual std::unique_ptr<ChatReader> chat_reader(
      std::string_view prompt, std::string_view tools_json,
      OutputConstraint::Kind constraint = OutputConstraint::Kind::kNone) const = 0;

  /// The keywords of a JSON Schema that a relaxed constraint leaves out, each once, in alphabetical order. Compiles the
  /// constraint, which requests with an equal one then share. `chat_prompt`: GenerateRequest::chat_prompt. Errors as
  /// generate() has them.
  virtual Result<std::vector<std::string>> unenforced_keywords(const OutputConstraint& constraint,
                                                               std::string_view chat_prompt = {}) = 0;

  /// The engine must outlive its sequences. A sequence and its forks keep their adapters.
  /// not_found: an adapter that is not loaded. invalid_argument: adapters whose ranks together exceed max_adapter_rank.
  virtual Result<std::unique_ptr<Sequence>> new_sequence(const AdapterWeights& adapters = {}) = 0;

  /// Reads a LoRA adapter as `name`, for requests and sequences that name it: a PEFT folder, or a GGUF adapter as
  /// llama.cpp has it. Requests of one step may use different adapters. Thread-safe.
  /// not_found: no such file. invalid_argument: a name in use, an adapter of another model (the message gives the
  /// module and both shapes), a rank above max_adapter_rank. unsupported: DoRA and other variants; the
  /// message names what is not supported.
  virtual Status load_adapter(const std::string& name, const std::string& path) = 0;
  /// load_adapter() in place of the one that has the name, if there is one: at any time the name means the old or the
  /// new one. If the new one cannot be read, the old one stays. Errors as load_adapter(), except a name in use.
  virtual Status replace_adapter(const std::string& name, const std::string& path) = 0;
  /// Requests and sequences that use it keep it. not_found: no such name.
  virtual Status unload_adapter(const std::string& name) = 0;

  /// One step for several sequences: appends each entry's tokens to its sequence and writes its logits. Prompt chunks
  /// and single tokens may be mixed in any order. Where batches are invariant (TextEngineOptions::batch_invariant) the
  /// logits of a sequence are bit-identical whatever else is in the batch. On error every sequence is unchanged.
  /// invalid_argument, with the index of the entry: no tokens, an id outside the vocabulary, more tokens than the
  /// context holds, a sequence that occurs twice or belongs to another engine, logits that are not whole rows or more
  /// rows than tokens, or a limit of batch_limits() exceeded.
  /// out_of_memory: the cache has too few free pages.
  virtual Status run_batch(std::span<BatchEntry> batch) = 0;
  virtual BatchLimits batch_limits() const = 0;
  /// Number of tokens that fit in the free pages of the layers that keep every position (or of all layers, if none
  /// does); schedulers admit requests by it. Pages that only the prefix cache holds are free.
  virtual int64_t free_cache_tokens() const = 0;
  /// Does not wait for the step in progress.
  virtual EngineStats stats() const = 0;

  /// Calls `on_piece` after every token, between the steps of a long prompt, and with held-back text at the end (the
  /// latter two with token -1). Returning false ends the generation (kCancelled); `on_piece` is not called again.
  /// Requests that run at the same time share steps. Threads:
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

  /// Queues a request and returns at once. Invalid arguments are found here, other errors by Generation::wait.
  virtual Result<std::shared_ptr<Generation>> submit(const GenerateRequest& request,
                                                     std::function<bool(const TextPiece&)> on_piece = {}) = 0;

  /// Bytes of the weights, the arena (with and without reuse), the cache of one full context, and of all pages of the
  /// cache (batch_limits().cache_tokens fit in them). Pages take memory when they are written, and give it back when
  /// nothing has used them for a while: `cache_touched` is what they take now.
  struct MemoryReport {
    int64_t packed_weights = 0, arena = 0, arena_without_reuse = 0, kv_cache = 0, cache_limit = 0, cache_touched = 0;
  };
  virtual MemoryReport memory() const = 0;
};

struct BeamSearchRequest {
  std::vector<int32_t> prompt;  ///< not empty
  int64_t beam_width = 4;
  int64_t max_tokens = 256;
  double length_penalty = 1;  ///< see Beam::score
  bool ignore_stop_tokens = false;
  AdapterWeights adapters;
};

struct Beam {
  std::vector<int32_t> tokens;  ///< generated tokens, without the stop token
  std::string text;             ///< "" if the model has no tokenizer
  double logprob = 0;           ///< sum over the tokens, a stop token included
  double score = 0;             ///< logprob / n^length_penalty, n tokens of prompt and text without a stop token
  FinishReason reason = FinishReason::kLength;
};

/// Beam search as in vLLM: in each step every beam is continued by its 2 beam_width most likely tokens; stop tokens
/// among these end a text, and of all others the beam_width most likely texts are continued. The result has the
/// beam_width best texts by score, of those that ended and of the beams. Steps whose texts cannot be among them are
/// left out. Beams share the pages of their common beginnings (copy on write).
///
/// `on_step` is called with the number of tokens after every step; returning false ends the search (kCancelled).
/// invalid_argument: an empty prompt or one that is longer than the context, beam_width < 1, max_tokens < 0, or a
/// length_penalty that is not finite. out_of_memory: the cache does not hold the beams.
Result<std::vector<Beam>> beam_search(TextEngine& engine, const BeamSearchRequest& request,
                                      const std::function<bool(int64_t tokens)>& on_step = {});

/// The largest rank in a LoRA adapter for language models. Errors as TextEngine::load_adapter's for the file alone.
Result<int64_t> text_adapter_rank(const std::string& path);

}  // namespace redline
