// Loaders: llama2.c's tokenizer.bin, configuration files, and files that are broken on purpose.
#include <fstream>
#include <random>

#include <nlohmann/json.hpp>
#include "text/hf_config.h"
#include "text/pre_tokenizer.h"
#include "text/regex.h"

#include "vocab_files.h"

namespace redline {
namespace {

std::string golden_text(const std::string& name) {
  return must_read(fmt::format("{}/tests/golden/tokenizers/{}.json", REDLINE_SOURCE_DIR, name));
}

bool mentions(const Status& status, std::string_view words) {
  return status.message().find(words) != std::string::npos;
}

/// A SentencePiece model written by hand: three pieces, BPE.
std::string small_sentencepiece() {
  std::string model;
  const auto piece = [&](const std::string& text, char type) {
    std::string body = "\x0A" + std::string(1, static_cast<char>(text.size())) + text;
    body += std::string("\x15\x00\x00\x80\xBF", 5);
    body += std::string("\x18") + type;
    model += "\x0A" + std::string(1, static_cast<char>(body.size())) + body;
  };
  piece("<unk>", 2);
  piece("<s>", 3);
  piece("</s>", 3);
  piece("a", 1);
  piece("aa", 1);
  model += std::string("\x12\x02\x18\x02", 4);          // trainer_spec.model_type = BPE
  model += std::string("\x1A\x04\x18\x00\x20\x00", 6);  // no dummy prefix, no removal of spaces
  return model;
}

/// Loads it, and uses it when it loads: nothing may crash.
template <class Load>
void try_mutations(const std::string& good, Load&& load, int count) {
  std::mt19937 random(11);
  for (int i = 0; i < count; ++i) {
    std::string bad = good;
    if (i % 3 == 0) {
      bad.resize(random() % (good.size() + 1));
    } else {
      for (int k = 0; k < 1 + i % 4; ++k) bad[random() % bad.size()] = static_cast<char>(random());
    }
    Result<std::unique_ptr<Tokenizer>> tokenizer = load(bad);
    if (!tokenizer.ok()) {
      EXPECT_FALSE(tokenizer.status().message().empty());
      continue;
    }
    const auto ids = (*tokenizer)->encode("Once upon a time 12345 <s>aaa\xFF", {.parse_special = true});
    (*tokenizer)->decode(ids, true);
  }
}

TEST(Loaders, MutatedFilesNeverCrash) {
  try_mutations(
      small_sentencepiece(), [](const std::string& b) { return tokenizer_from_sentencepiece(b, ""); }, 3000);
  for (const char* name : {"gpt2", "llama2", "words", "bert"}) {
    try_mutations(
        golden_text(name), [](const std::string& b) { return tokenizer_from_json(b, ""); }, 150);
  }
}

TEST(Loaders, MutatedFilesOfImagesNeverCrash) {
  const std::string root = std::string(REDLINE_SOURCE_DIR) + "/assets/redline-shapes/";
  constexpr int kFew = 40;  // each is a few hundred kilobytes
  for (const char* name : {"tokenizer/tokenizer.json", "tokenizer_2/tokenizer.json"})
    try_mutations(
        must_read(root + name), [](const std::string& b) { return tokenizer_from_json(b, ""); }, kFew);
  try_mutations(
      must_read(root + "tokenizer_2/spiece.model"),
      [](const std::string& b) { return tokenizer_from_sentencepiece(b, R"({"tokenizer_class": "T5Tokenizer"})"); },
      20 * kFew);
  const std::string vocab = must_read(root + "tokenizer/vocab.json"), merges = must_read(root + "tokenizer/merges.txt");
  try_mutations(
      vocab + '\0' + merges,
      [](const std::string& b) {
        HfConfig config;
        config.tokenizer_class = "CLIPTokenizer";
        const size_t cut = std::min(b.find('\0'), b.size());
        return tokenizer_from_vocab_and_merges(b.substr(0, cut), b.substr(std::min(cut + 1, b.size())), config);
      },
      10 * kFew);
}

TEST(Loaders, SentencePieceByHand) {
  const std::string model = small_sentencepiece();
  const auto tokenizer = tokenizer_from_sentencepiece(model, "");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ((*tokenizer)->encode("aaa"), (std::vector<TokenId>{1, 4, 3}));
  EXPECT_EQ((*tokenizer)->encode("aaa", {.add_special = false}), (std::vector<TokenId>{4, 3}));
  const auto plain = tokenizer_from_sentencepiece(model, R"({"add_bos_token": false, "add_eos_token": true})");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ((*plain)->encode("a"), (std::vector<TokenId>{3, 2}));
  for (size_t size = 0; size < model.size(); ++size) {
    const auto cut = tokenizer_from_sentencepiece(model.substr(0, size), "");
    EXPECT_TRUE(cut.ok() || cut.status().code() == Code::invalid_argument || cut.status().code() == Code::unsupported);
  }
}

TEST(Loaders, OtherModelsAreRefusedByName) {
  for (const auto& [json, words] :
       {std::pair<std::string, const char*>{R"({"model": {"type": "Chars", "vocab": {}}})", "Chars"},
        {R"({"model": {"type": "WordLevel", "vocab": {"<unk>": 0}}, "pre_tokenizer": {"type": "UnicodeScripts"}})",
         "UnicodeScripts"},
        {R"({"model": {"type": "WordLevel", "vocab": {"<unk>": 0}}, "decoder": {"type": "CTC"}})", "CTC"}}) {
    const auto tokenizer = tokenizer_from_json(json, "");
    ASSERT_FALSE(tokenizer.ok());
    EXPECT_EQ(tokenizer.status().code(), Code::unsupported);
    EXPECT_TRUE(mentions(tokenizer.status(), words)) << tokenizer.status().to_string();
  }
  const auto no_unk = tokenizer_from_json(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}}})", "");
  EXPECT_TRUE(mentions(no_unk.status(), "model.unk_token \"<unk>\" is not in the vocabulary"));
  const auto no_prefix = tokenizer_from_json(R"({"model": {"type": "BPE", "continuing_subword_prefix": "##",
      "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})",
                                             "");
  EXPECT_TRUE(mentions(no_prefix.status(), "the right side does not begin with \"##\""))
      << no_prefix.status().to_string();
  const auto no_token = tokenizer_from_json(
      R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b", "ab b"]}})", "");
  EXPECT_TRUE(mentions(no_token.status(), "model.merges: merge 1 (\"ab\" \"b\"): \"abb\" is not in the vocabulary"))
      << no_token.status().to_string();
  GgufVocab vocab;
  vocab.model = "plamo2";
  EXPECT_TRUE(mentions(tokenizer_from_gguf(vocab).status(), "plamo2"));
  vocab.model = "gpt2";
  vocab.tokens = {"a", "b", "ab"};
  vocab.merges = {"a b"};
  vocab.pre = "nobody";
  const auto unknown = tokenizer_from_gguf(vocab);
  ASSERT_FALSE(unknown.ok());
  EXPECT_TRUE(mentions(unknown.status(), "nobody") && mentions(unknown.status(), "llama-bpe"))
      << unknown.status().to_string();
}

TEST(Loaders, ListsNestedWithoutEndAreNoReasonToRecurse) {
  const std::string model = R"("model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [)";
  for (const size_t depth : {size_t{10}, size_t{300000}}) {
    const std::string deep = std::string(depth, '[') + std::string(depth, ']');
    for (const auto& [json, words] :
         {std::pair{"{\"added_tokens\": [" + deep + "], " + model + "]}}", "added_tokens: a nested array"},
          std::pair{"{" + model + deep + "]}}", "model.merges[0] is a nested array"}}) {
      const auto tokenizer = tokenizer_from_json(json, "");
      ASSERT_FALSE(tokenizer.ok());
      EXPECT_TRUE(mentions(tokenizer.status(), depth == 10 ? words : "JSON nested more than 64 levels deep"))
          << tokenizer.status().to_string();
    }
  }
}

TEST(Loaders, GgufContradictionsAreNamed) {
  GgufVocab good;
  good.model = "gpt2";
  good.pre = "gpt-2";
  good.tokens = {"a", "b", "ab", "<|im_end|>"};
  good.merges = {"a b"};
  good.token_types = {1, 1, 1, 3};
  good.eos = 3;
  ASSERT_TRUE(tokenizer_from_gguf(good).ok());
  const auto refused = [&](auto change, const char* words) {
    GgufVocab bad = good;
    change(bad);
    const auto tokenizer = tokenizer_from_gguf(bad);
    ASSERT_FALSE(tokenizer.ok()) << words;
    EXPECT_TRUE(mentions(tokenizer.status(), words)) << tokenizer.status().to_string();
  };
  refused([](GgufVocab& v) { v.tokens.clear(); }, "tokenizer.ggml.tokens");
  refused([](GgufVocab& v) { v.eos = 4; }, "eos_token_id is 4");
  refused([](GgufVocab& v) { v.bos = -7; }, "bos_token_id is -7");
  refused([](GgufVocab& v) { v.token_types.pop_back(); }, "token_type has 3");
  refused([](GgufVocab& v) { v.token_types[1] = 9; }, "token_type[1] is 9");
  refused([](GgufVocab& v) { v.merges = {"ab"}; }, "merges[0]");
  refused([](GgufVocab& v) { v.merges.clear(); }, "merges");
  refused([](GgufVocab& v) { v.model = "llama", v.scores = {1}; }, "1 scores for 4");
}

TEST(Loaders, EveryNamedPreTokenizerCompiles) {
  const auto unknown = named_pre_tokenizer("?");
  ASSERT_FALSE(unknown.ok());
  std::string names = unknown.status().message();
  names = names.substr(names.find("known are ") + 10);
  size_t count = 0;
  for (size_t at = 0; at < names.size(); ++count) {
    const size_t end = std::min(names.find(", ", at), names.size());
    const auto made = named_pre_tokenizer(names.substr(at, end - at));
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    at = end + 2;
  }
  EXPECT_GE(count, 60u);
}

TEST(Loaders, StopTokensComeFromAllFiles) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "redline_stop_tokens";
  std::filesystem::create_directories(folder);
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  EXPECT_EQ(tokenizer_from_folder(folder.string() + "/nothing").status().code(), Code::not_found);
  write("tokenizer.json", golden_text("gpt2"));
  write("tokenizer_config.json", R"({"eos_token": {"content": "<|end|>"}, "bos_token": "<s>"})");
  write("generation_config.json", R"({"eos_token_id": [360, 361, 999999]})");
  auto tokenizer = tokenizer_from_folder(folder.string());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  EXPECT_EQ((*tokenizer)->stop_tokens(), (std::vector<TokenId>{360, 361, 362}));
  EXPECT_EQ((*tokenizer)->bos(), 360);
  EXPECT_TRUE((*tokenizer)->adds_bos());
  write("generation_config.json", R"({"eos_token_id": "x"})");
  tokenizer = tokenizer_from_folder(folder.string());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_TRUE(mentions(tokenizer.status(), "eos_token_id")) << tokenizer.status().to_string();
  write("generation_config.json", R"({"eos_token_id": )");
  tokenizer = tokenizer_from_folder(folder.string());
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_TRUE(mentions(tokenizer.status(), "byte 17")) << tokenizer.status().to_string();
  std::filesystem::remove_all(folder);
}

TEST(Llama2c, VocabulariesGiveTheReferenceText) {
  struct Case {
    const char* folder;
    const char* file;
    int64_t size;
  };
  for (const Case c : {Case{"stories260K", "tok512.bin", 512},
                       {"babyllama-tok105", "tok105.bin", 105},
                       {"babyllama-tok361", "tok361.bin", 361}}) {
    const std::string path = shared_path(fmt::format("{}/{}", c.folder, c.file));
    REDLINE_NEED_FILE(path);
    SCOPED_TRACE(path);
    const std::string bytes = must_read(path);
    auto vocab = vocab_from_llama2c(bytes, c.size);
    ASSERT_TRUE(vocab.ok()) << vocab.status().to_string();
    EXPECT_EQ(vocab->tokens[1], "<s>");
    const auto tokenizer = tokenizer_from_gguf(*vocab);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    const auto reference = nlohmann::json::parse(must_read(shared_path(std::string(c.folder) + "/ref_greedy.json")));
    const auto ids = reference["greedy_ids"].get<std::vector<TokenId>>();
    std::string text = reference["text"].get<std::string>();
    // The reference wrote byte tokens by their names.
    for (size_t at; (at = text.find("<0x0A>")) != std::string::npos;) text.replace(at, 6, "\n");
    EXPECT_EQ((*tokenizer)->decode(ids), text.substr(1));  // after BOS one space is dropped
    EXPECT_EQ((*tokenizer)->encode("Once upon a time")[0], 1);
    EXPECT_EQ((*tokenizer)->stop_tokens(), (std::vector<TokenId>{2}));
    for (size_t size = 0; size < bytes.size(); size += 7)
      EXPECT_FALSE(vocab_from_llama2c(bytes.substr(0, size), c.size).ok());
    EXPECT_FALSE(vocab_from_llama2c(bytes, c.size + 1).ok());
    EXPECT_FALSE(vocab_from_llama2c(bytes, c.size - 1).ok());
    EXPECT_FALSE(vocab_from_llama2c(bytes, -1).ok());
    EXPECT_FALSE(vocab_from_llama2c(bytes, INT64_MAX).ok());
  }
}

TEST(Regex, OnigurumaSpellings) {
  const auto matches = [](const char* pattern, std::string_view text) {
    auto regex = Regex::compile(pattern);
    EXPECT_TRUE(regex.ok()) << regex.status().to_string();
    std::vector<Regex::Span> spans;
    if (regex.ok()) regex->find_all(text, spans);
    std::string out;
    for (const auto& s : spans) out += fmt::format("[{}]", text.substr(s.begin, s.end - s.begin));
    return out;
  };
  EXPECT_EQ(matches("\\p{N}{1,2}+x", "12345x"), "[12345x]");
  EXPECT_EQ(matches("a{,2}b", "aaab b"), "[aab][b]");
  EXPECT_EQ(matches("\\s", "\xE1\xA0\x8E\xC2\x85"), "[\xC2\x85]");  // U+180E is not a space
  EXPECT_EQ(matches("a.c",
                    "a\xFF"
                    "c abc"),
            "[abc]");  // ill-formed bytes are matched by nothing
  EXPECT_EQ(matches("^b", "a\nb"), "[b]");
  EXPECT_EQ(matches("(a|aa)+$", std::string(40, 'a') + "b"), "");
  EXPECT_FALSE(Regex::compile("[a-z&&[^b]]").ok());
  EXPECT_FALSE(Regex::compile("(").ok());
  EXPECT_FALSE(Regex::compile("[a").ok());
  EXPECT_FALSE(Regex::compile("\\").ok());
}

}  // namespace
}  // namespace redline
