#include "lab/random/random_adapter.h"

#include <gmock/gmock.h>

#include "models/files/random_model.h"
#include "redline/text.h"
#include "support/temporary_folder.h"

namespace redline::lab {
namespace {

TEST(RandomAdapters, AreLoadedAndChangeTheText) {
  const testing::TemporaryFolder folder;
  const auto files = save_random_adapters("random:tiny:q4_0", 2, 4, folder.path());
  ASSERT_TRUE(files.ok()) << files.status().to_string();
  ASSERT_EQ(files->size(), 2u);
  TextEngineOptions options;
  options.threads = 1;
  options.max_adapter_rank = 4;
  const auto engine = TextEngine::open("random:tiny:q4_0", options);
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  std::vector<std::vector<float>> logits;
  for (const AdapterWeights& weights : {AdapterWeights{}, {{"0", 1.0}}, {{"1", 1.0}}}) {
    if (!weights.empty()) {
      const std::string& name = weights[0].first;
      const Status loaded = (*engine)->load_adapter(name, files->at(static_cast<size_t>(std::stoi(name))));
      ASSERT_TRUE(loaded.ok()) << loaded.to_string();
    }
    const auto sequence = (*engine)->new_sequence(weights);
    ASSERT_TRUE(sequence.ok());
    const std::vector<int32_t> tokens = {1, 2, 3};
    logits.push_back((*sequence)->forward(tokens).value());
  }
  EXPECT_NE(logits[0], logits[1]);
  EXPECT_NE(logits[1], logits[2]);
}

TEST(RandomAdapters, ErrorsNameWhatIsWrong) {
  EXPECT_FALSE(save_random_adapters("random:none:q4_0", 1, 4, ".").ok());
  EXPECT_FALSE(save_random_adapters("random:tiny:q4_0", 1, 4, "/nowhere").ok());
}

}  // namespace
}  // namespace redline::lab
