// Every golden encoder, from its folder and from its GGUF twin, against PyTorch transformers: texts packed into one
// step, alone, and in any order.
#include <gmock/gmock.h>

#include <numeric>

#include "support/encoder_golden.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

/// The float32 bound of the project, and what bfloat16 or float16 operands cost a network of this width (2^-9 each,
/// a few products in a row).
double bound_of(NetworkMode mode) { return rounds(mode) ? 5e-2 : 2e-5; }

class GoldenEncoder : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    golden_ = load_encoder_golden(GetParam());
    ASSERT_FALSE(golden_.tokens.empty());
    const EncoderFamily* family = find_encoder_family(golden_.checkpoint);
    ASSERT_TRUE(family);
    auto model = family->build(golden_.checkpoint);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    model_ = std::move(model).value();
    EXPECT_EQ(model_.width, golden_.width());
  }

  /// Hidden states of the texts of these numbers, in one step.
  std::vector<float> hidden(Executable& network, const std::vector<size_t>& texts) {
    int32_t row = 0, sequence = 0;
    network.input_i32("offsets")[0] = 0;
    for (const size_t text : texts) {
      const auto first = static_cast<size_t>(golden_.first_row(text));
      for (int32_t i = 0; i < golden_.lengths[text]; ++i, ++row) {
        network.input_i32("tokens")[row] = golden_.tokens[first + static_cast<size_t>(i)];
        network.input_i32("positions")[row] = static_cast<int32_t>(model_.first_position) + i;
        if (network.has_input("token_types"))
          network.input_i32("token_types")[row] = golden_.token_types[first + static_cast<size_t>(i)];
      }
      network.input_i32("offsets")[++sequence] = row;
    }
    SymbolValues sizes;
    sizes[Symbol::kTokens] = row;
    sizes[Symbol::kSequences] = sequence;
    const Status status = network.run(sizes);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const float* out = network.output("hidden");
    return {out, out + row * model_.width};
  }

  Executable make(NetworkMode mode, RuntimeResources& runtime) {
    SymbolValues bounds;
    bounds[Symbol::kTokens] = std::ssize(golden_.tokens) + 7;
    bounds[Symbol::kSequences] = std::ssize(golden_.lengths) + 2;
    ExecutableOptions options = network_options(mode);
    options.bounds = bounds;
    options.batch_invariance = BatchInvariance::kWhereFree;
    auto network = Executable::make(Graph(model_.graph), options, runtime);
    EXPECT_TRUE(network.ok()) << network.status().message();
    return std::move(network).value();
  }

  std::vector<size_t> all_texts() const {
    std::vector<size_t> texts(golden_.lengths.size());
    std::iota(texts.begin(), texts.end(), 0);
    return texts;
  }

  EncoderGolden golden_;
  EncoderModel model_;
};

TEST_P(GoldenEncoder, MatchesTransformers) {
  for (const NetworkMode mode : network_modes()) {
    const auto runtime = make_runtime(2);
    Executable network = make(mode, *runtime);
    const std::vector<float> got = hidden(network, all_texts());
    const Difference d =
        difference(got.data(), golden_.hidden.values.data(), std::ssize(golden_.tokens), golden_.width());
    RecordProperty(std::string("relative_error_") + network_mode_name(mode), fmt::format("{:.2e}", d.all));
    EXPECT_LE(d.all, bound_of(mode)) << network_mode_name(mode);
    if (!model_.head) continue;
    SymbolValues bounds;
    bounds[Symbol::kSequences] = std::ssize(golden_.lengths);
    Executable head = make_network(Graph(*model_.head), bounds, mode, *runtime);
    float* pooled = head.input("pooled");
    for (size_t text = 0; text < golden_.lengths.size(); ++text)
      for (int64_t i = 0; i < golden_.width(); ++i) {
        const float* x = got.data() + golden_.first_row(text) * golden_.width() + i;
        double sum = 0;
        const int64_t rows = model_.head_means ? golden_.lengths[text] : 1;
        for (int64_t r = 0; r < rows; ++r) sum += static_cast<double>(x[r * golden_.width()]);
        *pooled++ = static_cast<float>(sum / static_cast<double>(rows));
      }
    ASSERT_TRUE(head.run(bounds).ok());
    const Difference scores =
        difference(head.output("scores"), golden_.scores.values.data(), std::ssize(golden_.lengths), model_.num_labels);
    EXPECT_LE(scores.all, bound_of(mode)) << network_mode_name(mode) << ", scores";
  }
}

TEST_P(GoldenEncoder, ATextHasTheSameBitsInEveryStep) {
  for (const NetworkMode mode : {NetworkMode::kF32, NetworkMode::kAuto}) {
    if (mode == NetworkMode::kAuto && cpu_kernels().value()->has_tile_unit) continue;  // docs/numerics.md
    const auto one_thread = make_runtime(1), threads = make_runtime(3);
    Executable alone = make(mode, *one_thread), together = make(mode, *threads);
    std::vector<size_t> texts = all_texts();
    std::reverse(texts.begin(), texts.end());
    const std::vector<float> packed = hidden(together, texts);
    size_t at = 0;
    for (const size_t text : texts) {
      const std::vector<float> one = hidden(alone, {text});
      EXPECT_TRUE(std::equal(one.begin(), one.end(), packed.begin() + static_cast<int64_t>(at))) << "text " << text;
      at += one.size();
    }
  }
}

std::string encoders_test_name(const ::testing::TestParamInfo<std::string>& info) {
  const size_t slash = info.param.find('/');
  return slash == std::string::npos ? info.param : info.param.substr(0, slash) + "_gguf";
}
INSTANTIATE_TEST_SUITE_P(All, GoldenEncoder, ::testing::ValuesIn(encoder_models()), encoders_test_name);

TEST(GoldenEncoders, AreAllThere) { EXPECT_GE(encoder_models().size(), 14u); }

TEST(GoldenEncoders, WhatIsNotRunIsNamed) {
  const auto message = [](const char* name, const std::function<void(Checkpoint&)>& change) {
    EncoderGolden golden = load_encoder_golden(name);
    change(golden.checkpoint);
    return find_encoder_family(golden.checkpoint)->build(golden.checkpoint).status().to_string();
  };
  EXPECT_THAT(message("bert", [](Checkpoint& c) { c.config["position_embedding_type"] = "relative_key"; }),
              HasSubstr("relative_key"));
  EXPECT_THAT(message("bert", [](Checkpoint& c) { c.config["num_attention_heads"] = 5; }), HasSubstr("divide"));
  EXPECT_THAT(message("bert", [](Checkpoint& c) { c.tensors.erase("encoder.layer.1.output.dense.weight"); }),
              HasSubstr("encoder.layer.1.output.dense.weight is missing"));
  EXPECT_THAT(message("bert", [](Checkpoint& c) { c.tensors["more.weight"] = {}; }), HasSubstr("more.weight"));
  EXPECT_THAT(message("bert/model.gguf", [](Checkpoint& c) { c.tensors.erase("encoder.layer.1.output.dense.weight"); }),
              HasSubstr("blk.1.ffn_down.weight is missing"));
  EXPECT_THAT(message("modernbert", [](Checkpoint& c) { c.config["layer_types"] = {"full_attention"}; }),
              HasSubstr("layer_types must list 4 layers"));
  EXPECT_THAT(message("modernbert", [](Checkpoint& c) { c.config["classifier_pooling"] = "max"; }), HasSubstr("max"));
  const auto text = TextEngine::open(encoder_root() + "/bert");
  EXPECT_EQ(text.status().code(), Code::unsupported);
  EXPECT_THAT(text.status().message(), HasSubstr("redline embed"));
}

}  // namespace
}  // namespace redline::testing
