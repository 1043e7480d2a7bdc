// A story and an image from C++, with the static library:
//
//   find_package(redline) and target_link_libraries(hello redline::redline)
//   ./hello assets/redline-tales assets/redline-shapes hello.png
#include <redline/image.h>
#include <redline/text.h>

#include <cstdio>

namespace {

int fail(const redline::Status& status) {
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return 1;
}

int tell_story(const char* path) {
  auto engine = redline::TextEngine::open(path);
  if (!engine.ok()) return fail(engine.status());
  auto prompt = (*engine)->encode("Once upon a time");
  if (!prompt.ok()) return fail(prompt.status());
  redline::GenerateRequest request;
  request.prompt = std::move(prompt).value();
  request.sampling = (*engine)->default_sampling();
  request.sampling.seed = 1;
  request.max_tokens = 80;
  std::printf("Once upon a time");
  const auto story = (*engine)->generate(request, [](const redline::TextPiece& piece) {
    std::fwrite(piece.text.data(), 1, piece.text.size(), stdout);
    std::fflush(stdout);
    return true;  // go on
  });
  if (!story.ok()) return fail(story.status());
  std::printf("\n[%d tokens, %s]\n", static_cast<int>(story.value().tokens.size()),
              redline::finish_reason_name(story.value().reason).data());
  return 0;
}

int draw(const char* path, const char* png) {
  auto engine = redline::ImageEngine::open(path);
  if (!engine.ok()) return fail(engine.status());
  redline::ImageRequest request = (*engine)->defaults();
  request.prompts = {"a large red circle on a blue background"};
  request.num_inference_steps = 8;
  request.seed = 1;
  const auto result = (*engine)->generate(request, [](const redline::ImageProgress& progress) {
    std::fprintf(stderr, "\rstep %d of %d", static_cast<int>(progress.step), static_cast<int>(progress.steps));
    return true;
  });
  if (!result.ok()) return fail(result.status());
  const redline::RgbImage& image = result.value().images[0];
  const redline::Status saved = redline::save_png(png, image);
  if (!saved.ok()) return fail(saved);
  std::fprintf(stderr, "\n");
  std::printf("%s: %d x %d\n", png, static_cast<int>(image.width), static_cast<int>(image.height));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: hello TEXT_MODEL IMAGE_MODEL OUT.png\n");
    return 2;
  }
  const int told = tell_story(argv[1]);
  return told != 0 ? told : draw(argv[2], argv[3]);
}
