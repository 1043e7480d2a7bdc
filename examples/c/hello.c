/* A story and an image from C, with libredline.so:
 *
 *   cc examples/c/hello.c $(pkg-config --cflags --libs redline) -o hello
 *   ./hello assets/redline-tales assets/redline-shapes hello.png
 */
#include <stdio.h>
#include <stdlib.h>

#include <redline/c_api.h>

static int32_t print_piece(const redline_piece* piece, void* user_data) {
  (void)user_data;
  fwrite(piece->text, 1, piece->length, stdout);
  fflush(stdout);
  return 0; /* go on */
}

static int32_t print_step(const redline_image_progress* progress, void* user_data) {
  (void)user_data;
  fprintf(stderr, "\rstep %d of %d", (int)progress->step, (int)progress->steps);
  return 0;
}

/* Ends the program with the library's message. */
static void must(redline_code code, redline_error** error) {
  if (code == REDLINE_OK) return;
  fprintf(stderr, "%s: %s\n", redline_code_name(code), redline_error_message(*error));
  redline_error_free(*error);
  exit(1);
}

static void tell_story(const char* path) {
  redline_error* error = NULL;
  redline_model* model = NULL;
  redline_generation* story = NULL;
  redline_generate_options options;
  const redline_generate_options* list = &options;
  const redline_prompt prompt = {"Once upon a time", REDLINE_STRING_END, NULL, 0};
  redline_completion completion;

  must(redline_model_open(path, NULL, &model, &error), &error);
  redline_generate_options_init(&options, sizeof options, model);
  options.max_tokens = 80;
  options.has_seed = 1;
  options.seed = 1;
  completion.struct_size = sizeof completion;
  printf("%s", prompt.text);
  must(redline_generate(model, &prompt, 1, &list, 1, print_piece, NULL, &story, &error), &error);
  must(redline_generation_completion(story, 0, &completion, &error), &error);
  printf("\n[%d tokens, %s]\n", (int)completion.num_tokens, redline_finish_reason_name(completion.finish_reason));
  redline_generation_release(story);
  redline_model_release(model);
}

static void draw(const char* path, const char* png) {
  static const char* const prompt[] = {"a large red circle on a blue background"};
  redline_error* error = NULL;
  redline_image_pipeline* pipeline = NULL;
  redline_image_request request;
  redline_image_result* result = NULL;
  redline_image image;

  must(redline_image_pipeline_open(path, NULL, &pipeline, &error), &error);
  redline_image_request_init(&request, sizeof request, pipeline);
  request.prompts = prompt;
  request.num_prompts = 1;
  request.num_inference_steps = 8;
  request.has_seed = 1;
  request.seed = 1;
  request.on_step = print_step;
  must(redline_image_generate(pipeline, &request, &result, &error), &error);
  image = redline_image_result_image(result, 0);
  must(redline_save_png(png, &image, &error), &error);
  fprintf(stderr, "\n");
  printf("%s: %d x %d\n", png, (int)image.width, (int)image.height);
  redline_image_result_release(result);
  redline_image_pipeline_release(pipeline);
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: hello TEXT_MODEL IMAGE_MODEL OUT.png\n");
    return 2;
  }
  tell_story(argv[1]);
  draw(argv[2], argv[3]);
  return 0;
}
