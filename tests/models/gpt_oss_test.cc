// gpt-oss in MXFP4, as it is published: the same logits as of the unpacked weights, and what is wrong is named.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "models/files/checkpoint_to_gguf.h"
#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"
#include "tensor/tensor_view.h"

namespace redline::testing {
namespace {

constexpr double kE2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};

/// A matrix of experts as the published files have it: codes two by two, and an exponent for each 32 of a row.
struct Fp4 {
  int64_t experts, rows, cols;
  std::vector<uint8_t> blocks, scales;

  Fp4(int64_t experts, int64_t rows, int64_t cols, uint32_t seed) : experts(experts), rows(rows), cols(cols) {
    std::mt19937 random(seed);
    blocks.resize(static_cast<size_t>(experts * rows * cols / 2));
    scales.resize(static_cast<size_t>(experts * rows * cols / 32));
    for (uint8_t& b : blocks) b = static_cast<uint8_t>(random());
    for (uint8_t& s : scales) s = static_cast<uint8_t>(121 + random() % 4);
  }
  double at(int64_t expert, int64_t row, int64_t col) const {
    const int64_t i = (expert * rows + row) * cols + col;
    const int code = blocks[static_cast<size_t>(i / 2)] >> (i % 2 * 4) & 15;
    return std::ldexp(kE2m1[code], scales[static_cast<size_t>(i / 32)] - 127);
  }
  /// [experts, cols, rows] in bfloat16, which holds every value exactly.
  std::vector<uint16_t> transposed() const {
    std::vector<uint16_t> values;
    for (int64_t e = 0; e < experts; ++e)
      for (int64_t c = 0; c < cols; ++c)
        for (int64_t r = 0; r < rows; ++r) values.push_back(f32_to_bf16(static_cast<float>(at(e, r, c))));
    return values;
  }
};

class GptOss : public ::testing::Test {
 protected:
  /// The golden model with random MXFP4 experts, packed or not.
  std::string make(bool packed, const std::function<void(SafetensorsFile&)>& change = {}) {
    const std::string source = golden_root() + "/gpt_oss", folder = temporary_.path() + (packed ? "/packed" : "/plain");
    std::filesystem::create_directories(folder);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(source + "/config.json"));
    if (packed)
      config["quantization_config"] = {{"quant_method", "mxfp4"}, {"modules_to_not_convert", nlohmann::json::array()}};
    std::ofstream(folder + "/config.json") << config;
    const SafetensorsFile from = SafetensorsFile::read(source + "/model.safetensors");
    SafetensorsFile to;
    for (const auto& [name, entry] : from.header.items()) {
      if (name == "__metadata__") continue;
      const auto shape = entry["shape"].get<std::vector<int64_t>>();
      const size_t size = entry["data_offsets"][1].get<size_t>() - entry["data_offsets"][0].get<size_t>();
      if (shape.size() != 3) {
        to.add(name, "BF16", shape, from.bytes_of(name), size);
        continue;
      }
      const Fp4 fp4(shape[0], shape[2], shape[1], static_cast<uint32_t>(std::hash<std::string>()(name)));
      if (packed) {
        to.add(name + "_blocks", "U8", {fp4.experts, fp4.rows, fp4.cols / 32, 16}, fp4.blocks.data(),
               fp4.blocks.size());
        to.add(name + "_scales", "U8", {fp4.experts, fp4.rows, fp4.cols / 32}, fp4.scales.data(), fp4.scales.size());
      } else {
        const std::vector<uint16_t> values = fp4.transposed();
        to.add(name, "BF16", shape, values.data(), 2 * values.size());
      }
    }
    if (change) change(to);
    to.write(folder + "/model.safetensors");
    return folder;
  }
  static TextEngineOptions float32() {
    TextEngineOptions options;
    options.threads = 2;
    options.dtype = ComputeType::kF32;
    options.context = 64;
    return options;
  }
  TemporaryFolder temporary_;
  std::vector<int32_t> tokens_ = {1, 40, 7, 33, 12, 59, 3, 28, 5, 46, 17};
};

TEST_F(GptOss, PackedExpertsGiveTheLogitsOfUnpackedOnes) {
  const std::string packed_folder = make(true), plain_folder = make(false);
  const auto packed = open_engine(packed_folder, float32()), plain = open_engine(plain_folder, float32());
  ASSERT_TRUE(packed && plain);
  EXPECT_THAT(packed->info().weight_types, ::testing::HasSubstr("mxfp4 x54"));  // 3 layers of 6 experts
  EXPECT_THAT(plain->info().weight_types, ::testing::Not(::testing::HasSubstr("mxfp4")));
  const std::vector<float> a = all_logits(*packed, tokens_), b = all_logits(*plain, tokens_);
  ASSERT_EQ(a.size(), b.size());
  ASSERT_FALSE(a.empty());
  const int64_t vocab = packed->info().vocab_size;
  // Both sum equal numbers, in another order.
  EXPECT_LE(difference(a.data(), b.data(), static_cast<int64_t>(tokens_.size()), vocab).all, 5e-6);
}

TEST_F(GptOss, StaysPackedInGguf) {
  const std::string folder = make(true), file = temporary_.path() + "/model.gguf";
  auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok());
  GgufWriter writer;
  const Status status = checkpoint_to_gguf(*checkpoint, {.has_tokenizer = false}, writer);
  ASSERT_TRUE(status.ok()) << status.to_string();
  ASSERT_TRUE(writer.write(file).ok());
  const auto of_folder = open_engine(folder, float32()), of_file = open_engine(file, float32());
  ASSERT_TRUE(of_folder && of_file);
  EXPECT_THAT(of_file->info().weight_types, ::testing::HasSubstr("mxfp4 x54"));
  EXPECT_EQ(all_logits(*of_folder, tokens_), all_logits(*of_file, tokens_));
}

TEST_F(GptOss, WhatIsWrongIsNamed) {
  const auto message = [&](const std::function<void(SafetensorsFile&)>& change) {
    return std::string(TextEngine::open(make(true, change), float32()).status().message());
  };
  const std::string name = "model.layers.1.mlp.experts.down_proj";
  EXPECT_THAT(message([&](SafetensorsFile& f) { f.header.erase(name + "_scales"); }),
              ::testing::HasSubstr("tensor " + name + "_scales is missing"));
  EXPECT_THAT(message([&](SafetensorsFile& f) {
                f.header[name + "_blocks"]["shape"] = {6, 32, 4, 8};
              }),
              ::testing::HasSubstr(name + "_blocks"));
  EXPECT_THAT(
      message([&](SafetensorsFile& f) { f.rename("model.layers.0.self_attn.sinks", "model.layers.0.self_attn.sink"); }),
      ::testing::HasSubstr("self_attn.sinks is missing"));
}

}  // namespace
}  // namespace redline::testing
