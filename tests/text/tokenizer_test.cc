// Tests of what every tokenizer promises: exact round trips, inert special tokens, streaming that equals decoding, stop
// tokens, and speed that does not collapse on odd input.
#include "vocab_files.h"

#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "text/unicode.h"

namespace redline {
namespace {

std::string golden(const std::string& name) {
  return must_read(fmt::format("{}/tests/golden/tokenizers/{}.json", REDLINE_SOURCE_DIR, name));
}

std::unique_ptr<Tokenizer> shape(const std::string& name, const std::string& config = "") {
  auto tokenizer = tokenizer_from_json(golden(name), config);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

std::string random_unicode(std::mt19937& random) {
  std::string text;
  const auto length = random() % 60;
  for (unsigned i = 0; i < length; ++i) {
    static constexpr uint32_t kTops[] = {0x7F, 0x7F, 0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    uint32_t c = random() % (kTops[random() % 6] + 1);
    if (c >= 0xD800 && c <= 0xDFFF) c = ' ';
    append_utf8(text, c);
  }
  return text;
}

std::string random_bytes(std::mt19937& random) {
  std::string bytes;
  const auto length = random() % 60;
  static constexpr uint8_t kEvil[] = {0xE2, 0x96, 0x81, 0xF0, 0x9F, 0x80, 0xC0, 0xED, 0xA0, 0xFF, 'a', ' ', 0};
  for (unsigned i = 0; i < length; ++i) {
    bytes.push_back(static_cast<char>(random() % 2 ? kEvil[random() % sizeof(kEvil)] : random() % 256));
  }
  return bytes;
}

std::string stream(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  StreamDecoder decoder(tokenizer, true);
  std::string text;
  for (const TokenId id : ids) text += decoder.push(id);
  text += decoder.finish();
  return text;
}

std::string all_bytes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.token_bytes(id);
  return bytes;
}

TEST(Tokenizer, RoundTripsAreExact) {
  std::mt19937 random(7);
  for (const char* name : {"gpt2", "llama3", "gpt4o", "deepseek3", "behaviours", "classes", "digits", "llama2"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = shape(name);
    ASSERT_TRUE(tokenizer);
    for (int i = 0; i < 500; ++i) {
      const std::string text = random_unicode(random);
      // U+2581 is how SentencePiece writes a space: it comes back as one. "  " is an added token of this shape, and
      // the text after an added token gets a prefix space of its own.
      const bool marks = text.find("\xE2\x96\x81") != std::string::npos || text.find("  ") != std::string::npos;
      const auto ids = tokenizer->encode(text, {.add_special = false});
      if (!marks) {
        EXPECT_EQ(tokenizer->decode(ids), text);
      }
      EXPECT_EQ(stream(*tokenizer, ids), tokenizer->decode(ids));
    }
  }
}

TEST(Tokenizer, AnyBytesAreEncoded) {
  std::mt19937 random(8);
  for (const char* name : {"gpt2", "llama3", "gpt4o", "deepseek3", "metaspace_first"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = shape(name);
    ASSERT_TRUE(tokenizer);
    for (int i = 0; i < 500; ++i) {
      const std::string text = random_bytes(random);
      const auto ids = tokenizer->encode(text, {.add_special = false});
      const std::string bytes = all_bytes(*tokenizer, ids);
      if (text.find("\xE2\x96\x81") == std::string::npos && text.find('\0') == std::string::npos) {
        std::string_view behind = bytes;
        if (bytes.size() == text.size() + 1) behind.remove_prefix(1);  // the prefix space
        EXPECT_EQ(behind, text);
      }
      EXPECT_EQ(stream(*tokenizer, ids), tokenizer->decode(ids));
      for (const TokenId id : ids) EXPECT_TRUE(id >= 0 && id < tokenizer->vocab_size());
    }
  }
}

TEST(Tokenizer, SpecialTokensInTextAreTextByDefault) {
  const auto tokenizer = shape("gpt2");
  ASSERT_TRUE(tokenizer);
  const TokenId user = tokenizer->find("<|user|>");
  ASSERT_GE(user, 0);
  EXPECT_TRUE(tokenizer->is_special(user));
  const std::string text = "a<|user|>b";
  const auto inert = tokenizer->encode(text, {.add_special = false});
  EXPECT_EQ(std::count(inert.begin(), inert.end(), user), 0);
  EXPECT_EQ(tokenizer->decode(inert), text);
  const auto parsed = tokenizer->encode(text, {.add_special = false, .parse_special = true});
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), user), 1);
  EXPECT_EQ(tokenizer->decode(parsed), "ab");
  EXPECT_EQ(tokenizer->decode(parsed, true), text);
}

TEST(Tokenizer, MergesNeverMakeAControlToken) {
  // Spelled out, "<s>" has the best score of all; text still must not become it.
  GgufVocab vocab;
  vocab.model = "llama";
  vocab.tokens = {"<unk>", "<s>", "</s>", "<", "s", ">", "s>", "\xE2\x96\x81"};
  vocab.scores = {0, 0, 0, -5, -5, -5, -1, -2};
  vocab.token_types = {2, 3, 3, 1, 1, 1, 1, 1};
  const auto tokenizer = tokenizer_from_gguf(std::move(vocab));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ((*tokenizer)->encode("<s>"), (std::vector<TokenId>{1, 7, 3, 6}));
  EXPECT_EQ((*tokenizer)->encode("<s>", {.parse_special = true}), (std::vector<TokenId>{1, 1}));
  EXPECT_EQ((*tokenizer)->encode("é"), (std::vector<TokenId>{1, 7, 0}));
  EXPECT_EQ((*tokenizer)->stop_tokens(), (std::vector<TokenId>{2}));
  EXPECT_EQ((*tokenizer)->encode(""), (std::vector<TokenId>{1}));
}

TEST(Tokenizer, BadIdsAreEmpty) {
  const auto tokenizer = shape("gpt2");
  ASSERT_TRUE(tokenizer);
  for (const TokenId id : {-1, 1 << 20, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->token_bytes(id, true), "");
    EXPECT_EQ(tokenizer->piece(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
  }
  EXPECT_EQ(tokenizer->find("no such piece"), -1);
  EXPECT_EQ(tokenizer->find(""), -1);
}

TEST(StreamDecoder, HoldsIncompleteCharactersBack) {
  const auto tokenizer = shape("llama2");
  ASSERT_TRUE(tokenizer);
  const auto byte = [&](int b) { return tokenizer->find(fmt::format("<0x{:02X}>", b)); };
  StreamDecoder decoder(*tokenizer, true);
  EXPECT_EQ(decoder.push(byte(0xF0)), "");
  EXPECT_EQ(decoder.push(byte(0x9F)), "");
  EXPECT_EQ(decoder.push(byte(0x98)), "");
  EXPECT_EQ(decoder.push(byte(0x80)), "😀");
  EXPECT_EQ(decoder.push(byte(0xE2)), "");
  EXPECT_EQ(decoder.push(byte('x')), "\uFFFDx");  // never becomes valid
  EXPECT_EQ(decoder.push(byte(0x80)), "\uFFFD");  // stray continuation
  EXPECT_EQ(decoder.push(byte(0xC3)), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(StreamDecoder, DropsThePrefixSpaceOnlyAtTheStart) {
  const auto tokenizer = shape("llama2");
  ASSERT_TRUE(tokenizer);
  const auto ids = tokenizer->encode("the the", {.add_special = false});
  EXPECT_EQ(stream(*tokenizer, ids), "the the");
  StreamDecoder later(*tokenizer, false);
  std::string text;
  for (const TokenId id : ids) text += later.push(id);
  text += later.finish();
  EXPECT_EQ(text, " the the");
}

// No clock here: the test's time limit is the check that nothing is quadratic.
TEST(Tokenizer, LongRunsOfOneCharacter) {
  for (const char* name :
       {"gpt2", "llama3", "qwen2", "gpt4o", "deepseek3", "falcon", "digits", "llama2", "metaspace_always"}) {
    SCOPED_TRACE(name);
    const auto tokenizer = shape(name);
    ASSERT_TRUE(tokenizer);
    for (const char* unit : {"a", " ", "\n", "1", ".", "'", "é", "好", "\xFF"}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      const auto ids = tokenizer->encode(text, {.add_special = false});
      EXPECT_FALSE(ids.empty());
    }
  }
}

// Only what may change is normalized; the whole must be as if all had been.
TEST(Unicode, NfcOfPartsIsThatOfTheWhole) {
  const std::vector<std::string> characters = {
      "a",      "e",      " ",      "\u00e9", "\u0301",
      "\u0308", "\u0327", "\u0340", "\u0344", "\u0438",
      "\u0306", "\u212b", "\u2014", "\u2000", "\u1100",
      "\u1161", "\u11a8", "\uac00", "\u4e2d", "\u3099",
      "\u304b", "\u0958", "\uf900", "\u02ff", std::string(63, 'x')};  // ASCII is looked at 64 bytes at a time
  std::mt19937 random(5);
  for (int i = 0; i < 4000; ++i) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) text += characters[random() % characters.size()];
    utf8proc_uint8_t* const whole = utf8proc_NFC(reinterpret_cast<const utf8proc_uint8_t*>(text.c_str()));
    EXPECT_EQ(normalize_unicode(text, NormalForm::nfc), reinterpret_cast<const char*>(whole)) << text;
    std::free(whole);
  }
}

TEST(Unicode, RepairReplacesMaximalSubparts) {
  // The example of the Unicode standard, table 3-11 and 3-8.
  EXPECT_EQ(repair_utf8("\xF0\x80\x80\x41"), "\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(repair_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), "\uFFFD\uFFFD\uFFFD\uFFFD\x41");
  EXPECT_EQ(repair_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(repair_utf8("ok é 😀"), "ok é 😀");
  EXPECT_EQ(incomplete_utf8_tail("a\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_tail("a\xF0\x9F\x98\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("a\xE0\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_tail("\x80\x80"), 0u);
}

}  // namespace
}  // namespace redline
