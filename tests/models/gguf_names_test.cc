// Tests of the configs that the keys of a GGUF file become, read as llama.cpp reads them.
#include <gmock/gmock.h>

#include "formats/format_test_files.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "models/checkpoint/checkpoint.h"

namespace redline {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class GgufNamesTest : public ::testing::Test {
 protected:
  void start(const std::string& name) {
    arch = name;
    writer.set("general.architecture", arch);
    writer.set_u32(arch + ".attention.head_count", 2);
    writer.set_u32(arch + ".embedding_length", 32);
    writer.set_u32(arch + ".feed_forward_length", 48);
    writer.set_u32(arch + ".block_count", 1);
  }
  Status read() {
    auto bytes = writer.to_bytes();
    EXPECT_TRUE(bytes.ok());
    REDLINE_ASSIGN(const GgufFile file, GgufFile::from_parts({memory_file(*bytes)}));
    return checkpoint_from_gguf(file, checkpoint);
  }
  json config() {
    const Status status = read();
    EXPECT_TRUE(status.ok()) << status.message();
    return checkpoint.config;
  }
  std::string arch;
  GgufWriter writer;
  Checkpoint checkpoint;
};

// Files of GLM-4.5 count the layers that predict further tokens.
TEST_F(GgufNamesTest, PredictionLayersAreNotLayersOfTheModel) {
  start("glm4moe");
  writer.set_u32("glm4moe.expert_count", 4);
  writer.set_u32("glm4moe.nextn_predict_layers", 1);
  EXPECT_THAT(read().message(), HasSubstr("glm4moe.nextn_predict_layers is 1 of 1 layers"));
}

// A key is read by the rows of the families that have it.
TEST_F(GgufNamesTest, KeysOfOtherFamiliesAreNotRead) {
  start("qwen3");
  writer.set_f32("qwen3.final_logit_softcapping", 30.0f);
  EXPECT_FALSE(config().contains("final_logit_softcapping"));
}

TEST_F(GgufNamesTest, DefaultsAreSpeltOut) {
  start("qwen3");
  const json c = config();
  EXPECT_EQ(c["num_key_value_heads"], 2);
  EXPECT_EQ(c["head_dim"], 16);
  EXPECT_FALSE(c.contains("rope_scaling"));
}

TEST_F(GgufNamesTest, UnknownTensorsAreListed) {
  start("llama");
  const float zeros[4] = {};
  TensorView view;
  view.data = zeros;
  view.dtype = DType::kF32;
  view.shape = {4};
  for (const char* name : {"output_norm.weight", "blk.0.adapter.weight", "other.weight"}) writer.add_tensor(name, view);
  const Status status = read();
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_THAT(
      status.message(),
      HasSubstr("tensor blk.0.adapter.weight (and 1 more: other.weight) is not part of a supported llama model"));
}

TEST_F(GgufNamesTest, AFactorWithoutATypeIsLinear) {
  start("llama");
  writer.set_f32("llama.rope.scaling.factor", 4);
  EXPECT_EQ(config()["rope_scaling"]["rope_type"], "linear");
  EXPECT_EQ(checkpoint.config["rope_scaling"]["factor"], 4.0);
}

TEST_F(GgufNamesTest, TheOldSpellingOfAFactor) {
  start("llama");
  writer.set_f32("llama.rope.scale_linear", 2);
  EXPECT_EQ(config()["rope_scaling"]["factor"], 2.0);
}

TEST_F(GgufNamesTest, NoScaling) {
  start("llama");
  writer.set("llama.rope.scaling.type", "none");
  writer.set_f32("llama.rope.scaling.factor", 4);
  EXPECT_FALSE(config().contains("rope_scaling"));
}

TEST_F(GgufNamesTest, YarnKeepsItsOwnKeys) {
  start("llama");
  writer.set("llama.rope.scaling.type", "yarn");
  writer.set_f32("llama.rope.scaling.factor", 4);
  writer.set_u32("llama.rope.scaling.original_context_length", 128);
  writer.set_f32("llama.rope.scaling.attn_factor", 0.5f);
  const json scaling = config()["rope_scaling"];
  EXPECT_EQ(scaling["rope_type"], "yarn");
  EXPECT_EQ(scaling["original_max_position_embeddings"], 128);
  EXPECT_EQ(scaling["attention_multiplier"], 0.5);
}

TEST_F(GgufNamesTest, RowsOfQueriesComeBackInHalves) {
  start("llama");
  const std::vector<float> data(32 * 32);
  writer.add_tensor("blk.0.attn_q.weight", TensorView{DType::kF32, {32, 32}, data.data()});
  writer.set_u32("llama.rope.dimension_count", 8);  // of 16: the rest of a head does not turn
  config();
  const auto& row = checkpoint.tensors.at("model.layers.0.self_attn.q_proj.weight").source_row;
  ASSERT_TRUE(row);
  const std::vector<int64_t> expected = {0, 2, 4, 6, 1, 3, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(row(i), expected[static_cast<size_t>(i)]);
    EXPECT_EQ(row(16 + i), 16 + expected[static_cast<size_t>(i)]);
  }
}

TEST_F(GgufNamesTest, ARotarySizeBeyondTheHeadIsRefused) {
  start("llama");
  writer.set_u32("llama.rope.dimension_count", 64);
  const Status status = read();
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("rope.dimension_count is 64"));
}

TEST_F(GgufNamesTest, SlidingWindows) {
  start("llama");
  writer.set_u32("llama.attention.sliding_window", 0);
  EXPECT_TRUE(config()["sliding_window"].is_null());
  EXPECT_FALSE(checkpoint.sliding_window.has_value());
}

}  // namespace
}  // namespace redline
