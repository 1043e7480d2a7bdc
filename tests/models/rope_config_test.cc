// Rope frequencies against transformers 5.23 (ROPE_INIT_FUNCTIONS on a LlamaConfig with heads of 16), and settings that
// must be refused.
#include "models/blocks/rope_config.h"

#include <gmock/gmock.h>

namespace redline {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

constexpr int64_t kHeadDim = 16;

RopeTableAttrs read(const char* config, int64_t max_positions) {
  auto rope = read_rope_config(json::parse(config), kHeadDim, max_positions);
  EXPECT_TRUE(rope.ok()) << rope.status().message();
  return rope.ok() ? std::move(rope).value() : RopeTableAttrs();
}

void expect_frequencies(const RopeTableAttrs& rope, const std::vector<float>& expected) {
  ASSERT_EQ(rope.inverse_frequencies.size(), expected.size());
  // Both sides round a power, a quotient and a blend to float32.
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(rope.inverse_frequencies[i], expected[i], expected[i] * 5e-7f) << i;
}

TEST(RopeConfig, Linear) {
  expect_frequencies(read(R"({"rope_theta": 500000, "rope_scaling": {"type": "linear", "factor": 4}})", 2048),
                     {0.25f, 0.0484806895f, 0.00940150768f, 0.00182316627f, 0.000353553361f, 6.85620471e-05f,
                      1.32957393e-05f, 2.57834631e-06f});
}

TEST(RopeConfig, Llama3WithAndWithoutOriginalPositions) {
  const std::vector<float> expected = {1.0f,           0.244384587f,    0.0130422562f,   0.00395284733f,
                                       0.00124999997f, 0.000395284733f, 0.000125000006f, 3.95284733e-05f};
  expect_frequencies(read(R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                             "high_freq_factor": 4, "original_max_position_embeddings": 64}})",
                          512),
                     expected);
  expect_frequencies(read(R"({"rope_parameters": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
                             "high_freq_factor": 4, "rope_theta": 10000}})",
                          64),
                     expected);
}

TEST(RopeConfig, Yarn) {
  const RopeTableAttrs plain =
      read(R"({"rope_scaling": {"rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 256}})", 1024);
  expect_frequencies(plain, {1.0f, 0.25693506f, 0.0625f, 0.0138349654f, 0.00249999994f, 0.000790569466f,
                             0.000250000012f, 7.90569466e-05f});
  EXPECT_FLOAT_EQ(plain.attention_factor, 1.13862944f);

  const RopeTableAttrs mscale = read(R"({"rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 0, "mscale": 0.7,
                                        "mscale_all_dim": 1.4, "truncate": false}})",
                                     256);
  expect_frequencies(mscale, {1.0f, 0.253972292f, 0.0553986356f, 0.00963994302f, 0.00249999994f, 0.000790569466f,
                              0.000250000012f, 7.90569466e-05f});
  EXPECT_FLOAT_EQ(mscale.attention_factor, 0.918731989f);
}

TEST(RopeConfig, OriginalPositionsBesideTheScalingWin) {
  expect_frequencies(
      read(R"({"original_max_position_embeddings": 128, "rope_scaling": {"rope_type": "yarn", "factor": 4,
                             "original_max_position_embeddings": 999}})",
           1024),
      {1.0f, 0.237170815f, 0.049999997f, 0.00790569466f, 0.00249999994f, 0.000790569466f, 0.000250000012f,
       7.90569466e-05f});
}

TEST(RopeConfig, ScalingWinsOverParametersUnlessEmpty) {
  const char* both = R"({"rope_scaling": {"type": "linear", "factor": 4},
                         "rope_parameters": {"rope_type": "linear", "factor": 2}})";
  EXPECT_FLOAT_EQ(read(both, 2048).inverse_frequencies[0], 0.25f);
  const char* empty = R"({"rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2}})";
  EXPECT_FLOAT_EQ(read(empty, 2048).inverse_frequencies[0], 0.5f);
}

TEST(RopeConfig, DivisorsComeOnTopOfScaling) {
  const RopeTableAttrs rope = read(R"({"rope_freq_factors": [1, 1, 1, 1, 2, 2, 4, 4],
                                      "rope_scaling": {"type": "linear", "factor": 4}})",
                                   2048);
  const RopeTableAttrs plain = read(R"({})", 2048);
  EXPECT_FLOAT_EQ(rope.inverse_frequencies[0], plain.inverse_frequencies[0] / 4);
  EXPECT_FLOAT_EQ(rope.inverse_frequencies[7], plain.inverse_frequencies[7] / 16);
}

TEST(RopeConfig, RefusesWhatCannotBe) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"rope_scaling": 3})", "rope_scaling"},
      {R"({"rope_scaling": {"rope_type": "longrope", "factor": 2}})", "short_factor must list 8 factors"},
      {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [1]}})",
       "long_factor must list 8 factors"},
      {R"({"rope_scaling": {"rope_type": "longrope", "short_factor": [1, 1, 1, 1, 1, 1, 1, null],
                            "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]}})",
       "not finite"},
      {R"({"rope_scaling": {"rope_type": "factors"}})", "factors"},
      {R"({"rope_scaling": {"rope_type": "linear"}})", "factor is missing"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 1e300}})", "factor"},
      {R"({"rope_scaling": {"rope_type": "linear", "factor": 0}})", "factor"},
      {R"({"rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 2, "high_freq_factor": 2}})",
       "both 2"},
      {R"({"rope_theta": -1})", "rope_theta"},
      {R"({"rope_theta": 0.5, "rope_scaling": {"rope_type": "yarn", "factor": 2}})", "rope_theta above 1"},
      {R"({"partial_rotary_factor": 0.3125})", "rotary size 5"},
      {R"({"rope_freq_factors": [1, 2]})", "expected 8"},
      {R"({"rope_freq_factors": 1})", "expected 8"},
      {R"({"rope_freq_factors": [0, 1, 1, 1, 1, 1, 1, 1]})", "not finite"},
      {R"({"rope_freq_factors": ["a", 1, 1, 1, 1, 1, 1, 1]})", "not finite"},
      {R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})", "by layer type"},
  };
  for (auto [config, what] : cases) {
    auto rope = read_rope_config(json::parse(config), kHeadDim, 2048);
    ASSERT_FALSE(rope.ok()) << config;
    EXPECT_THAT(rope.status().message(), HasSubstr(what)) << config;
  }
}

TEST(RopeConfig, ContextGrowsWithDynamicScalingOnly) {
  EXPECT_EQ(rope_context(json::parse(R"({"rope_scaling": {"type": "dynamic", "factor": 2.5}})"), 1000), 2500);
  EXPECT_EQ(rope_context(json::parse(R"({"rope_scaling": {"type": "linear", "factor": 2.5}})"), 1000), 1000);
  EXPECT_EQ(rope_context(json::parse(R"({"rope_scaling": null})"), 1000), 1000);
}

// Sections as Qwen2-VL states them, and in turn, as Qwen3-VL does (transformers' apply_interleaved_mrope).
TEST(RopeConfig, SectionsGiveEachFrequencyItsAxis) {
  const RopeTableAttrs in_order = read(R"({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}})", 2048);
  EXPECT_THAT(in_order.axes, ::testing::ElementsAre(0, 0, 1, 1, 1, 2, 2, 2));
  EXPECT_EQ(in_order.inverse_frequencies, read("{}", 2048).inverse_frequencies);
  const RopeTableAttrs in_turn = read(
      R"({"rope_parameters": {"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": true}})", 2048);
  EXPECT_THAT(in_turn.axes, ::testing::ElementsAre(0, 1, 2, 0, 1, 2, 0, 0));
  EXPECT_TRUE(read("{}", 2048).axes.empty());
  const auto message = [](const char* config) {
    return read_rope_config(json::parse(config), kHeadDim, 2048).status().message();
  };
  EXPECT_THAT(message(R"({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 4]}})"),
              HasSubstr("have 9 frequencies, rope has 8"));
  EXPECT_THAT(message(R"({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3]}})"),
              HasSubstr("a list of 3 numbers"));
  EXPECT_THAT(message(R"({"rope_scaling": {"type": "mrope", "mrope_section": [2, 3, -3]}})"), HasSubstr("a list of 3"));
}

}  // namespace
}  // namespace redline
