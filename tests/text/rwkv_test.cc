// RWKV's tokenizer: the literals of its vocabulary file, the same tokens in a GGUF file, and the longest match.
#include "text/rwkv.h"

#include <gtest/gtest.h>

#include "text/gguf_vocab.h"

namespace redline {
namespace {

/// All bytes, then some words; lines as the file has them.
std::string vocabulary() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte)
    text += byte < 128 ? fmt::format("{} '\\x{:02x}' 1\n", byte + 1, byte)
                       : fmt::format("{} b'\\x{:02x}' 1\n", byte + 1, byte);
  return text +
         "257 'the' 3\n258 ' the' 4\n259 'there' 5\n260 \"it's\" 4\n261 '\\u3000' 3\n262 'é' 2\n263 '\\xa0' 2\n"
         "265 '\\n\\n' 2\n266 '\\\\' 1\n267 b'\\xe2\\x80' 2\n";
}

std::unique_ptr<Tokenizer> make(const std::string& text) {
  auto tokenizer = tokenizer_from_rwkv_vocab(text, {});
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

TEST(Rwkv, TheLongestTokenAtEachPosition) {
  const auto tokenizer = make(vocabulary());
  ASSERT_TRUE(tokenizer);
  using Ids = std::vector<TokenId>;
  EXPECT_EQ(tokenizer->encode("the there"), (Ids{257, 258, 'r' + 1, 'e' + 1}));
  EXPECT_EQ(tokenizer->encode("there"), (Ids{259}));
  EXPECT_EQ(tokenizer->encode("it's\n\n\n"), (Ids{260, 265, '\n' + 1}));
  EXPECT_EQ(tokenizer->encode("\xC2\xA0\xE3\x80\x80\xC3\xA9"), (Ids{263, 261, 262}));
  EXPECT_EQ(tokenizer->encode("\xE2\x80\xA6\xFF"), (Ids{267, 0xA6 + 1, 0xFF + 1}));  // any bytes
  EXPECT_EQ(tokenizer->encode("<|endoftext|>", {.parse_special = true}), (Ids{0}));
  EXPECT_EQ(tokenizer->vocab_size(), 268);
  EXPECT_EQ(tokenizer->stop_tokens(), (Ids{0}));
  const std::string text = "there it's \\ é\n\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_EQ(tokenizer->token_bytes(264), "");  // a gap
}

TEST(Rwkv, AGgufFileHasTheSameTokens) {
  const auto folder = make(vocabulary());
  ASSERT_TRUE(folder);
  GgufVocab vocab;
  vocab.model = "rwkv";
  vocab.tokens = {"<s>"};
  for (int byte = 0; byte < 256; ++byte) vocab.tokens.push_back(fmt::format("\\x{:02x}", byte));
  for (const char* token : {"the", " the", "there", "it\\'s", "\\xe3\\x80\\x80", "\\xc3\\xa9", "\\xc2\\xa0", "[PAD264]",
                            "\\n\\n", "\\\\", "\\xe2\\x80"})
    vocab.tokens.emplace_back(token);
  vocab.token_types.assign(vocab.tokens.size(), 1);
  vocab.token_types[0] = 3;
  vocab.token_types[264] = 5;
  const auto file = tokenizer_from_gguf(std::move(vocab));
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  for (const char* text :
       {"the there", "it's\n\n\n", "\xC2\xA0\xE3\x80\x80\xC3\xA9", "\xE2\x80\xA6\xFF", "[PAD264]", "\\"})
    EXPECT_EQ((*file)->encode(text), folder->encode(text)) << text;
  EXPECT_EQ((*file)->decode((*file)->encode("it's the\n\n")), "it's the\n\n");
}

TEST(Rwkv, WhatIsNoVocabularyIsRefused) {
  const auto message = [](const std::string& text) {
    const auto tokenizer = tokenizer_from_rwkv_vocab(text, {});
    return tokenizer.ok() ? std::string() : tokenizer.status().message();
  };
  EXPECT_EQ(message("1 'a' 1\nword\n"), "line 2: expected an id, a literal and a length");
  EXPECT_EQ(message("1 'ab' 1\n"), "line 1: token 1 has 2 bytes, the line says 1");
  EXPECT_EQ(message("1 ab 2\n"), "line 1: the literal ab is not between quotes");
  EXPECT_EQ(message("1 '\\q' 1\n"), "line 1: the literal '\\q' has an escape that is not known");
  EXPECT_EQ(message("0 'a' 1\n"), "line 1: token 0 is outside [1, 8]");
  // A line must not make a vocabulary of millions.
  EXPECT_EQ(message("16777215 'a' 1\n"), "line 1: token 16777215 is outside [1, 15]");
}

}  // namespace
}  // namespace redline
