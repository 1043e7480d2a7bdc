// Hugging Face folders as GGUF: the same logits to the last bit, and the keys and tensors of llama.cpp's converter.
#include "models/files/checkpoint_to_gguf.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>

#include "formats/gguf.h"
#include "support/golden.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

/// Golden models with a setting that GGUF cannot express, and the message.
struct Refusal {
  const char *model, *message;
};
constexpr Refusal kRefusals[] = {{"qwen2_layer_types", "sliding windows of qwen2"},
                                 {"qwen2_tied_window", "sliding windows of qwen2"},
                                 {"qwen3_bias_window", "sliding windows of qwen3"},
                                 {"rope_dynamic", "rope type \"dynamic\""},
                                 {"rope_dynamic_short", "rope type \"dynamic\""},
                                 {"rope_dynamic_v5", "rope type \"dynamic\""},
                                 {"gemma3_scaled", "sliding windows of gemma3_text"},
                                 {"gemma2_listed", "sliding windows of gemma2"},
                                 {"smollm3_listed", "layers without rope of smollm3"},
                                 {"olmo3_yarn", "sliding windows of olmo3"},
                                 {"starcoder2_window", "sliding windows of starcoder2"},
                                 {"rope_yarn_untruncated", "yarn with \"truncate\": false"},
                                 {"qwen2_moe_sparse", "norm_topk_prob of qwen2_moe"},
                                 {"qwen3_moe_dense_layer", "norm_topk_prob of qwen3_moe"},
                                 {"gpt_oss_clamped", "swiglu_limit of gpt_oss"},
                                 {"gpt_oss_hd20", "yarn with \"truncate\": true"},
                                 {"mamba2_groups", "time_step_limit of Mamba-2"},
                                 {"deepseek_v2_groups", "an mscale that is not mscale_all_dim"},
                                 {"falcon_alibi", "Falcon with alibi"},
                                 {"falcon_alibi_six_heads", "Falcon with alibi"},
                                 {"mpt_six_heads", "the attention scale of mpt"},
                                 {"qwen3_next_listed", "one layer of attention in every 4"},
                                 {"qwen3_5_moe_bias", "one layer of attention in every 4"},
                                 {"dots1_window", "sliding windows of dots1"},
                                 {"ministral_listed", "sliding windows of ministral"},
                                 {"cohere2_listed", "sliding windows of cohere2"},
                                 {"smollm3_window", "sliding windows of smollm3"},
                                 {"starcoder2_gelu", "activation of starcoder2"},
                                 {"phi_gelu", "activation of phi"},
                                 {"falcon_sequential", "Falcon without parallel_attn"},
                                 {"gpt_bigcode_heads", "attention scale of gpt_bigcode"},
                                 {"granite_swa", "no architecture for granite_swa"},
                                 {"granite_swa_listed", "no architecture for granite_swa"},
                                 {"lfm2_bias", "biases of LFM2"},
                                 {"lfm2_moe_scaled", "routing of lfm2_moe"},
                                 {"falcon_h1_scaled", "attention scale of falcon_h1"},
                                 {"gemma3_cap", "sliding windows of gemma3_text"},
                                 {"phi_norms", "qk_layernorm of phi"},
                                 {"stablelm_norms", "qk_layernorm of stablelm"},
                                 {"youtu", "no architecture for youtu"},
                                 {"solar_open", "no architecture for solar_open"},
                                 {"helium", "no architecture for helium"},
                                 {"cwm", "no architecture for cwm"},
                                 {"flex_olmo", "no architecture for flex_olmo"},
                                 {"gptj", "no architecture for gptj"},
                                 {"gptj_inner", "no architecture for gptj"},
                                 {"gpt_neo", "no architecture for gpt_neo"},
                                 {"gpt_neo_inner", "no architecture for gpt_neo"},
                                 {"opt", "no architecture for opt"},
                                 {"opt_gelu", "no architecture for opt"},
                                 {"vaultgemma", "no architecture for vaultgemma"}};

Status convert(const std::string& folder, const GgufExport& options, const std::string& out) {
  REDLINE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder));
  GgufWriter writer;
  REDLINE_TRY(checkpoint_to_gguf(checkpoint, options, writer));
  return writer.write(out);
}

std::vector<std::string> golden_folders(bool with_twin) {
  std::vector<std::string> folders = golden_models();
  std::erase_if(folders, [&](const std::string& name) {
    return name.find('/') != std::string::npos ||
           (with_twin && (!std::filesystem::exists(golden_root() + "/" + name + "/model.gguf") ||
                          std::any_of(std::begin(kRefusals), std::end(kRefusals),
                                      [&](const Refusal& refusal) { return name == refusal.model; })));
  });
  return folders;
}

TextEngineOptions checkpoint_to_gguf_float32(size_t tokens) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = ComputeType::kF32;
  options.context = static_cast<int64_t>(tokens) + 8;
  return options;
}

class ConvertedGolden : public ::testing::TestWithParam<std::string> {
 protected:
  TemporaryFolder temporary_;
  std::string folder_ = golden_root() + "/" + GetParam(), out_ = temporary_.path() + "/model.gguf";
};

TEST_P(ConvertedGolden, HasTheLogitsOfTheFolder) {
  const Status status = convert(folder_, {.has_tokenizer = false}, out_);
  for (const Refusal& refusal : kRefusals) {
    if (GetParam() != refusal.model) continue;
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_THAT(status.message(), HasSubstr(refusal.message));
    EXPECT_FALSE(std::filesystem::exists(out_));
    return;
  }
  ASSERT_TRUE(status.ok()) << status.to_string();
  const std::vector<int32_t> tokens = load_golden(folder_).tokens;
  auto from_folder = open_engine(folder_, checkpoint_to_gguf_float32(tokens.size())),
       from_file = open_engine(out_, checkpoint_to_gguf_float32(tokens.size()));
  ASSERT_TRUE(from_folder && from_file);
  const std::vector<float> want = all_logits(*from_folder, tokens), got = all_logits(*from_file, tokens);
  ASSERT_EQ(got.size(), want.size());
  ASSERT_FALSE(want.empty());
  const double largest = difference(got.data(), want.data(), 1, static_cast<int64_t>(want.size())).all;
  // Files of Qwen3.5 have value heads in another order, in which out_proj adds them up.
  if (GetParam() == "qwen3_5" || GetParam() == "qwen3_5_moe") EXPECT_LE(largest, 2e-6);
  else EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof(float)), 0) << largest;
}

/// Golden models with a model.gguf, which make_golden.py writes with llama.cpp's gguf package.
class ConvertedTwin : public ConvertedGolden {};

TEST_P(ConvertedTwin, HasTheSameKeysAndTensors) {
  const Status status = convert(folder_, {.has_tokenizer = false}, out_);
  ASSERT_TRUE(status.ok()) << status.to_string();
  auto twin = GgufFile::open(folder_ + "/model.gguf"), made = GgufFile::open(out_);
  ASSERT_TRUE(twin.ok() && made.ok());
  for (const auto& [key, value] : twin->metadata()) {
    const GgufValue* mine = made->find(key);
    ASSERT_TRUE(mine) << key;
    EXPECT_EQ(mine->type, value.type) << key;
    EXPECT_EQ(mine->payload, value.payload) << key << ": " << mine->to_string() << " and " << value.to_string();
  }
  EXPECT_EQ(made->tensors().size(), twin->tensors().size());
  for (const GgufTensor& tensor : twin->tensors()) {
    const GgufTensor* mine = made->tensor(tensor.name);
    ASSERT_TRUE(mine) << tensor.name;
    EXPECT_EQ(mine->view.dtype, tensor.view.dtype) << tensor.name;
    ASSERT_EQ(mine->view.shape, tensor.view.shape) << tensor.name;
    EXPECT_EQ(std::memcmp(mine->view.data, tensor.view.data, static_cast<size_t>(tensor.bytes)), 0) << tensor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ConvertedGolden, ::testing::ValuesIn(golden_folders(false)),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(All, ConvertedTwin, ::testing::ValuesIn(golden_folders(true)),
                         [](const auto& info) { return info.param; });

/// The bundled model: what its GGUF file has held since the model was made.
TEST(ConvertedTales, HasVocabularyAndModelCard) {
  const TemporaryFolder temporary;
  const std::string out = temporary.path() + "/tales.gguf";
  const Status status = convert(REDLINE_SOURCE_DIR "/assets/redline-tales", {}, out);
  ASSERT_TRUE(status.ok()) << status.to_string();
  auto file = GgufFile::open(out);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  const auto text = [&](const char* key) { return std::string(file->find(key)->as_string().value_or("?")); };
  EXPECT_EQ(text("general.architecture"), "llama");
  EXPECT_EQ(text("general.name"), "Redline Tales");
  EXPECT_EQ(text("general.license"), "apache-2.0");
  EXPECT_EQ(text("general.size_label"), "7M");
  EXPECT_EQ(text("general.description"), "Tells short stories in simple English; trained on TinyStories text");
  EXPECT_EQ(text("tokenizer.ggml.model"), "gpt2");
  EXPECT_EQ(text("tokenizer.ggml.pre"), "gpt-2");
  EXPECT_THAT(text("tokenizer.chat_template"), HasSubstr("add_generation_prompt"));
  const std::pair<const char*, int64_t> numbers[] = {{"general.file_type", 32},
                                                     {"general.quantization_version", 2},
                                                     {"llama.vocab_size", 4096},
                                                     {"llama.context_length", 1024},
                                                     {"llama.embedding_length", 256},
                                                     {"llama.block_count", 8},
                                                     {"llama.feed_forward_length", 768},
                                                     {"llama.attention.head_count", 4},
                                                     {"llama.attention.head_count_kv", 2},
                                                     {"llama.attention.key_length", 64},
                                                     {"llama.attention.value_length", 64},
                                                     {"llama.rope.dimension_count", 64},
                                                     {"tokenizer.ggml.bos_token_id", 0},
                                                     {"tokenizer.ggml.eos_token_id", 0},
                                                     {"tokenizer.ggml.eot_token_id", 2},
                                                     {"tokenizer.ggml.padding_token_id", 0}};
  for (const auto& [key, number] : numbers) {
    ASSERT_TRUE(file->find(key)) << key;
    EXPECT_EQ(file->find(key)->as_int(), number) << key;
  }
  EXPECT_EQ(file->find("tokenizer.ggml.add_bos_token")->as_bool(), true);
  EXPECT_EQ(file->find("tokenizer.ggml.tokens")->count, 4096u);
  EXPECT_EQ(file->find("tokenizer.ggml.merges")->count, 3837u);
  EXPECT_EQ(file->find("tokenizer.ggml.token_type")->int_at(2), 3);
  EXPECT_EQ(file->find("tokenizer.ggml.token_type")->int_at(3), 1);
  EXPECT_NEAR(file->find("general.sampling.temp")->as_double().value(), 0.6, 1e-7);
  EXPECT_EQ(file->tensor("blk.0.attn_q.weight")->view.dtype, DType::kBF16);
  EXPECT_EQ(file->tensor("blk.0.attn_norm.weight")->view.dtype, DType::kF32);
  EXPECT_FALSE(file->tensor("output.weight"));  // tied
}

/// A copy of a golden folder whose files may be changed.
class ConvertFolder : public ::testing::Test {
 protected:
  void copy(const std::string& name) {
    std::filesystem::copy(golden_root() + "/" + name, folder(), std::filesystem::copy_options::recursive);
  }
  std::string folder() const { return temporary_.path() + "/model"; }
  std::string out() const { return temporary_.path() + "/out.gguf"; }
  void put(const std::string& name, const std::string& text) { std::ofstream(folder() + "/" + name) << text; }
  void change_config(const char* key, const nlohmann::json& value) {
    nlohmann::json config = read_json(folder() + "/config.json");
    config[key] = value;
    put("config.json", config.dump());
  }
  TemporaryFolder temporary_;
};

TEST_F(ConvertFolder, MatricesBecomeTheTypeThatIsAskedFor) {
  copy("llama_gqa");  // checkpoint_to_gguf_float32
  for (const auto& [type, number] : {std::pair{DType::kF32, 0}, {DType::kF16, 1}, {DType::kBF16, 32}}) {
    const Status status = convert(folder(), {.type = type, .has_tokenizer = false}, out());
    ASSERT_TRUE(status.ok()) << status.to_string();
    auto file = GgufFile::open(out());
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->find("general.file_type")->as_int(), number);
    auto source = Checkpoint::open(folder());
    ASSERT_TRUE(source.ok());
    const auto* want = static_cast<const float*>(source->tensors.at("model.embed_tokens.weight").view.data);
    const TensorView& made = file->tensor("token_embd.weight")->view;
    ASSERT_EQ(made.dtype, type);
    std::vector<float> got(static_cast<size_t>(made.num_elements()));
    unpack_row(type, made.data, got.data(), made.num_elements());
    for (size_t i = 0; i < got.size(); ++i) {
      const float rounded = type == DType::kF32   ? want[i]
                            : type == DType::kF16 ? f16_to_f32(f32_to_f16(want[i]))
                                                  : bf16_to_f32(f32_to_bf16(want[i]));
      ASSERT_EQ(got[i], rounded) << i;
    }
  }
}

TEST_F(ConvertFolder, WhatCannotBeConvertedLeavesNoFile) {
  copy("qwen3");
  const auto fails = [&](Code code, const char* message) {
    const Status status = convert(folder(), {}, out());
    EXPECT_EQ(status.code(), code) << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temporary_.path()), {}), 1) << "a file is left";
  };
  fails(Code::not_found, "no tokenizer.json");
  put("tokenizer.json", read_text(golden_root() + "/tokenizers/qwen2.json"));
  fails(Code::invalid_argument, "the tokenizer has 362 tokens, the model 64");
  change_config("model_type", "gpt3");
  change_config("architectures", {"GPT3LMHeadModel"});
  fails(Code::unsupported, "model_type \"gpt3\" (the nearest is gpt2); Redline runs llama, mistral, qwen2, qwen3");
}

TEST_F(ConvertFolder, ValuesBeyondFloat16AreRefused) {
  copy("llama_one_kv_head");  // bfloat16
  const std::string path = folder() + "/model.safetensors";
  std::string bytes = read_text(path);
  auto checkpoint = Checkpoint::open(folder());
  ASSERT_TRUE(checkpoint.ok());
  const WeightSource& source = checkpoint->tensors.at("lm_head.weight");
  const auto at = static_cast<size_t>(static_cast<const uint8_t*>(source.view.data) - source.file->data());
  ASSERT_LT(at, bytes.size());
  const uint16_t big = f32_to_bf16(70000.0f);
  std::memcpy(bytes.data() + at, &big, 2);
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
  const Status status = convert(folder(), {.type = DType::kF16, .has_tokenizer = false}, out());
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("tensor output.weight: 70144 overflows f16; use --type bf16 or f32"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(temporary_.path()), {}), 1) << "a file is left";
  EXPECT_TRUE(convert(folder(), {.has_tokenizer = false}, out()).ok());
}

}  // namespace
}  // namespace redline::testing
