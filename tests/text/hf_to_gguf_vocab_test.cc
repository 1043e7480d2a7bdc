// The vocabulary that vocab_from_folder makes, read back as a GGUF tokenizer, encodes like the folder.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/temporary_folder.h"
#include "text/unicode.h"
#include "vocab_files.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

class HfToGgufVocab : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& text) {
    std::ofstream(folder_.path() + "/" + name, std::ios::binary) << text;
  }
  std::string path() const { return folder_.path(); }
  GgufVocab vocab() {
    auto made = vocab_from_folder(path());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return made.ok() ? std::move(made).value() : GgufVocab();
  }
  Status failure() { return vocab_from_folder(path()).status(); }
  static std::string golden(const std::string& name) {
    return must_read(fmt::format("{}/tests/golden/tokenizers/{}.json", REDLINE_SOURCE_DIR, name));
  }

  static std::string made_by(const nlohmann::json& merge) {
    return merge.is_array() ? merge[0].get<std::string>() + merge[1].get<std::string>()
                            : replace_all(merge.get<std::string>(), " ", "");
  }
  /// As a converted SentencePiece model has its merges: of each piece, in the order of the scores, every way to make
  /// it.
  static nlohmann::json sentencepiece_like(const std::string& name) {
    auto json = nlohmann::json::parse(golden(name));
    const nlohmann::json& vocab = json["model"]["vocab"];
    nlohmann::json merges = nlohmann::json::array();
    std::set<std::string> seen;
    for (const auto& merge : json["model"]["merges"]) {
      const std::string piece = made_by(merge);
      if (!seen.insert(piece).second) continue;
      for (size_t at = 1; at < piece.size(); ++at)
        if (vocab.contains(piece.substr(0, at)) && vocab.contains(piece.substr(at)))
          merges.push_back({piece.substr(0, at), piece.substr(at)});
    }
    json["model"]["merges"] = merges;
    // A normalized added token includes the space before it, which GGUF cannot express.
    for (auto& token : json["added_tokens"]) token["normalized"] = false;
    return json;
  }

  testing::TemporaryFolder folder_;
};

// GGUF's tokenizers do not normalize, nor does llama.cpp: of qwen2, texts that NFC changes are left out.
TEST_F(HfToGgufVocab, EncodesLikeTheFolder) {
  const std::pair<const char*, const char*> shapes[] = {
      {"gpt2", "gpt-2"}, {"llama3", "llama-bpe"}, {"qwen2", "qwen2"}, {"gpt4o", "gpt-4o"}, {"llama2", "default"}};
  for (const auto& [name, pre] : shapes) {
    SCOPED_TRACE(name);
    const bool spm = std::string_view(name) == "llama2";
    put("tokenizer.json", spm ? sentencepiece_like(name).dump() : golden(name));
    put("tokenizer_config.json", fmt::format(R"({{"bos_token": "<s>", "eos_token": "{}"}})", spm ? "</s>" : "<|end|>"));
    const GgufVocab made = vocab();
    EXPECT_EQ(made.pre, pre);
    const auto tokenizer = tokenizer_from_gguf(made);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    const auto folder = tokenizer_from_folder(path());
    ASSERT_TRUE(folder.ok());
    EXPECT_EQ((*tokenizer)->bos(), (*folder)->bos());
    EXPECT_EQ((*tokenizer)->stop_tokens(), (*folder)->stop_tokens());
    int compared = 0;
    for (const auto& v : nlohmann::json::parse(golden(std::string(name) + ".vectors"))) {
      const auto text = v["text"].get<std::string>();
      if (std::string_view(name) == "qwen2" && normalize_unicode(text, NormalForm::nfc) != text) continue;
      for (const EncodeOptions options : {EncodeOptions{}, EncodeOptions{.parse_special = true}}) {
        EXPECT_EQ((*tokenizer)->encode(text, options), (*folder)->encode(text, options)) << text;
        ++compared;
      }
    }
    EXPECT_GT(compared, 10);
  }
}

TEST_F(HfToGgufVocab, SentencePieceMergesBecomeScores) {
  const nlohmann::json json = sentencepiece_like("llama2");
  put("tokenizer.json", json.dump());
  const GgufVocab made = vocab();
  EXPECT_EQ(made.model, "llama");
  EXPECT_EQ(made.add_space_prefix, true);
  ASSERT_EQ(made.scores.size(), made.tokens.size());
  // The piece that is made first scores best, the next one less; bytes and the unknown token have their types.
  const nlohmann::json& ids = json["model"]["vocab"];
  const nlohmann::json& merges = json["model"]["merges"];
  EXPECT_EQ(made.scores[ids[made_by(merges.front())].get<size_t>()], 0.0f);
  EXPECT_LT(made.scores[ids[made_by(merges.back())].get<size_t>()], -50.0f);
  EXPECT_EQ(made.token_types[ids["<0x0A>"].get<size_t>()], 6);
  EXPECT_EQ(made.token_types[ids["<unk>"].get<size_t>()], 2);

  // A piece that is made early one way and late another has no one score; nor has one that may not be made at all ways.
  auto other = json;
  other["model"]["merges"].push_back(merges.front());
  put("tokenizer.json", other.dump());
  EXPECT_THAT(failure().message(), HasSubstr("cannot be expressed as scores"));
  put("tokenizer.json", golden("llama2"));
  EXPECT_THAT(failure().message(), HasSubstr("cannot be expressed as scores"));
}

// Ids of the sentencepiece package (make_sentencepiece_vectors.py): from tokenizer.model, and from the GGUF vocabulary.
TEST_F(HfToGgufVocab, SentencePieceModelsEncodeAsTheirPackageDoes) {
  const std::string root = REDLINE_SOURCE_DIR "/tests/golden/tokenizers/sentencepiece";
  put("tokenizer.model", must_read(root + ".model"));
  const GgufVocab made = vocab();
  EXPECT_EQ(made.model, "llama");
  EXPECT_EQ(made.add_space_prefix, true);
  EXPECT_EQ(made.add_bos, true);
  EXPECT_EQ(made.remove_extra_whitespaces, false);
  EXPECT_EQ(made.eos, 2);
  EXPECT_EQ(made.unk, 0);
  const auto gguf = tokenizer_from_gguf(made), model = tokenizer_from_folder(path());
  ASSERT_TRUE(gguf.ok() && model.ok());
  int compared = 0;
  for (const auto& v : nlohmann::json::parse(must_read(root + ".vectors.json"))) {
    const auto text = v["text"].get<std::string>();
    const auto ids = v["ids"].get<std::vector<TokenId>>();
    EXPECT_EQ((*model)->encode(text), ids) << text;
    ++compared;
    // Behind a user-defined token llama.cpp, and so a GGUF tokenizer, puts a space as at the start of a text.
    if (text.find("<|user|>") == std::string::npos) {
      EXPECT_EQ((*gguf)->encode(text), ids) << text;
    }
  }
  EXPECT_GT(compared, 30);
}

TEST_F(HfToGgufVocab, SpecialTokensTemplatesAndHoles) {
  put("tokenizer.json", R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<e>": 3, "<t>": 4, "<m>": 7},
      "merges": ["a b"]}, "decoder": {"type": "ByteLevel"}, "normalizer": null,
      "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<e>"}},
      {"Sequence": {"id": "A"}}],
        "special_tokens": {"<e>": {"id": "<e>", "ids": [3], "tokens": ["<e>"]}}},
      "added_tokens": [{"id": 3, "content": "<e>", "special": true}, {"id": 4, "content": "<t>", "special": true},
        {"id": 7, "content": "<m>", "special": false}]})");
  put("tokenizer_config.json", R"({"bos_token": "<e>", "eos_token": {"content": "<e>"}, "pad_token": "<m>",
      "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  put("generation_config.json", R"({"eos_token_id": [3, 4]})");
  const GgufVocab made = vocab();
  EXPECT_EQ(made.tokens, (std::vector<std::string>{"a", "b", "ab", "<e>", "<t>", "[PAD5]", "[PAD6]", "<m>"}));
  EXPECT_EQ(made.token_types, (std::vector<int32_t>{1, 1, 1, 3, 3, 5, 5, 4}));
  EXPECT_EQ(made.merges, (std::vector<std::string>{"a b"}));
  EXPECT_EQ(made.pre, "gpt-2");
  EXPECT_EQ(made.bos, 3);
  EXPECT_EQ(made.eos, 3);
  EXPECT_EQ(made.eot, 4);
  EXPECT_EQ(made.eom, -1);
  EXPECT_EQ(made.pad, 7);
  EXPECT_EQ(made.add_bos, true);
  EXPECT_EQ(made.add_eos, false);
  using Templates = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(made.chat_templates, (Templates{{"", "D"}, {"tool_use", "T"}}));
  put("chat_template.jinja", "J");
  EXPECT_EQ(vocab().chat_templates, (Templates{{"tool_use", "T"}, {"", "J"}}));

  put("generation_config.json", R"({"eos_token_id": [0, 1, 3, 4]})");
  EXPECT_THAT(failure().message(), HasSubstr("more than three end tokens"));
}

TEST_F(HfToGgufVocab, WhatGgufCannotSayIsRefused) {
  EXPECT_EQ(failure().code(), Code::not_found);
  const std::pair<const char*, const char*> shapes[] = {
      {"possessive", "GGUF has no name for this pre-tokenizer"}, {"prefix_space", "ByteLevel with add_prefix_space"},
      {"behaviours", "GGUF has no name for this pre-tokenizer"}, {"classes", "GGUF has no name for this pre-tokenizer"},
      {"falcon", "pre_tokenizer of type \"Punctuation\""},       {"words", "a tokenizer of kind \"bpe\""}};
  for (const auto& [name, message] : shapes) {
    put("tokenizer.json", golden(name));
    EXPECT_EQ(failure().code(), Code::unsupported) << name;
    EXPECT_THAT(failure().message(), HasSubstr(message)) << name;
  }
}

}  // namespace
}  // namespace redline
