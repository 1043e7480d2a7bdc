// Reading config.json: every kind of wrong value, and what families mean by keys that are left out.
#include "models/checkpoint/config_reader.h"

#include <gmock/gmock.h>

#include "models/blocks/decoder.h"

namespace redline {
namespace {

using nlohmann::json;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ConfigReader, NumbersOutOfRangeAndOfTheWrongKind) {
  const json config = json::parse(R"({"unsigned": 18446744073709551615, "huge": 1e300, "half": 0.5, "negative": -1,
                                      "text": "7", "whole": 8.0, "null": null})");
  for (const char* key : {"unsigned", "huge", "half", "negative", "text"}) {
    ConfigReader r(config);
    EXPECT_EQ(r.integer(key, 1, 100), 1);
    EXPECT_THAT(r.status().message(), HasSubstr(key));
  }
  ConfigReader r(config);
  EXPECT_EQ(r.integer("whole", 1, 100), 8);
  EXPECT_EQ(r.integer("null", 1, 100, 5), 5);
  EXPECT_EQ(r.number("null", 0, 1, 0.25), 0.25);
  EXPECT_TRUE(r.status().ok());
  r.integer("null", 1, 100);
  EXPECT_THAT(r.status().message(), HasSubstr("null is missing"));
}

TEST(ConfigReader, ADeeplyNestedValueIsNamedByItsKind) {
  constexpr int kDepth = 1000000;  // spelt out it would take as many stack frames
  const json config =
      json::parse("{\"hidden_size\":" + std::string(kDepth, '[') + std::string(kDepth, ']') + "}", nullptr, false);
  ASSERT_TRUE(config.is_object());
  ConfigReader r(config);
  r.integer("hidden_size", 1, 100);
  EXPECT_THAT(r.status().message(), HasSubstr("hidden_size is an array"));
}

json small() {
  return json::parse(R"({"num_hidden_layers": 30, "hidden_size": 256, "intermediate_size": 8, "vocab_size": 10,
                         "num_attention_heads": 16})");
}

TEST(DecoderConfig, KeysLeftOut) {
  const auto plain = read_decoder_config(small());
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->head_dim, 16);
  EXPECT_EQ(plain->num_kv_heads, 16);
  EXPECT_EQ(plain->max_positions, 2048);
  EXPECT_FLOAT_EQ(plain->rms_norm_eps, 1e-6f);
  EXPECT_FALSE(plain->tie_word_embeddings);

  const auto other = read_decoder_config(small(), {.head_dim = 128, .num_kv_heads = 8, .max_positions = 100});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->head_dim, 128);
  EXPECT_EQ(other->num_kv_heads, 8);
  EXPECT_EQ(other->max_positions, 100);
  json null = small();
  null["num_key_value_heads"] = nullptr;
  EXPECT_EQ(read_decoder_config(null, {.num_kv_heads = 8})->num_kv_heads, 16);
}

TEST(DecoderConfig, RefusesContradictions) {
  const std::pair<const char*, json> cases[] = {
      {"num_hidden_layers", 1000000}, {"num_hidden_layers", 0}, {"hidden_size", -8},
      {"hidden_size", 250},           {"head_dim", 1},          {"head_dim", 4096},
      {"num_key_value_heads", 5},     {"vocab_size", 1e300},    {"hidden_act", "gelu"},
      {"rms_norm_eps", "tiny"}};
  for (const auto& [key, value] : cases) {
    json config = small();
    config[key] = value;
    const auto c = read_decoder_config(config);
    ASSERT_FALSE(c.ok()) << key;
    EXPECT_THAT(c.status().message(), HasSubstr(key));
  }
}

TEST(LayerWindows, AsTransformersReadsThem) {
  auto windows = [](const char* config, int64_t layers) {
    auto result = read_layer_windows(json::parse(config), layers);
    EXPECT_TRUE(result.ok()) << result.status().message();
    return result.ok() ? std::move(result).value() : std::vector<int64_t>();
  };
  EXPECT_THAT(windows(R"({"sliding_window": 4})", 3), Each(0));
  EXPECT_THAT(windows(R"({"use_sliding_window": true, "sliding_window": null, "max_window_layers": 0})", 3), Each(0));
  EXPECT_THAT(windows(R"({"use_sliding_window": true, "sliding_window": 4, "max_window_layers": 2})", 3),
              ElementsAre(0, 0, 4));
  const std::vector<int64_t> defaults = windows(R"({"use_sliding_window": true})", 30);
  EXPECT_EQ(defaults[27], 0);
  EXPECT_EQ(defaults[28], 4096);
  EXPECT_THAT(windows(R"({"use_sliding_window": true, "sliding_window": 4,
                          "layer_types": ["sliding_attention", "full_attention"]})",
                      2),
              ElementsAre(4, 0));
  const auto unknown = read_layer_windows(
      json::parse(R"({"use_sliding_window": true, "layer_types": [["chunked"], "full_attention"]})"), 2);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.status().message(), HasSubstr("layer_types[0] is array"));
}

}  // namespace
}  // namespace redline
