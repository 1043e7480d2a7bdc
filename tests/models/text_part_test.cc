// A folder of a model that sees: the golden Gemma 3 with its settings in "text_config", its tensors under a prefix, and
// an image encoder beside it.
#include "models/checkpoint/text_part.h"

#include <functional>

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

/// Writes the golden model `name` with other names of its tensors and another config.
void write_renamed(const std::string& name, const std::string& folder, const nlohmann::json& config,
                   const std::function<std::string(const std::string&)>& renamed) {
  const std::string source = golden_root() + "/" + name;
  SafetensorsFile file = SafetensorsFile::read(source + "/model.safetensors");
  std::vector<std::string> names;
  for (const auto& [tensor, entry] : file.header.items())
    if (tensor != "__metadata__") names.push_back(tensor);
  for (const std::string& tensor : names)
    if (const std::string to = renamed(tensor); to != tensor) file.rename(tensor, to);
  file.write(folder + "/model.safetensors");
  std::ofstream(folder + "/config.json") << config.dump();
}

void expect_golden_logits(const std::string& folder, const std::string& name) {
  const Golden golden = load_golden(golden_root() + "/" + name);
  TextEngineOptions options;
  options.dtype = ComputeType::kF32;
  auto engine = open_engine(folder, options);
  ASSERT_TRUE(engine);
  const std::vector<float> logits = all_logits(*engine, golden.tokens);
  ASSERT_EQ(static_cast<int64_t>(logits.size()), golden.logits.dim(0) * golden.logits.dim(1));
  EXPECT_LE(difference(logits.data(), golden.logits.values.data(), golden.logits.dim(0), golden.logits.dim(1)).all,
            2e-5);
}

// save_pretrained of transformers 5 writes Qwen3_5ForCausalLM under "model.language_model.", SmolVLM has its Llama under
// "model.text_model.", and inner modules are saved without "model.".
TEST(TextPart, AnyPrefixOfTheTensorsOpens) {
  for (const char* prefix :
       {"model.language_model.", "language_model.model.", "model.text_model.", "text_model.", ""}) {
    SCOPED_TRACE(prefix);
    const TemporaryFolder folder;
    write_renamed("smollm2", folder.path(), read_json(golden_root() + "/smollm2/config.json"),
                  [&](const std::string& name) {
                    constexpr std::string_view kModel = "model.";
                    return name.starts_with(kModel) ? prefix + name.substr(kModel.size()) : name;
                  });
    expect_golden_logits(folder.path(), "smollm2");
  }
}

TEST(TextPart, TiedEmbeddingsAreThoseOfTheFile) {
  const TemporaryFolder folder;
  nlohmann::json config = read_json(golden_root() + "/smollm2/config.json");
  config["tie_word_embeddings"] = false;  // the file has no output matrix
  write_renamed("smollm2", folder.path(), config, [](const std::string& name) { return name; });
  expect_golden_logits(folder.path(), "smollm2");

  const TemporaryFolder other;
  config = read_json(golden_root() + "/llama_hd128/config.json");
  config["tie_word_embeddings"] = true;  // the file has an output matrix of its own
  write_renamed("llama_hd128", other.path(), config, [](const std::string& name) { return name; });
  expect_golden_logits(other.path(), "llama_hd128");
}

TEST(TextPart, ArchitecturesDecideWhereTheTypeIsUnknown) {
  const TemporaryFolder folder;
  nlohmann::json config = read_json(golden_root() + "/deepseek_v3/config.json");
  config["model_type"] = "kimi_k2";
  write_renamed("deepseek_v3", folder.path(), config, [](const std::string& name) { return name; });
  expect_golden_logits(folder.path(), "deepseek_v3");
}

TEST(TextPart, MissingTensorsHaveTheNamesOfTheFile) {
  const TemporaryFolder folder;
  write_renamed("smollm2", folder.path(), read_json(golden_root() + "/smollm2/config.json"),
                [&](const std::string& name) {
                  if (name == "model.norm.weight") return std::string("model.language_model.norm.lost");
                  return "model.language_model." + name.substr(std::string("model.").size());
                });
  const auto engine = TextEngine::open(folder.path(), {});
  ASSERT_FALSE(engine.ok());
  EXPECT_NE(engine.status().message().find("model.language_model.norm.weight is missing"), std::string::npos)
      << engine.status().message();
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
