// The golden encoders of tests/golden/encoders: tiny random checkpoints and what transformers computes with them.
#pragma once

#include "models/registry.h"
#include "support/image_golden.h"

namespace redline::testing {

inline std::string encoder_root() { return golden_root() + "/encoders"; }

/// "bert", "bert/model.gguf", ...; sorted.
inline std::vector<std::string> encoder_models() {
  std::vector<std::string> models;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(encoder_root(), error)) {
    if (!std::filesystem::exists(entry.path() / "io.npz")) continue;
    if (read_json((entry.path() / "config.json").string())["model_type"] == "qwen3") continue;  // a decoder
    models.push_back(entry.path().filename().string());
    if (std::filesystem::exists(entry.path() / "model.gguf")) models.push_back(models.back() + "/model.gguf");
  }
  std::sort(models.begin(), models.end());
  return models;
}

struct EncoderGolden {
  Checkpoint checkpoint;
  std::vector<int32_t> tokens, token_types, lengths;
  NpyArray hidden, scores;  ///< [tokens, width]; [texts, labels] of a classifier, else empty

  int64_t width() const { return hidden.dim(1); }
  int64_t first_row(size_t text) const {
    int64_t row = 0;
    for (size_t i = 0; i < text; ++i) row += lengths[i];
    return row;
  }
};

inline EncoderGolden load_encoder_golden(const std::string& name) {
  EncoderGolden golden;
  auto checkpoint = Checkpoint::open(encoder_root() + "/" + name);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  if (checkpoint.ok()) golden.checkpoint = std::move(checkpoint).value();
  auto arrays = read_npz(encoder_root() + "/" + name.substr(0, name.find('/')) + "/io.npz");
  EXPECT_TRUE(arrays.ok()) << arrays.status().message();
  if (!arrays.ok()) return golden;
  const auto integers = [&](const char* key) {
    const auto& values = (*arrays)[std::string("all.") + key].values;
    return std::vector<int32_t>(values.begin(), values.end());
  };
  golden.tokens = integers("tokens");
  golden.token_types = integers("token_types");
  golden.lengths = integers("lengths");
  golden.hidden = (*arrays)["all.hidden"];
  if (arrays->count("all.scores")) golden.scores = (*arrays)["all.scores"];
  return golden;
}

}  // namespace redline::testing
