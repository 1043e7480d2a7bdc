// WordPiece from vocab.txt, tokenizer.json and GGUF; pairs; decoding. Ids of tokenizer.json files:
// tokenizer_shapes_test.
#include "text/word_piece.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include "text/hf_config.h"
#include "text/unicode.h"

#include "vocab_files.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<TokenId>;

nlohmann::json golden_json(const std::string& name) {
  return nlohmann::json::parse(must_read(fmt::format("{}/tests/golden/tokenizers/{}.json", REDLINE_SOURCE_DIR, name)));
}

std::vector<std::string> pieces_of(const nlohmann::json& json) {
  std::vector<std::string> pieces(json["model"]["vocab"].size());
  for (const auto& [piece, id] : json["model"]["vocab"].items()) pieces.at(id.get<size_t>()) = piece;
  return pieces;
}

/// The golden files allow words of 20 characters, files without that key of 100.
nlohmann::json with_long_words(nlohmann::json json) {
  json["model"]["max_input_chars_per_word"] = 100;
  return json;
}

std::vector<std::string> golden_texts() {
  std::vector<std::string> texts;
  for (const auto& v : golden_json("bert.vectors")) texts.push_back(v["text"].get<std::string>());
  return texts;
}

/// Pieces and their ids in order; [UNK] is 0.
std::unique_ptr<TokenModel> model_of(Vocabulary& v, std::vector<std::string> pieces, WordPieceOptions options = {}) {
  v.pieces = std::move(pieces);
  v.types.assign(v.pieces.size(), TokenType::normal);
  v.build_index();
  options.unk = 0;
  auto model = WordPieceModel::make(v, options);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return std::move(*model);
}

Ids encode(const TokenModel& model, std::string_view word) {
  Ids ids;
  model.encode(word, ids);
  return ids;
}

TEST(WordPiece, TakesTheLongestPieceAndAllOrNothing) {
  Vocabulary v;
  const auto model = model_of(v, {"[UNK]", "un", "unaff", "##aff", "##able", "##a", "##ble", "é", "##é", "##"});
  EXPECT_EQ(encode(*model, "unaffable"), (Ids{2, 4}));
  EXPECT_EQ(encode(*model, "unable"), (Ids{1, 4}));
  EXPECT_EQ(encode(*model, "unabl"), Ids{0}) << "the rest cannot be spelled, so the word is unknown";
  EXPECT_EQ(encode(*model, "éé"), (Ids{7, 8}));
  EXPECT_EQ(encode(*model, "##"), Ids{9});
  EXPECT_EQ(encode(*model, "x"), Ids{0});
  EXPECT_EQ(encode(*model, ""), Ids{});
}

TEST(WordPiece, LongWordsAreUnknown) {
  Vocabulary v;
  const auto model = model_of(v, {"[UNK]", "é", "##é"}, {.max_word_chars = 5});
  EXPECT_EQ(encode(*model, "ééééé").size(), 5u);
  EXPECT_EQ(encode(*model, "éééééé"), Ids{0});
}

TEST(WordPiece, VocabTxtIsTheSameTokenizer) {
  const nlohmann::json json = golden_json("bert");
  std::string lines;
  for (const std::string& piece : pieces_of(json)) lines += piece + "\n";
  HfConfig config;
  config.tokenizer_class = "BertTokenizer";
  const auto a = tokenizer_from_vocab_txt(lines, config);
  const auto b = tokenizer_from_json(with_long_words(json).dump(), "");
  ASSERT_TRUE(a.ok()) << a.status().to_string();
  ASSERT_TRUE(b.ok()) << b.status().to_string();
  for (const std::string& text : golden_texts()) EXPECT_EQ((*a)->encode(text), (*b)->encode(text)) << text;
  EXPECT_EQ((*a)->prefix(), Ids{2});
  EXPECT_EQ((*a)->suffix(), Ids{3});
  config.tokenizer_class = "MPNetTokenizer";
  EXPECT_THAT(tokenizer_from_vocab_txt(lines, config).status().message(), HasSubstr("MPNetTokenizer"));
  config.tokenizer_class = "";
  EXPECT_THAT(tokenizer_from_vocab_txt("a\nb\n", config).status().message(), HasSubstr("[CLS]"));
}

TEST(WordPiece, GgufIsTheSameTokenizer) {
  const nlohmann::json json = golden_json("bert");
  GgufVocab vocab;
  vocab.model = "bert";
  vocab.cls = 2;
  vocab.sep = 3;
  vocab.unk = 1;
  for (const std::string& piece : pieces_of(json)) {
    const bool special = vocab.tokens.size() < 5;
    vocab.token_types.push_back(special ? 3 : 1);
    vocab.tokens.push_back(special ? piece : piece.starts_with("##") ? piece.substr(2) : "\u2581" + piece);
  }
  const auto a = tokenizer_from_gguf(std::move(vocab));
  ASSERT_TRUE(a.ok()) << a.status().to_string();
  const auto b = tokenizer_from_json(with_long_words(json).dump(), "");
  ASSERT_TRUE(b.ok()) << b.status().to_string();
  for (const std::string& text : golden_texts()) {
    const Ids ids = (*a)->encode(text);
    EXPECT_EQ(ids, (*b)->encode(text)) << text;
    EXPECT_EQ((*a)->decode(ids), (*b)->decode(ids)) << text;
  }
  EXPECT_EQ((*a)->pair().middle, (*b)->pair().middle);
  EXPECT_TRUE((*a)->pair().marks_second);
}

TEST(WordPiece, DecodesLikeTheTokenizersPackage) {
  nlohmann::json json = golden_json("bert");
  for (const char* piece : {"don", "##'", "'", "t", "do", "not", "##s", ",", "."})
    if (!json["model"]["vocab"].contains(piece)) json["model"]["vocab"][piece] = json["model"]["vocab"].size();
  const auto tokenizer = tokenizer_from_json(json.dump(), "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  const auto ids = [&](std::initializer_list<const char*> pieces) {
    Ids list;
    for (const char* piece : pieces) list.push_back((*tokenizer)->find(piece));
    return list;
  };
  EXPECT_EQ((*tokenizer)->decode(ids({"[CLS]", "don", "##s", ",", "do", ".", "[SEP]"})), "dons, do.");
  EXPECT_EQ((*tokenizer)->decode(ids({"[CLS]", "do", "[SEP]"}), true), "[CLS] do [SEP]");
}

TEST(WordPiece, PairsFollowTheTemplate) {
  struct Case {
    const char* name;
    PairTemplate want;
  };
  for (const Case& c : {Case{"bert", {{2}, {3}, {3}, true}}, Case{"bert_cased", {{2}, {3}, {3}, true}},
                        Case{"bert_accents", {{2}, {3, 3}, {3}, false}}, Case{"gpt2", {{360}, {}, {}, false}}}) {
    const auto tokenizer = tokenizer_from_json(golden_json(c.name).dump(), "");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    const PairTemplate& pair = (*tokenizer)->pair();
    EXPECT_EQ(pair.prefix, c.want.prefix) << c.name;
    EXPECT_EQ(pair.middle, c.want.middle) << c.name;
    EXPECT_EQ(pair.suffix, c.want.suffix) << c.name;
    EXPECT_EQ(pair.marks_second, c.want.marks_second) << c.name;
  }
}

TEST(WordPiece, IllFormedTextIsCleanedAway) {
  const auto tokenizer = tokenizer_from_json(golden_json("bert").dump(), "");
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ((*tokenizer)->encode("the\xFF cat\xC3"), (*tokenizer)->encode("the cat"));
}

}  // namespace
}  // namespace redline
