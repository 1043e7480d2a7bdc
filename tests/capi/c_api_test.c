/* The C interface from a C99 program: c_api_test TALES SHAPES GOLDEN TOKENIZER TEMPORARY [CASE...] */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "redline/c_api.h"

static const char *tales, *shapes, *golden, *tokenizer, *temporary;
static int failures = 0;

#define CHECK(condition)                                               \
  do {                                                                 \
    if (!(condition)) {                                                \
      printf("%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);   \
      ++failures;                                                      \
    }                                                                  \
  } while (0)
/* A call that must succeed: prints its error. */
#define OK(call) CHECK(succeeds((call), &error))
/* A call that must fail with a code and a message that has these words. */
#define FAILS(call, wanted, words) CHECK(fails((call), &error, wanted, words))

static int succeeds(redline_code code, redline_error** error) {
  if (code == REDLINE_OK && *error == NULL) return 1;
  printf("  %s: %s\n", redline_code_name(code), redline_error_message(*error));
  redline_error_free(*error);
  *error = NULL;
  return 0;
}

static int fails(redline_code code, redline_error** error, redline_code wanted, const char* words) {
  int good = code == wanted && *error != NULL && redline_error_code(*error) == wanted &&
             strstr(redline_error_message(*error), words) != NULL;
  if (!good) printf("  %s: %s\n", redline_code_name(code), redline_error_message(*error));
  redline_error_free(*error);
  *error = NULL;
  return good;
}

/* "a" and "b" joined, in one of four places. */
static const char* join(const char* a, const char* b) {
  static char places[4][8192];
  static int next = 0;
  char* place = places[next++ % 4];
  if (strlen(a) + strlen(b) >= sizeof places[0]) exit(2);
  strcpy(place, a);
  strcat(place, b);
  return place;
}

static redline_model* open_tales(void) {
  redline_error* error = NULL;
  redline_model* model = NULL;
  redline_model_options options;
  redline_model_options_init(&options, sizeof options);
  options.threads = 2;
  OK(redline_model_open(tales, &options, &model, &error));
  if (model == NULL) exit(1);
  return model;
}

static redline_prompt text_prompt(const char* text) {
  redline_prompt prompt;
  prompt.text = text;
  prompt.length = REDLINE_STRING_END;
  prompt.tokens = NULL;
  prompt.num_tokens = 0;
  return prompt;
}

/* Greedy options for a number of tokens. */
static redline_generate_options greedy(redline_model* model, int64_t max_tokens) {
  redline_generate_options options;
  redline_generate_options_init(&options, sizeof options, model);
  options.temperature = 0;
  options.max_tokens = max_tokens;
  return options;
}

/* ---- cases ---- */

static void version(void) {
  char numbers[32];
  sprintf(numbers, "%d.%d.%d", REDLINE_VERSION_MAJOR, REDLINE_VERSION_MINOR, REDLINE_VERSION_PATCH);
  CHECK(strcmp(redline_version(), numbers) == 0);
  CHECK(redline_version_number() == REDLINE_VERSION_NUMBER);
  CHECK(strcmp(redline_code_name(REDLINE_NOT_FOUND), "not_found") == 0);
  CHECK(strcmp(redline_code_name(99), "unknown") == 0);
  CHECK(strcmp(redline_finish_reason_name(REDLINE_FINISH_LENGTH), "length") == 0);
  CHECK(strcmp(redline_finish_reason_name(REDLINE_FINISH_NONE), "none") == 0);
  CHECK(redline_error_code(NULL) == REDLINE_OK && strcmp(redline_error_message(NULL), "") == 0);
}

static void devices(void) {
  redline_error* error = NULL;
  char* json = NULL;
  OK(redline_devices(&json, &error));
  CHECK(json != NULL && strstr(json, "\"devices\":[{\"name\":\"cpu\"") != NULL && strstr(json, "\"isa\":") != NULL);
  redline_free(json);
  FAILS(redline_devices(NULL, &error), REDLINE_INVALID_ARGUMENT, "json is NULL");
}

static void wrong_paths(void) {
  redline_error* error = NULL;
  redline_model* model = (redline_model*)&error;
  redline_image_pipeline* pipeline = (redline_image_pipeline*)&error;
  redline_embedding_model* embedder = NULL;
  FAILS(redline_model_open("no/such/model", NULL, &model, &error), REDLINE_NOT_FOUND, "no/such/model");
  CHECK(model == NULL);
  FAILS(redline_image_pipeline_open("no/such/pipeline", NULL, &pipeline, &error), REDLINE_NOT_FOUND, "no/such/pipeline");
  CHECK(pipeline == NULL);
  FAILS(redline_embedding_model_open("no/such/embedder", NULL, &embedder, &error), REDLINE_NOT_FOUND, "no/such/embedder");
  CHECK(redline_model_open(shapes, NULL, &model, NULL) != REDLINE_OK); /* without an error object */
  CHECK(redline_is_embedding_model("no/such/model") == 0 && redline_is_embedding_model(NULL) == 0);
}

static void null_arguments(void) {
  redline_error* error = NULL;
  redline_model* model = NULL;
  redline_generation* generation = NULL;
  redline_image_result* image = NULL;
  redline_sequence* sequence = NULL;
  redline_prompt prompt = text_prompt("Once");
  int32_t* tokens = NULL;
  size_t count = 0;
  char* text = NULL;
  float number = 0;
  FAILS(redline_model_open(NULL, NULL, &model, &error), REDLINE_INVALID_ARGUMENT, "path is NULL");
  FAILS(redline_model_open(tales, NULL, NULL, &error), REDLINE_INVALID_ARGUMENT, "model is NULL");
  FAILS(redline_submit(NULL, &prompt, 1, NULL, 0, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "model is NULL");
  FAILS(redline_model_encode(NULL, "a", 1, 0, 0, &tokens, &count, &error), REDLINE_INVALID_ARGUMENT, "model is NULL");
  FAILS(redline_model_decode(NULL, NULL, 0, 0, &text, NULL, &error), REDLINE_INVALID_ARGUMENT, "model is NULL");
  FAILS(redline_model_logits(NULL, NULL, 0, NULL, 0, NULL, 0, &error), REDLINE_INVALID_ARGUMENT, "model is NULL");
  FAILS(redline_generation_wait(NULL, 0, NULL, &error), REDLINE_INVALID_ARGUMENT, "generation is NULL");
  FAILS(redline_image_generate(NULL, NULL, &image, &error), REDLINE_INVALID_ARGUMENT, "pipeline is NULL");
  FAILS(redline_embed(NULL, &prompt, 1, NULL, &number, 1, NULL, &error), REDLINE_INVALID_ARGUMENT, "model is NULL");
  FAILS(redline_sequence_append(NULL, NULL, 0, 0, NULL, 0, &error), REDLINE_INVALID_ARGUMENT, "sequence is NULL");
  FAILS(redline_save_png(NULL, NULL, &error), REDLINE_INVALID_ARGUMENT, "path is NULL");
  model = open_tales();
  FAILS(redline_submit(model, NULL, 1, NULL, 0, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "prompts is NULL");
  FAILS(redline_submit(model, &prompt, 1, NULL, 1, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "options is NULL");
  FAILS(redline_submit(model, &prompt, 1, NULL, 0, NULL, NULL, NULL, &error), REDLINE_INVALID_ARGUMENT, "generation is NULL");
  FAILS(redline_model_encode(model, NULL, 3, 0, 0, &tokens, &count, &error), REDLINE_INVALID_ARGUMENT, "text is NULL");
  FAILS(redline_model_decode(model, NULL, 3, 0, &text, NULL, &error), REDLINE_INVALID_ARGUMENT, "tokens is NULL");
  FAILS(redline_model_render_chat(model, NULL, NULL, NULL, 1, &text, NULL, &error), REDLINE_INVALID_ARGUMENT, "messages_json is NULL");
  FAILS(redline_sequence_open(model, NULL, 1, &sequence, &error), REDLINE_INVALID_ARGUMENT, "adapters is NULL");
  redline_model_release(model);
  /* What takes a handle and cannot fail takes NULL. */
  redline_model_release(NULL);
  redline_runtime_release(NULL);
  redline_generation_release(NULL);
  redline_generation_cancel(NULL);
  redline_sequence_release(NULL);
  redline_chat_reader_release(NULL);
  redline_embedding_model_release(NULL);
  redline_image_pipeline_release(NULL);
  redline_image_result_release(NULL);
  redline_canceller_release(NULL);
  redline_canceller_cancel(NULL);
  redline_error_free(NULL);
  redline_free(NULL);
  redline_model_options_init(NULL, 100);
  CHECK(redline_model_retain(NULL) == NULL && redline_image_result_count(NULL) == 0);
  CHECK(redline_image_result_image(NULL, 0).rgb == NULL && redline_generation_count(NULL) == 0);
}

/* Structs of options grow at their ends only: the places of fields that programs were compiled with. */
static void layout(void) {
#if UINTPTR_MAX > 0xffffffff
  CHECK(offsetof(redline_model_options, cache_memory) == 88 && offsetof(redline_model_options, chat_template) == 136);
  CHECK(offsetof(redline_model_options, user_data) == 176 && offsetof(redline_model_options, gpu_layers) == 184);
  CHECK(offsetof(redline_model_options, prompt_embeddings) == 192 && sizeof(redline_model_options) >= 200);
  CHECK(offsetof(redline_generate_options, seed) == 56 && offsetof(redline_generate_options, num_choices) == 176);
  CHECK(offsetof(redline_generate_options, cache_salt) == 240 && offsetof(redline_generate_options, min_tokens) == 352);
  CHECK(offsetof(redline_generate_options, dynatemp_exponent) == 328);
  CHECK(offsetof(redline_generate_options, json_relaxed) == 384 && sizeof(redline_generate_options) >= 392);
  // Not in the padding behind json_relaxed, which struct_size 392 covers.
  CHECK(offsetof(redline_generate_options, num_speculative_tokens) == 392);
  CHECK(offsetof(redline_image_request, seed) == 120 && offsetof(redline_image_request, quality) == 152);
  CHECK(offsetof(redline_image_request, mask) == 200 && offsetof(redline_image_request, resize) == 280);
  CHECK(offsetof(redline_image_pipeline_options, num_adapters) == 128);
  CHECK(offsetof(redline_image_pipeline_options, max_adapter_rank) == 136);
  CHECK(offsetof(redline_network_options, vae_tile) == 88 && offsetof(redline_embedding_options, trace_file) == 72);
#endif
}

static void struct_sizes(void) {
  layout();
  struct {
    redline_model_options known;
    int64_t later;
  } larger;
  redline_error* error = NULL;
  redline_model* model = NULL;
  redline_model_options options;
  memset(&options, 0xff, sizeof options);
  redline_model_options_init(&options, sizeof options);
  CHECK(options.struct_size == sizeof options && options.prefix_cache == 1 && options.dtype == NULL);
  options.struct_size = 0;
  FAILS(redline_model_open(tales, &options, &model, &error), REDLINE_INVALID_ARGUMENT, "struct_size is 0");
  options.struct_size = (size_t)-1;
  FAILS(redline_model_open(tales, &options, &model, &error), REDLINE_INVALID_ARGUMENT, "struct_size");
  options.struct_size = sizeof options - 1;
  FAILS(redline_model_open(tales, &options, &model, &error), REDLINE_INVALID_ARGUMENT, "redline_model_options");
  { /* a program that was compiled before a field was added: what lies behind its struct is not read */
    const size_t older = offsetof(redline_model_options, prompt_embeddings);
    memset(&options, 0xff, sizeof options);
    redline_model_options_init(&options, older);
    CHECK(options.struct_size == older && options.prompt_embeddings != 0);
    OK(redline_model_open(tales, &options, &model, &error));
    redline_model_release(model);
    model = NULL;
  }
  memset(&larger, 0xff, sizeof larger);
  redline_model_options_init(&larger.known, sizeof larger);
  CHECK(larger.known.struct_size == sizeof larger && larger.later == 0);
  larger.later = 1;
  FAILS(redline_model_open(tales, &larger.known, &model, &error), REDLINE_UNSUPPORTED, redline_version());
  larger.later = 0;
  OK(redline_model_open(tales, &larger.known, &model, &error));
  { /* results: a larger struct gets zeros, a struct without a size is refused */
    struct {
      redline_model_info known;
      int64_t later;
    } info;
    memset(&info, 0xff, sizeof info);
    info.known.struct_size = sizeof info;
    OK(redline_model_get_info(model, &info.known, &error));
    CHECK(info.known.vocab_size == 4096 && info.known.struct_size == sizeof info && info.later == 0);
    info.known.struct_size = 0;
    FAILS(redline_model_get_info(model, &info.known, &error), REDLINE_INVALID_ARGUMENT, "struct_size is 0");
  }
  redline_model_release(model);
}

static void options_are_checked(void) {
  redline_error* error = NULL;
  redline_model* model = NULL;
  redline_generation* generation = NULL;
  redline_prompt prompt = text_prompt("Once");
  redline_prompt three[3];
  redline_model_options options;
  redline_generate_options generate;
  const redline_generate_options* list[2];
  const char* nothing = NULL;
  char* json = NULL;
  redline_adapter_weight unknown;
  redline_model_options_init(&options, sizeof options);
  options.device = "gpu";
  FAILS(redline_model_open(tales, &options, &model, &error), REDLINE_INVALID_ARGUMENT, "device \"gpu\"");
  options.device = "emu";
  OK(redline_model_open(tales, &options, &model, &error));
  redline_model_release(model);
  options.device = "cpu";
  options.dtype = "w8a8";
  OK(redline_model_open(tales, &options, &model, &error));
  OK(redline_model_describe(model, &json, &error));
  CHECK(strstr(json, "\"conversion\":{\"type\":\"w8a8\",\"changed\":[\"bf16 x") != NULL);
  redline_free(json);
  redline_model_release(model);
  options.dtype = "f17";
  FAILS(redline_model_open(tales, &options, &model, &error), REDLINE_INVALID_ARGUMENT, "f17");
  options.dtype = "f32";
  options.threads = -3;
  FAILS(redline_model_open(tales, &options, &model, &error), REDLINE_INVALID_ARGUMENT, "-3");
  model = open_tales();
  redline_generate_options_init(&generate, sizeof generate, model);
  CHECK(generate.temperature > 0.59f && generate.temperature < 0.61f); /* generation_config.json */
  list[0] = list[1] = &generate;
  generate.temperature = -1;
  FAILS(redline_submit(model, &prompt, 1, list, 1, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "temperature");
  CHECK(generation == NULL);
  generate = greedy(model, 3);
  generate.stop = &nothing;
  generate.num_stop = 1;
  FAILS(redline_submit(model, &prompt, 1, list, 1, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "stop[0] is NULL");
  generate = greedy(model, 3);
  generate.regex = "a";
  generate.json_schema = "{}";
  FAILS(redline_submit(model, &prompt, 1, list, 1, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "json_schema");
  generate = greedy(model, 3);
  generate.regex = "(";
  FAILS(redline_submit(model, &prompt, 1, list, 1, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "");
  generate = greedy(model, 3);
  unknown.name = "nobody";
  unknown.weight = 1;
  generate.adapters = &unknown;
  generate.num_adapters = 1;
  FAILS(redline_submit(model, &prompt, 1, list, 1, NULL, NULL, &generation, &error), REDLINE_NOT_FOUND, "nobody");
  three[0] = three[1] = three[2] = prompt;
  generate = greedy(model, 3);
  FAILS(redline_submit(model, three, 3, list, 2, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "2 options for 3");
  three[1].text = NULL;
  FAILS(redline_submit(model, three, 3, list, 1, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT, "prompts[1]");
  redline_model_release(model);
}

static void tokens_and_chat(void) {
  redline_error* error = NULL;
  redline_model* model = open_tales();
  redline_chat_reader* reader = NULL;
  int32_t* tokens = NULL;
  size_t count = 0, length = 0;
  char *text = NULL, *json = NULL;
  OK(redline_model_encode(model, "Once upon a time", REDLINE_STRING_END, 0, 1, &tokens, &count, &error));
  CHECK(count > 2 && tokens[0] == 0);
  OK(redline_model_decode(model, tokens, count, 0, &text, &length, &error));
  CHECK(strcmp(text, "Once upon a time") == 0 && length == strlen(text));
  redline_free(text);
  redline_free(tokens);
  OK(redline_model_encode(model, "", 0, 0, 0, &tokens, &count, &error));
  CHECK(count == 0 && tokens != NULL);
  redline_free(tokens);
  OK(redline_model_encode(model, "a\0b", 3, 0, 0, &tokens, &count, &error));
  OK(redline_model_decode(model, tokens, count, 0, &text, &length, &error));
  CHECK(length == 3 && memcmp(text, "a\0b", 4) == 0);
  redline_free(text);
  redline_free(tokens);
  OK(redline_model_render_chat(model, "[{\"role\": \"user\", \"content\": \"Hi\"}]", NULL, NULL, 1, &text, &length, &error));
  CHECK(strstr(text, "<|im_start|>user\nHi<|im_end|>") != NULL && length == strlen(text));
  OK(redline_chat_reader_open(model, text, length, NULL, &reader, &error));
  OK(redline_chat_reader_push(reader, "Hello", 5, 0, &json, &error));
  CHECK(strcmp(json, "[{\"type\":\"content\",\"text\":\"Hello\"}]") == 0);
  redline_free(json);
  OK(redline_chat_reader_push(reader, NULL, 0, 1, &json, &error));
  CHECK(json[0] == '[');
  redline_free(json);
  redline_chat_reader_release(reader);
  redline_free(text);
  FAILS(redline_model_render_chat(model, "[{]", NULL, NULL, 1, &text, &length, &error), REDLINE_INVALID_ARGUMENT, "");
  OK(redline_model_describe(model, &json, &error));
  CHECK(strstr(json, "\"architecture\":\"llama\"") != NULL && strstr(json, "\"generated_tokens\":0") != NULL);
  redline_free(json);
  redline_model_release(model);
}

typedef struct {
  char text[4096];
  size_t length, pieces, ends, stop_after;
  redline_model* model;
  redline_code inner;
} heard;

static int32_t hear(const redline_piece* piece, void* user_data) {
  heard* h = user_data;
  if (piece->is_last) {
    ++h->ends;
    return 0;
  }
  ++h->pieces;
  CHECK(piece->text[piece->length] == '\0');
  memcpy(h->text + h->length, piece->text, piece->length + 1);
  h->length += piece->length;
  return h->stop_after != 0 && h->pieces >= h->stop_after;
}

/* The bytes of the tokens of a text are the text, also where a character is split. */
static void check_token_bytes(redline_model* model) {
  const char* text = "\xc3\xa9t\xc3\xa9 na\xc3\xafve";
  redline_error* error = NULL;
  int32_t* tokens = NULL;
  char* bytes = NULL;
  size_t num_tokens = 0, length = 0, i, at = 0;
  OK(redline_model_encode(model, text, REDLINE_STRING_END, 0, 0, &tokens, &num_tokens, &error));
  for (i = 0; i < num_tokens; ++i) {
    OK(redline_model_token_bytes(model, tokens[i], 1, &bytes, &length, &error));
    CHECK(at + length <= strlen(text) && memcmp(text + at, bytes, length) == 0 && bytes[length] == 0);
    at += length;
    redline_free(bytes);
  }
  CHECK(at == strlen(text));
  redline_free(tokens);
  FAILS(redline_model_token_bytes(model, -1, 1, &bytes, &length, &error), REDLINE_INVALID_ARGUMENT, "vocabulary");
  CHECK(bytes == NULL && length == 0);
  FAILS(redline_model_token_bytes(model, 1 << 30, 1, &bytes, &length, &error), REDLINE_INVALID_ARGUMENT, "vocabulary");
  FAILS(redline_model_token_bytes(model, 0, 1, NULL, &length, &error), REDLINE_INVALID_ARGUMENT, "bytes");
  FAILS(redline_model_token_bytes(NULL, 0, 1, &bytes, &length, &error), REDLINE_INVALID_ARGUMENT, "model");
}

static void generate(void) {
  redline_error* error = NULL;
  redline_model* model = open_tales();
  redline_prompt prompt = text_prompt("Once upon a time");
  redline_generate_options options = greedy(model, 24);
  const redline_generate_options* list = &options;
  redline_generation* generation = NULL;
  redline_completion completion;
  heard h;
  char first[4096];
  memset(&h, 0, sizeof h);
  OK(redline_generate(model, &prompt, 1, &list, 1, hear, &h, &generation, &error));
  completion.struct_size = sizeof completion;
  OK(redline_generation_completion(generation, 0, &completion, &error));
  CHECK(completion.num_tokens == 24 && completion.finish_reason == REDLINE_FINISH_LENGTH);
  CHECK(strcmp(completion.text, h.text) == 0 && completion.length == h.length);
  CHECK(h.ends == 1 && h.pieces >= 24 && completion.logprobs == NULL && completion.prompt_tokens > 3);
  strcpy(first, completion.text);
  FAILS(redline_generation_completion(generation, 1, &completion, &error), REDLINE_INVALID_ARGUMENT, "index 1");
  redline_generation_release(generation);

  /* The same with the prompt as tokens, log probabilities and the second half of the text as a stop string. */
  options.logprobs = 2;
  {
    const char* stop = first + strlen(first) / 2;
    redline_prompt ids = text_prompt(NULL);
    int32_t* tokens = NULL;
    size_t i;
    OK(redline_model_encode(model, "Once upon a time", REDLINE_STRING_END, 0, 1, &tokens, &ids.num_tokens, &error));
    ids.tokens = tokens;
    options.stop = &stop;
    options.num_stop = 1;
    OK(redline_generate(model, &ids, 1, &list, 1, NULL, NULL, &generation, &error));
    redline_free(tokens);
    OK(redline_generation_completion(generation, 0, &completion, &error));
    CHECK(completion.finish_reason == REDLINE_FINISH_STOP && completion.length == strlen(first) / 2);
    CHECK(memcmp(completion.text, first, completion.length) == 0);
    CHECK(completion.logprobs != NULL && completion.top_offsets[completion.num_tokens] == 2 * completion.num_tokens);
    for (i = 0; i < completion.num_tokens; ++i) {
      const redline_token_logprob* top = completion.top + completion.top_offsets[i];
      CHECK(top[0].token == completion.tokens[i] && top[0].logprob == completion.logprobs[i]); /* greedy */
      CHECK(top[1].logprob <= top[0].logprob && top[0].logprob <= 0);
    }
    redline_generation_release(generation);
  }
  check_token_bytes(model);

  /* A seed gives the same text; without one it is drawn and reported. */
  options = greedy(model, 16);
  options.temperature = 1;
  OK(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
  OK(redline_generation_completion(generation, 0, &completion, &error));
  options.has_seed = 1;
  options.seed = completion.seed;
  {
    redline_generation* again = NULL;
    redline_completion same;
    same.struct_size = sizeof same;
    OK(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &again, &error));
    OK(redline_generation_completion(again, 0, &same, &error));
    CHECK(strcmp(same.text, completion.text) == 0 && same.seed == completion.seed);
    redline_generation_release(again);
  }
  redline_generation_release(generation);

  /* A token that ends the text, and not before min_tokens. */
  options = greedy(model, 16);
  OK(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
  OK(redline_generation_completion(generation, 0, &completion, &error));
  {
    const int32_t last = completion.tokens[0];
    redline_generation_release(generation);
    options.stop_token_ids = &last;
    options.num_stop_token_ids = 1;
    OK(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
    OK(redline_generation_completion(generation, 0, &completion, &error));
    CHECK(completion.num_tokens == 0 && completion.finish_reason == REDLINE_FINISH_STOP);
    redline_generation_release(generation);
    options.min_tokens = 3;
    OK(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
    OK(redline_generation_completion(generation, 0, &completion, &error));
    CHECK(completion.num_tokens >= 3 && completion.tokens[0] != last);
    redline_generation_release(generation);
    options.stop_token_ids = NULL;
    FAILS(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT,
          "stop_token_ids is NULL");
  }

  /* A constraint. */
  {
    const char* choices[] = {"yes", "no"};
    options = greedy(model, 16);
    options.choices = choices;
    options.num_choices = 2;
    OK(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
    OK(redline_generation_completion(generation, 0, &completion, &error));
    CHECK(strcmp(completion.text, "yes") == 0 || strcmp(completion.text, "no") == 0);
    redline_generation_release(generation);
  }

  /* The model's own defaults, and a callback that ends the text. */
  memset(&h, 0, sizeof h);
  h.stop_after = 5;
  OK(redline_generate(model, &prompt, 1, NULL, 0, hear, &h, &generation, &error));
  OK(redline_generation_completion(generation, 0, &completion, &error));
  CHECK(completion.finish_reason == REDLINE_FINISH_CANCELLED && h.pieces == 5 && h.ends == 1);
  redline_generation_release(generation);
  redline_model_release(model);
}

static void batch_of_prompts(void) {
  enum { kPrompts = 5 };
  static const char* const texts[kPrompts] = {"Once upon a time", "The cat", "Lily said", "One day", "Tom and Sam"};
  redline_error* error = NULL;
  redline_model* model = open_tales();
  redline_prompt prompts[kPrompts];
  redline_generate_options options[kPrompts];
  const redline_generate_options* list[kPrompts];
  redline_generation* generation = NULL;
  redline_completion completion;
  redline_piece piece;
  char joined[kPrompts][4096];
  int ended[kPrompts] = {0};
  int32_t what = 0;
  size_t i;
  for (i = 0; i < kPrompts; ++i) {
    prompts[i] = text_prompt(texts[i]);
    options[i] = greedy(model, 4 + (int64_t)i);
    list[i] = &options[i];
    joined[i][0] = '\0';
  }
  OK(redline_submit(model, prompts, kPrompts, list, kPrompts, NULL, NULL, &generation, &error));
  CHECK(redline_generation_count(generation) == kPrompts);
  piece.struct_size = sizeof piece;
  for (;;) {
    OK(redline_generation_next(generation, -1, &what, &piece, &error));
    if (what != REDLINE_NEXT_PIECE) break;
    CHECK(!ended[piece.index]);
    if (piece.is_last) ended[piece.index] = 1;
    else strcat(joined[piece.index], piece.text);
  }
  CHECK(what == REDLINE_NEXT_END);
  OK(redline_generation_next(generation, -1, &what, &piece, &error));
  CHECK(what == REDLINE_NEXT_END);
  completion.struct_size = sizeof completion;
  for (i = 0; i < kPrompts; ++i) {
    OK(redline_generation_completion(generation, i, &completion, &error));
    CHECK(ended[i] && completion.num_tokens == 4 + i && strcmp(completion.text, joined[i]) == 0);
  }
  redline_generation_release(generation);
  OK(redline_submit(model, NULL, 0, NULL, 0, NULL, NULL, &generation, &error)); /* no prompts end at once */
  OK(redline_generation_next(generation, -1, &what, &piece, &error));
  CHECK(what == REDLINE_NEXT_END);
  redline_generation_release(generation);
  redline_model_release(model);
}

static void* cancel_later(void* generation) {
  usleep(30000);
  redline_generation_cancel(generation);
  return NULL;
}

static void cancel(void) {
  redline_error* error = NULL;
  redline_model* model = open_tales();
  redline_prompt prompt = text_prompt("Once upon a time");
  redline_prompt two[2];
  redline_generate_options options = greedy(model, 900);
  const redline_generate_options* list = &options;
  redline_generation* generation = NULL;
  redline_completion completion;
  redline_piece piece;
  pthread_t thread;
  int32_t what = 0, is_done = 0;
  options.ignore_eos = 1;
  completion.struct_size = sizeof completion;
  piece.struct_size = sizeof piece;
  OK(redline_submit(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
  OK(redline_generation_next(generation, 0, &what, &piece, &error));
  CHECK(what == REDLINE_NEXT_TIMEOUT || what == REDLINE_NEXT_PIECE);
  OK(redline_generation_wait(generation, 0, &is_done, &error));
  CHECK(!is_done);
  CHECK(pthread_create(&thread, NULL, cancel_later, generation) == 0);
  OK(redline_generation_completion(generation, 0, &completion, &error));
  CHECK(completion.finish_reason == REDLINE_FINISH_CANCELLED && completion.num_tokens < 900);
  pthread_join(thread, NULL);
  redline_generation_release(generation);
  /* One of two. */
  two[0] = two[1] = prompt;
  OK(redline_submit(model, two, 2, &list, 1, NULL, NULL, &generation, &error));
  redline_generation_cancel_prompt(generation, 1);
  redline_generation_cancel_prompt(generation, 7);
  OK(redline_generation_completion(generation, 1, &completion, &error));
  CHECK(completion.finish_reason == REDLINE_FINISH_CANCELLED);
  /* Released while it runs: cancelled. */
  redline_generation_release(generation);
  redline_model_release(model);
}

/* What a callback may not do, and what it may. */
static int32_t meddle(const redline_piece* piece, void* user_data) {
  heard* h = user_data;
  redline_prompt prompt = text_prompt("Once");
  redline_generation* inner = NULL;
  if (piece->is_last) {
    ++h->ends;
    return 0;
  }
  if (h->pieces++ == 0) {
    h->inner = redline_generate(h->model, &prompt, 1, NULL, 0, NULL, NULL, &inner, NULL);
    redline_model_release(h->model); /* the generation keeps the model open */
  }
  return 0;
}

static void callbacks(void) {
  redline_error* error = NULL;
  redline_model* model = open_tales();
  redline_prompt prompt = text_prompt("Once upon a time");
  redline_generate_options options = greedy(model, 8);
  const redline_generate_options* list = &options;
  redline_generation* generation = NULL;
  redline_piece piece;
  int32_t what = 0;
  heard h;
  memset(&h, 0, sizeof h);
  h.model = model;
  OK(redline_generate(model, &prompt, 1, &list, 1, meddle, &h, &generation, &error));
  CHECK(h.inner == REDLINE_INVALID_ARGUMENT && h.ends == 1 && h.pieces >= 8);
  piece.struct_size = sizeof piece;
  FAILS(redline_generation_next(generation, 0, &what, &piece, &error), REDLINE_INVALID_ARGUMENT, "callback");
  redline_generation_release(generation);
}

static void references(void) {
  redline_error* error = NULL;
  redline_model* model = open_tales();
  redline_prompt prompt = text_prompt("Once upon a time");
  redline_generate_options options = greedy(model, 8);
  const redline_generate_options* list = &options;
  redline_generation* generation = NULL;
  redline_sequence* sequence = NULL;
  redline_completion completion;
  int32_t token = 5;
  float* logits = malloc(4096 * sizeof *logits);
  CHECK(redline_model_retain(model) == model);
  redline_model_release(model);
  OK(redline_submit(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
  OK(redline_sequence_open(model, NULL, 0, &sequence, &error));
  redline_model_release(model); /* the last handle: generation and sequence keep the model */
  completion.struct_size = sizeof completion;
  OK(redline_generation_completion(generation, 0, &completion, &error));
  CHECK(completion.num_tokens == 8);
  redline_generation_release(generation);
  OK(redline_sequence_append(sequence, &token, 1, 1, logits, 4096, &error));
  CHECK(isfinite(logits[0]));
  redline_sequence_release(sequence);
  free(logits);
}

static void logits(void) {
  enum { kVocab = 4096, kTokens = 700 };
  redline_error* error = NULL;
  redline_model* model = open_tales();
  redline_sequence *sequence = NULL, *fork = NULL;
  redline_logits_options options;
  redline_canceller* canceller = NULL;
  redline_batch_entry entries[2];
  int32_t* tokens = malloc(kTokens * sizeof *tokens);
  float* all = malloc((size_t)kTokens * kVocab * sizeof *all);
  float* last = malloc((size_t)2 * kVocab * sizeof *last);
  float most = 0;
  int64_t left = 0;
  size_t i;
  for (i = 0; i < kTokens; ++i) tokens[i] = (int32_t)(3 + i % 4000);
  tokens[0] = 0;
  /* 700 tokens are two steps of 512. */
  OK(redline_model_logits(model, tokens, kTokens, NULL, kTokens, all, (size_t)kTokens * kVocab, &error));
  OK(redline_model_logits(model, tokens, kTokens, NULL, 2, last, (size_t)2 * kVocab, &error));
  for (i = 0; i < (size_t)2 * kVocab; ++i) {
    const float difference = fabsf(last[i] - all[(size_t)(kTokens - 2) * kVocab + i]);
    if (difference > most) most = difference;
  }
  CHECK(most == 0); /* the same kernels, the same chunks */
  FAILS(redline_model_logits(model, tokens, 3, NULL, 1, last, 5, &error), REDLINE_INVALID_ARGUMENT, "4096 floats, 5");
  FAILS(redline_model_logits(model, tokens, 0, NULL, 1, last, kVocab, &error), REDLINE_INVALID_ARGUMENT, "no tokens");
  FAILS(redline_model_logits(model, tokens, 1, NULL, 2, last, 2 * kVocab, &error), REDLINE_INVALID_ARGUMENT, "2 rows");
  tokens[1] = 5000;
  FAILS(redline_model_logits(model, tokens, 3, NULL, 1, last, kVocab, &error), REDLINE_INVALID_ARGUMENT, "5000");
  tokens[1] = 4;
  redline_logits_options_init(&options, sizeof options);
  OK(redline_canceller_create(&canceller, &error));
  options.canceller = canceller;
  redline_canceller_cancel(canceller);
  FAILS(redline_model_logits(model, tokens, 3, &options, 1, last, kVocab, &error), REDLINE_CANCELLED, "0 of 3");
  redline_canceller_reset(canceller);
  OK(redline_model_logits(model, tokens, 3, &options, 1, last, kVocab, &error));
  redline_canceller_release(canceller);

  /* A sequence of one's own gives the same. */
  OK(redline_sequence_open(model, NULL, 0, &sequence, &error));
  OK(redline_sequence_append(sequence, tokens, 3, 1, all, kVocab, &error));
  CHECK(redline_sequence_length(sequence) == 3 && memcmp(all, last, kVocab * sizeof *all) == 0);
  OK(redline_sequence_fork(sequence, &fork, &error));
  OK(redline_sequence_append(fork, tokens + 3, 2, 0, NULL, 0, &error));
  OK(redline_sequence_truncate(fork, 3, &left, &error));
  CHECK(left == 3 && redline_sequence_length(fork) == 3 && redline_sequence_length(sequence) == 3);
  memset(entries, 0, sizeof entries);
  for (i = 0; i < 2; ++i) {
    entries[i].sequence = i == 0 ? sequence : fork;
    entries[i].tokens = tokens + 3;
    entries[i].num_tokens = 1;
    entries[i].logits = last + i * kVocab;
    entries[i].num_rows = 1;
  }
  OK(redline_model_run_batch(model, entries, 2, &error));
  CHECK(memcmp(last, last + kVocab, kVocab * sizeof *last) == 0);
  entries[1].sequence = sequence;
  FAILS(redline_model_run_batch(model, entries, 2, &error), REDLINE_INVALID_ARGUMENT, "");
  redline_sequence_release(fork);
  redline_sequence_release(sequence);
  redline_model_release(model);
  free(last);
  free(all);
  free(tokens);
}

/* Makes spans of `before`, `num_rows` rows of `values` and one token. */
static redline_prompt_spans* make_spans(const int32_t* before, size_t num_before, const float* values, size_t num_rows,
                                        int64_t hidden_size) {
  static const int32_t kAfter = 9;
  redline_error* error = NULL;
  redline_prompt_spans* spans = NULL;
  redline_embedding_rows rows;
  redline_embedding_rows_init(&rows, sizeof rows);
  rows.values = values;
  rows.num_rows = num_rows;
  rows.hidden_size = hidden_size;
  OK(redline_prompt_spans_create(&spans, &error));
  OK(redline_prompt_spans_add_tokens(spans, before, num_before, &error));
  OK(redline_prompt_spans_add_embeddings(spans, &rows, &error));
  OK(redline_prompt_spans_add_tokens(spans, &kAfter, 1, &error));
  CHECK(redline_prompt_spans_length(spans) == num_before + num_rows + 1);
  return spans;
}

static void prompt_spans(void) {
  enum { kVocab = 4096, kBefore = 3, kRows = 40 };
  static const int32_t tokens[kBefore] = {5, 6, 7};
  redline_error* error = NULL;
  redline_model *model = NULL, *plain = open_tales();
  redline_model_options options;
  redline_model_info info;
  redline_prompt_spans *one, *other, *text = NULL;
  const redline_prompt_spans* list[3];
  redline_embedding_rows rows;
  redline_generate_options greedy_options;
  const redline_generate_options* each;
  redline_generation* generation = NULL;
  redline_completion completion;
  redline_sequence *a = NULL, *b = NULL;
  redline_span_entry entries[2];
  float *values, *both = malloc((size_t)2 * kVocab * sizeof *both);
  int64_t cached[3];
  size_t i;
  redline_model_options_init(&options, sizeof options);
  options.prompt_embeddings = 1;
  CHECK(options.num_speculative_tokens > 0 && options.speculate == NULL);
  options.speculate = "medusa";
  FAILS(redline_model_open(tales, &options, &model, &error), REDLINE_INVALID_ARGUMENT, "no drafter");
  options.speculate = "prompt-lookup";
  options.dtype = "f32";
  OK(redline_model_open(tales, &options, &model, &error));
  info.struct_size = sizeof info;
  OK(redline_model_get_info(model, &info, &error));
  values = malloc((size_t)kRows * (size_t)info.hidden_size * sizeof *values);
  for (i = 0; i < (size_t)kRows * (size_t)info.hidden_size; ++i) values[i] = sinf((float)i) * 0.05f;
  one = make_spans(tokens, kBefore, values, kRows, info.hidden_size);
  values[0] = 0.04f;
  other = make_spans(tokens, kBefore, values, kRows, info.hidden_size);

  /* The same media is shared, another one behind the same tokens is not. */
  list[0] = list[1] = one;
  list[2] = other;
  greedy_options = greedy(model, 4);
  each = &greedy_options;
  completion.struct_size = sizeof completion;
  for (i = 0; i < 3; ++i) {
    OK(redline_generate_spans(model, &list[i], 1, &each, 1, NULL, NULL, &generation, &error));
    OK(redline_generation_completion(generation, 0, &completion, &error));
    CHECK(completion.prompt_tokens == kBefore + kRows + 1);
    CHECK(completion.accepted_tokens >= 0 && completion.accepted_tokens <= completion.drafted_tokens);
    cached[i] = completion.cached_tokens;
    redline_generation_release(generation);
  }
  CHECK(cached[0] == 0 && cached[1] == kBefore + kRows && cached[2] == kBefore);
  OK(redline_submit_spans(model, list, 3, &each, 1, NULL, NULL, &generation, &error));
  redline_generation_release(generation);

  /* Sequences: at once, and in a batch. */
  OK(redline_sequence_open(model, NULL, 0, &a, &error));
  OK(redline_sequence_open(model, NULL, 0, &b, &error));
  OK(redline_sequence_append_spans(a, one, 1, both, kVocab, &error));
  CHECK(redline_sequence_length(a) == kBefore + kRows + 1);
  memset(entries, 0, sizeof entries);
  entries[0].sequence = b;
  entries[0].spans = one;
  entries[0].logits = both + kVocab;
  entries[0].num_rows = 1;
  OK(redline_model_run_batch_spans(model, entries, 1, &error));
  CHECK(memcmp(both, both + kVocab, kVocab * sizeof *both) == 0);
  FAILS(redline_model_run_batch_spans(model, entries, 2, &error), REDLINE_INVALID_ARGUMENT, "entries[1]");
  /* Spans of tokens alone are tokens, also for a model that takes no embeddings. */
  OK(redline_prompt_spans_create(&text, &error));
  OK(redline_prompt_spans_add_tokens(text, tokens, kBefore, &error));
  list[0] = text;
  OK(redline_generate_spans(plain, list, 1, &each, 1, NULL, NULL, &generation, &error));
  redline_generation_release(generation);

  FAILS(redline_generate_spans(plain, &list[1], 1, &each, 1, NULL, NULL, &generation, &error), REDLINE_UNSUPPORTED,
        "prompt_embeddings");
  CHECK(generation == NULL);
  list[0] = NULL;
  FAILS(redline_generate_spans(model, list, 1, &each, 1, NULL, NULL, &generation, &error), REDLINE_INVALID_ARGUMENT,
        "prompt is NULL");
  FAILS(redline_sequence_append_spans(a, NULL, 0, NULL, 0, &error), REDLINE_INVALID_ARGUMENT, "spans is NULL");
  FAILS(redline_prompt_spans_add_tokens(text, NULL, 1, &error), REDLINE_INVALID_ARGUMENT, "tokens is NULL");
  redline_embedding_rows_init(&rows, sizeof rows);
  FAILS(redline_prompt_spans_add_embeddings(text, &rows, &error), REDLINE_INVALID_ARGUMENT, "values is NULL");
  rows.values = values;
  rows.num_rows = 1;
  rows.hidden_size = info.hidden_size - 1;
  OK(redline_prompt_spans_add_embeddings(text, &rows, &error));
  FAILS(redline_sequence_append_spans(a, text, 0, NULL, 0, &error), REDLINE_INVALID_ARGUMENT, "model's hidden_size");
  rows.num_axes = 9;
  FAILS(redline_prompt_spans_add_embeddings(text, &rows, &error), REDLINE_INVALID_ARGUMENT, "on 9 axes");
  rows.num_axes = 1;
  values[1] = NAN;
  FAILS(redline_prompt_spans_add_embeddings(text, &rows, &error), REDLINE_INVALID_ARGUMENT, "NaN");
  redline_prompt_spans_release(NULL);
  redline_prompt_spans_release(text);
  redline_prompt_spans_release(other);
  redline_prompt_spans_release(one);
  redline_sequence_release(a);
  redline_sequence_release(b);
  redline_model_release(model);
  redline_model_release(plain);
  free(values);
  free(both);
}

static void adapters(void) {
  redline_error* error = NULL;
  redline_model* model = NULL;
  redline_model_options options;
  redline_generate_options with, without;
  const redline_generate_options* list[2];
  redline_prompt prompts[2];
  redline_generation* generation = NULL;
  redline_completion a, b;
  redline_adapter adapter;
  int64_t rank = 0;
  const char* path;
  path = join(tales, "/adapters/shout");
  OK(redline_text_adapter_rank(path, &rank, &error));
  CHECK(rank > 0);
  adapter.name = NULL;
  adapter.path = path;
  adapter.weight = 1;
  redline_model_options_init(&options, sizeof options);
  options.adapters = &adapter;
  options.num_adapters = 1;
  OK(redline_model_open(tales, &options, &model, &error));
  with = greedy(model, 12);
  CHECK(with.num_adapters == 1 && strcmp(with.adapters[0].name, "adapter0") == 0);
  without = with;
  without.num_adapters = 0;
  list[0] = &with;
  list[1] = &without;
  prompts[0] = prompts[1] = text_prompt("Once upon a time");
  OK(redline_generate(model, prompts, 2, list, 2, NULL, NULL, &generation, &error));
  a.struct_size = b.struct_size = sizeof a;
  OK(redline_generation_completion(generation, 0, &a, &error));
  OK(redline_generation_completion(generation, 1, &b, &error));
  CHECK(strcmp(a.text, b.text) != 0);
  redline_generation_release(generation);
  FAILS(redline_model_load_adapter(model, "adapter0", path, &error), REDLINE_INVALID_ARGUMENT, "adapter0");
  OK(redline_model_unload_adapter(model, "adapter0", &error));
  FAILS(redline_model_unload_adapter(model, "adapter0", &error), REDLINE_NOT_FOUND, "adapter0");
  redline_model_release(model);
  adapter.path = "no/such/adapter";
  FAILS(redline_model_open(tales, &options, &model, &error), REDLINE_NOT_FOUND, "no/such/adapter");
}

static int32_t stop_now(void* user_data) {
  ++*(int*)user_data;
  return 1;
}

static void embeddings(void) {
  static const char* const documents[] = {"a quick fox", "the sea"};
  static const char* const files[] = {"/config.json", "/model.safetensors", "/tokenizer.json"};
  redline_error* error = NULL;
  redline_embedding_model* model = NULL;
  redline_embedding_options options;
  redline_embed_options embed;
  redline_prompt texts[3];
  int32_t ids[] = {2, 7, 9, 3};
  int64_t dimensions, tokens = 0;
  float *values, norm = 0, scores[2];
  char folder[8192], *json = NULL;
  int calls = 0;
  size_t i;
  /* A golden encoder beside a tokenizer. */
  strcpy(folder, join(temporary, "/c_api_encoder"));
  CHECK(mkdir(folder, 0777) == 0 || errno == EEXIST);
  for (i = 0; i < 3; ++i) {
    const char* from = i == 2 ? tokenizer : join(join(golden, "/encoders/bert"), files[i]);
    const char* to = join(folder, files[i]);
    unlink(to);
    CHECK(symlink(from, to) == 0);
  }

  CHECK(redline_is_embedding_model(folder) == 1 && redline_is_embedding_model(tales) == 0);
  redline_embedding_options_init(&options, sizeof options);
  options.threads = 2;
  options.pooling = "nonsense";
  FAILS(redline_embedding_model_open(folder, &options, &model, &error), REDLINE_INVALID_ARGUMENT, "nonsense");
  options.pooling = "mean";
  OK(redline_embedding_model_open(folder, &options, &model, &error));
  dimensions = redline_embedding_model_dimensions(model);
  OK(redline_embedding_model_describe(model, &json, &error));
  CHECK(dimensions > 0 && strstr(json, "\"pooling\":\"mean\"") != NULL);
  redline_free(json);
  values = malloc((size_t)(3 * dimensions) * sizeof *values);
  texts[0] = text_prompt("the quick brown fox");
  texts[1] = text_prompt("");
  texts[2] = texts[0];
  redline_embed_options_init(&embed, sizeof embed);
  embed.normalize = 1;
  OK(redline_embed(model, texts, 3, &embed, values, (size_t)(3 * dimensions), &tokens, &error));
  for (i = 0; i < (size_t)dimensions; ++i) norm += values[i] * values[i];
  CHECK(fabsf(norm - 1) < 1e-5f && tokens > 6);
  CHECK(memcmp(values, values + 2 * dimensions, (size_t)dimensions * sizeof *values) == 0);
  {
    redline_token_states* states = NULL;
    redline_float_array of_text;
    OK(redline_embed_tokens(model, texts, 3, NULL, &states, &error));
    of_text = redline_token_states_of(states, 1);
    CHECK(of_text.num_axes == 2 && of_text.shape[0] >= 2 && of_text.shape[1] == dimensions);
    CHECK(isfinite(of_text.data[0]));
    CHECK(redline_token_states_of(states, 3).data == NULL && redline_token_states_of(NULL, 0).data == NULL);
    redline_token_states_release(states);
    FAILS(redline_embed_tokens(NULL, texts, 3, NULL, &states, &error), REDLINE_INVALID_ARGUMENT, "model is NULL");
  }
  OK(redline_embed(model, NULL, 0, NULL, NULL, 0, NULL, &error));
  FAILS(redline_embed(model, texts, 3, NULL, values, 7, NULL, &error), REDLINE_INVALID_ARGUMENT, "7 are given");
  texts[1].tokens = ids;
  texts[1].num_tokens = 4;
  FAILS(redline_embed(model, texts, 3, NULL, values, (size_t)(3 * dimensions), NULL, &error), REDLINE_INVALID_ARGUMENT, "texts[1]");
  OK(redline_embed(model, texts + 1, 1, NULL, values, (size_t)dimensions, &tokens, &error));
  CHECK(tokens == 4);
  embed.prompt_name = "nobody";
  FAILS(redline_embed(model, texts, 1, &embed, values, (size_t)dimensions, NULL, &error), REDLINE_INVALID_ARGUMENT, "nobody");
  redline_embed_options_init(&embed, sizeof embed);
  embed.on_step = stop_now;
  embed.user_data = &calls;
  FAILS(redline_embed(model, texts, 1, &embed, values, (size_t)dimensions, NULL, &error), REDLINE_CANCELLED, "");
  CHECK(calls == 1);
  OK(redline_rank(model, "the quick brown fox", documents, 2, NULL, scores, &tokens, &error));
  CHECK(isfinite(scores[0]) && isfinite(scores[1]) && tokens > 0);
  free(values);
  redline_embedding_model_release(model);
}

typedef struct {
  redline_model* model;
  char text[4096];
} worker;

static void* work(void* user_data) {
  worker* w = user_data;
  redline_error* error = NULL;
  redline_prompt prompt = text_prompt("Once upon a time");
  redline_generate_options options = greedy(w->model, 20);
  const redline_generate_options* list = &options;
  redline_generation* generation = NULL;
  redline_completion completion;
  int i;
  for (i = 0; i < 5; ++i) {
    OK(redline_generate(w->model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
    completion.struct_size = sizeof completion;
    OK(redline_generation_completion(generation, 0, &completion, &error));
    strcpy(w->text, completion.text);
    redline_generation_release(generation);
  }
  redline_model_release(w->model);
  return NULL;
}

static void several_threads(void) {
  enum { kThreads = 6 };
  redline_model* model = open_tales();
  pthread_t threads[kThreads];
  worker workers[kThreads];
  int i;
  for (i = 0; i < kThreads; ++i) {
    workers[i].model = redline_model_retain(model);
    CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  redline_model_release(model);
  for (i = 0; i < kThreads; ++i) pthread_join(threads[i], NULL);
  for (i = 1; i < kThreads; ++i) CHECK(strcmp(workers[i].text, workers[0].text) == 0);
}

static void shared_runtime(void) {
  redline_error* error = NULL;
  redline_runtime_options options;
  redline_runtime* runtime = NULL;
  redline_model_options model_options;
  redline_model *first = NULL, *second = NULL;
  redline_model_info info;
  redline_runtime_options_init(&options, sizeof options);
  options.threads = 2;
  OK(redline_runtime_open(&options, &runtime, &error));
  CHECK(redline_runtime_threads(runtime) == 2);
  redline_model_options_init(&model_options, sizeof model_options);
  model_options.runtime = runtime;
  OK(redline_model_open(tales, &model_options, &first, &error));
  OK(redline_model_open(tales, &model_options, &second, &error));
  redline_runtime_release(runtime);
  info.struct_size = sizeof info;
  OK(redline_model_get_info(second, &info, &error));
  CHECK(info.threads == 2 && info.has_tokenizer && info.has_chat_template && info.context == 1024);
  redline_model_release(first);
  redline_model_release(second);
}

typedef struct {
  int calls, stop_after;
  int64_t preview_width;
  redline_image_pipeline* pipeline;
} watched;

static int32_t watch(const redline_image_progress* progress, void* user_data) {
  watched* w = user_data;
  redline_error* error = NULL;
  uint8_t* rgb = NULL;
  int64_t width = 0, height = 0;
  ++w->calls;
  CHECK(progress->struct_size >= sizeof *progress && progress->step == w->calls && progress->latents.num_axes == 4);
  if (w->calls == 1) {
    OK(redline_image_preview(progress, 0, 64, &rgb, &width, &height, &error));
    CHECK(rgb != NULL && width > 0 && width <= 64 && height == width);
    w->preview_width = width;
    redline_free(rgb);
    if (w->pipeline != NULL)
      FAILS(redline_image_pipeline_set_adapters(w->pipeline, NULL, 0, &error), REDLINE_INVALID_ARGUMENT, "callback");
  }
  return w->stop_after != 0 && w->calls >= w->stop_after;
}

static redline_image_pipeline* open_shapes(void) {
  redline_error* error = NULL;
  redline_image_pipeline* pipeline = NULL;
  redline_image_pipeline_options options;
  redline_image_pipeline_options_init(&options, sizeof options);
  options.threads = 2;
  OK(redline_image_pipeline_open(shapes, &options, &pipeline, &error));
  if (pipeline == NULL) exit(1);
  return pipeline;
}

static void image(void) {
  static const char* const prompt[] = {"a large red circle on a blue background"};
  redline_error* error = NULL;
  redline_image_pipeline* pipeline = open_shapes();
  redline_image_request request;
  redline_image_result *result = NULL, *again = NULL;
  redline_image first, second;
  redline_float_array latents;
  watched w;
  const char* path;
  char* json = NULL;
  OK(redline_image_pipeline_describe(pipeline, &json, &error));
  CHECK(strstr(json, "\"size_multiple\":") != NULL && strstr(json, "\"width\":128") != NULL);
  redline_free(json);
  redline_image_request_init(&request, sizeof request, pipeline);
  CHECK(request.width == 128 && request.num_inference_steps == 28);
  FAILS(redline_image_generate(pipeline, &request, &result, &error), REDLINE_INVALID_ARGUMENT, "prompt");
  request.prompts = prompt;
  request.num_prompts = 1;
  request.num_inference_steps = 3;
  request.has_seed = 1;
  request.seed = 7;
  request.keep_latents = 1;
  memset(&w, 0, sizeof w);
  w.pipeline = pipeline;
  request.on_step = watch;
  request.user_data = &w;
  OK(redline_image_generate(pipeline, &request, &result, &error));
  CHECK(w.calls == 3 && w.preview_width > 0 && redline_image_result_count(result) == 1);
  CHECK(redline_image_result_seed(result) == 7);
  first = redline_image_result_image(result, 0);
  CHECK(first.width == 128 && first.height == 128 && first.rgb != NULL);
  CHECK(redline_image_result_image(result, 1).rgb == NULL);
  latents = redline_image_result_latents(result);
  CHECK(latents.num_axes == 4 && latents.shape[0] == 1 && isfinite(latents.data[0]));
  OK(redline_image_result_describe(result, &json, &error));
  CHECK(strstr(json, "\"seed\":7") != NULL && strstr(json, "\"step_ms\":[") != NULL);
  redline_free(json);

  /* The same request gives the same image, with the handle released before the result is read. */
  request.on_step = NULL;
  request.keep_latents = 0;
  OK(redline_image_generate(pipeline, &request, &again, &error));
  second = redline_image_result_image(again, 0);
  CHECK(redline_image_result_latents(again).data == NULL);
  CHECK(memcmp(first.rgb, second.rgb, (size_t)first.width * (size_t)first.height * 3) == 0);
  path = join(temporary, "/c_api_test.png");
  OK(redline_save_png(path, &second, &error));
  CHECK(access(path, R_OK) == 0);
  FAILS(redline_save_png("/no/such/folder/x.png", &second, &error), REDLINE_IO, "x.png");
  redline_image_result_release(again);

  /* Image to image with a mask. */
  {
    uint8_t* mask_pixels = calloc(128 * 128, 3);
    redline_image mask;
    mask.width = mask.height = 128;
    mask.rgb = mask_pixels;
    memset(mask_pixels, 255, 128 * 64 * 3);
    request.init_image = &first;
    request.mask = &mask;
    request.keep_unmasked = 1;
    request.strength = 0.9;
    OK(redline_image_generate(pipeline, &request, &again, &error));
    second = redline_image_result_image(again, 0);
    CHECK(second.rgb != NULL && memcmp(first.rgb + 128 * 127 * 3, second.rgb + 128 * 127 * 3, 128 * 3) == 0);
    redline_image_result_release(again);
    mask.width = 0;
    FAILS(redline_image_generate(pipeline, &request, &again, &error), REDLINE_INVALID_ARGUMENT, "mask: 0 x 128");
    free(mask_pixels);
    request.init_image = request.mask = NULL;
  }
  request.width = 100;
  FAILS(redline_image_generate(pipeline, &request, &again, &error), REDLINE_INVALID_ARGUMENT, "100");
  request.width = 128;

  /* Cancelled by the callback, then by a canceller. */
  memset(&w, 0, sizeof w);
  w.stop_after = 2;
  request.on_step = watch;
  FAILS(redline_image_generate(pipeline, &request, &again, &error), REDLINE_CANCELLED, "");
  CHECK(w.calls == 2 && again == NULL);
  request.on_step = NULL;
  OK(redline_canceller_create(&request.canceller, &error));
  redline_canceller_cancel(request.canceller);
  FAILS(redline_image_generate(pipeline, &request, &again, &error), REDLINE_CANCELLED, "");
  redline_canceller_release(request.canceller);
  request.canceller = NULL;

  /* The same in parts: prompts to embeddings, these to latents, these to an image. */
  {
    static const char* const negative[] = {""};
    redline_prompt_embeds *text = NULL, *other = NULL;
    redline_float_array embeds, pooled, negative_embeds, negative_pooled;
    OK(redline_image_encode_prompts(pipeline, prompt, 1, 0, &text, &error));
    OK(redline_image_encode_prompts(pipeline, negative, 1, 0, &other, &error));
    embeds = redline_prompt_embeds_text(text);
    pooled = redline_prompt_embeds_pooled(text);
    negative_embeds = redline_prompt_embeds_text(other);
    negative_pooled = redline_prompt_embeds_pooled(other);
    CHECK(embeds.num_axes == 3 && embeds.shape[0] == 1 && pooled.num_axes == 2);
    OK(redline_prompt_embeds_describe(text, &json, &error));
    CHECK(strcmp(json, "{\"warnings\":[]}") == 0);
    redline_free(json);
    request.prompts = NULL;
    request.num_prompts = 0;
    request.prompt_embeds = &embeds;
    request.pooled_embeds = &pooled;
    request.negative_prompt_embeds = &negative_embeds;
    request.negative_pooled_embeds = &negative_pooled;
    request.keep_latents = request.skip_decode = 1;
    OK(redline_image_generate(pipeline, &request, &again, &error));
    CHECK(redline_image_result_count(again) == 0);
    latents = redline_image_result_latents(again);
    {
      redline_image_result* decoded = NULL;
      OK(redline_image_decode(pipeline, &latents, &decoded, &error));
      second = redline_image_result_image(decoded, 0);
      CHECK(memcmp(first.rgb, second.rgb, (size_t)first.width * (size_t)first.height * 3) == 0);
      redline_image_result_release(decoded);
      latents.num_axes = 2;
      FAILS(redline_image_decode(pipeline, &latents, &decoded, &error), REDLINE_INVALID_ARGUMENT, "latents are [");
      FAILS(redline_image_decode(pipeline, NULL, &decoded, &error), REDLINE_INVALID_ARGUMENT, "latents");
    }
    redline_prompt_embeds_release(text);
    FAILS(redline_image_encode_prompts(pipeline, NULL, 1, 0, &text, &error), REDLINE_INVALID_ARGUMENT, "prompts");
    CHECK(text == NULL && redline_prompt_embeds_text(NULL).num_axes == 0);
    redline_image_result_release(again);
    redline_prompt_embeds_release(other);
  }
  redline_image_pipeline_release(pipeline);
  redline_image_result_release(result);
}

/* A text encoder whose one layer adds nothing, so that its outputs are those of embeddings and a norm. */
enum { kWidth = 16, kVocabulary = 10, kPositions = 8, kMostTensors = 32 };
typedef struct {
  redline_tensor tensors[kMostTensors];
  size_t count;
} tensor_list;

static float* add_tensor(tensor_list* list, const char* name, int64_t rows, int64_t cols, float value) {
  redline_tensor* tensor = &list->tensors[list->count++];
  int64_t* shape = malloc(2 * sizeof *shape);
  float* data = malloc((size_t)(rows * cols) * sizeof *data);
  int64_t i;
  for (i = 0; i < rows * cols; ++i) data[i] = value;
  shape[0] = rows;
  shape[1] = cols;
  tensor->name = name;
  tensor->dtype = "F32";
  tensor->shape = shape;
  tensor->num_axes = cols == 1 ? 1 : 2;
  tensor->data = data;
  return data;
}

static void free_tensors(tensor_list* list) {
  size_t i;
  for (i = 0; i < list->count; ++i) {
    memset((void*)list->tensors[i].data, 255, sizeof(float)); /* the engine does not read it any more */
    free((void*)list->tensors[i].data);
    free((void*)list->tensors[i].shape);
  }
  list->count = 0;
}

static float token_value(int64_t token, int64_t column) { return (float)((token * 7 + column * 3) % 11) / 4 - 1; }
static float position_value(int64_t position, int64_t column) {
  return (float)((position * 5 + column * 2) % 13) / 8 - 0.5F;
}

static void fill_text_encoder(tensor_list* list) {
  static const char* const matrices[] = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                                         "self_attn.out_proj", "mlp.fc1", "mlp.fc2"};
  static const char* const norms[] = {"encoder.layers.0.layer_norm1", "encoder.layers.0.layer_norm2", "final_layer_norm"};
  static char names[2 * kMostTensors][64];
  size_t i, next = 0;
  int64_t row, column;
  float *tokens, *positions;
  list->count = 0;
  tokens = add_tensor(list, "embeddings.token_embedding.weight", kVocabulary, kWidth, 0);
  positions = add_tensor(list, "embeddings.position_embedding.weight", kPositions, kWidth, 0);
  for (column = 0; column < kWidth; ++column) {
    for (row = 0; row < kVocabulary; ++row) tokens[row * kWidth + column] = token_value(row, column);
    for (row = 0; row < kPositions; ++row) positions[row * kWidth + column] = position_value(row, column);
  }
  for (i = 0; i < sizeof matrices / sizeof matrices[0]; ++i) {
    sprintf(names[next], "encoder.layers.0.%s.weight", matrices[i]);
    add_tensor(list, names[next++], kWidth, kWidth, 0);
    sprintf(names[next], "encoder.layers.0.%s.bias", matrices[i]);
    /* The feed-forward's hidden values are all 1, which the second matrix, of zeros, does not see. */
    add_tensor(list, names[next++], kWidth, 1, strcmp(matrices[i], "mlp.fc1") == 0 ? 1.0F : 0.0F);
  }
  for (i = 0; i < sizeof norms / sizeof norms[0]; ++i) {
    sprintf(names[next], "%s.weight", norms[i]);
    add_tensor(list, names[next++], kWidth, 1, 1);
    sprintf(names[next], "%s.bias", norms[i]);
    add_tensor(list, names[next++], kWidth, 1, 0);
  }
}

/* The greatest difference from the reference, in double: the norm of token + position + added[column]. */
static double text_error(const float* hidden, const int32_t* tokens, int64_t length, const double* added) {
  double worst = 0;
  int64_t i, c;
  for (i = 0; i < length; ++i) {
    double x[kWidth], mean = 0, variance = 0;
    for (c = 0; c < kWidth; ++c) {
      x[c] = (double)token_value(tokens[i], c) + (double)position_value(i, c) + (added != NULL ? added[c] : 0);
      mean += x[c] / kWidth;
    }
    for (c = 0; c < kWidth; ++c) variance += (x[c] - mean) * (x[c] - mean) / kWidth;
    for (c = 0; c < kWidth; ++c) {
      double error = fabs((x[c] - mean) / sqrt(variance + 1e-5) - (double)hidden[i * kWidth + c]);
      if (!(error <= worst)) worst = error;
    }
  }
  return worst;
}

static redline_tensor input_of(const char* name, const char* dtype, const int64_t* shape, size_t num_axes,
                               const void* data) {
  redline_tensor tensor;
  tensor.name = name;
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.num_axes = num_axes;
  tensor.data = data;
  return tensor;
}

static void network(void) {
  static const char config[] =
      "{\"hidden_size\": 16, \"intermediate_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
      "\"vocab_size\": 10, \"max_position_embeddings\": 8, \"eos_token_id\": 9, \"hidden_act\": \"quick_gelu\"}";
  /* Sums of 16 products in float32, twice, and a square root. */
  static const double tolerance = 64 * 6e-8;
  const int32_t tokens[2][5] = {{1, 4, 9, 0, 0}, {3, 2, 5, 9, 9}};
  const int64_t shape[] = {2, 5}, down_shape[] = {2, kWidth}, up_shape[] = {kWidth, 2}, wrong_shape[] = {1, 9};
  redline_error* error = NULL;
  redline_network *net = NULL, *other = (redline_network*)&error;
  redline_network_options options;
  redline_network_output outputs[2];
  redline_network_step step;
  redline_adapter_pair pair;
  redline_tensor input = input_of("tokens", "I32", shape, 2, tokens);
  tensor_list list;
  float hidden[2 * 5 * kWidth], pooled[2 * kWidth], down[2 * kWidth], up[kWidth * 2];
  double added[kWidth];
  char* json = NULL;
  int i;
  redline_network_options_init(&options, sizeof options);
  CHECK(options.struct_size == sizeof options && options.max_batch > 0);
  options.threads = 2;
  options.dtype = "f32";
  options.max_adapter_rank = 2;
  fill_text_encoder(&list);
  FAILS(redline_network_open("GuessedModel", config, list.tensors, list.count, &options, &other, &error),
        REDLINE_UNSUPPORTED, "UNet2DConditionModel");
  CHECK(other == NULL);
  FAILS(redline_network_open("CLIPTextModel", "[]", list.tensors, list.count, &options, &other, &error),
        REDLINE_INVALID_ARGUMENT, "CLIPTextModel");
  FAILS(redline_network_open("CLIPTextModel", config, list.tensors, list.count - 1, &options, &other, &error),
        REDLINE_INVALID_ARGUMENT, "final_layer_norm.bias");
  list.tensors[1].dtype = "F64";
  FAILS(redline_network_open("CLIPTextModel", config, list.tensors, list.count, &options, &other, &error),
        REDLINE_INVALID_ARGUMENT, "F64");
  list.tensors[1].dtype = "F32";
  FAILS(redline_network_open("CLIPTextModel", config, NULL, list.count, &options, &other, &error),
        REDLINE_INVALID_ARGUMENT, "tensors is NULL");
  OK(redline_network_open("CLIPTextModel", config, list.tensors, list.count, &options, &net, &error));
  free_tensors(&list);
  if (net == NULL) return;
  CHECK(redline_network_retain(net) == net);
  redline_network_release(net);
  OK(redline_network_describe(net, &json, &error));
  CHECK(strstr(json, "\"kind\":\"text_encoder\"") != NULL && strstr(json, "\"width\":16") != NULL);
  redline_free(json);

  outputs[0].name = "hidden";
  outputs[0].data = hidden;
  outputs[0].num_floats = 2 * 5 * kWidth;
  outputs[1].name = "pooled";
  outputs[1].data = pooled;
  outputs[1].num_floats = 2 * kWidth;
  OK(redline_network_run(net, &input, 1, outputs, 2, NULL, &error));
  CHECK(text_error(hidden, tokens[0], 5, NULL) < tolerance);
  CHECK(text_error(hidden + 5 * kWidth, tokens[1], 5, NULL) < tolerance);
  /* The rows of the first token 9. */
  CHECK(memcmp(pooled, hidden + 2 * kWidth, sizeof(float) * kWidth) == 0);
  CHECK(memcmp(pooled + kWidth, hidden + 8 * kWidth, sizeof(float) * kWidth) == 0);

  /* What it says of wrong inputs and outputs. */
  outputs[1].num_floats = 3;
  FAILS(redline_network_run(net, &input, 1, outputs, 2, NULL, &error), REDLINE_INVALID_ARGUMENT, "room for 3");
  outputs[1].name = "logits";
  FAILS(redline_network_run(net, &input, 1, outputs, 2, NULL, &error), REDLINE_INVALID_ARGUMENT, "penultimate");
  FAILS(redline_network_run(net, &input, 1, outputs, 0, NULL, &error), REDLINE_INVALID_ARGUMENT, "no output");
  FAILS(redline_network_run(net, &input, 0, outputs, 1, NULL, &error), REDLINE_INVALID_ARGUMENT, "\"tokens\" is missing");
  input.name = "text";
  FAILS(redline_network_run(net, &input, 1, outputs, 1, NULL, &error), REDLINE_INVALID_ARGUMENT, "no input \"text\"");
  input = input_of("tokens", "F32", shape, 2, tokens);
  FAILS(redline_network_run(net, &input, 1, outputs, 1, NULL, &error), REDLINE_INVALID_ARGUMENT, "I32");
  input = input_of("tokens", "I32", wrong_shape, 2, tokens);
  FAILS(redline_network_run(net, &input, 1, outputs, 1, NULL, &error), REDLINE_INVALID_ARGUMENT, "1 to 8 tokens");
  input = input_of("tokens", "I32", shape, 2, tokens);
  FAILS(redline_network_set_cache(net, "fbcache", -1, 0, &error), REDLINE_UNSUPPORTED, "denoisers");
  redline_network_step_init(&step, sizeof step);
  step.num_timesteps = 3;
  FAILS(redline_network_run(net, &input, 1, outputs, 1, &step, &error), REDLINE_INVALID_ARGUMENT, "timesteps is NULL");

  /* An adapter of the second matrix, which reads quick_gelu(1) sixteen times. */
  for (i = 0; i < 2 * kWidth; ++i) down[i] = (float)(i % 5) / 16, up[i] = (float)(i % 3) / 4;
  for (i = 0; i < kWidth; ++i) {
    double low[2] = {0, 0};
    int k;
    for (k = 0; k < kWidth; ++k) {
      low[0] += (double)down[k] / (1 + exp(-1.702));
      low[1] += (double)down[kWidth + k] / (1 + exp(-1.702));
    }
    added[i] = 0.5 * ((double)up[i * 2] * low[0] + (double)up[i * 2 + 1] * low[1]);
  }
  pair.adapter = "style";
  pair.module = "encoder.layers.0.mlp.fc2";
  pair.down = input_of("down", "F32", down_shape, 2, down);
  pair.up = input_of("up", "F32", up_shape, 2, up);
  pair.scale = 0.5;
  OK(redline_network_set_adapters(net, &pair, 1, &error));
  OK(redline_network_run(net, &input, 1, outputs, 1, NULL, &error));
  CHECK(text_error(hidden, tokens[0], 5, added) < tolerance);
  CHECK(text_error(hidden, tokens[0], 5, NULL) > 1000 * tolerance);
  /* An error leaves the active ones. */
  pair.module = "encoder.layers.1.mlp.fc2";
  FAILS(redline_network_set_adapters(net, &pair, 1, &error), REDLINE_INVALID_ARGUMENT, "no encoder.layers.1.mlp.fc2");
  OK(redline_network_run(net, &input, 1, outputs, 1, NULL, &error));
  CHECK(text_error(hidden, tokens[0], 5, added) < tolerance);
  OK(redline_network_set_adapters(net, NULL, 0, &error));
  OK(redline_network_run(net, &input, 1, outputs, 1, NULL, &error));
  CHECK(text_error(hidden, tokens[0], 5, NULL) < tolerance);
  redline_network_release(net);
  redline_network_release(NULL);
}

typedef struct {
  redline_image_pipeline* pipeline;
  redline_canceller* canceller;
  redline_code code;
} painter;

static void* paint(void* user_data) {
  static const char* const prompt[] = {"a green star"};
  painter* p = user_data;
  redline_image_request request;
  redline_image_result* result = NULL;
  redline_image_request_init(&request, sizeof request, p->pipeline);
  request.prompts = prompt;
  request.num_prompts = 1;
  request.num_inference_steps = 1000;
  request.canceller = p->canceller;
  p->code = redline_image_generate(p->pipeline, &request, &result, NULL);
  redline_image_result_release(result);
  return NULL;
}

/* One call computes, one waits for its turn: both are cancelled from a third thread. */
static void images_from_threads(void) {
  redline_error* error = NULL;
  redline_canceller* canceller = NULL;
  painter painters[2];
  pthread_t threads[2];
  int i;
  OK(redline_canceller_create(&canceller, &error));
  painters[0].pipeline = painters[1].pipeline = open_shapes();
  for (i = 0; i < 2; ++i) {
    painters[i].canceller = canceller;
    CHECK(pthread_create(&threads[i], NULL, paint, &painters[i]) == 0);
  }
  usleep(50000);
  redline_canceller_cancel(canceller);
  for (i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  CHECK(painters[0].code == REDLINE_CANCELLED && painters[1].code == REDLINE_CANCELLED);
  redline_image_pipeline_release(painters[0].pipeline);
  redline_canceller_release(canceller);
}

/* A child of fork() has no threads that compute: errors and silent releases, no hang; what it opens itself works. */
static void fork_after_open(void) {
  redline_error* error = NULL;
  redline_model* model = open_tales();
  redline_prompt prompt = text_prompt("Once upon a time");
  redline_generate_options options = greedy(model, 4);
  const redline_generate_options* list = &options;
  redline_generation *generation = NULL, *running = NULL;
  redline_sequence* sequence = NULL;
  int status = 0;
  pid_t child;
  OK(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
  OK(redline_submit(model, &prompt, 1, &list, 1, NULL, NULL, &running, &error));
  OK(redline_generation_wait(running, -1, NULL, &error));
  OK(redline_sequence_open(model, NULL, 0, &sequence, &error));
  fflush(stdout);
  child = fork();
  if (child == 0) {
    redline_generation* other = NULL;
    alarm(60);
    failures = 0;
    FAILS(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &other, &error), REDLINE_INVALID_ARGUMENT, "fork()");
    FAILS(redline_sequence_append(sequence, NULL, 0, 0, NULL, 0, &error), REDLINE_INVALID_ARGUMENT, "fork()");
    redline_sequence_release(sequence);
    redline_generation_release(generation);
    redline_generation_release(running);
    redline_model_release(model);
    model = open_tales();
    options = greedy(model, 4);
    OK(redline_generate(model, &prompt, 1, &list, 1, NULL, NULL, &generation, &error));
    redline_generation_release(generation);
    redline_model_release(model);
    fflush(stdout);
    _exit(failures == 0 ? 0 : 1);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
  redline_sequence_release(sequence);
  redline_generation_release(generation);
  redline_generation_release(running);
  redline_model_release(model);
}

static const struct {
  const char* name;
  void (*run)(void);
} cases[] = {
    {"version", version},
    {"devices", devices},
    {"wrong_paths", wrong_paths},
    {"null_arguments", null_arguments},
    {"struct_sizes", struct_sizes},
    {"options", options_are_checked},
    {"tokens_and_chat", tokens_and_chat},
    {"generate", generate},
    {"batch_of_prompts", batch_of_prompts},
    {"cancel", cancel},
    {"callbacks", callbacks},
    {"references", references},
    {"logits", logits},
    {"prompt_spans", prompt_spans},
    {"adapters", adapters},
    {"embeddings", embeddings},
    {"several_threads", several_threads},
    {"shared_runtime", shared_runtime},
    {"image", image},
    {"network", network},
    {"images_from_threads", images_from_threads},
    {"fork", fork_after_open},
};
enum { kCases = sizeof cases / sizeof cases[0] };

int main(int argc, char** argv) {
  int i, k, ran = 0;
  if (argc < 6) {
    fprintf(stderr, "usage: c_api_test TALES SHAPES GOLDEN TOKENIZER TEMPORARY [CASE...]\n");
    return 2;
  }
  tales = argv[1];
  shapes = argv[2];
  golden = argv[3];
  tokenizer = argv[4];
  temporary = argv[5];
  for (k = 0; k < kCases; ++k) {
    int is_wanted = argc == 6, before = failures;
    for (i = 6; i < argc; ++i) is_wanted |= strcmp(argv[i], cases[k].name) == 0;
    if (!is_wanted) continue;
    ++ran;
    cases[k].run();
    printf("%s %s\n", failures == before ? "passed" : "FAILED", cases[k].name);
    fflush(stdout);
  }
  if (ran < (argc == 6 ? (int)kCases : argc - 6)) {
    fprintf(stderr, "c_api_test: a case of this name is not known\n");
    return 2;
  }
  return failures == 0 ? 0 : 1;
}
