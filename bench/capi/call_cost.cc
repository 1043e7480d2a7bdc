// Measures what a call through the C interface costs over the same call of the C++ API: call_cost MODEL [ROUNDS]
//
// Both run the same engine code, the C++ one from the static library, the C one from libredline.so, in turn. The model
// should be tiny (build/dev/golden/llama_gqa): its steps take microseconds, so that the difference is seen. Prints
// JSON: medians of the time of a call with one token, and of what each further token adds, and the differences, in
// microseconds.
#include <redline/c_api.h>
#include <redline/text.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int64_t kTokens = 65;
const std::vector<int32_t> kPrompt = {1, 2, 3, 4};

[[noreturn]] void stop(const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(1);
}

class CppModel {
 public:
  explicit CppModel(const char* path) {
    auto engine = redline::TextEngine::open(path, {.threads = 1, .prefix_cache = false});
    if (!engine.ok()) stop(engine.status().to_string());
    engine_ = std::move(engine).value();
  }
  void submit(int64_t tokens) {
    auto generation = engine_->submit(request(tokens), [this](const redline::TextPiece& piece) {
      pieces_ += piece.token >= 0;
      return true;
    });
    if (!generation.ok() || !generation.value()->wait().ok()) stop("the C++ call failed");
  }
  int64_t pieces_ = 0;

 private:
  static redline::GenerateRequest request(int64_t tokens) {
    redline::GenerateRequest r;
    r.prompt = kPrompt;
    r.sampling.temperature = 0;
    r.max_tokens = tokens;
    r.ignore_stop_tokens = true;
    return r;
  }
  std::unique_ptr<redline::TextEngine> engine_;
};

class CModel {
 public:
  explicit CModel(const char* path) {
    redline_model_options options;
    redline_model_options_init(&options, sizeof options);
    options.threads = 1;
    options.prefix_cache = 0;
    if (redline_model_open(path, &options, &model_, nullptr) != REDLINE_OK) stop("the model does not open");
  }
  ~CModel() { redline_model_release(model_); }
  CModel(const CModel&) = delete;
  CModel& operator=(const CModel&) = delete;

  void with_callback(int64_t tokens) {
    redline_generation* generation = nullptr;
    start(tokens, generation, [](const redline_piece* piece, void* user_data) -> int32_t {
      *static_cast<int64_t*>(user_data) += piece->token >= 0;
      return 0;
    });
    finish(generation);
  }
  void with_next(int64_t tokens) {
    redline_generation* generation = nullptr;
    start(tokens, generation, nullptr);
    redline_piece piece;
    piece.struct_size = sizeof piece;
    int32_t what = REDLINE_NEXT_PIECE;
    while (what == REDLINE_NEXT_PIECE) {
      if (redline_generation_next(generation, -1, &what, &piece, nullptr) != REDLINE_OK) stop("next() failed");
      pieces_ += what == REDLINE_NEXT_PIECE && piece.token >= 0;
    }
    finish(generation);
  }
  int64_t pieces_ = 0;

 private:
  void start(int64_t tokens, redline_generation*& generation, redline_on_piece on_piece) {
    redline_generate_options options;
    redline_generate_options_init(&options, sizeof options, model_);
    options.temperature = 0;
    options.max_tokens = tokens;
    options.ignore_eos = 1;
    const redline_generate_options* list = &options;
    const redline_prompt prompt = {nullptr, 0, kPrompt.data(), kPrompt.size()};
    if (redline_submit(model_, &prompt, 1, &list, 1, on_piece, &pieces_, &generation, nullptr) != REDLINE_OK)
      stop("the C call failed");
  }
  static void finish(redline_generation* generation) {
    redline_completion completion;
    completion.struct_size = sizeof completion;
    if (redline_generation_completion(generation, 0, &completion, nullptr) != REDLINE_OK) stop("no completion");
    redline_generation_release(generation);
  }
  redline_model* model_ = nullptr;
};

double time_us(const std::function<void(int64_t)>& call, int64_t tokens) {
  const auto begin = std::chrono::steady_clock::now();
  call(tokens);
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + std::ssize(values) / 2, values.end());
  return values[values.size() / 2];
}

struct Way {
  const char* name;
  std::function<void(int64_t)> call;
  std::vector<double> one = {}, many = {};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) stop("usage: call_cost MODEL [ROUNDS]");
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 300;
  CppModel cpp(argv[1]);
  CModel c(argv[1]);
  Way ways[] = {{"cpp_submit", [&](int64_t n) { cpp.submit(n); }},
                {"c_callback", [&](int64_t n) { c.with_callback(n); }},
                {"c_next", [&](int64_t n) { c.with_next(n); }}};
  for (int round = 0; round < rounds; ++round)
    for (Way& way : ways) {
      way.one.push_back(time_us(way.call, 1));
      way.many.push_back(time_us(way.call, kTokens));
    }
  if (cpp.pieces_ != rounds * (kTokens + 1) || c.pieces_ != 2 * cpp.pieces_) stop("a token is missing");
  std::printf("{");
  double call_cpp = 0, token_cpp = 0;
  for (const Way& way : ways) {
    const double call = median(way.one), token = (median(way.many) - call) / (kTokens - 1);
    if (&way == ways) call_cpp = call, token_cpp = token;
    std::printf("%s\"%s\": {\"call_us\": %.2f, \"token_us\": %.2f, \"call_over_us\": %.2f, \"token_over_us\": %.2f}",
                &way == ways ? "" : ",\n ", way.name, call, token, call - call_cpp, token - token_cpp);
  }
  std::printf("}\n");
}
