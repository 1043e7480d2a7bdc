// Images whose steps are not finite: the component and the tensor that are to blame.
#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>

#include "redline/image.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

/// Returns the status of generating an image with a pipeline in which the tensor `tensor` of a component begins with
/// NaN.
Status generate_with_nan(const std::string& component, const std::string& weights, const std::string& tensor) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/pipeline";
  std::filesystem::copy(std::string(REDLINE_GOLDEN_DIR) + "/image/pipeline_pixart", path,
                        std::filesystem::copy_options::recursive);
  const std::string file = fmt::format("{}/{}/{}", path, component, weights);
  testing::SafetensorsFile tensors = testing::SafetensorsFile::read(file);
  EXPECT_TRUE(tensors.header.is_object() && tensors.header.contains(tensor)) << file << " " << tensor;
  if (!tensors.header.is_object() || !tensors.header.contains(tensor)) return {};
  EXPECT_EQ(tensors.header[tensor]["dtype"], "BF16");
  const uint16_t nan = 0x7fc0;
  std::memcpy(tensors.data.data() + tensors.header[tensor]["data_offsets"][0].get<size_t>(), &nan, sizeof nan);
  tensors.write(file);
  ImageOptions options;
  options.threads = 2;
  options.max_side = 96;
  auto engine = ImageEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  if (!engine.ok()) return engine.status();
  ImageRequest request = (*engine)->defaults();
  request.prompts = {"a large red circle"};
  request.width = request.height = 64;
  request.num_inference_steps = 1;
  request.max_sequence_length = 16;
  return (*engine)->generate(request, {}).status();
}

TEST(ImageBrokenWeights, TheTensorOfTheComponentIsNamed) {
  const Status denoiser = generate_with_nan("transformer", "diffusion_pytorch_model.safetensors",
                                            "transformer_blocks.0.ff.net.0.proj.bias");
  EXPECT_EQ(denoiser.code(), Code::io);
  EXPECT_THAT(denoiser.message(), HasSubstr("/transformer/diffusion_pytorch_model.safetensors: tensor "
                                            "transformer_blocks.0.ff.net.0.proj.bias is NaN at [0]"));
  EXPECT_THAT(generate_with_nan("vae", "diffusion_pytorch_model.safetensors", "decoder.conv_out.bias").message(),
              HasSubstr("/vae/diffusion_pytorch_model.safetensors: tensor decoder.conv_out.bias is NaN at [0]"));
}

}  // namespace
}  // namespace redline
