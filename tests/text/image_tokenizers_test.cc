// CLIP's and T5's tokenizers: the ids of transformers and sentencepiece (make_image_tokenizer_vectors.py), from each
// of the files that a folder may have.
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "text/hf_config.h"
#include "text/unicode.h"
#include "vocab_files.h"

namespace redline {
namespace {

using nlohmann::json;

const std::string kAssets = std::string(REDLINE_SOURCE_DIR) + "/assets/redline-shapes";
const std::string kShared = std::string(REDLINE_SHARED_DIR) + "/models";
constexpr const char* kClipConfig = R"({"tokenizer_class": "CLIPTokenizer", "pad_token": "<|endoftext|>",
    "model_max_length": 77})";

/// A folder with some of another's files, as checkpoints come.
class PartOfFolder {
 public:
  PartOfFolder(const std::string& from, const std::vector<std::string>& files, const std::string& config = "")
      : path_(std::filesystem::temp_directory_path() / fmt::format("redline_tokenizer_{}", getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    for (const std::string& name : files) std::filesystem::copy_file(from + "/" + name, path_ / name);
    if (!config.empty()) std::ofstream(path_ / "tokenizer_config.json") << config;
  }
  ~PartOfFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::unique_ptr<Tokenizer> open(const std::string& folder) {
  auto tokenizer = tokenizer_from_folder(folder);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

void expect_ids(const Tokenizer& tokenizer, const std::string& name) {
  const auto rows = json::parse(must_read(std::string(REDLINE_SOURCE_DIR) + "/tests/golden/image_tokenizers.json"));
  int compared = 0;
  for (const json& row : rows) {
    if (!row.contains(name)) continue;
    const auto text = row["text"].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text, {.parse_special = true}), row[name].get<std::vector<TokenId>>())
        << name << ": " << row["text"].dump();
    ++compared;
  }
  EXPECT_GE(compared, 120);
}

TEST(ImageTokenizers, TheBundledOnesGiveTransformersIds) {
  const auto clip = open(kAssets + "/tokenizer"), t5 = open(kAssets + "/tokenizer_2");
  ASSERT_TRUE(clip && t5);
  expect_ids(*clip, "shapes_clip");
  expect_ids(*t5, "shapes_t5");
  EXPECT_EQ(clip->kind(), "bpe");
  EXPECT_EQ(t5->kind(), "unigram");
  EXPECT_EQ(clip->max_tokens(), 77);
  EXPECT_EQ(t5->max_tokens(), 64);
  EXPECT_EQ(clip->pad(), 998);
  EXPECT_EQ(t5->pad(), 0);
  EXPECT_EQ(clip->prefix(), (std::vector<TokenId>{997}));
  EXPECT_EQ(clip->suffix(), (std::vector<TokenId>{998}));
  EXPECT_TRUE(t5->prefix().empty());
  EXPECT_EQ(t5->suffix(), (std::vector<TokenId>{1}));
}

TEST(ImageTokenizers, TheirOtherFilesGiveTheSame) {
  {
    const PartOfFolder folder(kAssets + "/tokenizer", {"vocab.json", "merges.txt", "tokenizer_config.json"});
    const auto clip = open(folder.path());
    ASSERT_TRUE(clip);
    expect_ids(*clip, "shapes_clip");
    EXPECT_EQ(clip->pad(), 998);
  }
  const PartOfFolder folder(kAssets + "/tokenizer_2", {"spiece.model", "tokenizer_config.json"});
  const auto t5 = open(folder.path());
  ASSERT_TRUE(t5);
  expect_ids(*t5, "shapes_t5_spiece");
  EXPECT_EQ(t5->pad(), 0);
  EXPECT_EQ(t5->suffix(), (std::vector<TokenId>{1}));
}

TEST(ImageTokenizers, ThePublishedOnesGiveTransformersIds) {
  if (!std::filesystem::exists(kShared + "/tokenizer-clip")) GTEST_SKIP() << kShared << "/tokenizer-clip is not here";
  const std::string clip_folder = kShared + "/tokenizer-clip", t5_folder = kShared + "/tokenizer-t5";
  const auto clip = open(clip_folder), t5 = open(t5_folder);
  ASSERT_TRUE(clip && t5);
  expect_ids(*clip, "clip");
  expect_ids(*t5, "t5");
  {
    const PartOfFolder folder(clip_folder, {"vocab.json", "merges.txt"}, kClipConfig);
    const auto from_parts = open(folder.path());
    ASSERT_TRUE(from_parts);
    expect_ids(*from_parts, "clip");
  }
  {
    // Stable Diffusion 2 pads with "!", which makes it a special token in the text as well.
    const PartOfFolder folder(clip_folder, {"vocab.json", "merges.txt"},
                              R"({"tokenizer_class": "CLIPTokenizer", "pad_token": "!"})");
    const auto exclamation = open(folder.path());
    ASSERT_TRUE(exclamation);
    expect_ids(*exclamation, "clip_exclamation");
    EXPECT_EQ(exclamation->pad(), 0);
  }
  const PartOfFolder folder(t5_folder, {"spiece.model", "tokenizer_config.json"});
  const auto from_spiece = open(folder.path());
  ASSERT_TRUE(from_spiece);
  expect_ids(*from_spiece, "t5_spiece");
}

TEST(ImageTokenizers, DecodingGivesTheTextBack) {
  const auto clip = open(kAssets + "/tokenizer"), t5 = open(kAssets + "/tokenizer_2");
  ASSERT_TRUE(clip && t5);
  const std::string text = "a large red circle on a blue background";
  EXPECT_EQ(clip->decode(clip->encode(text)), text);
  EXPECT_EQ(t5->decode(t5->encode(text)), text);
  EXPECT_EQ(clip->decode(clip->encode("")), "");
  EXPECT_EQ(clip->decode(clip->encode("Été, 3")), "été , 3");
}

TEST(ImageTokenizers, SpecialTokensInTextAreTextByDefault) {
  const auto clip = open(kAssets + "/tokenizer"), t5 = open(kAssets + "/tokenizer_2");
  ASSERT_TRUE(clip && t5);
  const auto has = [](const std::vector<TokenId>& ids, TokenId id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  EXPECT_FALSE(has(clip->encode("a <|endoftext|> b", {.add_special = false}), 998));
  EXPECT_FALSE(has(t5->encode("a </s> b", {.add_special = false}), 1));
  EXPECT_TRUE(has(clip->encode("a <|endoftext|> b", {.add_special = false, .parse_special = true}), 998));
  EXPECT_TRUE(has(t5->encode("a </s> b", {.add_special = false, .parse_special = true}), 1));
}

TEST(ImageTokenizers, AnyBytesAreEncoded) {
  const auto clip = open(kAssets + "/tokenizer"), t5 = open(kAssets + "/tokenizer_2");
  ASSERT_TRUE(clip && t5);
  for (const char* text : {"\xff\xfe", "a\xc3", "\xe2\x96", "ok \xf0\x9f\x98 \x80 end"})
    for (const Tokenizer* tokenizer : {clip.get(), t5.get()}) {
      const auto ids = tokenizer->encode(text);
      EXPECT_FALSE(ids.empty());
      for (const TokenId id : ids) EXPECT_TRUE(id >= 0 && id < tokenizer->vocab_size());
    }
  EXPECT_EQ(t5->encode(std::string(100, '\xff')).size(), 3u);  // a space, one unknown, the end
}

TEST(Graphemes, ClustersAreWhole) {
  const auto lengths = [](std::string_view text) {
    std::vector<size_t> all;
    for (size_t pos = 0; pos < text.size();) pos += all.emplace_back(grapheme_bytes(text, pos));
    return all;
  };
  using Lengths = std::vector<size_t>;
  EXPECT_EQ(lengths("abc"), (Lengths{1, 1, 1}));
  EXPECT_EQ(lengths("\r\nx"), (Lengths{2, 1}));
  EXPECT_EQ(lengths("e\u0301\u0327a"), (Lengths{5, 1}));
  EXPECT_EQ(lengths("🇩🇪🇫🇷"), (Lengths{8, 8}));
  EXPECT_EQ(lengths("👩‍👧!"), (Lengths{11, 1}));
  EXPECT_EQ(lengths("\xff\u0301"), (Lengths{1, 2}));
}

TEST(VocabAndMerges, BadFilesAreNamed) {
  const auto load = [](const std::string& vocab, const std::string& merges, const std::string& config = kClipConfig) {
    const auto hf = read_hf_config(config);
    EXPECT_TRUE(hf.ok());
    return tokenizer_from_vocab_and_merges(vocab, merges, *hf).status().message();
  };
  const std::string good = R"({"a": 0, "b</w>": 1, "ab</w>": 2, "<|startoftext|>": 3, "<|endoftext|>": 4})";
  EXPECT_EQ(load(good, "#version: 0.2\na b</w>\nx y\n"), "");
  EXPECT_EQ(load(good, "ab</w>"), "merges.txt, line 1: \"ab</w>\", expected two pieces with a space between");
  EXPECT_EQ(load(good, "a b</w>\n a\n"), "merges.txt, line 2: \" a\", expected two pieces with a space between");
  EXPECT_EQ(load("[]", ""), "vocab.json: expected an object, got array");
  EXPECT_EQ(load(R"({"a": 0})", ""), "vocab.json has no \"<|startoftext|>\"");
  EXPECT_EQ(
      load(good, "", R"({"tokenizer_class": "GPT2Tokenizer"})"),
      "vocab.json and merges.txt of tokenizer_class \"GPT2Tokenizer\"; Redline reads those of CLIPTokenizer, others "
      "from tokenizer.json");
  EXPECT_NE(load(R"({"<|startoftext|>": "x", "<|endoftext|>": 1})", ""), "");
  EXPECT_NE(load("{", ""), "");
}

TEST(Unigram, BadFilesAreNamed) {
  const auto load = [](const std::string& model, const std::string& more = "") {
    return tokenizer_from_json(R"({"model": {"type": "Unigram", )" + model + "}" + more + "}", "").status().message();
  };
  EXPECT_EQ(load(R"("vocab": [["<unk>", 0], ["a", -1.5]], "unk_id": 0)"), "");
  EXPECT_EQ(load(R"("vocab": {"a": 0})"), "model.vocab is missing or no list");
  EXPECT_EQ(load(R"("vocab": [["a", 0], ["b"]])"), "model.vocab[1] is [\"b\"], expected [\"piece\", score]");
  EXPECT_EQ(load(R"("vocab": [["a", 0]], "unk_id": 1)"), "model.unk_id is 1, the vocabulary has 1 pieces");
  const std::string good = R"("vocab": [["a", 0]])";
  EXPECT_EQ(load(good, R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "A*"})"),
            "normalizer Precompiled: precompiled_charsmap is not base64");
  EXPECT_EQ(load(good, R"(, "normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAA"})"),
            "normalizer Precompiled: precompiled_charsmap has 3 bytes, at least 4 are needed");
  EXPECT_EQ(load(good, R"(, "post_processor": {"type": "RobertaProcessing", "cls": ["x", 7], "sep": ["a", 0]})"),
            "post_processor: cls is [\"x\",7], expected a token and its id below 1");
}

}  // namespace
}  // namespace redline
