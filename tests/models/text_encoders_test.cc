// CLIP and T5 against transformers: tiny random models, and the encoders of the bundled image model.
#include <gmock/gmock.h>

#include <numeric>

#include "models/image/image_models.h"
#include "support/image_builders.h"
#include "support/image_golden.h"

namespace redline {
namespace {

using testing::ImageGolden;
using testing::NetworkMode;
using testing::NpyArray;
using Outputs = std::map<std::string, std::vector<float>>;

Result<TextEncoderModel> build_text_encoders(const Checkpoint& checkpoint) {
  return checkpoint.config["model_type"] == "t5" ? testing::build_t5_encoder(checkpoint)
                                                 : testing::build_clip_text(checkpoint);
}

/// `key_lengths` are those of each item; empty: all of it.
Outputs encode(const Checkpoint& checkpoint, std::vector<int32_t> ids, int64_t batch, std::vector<int64_t> key_lengths,
               NetworkMode mode, int threads) {
  auto built = build_text_encoders(checkpoint);
  EXPECT_TRUE(built.ok()) << built.status().message();
  if (!built.ok()) return {};
  TextEncoderModel model = std::move(built).value();
  const auto rows = static_cast<int64_t>(ids.size()), tokens = rows / batch;
  SymbolValues sizes;
  sizes[Symbol::kBatch] = batch;
  sizes[Symbol::kTextTokens] = tokens;
  SymbolValues bounds = sizes;  // larger than needed, as an engine's are
  bounds[Symbol::kBatch] += 1;
  bounds[Symbol::kTextTokens] += 9;
  const auto runtime = testing::make_runtime(threads);
  const Graph graph = model.graph;
  Executable network = make_network(std::move(model.graph), bounds, mode, *runtime);
  std::copy(ids.begin(), ids.end(), network.input_i32("tokens"));
  for (int64_t i = 0; i < batch; ++i) {
    if (network.has_input("pooled_rows")) {
      for (int64_t t = 0; t < tokens; ++t) network.input_i32("positions")[i * tokens + t] = static_cast<int32_t>(t);
      const int64_t place =
          pooled_place(model.pooled_token, std::span(ids).subspan(static_cast<size_t>(i * tokens), tokens));
      network.input_i32("pooled_rows")[i] = static_cast<int32_t>(i * tokens + place);
    }
    if (network.has_input("key_lengths"))
      network.input_i32("key_lengths")[i] =
          static_cast<int32_t>(key_lengths.empty() ? tokens : key_lengths[static_cast<size_t>(i)]);
  }
  EXPECT_TRUE(network.run(sizes).ok());
  Outputs outputs;
  for (const Executable::Port& port : network.outputs()) {
    const float* data = network.output(port.name);
    outputs[port.name] = {data, data + num_elements(port.shape).eval(sizes)};
  }
  return outputs;
}

template <class T>
std::vector<T> integers(const NpyArray& array) {
  std::vector<T> values;
  for (const double x : array.values) values.push_back(static_cast<T>(x));
  return values;
}

class TextEncoderGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(TextEncoderGolden, EqualsTransformers) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  ASSERT_FALSE(golden.arrays.empty());
  for (const std::string& run : golden.runs())
    for (const NetworkMode mode : testing::network_modes()) {
      const auto ids = integers<int32_t>(*golden.find(run, "tokens"));
      const auto batch = static_cast<int64_t>(golden.find(run, "sizes")->values[0]);
      // `auto` rounds activations and weights to bfloat16 (2^-9 each); some fifteen products in a row, whose errors add
      // up as a random walk in networks of this width, and T5's scores, which nothing scales down, feel them most.
      const double bound = testing::rounds(mode) ? 5e-2 : 1e-4;
      const auto expect_near = [&](const Outputs& got, const char* output, const char* name) {
        if (golden.find(run, name) == nullptr) return;
        EXPECT_LE(testing::relative_error(got.at(output), *golden.find(run, name)), bound)
            << run << " " << name << " " << testing::network_mode_name(mode);
      };
      const bool masks = golden.find(run, "key_lengths") != nullptr;
      const auto lengths = masks ? integers<int64_t>(*golden.find(run, "key_lengths")) : std::vector<int64_t>();
      const Outputs got = encode(golden.checkpoint, ids, batch, lengths, mode, 2);
      for (const char* name : {"hidden", "penultimate", "pooled"}) expect_near(got, name, name);
      if (masks) expect_near(encode(golden.checkpoint, ids, batch, {}, mode, 1), "hidden", "unmasked");
    }
}

TEST_P(TextEncoderGolden, AnyNumberOfThreadsGivesTheSameBits) {
  const ImageGolden golden = testing::load_image_golden(GetParam());
  for (const std::string& run : golden.runs()) {
    const auto ids = integers<int32_t>(*golden.find(run, "tokens"));
    const auto batch = static_cast<int64_t>(golden.find(run, "sizes")->values[0]);
    EXPECT_EQ(encode(golden.checkpoint, ids, batch, {}, NetworkMode::kAuto, 1),
              encode(golden.checkpoint, ids, batch, {}, NetworkMode::kAuto, 5));
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, TextEncoderGolden, ::testing::Values("clip_l", "clip_g", "t5_gated", "t5_relu"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TextEncoders, ThePooledPlaceFollowsTheConfig) {
  for (const char* name : {"clip_l", "clip_g"}) {
    const ImageGolden golden = testing::load_image_golden(name);
    const auto model = testing::build_clip_text(golden.checkpoint);
    ASSERT_TRUE(model.ok());
    for (const std::string& run : golden.runs()) {
      const auto ids = integers<int32_t>(*golden.find(run, "tokens"));
      const auto ends = integers<int64_t>(*golden.find(run, "end"));
      const size_t tokens = ids.size() / ends.size();
      for (size_t i = 0; i < ends.size(); ++i)
        EXPECT_EQ(pooled_place(model->pooled_token, std::span(ids).subspan(i * tokens, tokens)), ends[i])
            << name << " " << run;
    }
    EXPECT_EQ(pooled_place(model->pooled_token, {}), 0);
    EXPECT_EQ(model->pooled_token, std::string(name) == "clip_g" ? -1 : 98);
    EXPECT_EQ(model->pooled_width, std::string(name) == "clip_g" ? 20 : 24);
    EXPECT_TRUE(model->has_position_limit);
  }
}

// Until version 5 transformers wrote CLIP's tensors under text_model., with the positions as a tensor.
TEST(TextEncoders, OldNamesOfClipAreKnown) {
  ImageGolden golden = testing::load_image_golden("clip_g");
  std::map<std::string, WeightSource> renamed;
  for (auto& [name, source] : golden.checkpoint.tensors)
    renamed[name.starts_with("text_model.") || name.starts_with("text_projection") ? name : "text_model." + name] =
        source;
  renamed["text_model.embeddings.position_ids"] = renamed.begin()->second;
  golden.checkpoint.tensors = std::move(renamed);
  const auto model = testing::build_clip_text(golden.checkpoint);
  EXPECT_TRUE(model.ok()) << model.status().message();
}

TEST(TextEncoders, AWholeT5Serves) {
  ImageGolden golden = testing::load_image_golden("t5_relu");
  auto& tensors = golden.checkpoint.tensors;
  tensors["decoder.block.0.layer.0.SelfAttention.q.weight"] = tensors["shared.weight"];
  tensors["lm_head.weight"] = tensors["shared.weight"];
  tensors["encoder.embed_tokens.weight"] = tensors["shared.weight"];
  EXPECT_TRUE(testing::build_t5_encoder(golden.checkpoint).ok());
  tensors.erase("shared.weight");
  EXPECT_TRUE(testing::build_t5_encoder(golden.checkpoint).ok());
  tensors.erase("encoder.embed_tokens.weight");
  EXPECT_THAT(testing::build_t5_encoder(golden.checkpoint).status().message(),
              ::testing::HasSubstr("shared.weight is missing"));
}

TEST(TextEncoders, BadConfigsAreNamed) {
  const auto expect = [&](const char* name, const char* key, nlohmann::json value, const char* message) {
    ImageGolden golden = testing::load_image_golden(name);
    golden.checkpoint.config[key] = std::move(value);
    const auto built = build_text_encoders(golden.checkpoint);
    ASSERT_FALSE(built.ok()) << key;
    EXPECT_THAT(built.status().message(), ::testing::HasSubstr(message));
  };
  expect("clip_l", "num_attention_heads", 5, "hidden_size 24 does not divide among 5 attention heads");
  expect("clip_l", "hidden_act", "mish", "mish");
  expect("clip_l", "num_hidden_layers", 3, "encoder.layers.2.layer_norm1.weight is missing");
  expect("clip_l", "num_hidden_layers", 1, "is not used by this architecture");
  expect("clip_l", "vocab_size", 50, "token_embedding.weight is [99, 24], the config requires [50, 24]");
  expect("clip_l", "eos_token_id", "end", "eos_token_id");
  expect("clip_g", "projection_dim", 21, "text_projection.weight is [20, 24], the config requires [21, 24]");
  expect("t5_gated", "d_kv", 1000, "d_kv");
  expect("t5_gated", "feed_forward_proj", "gated-mish", "mish");
  expect("t5_gated", "feed_forward_proj", "relu", "wi.weight is missing");
  expect("t5_gated", "relative_attention_max_distance", 8, "8");
}

// Expects the states that diffusers computed from the same ids (README of the folder).
TEST(TextEncoders, TheBundledModelEncodesAsItsReferenceDoes) {
  const std::string root = std::string(REDLINE_SOURCE_DIR) + "/assets/redline-shapes";
  const nlohmann::json reference = testing::read_json(root + "/reference/reference.json");
  if (reference.is_null()) GTEST_SKIP() << root << "/reference/reference.json is not here";
  const auto clip = Checkpoint::open(root + "/text_encoder"), t5 = Checkpoint::open(root + "/text_encoder_2");
  ASSERT_TRUE(clip.ok() && t5.ok());
  constexpr int kEncodedCases = 2;  // embeddings are stored for the first ones
  int number = 0;
  for (const auto& c : reference["cases"]) {
    if (number == kEncodedCases) break;
    const std::string at = fmt::format("{}/reference/case{}_", root, number++);
    const auto embeds = testing::read_npy(at + "prompt_embeds.npy"), pooled = testing::read_npy(at + "pooled.npy");
    ASSERT_TRUE(embeds.ok() && pooled.ok()) << at;
    auto t5_ids = testing::read_tokens(c["t5_ids"]), clip_ids = testing::read_tokens(c["clip_ids"]);
    t5_ids.resize(reference["max_sequence_length"], t5->config["pad_token_id"]);
    clip_ids.resize(77, clip->config["pad_token_id"]);
    const Outputs text = encode(*t5, t5_ids, 1, {}, NetworkMode::kF32, 2);
    EXPECT_LE(testing::relative_error(text.at("hidden"), *embeds), 1e-4) << at;
    const Outputs words = encode(*clip, clip_ids, 1, {}, NetworkMode::kF32, 2);
    EXPECT_LE(testing::relative_error(words.at("pooled"), *pooled), 1e-4) << at;
    // Rounded to bfloat16 in between; also as a report of how far that moves a trained model.
    const Outputs fast = encode(*t5, t5_ids, 1, {}, NetworkMode::kAuto, 2);
    const double moved = testing::relative_error(fast.at("hidden"), *embeds);
    EXPECT_LE(moved, 2e-2) << at;
    RecordProperty(fmt::format("auto_error_{}", number), fmt::format("{:.1e}", moved));
  }
  EXPECT_EQ(number, kEncodedCases);
}

}  // namespace
}  // namespace redline
