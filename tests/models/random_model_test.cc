#include "models/files/random_model.h"

#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "formats/gguf.h"
#include "redline/text.h"
#include "support/temporary_folder.h"
#include "tensor/blocks/all.h"

namespace redline {
namespace {

std::vector<DType> weight_types() {
  std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16};
#define REDLINE_ADD(F) types.push_back(DType::k##F);
  REDLINE_BLOCK_FORMATS(REDLINE_ADD)
#undef REDLINE_ADD
  return types;
}

class RandomModel : public ::testing::TestWithParam<DType> {};

// Products keep the variance of their input when weights have a deviation of 1 / sqrt(K).
TEST_P(RandomModel, ValuesAreFiniteCentredAndOfTheRightSize) {
  const auto name = fmt::format("tiny:{}", dtype_info(GetParam()).name);
  const auto image = make_random_model(name);
  ASSERT_TRUE(image.ok()) << image.status().to_string();
  const auto file = GgufFile::from_parts({*image});
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE(file->require_readable().ok());
  for (const GgufTensor& tensor : file->tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.view.num_elements()));
    unpack_row(tensor.view.dtype, tensor.view.data, values.data(), tensor.view.num_elements());
    double sum = 0, squares = 0;
    for (const float v : values) {
      ASSERT_TRUE(std::isfinite(v)) << tensor.name;
      sum += double{v};
      squares += double{v} * double{v};
    }
    if (tensor.view.shape.size() != 2) continue;
    EXPECT_EQ(tensor.view.dtype, GetParam()) << tensor.name;
    const double n = static_cast<double>(values.size());
    const double deviation = std::sqrt(squares / n) * std::sqrt(static_cast<double>(tensor.view.shape[1]));
    // An exponent is a power of two, so up to 2^0.5 off; scales of 256 sampled blocks are 3 % off at most.
    const bool is_power = GetParam() == DType::kMXFP4;
    EXPECT_GT(deviation, is_power ? 0.68 : 0.9) << tensor.name;
    EXPECT_LT(deviation, is_power ? 1.45 : 1.1) << tensor.name;
    // The mean of codes without an offset (-8 to 7, -1 to 2) stays below half of the deviation.
    EXPECT_LT(std::abs(sum / n) * std::sqrt(static_cast<double>(tensor.view.shape[1])), 0.5) << tensor.name;
  }
}

TEST_P(RandomModel, RunsAndGivesFiniteLogitsThatDependOnTheInput) {
  const auto path = fmt::format("random:tiny:{}", dtype_info(GetParam()).name);
  TextEngineOptions options;
  options.threads = 2;
  const auto engine = TextEngine::open(path, options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EXPECT_EQ((*engine)->info().num_layers, 2);
  EXPECT_EQ((*engine)->info().vocab_size, 512);
  EXPECT_TRUE((*engine)->info().has_tokenizer);
  std::vector<float> first;
  for (const std::vector<int32_t>& tokens : {std::vector<int32_t>{1, 400, 77}, std::vector<int32_t>{1, 400, 78}}) {
    const auto sequence = (*engine)->new_sequence();
    ASSERT_TRUE(sequence.ok());
    const auto logits = (*sequence)->forward(tokens);
    ASSERT_TRUE(logits.ok()) << logits.status().to_string();
    double squares = 0;
    for (const float v : *logits) squares += double{v} * double{v};
    EXPECT_GT(squares / 512, 0.05);
    EXPECT_LT(squares / 512, 50);
    if (first.empty()) first.assign(logits->begin(), logits->end());
    else EXPECT_NE(std::memcmp(first.data(), logits->data(), 512 * sizeof(float)), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(, RandomModel, ::testing::ValuesIn(weight_types()),
                         [](const auto& info) { return std::string(dtype_info(info.param).name); });

// No GGUF file holds w8a8: a model is rounded to it when it is opened.
TEST(RandomModelFile, W8A8IsRoundedWhenOpened) {
  EXPECT_EQ(make_random_model("tiny:w8a8").status().code(), Code::unsupported);
  const auto checkpoint = Checkpoint::open("random:tiny:w8a8");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  for (const auto& [name, source] : checkpoint->tensors)
    EXPECT_EQ(source.view.dtype, source.view.shape.size() == 2 ? DType::kW8A8 : DType::kF32) << name;
  const auto weight = make_random_weight("w", {48, 96}, DType::kW8A8);
  ASSERT_TRUE(weight.ok());
  std::vector<float> row(96);
  double squares = 0;
  for (int64_t r = 0; r < 48; ++r) {
    unpack_row(DType::kW8A8, static_cast<const uint8_t*>(weight->view.data) + r * row_bytes(DType::kW8A8, 96),
               row.data(), 96);
    for (const float v : row) squares += double{v} * double{v} / (48 * 96);
  }
  // The estimate is of 4608 uniform values: three of its deviations are 6 %.
  EXPECT_NEAR(std::sqrt(squares * 96), 1.0, 0.06);
}

/// A vocabulary of 512.
void expect_logits_of_usual_size(TextEngine& engine, const char* name) {
  const auto sequence = engine.new_sequence();
  ASSERT_TRUE(sequence.ok());
  const auto logits = (*sequence)->forward(std::vector<int32_t>{1, 400, 77, 12, 9});
  ASSERT_TRUE(logits.ok()) << logits.status().to_string();
  double squares = 0;
  for (const float v : *logits) squares += double{v} * double{v};
  EXPECT_GT(squares / 512, 0.05) << name;
  EXPECT_LT(squares / 512, 50) << name;
}

TEST(RandomModelFile, AMixtureOfExpertsRuns) {
  for (const char* name : {"random:tiny-moe:q4_k", "random:tiny-moe:bf16"}) {
    const auto engine = TextEngine::open(name);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    // Embedding, output, attention of two layers, routers, six experts.
    const int64_t attention = 2 * (2 * 256 * 256 + 2 * 128 * 256), norms = 2 * (2 * 256 + 2 * 64) + 256;
    EXPECT_EQ((*engine)->info().parameters,
              2 * 512 * 256 + attention + norms + 2 * 6 * 256 + 2 * 6 * 3 * int64_t{256} * 256);
    expect_logits_of_usual_size(**engine, name);
  }
}

TEST(RandomModelFile, OtherArchitecturesRun) {
  for (const char* name : {"random:tiny-oss:mxfp4", "random:tiny-mamba:q4_0", "random:tiny-mamba:bf16"}) {
    const auto engine = TextEngine::open(name);
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    expect_logits_of_usual_size(**engine, name);
  }
}

TEST(RandomModelFile, IsTheSameEveryTimeAndOnDisk) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/tiny.gguf";
  const auto a = make_random_model("random:tiny:q4_0"), b = make_random_model("tiny:q4_0");
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ((*a)->text(), (*b)->text());
  EXPECT_EQ((*a)->path(), "random:tiny:q4_0");
  ASSERT_TRUE(save_random_model("tiny:q4_0", path).ok());
  const auto saved = MappedFile::open(path);
  ASSERT_TRUE(saved.ok());
  EXPECT_EQ((*saved)->text(), (*a)->text());
  const auto other = make_random_model("tiny:q4_1");
  ASSERT_TRUE(other.ok());
  EXPECT_NE((*other)->text(), (*a)->text());
}

TEST(RandomModelFile, EncodesAnyTextAndGivesItBack) {
  const auto engine = TextEngine::open("random:tiny:q8_0");
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const std::string text = "caf\u00e9 w300 \u2713";
  const auto ids = (*engine)->encode(text);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->front(), 1);
  const auto back = (*engine)->decode(*ids);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, text);
}

TEST(RandomModelFile, EveryShapeIsKnownAndItsTypeFits) {
  for (const RandomShape& shape : random_shapes()) {
    const auto spec = parse_random_model(fmt::format("random:{}:q8_0", shape.name));
    ASSERT_TRUE(spec.ok()) << spec.status().to_string();
    EXPECT_EQ(spec->shape, &shape);
    EXPECT_EQ(spec->dtype, DType::kQ8_0);
    EXPECT_EQ(shape.num_heads % shape.num_kv_heads, 0);
  }
}

TEST(RandomModelFile, BadNamesAreExplained) {
  const auto message = [](std::string_view name) { return std::string(parse_random_model(name).status().message()); };
  EXPECT_EQ(
      message("lama-1b:q4_0"),
      "random model \"lama-1b:q4_0\": no shape \"lama-1b\"; did you mean \"llama-1b\"?; shapes: tiny, smollm-135m, "
      "llama-1b, llama-3b, llama-8b, mistral-7b, qwen-0.5b, qwen-1.5b, qwen-3b, qwen-7b, qwen3-0.6b, tiny-moe, "
      "qwen3-moe-5b, qwen3-30b-a3b, tiny-oss, gpt-oss-4b, gpt-oss-20b, tiny-mamba, mamba2-130m, mamba2-1.3b");
  EXPECT_EQ(message("random:llama-1b"),
            "random model \"llama-1b\": the type of its weights is missing, as in llama-1b:q4_0");
  EXPECT_THAT(message("llama-1b:q4"), ::testing::HasSubstr("unknown type \"q4\""));
  EXPECT_EQ(message("llama-1b:i32"),
            "random model \"llama-1b:i32\": i32 is not a type for weights; use f32, f16, bf16, q8_0, q4_0, ...");
  EXPECT_EQ(
      message("qwen-0.5b:q4_k"),
      "random model \"qwen-0.5b:q4_k\": its rows of 896 elements do not fill q4_k's blocks of 256; use q4_0, q8_0 or "
      "another type with blocks of 32");
  EXPECT_EQ(parse_random_model("").status().code(), Code::invalid_argument);
  EXPECT_EQ(TextEngine::open("random:").status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace redline
