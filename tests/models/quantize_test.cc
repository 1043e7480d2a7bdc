// Types by llama.cpp's rules, and files.
#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "formats/gguf.h"
#include "models/files/quantize_file.h"
#include "models/files/random_model.h"
#include "support/golden.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

/// Types of one kind of tensor, layer by layer.
std::string types(const char* mix, const QuantizeFacts& facts, const char* part) {
  QuantizeRules rules(find_quantize_mix(mix).value(), facts);
  std::string text;
  for (int64_t i = 0; i < facts.num_layers; ++i)
    text += fmt::format("{}{}", i > 0 ? " " : "",
                        dtype_info(rules.type_of(fmt::format("blk.{}.{}.weight", i, part), 2)).name);
  return text;
}

// Expects the types that llama-quantize prints for models of these sizes.
TEST(QuantizeRules, MixesGiveMoreBitsWhereLlamaCppDoes) {
  const QuantizeFacts llama = {find_quantize_traits("llama"), 16, 32, 8, 0, 16, true, false};
  EXPECT_EQ(types("Q4_K_M", llama, "attn_v"),
            "q6_k q6_k q4_k q4_k q6_k q4_k q4_k q6_k q4_k q4_k q6_k q4_k q4_k q6_k q6_k q6_k");
  EXPECT_EQ(types("Q5_K_M", llama, "ffn_down"),
            "q6_k q6_k q5_k q5_k q6_k q5_k q5_k q6_k q5_k q5_k q6_k q5_k q5_k q6_k q6_k q6_k");
  EXPECT_EQ(types("Q4_K_S", llama, "attn_v"),
            "q5_k q5_k q5_k q5_k q4_k q4_k q4_k q4_k q4_k q4_k q4_k q4_k q4_k q4_k q4_k q4_k");
  EXPECT_EQ(types("Q4_K_S", llama, "ffn_down").substr(0, 14), "q5_k q5_k q4_k");
  EXPECT_EQ(types("Q3_K_M", llama, "ffn_down").substr(0, 9), "q5_k q4_k");
  EXPECT_EQ(types("Q3_K_L", llama, "attn_output").substr(0, 4), "q5_k");
  EXPECT_EQ(types("Q2_K", llama, "attn_v").substr(0, 4), "q4_k");  // four heads share a value
  EXPECT_EQ(types("Q2_K", llama, "attn_q").substr(0, 4), "q2_k");
  EXPECT_EQ(types("Q4_0", llama, "ffn_down").substr(0, 4), "q4_0");
  QuantizeFacts weighted = llama;
  weighted.has_imatrix = true;
  EXPECT_EQ(types("Q4_0", weighted, "ffn_down").substr(0, 14), "q4_1 q4_1 q4_0");
  QuantizeFacts mixtral = llama;
  mixtral.num_experts = 8;
  EXPECT_EQ(types("Q4_K_M", mixtral, "attn_k").substr(0, 4), "q8_0");
  EXPECT_EQ(types("Q4_K_M", mixtral, "attn_output").substr(0, 4), "q5_k");

  QuantizeFacts large = {find_quantize_traits("qwen2"), 80, 64, 8, 0, 80, true, false};
  EXPECT_EQ(types("Q4_K_S", large, "attn_v").substr(0, 29), "q5_k q5_k q5_k q5_k q5_k q5_k");
  large.traits = find_quantize_traits("phi3");
  EXPECT_EQ(types("Q4_K_S", large, "attn_v").substr(0, 24), "q5_k q5_k q5_k q5_k q4_k");
  QuantizeFacts falcon = {find_quantize_traits("falcon"), 32, 71, 1, 0, 32, true, false};
  EXPECT_EQ(types("Q4_K_M", falcon, "ffn_down").substr(0, 24), "q6_k q6_k q5_k q5_k q4_k");
  EXPECT_EQ(types("Q4_K_M", falcon, "attn_output").substr(0, 4), "q4_k");
  EXPECT_EQ(QuantizeRules(find_quantize_mix("Q4_K").value(), falcon).type_of("output.weight", 2), DType::kQ8_0);

  QuantizeRules rules(find_quantize_mix("q4_k_m").value(), llama);
  EXPECT_EQ(rules.type_of("output.weight", 2), DType::kQ6_K);
  EXPECT_EQ(rules.type_of("token_embd.weight", 2), DType::kQ4_K);
  QuantizeFacts tied = llama;
  tied.has_output = false;
  EXPECT_EQ(QuantizeRules(find_quantize_mix("Q4_K").value(), tied).type_of("token_embd.weight", 2), DType::kQ6_K);
  EXPECT_FALSE(QuantizeRules::quantizes("blk.0.attn_norm.weight", 2));
  EXPECT_FALSE(QuantizeRules::quantizes("blk.0.ffn_gate_inp.weight", 2));
  EXPECT_FALSE(QuantizeRules::quantizes("blk.0.attn_q.bias", 1));
  EXPECT_TRUE(QuantizeRules::quantizes("blk.0.ffn_up_exps.weight", 3));
}

TEST(QuantizeRules, FallbacksFitTheRows) {
  EXPECT_EQ(fallback_type(DType::kQ4_K, 512), DType::kQ4_K);
  EXPECT_EQ(fallback_type(DType::kQ4_K, 96), DType::kQ5_0);
  EXPECT_EQ(fallback_type(DType::kQ6_K, 32), DType::kQ8_0);
  EXPECT_EQ(fallback_type(DType::kQ2_K, 160), DType::kQ4_0);
  EXPECT_EQ(fallback_type(DType::kIQ4_XS, 160), DType::kIQ4_NL);
  EXPECT_EQ(fallback_type(DType::kQ8_0, 40), DType::kF16);
  EXPECT_EQ(fallback_type(DType::kQ4_K, 40), DType::kF16);
}

TEST(QuantizeRules, AnUnknownMixIsNotFound) {
  const auto mix = find_quantize_mix("Q4_K_X");
  EXPECT_EQ(mix.status().code(), Code::not_found);
  EXPECT_THAT(mix.status().message(), HasSubstr("unknown type \"Q4_K_X\""));
  EXPECT_THAT(mix.status().message(), HasSubstr("Q4_K_M"));
}

class QuantizeModel : public ::testing::Test {
 protected:
  std::string out() const { return temporary_.path() + "/out.gguf"; }
  Status quantize(const std::string& in, const QuantizeOptions& options) {
    auto quantizer = ModelQuantizer::open(in, options);
    if (!quantizer.ok()) return std::move(quantizer).status();
    planned_ = quantizer->file_bytes();
    WorkerTeam team(2);
    return quantizer->write(out(), team, [](int64_t) { return true; });
  }
  /// A Llama of one layer: a matrix of rows x columns, a norm.
  std::string write_model(int64_t rows, int64_t columns, float value = 0.5f) {
    values_.assign(static_cast<size_t>(rows * columns), value);
    for (size_t i = 0; i < values_.size(); i += 3) values_[i] = -0.25f;
    GgufWriter writer;
    writer.set("general.architecture", "llama");
    writer.set_u32("llama.block_count", 1);
    writer.add_tensor("blk.0.ffn_up.weight", {DType::kF32, {rows, columns}, values_.data()});
    writer.add_tensor("blk.0.attn_norm.weight", {DType::kF32, {columns}, values_.data()});
    const std::string path = temporary_.path() + "/in.gguf";
    EXPECT_TRUE(writer.write(path).ok());
    return path;
  }
  testing::TemporaryFolder temporary_;
  std::vector<float> values_;
  int64_t planned_ = 0;
};

// The type that llama-quantize --pure gives to every matrix, and its number in general.file_type. The bits of the
// blocks are those of ggml in tests/kernels/quantize_test.cc.
TEST_F(QuantizeModel, PureMixesHaveTheTypesOfLlamaQuantize) {
  constexpr struct {
    const char* mix;
    int64_t file_type;
    DType type;
  } kMixes[] = {{"F16", 1, DType::kF16},        {"BF16", 32, DType::kBF16},     {"Q8_0", 7, DType::kQ8_0},
                {"Q4_0", 2, DType::kQ4_0},      {"Q4_1", 3, DType::kQ4_1},      {"Q5_0", 8, DType::kQ5_0},
                {"Q5_1", 9, DType::kQ5_1},      {"Q2_K", 10, DType::kQ2_K},     {"Q3_K_M", 12, DType::kQ3_K},
                {"Q4_K_M", 15, DType::kQ4_K},   {"Q5_K_M", 17, DType::kQ5_K},   {"Q6_K", 18, DType::kQ6_K},
                {"IQ4_NL", 25, DType::kIQ4_NL}, {"IQ4_XS", 30, DType::kIQ4_XS}, {"IQ3_S", 26, DType::kIQ3_S},
                {"TQ1_0", 36, DType::kTQ1_0},   {"TQ2_0", 37, DType::kTQ2_0}};
  const std::string in = temporary_.path() + "/tiny.gguf";
  ASSERT_TRUE(save_random_model("tiny:f32", in).ok());
  const size_t tensors = GgufFile::open(in)->tensors().size();
  for (const auto& [mix, file_type, type] : kMixes) {
    SCOPED_TRACE(mix);
    QuantizeOptions options;
    options.mix = find_quantize_mix(mix).value();
    options.is_pure = true;
    const Status status = quantize(in, options);
    ASSERT_TRUE(status.ok()) << status.to_string();
    EXPECT_EQ(std::filesystem::file_size(out()), static_cast<uintmax_t>(planned_));
    const auto made = GgufFile::open(out());
    ASSERT_TRUE(made.ok());
    EXPECT_EQ(made->find("general.file_type")->as_int(), file_type);
    EXPECT_EQ(made->tensors().size(), tensors);
    for (const GgufTensor& tensor : made->tensors()) {
      const bool is_norm = tensor.view.shape.size() == 1;
      EXPECT_EQ(dtype_info(tensor.view.dtype).name, dtype_info(is_norm ? DType::kF32 : type).name) << tensor.name;
    }
  }
}

TEST_F(QuantizeModel, FoldersAndFilesGiveTheSameTensors) {
  const std::string folder = testing::golden_root() + "/llama_hd128";
  QuantizeOptions options;
  options.mix = find_quantize_mix("Q8_0").value();
  ASSERT_TRUE(quantize(folder, options).ok());
  const auto first = GgufFile::open(out());
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first->find("general.architecture")->as_string(), "llama");
  EXPECT_EQ(first->tensor("blk.0.attn_norm.weight")->view.dtype, DType::kF32);
  EXPECT_EQ(first->tensor("blk.0.attn_q.weight")->view.dtype, DType::kQ8_0);
  auto engine = TextEngine::open(out());
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
}

TEST_F(QuantizeModel, TypesOfSingleTensors) {
  const std::string in = write_model(8, 512);
  QuantizeOptions options;
  options.mix = find_quantize_mix("Q4_K_S").value();
  options.types.emplace_back(std::regex("ffn_(up|gate)"), DType::kQ8_0);
  ASSERT_TRUE(quantize(in, options).ok());
  EXPECT_EQ(GgufFile::open(out())->tensor("blk.0.ffn_up.weight")->view.dtype, DType::kQ8_0);
  EXPECT_EQ(GgufFile::open(out())->tensor("blk.0.attn_norm.weight")->view.dtype, DType::kF32);
}

TEST_F(QuantizeModel, RowsThatBlocksDoNotDivide) {
  QuantizeOptions options;
  options.mix = find_quantize_mix("Q4_K_S").value();
  const auto quantizer = ModelQuantizer::open(write_model(4, 96), options);
  ASSERT_TRUE(quantizer.ok());
  EXPECT_EQ(quantizer->tensors()[0].to, DType::kQ5_0);
  EXPECT_TRUE(quantizer->tensors()[0].is_fallback);
}

TEST_F(QuantizeModel, WeightsChangeTheBlocksAndMustFit) {
  const std::string in = write_model(8, 256);
  QuantizeOptions options;
  options.mix = find_quantize_mix("Q4_K_S").value();
  ASSERT_TRUE(quantize(in, options).ok());
  const std::string plain = testing::read_text(out());
  ImportanceMatrix imatrix;
  imatrix.entries["blk.0.ffn_up.weight"] = {std::vector<float>(256, 1.0f), {4}};
  imatrix.entries["blk.0.ffn_up.weight"].sums[0] = 1e6f;
  imatrix.datasets = {"text"};
  options.imatrix = &imatrix;
  options.imatrix_file = "x.gguf";
  ASSERT_TRUE(quantize(in, options).ok());
  EXPECT_EQ(GgufFile::open(out())->find("quantize.imatrix.dataset")->as_string(), "text");
  EXPECT_NE(testing::read_text(out()), plain);
  imatrix.entries["blk.0.ffn_up.weight"].sums.resize(128);
  const Status status = quantize(in, options);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("blk.0.ffn_up.weight has 256 columns, the importance matrix 128"));
}

TEST_F(QuantizeModel, WhatCannotBeQuantizedLeavesNoFile) {
  QuantizeOptions options;
  options.mix = find_quantize_mix("Q8_0").value();
  Status status = quantize(write_model(8, 256, std::numeric_limits<float>::quiet_NaN()), options);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("tensor blk.0.ffn_up.weight: an element of rows 0 to 7 is not finite"));
  options.mix = find_quantize_mix("F16").value();
  status = quantize(write_model(8, 256, 1e6f), options);
  EXPECT_THAT(status.message(), HasSubstr("1000000 overflows f16"));
  EXPECT_FALSE(std::filesystem::exists(out()));

  options.mix = find_quantize_mix("Q8_0").value();
  ASSERT_TRUE(quantize(write_model(8, 256), options).ok());
  const std::string once = temporary_.path() + "/once.gguf";
  std::filesystem::rename(out(), once);
  options.mix = find_quantize_mix("Q4_0").value();
  status = quantize(once, options);
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(status.message(), HasSubstr("tensor blk.0.ffn_up.weight is q8_0 already"));
  options.requantizes = true;
  EXPECT_TRUE(quantize(once, options).ok());
  options.mix = find_quantize_mix("Q2_K_S").value();
  EXPECT_THAT(quantize(once, options).message(), HasSubstr("Q2_K_S needs an importance matrix"));
}

TEST_F(QuantizeModel, AnInterruptEndsIt) {
  QuantizeOptions options;
  options.mix = find_quantize_mix("Q8_0").value();
  auto quantizer = ModelQuantizer::open(write_model(8, 256), options);
  ASSERT_TRUE(quantizer.ok());
  WorkerTeam team(1);
  EXPECT_EQ(quantizer->write(out(), team, [](int64_t) { return false; }).code(), Code::cancelled);
  EXPECT_FALSE(std::filesystem::exists(out()));
}

}  // namespace
}  // namespace redline
