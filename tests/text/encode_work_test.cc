// Bounded encoding: merges in windows give the tokens of the whole piece, every tokenizer works in slices and stops,
// and its bound on the bytes of a token holds. Tests count work, never time.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "text/bpe.h"
#include "text/unicode.h"
#include "text/unigram.h"
#include "vocab_files.h"

namespace redline {
namespace {

using Ids = std::vector<TokenId>;

constexpr const char* kShapes[] = {
    "gpt2",    "llama3", "gpt4o",  "deepseek3",  "qwen2",           "falcon",     "bert",  "bert_cased", "behaviours",
    "classes", "digits", "llama2", "bpe_prefix", "metaspace_first", "possessive", "words", "word_level", "delimiters"};

std::unique_ptr<Tokenizer> shape_named(const std::string& name) {
  const std::string json = must_read(fmt::format("{}/tests/golden/tokenizers/{}.json", REDLINE_SOURCE_DIR, name));
  auto tokenizer = tokenizer_from_json(json, "");
  EXPECT_TRUE(tokenizer.ok()) << name << ": " << tokenizer.status().to_string();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::string repeated(std::string_view part, size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += part;
  return text;
}

/// Texts without structure that a pre-tokenizer could cut: one word, white space, digits, marks, emoji, bytes that are
/// not UTF-8.
std::vector<std::string> odd_texts(size_t bytes) {
  std::vector<std::string> texts;
  for (const char* part : {"a", " ", "7", "\n", "ab", "Ab", "\xF0\x9F\x98\x80", "\xCC\x81\xCC\x96", "\xFF", " a",
                           "\xE4\xB8\xAD", "a1 \n\t\xC3\xA9\xF0\x9F\x98\x80"})
    texts.push_back(repeated(part, bytes));
  return texts;
}

/// A vocabulary of the letters a to d and random merges of pieces that are there already.
struct RandomBpe {
  explicit RandomBpe(std::mt19937& random, bool is_spm, size_t num_merges) {
    vocabulary.pieces = {"<unk>", "a", "b", "c", "d"};
    const size_t letters = vocabulary.pieces.size();
    for (size_t tries = 0; tries < 20 * num_merges && vocabulary.pieces.size() < letters + num_merges; ++tries) {
      const auto pick = [&] { return vocabulary.pieces[1 + random() % (vocabulary.pieces.size() - 1)]; };
      const std::string left = pick(), right = pick();
      if (left.size() + right.size() > 12) continue;
      merges.emplace_back(left, right);
      if (std::find(vocabulary.pieces.begin(), vocabulary.pieces.end(), left + right) == vocabulary.pieces.end())
        vocabulary.pieces.push_back(left + right);
    }
    vocabulary.types.assign(vocabulary.pieces.size(), TokenType::normal);
    vocabulary.types[0] = TokenType::unknown;
    vocabulary.build_index();
    // Ranks in any order: a merge may come before those that make its sides.
    std::shuffle(merges.begin(), merges.end(), random);
    if (is_spm) {
      std::vector<float> scores;
      for (size_t i = 0; i < vocabulary.pieces.size(); ++i) scores.push_back(-static_cast<float>(random() % 50));
      model = SpmModel::make(vocabulary, scores, {.unk = 0}).value();
    } else {
      std::vector<std::pair<std::string_view, std::string_view>> views(merges.begin(), merges.end());
      model = BpeModel::make(vocabulary, {.unk = 0}, views).value();
    }
  }
  void set_window(size_t window) const {
    if (auto* bpe = dynamic_cast<BpeModel*>(model.get())) bpe->window = window;
    else dynamic_cast<SpmModel&>(*model).window = window;
  }
  Ids encode(std::string_view text) const {
    Ids ids;
    model->encode(text, ids);
    return ids;
  }
  Vocabulary vocabulary;
  std::vector<std::pair<std::string, std::string>> merges;
  std::unique_ptr<TokenModel> model;
};

TEST(MergeWindows, GiveTheTokensOfTheWholePiece) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    const RandomBpe bpe(random, round % 2 == 1, 5 + random() % 60);
    for (int t = 0; t < 20; ++t) {
      std::string text;
      const size_t size = random() % 600, letters = 1 + random() % 4;
      while (text.size() < size) text += static_cast<char>('a' + random() % letters);
      bpe.set_window(SIZE_MAX);
      const Ids whole = bpe.encode(text);
      for (const size_t window : {size_t{16}, size_t{33}, size_t{64}, size_t{200}}) {
        bpe.set_window(window);
        ASSERT_EQ(bpe.encode(text), whole) << text << " in windows of " << window;
      }
    }
  }
}

// Each merge of this chain is prevented by the next one, so the first token depends on the last letter.
TEST(MergeWindows, AChainThatIsLongerThanAWindowIsMergedAsAWhole) {
  constexpr size_t kLetters = 100;
  Vocabulary v;
  for (size_t i = 0; i <= kLetters; ++i) {
    v.pieces.emplace_back();
    append_utf8(v.pieces.back(), static_cast<uint32_t>(0x4E00 + i));
  }
  std::vector<std::pair<std::string, std::string>> merges;
  for (size_t i = kLetters; i-- > 0;) merges.emplace_back(v.pieces[i], v.pieces[i + 1]);
  for (const auto& [left, right] : merges) v.pieces.push_back(left + right);
  v.types.assign(v.pieces.size(), TokenType::normal);
  v.build_index();
  const std::vector<std::pair<std::string_view, std::string_view>> views(merges.begin(), merges.end());
  const auto model = BpeModel::make(v, {}, views).value();
  for (const size_t count : {kLetters, kLetters + 1}) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += v.pieces[i];
    auto& bpe = dynamic_cast<BpeModel&>(*model);
    bpe.window = SIZE_MAX;
    Ids whole, windows;
    model->encode(text, whole);
    bpe.window = 16;
    model->encode(text, windows);
    EXPECT_EQ(windows, whole);
    EXPECT_EQ(whole.size(), (count + 1) / 2);
  }
}

/// The Viterbi algorithm with a list of nodes for the whole text.
Ids unigram_reference(const std::vector<std::pair<std::string, double>>& pieces, double min_score, bool float_sums,
                      std::string_view text) {
  struct Node {
    double score = 0;
    int64_t begin = -1;
    TokenId id = -1;
  };
  std::vector<Node> nodes(text.size() + 1);
  const auto offer = [&](size_t from, size_t to, double score, TokenId id) {
    const double sum =
        float_sums ? static_cast<float>(score) + static_cast<float>(nodes[from].score) : score + nodes[from].score;
    if (nodes[to].begin < 0 || sum > nodes[to].score) nodes[to] = {sum, static_cast<int64_t>(from), id};
  };
  for (size_t pos = 0; pos < text.size(); ++pos) {
    bool is_known = false;
    for (size_t bytes = 1; pos + bytes <= text.size(); ++bytes)
      for (size_t id = 1; id < pieces.size(); ++id)
        if (pieces[id].first == text.substr(pos, bytes)) {
          offer(pos, pos + bytes, pieces[id].second, static_cast<TokenId>(id));
          is_known = is_known || bytes == 1;
        }
    if (!is_known) offer(pos, pos + 1, min_score - 10, -1);
  }
  Ids ids;
  for (size_t end = text.size(); end > 0; end = static_cast<size_t>(nodes[end].begin))
    if (nodes[end].id >= 0) ids.push_back(nodes[end].id);
    else if (ids.empty() || ids.back() != 0) ids.push_back(0);
  std::reverse(ids.begin(), ids.end());
  return ids;
}

TEST(Unigram, KeepsScoresOnlyAsFarBackAsAPieceReaches) {
  std::mt19937 random(5);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::pair<std::string, double>> pieces = {{"<unk>", 0}};
    Vocabulary v;
    std::vector<double> scores;
    for (size_t i = 0; i < 25; ++i) {
      std::string piece;
      for (size_t n = 1 + random() % (i % 5 == 0 ? 20 : 4); n > 0; --n) piece += static_cast<char>('a' + random() % 3);
      const auto same = [&](const auto& known) { return known.first == piece; };
      if (std::none_of(pieces.begin(), pieces.end(), same))
        pieces.emplace_back(piece, -1.0 - static_cast<double>(random() % 8));
    }
    for (const auto& [piece, score] : pieces) v.pieces.push_back(piece), scores.push_back(score);
    v.types.assign(v.pieces.size(), TokenType::normal);
    v.types[0] = TokenType::unknown;
    v.build_index();
    const bool float_sums = round % 2 == 0;
    const auto model = UnigramModel::make(v, scores, {.unk = 0, .min_score = -9, .float_sums = float_sums}).value();
    for (int t = 0; t < 20; ++t) {
      std::string text;
      const size_t size = random() % 120, letters = 1 + random() % 4;  // the fourth one is unknown
      while (text.size() < size) text += static_cast<char>('a' + random() % letters);
      Ids ids;
      model->encode(text, ids);
      ASSERT_EQ(ids, unigram_reference(pieces, -9, float_sums, text)) << text;
    }
  }
}

TEST(EncodeWork, EverySliceOfEveryTokenizerIsBounded) {
  for (const char* name : kShapes) {
    const auto tokenizer = shape_named(name);
    ASSERT_TRUE(tokenizer);
    for (const std::string& text : odd_texts(140'000)) {
      SCOPED_TRACE(fmt::format("{} on {}...", name, repair_utf8(text.substr(0, 12))));
      int64_t slices = 0, bytes = 0;
      EncodeWork work(INT64_MAX, [&](int64_t more) {
        EXPECT_LE(more, static_cast<int64_t>(EncodeWork::kSliceBytes));
        ++slices;
        bytes += more;
        return true;
      });
      Ids ids;
      tokenizer->encode(text, {.add_special = false}, work, ids);
      EXPECT_FALSE(work.is_stopped());
      EXPECT_GE(slices, 2) << "a text of 140,000 bytes has at least so many slices";
      EXPECT_LE(bytes, 40 * std::ssize(text)) << "the number of passes over the text does not depend on its length";
    }
  }
}

TEST(EncodeWork, StopsAfterTheSliceThatIsToldTo) {
  const auto tokenizer = shape_named("gpt2");
  for (const std::string& text : odd_texts(2'000'000)) {
    int64_t slices = 0;
    EncodeWork work(INT64_MAX, [&](int64_t) { return ++slices < 3; });
    Ids ids;
    tokenizer->encode(text, {.add_special = false}, work, ids);
    EXPECT_TRUE(work.is_cancelled());
    EXPECT_EQ(slices, 3);
    EXPECT_LE(ids.size(), 4 * EncodeWork::kSliceBytes);
  }
}

TEST(EncodeWork, StopsSoonAfterItsNumberOfTokens) {
  for (const char* name : kShapes) {
    const auto tokenizer = shape_named(name);
    ASSERT_TRUE(tokenizer);
    for (const std::string& text : odd_texts(140'000)) {
      SCOPED_TRACE(fmt::format("{} on {}...", name, repair_utf8(text.substr(0, 12))));
      const Ids all = tokenizer->encode(text, {.add_special = false});
      EncodeWork work(1000);
      Ids some;
      tokenizer->encode(text, {.add_special = false}, work, some);
      if (all.size() <= 1000) {
        EXPECT_EQ(some, all);
        EXPECT_FALSE(work.is_stopped());
        continue;
      }
      EXPECT_TRUE(work.is_stopped());
      EXPECT_GT(some.size(), 1000u);
      EXPECT_LE(some.size(), 1100u);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
    }
  }
}

TEST(Tokenizer, MaxTokenBytesBoundsTheBytesOfAText) {
  std::mt19937 random(3);
  int bounded = 0;
  for (const char* name : kShapes) {
    const auto tokenizer = shape_named(name);
    ASSERT_TRUE(tokenizer);
    const int64_t most = tokenizer->max_token_bytes();
    if (most == 0) continue;
    ++bounded;
    for (const std::string& text : odd_texts(20'000)) {
      const int64_t tokens = std::ssize(tokenizer->encode(text, {.add_special = false}));
      EXPECT_GE(tokens * most, std::ssize(text)) << name << " on " << repair_utf8(text.substr(0, 12));
    }
  }
  EXPECT_GE(bounded, 6) << "tokenizers over bytes have a bound";
  for (const char* name : {"bert", "word_level", "words"})
    EXPECT_EQ(shape_named(name)->max_token_bytes(), 0) << name << ": a word of any length may be unknown";
}

// utf8proc exchanges neighbors until marks are in order: n marks of a low class after n of a high one took n^2 steps.
TEST(Unicode, LongRunsOfMarksAreSorted) {
  constexpr const char *kAcute = "\xCC\x81", *kGrave = "\xCC\x96";  // U+0301 of class 230, U+0316 of class 220
  const std::string text = "e" + repeated(kAcute, 200'000) + repeated(kGrave, 200'000) + "x";
  const std::string sorted = "e" + repeated(kGrave, 200'000) + repeated(kAcute, 200'000) + "x";
  EXPECT_EQ(normalize_unicode(text, NormalForm::nfd), sorted);
  EXPECT_EQ(normalize_unicode(text, NormalForm::nfkd), sorted);
  const std::string composed = normalize_unicode(text, NormalForm::nfc);
  EXPECT_EQ(composed, "\xC3\xA9" + repeated(kGrave, 200'000) + repeated(kAcute, 199'998) + "x");
  // Halfwidth sound marks are letters that decompose to marks.
  const std::string kana = repeated("\xEF\xBE\x9E\xCC\x81", 200'000);
  const std::string marks = normalize_unicode(kana, NormalForm::nfkd);
  EXPECT_EQ(marks, repeated("\xE3\x82\x99", 120'000) + repeated(kAcute, 80'000));
}

TEST(Unicode, SortedMarksHaveTheNormalFormsOfShortRuns) {
  std::mt19937 random(17);
  constexpr uint32_t kMarks[] = {0x301, 0x316, 0x323,  0x344, 0xF71,   0xF73,
                                 0x5B0, 0x345, 0x3099, 0x93C, 0x1D165, 0xFF9E};
  for (int round = 0; round < 200; ++round) {
    // 40 marks are sorted before utf8proc gets them.
    std::string text = "a";
    std::vector<uint32_t> marks;
    for (int i = 0; i < 40; ++i) marks.push_back(kMarks[random() % std::size(kMarks)]);
    for (const uint32_t mark : marks) append_utf8(text, mark);
    for (const NormalForm form : {NormalForm::nfd, NormalForm::nfkd}) {
      const std::string once = normalize_unicode(text, form);
      EXPECT_EQ(normalize_unicode(once, form), once) << "a normal form is its own";
      EXPECT_EQ(normalize_unicode(normalize_unicode(text, NormalForm::nfc), form), once);
    }
  }
}

TEST(Unicode, TextsCanBeCutWhereNormalizationSays) {
  std::mt19937 random(23);
  constexpr uint32_t kChars[] = {'a',    'e',    0x301,   0x316,  0xE9,  0x1100, 0x1161, 0x11A8, 0x11A7, 0xAC00,
                                 0x3042, 0x3099, 0x1F600, 0x4E2D, 0x928, 0x93C,  0x627,  0x654,  0x212B, 0xFF76};
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) append_utf8(text, kChars[random() % std::size(kChars)]);
    const size_t cut = normalization_cut(text, random() % text.size());
    for (const NormalForm form : {NormalForm::nfc, NormalForm::nfd, NormalForm::nfkc, NormalForm::nfkd})
      EXPECT_EQ(normalize_unicode(text.substr(0, cut), form) + normalize_unicode(text.substr(cut), form),
                normalize_unicode(text, form))
          << text << " cut at " << cut;
  }
}

}  // namespace
}  // namespace redline
