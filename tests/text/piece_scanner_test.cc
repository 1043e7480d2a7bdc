// The scanner of common patterns against the regular expressions themselves, and long texts against their parts.
#include "text/piece_scanner.h"

#include <algorithm>
#include <random>

#include "text/pre_tokenizer.h"
#include "vocab_files.h"

namespace redline {
namespace {

const std::pair<const char*, std::string_view> kPatterns[] = {
    {"gpt2", kGpt2Pattern}, {"llama3", kLlama3Pattern}, {"qwen2", kQwen2Pattern}, {"gpt4o", kGpt4oPattern}};

/// Characters of every class, those that patterns name more often, and some outside of ASCII: the long s and the Kelvin
/// sign are an s and a k in any case.
std::string random_text(std::mt19937& random, bool ascii) {
  constexpr const char* kAscii[] = {"a", "Z",  "s",  "T",    "re",   "VE",   "ll",  "'",    "'",       " ",
                                    " ", "  ", "\n", "\r\n", "\t",   "\v",   "7",   "42",   "1234567", ".",
                                    "/", "-",  "(",  "_",    "\x01", "\x7f", "the", " Word"};
  constexpr const char* kOthers[] = {"é",        "ß",        "Ǆ", "ſ", "K", "中", "ご", "\xCC\x81",     "\xE2\x80\x83",
                                     "\xC2\xA0", "\xC2\x85", "٣", "½", "€", "…",  "😀",  "\xE2\x80\x8D", "\xE2\x80\xA8"};
  std::string text;
  const size_t count = random() % 40;
  for (size_t i = 0; i < count; ++i)
    text += ascii || random() % 4 != 0 ? kAscii[random() % std::size(kAscii)] : kOthers[random() % std::size(kOthers)];
  return text;
}

TEST(PieceScanner, FindsWhatTheExpressionFinds) {
  std::mt19937 random(5);
  for (const auto& [name, pattern] : kPatterns) {
    SCOPED_TRACE(name);
    const auto scanner = PieceScanner::of(pattern);
    ASSERT_TRUE(scanner);
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex.ok());
    int64_t scanned = 0, asked = 0;
    for (int i = 0; i < 20000; ++i) {
      const std::string text = random_text(random, i % 2 == 0);
      std::vector<Regex::Span> want;
      regex->find_all(text, want);
      size_t at = 0;
      for (const Regex::Span& match : want) {
        ASSERT_EQ(match.begin, at) << text;  // no gaps
        const size_t bytes = scanner->match(text.data() + at, text.data() + text.size());
        ++(bytes > 0 ? scanned : asked);
        if (bytes > 0) {
          ASSERT_EQ(at + bytes, match.end) << "\"" << text << "\" at " << at;
        }
        ASSERT_EQ(regex->match_at(text, at), match.end) << "\"" << text << "\" at " << at;
        at = match.end;
      }
      ASSERT_EQ(at, text.size());
    }
    EXPECT_GT(scanned, asked);
  }
  EXPECT_FALSE(PieceScanner::of("\\s+"));
}

// Long texts take another way, with a cache of pieces; a text is cut so that no piece spans two parts.
TEST(PieceScanner, LongTextsHaveTheTokensOfTheirParts) {
  const std::filesystem::path folder = std::filesystem::path(REDLINE_SOURCE_DIR) / "tests/golden/tokenizers";
  std::mt19937 random(7);
  for (const char* name : {"gpt2", "llama3", "qwen2", "gpt4o", "deepseek3", "falcon", "llama2", "classes"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = tokenizer_from_json(must_read((folder / (std::string(name) + ".json")).string()), "");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    const EncodeOptions options = {.add_special = false};
    for (int i = 0; i < 30; ++i) {
      const bool ascii = i % 3 == 0;
      std::string text;
      while (text.size() < 6000) text += random_text(random, ascii);
      if (i % 10 == 1) text += "\xFF\xFE" + text;  // ill-formed
      const std::vector<TokenId> ids = (*tokenizer)->encode(text, options);
      EXPECT_EQ((*tokenizer)->encode(text, options), ids) << "again";
      // Filled up to the length from which on the other way is taken, the tokens begin as those of the short text do.
      const std::string part = text.substr(0, 3000);
      std::vector<TokenId> want = (*tokenizer)->encode(part, options);
      const size_t sure = want.size() > 60 ? want.size() - 60 : 0;  // the last pieces go on in the long text
      ASSERT_GE(ids.size(), sure);
      EXPECT_TRUE(std::equal(want.begin(), want.begin() + static_cast<int64_t>(sure), ids.begin()));
    }
  }
}

}  // namespace
}  // namespace redline
