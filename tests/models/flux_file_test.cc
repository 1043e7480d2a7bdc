#include "models/image/flux_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "models/image/image_models.h"
#include "support/image_builders.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

const std::string kFolder = REDLINE_GOLDEN_DIR "/image/flux_files/";

// A weight as a network reads it: rows in their order, float32.
std::vector<float> values_of(const WeightSource& source) {
  const TensorView& view = source.view;
  const int64_t rows = view.shape[0], columns = view.shape.size() > 1 ? view.shape[1] : 1;
  const int64_t bytes = row_bytes(view.dtype, columns);
  std::vector<float> values(static_cast<size_t>(rows * columns));
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t stored = source.source_row ? source.source_row(row) : row;
    unpack_row(view.dtype, static_cast<const uint8_t*>(view.data) + stored * bytes, values.data() + row * columns,
               columns);
  }
  return values;
}

// One set of tensors is written in diffusers' layout, in the original checkpoint's layout below a prefix, and in GGUF
// with 8-bit blocks whose values are exact: not one bit differs, and the config that follows from shapes builds the
// same network.
TEST(FluxFile, ThreeLayoutsAreOneTransformer) {
  const auto expected = Checkpoint::open(kFolder + "diffusers");
  ASSERT_TRUE(expected.ok()) << expected.status().to_string();
  const auto built = testing::build_flux(*expected, 1);
  ASSERT_TRUE(built.ok()) << built.status().to_string();
  int quantized = 0;
  for (const std::string name : {"original.safetensors", "original.gguf"}) {
    SCOPED_TRACE(name);
    const auto got = open_flux_file(kFolder + name);
    ASSERT_TRUE(got.ok()) << got.status().to_string();
    EXPECT_EQ(got->tensors.size(), expected->tensors.size());
    for (const auto& [tensor, source] : expected->tensors) {
      SCOPED_TRACE(tensor);
      const auto at = got->tensors.find(tensor);
      ASSERT_NE(at, got->tensors.end());
      ASSERT_EQ(at->second.view.shape, source.view.shape);
      EXPECT_EQ(values_of(at->second), values_of(source));
      ASSERT_NE(at->second.file, nullptr) << "a view that nothing keeps";
      quantized += dtype_info(at->second.view.dtype).is_block;
    }
    for (const char* key :
         {"in_channels", "num_layers", "num_single_layers", "attention_head_dim", "num_attention_heads",
          "joint_attention_dim", "pooled_projection_dim", "guidance_embeds", "axes_dims_rope", "patch_size"})
      EXPECT_EQ(got->config[key], expected->config[key]) << key;
    const auto model = testing::build_flux(*got, 1);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_EQ(model->middle.ops.size(), built->middle.ops.size());
    EXPECT_TRUE(model->takes_guidance);
  }
  EXPECT_GT(quantized, 20);
  const auto plain = open_flux_file(kFolder + "diffusers/diffusion_pytorch_model.safetensors");
  ASSERT_TRUE(plain.ok()) << plain.status().to_string();
  EXPECT_EQ(plain->tensors.size(), expected->tensors.size());
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(FluxFile, ErrorsSayWhatIsWrong) {
  const testing::TemporaryFolder folder;
  const std::string good = slurp(kFolder + "original.safetensors"), path = folder.path() + "/x.safetensors";
  const auto expect = [&](const std::string& from, const std::string& to, Code code, const std::string& words) {
    std::string bytes = good;
    if (!from.empty()) {
      ASSERT_EQ(from.size(), to.size());
      ASSERT_NE(bytes.find(from), std::string::npos) << from;
      for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size())
        bytes.replace(at, from.size(), to);
    }
    std::ofstream(path, std::ios::binary) << bytes;
    const auto opened = open_flux_file(path);
    ASSERT_FALSE(opened.ok()) << words;
    EXPECT_EQ(opened.status().code(), code) << opened.status().to_string();
    EXPECT_THAT(opened.status().message(), HasSubstr(words));
    EXPECT_THAT(opened.status().message(), HasSubstr(folder.path()));
  };
  // Without config.json: nothing says how heads of 16 rotate.
  expect("", "", Code::unsupported, "heads of 16 elements; those of FLUX.1 have 128. Put the model's config.json");
  const auto config = [&](const std::string& text) { std::ofstream(folder.path() + "/config.json") << text; };
  config("[]");
  expect("", "", Code::invalid_argument, "config.json: not a JSON object");
  config(R"({"axes_dims_rope": [4, 6, 6], "num_layers": 19})");
  expect("", "", Code::invalid_argument, "num_layers contradicts the tensors of");
  config(R"({"axes_dims_rope": [4, 6, 6]})");
  expect("img_attn.norm.key_norm", "img_attn.norm.kex_norm", Code::unsupported, "not a FLUX.1 transformer: neither");
  expect("txt_mlp.2.bias", "txt_mlp.3.bias", Code::unsupported,
         "tensor \"double_blocks.0.txt_mlp.3.bias\" is not part of a supported FLUX.1 transformer");
  expect("single_blocks.0", "single_blocks.x", Code::unsupported, "is not part of a supported FLUX.1 transformer");
  expect("img_in.weight", "img_in.weighs", Code::invalid_argument, "tensor img_in.weight is missing");
  // [96, 32] becomes [32, 96]: as many bytes, other rows.
  expect("\"shape\":[96,32]", "\"shape\":[32,96]", Code::invalid_argument,
         "img_attn.qkv.weight has 32 rows, expected 96 with an img_in of 32");
  EXPECT_EQ(open_flux_file(folder.path() + "/nothing.safetensors").status().code(), Code::not_found);
  EXPECT_EQ(open_flux_file(folder.path() + "/nothing.gguf").status().code(), Code::not_found);
}

}  // namespace
}  // namespace redline
