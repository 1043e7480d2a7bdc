// Networks from tensors in memory, beside the same networks from files.
#include "redline/network.h"

#include <gmock/gmock.h>

#include <numeric>

#include "diffusion/vae_codec.h"
#include "support/denoiser_harness.h"
#include "support/image_sizes.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A golden network whose tensors lie in the test's memory while it is opened, and are then overwritten.
Result<std::unique_ptr<ImageNetwork>> open_in_memory(const std::string& name, const std::string& class_name,
                                                     const NetworkOptions& given) {
  const testing::ImageGolden golden = testing::load_image_golden(name);
  std::map<std::string, std::vector<char>> bytes;
  std::vector<NamedTensor> tensors;
  for (const auto& [key, source] : golden.checkpoint.tensors) {
    const auto* data = static_cast<const char*>(source.view.data);
    std::vector<char>& own = bytes[key];
    own.assign(data, data + source.view.bytes());
    const TensorType type = source.view.dtype == DType::kF32   ? TensorType::kF32
                            : source.view.dtype == DType::kF16 ? TensorType::kF16
                                                               : TensorType::kBF16;
    tensors.push_back({key, type, source.view.shape, own.data()});
  }
  NetworkOptions options = given;
  options.threads = 2;
  options.dtype = Precision::kF32;
  options.max_latent_side = 16;
  options.max_text_tokens = 8;
  auto network = ImageNetwork::open(class_name, golden.checkpoint.config.dump(), tensors, options);
  for (auto& [key, own] : bytes) std::fill(own.begin(), own.end(), '\xff');
  return network;
}

/// The inputs of a call: some rows of a batch, with latents in planes.
struct Inputs {
  std::vector<float> latents;
  float timestep = 500;
  DenoiserBatch batch;
  std::vector<NamedTensor> tensors;

  Inputs(const DenoiserModel& model, const DenoiserBatch& all, std::vector<float> x)
      : latents(std::move(x)), batch(all) {
    const LatentShape& l = batch.latents;
    const int64_t rows = batch.rows;
    tensors = {
        {"latents",
         TensorType::kF32,
         {rows, std::ssize(latents) / (rows * l.height * l.width), l.height, l.width},
         latents.data()},
        {"timestep", TensorType::kF32, {1}, &timestep},
        {"text", TensorType::kF32, {rows, batch.text_tokens, model.text_width}, batch.conditions["text"].data()}};
    if (model.pooled_width > 0) add("pooled", {rows, model.pooled_width});
    if (model.takes_guidance) add("guidance", {rows});
    if (model.num_time_ids > 0) add("time_ids", {rows, model.num_time_ids});
    if (model.masks_text)
      tensors.push_back({"key_lengths", TensorType::kI32, {rows}, batch.integer_conditions["key_lengths"].data()});
  }
  void add(const char* name, std::vector<int64_t> shape) {
    tensors.push_back({name, TensorType::kF32, std::move(shape), batch.conditions[name].data()});
  }
  Inputs(const Inputs&) = delete;
  Inputs& operator=(const Inputs&) = delete;
};

/// The values of rows [begin, begin + count) of a batch.
DenoiserBatch rows_of(const DenoiserBatch& all, int64_t begin, int64_t count) {
  DenoiserBatch some = all;
  some.rows = some.images = count;
  const auto cut = [&](auto& conditions) {
    for (auto& [name, values] : conditions) {
      const auto n = std::ssize(values) / all.rows;
      values.erase(values.begin() + (begin + count) * n, values.end());
      values.erase(values.begin(), values.begin() + begin * n);
    }
  };
  cut(some.conditions);
  cut(some.integer_conditions);
  return some;
}

std::vector<float> run(ImageNetwork& network, const Inputs& inputs, const NetworkStep& step = {}) {
  const LatentShape& l = inputs.batch.latents;
  std::vector<float> out(static_cast<size_t>(inputs.batch.rows * l.elements()));
  const NamedOutput output = {"model_output", out};
  const Status status = network.run(inputs.tensors, {&output, 1}, step);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

std::vector<float> normal_latents(int64_t count, uint32_t seed) {
  std::vector<float> x;
  testing::append_normal(x, count, seed);
  return x;
}

std::vector<float> joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Batches of other sizes may be multiplied by other kernels, whose sums have another order.
void expect_close(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  float most = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(expected[i]));
    error = std::max(error, std::abs(got[i] - expected[i]));
  }
  EXPECT_LE(error, 1e-5F * most);
}

class ImageNetworkGolden : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(ImageNetworkGolden, HasTheBitsOfTheNetworkFromAFile) {
  const auto& [name, class_name] = GetParam();
  testing::GoldenDenoiser file = testing::make_denoiser(name, 1);
  ASSERT_TRUE(file.denoiser);
  const DenoiserModel& model = file.denoiser->model();
  auto memory = open_in_memory(name, class_name, {});
  ASSERT_TRUE(memory.ok()) << memory.status().to_string();

  const DenoiserBatch batch = testing::random_batch(model, {1, 2});
  const std::vector<float> x = normal_latents(2 * batch.latents.elements(), 5);
  ASSERT_TRUE(file.denoiser->begin(batch).ok());
  std::vector<float> expected(x.size());
  const int64_t rows[] = {0, 1};
  ASSERT_TRUE(file.denoiser->evaluate(rows, packed_images(batch.latents, x), 500, expected).ok());
  expected = unpacked_images(batch.latents, expected);
  const Inputs inputs(model, batch, x);
  EXPECT_EQ(run(**memory, inputs), expected);
  EXPECT_EQ(run(**memory, inputs), expected);  // goes on in the same batch

  // Branches of guidance: in one call with the unconditional half first, and in calls of their own. Each row is what it
  // is alone, to the rounding of sums.
  const size_t half = x.size() / 2;
  const std::vector<float> one(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(half));
  const Inputs first(model, rows_of(batch, 0, 1), one), second(model, rows_of(batch, 1, 1), one);
  const std::vector<float> a = run(**memory, first), b = run(**memory, second);
  EXPECT_NE(a, b);
  expect_close(run(**memory, Inputs(model, batch, joined(one, one))), joined(a, b));
  for (int again = 0; again < 2; ++again) {
    expect_close(run(**memory, first, {.context = "cond"}), a);
    expect_close(run(**memory, second, {.context = "uncond"}), b);
  }
  // Announced timesteps change nothing.
  expect_close(run(**memory, second, {.timesteps = {700, 500, 200}}), b);
}

TEST_P(ImageNetworkGolden, FollowsAStepCache) {
  const auto& [name, class_name] = GetParam();
  testing::GoldenDenoiser file = testing::make_denoiser(name);
  auto memory = open_in_memory(name, class_name, {});
  ASSERT_TRUE(file.denoiser && memory.ok());
  const DenoiserModel& model = file.denoiser->model();
  ASSERT_TRUE((*memory)->set_cache("mask:steps=0+2,span=output", -1, 0).ok());
  const DenoiserBatch batch = testing::random_batch(model, {1, 2});
  const std::vector<float> one = normal_latents(batch.latents.elements(), 5);
  const Inputs inputs(model, batch, joined(one, one));
  std::vector<std::vector<float>> outputs;
  for (int64_t step = 0; step < 4; ++step)
    outputs.push_back(run(**memory, inputs, {.step = step, .steps = 4, .sigma = 1 - 0.25 * static_cast<double>(step)}));
  EXPECT_THAT((*memory)->report().computed, ElementsAre(1, 0, 1, 0));
  EXPECT_EQ(outputs[1], outputs[0]);  // reused
  const NamedOutput output = {"model_output", outputs[0]};
  EXPECT_THAT((*memory)->run(inputs.tensors, {&output, 1}, {}).message(), HasSubstr("needs the step"));
  EXPECT_THAT((*memory)->set_cache("nonesuch", -1, 0).message(), HasSubstr("nonesuch"));
  EXPECT_THAT((*memory)->report().cache, HasSubstr("mask"));  // stays
  ASSERT_TRUE((*memory)->set_cache("none", -1, 0).ok());
  run(**memory, inputs);
  EXPECT_TRUE((*memory)->report().computed.empty());
  // With blocks before the decision too, TeaCache has the input that it reads.
  const Status set = (*memory)->set_cache("teacache", -1, 0);
  if (!file.denoiser->has_parts()) {
    EXPECT_THAT(set.message(), HasSubstr("not divided into parts"));
    return;
  }
  ASSERT_TRUE(set.ok()) << set.to_string();
  run(**memory, inputs, {.step = 0, .steps = 4, .sigma = 1});
}

INSTANTIATE_TEST_SUITE_P(Families, ImageNetworkGolden,
                         ::testing::Values(std::pair{"flux_dev", "FluxTransformer2DModel"},
                                           std::pair{"sd3", "SD3Transformer2DModel"},
                                           std::pair{"sd35_medium", "SD3Transformer2DModel"},
                                           std::pair{"pixart_sigma", "PixArtTransformer2DModel"},
                                           std::pair{"unet_sd15", "UNet2DConditionModel"},
                                           std::pair{"unet_sdxl", "UNet2DConditionModel"}),
                         [](const auto& info) { return std::string(info.param.first); });

TEST(ImageNetwork, SaysWhatIsWrongWithInputs) {
  testing::GoldenDenoiser file = testing::make_denoiser("flux_dev");
  auto network = open_in_memory("flux_dev", "FluxTransformer2DModel", {.max_batch = 2});
  ASSERT_TRUE(file.denoiser && network.ok());
  const DenoiserModel& model = file.denoiser->model();
  const DenoiserBatch batch = testing::random_batch(model, {1, 2});
  const auto message = [&](const std::function<void(std::vector<NamedTensor>&)>& change) {
    Inputs inputs(model, batch, normal_latents(2 * batch.latents.elements(), 5));
    change(inputs.tensors);
    std::vector<float> out(inputs.latents.size());
    const NamedOutput output = {"model_output", out};
    return (*network)->run(inputs.tensors, {&output, 1}, {}).message();
  };
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_THAT(message([](auto& t) { t.erase(t.begin()); }), HasSubstr("\"latents\" is missing"));
  EXPECT_THAT(message([](auto& t) { t[0].shape = {2, 1, 16, 16}; }), HasSubstr("channels"));
  EXPECT_THAT(message([](auto& t) { t[0].shape[2] = 7; }), HasSubstr("multiples of 2"));
  EXPECT_THAT(message([](auto& t) { t[0].shape[3] = 18; }), HasSubstr("max_latent_side 16"));
  EXPECT_THAT(message([](auto& t) { t[0].shape[0] = 3; }), HasSubstr("max_batch is 2"));
  EXPECT_THAT(message([](auto& t) { t[1].shape = {2}; }), HasSubstr("one timestep"));
  EXPECT_THAT(message([](auto& t) { t[2].shape[1] = 9; }), HasSubstr("max_text_tokens is 8"));
  EXPECT_THAT(message([](auto& t) { t[2].shape[2] -= 1; }), HasSubstr("\"text\" has"));
  EXPECT_THAT(message([](auto& t) { t[2].name = "prompt"; }), HasSubstr("no input \"prompt\""));
  EXPECT_THAT(message([](auto& t) { t[3].shape[0] = 1; }), HasSubstr("rows"));
  EXPECT_THAT(message([](auto& t) { t.pop_back(); }), HasSubstr("\"guidance\" is missing"));
  EXPECT_EQ(message([](auto&) {}), "");  // after an error it goes on
}

TEST(ImageNetwork, SaysWhatIsWrongWithWeights) {
  const auto open = [](const char* class_name, const char* config, std::span<const NamedTensor> tensors) {
    auto opened = ImageNetwork::open(class_name, config, tensors);
    return opened.ok() ? "" : opened.status().message();
  };
  EXPECT_THAT(open("DogModel", "{}", {}), HasSubstr("Redline has FluxTransformer2DModel"));
  EXPECT_THAT(open("AutoencoderKL", "{", {}), HasSubstr("AutoencoderKL: config"));
  EXPECT_THAT(open("AutoencoderKL", "{}", {}), HasSubstr("block_out_channels"));
  const std::vector<NamedTensor> twice = {{"a", TensorType::kF32, {1}, "abcd"}, {"a", TensorType::kF32, {1}, "abcd"}};
  EXPECT_THAT(open("AutoencoderKL", "{}", twice), HasSubstr("two tensors a"));
  EXPECT_THAT(open("AutoencoderKL", "{}", std::vector<NamedTensor>{{"a", TensorType::kI32, {1}, "abcd"}}),
              HasSubstr("I32"));
  EXPECT_THAT(open_in_memory("flux_schnell", "FluxTransformer2DModel", {}).status().message(),
              HasSubstr("8 output channels and its latents 16"));
}

// LoRA files of SD3 have the text queries of the last block, which nothing reads.
TEST(ImageNetwork, TakesFactorsOfLayersThatNothingReads) {
  auto network = open_in_memory("sd3", "SD3Transformer2DModel", {.max_adapter_rank = 2});
  ASSERT_TRUE(network.ok());
  testing::GoldenDenoiser file = testing::make_denoiser("sd3");
  const DenoiserModel& model = file.denoiser->model();
  ASSERT_EQ(model.idle_modules.size(), 1U);
  const DenoiserBatch batch = testing::random_batch(model, {1});
  const Inputs inputs(model, batch, normal_latents(batch.latents.elements(), 5));
  const std::vector<float> before = run(**network, inputs);
  std::string last = model.idle_modules[0], earlier = last;
  earlier.replace(earlier.find('.') + 1, 1, "0");
  ASSERT_NE(last, earlier);
  const auto& shape = file.golden.checkpoint.tensors.at(last + ".weight").view.shape;
  const std::vector<float> down = normal_latents(2 * shape[1], 8), up = normal_latents(shape[0] * 2, 9);
  AdapterFactorPair pair = {"style",
                            last,
                            {"down", TensorType::kF32, {2, shape[1]}, down.data()},
                            {"up", TensorType::kF32, {shape[0], 2}, up.data()},
                            1};
  Status set = (*network)->set_adapters({&pair, 1});
  ASSERT_TRUE(set.ok()) << set.to_string();
  EXPECT_EQ(run(**network, inputs), before);
  pair.module = earlier;
  ASSERT_TRUE((*network)->set_adapters({&pair, 1}).ok());
  EXPECT_NE(run(**network, inputs), before);
  pair.module = "transformer_blocks.0.attn.nonesuch";
  EXPECT_THAT((*network)->set_adapters({&pair, 1}).message(), HasSubstr("no transformer_blocks.0.attn.nonesuch"));
  ASSERT_TRUE((*network)->set_adapters({}).ok());
  EXPECT_EQ(run(**network, inputs), before);
  auto plain = open_in_memory("sd3", "SD3Transformer2DModel", {});
  ASSERT_TRUE(plain.ok());
  EXPECT_THAT((*plain)->set_adapters({&pair, 1}).message(), HasSubstr("max_adapter_rank"));
}

// Nine channels: latents, mask, latents of the masked image.
TEST(ImageNetwork, TakesTheChannelsOfAnInpaintingNetwork) {
  testing::GoldenDenoiser file = testing::make_denoiser("unet_inpaint");
  auto network = open_in_memory("unet_inpaint", "UNet2DConditionModel", {});
  ASSERT_TRUE(file.denoiser && network.ok());
  DenoiserBatch batch = testing::random_batch(file.denoiser->model(), {1});
  const int64_t own = batch.latents.elements(), mask = own / batch.latents.channels + own;
  const std::vector<float> x = normal_latents(own, 5);
  const std::vector<float> told = normal_latents(mask, 6);
  const Inputs inputs(file.denoiser->model(), batch, joined(x, told));
  LatentShape mask_shape = batch.latents;
  ++mask_shape.channels;
  batch.mask_latents = packed_images(mask_shape, told);
  ASSERT_TRUE(file.denoiser->begin(batch).ok());
  std::vector<float> expected(x.size());
  const int64_t rows[] = {0};
  ASSERT_TRUE(file.denoiser->evaluate(rows, packed_images(batch.latents, x), 500, expected).ok());
  EXPECT_EQ(run(**network, inputs), unpacked_images(batch.latents, expected));
}

TEST(ImageNetwork, CodesImagesAsTheAutoencoderFromAFile) {
  const testing::ImageGolden golden = testing::load_image_golden("kl_sdxl");
  auto network = open_in_memory("kl_sdxl", "AutoencoderKL", {});
  ASSERT_TRUE(network.ok()) << network.status().to_string();
  const ImageNetwork::Report report = (*network)->report();
  const int64_t side = 4, scale = report.scale, channels = report.latent_channels;
  const std::vector<float> z = normal_latents(2 * channels * side * side, 3);
  std::vector<float> image(static_cast<size_t>(2 * 3 * side * scale * side * scale));
  NamedTensor latents = {"latents", TensorType::kF32, {2, channels, side, side}, z.data()};
  NamedOutput decoded = {"image", image};
  ASSERT_TRUE((*network)->run({&latents, 1}, {&decoded, 1}).ok());
  std::vector<float> moments(static_cast<size_t>(2 * 2 * channels * side * side));
  const NamedTensor given = {"image", TensorType::kF32, {2, 3, side * scale, side * scale}, image.data()};
  const NamedOutput coded = {"moments", moments};
  ASSERT_TRUE((*network)->run({&given, 1}, {&coded, 1}).ok());

  auto runtime = testing::make_runtime(2);
  auto model = testing::build_autoencoder_kl(golden.checkpoint);
  ASSERT_TRUE(model.ok());
  ExecutableOptions options = testing::network_options(testing::NetworkMode::kF32);
  options.bounds[Symbol::kBatch] = 1;
  testing::set_image_size(options.bounds, 16, 16);
  auto codec = VaeCodec::make(std::move(*model), options, 16 * scale, 0, *runtime);
  ASSERT_TRUE(codec.ok());
  const LatentShape small = {channels, side, side}, large = {3, side * scale, side * scale};
  for (int64_t i = 0; i < 2; ++i) {
    const auto n = static_cast<size_t>(small.elements()), pixels = static_cast<size_t>(large.elements());
    const auto rows = codec->decode_rows(std::span(z).subspan(static_cast<size_t>(i) * n, n), small);
    ASSERT_TRUE(rows.ok());
    std::vector<float> packed(pixels);
    pack_latents(large, image.data() + static_cast<size_t>(i) * pixels, packed.data());
    EXPECT_TRUE(std::equal(packed.begin(), packed.end(), rows->begin()));
    const auto made = codec->encode_rows(packed, small);
    ASSERT_TRUE(made.ok());
    std::vector<float> planes(2 * n);
    unpack_latents({2 * channels, side, side}, made->data(), 2 * channels, planes.data());
    EXPECT_TRUE(std::equal(planes.begin(), planes.end(), moments.begin() + i * std::ssize(planes)));
  }
  latents.shape = {2, channels, side, 32};
  EXPECT_THAT((*network)->run({&latents, 1}, {&decoded, 1}).message(), HasSubstr("max_latent_side is 16"));
  EXPECT_THAT((*network)->set_cache("fbcache", -1, 0).message(), HasSubstr("denoisers"));
}

}  // namespace
}  // namespace redline
