/* Redline's C interface (C99): libredline.so, which exports the functions below and nothing else. (over 600 lines: one
 * file is the whole interface, but for the tables of options, redline/..._options.inc.)
 *
 *   redline_error* error = NULL;
 *   redline_model* model = NULL;
 *   if (redline_model_open("assets/redline-tales", NULL, &model, &error) != REDLINE_OK) return fail(error);
 *   redline_prompt prompt = {"Once upon a time", REDLINE_STRING_END, NULL, 0};
 *   redline_generation* story = NULL;
 *   redline_generate(model, &prompt, 1, NULL, 0, print_piece, NULL, &story, &error);
 *   ...
 *   redline_generation_release(story);
 *   redline_model_release(model);
 *
 * Rules that hold for every function
 *
 * Errors. A function that can fail returns a redline_code. Its last parameter receives an error object, which the
 * caller frees; pass NULL if it is not needed. On failure all other out parameters are NULL or 0. A NULL handle or
 * pointer where NULL is not allowed gives invalid_argument. No C++ exception leaves a function.
 *
 * Handles are counted references. redline_X_release(NULL) does nothing. A handle keeps alive what it uses: a model is
 * closed when its last handle, generation and sequence have been released. A handle that has no retain function has one
 * owner.
 *
 * Structs that may grow begin with struct_size, the size that the caller was compiled with. redline_X_init(&x, sizeof
 * x) sets it and fills in the defaults. A caller that is newer than the library may set only fields that the library
 * knows: others must be zero, or the call is an error (unsupported). Structs without struct_size never change.
 *
 * Strings are UTF-8. Strings with a length may contain zero bytes. The length REDLINE_STRING_END means that the string
 * ends at its first zero byte. Options are read during the call only. Text and arrays that a function returns through a
 * `char**`, `int32_t**` or `uint8_t**` are freed with redline_free(). Such text is followed by a zero byte.
 *
 * Threads. Every function may be called by several threads at once, also on one handle, except that a redline_sequence
 * and a redline_chat_reader serve one call at a time, and that redline_generation_next has one caller at a time. A
 * callback may release handles and submit prompts; it must not wait for the model that calls it: such calls give
 * invalid_argument. Callbacks must not throw C++ exceptions or leave with longjmp.
 *
 * fork(). A child process does not have the threads that compute. In it, handles that the parent opened give
 * invalid_argument, and releasing them does not free their memory. Open models after fork(). */
#ifndef REDLINE_C_API_H
#define REDLINE_C_API_H

#include <stddef.h>
#include <stdint.h>

#include "redline/option_types.h"

#define REDLINE_VERSION_MAJOR 0
#define REDLINE_VERSION_MINOR 1
#define REDLINE_VERSION_PATCH 0
#define REDLINE_VERSION_NUMBER (REDLINE_VERSION_MAJOR * 10000 + REDLINE_VERSION_MINOR * 100 + REDLINE_VERSION_PATCH)

#if defined(__GNUC__)
#define REDLINE_C_API __attribute__((visibility("default")))
#else
#define REDLINE_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif
/* NOLINTBEGIN(modernize-use-using): C has typedef */

#define REDLINE_STRING_END ((size_t)-1)

/* ---- Version, errors, memory ---- */

/* Return the version of the loaded library: "0.1.0", and its REDLINE_VERSION_NUMBER. */
REDLINE_C_API const char* redline_version(void);
REDLINE_C_API int32_t redline_version_number(void);

typedef int32_t redline_code;
enum {
  REDLINE_OK = 0,
  REDLINE_INVALID_ARGUMENT = 1,
  REDLINE_NOT_FOUND = 2,
  REDLINE_UNSUPPORTED = 3,
  REDLINE_OUT_OF_MEMORY = 4,
  REDLINE_CANCELLED = 5,
  REDLINE_IO = 6,
  REDLINE_INTERNAL = 7
};
/* Returns the name of a code: "ok", "invalid_argument", ...; "unknown" for any other number. */
REDLINE_C_API const char* redline_code_name(redline_code code);

typedef struct redline_error redline_error;
REDLINE_C_API redline_code redline_error_code(const redline_error* error); /* REDLINE_OK for NULL */
/* Returns the message without the code's name, valid until the error is freed; "" for NULL. */
REDLINE_C_API const char* redline_error_message(const redline_error* error);
REDLINE_C_API void redline_error_free(redline_error* error);

REDLINE_C_API void redline_free(void* text_or_array);

/* A canceller ends the calls that have it in their options, from any thread or signal handler. They return
 * REDLINE_CANCELLED after the step in progress. It stays cancelled until it is reset. */
typedef struct redline_canceller redline_canceller;
REDLINE_C_API redline_code redline_canceller_create(redline_canceller** canceller, redline_error** error);
REDLINE_C_API void redline_canceller_cancel(redline_canceller* canceller);
REDLINE_C_API void redline_canceller_reset(redline_canceller* canceller);
REDLINE_C_API void redline_canceller_release(redline_canceller* canceller);

/* ---- The machine ---- */

/* Describes the devices of this machine as a JSON object: "devices", a list of {"name": "cpu", "description", "cores",
 * "isas", "isa", "memory_bytes", "memory_available_bytes", "caches"}. Nothing is measured. */
REDLINE_C_API redline_code redline_devices(char** json, redline_error** error);

/* A runtime has the worker threads and the scratch memory that several models may share. Their steps take turns. */
typedef struct redline_runtime redline_runtime;
typedef struct redline_runtime_options {
  size_t struct_size;
  int32_t threads;        /* 0: REDLINE_THREADS, else all cores available to the process */
  const char* trace_file; /* file for a timeline (Perfetto JSON), written when the runtime closes; NULL: none */
} redline_runtime_options;
REDLINE_C_API void redline_runtime_options_init(redline_runtime_options* options, size_t struct_size);
REDLINE_C_API redline_code redline_runtime_open(const redline_runtime_options* options, redline_runtime** runtime,
                                                redline_error** error); /* options NULL: the defaults */
REDLINE_C_API redline_runtime* redline_runtime_retain(redline_runtime* runtime);
REDLINE_C_API void redline_runtime_release(redline_runtime* runtime);
/* Number of worker threads. */
REDLINE_C_API int32_t redline_runtime_threads(const redline_runtime* runtime);

/* A LoRA adapter that a model is opened with. */
typedef struct redline_adapter {
  const char* name; /* NULL: "adapter0" for the first, "adapter1", ... */
  const char* path;
  double weight; /* factor of the adapter's product; 1: as trained */
} redline_adapter;
/* A loaded adapter with its weight in a request. */
typedef struct redline_adapter_weight {
  const char* name;
  double weight; /* factor of the adapter's product; 1: as trained */
} redline_adapter_weight;

/* ---- Language models ---- */

typedef struct redline_model redline_model;
/* Options of redline_model_open(). The fields after struct_size are the rows of redline/text_engine_options.inc, one
 * by one with type, default and meaning. NULL for a text or a path is the default. */
typedef struct redline_model_options {
  size_t struct_size;
#define REDLINE_OPTION(type, name, ...) REDLINE_C_##type name;
#define REDLINE_OPTION_C(...) __VA_ARGS__;
#include "redline/text_engine_options.inc"
} redline_model_options;
REDLINE_C_API void redline_model_options_init(redline_model_options* options, size_t struct_size);

/* Opens a model. `path`: a GGUF file (any part of a split model) or a Hugging Face folder. `options` NULL: the
 * defaults. */
REDLINE_C_API redline_code redline_model_open(const char* path, const redline_model_options* options,
                                              redline_model** model, redline_error** error);
REDLINE_C_API redline_model* redline_model_retain(redline_model* model);
REDLINE_C_API void redline_model_release(redline_model* model);

typedef struct redline_model_info {
  size_t struct_size;
  int64_t vocab_size;                       /* size of the vocabulary: floats in one row of logits */
  int64_t context;                          /* maximum tokens of one sequence */
  int64_t hidden_size, num_layers;          /* width of a hidden state; number of decoder layers */
  int64_t max_batch_tokens;                 /* limits of one redline_model_run_batch: tokens over all entries, */
  int64_t max_batch_sequences;              /* entries, */
  int64_t max_batch_logit_rows;             /* rows of logits over all entries */
  int32_t has_tokenizer, has_chat_template; /* 1: the model has one */
  int32_t threads;                          /* worker threads */
} redline_model_info;
REDLINE_C_API redline_code redline_model_get_info(redline_model* model, redline_model_info* info,
                                                  redline_error** error);
/* Describes the model, its memory, its counters and its default sampling as a JSON object with the members "model",
 * "memory", "stats" and "sampling". */
REDLINE_C_API redline_code redline_model_describe(redline_model* model, char** json, redline_error** error);

/* Converts text to token ids. `parse_special`: special-token names in the text become those tokens. not_found: the
 * model has no tokenizer. */
REDLINE_C_API redline_code redline_model_encode(redline_model* model, const char* text, size_t length,
                                                int32_t parse_special, int32_t add_bos, int32_t** tokens,
                                                size_t* num_tokens, redline_error** error);
/* Converts token ids to text. `special`: special tokens appear by their names. `length` may be NULL. */
REDLINE_C_API redline_code redline_model_decode(redline_model* model, const int32_t* tokens, size_t num_tokens,
                                                int32_t special, char** text, size_t* length, redline_error** error);
/* The bytes of one token within a text, with a zero byte after their end; they may be a part of a character. Special
 * tokens have the bytes of their names if `special`, else none. For tokens of redline_token_logprob. invalid_argument:
 * an id outside the vocabulary. not_found: no tokenizer. */
REDLINE_C_API redline_code redline_model_token_bytes(redline_model* model, int32_t token, int32_t special, char** bytes,
                                                     size_t* length, redline_error** error);

/* Renders a conversation in the model's chat format, as text for redline_prompt or for redline_model_encode() with
 * parse_special. `messages_json`: a list of messages as in OpenAI's API; `tools_json`: a list of tools, or NULL;
 * `variables_json`: an object of further variables of the template, or NULL. not_found: the model has no chat template.
 * invalid_argument: malformed JSON, or an error of the template. */
REDLINE_C_API redline_code redline_model_render_chat(redline_model* model, const char* messages_json,
                                                     const char* tools_json, const char* variables_json,
                                                     int32_t add_generation_prompt, char** text, size_t* length,
                                                     redline_error** error);

/* Splits an answer that was generated with skip_special_tokens = 0 into content, reasoning and tool calls. The text is
 * passed in pieces of any size. */
typedef struct redline_chat_reader redline_chat_reader;
REDLINE_C_API redline_code redline_chat_reader_open(redline_model* model, const char* prompt, size_t length,
                                                    const char* tools_json, redline_chat_reader** reader,
                                                    redline_error** error);
/* Reads a piece of text. `json` becomes a list, perhaps empty, of {"type": "content" or "reasoning", "text"} and of
 * {"type": "tool_call", "index", "id", "name", "arguments"}, whose arguments are a JSON text. `is_last` 0: more text
 * follows. 1: no text follows, and the list includes the text that was held back. 2: no text follows because a limit
 * ended it, so an incomplete tool call is dropped. */
REDLINE_C_API redline_code redline_chat_reader_push(redline_chat_reader* reader, const char* text, size_t length,
                                                    int32_t is_last, char** json, redline_error** error);
REDLINE_C_API void redline_chat_reader_release(redline_chat_reader* reader);

/* Load and unload LoRA adapters, which requests and sequences select by name. redline_text_adapter_rank gives the
 * largest rank in a file, which max_adapter_rank must not be below. */
REDLINE_C_API redline_code redline_model_load_adapter(redline_model* model, const char* name, const char* path,
                                                      redline_error** error);
REDLINE_C_API redline_code redline_model_unload_adapter(redline_model* model, const char* name, redline_error** error);
REDLINE_C_API redline_code redline_text_adapter_rank(const char* path, int64_t* rank, redline_error** error);

/* ---- Generating text ---- */

/* Options of one prompt. Names and meanings are those of vLLM and OpenAI's API where these have the option; samplers
 * work as in llama.cpp. The fields after struct_size are the rows of redline/generate_options.inc, one by one with
 * type, default and meaning. */
typedef struct redline_generate_options {
  size_t struct_size;
#define REDLINE_OPTION(type, name, ...) REDLINE_C_##type name;
#define REDLINE_REQUEST_OPTION(type, name, ...) REDLINE_C_##type name;
#define REDLINE_OPTION_C(...) __VA_ARGS__;
#include "redline/generate_options.inc"
} redline_generate_options;
/* Fills in the defaults. `model` may be NULL. With a model, they include its own sampling (generation_config.json,
 * GGUF) and the adapters that it was opened with, which are borrowed from it. */
REDLINE_C_API void redline_generate_options_init(redline_generate_options* options, size_t struct_size,
                                                 redline_model* model);

/* A prompt: text, or token ids if `tokens` is not NULL. */
typedef struct redline_prompt {
  const char* text;
  size_t length; /* bytes of text, or REDLINE_STRING_END */
  const int32_t* tokens;
  size_t num_tokens;
} redline_prompt;

/* Tokens and rows of embeddings in order, for prompts with images or sound. It has one owner and is not changed by
 * several threads at once. Prompts, sequences and batches that were given one copy what they need. */
typedef struct redline_prompt_spans redline_prompt_spans;
/* Rows of embeddings that an image or audio encoder has computed, or of a part of them. */
typedef struct redline_embedding_rows {
  size_t struct_size;
  const float* values; /* [num_rows, hidden_size], finite; copied */
  size_t num_rows;
  int64_t hidden_size;  /* redline_model_info::hidden_size of the model */
  uint64_t media_hash;  /* hash of the contents of the media, by which cached state is found; 0: a hash of the values */
  int64_t media_offset; /* index in the media of the first row */
  int32_t placeholder;  /* token id that stands for the rows where a list of tokens is needed */
  int32_t num_axes;     /* numbers of each of the positions */
  /* [num_rows, num_axes]: positions, relative to the one at which the rows begin (M-RoPE: time, height, width); NULL:
   * the rows follow one another like tokens */
  const int32_t* positions;
  /* [num_layer_rows, num_rows, hidden_size]: rows added to the hidden states after the model's layers that have such an
   * input (DeepStack); NULL: none */
  const float* layer_rows;
  size_t num_layer_rows;
} redline_embedding_rows;
REDLINE_C_API void redline_embedding_rows_init(redline_embedding_rows* rows, size_t struct_size);
REDLINE_C_API redline_code redline_prompt_spans_create(redline_prompt_spans** spans, redline_error** error);
REDLINE_C_API redline_code redline_prompt_spans_add_tokens(redline_prompt_spans* spans, const int32_t* tokens,
                                                           size_t num_tokens, redline_error** error);
/* invalid_argument: no rows, a value that is not finite, negative positions. A width or a number of axes that the model
 * does not have is an error of the call that uses the spans. */
REDLINE_C_API redline_code redline_prompt_spans_add_embeddings(redline_prompt_spans* spans,
                                                               const redline_embedding_rows* rows,
                                                               redline_error** error);
REDLINE_C_API size_t redline_prompt_spans_length(const redline_prompt_spans* spans); /* tokens and rows */
REDLINE_C_API void redline_prompt_spans_release(redline_prompt_spans* spans);

typedef struct redline_token_logprob {
  int32_t token;
  float logprob; /* natural logarithm, before temperature and truncation */
} redline_token_logprob;

typedef int32_t redline_finish_reason;
enum {
  REDLINE_FINISH_NONE = -1, /* still running, or ended with an error */
  REDLINE_FINISH_STOP = 0,
  REDLINE_FINISH_LENGTH = 1, /* max_tokens */
  REDLINE_FINISH_CANCELLED = 2,
  REDLINE_FINISH_CONTEXT = 3, /* the context is full */
  REDLINE_FINISH_TIMEOUT = 4
};
/* "stop", "length", "cancelled", "context", "timeout"; "none" otherwise. */
REDLINE_C_API const char* redline_finish_reason_name(redline_finish_reason reason);

/* Text that one step added to one prompt. It may be empty: bytes of an incomplete character, and text that may become a
 * stop string, are held back. */
typedef struct redline_piece {
  size_t struct_size;
  size_t index;     /* index of the prompt */
  const char* text; /* followed by a zero byte */
  size_t length;
  int32_t token; /* token of this step; -1: none, as at the end of a text */
  float logprob;
  const redline_token_logprob* top; /* the most likely tokens */
  size_t num_top;
  int32_t is_last; /* 1: the text has ended. `text` is empty; the completion can be read, but not in a callback */
} redline_piece;

/* A list of prompts in progress. The prompts of all generations of a model are computed together, as one batch. */
typedef struct redline_generation redline_generation;

/* Called for every piece, and once per prompt with is_last, by a thread of the model, one call at a time. The piece is
 * valid during the call. A result other than 0 ends the text of this prompt (REDLINE_FINISH_CANCELLED); only the call
 * with is_last follows for it. */
typedef int32_t (*redline_on_piece)(const redline_piece* piece, void* user_data);

/* Queues prompts and returns at once. `num_options` is 0 (the model's defaults), 1 (for all prompts) or num_prompts.
 * `on_piece` NULL: pieces are read with redline_generation_next(), or not at all. An invalid prompt or option is an
 * error of this call, which also ends the prompts of the list that have begun. */
REDLINE_C_API redline_code redline_submit(redline_model* model, const redline_prompt* prompts, size_t num_prompts,
                                          const redline_generate_options* const* options, size_t num_options,
                                          redline_on_piece on_piece, void* user_data, redline_generation** generation,
                                          redline_error** error);
/* redline_submit(), then waits until all prompts have ended. */
REDLINE_C_API redline_code redline_generate(redline_model* model, const redline_prompt* prompts, size_t num_prompts,
                                            const redline_generate_options* const* options, size_t num_options,
                                            redline_on_piece on_piece, void* user_data, redline_generation** generation,
                                            redline_error** error);
/* redline_submit() and redline_generate() for prompts with rows of embeddings. Options that need a prompt given as text
 * are errors. unsupported: the model was opened without prompt_embeddings. */
REDLINE_C_API redline_code redline_submit_spans(redline_model* model, const redline_prompt_spans* const* prompts,
                                                size_t num_prompts, const redline_generate_options* const* options,
                                                size_t num_options, redline_on_piece on_piece, void* user_data,
                                                redline_generation** generation, redline_error** error);
REDLINE_C_API redline_code redline_generate_spans(redline_model* model, const redline_prompt_spans* const* prompts,
                                                  size_t num_prompts, const redline_generate_options* const* options,
                                                  size_t num_options, redline_on_piece on_piece, void* user_data,
                                                  redline_generation** generation, redline_error** error);

enum { REDLINE_NEXT_PIECE = 1, REDLINE_NEXT_TIMEOUT = 2, REDLINE_NEXT_END = 3 };
/* Reads the next piece of any of the prompts; its pointers are valid until the next call or the release. `what` becomes
 * REDLINE_NEXT_PIECE; REDLINE_NEXT_TIMEOUT if no piece came within timeout_ms (negative: waits without limit; 0: does
 * not wait); REDLINE_NEXT_END if all pieces have been read. `piece->struct_size` must be set. invalid_argument: the
 * generation has a callback. */
REDLINE_C_API redline_code redline_generation_next(redline_generation* generation, double timeout_ms, int32_t* what,
                                                   redline_piece* piece, redline_error** error);
/* Waits until all prompts have ended; `is_done` becomes 0 if they have not within timeout_ms (negative: no limit). */
REDLINE_C_API redline_code redline_generation_wait(redline_generation* generation, double timeout_ms, int32_t* is_done,
                                                   redline_error** error);
/* End all prompts, or the one with this index, with their text so far. This takes effect after the step in progress.
 * Any thread may call them. */
REDLINE_C_API void redline_generation_cancel(redline_generation* generation);
REDLINE_C_API void redline_generation_cancel_prompt(redline_generation* generation, size_t index);
REDLINE_C_API size_t redline_generation_count(const redline_generation* generation);
/* Cancels prompts that still run and waits for a callback in progress, unless a callback makes the call. */
REDLINE_C_API void redline_generation_release(redline_generation* generation);

/* The result of one prompt. Pointers are valid until the generation is released. */
typedef struct redline_completion {
  size_t struct_size;
  const char* text;
  size_t length;
  const int32_t* tokens; /* generated tokens, without the token that ended the text */
  size_t num_tokens;
  redline_finish_reason finish_reason;
  uint64_t seed; /* seed that was used */
  int64_t prompt_tokens;
  int64_t cached_tokens; /* prompt tokens whose state came from the prefix cache */
  double first_token_ms; /* time from the call to the first token */
  double prefill_ms;     /* time from the call to the logits of the prompt */
  double decode_ms;      /* time of the steps after the first token */
  int64_t decode_tokens; /* tokens generated in decode_ms */
  /* With redline_generate_options::logprobs >= 0: the log probability of each token. The most likely alternatives at
   * token i are top[top_offsets[i]] .. top[top_offsets[i + 1] - 1]. */
  const float* logprobs;
  const redline_token_logprob* top;
  const size_t* top_offsets; /* [num_tokens + 1] */
  /* Drafted tokens whose logits were computed, and how many of these were drawn. */
  int64_t drafted_tokens, accepted_tokens;
} redline_completion;
/* Waits for the end of this prompt and reads its result. If the prompt ended with an error, returns that error:
 * out_of_memory, internal. `completion->struct_size` must be set. */
REDLINE_C_API redline_code redline_generation_completion(redline_generation* generation, size_t index,
                                                         redline_completion* completion, redline_error** error);

/* ---- Logits ---- */

/* Called between steps. A result other than 0 ends the call as REDLINE_CANCELLED. */
typedef int32_t (*redline_on_step)(void* user_data);

typedef struct redline_logits_options {
  size_t struct_size;
  const redline_adapter_weight* adapters;
  size_t num_adapters;
  redline_canceller* canceller; /* or NULL */
  redline_on_step on_step;      /* or NULL */
  void* user_data;
} redline_logits_options;
REDLINE_C_API void redline_logits_options_init(redline_logits_options* options, size_t struct_size);

/* Writes the logits after the last num_rows tokens (1: after the last one; num_tokens: after each), [num_rows,
 * vocab_size], to the caller's `logits` of `num_floats` elements. `options` may be NULL. */
REDLINE_C_API redline_code redline_model_logits(redline_model* model, const int32_t* tokens, size_t num_tokens,
                                                const redline_logits_options* options, size_t num_rows, float* logits,
                                                size_t num_floats, redline_error** error);

/* One sequence and its state (keys and values), for programs with their own generation loop. */
typedef struct redline_sequence redline_sequence;
REDLINE_C_API redline_code redline_sequence_open(redline_model* model, const redline_adapter_weight* adapters,
                                                 size_t num_adapters, redline_sequence** sequence,
                                                 redline_error** error);
/* Appends tokens and writes the logits after the last num_rows of them. num_rows 0 with logits NULL: no logits. */
REDLINE_C_API redline_code redline_sequence_append(redline_sequence* sequence, const int32_t* tokens, size_t num_tokens,
                                                   size_t num_rows, float* logits, size_t num_floats,
                                                   redline_error** error);
/* redline_sequence_append() for tokens and rows of embeddings. */
REDLINE_C_API redline_code redline_sequence_append_spans(redline_sequence* sequence, const redline_prompt_spans* spans,
                                                         size_t num_rows, float* logits, size_t num_floats,
                                                         redline_error** error);
REDLINE_C_API int64_t redline_sequence_length(const redline_sequence* sequence);
/* Drops tokens from position `length` on; `left` becomes the number of tokens left. It is smaller than `length` if the
 * state at that position is no longer kept (sliding windows, recurrent models). */
REDLINE_C_API redline_code redline_sequence_truncate(redline_sequence* sequence, int64_t length, int64_t* left,
                                                     redline_error** error);
/* Makes a sequence with the same tokens. Both share memory until one of them writes to it. */
REDLINE_C_API redline_code redline_sequence_fork(const redline_sequence* sequence, redline_sequence** fork,
                                                 redline_error** error);
REDLINE_C_API void redline_sequence_release(redline_sequence* sequence);

/* One sequence's part of redline_model_run_batch, which runs one step for several sequences of one model: it appends
 * each entry's tokens and writes its logits. On error no sequence has changed. */
typedef struct redline_batch_entry {
  redline_sequence* sequence;
  const int32_t* tokens;
  size_t num_tokens;
  float* logits; /* [num_rows, vocab_size] */
  size_t num_rows;
} redline_batch_entry;
REDLINE_C_API redline_code redline_model_run_batch(redline_model* model, const redline_batch_entry* entries,
                                                   size_t num_entries, redline_error** error);
/* redline_model_run_batch() for tokens and rows of embeddings. */
typedef struct redline_span_entry {
  redline_sequence* sequence;
  const redline_prompt_spans* spans;
  float* logits; /* [num_rows, vocab_size] */
  size_t num_rows;
} redline_span_entry;
REDLINE_C_API redline_code redline_model_run_batch_spans(redline_model* model, const redline_span_entry* entries,
                                                         size_t num_entries, redline_error** error);

/* ---- Embeddings ---- */

/* A dense float32 array, C order. */
typedef struct redline_float_array {
  const float* data;
  const int64_t* shape;
  size_t num_axes;
} redline_float_array;

typedef struct redline_embedding_model redline_embedding_model;
/* Options of redline_embedding_model_open(). The fields after struct_size are the rows of
 * redline/embedding_options.inc, one by one with type, default and meaning. NULL for a text or a path is the default.
 */
typedef struct redline_embedding_options {
  size_t struct_size;
#define REDLINE_OPTION(type, name, ...) REDLINE_C_##type name;
#define REDLINE_OPTION_C(...) __VA_ARGS__;
#include "redline/embedding_options.inc"
} redline_embedding_options;
REDLINE_C_API void redline_embedding_options_init(redline_embedding_options* options, size_t struct_size);
/* Opens a Hugging Face folder, with sentence-transformers' files if it has them, or a GGUF file. */
REDLINE_C_API redline_code redline_embedding_model_open(const char* path, const redline_embedding_options* options,
                                                        redline_embedding_model** model, redline_error** error);
REDLINE_C_API redline_embedding_model* redline_embedding_model_retain(redline_embedding_model* model);
REDLINE_C_API void redline_embedding_model_release(redline_embedding_model* model);
/* Describes the model as JSON: "dimensions", "max_length", "pooling", "normalizes", "num_labels", "prompts",
 * "default_prompt", "architecture", ... */
REDLINE_C_API redline_code redline_embedding_model_describe(redline_embedding_model* model, char** json,
                                                            redline_error** error);
REDLINE_C_API int64_t redline_embedding_model_dimensions(const redline_embedding_model* model);
/* Returns 1 if the files at `path` say that the model makes embeddings or scores, not text; 0 otherwise. */
REDLINE_C_API int32_t redline_is_embedding_model(const char* path);

typedef struct redline_embed_options {
  size_t struct_size;
  const char* prompt_name; /* "": no prompt; NULL: the model's default one */
  int32_t truncate;        /* 1: cuts texts that are longer than max_length */
  int32_t normalize;       /* 1, 0; -1: as the model's files say */
  int64_t dimensions;      /* keeps this many and normalizes again (Matryoshka); 0: all */
  redline_canceller* canceller;
  redline_on_step on_step;
  void* user_data;
} redline_embed_options;
REDLINE_C_API void redline_embed_options_init(redline_embed_options* options, size_t struct_size);
/* Computes embeddings of texts, or of token ids where redline_prompt::tokens is set: [num_texts, dimensions], written
 * to `values` of `num_floats` elements. `tokens_computed` (may be NULL) becomes the number of tokens over all texts. */
REDLINE_C_API redline_code redline_embed(redline_embedding_model* model, const redline_prompt* texts, size_t num_texts,
                                         const redline_embed_options* options, float* values, size_t num_floats,
                                         int64_t* tokens_computed, redline_error** error);
/* The last layer's hidden states of all tokens, before pooling. */
typedef struct redline_token_states redline_token_states;
REDLINE_C_API redline_code redline_embed_tokens(redline_embedding_model* model, const redline_prompt* texts,
                                                size_t num_texts, const redline_embed_options* options,
                                                redline_token_states** states, redline_error** error);
/* Returns the hidden states of one text, [tokens, hidden_size], borrowed from `states`; all zero if the index is out of
 * range. */
REDLINE_C_API redline_float_array redline_token_states_of(const redline_token_states* states, size_t index);
REDLINE_C_API void redline_token_states_release(redline_token_states* states);
/* Computes the relevance of each document for the query: `scores` [num_documents]. Only the options truncate,
 * canceller, on_step and user_data are used. */
REDLINE_C_API redline_code redline_rank(redline_embedding_model* model, const char* query, const char* const* documents,
                                        size_t num_documents, const redline_embed_options* options, float* scores,
                                        int64_t* tokens_computed, redline_error** error);

/* ---- Images ---- */

typedef struct redline_image_pipeline redline_image_pipeline;
/* Options of redline_image_pipeline_open(). The fields after struct_size are the rows of redline/image_options.inc,
 * one by one with type, default and meaning. NULL for a text or a path is the default. */
typedef struct redline_image_pipeline_options {
  size_t struct_size;
#define REDLINE_OPTION(type, name, ...) REDLINE_C_##type name;
#define REDLINE_OPTION_C(...) __VA_ARGS__;
#include "redline/image_options.inc"
} redline_image_pipeline_options;
REDLINE_C_API void redline_image_pipeline_options_init(redline_image_pipeline_options* options, size_t struct_size);
/* Opens a pipeline. `path`: a diffusers folder. */
REDLINE_C_API redline_code redline_image_pipeline_open(const char* path, const redline_image_pipeline_options* options,
                                                       redline_image_pipeline** pipeline, redline_error** error);
REDLINE_C_API redline_image_pipeline* redline_image_pipeline_retain(redline_image_pipeline* pipeline);
REDLINE_C_API void redline_image_pipeline_release(redline_image_pipeline* pipeline);
/* Describes the pipeline as JSON: "family", "is_guidance_distilled", "takes_guidance_scale", "size_multiple",
 * "defaults", "memory". */
REDLINE_C_API redline_code redline_image_pipeline_describe(redline_image_pipeline* pipeline, char** json,
                                                           redline_error** error);
REDLINE_C_API redline_code redline_image_pipeline_load_adapter(redline_image_pipeline* pipeline, const char* name,
                                                               const char* path, redline_error** error);
/* Replaces the active adapters for the requests that follow. */
REDLINE_C_API redline_code redline_image_pipeline_set_adapters(redline_image_pipeline* pipeline,
                                                               const redline_adapter_weight* adapters,
                                                               size_t num_adapters, redline_error** error);
/* Lists the rules of the step cache as JSON: a list of {"name", "summary", "source", "is_default": "auto" stands for
 * it, "takes_quality", "takes_budget"}. */
REDLINE_C_API redline_code redline_step_cache_rules(char** json, redline_error** error);
REDLINE_C_API redline_code redline_image_adapter_rank(const char* path, int64_t* rank, redline_error** error);

/* An RGB image, 8 bits per channel: [height, width, 3], rows from the top. */
typedef struct redline_image {
  int64_t width, height;
  const uint8_t* rgb;
} redline_image;

typedef struct redline_image_progress {
  size_t struct_size;
  int64_t step, steps;         /* completed steps, total steps */
  double step_ms;              /* time of the last step */
  int64_t computed;            /* images of the batch whose step was computed, not forecast */
  redline_float_array latents; /* latents after the step, [batch, channels, height, width] */
  double sigma, next_sigma;    /* noise level of the latents before and after the step */
  const void* preview;         /* opaque pointer for redline_image_preview() */
} redline_image_progress;
/* Called after every step, on the thread of the call; the pointers are valid during the callback. A result other than 0
 * ends the call as REDLINE_CANCELLED. */
typedef int32_t (*redline_on_image_step)(const redline_image_progress* progress, void* user_data);
/* Within such a callback: decodes a preview of image `index` of the batch, the model's current estimate of the final
 * image. Its longer side has at most max_side pixels. `rgb` is freed with redline_free(). */
REDLINE_C_API redline_code redline_image_preview(const redline_image_progress* progress, int64_t index,
                                                 int64_t max_side, uint8_t** rgb, int64_t* width, int64_t* height,
                                                 redline_error** error);

/* The fields after struct_size are the rows of redline/image_request.inc, one by one with type, default and meaning. */
typedef struct redline_image_request {
  size_t struct_size;
#define REDLINE_OPTION(type, name, ...) REDLINE_C_##type name;
#define REDLINE_OPTION_C(...) __VA_ARGS__;
#include "redline/image_request.inc"
} redline_image_request;
/* Fills in the model's default settings; strings in the request are borrowed from the pipeline. `pipeline` may be
 * NULL. */
REDLINE_C_API void redline_image_request_init(redline_image_request* request, size_t struct_size,
                                              redline_image_pipeline* pipeline);

typedef struct redline_image_result redline_image_result;
/* Generates images on the calling thread and the pipeline's workers; calls take turns. */
REDLINE_C_API redline_code redline_image_generate(redline_image_pipeline* pipeline,
                                                  const redline_image_request* request, redline_image_result** result,
                                                  redline_error** error);
REDLINE_C_API size_t redline_image_result_count(const redline_image_result* result);
/* Returns an image, borrowed from the result; all zero if the index is out of range. */
REDLINE_C_API redline_image redline_image_result_image(const redline_image_result* result, size_t index);
/* Returns the final latents if the request has keep_latents; borrowed from the result. */
REDLINE_C_API redline_float_array redline_image_result_latents(const redline_image_result* result);
REDLINE_C_API uint64_t redline_image_result_seed(const redline_image_result* result);
/* Describes the result as JSON: "seed", "cache", "solver", "step_ms", "computed", "text_ms", "loop_ms", "decode_ms",
 * "operations", "executed_share", "warnings". */
REDLINE_C_API redline_code redline_image_result_describe(const redline_image_result* result, char** json,
                                                         redline_error** error);
REDLINE_C_API void redline_image_result_release(redline_image_result* result);

/* Outputs of the text encoders for a list of prompts. Use them as prompt_embeds and pooled_embeds of a request.
 * `max_sequence_length`: text tokens (T5); 0: the model's default. */
typedef struct redline_prompt_embeds redline_prompt_embeds;
REDLINE_C_API redline_code redline_image_encode_prompts(redline_image_pipeline* pipeline, const char* const* prompts,
                                                        size_t num_prompts, int64_t max_sequence_length,
                                                        redline_prompt_embeds** embeds, redline_error** error);
/* Return the text states [prompts, tokens, width] and the pooled states [prompts, width], which have no axes if the
 * pipeline has none. Both are borrowed from `embeds`. */
REDLINE_C_API redline_float_array redline_prompt_embeds_text(const redline_prompt_embeds* embeds);
REDLINE_C_API redline_float_array redline_prompt_embeds_pooled(const redline_prompt_embeds* embeds);
/* Describes the outputs as JSON: "warnings". */
REDLINE_C_API redline_code redline_prompt_embeds_describe(const redline_prompt_embeds* embeds, char** json,
                                                          redline_error** error);
REDLINE_C_API void redline_prompt_embeds_release(redline_prompt_embeds* embeds);
/* Decodes final latents [batch, channels, height, width], as keep_latents gives them, to images. */
REDLINE_C_API redline_code redline_image_decode(redline_image_pipeline* pipeline, const redline_float_array* latents,
                                                redline_image_result** result, redline_error** error);
REDLINE_C_API redline_code redline_save_png(const char* path, const redline_image* image, redline_error** error);

/* ---- Networks of image pipelines ---- */

/* One network (denoiser, text encoder or autoencoder) from tensors in the caller's memory, for programs that keep their
 * own denoising loop, scheduler and tokenizers. */
typedef struct redline_network redline_network;
/* A dense tensor, C order. */
typedef struct redline_tensor {
  const char* name;
  const char* dtype; /* "F32", "F16", "BF16", "I32" */
  const int64_t* shape;
  size_t num_axes;
  const void* data;
} redline_tensor;
/* The fields after struct_size are the rows of redline/network_options.inc, one by one with type, default and
 * meaning. */
typedef struct redline_network_options {
  size_t struct_size;
#define REDLINE_OPTION(type, name, ...) REDLINE_C_##type name;
#define REDLINE_OPTION_C(...) __VA_ARGS__;
#include "redline/network_options.inc"
} redline_network_options;
REDLINE_C_API void redline_network_options_init(redline_network_options* options, size_t struct_size);
/* Opens a network. `class_name`: a class of diffusers or transformers ("UNet2DConditionModel"); `config_json`: its
 * config; `tensors`: the tensors of its safetensors file, as F32, F16 or BF16. Weights are packed into the engine's
 * memory: the tensors are not read after the call. unsupported: the class is unknown; the message lists the known ones.
 * invalid_argument: a tensor is missing, has another shape, or is not part of the network. */
REDLINE_C_API redline_code redline_network_open(const char* class_name, const char* config_json,
                                                const redline_tensor* tensors, size_t num_tensors,
                                                const redline_network_options* options, redline_network** network,
                                                redline_error** error);
REDLINE_C_API redline_network* redline_network_retain(redline_network* network);
REDLINE_C_API void redline_network_release(redline_network* network);
/* Describes the network as JSON: "kind" ("denoiser", "text_encoder", "autoencoder"), "family", "inputs", "outputs",
 * "latent_channels", "scale", "width", "pooled_width", "memory", "cache", "computed" (for each step of the last loop
 * with a step cache: the number of images whose step was computed), "executed_share", "warnings". */
REDLINE_C_API redline_code redline_network_describe(redline_network* network, char** json, redline_error** error);

/* A buffer that receives one output: `num_floats` elements. */
typedef struct redline_network_output {
  const char* name;
  float* data;
  size_t num_floats;
} redline_network_output;
/* Position of a denoiser's run in the caller's loop. A step cache needs step and steps. */
typedef struct redline_network_step {
  size_t struct_size;
  /* Names the guidance branch when each branch is a call of its own, the conditional one first. NULL: "". */
  const char* context;
  int64_t step, steps;      /* step in [0, steps) */
  double sigma, next_sigma; /* share of noise in [0, 1] before and after the step: flow time, or sigma / (1 + sigma) */
  double step_size;         /* Euler: the solver adds step_size * model_output to the latents; 0: another solver */
  /* All timesteps of the loop, exactly as they are passed: what depends on them only is precomputed. NULL: none. */
  const double* timesteps;
  size_t num_timesteps;
} redline_network_step;
REDLINE_C_API void redline_network_step_init(redline_network_step* step, size_t struct_size);
/* Runs the network on the calling thread and its workers; calls take turns. `step` may be NULL. Float inputs are F32;
 * list only the outputs that are needed. Inputs and outputs by kind of network:
 *   denoiser      "latents" [batch, channels, height, width] as the scheduler has them, "timestep" [1] in the
 *                 scheduler's units (0 .. 1000), "text" [batch, tokens, width], and what the family has of "pooled"
 *                 [batch, width], "guidance" [batch], "time_ids" [batch, n], "key_lengths" [batch] I32
 *                 -> "model_output" [batch, latent_channels, height, width]
 *   text_encoder  "tokens" [batch, tokens] I32, "key_lengths" [batch] I32 (T5; left out: all tokens)
 *                 -> "hidden" [batch, tokens, width]; of CLIP "penultimate", the same shape, and "pooled"
 *                 [batch, pooled_width]
 *   autoencoder   "latents" [batch, latent_channels, height, width], its own, not scaled
 *                 -> "image" [batch, 3, scale * height, scale * width] in [-1, 1]; or "image"
 *                 -> "moments" [batch, 2 * latent_channels, height, width], means then log variances (tiny ones: means
 *                 alone) */
REDLINE_C_API redline_code redline_network_run(redline_network* network, const redline_tensor* inputs,
                                               size_t num_inputs, const redline_network_output* outputs,
                                               size_t num_outputs, const redline_network_step* step,
                                               redline_error** error);

/* Low-rank factors of one linear layer or convolution of a LoRA adapter: `down` [rank, in] or [rank, in, k, k], `up`
 * [out, rank]. */
typedef struct redline_adapter_pair {
  const char* adapter; /* name of the adapter; the products of several adapters for one module are summed */
  const char* module;  /* "transformer_blocks.0.attn.to_q" */
  redline_tensor down, up;
  double scale; /* weight * alpha / rank */
} redline_adapter_pair;
/* Replaces the active adapters for the following runs; the factors are copied. */
REDLINE_C_API redline_code redline_network_set_adapters(redline_network* network, const redline_adapter_pair* pairs,
                                                        size_t num_pairs, redline_error** error);
/* Sets the rule of a denoiser's step cache; the arguments are those of redline_image_request: `rule` NULL, `quality` -1
 * and `steps_budget` 0 mean unset. "none": every step is computed. */
REDLINE_C_API redline_code redline_network_set_cache(redline_network* network, const char* rule, double quality,
                                                     int64_t steps_budget, redline_error** error);

/* NOLINTEND(modernize-use-using) */
#ifdef __cplusplus
}
#endif

#endif
