#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/file_choice.h"
#include "hub/hub_name.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(HubName, PartsOfAName) {
  const auto check = [](const char* text, const char* repository, const char* revision, const char* selection) {
    const Result<HubName> name = parse_hub_name(text);
    ASSERT_TRUE(name.ok()) << text << ": " << name.status().to_string();
    EXPECT_EQ(name->repository, repository) << text;
    EXPECT_EQ(name->revision, revision) << text;
    EXPECT_EQ(name->selection, selection) << text;
  };
  check("hf:owner/name", "owner/name", "main", "");
  check("hf://owner/name", "owner/name", "main", "");
  check("hf:gpt2", "gpt2", "main", "");
  check("hf:owner/name-1.5_b:Q4_K_M", "owner/name-1.5_b", "main", "Q4_K_M");
  check("hf:owner/name:latest", "owner/name", "main", "");
  check("hf:owner/name@v1.0:dir/a file@x:y.gguf", "owner/name", "v1.0", "dir/a file@x:y.gguf");
  check("hf:owner/name@refs/pr/1", "owner/name", "refs/pr/1", "");
  check("hf.co/owner/name:Q8_0", "owner/name", "main", "Q8_0");
  check("https://huggingface.co/owner/name", "owner/name", "main", "");
  check("https://huggingface.co/owner/name/tree/v2", "owner/name", "v2", "");
  check("https://huggingface.co/owner/name/resolve/main/a/b.gguf?download=true", "owner/name", "main", "a/b.gguf");
  EXPECT_EQ((HubName{"o/n", "v1", "Q4_K_M"}).text(), "hf:o/n@v1:Q4_K_M");
  EXPECT_EQ((HubName{"o/n", "main", ""}).text(), "hf:o/n");
}

TEST(HubName, WhatIsNone) {
  for (const char* text : {"hf:",
                           "hf:/",
                           "hf:owner/",
                           "hf:/name",
                           "hf:a/b/c",
                           "hf:../x",
                           "hf:a/..",
                           "hf:-a/b",
                           "hf:a/b-",
                           "hf:a--b/c",
                           "hf:a/b@",
                           "hf:a/b@../c",
                           "hf:a/b:../c",
                           "hf:a/b:/etc/passwd",
                           "hf:a/b:x//y",
                           "hf:a b/c",
                           "hf:a/b\n",
                           "hf:a/b:x\\y",
                           "https://huggingface.co/a",
                           "https://huggingface.co/a/b/tree/v1:x",
                           "a/b",
                           "https://huggingface.co/a/b/raw/main/x",
                           "https://huggingface.co/datasets/a/b"})
    EXPECT_EQ(parse_hub_name(text).status().code(), Code::invalid_argument) << text;
  EXPECT_TRUE(is_hub_name("hf:a/b"));
  EXPECT_TRUE(is_hub_name("https://hf.co/a/b"));
  EXPECT_FALSE(is_hub_name("a/b"));
  EXPECT_FALSE(is_hub_name("./hf:a"));
}

TEST(FileChoice, QuantizationsInNames) {
  EXPECT_EQ(quantization_of("gemma-3-270m-it-Q8_0.gguf"), "Q8_0");
  EXPECT_EQ(quantization_of("gemma-3-270m-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(quantization_of("model_Q4_K_S.gguf"), "Q4_K_S");
  EXPECT_EQ(quantization_of("m.IQ2_XXS.gguf"), "IQ2_XXS");
  EXPECT_EQ(quantization_of("m-UD-Q4_K_XL-00001-of-00003.gguf"), "UD-Q4_K_XL");
  EXPECT_EQ(quantization_of("BF16/m-00001-of-00002.gguf"), "BF16");
  EXPECT_EQ(quantization_of("m-_Q4_0.gguf"), "Q4_0");  // a word that begins with '_' has an end
  EXPECT_EQ(quantization_of("_/m-_KM.gguf"), "");
  EXPECT_EQ(quantization_of("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(quantization_of("m-TQ1_0.gguf"), "TQ1_0");
  EXPECT_EQ(quantization_of("Qwen3-0.6B-f16.gguf"), "F16");
  EXPECT_EQ(quantization_of("model.gguf"), "");
  EXPECT_EQ(quantization_of("Q5.gguf"), "");
}

std::vector<HubFile> files(std::initializer_list<const char*> names) {
  std::vector<HubFile> list;
  for (const char* name : names) list.push_back({name, 1, "ab"});
  return list;
}

std::string chosen(std::initializer_list<const char*> names, const std::string& selection = "") {
  const Result<FileChoice> choice = choose_files(files(names), selection);
  return choice.ok() ? choice->model : choice.status().to_string();
}

TEST(FileChoice, TheUsualQuantization) {
  EXPECT_EQ(chosen({"a-Q2_K.gguf", "a-Q8_0.gguf", "a-Q4_K_M.gguf"}), "a-Q4_K_M.gguf");
  EXPECT_EQ(chosen({"a-Q2_K.gguf", "a-Q8_0.gguf"}), "a-Q8_0.gguf");
  EXPECT_EQ(chosen({"a-BF16.gguf", "a-F32.gguf"}), "a-BF16.gguf");
  EXPECT_EQ(chosen({"a-IQ1_S.gguf", "mmproj-a-F16.gguf", "imatrix.gguf"}), "a-IQ1_S.gguf");
  EXPECT_EQ(chosen({"config.json", "a-Q4_K_M.gguf"}), "a-Q4_K_M.gguf");
  EXPECT_EQ(chosen({"config.json", "model.safetensors", "a-Q4_K_M.gguf"}), "");
  EXPECT_EQ(chosen({"config.json", "model.safetensors", "a-Q4_K_M.gguf"}, "q4_k_m"), "a-Q4_K_M.gguf");
}

TEST(FileChoice, ATagIsAWholeWord) {
  EXPECT_EQ(chosen({"a-BF16.gguf", "a-long-name-F16.gguf"}, "F16"), "a-long-name-F16.gguf");
  EXPECT_EQ(chosen({"a-Q4_K_M.gguf", "a-long-name-Q4_K.gguf"}, "Q4_K"), "a-long-name-Q4_K.gguf");
  EXPECT_EQ(chosen({"a-UD-Q4_K_XL.gguf"}, "Q4_K_XL"), "a-UD-Q4_K_XL.gguf");
  EXPECT_THAT(chosen({"a-Q4_K_M.gguf"}, "K_M"), HasSubstr("not_found"));
}

TEST(FileChoice, Errors) {
  EXPECT_THAT(chosen({}), HasSubstr("not_found: has no files"));
  EXPECT_THAT(chosen({"a.txt"}), HasSubstr("not_found: has no weights"));
  EXPECT_THAT(chosen({"model.pt"}), HasSubstr("unsupported: has only files of PyTorch"));
  EXPECT_THAT(chosen({"config.json", "model-00001-of-00002.safetensors"}), HasSubstr("part 2 of 2 is missing"));
  EXPECT_THAT(chosen({"config.json", "model.safetensors.index.json"}), HasSubstr("the weights that it lists are not"));
  EXPECT_THAT(chosen({"flux1-dev.safetensors"}), HasSubstr("name one of them"));
}

// A list of a Hub may name any number of parts and folders: the work grows with the number of files.
TEST(FileChoice, ManyPartsAndFolders) {
  std::vector<HubFile> all;
  for (int i = 1; i < 100'000; ++i) all.push_back({fmt::format("m-Q8_0-{:05}-of-99999.gguf", i), 1, ""});
  const Result<FileChoice> parts = choose_files(all, "");
  ASSERT_TRUE(parts.ok()) << parts.status().to_string();
  EXPECT_EQ(parts->files.size(), 99'999u);
  all.assign(1, {"model_index.json", 1, ""});
  for (int i = 0; i < 50'000; ++i) all.push_back({fmt::format("f{}/config.json", i), 1, ""});
  EXPECT_EQ(choose_files(all, "").status().message(),
            "has 50000 folders with a configuration of their own; a model has at most 63");
}

TEST(FileChoice, Adapters) {
  EXPECT_EQ(choose_files(files({"adapter_config.json", "adapter_model.bin"}), "").value().kind, HubKind::kAdapter);
  EXPECT_EQ(choose_files(files({"pytorch_lora_weights.safetensors"}), "").value().files.size(), 1u);
}

TEST(FileChoice, QuantizationsAreListedOnce) {
  EXPECT_THAT(quantizations_in(files({"a-Q8_0.gguf", "b-Q8_0.gguf", "a-Q4_0-00001-of-00002.gguf", "mmproj-F16.gguf"})),
              ElementsAre("Q4_0", "Q8_0"));
}

}  // namespace
}  // namespace redline
