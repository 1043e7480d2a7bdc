// Shared parts of the tokenizer tests: vocabularies from GGUF files and test vectors.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/mapped_file.h"
#include "formats/gguf.h"
#include "text/gguf_vocab.h"
#include "text/tokenizer.h"

namespace redline {

inline std::string shared_path(const std::string& name) { return std::string(REDLINE_SHARED_DIR) + "/models/" + name; }

/// GTEST_SKIP with the reason when a file is not there.
#define REDLINE_NEED_FILE(path) \
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not here"

inline std::string must_read(const std::string& path) {
  auto text = read_text_file(path);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *text : std::string();
}

inline GgufVocab vocab_of(const GgufFile& file) {
  GgufVocab vocab;
  const auto find = [&](const std::string& key) { return file.find("tokenizer.ggml." + key); };
  const auto text = [&](const char* key) { return std::string(find(key) ? find(key)->as_string().value_or("") : ""); };
  const auto id = [&](const char* key) {
    return static_cast<int32_t>(find(key) ? find(key)->as_int().value_or(-1) : -1);
  };
  const auto flag = [&](const char* key) { return find(key) ? find(key)->as_bool() : std::nullopt; };
  vocab.model = text("model");
  vocab.pre = text("pre");
  vocab.tokens = find("tokens")->as_strings()->to_vector();
  if (find("merges")) vocab.merges = find("merges")->as_strings()->to_vector();
  if (find("scores")) {
    const auto scores = find("scores")->as_doubles().value();
    for (const double s : scores) vocab.scores.push_back(static_cast<float>(s));
  }
  if (find("token_type")) {
    const auto types = find("token_type")->as_ints().value();
    for (const int64_t t : types) vocab.token_types.push_back(static_cast<int32_t>(t));
  }
  vocab.bos = id("bos_token_id");
  vocab.eos = id("eos_token_id");
  vocab.unk = id("unknown_token_id");
  vocab.eot = id("eot_token_id");
  vocab.cls = id("cls_token_id");
  vocab.sep = id("seperator_token_id");
  vocab.add_bos = flag("add_bos_token");
  vocab.add_eos = flag("add_eos_token");
  vocab.add_space_prefix = flag("add_space_prefix");
  return vocab;
}

inline std::unique_ptr<Tokenizer> open_gguf_tokenizer(const std::string& path) {
  auto file = GgufFile::open(path);
  if (!file.ok()) {
    ADD_FAILURE() << file.status().to_string();
    return nullptr;
  }
  auto tokenizer = tokenizer_from_gguf(vocab_of(*file));
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
  return tokenizer.ok() ? std::move(*tokenizer) : nullptr;
}

/// ggml-vocab-NAME.gguf.inp and .out: texts with a separator line, ids one text a line.
struct Vector {
  std::string text;
  std::vector<TokenId> ids;
};
inline std::vector<Vector> read_vectors(const std::string& stem) {
  const std::string input = must_read(stem + ".inp");
  std::istringstream output(must_read(stem + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<Vector> vectors;
  for (size_t at = 0; at <= input.size();) {
    const size_t end = std::min(input.find(separator, at), input.size());
    Vector vector;
    vector.text = input.substr(at, end - at);
    std::string line;
    std::getline(output, line);
    std::istringstream ids(line);
    for (TokenId id; ids >> id;) vector.ids.push_back(id);
    vectors.push_back(std::move(vector));
    at = end + separator.size();
  }
  return vectors;
}

inline std::string show(const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += " " + std::to_string(id);
  return text;
}

}  // namespace redline
