// A folder of a model that sees: the golden Gemma 3 with its settings in "text_config", its tensors under a prefix, and
// an image encoder beside it.
#include "models/text_part.h"

#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

TEST(TextPart, AFolderWithAnImageEncoderRunsItsTextPart) {
  const std::string source = golden_root() + "/gemma3";
  const Golden golden = load_golden(source);
  nlohmann::json config = read_json(source + "/config.json");
  config.erase("vocab_size");  // some leave it out
  config.erase("eos_token_id");
  const nlohmann::json whole = {{"model_type", "gemma3"},
                                {"architectures", {"Gemma3ForConditionalGeneration"}},
                                {"eos_token_id", {1, 2}},
                                {"vision_config", {{"model_type", "siglip_vision_model"}}},
                                {"text_config", config}};
  for (const auto& [prefix, other] : {std::pair{"language_model.model.", "vision_tower."},
                                      std::pair{"model.language_model.", "model.vision_tower."}}) {
    const TemporaryFolder folder;
    SafetensorsFile file = SafetensorsFile::read(source + "/model.safetensors");
    std::vector<std::string> names;
    for (const auto& [name, tensor] : file.header.items())
      if (name.starts_with("model.")) names.push_back(name);
    ASSERT_FALSE(names.empty());
    for (const std::string& name : names) file.rename(name, prefix + name.substr(std::string("model.").size()));
    const int64_t position = 0;
    file.add(std::string(other) + "embeddings.position_ids.value", "I64", {1}, &position, sizeof(position));
    const float weight = 1;
    file.add(std::string(other) + "head.weight", "F32", {1}, &weight, sizeof(weight));
    file.write(folder.path() + "/model.safetensors");
    std::ofstream(folder.path() + "/config.json") << whole.dump();
    TextEngineOptions options;
    options.dtype = ComputeType::kF32;
    auto engine = open_engine(folder.path(), options);
    ASSERT_TRUE(engine);
    EXPECT_EQ((*engine).info().left_out, "2 tensors of " + std::string(other).substr(0, std::string(other).size() - 1));
    EXPECT_EQ((*engine).info().stop_tokens, (std::vector<int32_t>{1, 2}));
    const std::vector<float> logits = all_logits(*engine, golden.tokens);
    ASSERT_EQ(static_cast<int64_t>(logits.size()), golden.logits.dim(0) * golden.logits.dim(1));
    EXPECT_LE(difference(logits.data(), golden.logits.values.data(), golden.logits.dim(0), golden.logits.dim(1)).all,
              2e-5);
  }
}

TEST(TextPart, AModelWithoutPartsIsAsItIs) {
  nlohmann::json config = {{"model_type", "llama"}, {"hidden_size", 8}};
  const nlohmann::json before = config;
  TextPart part = TextPart::take(config);
  EXPECT_EQ(config, before);
  EXPECT_EQ(part.name_of("vision_tower.x.weight"), "vision_tower.x.weight");
  EXPECT_EQ(part.left_out(), "");
}

TEST(TextPart, AFamilyThatIsNotKnownIsNamed) {
  const TemporaryFolder folder;
  SafetensorsFile file;
  const float weight = 1;
  file.add("model.language_model.norm.weight", "F32", {1}, &weight, sizeof(weight));
  file.write(folder.path() + "/model.safetensors");
  std::ofstream(folder.path() + "/config.json")
      << R"({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}})";
  const auto engine = TextEngine::open(folder.path(), {});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), Code::unsupported);
  EXPECT_NE(engine.status().message().find("\"gemma3n_text\" (the nearest is gemma3_text)"), std::string::npos)
      << engine.status().message();
}

}  // namespace
}  // namespace redline::testing
