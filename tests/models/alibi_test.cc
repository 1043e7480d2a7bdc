// Families with ALiBi: settings that are refused, tensor names of published files, and what the plans of steps know.
// Golden models (falcon_alibi, bloom, mpt) check logits.
#include <gmock/gmock.h>

#include "graph/ops/attention.h"
#include "models/registry.h"
#include "support/golden.h"

namespace redline::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// Builds the graph of a golden model after a change of its checkpoint.
Result<LanguageModel> build_changed(const std::string& name, const std::function<void(Checkpoint&)>& change) {
  REDLINE_ASSIGN(Checkpoint checkpoint, Checkpoint::open(golden_root() + "/" + name));
  change(checkpoint);
  return build_language_model(checkpoint, {});
}
std::string refusal(const std::string& name, const std::function<void(json& config)>& change) {
  return build_changed(name, [&](Checkpoint& checkpoint) { change(checkpoint.config); }).status().message();
}

TEST(Mpt, RefusesSettingsThatItDoesNotImplement) {
  const auto attention = [](const char* key, const json& value) {
    return refusal("mpt", [&](json& config) { config["attn_config"][key] = value; });
  };
  EXPECT_EQ(attention("softmax_scale", nullptr), "");
  EXPECT_THAT(attention("alibi", false), HasSubstr("MPT without alibi"));
  EXPECT_THAT(attention("clip_qkv", 6), HasSubstr("clip_qkv of MPT"));
  EXPECT_THAT(attention("qk_ln", true), HasSubstr("qk_ln of MPT"));
  EXPECT_THAT(attention("prefix_lm", true), HasSubstr("prefix_lm of MPT"));
  EXPECT_THAT(attention("attn_type", "multiquery_attention"), HasSubstr("attn_type \"multiquery_attention\" of MPT"));
  EXPECT_THAT(attention("alibi_bias_max", "eight"), HasSubstr("alibi_bias_max"));
  EXPECT_THAT(refusal("mpt", [](json& config) { config["no_bias"] = false; }), HasSubstr("MPT with biases"));
  EXPECT_THAT(refusal("mpt", [](json& config) { config["logit_scale"] = "inv_sqrt_d_model"; }),
              HasSubstr("logit_scale of MPT"));
  EXPECT_THAT(refusal("mpt", [](json& config) { config["attn_config"] = 3; }),
              HasSubstr("attn_config is not an object"));
}

TEST(Bloom, RefusesResidualsOfNorms) {
  EXPECT_THAT(refusal("bloom", [](json& config) { config["apply_residual_connection_post_layernorm"] = true; }),
              HasSubstr("apply_residual_connection_post_layernorm of BLOOM"));
}

TEST(Bloom, OpensFilesWithTheNamesOfTheInnerModule) {
  const auto model = build_changed("bloom", [](Checkpoint& checkpoint) {
    std::map<std::string, WeightSource> tensors;
    for (auto& [name, source] : checkpoint.tensors) {
      constexpr std::string_view kPrefix = "transformer.";
      tensors[name.substr(name.starts_with(kPrefix) ? kPrefix.size() : 0)] = source;
    }
    checkpoint.tensors = std::move(tensors);
  });
  EXPECT_TRUE(model.ok()) << model.status().to_string();
}

// With two norms, grouped heads are parallel whatever parallel_attn says; with one, transformers cannot run the layer.
TEST(Falcon, RefusesGroupedHeadsWithOneNormWithoutParallelAttention) {
  EXPECT_THAT(refusal("falcon_grouped",
                      [](json& config) {
                        config["parallel_attn"] = false;
                        config["num_ln_in_parallel_attn"] = 1;
                      }),
              HasSubstr("new_decoder_architecture of Falcon without parallel_attn"));
  EXPECT_EQ(refusal("falcon_grouped", [](json& config) { config["parallel_attn"] = false; }), "");
}

// Scores with ALiBi depend on the position of the row, which the kernel does not know for rows of several sequences.
TEST(Alibi, RowsOfSeveralSequencesDoNotShareTheReadingOfPages) {
  for (const char* name : {"falcon_alibi", "bloom", "mpt", "falcon"}) {
    const auto model = build_changed(name, [](Checkpoint&) {});
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    const std::vector<AttentionShape> shapes = attention_shapes(model->graph);
    ASSERT_EQ(shapes.size(), 1u);
    EXPECT_EQ(shapes[0].rows_can_share, std::string(name) == "falcon") << name;
    EXPECT_TRUE(shapes[0].is_causal);
  }
}

}  // namespace
}  // namespace redline::testing
