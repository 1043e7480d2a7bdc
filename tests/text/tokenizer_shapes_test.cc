// Golden files of make_tokenizer_vectors.py: tokenizer.json files of many shapes, ids by the tokenizers package.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "vocab_files.h"

namespace redline {
namespace {

TEST(TokenizerShapes, IdsAreThoseOfTheTokenizersPackage) {
  const std::filesystem::path folder = std::string(REDLINE_SOURCE_DIR) + "/tests/golden/tokenizers";
  size_t shapes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() != ".json" || name.ends_with(".vectors")) continue;
    SCOPED_TRACE(name);
    const auto tokenizer = tokenizer_from_json(must_read(entry.path().string()), "");
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().to_string();
    const auto vectors = nlohmann::json::parse(must_read((folder / (name + ".vectors.json")).string()));
    for (const auto& v : vectors) {
      const auto text = v["text"].get<std::string>();
      const auto ids = v["ids"].get<std::vector<TokenId>>();
      EXPECT_EQ((*tokenizer)->encode(text), ids) << text;
      const auto special = v.contains("special_ids") ? v["special_ids"].get<std::vector<TokenId>>() : ids;
      EXPECT_EQ((*tokenizer)->encode(text, {.parse_special = true}), special) << text;
      if (v.contains("decoded")) {
        EXPECT_EQ((*tokenizer)->decode(ids, false), v["decoded"].get<std::string>()) << text;
      }
    }
    ++shapes;
  }
  EXPECT_GE(shapes, 16u);
}

}  // namespace
}  // namespace redline
