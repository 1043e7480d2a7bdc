// Adapters that are more than a pair: DoRA, whole differences of weights and biases, biases of the up matrix. Each is
// compared with the same UNet whose weights were changed by the definition, in float64.
#include <gmock/gmock.h>

#include <cmath>

#include "diffusion/base_weights.h"
#include "diffusion/denoiser.h"
#include "support/image_builders.h"
#include "support/image_golden.h"
#include "support/image_sizes.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using testing::ImageGolden;
using testing::NetworkMode;

/// A matrix or kernel in float64, [rows, everything else].
struct DifferenceMatrix {
  std::vector<int64_t> shape;
  std::vector<double> values;

  int64_t rows() const { return shape[0]; }
  int64_t cols() const { return std::ssize(values) / rows(); }
  int64_t taps() const { return shape.size() == 4 ? shape[2] * shape[3] : 1; }
  double& at(int64_t row, int64_t col) { return values[static_cast<size_t>(row * cols() + col)]; }
  std::vector<float> floats() const { return {values.begin(), values.end()}; }
};

DifferenceMatrix stored_matrix(const Checkpoint& checkpoint, const std::string& name) {
  const TensorView& view = checkpoint.tensors.at(name).view;
  std::vector<float> values(static_cast<size_t>(view.num_elements()));
  unpack_row(view.dtype, view.data, values.data(), view.num_elements());
  return {view.shape, {values.begin(), values.end()}};
}

/// Numbers without a pattern, the same for the same seed.
DifferenceMatrix drawn_matrix(std::vector<int64_t> shape, uint32_t seed) {
  DifferenceMatrix m = {std::move(shape), {}};
  int64_t count = 1;
  for (const int64_t size : m.shape) count *= size;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    m.values.push_back(static_cast<float>(static_cast<double>(seed >> 8) / (1 << 24) - 0.5) * 0.5f);
  }
  return m;
}

/// The UNet of unet_sd15, whose tensors can be replaced, in its case "one".
struct DifferenceUnet {
  ImageGolden golden = testing::load_image_golden("unet_sd15");
  std::unique_ptr<RuntimeResources> runtime = testing::make_runtime(2);
  std::unique_ptr<Denoiser> denoiser;

  void replace(const std::string& name, const DifferenceMatrix& m) {
    const std::vector<float> values = m.floats();
    WeightSource source;
    source.file =
        MappedFile::from_bytes(name, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    source.view = {DType::kF32, m.shape, source.file->data()};
    golden.checkpoint.tensors[name] = std::move(source);
  }
  void open(NetworkMode mode, int64_t max_rank) {
    const auto& sizes = golden.find("one", "sizes")->values;
    DenoiserBatch batch;
    batch.images = batch.rows = 1;
    batch.latents = {4, static_cast<int64_t>(sizes[1]), static_cast<int64_t>(sizes[2])};
    batch.text_tokens = static_cast<int64_t>(sizes[3]);
    const auto& text = golden.find("one", "text")->values;
    batch.conditions["text"].assign(text.begin(), text.end());
    ExecutableOptions options = testing::network_options(mode);
    options.bounds[Symbol::kBatch] = 2;
    options.bounds[Symbol::kTextTokens] = 10;
    options.bounds[Symbol::kImageTokens] = 256;
    testing::set_image_size(options.bounds, 16, 16);
    auto model = testing::build_unet(golden.checkpoint);
    ASSERT_TRUE(model.ok()) << model.status().message();
    auto made = Denoiser::make(std::move(model).value(), options, max_rank, *runtime);
    ASSERT_TRUE(made.ok()) << made.status().message();
    denoiser = std::move(made).value();
    ASSERT_TRUE(denoiser->begin(std::move(batch)).ok());
  }
  std::vector<float> velocity() const {
    const auto& rows = golden.find("one", "latents")->values;
    const std::vector<float> x(rows.begin(), rows.end());
    std::vector<float> out(x.size());
    const int64_t row[] = {0};
    EXPECT_TRUE(denoiser->evaluate(row, x, golden.find("one", "timestep")->values[0], out).ok());
    return out;
  }
};

void add_matrix(testing::SafetensorsFile& file, const std::string& name, const DifferenceMatrix& m) {
  const std::vector<float> values = m.floats();
  file.add(name, "F32", m.shape, values.data(), values.size() * sizeof(float));
}

/// kohya's spelling of a module of the UNet.
std::string in_kohyas_spelling(std::string module) {
  std::replace(module.begin(), module.end(), '.', '_');
  return "lora_unet_" + module;
}

/// Matrices, a 1x1 and a 3x3 convolution, wide and tall, in blocks of every part.
const char* const kDifferenceModules[] = {"down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q",
                                          "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_v",
                                          "down_blocks.1.attentions.0.transformer_blocks.0.ff.net.0.proj",
                                          "down_blocks.1.attentions.0.transformer_blocks.0.ff.net.2",
                                          "down_blocks.1.attentions.0.proj_in",
                                          "down_blocks.0.resnets.0.conv1",
                                          "mid_block.resnets.0.conv2",
                                          "conv_in"};
constexpr double kDifferenceAlpha = 3;
constexpr int64_t kDifferenceRank = 2;

/// Adds the pair of a module to a file and returns the weight with its product.
DifferenceMatrix add_pair(testing::SafetensorsFile& file, const Checkpoint& checkpoint, const std::string& module,
                          bool is_kohya, uint32_t seed) {
  DifferenceMatrix weight = stored_matrix(checkpoint, module + ".weight");
  std::vector<int64_t> down_shape = weight.shape, up_shape(weight.shape.size(), 1);
  down_shape[0] = up_shape[1] = kDifferenceRank;
  up_shape[0] = weight.rows();
  DifferenceMatrix down = drawn_matrix(down_shape, seed), up = drawn_matrix(up_shape, seed + 1);
  const std::string name = is_kohya ? in_kohyas_spelling(module) : "unet." + module;
  add_matrix(file, name + (is_kohya ? ".lora_down.weight" : ".lora_A.weight"), down);
  add_matrix(file, name + (is_kohya ? ".lora_up.weight" : ".lora_B.weight"), up);
  if (is_kohya) add_matrix(file, name + ".alpha", {{1}, {kDifferenceAlpha}});
  const double scale = is_kohya ? kDifferenceAlpha / kDifferenceRank : 1;
  for (int64_t row = 0; row < weight.rows(); ++row)
    for (int64_t col = 0; col < weight.cols(); ++col)
      for (int64_t r = 0; r < kDifferenceRank; ++r) weight.at(row, col) += scale * up.at(row, r) * down.at(r, col);
  return weight;
}

/// magnitude V / norm(V), the norm of rows or of input channels; the magnitudes are 1.2 times those of `before`.
DifferenceMatrix decomposed(DifferenceMatrix before, DifferenceMatrix v, bool is_by_column,
                            DifferenceMatrix& magnitude) {
  const int64_t taps = v.taps(), groups = is_by_column ? v.cols() / taps : v.rows();
  const auto group_of = [&](int64_t row, int64_t col) { return static_cast<size_t>(is_by_column ? col / taps : row); };
  const auto norms = [&](DifferenceMatrix& m) {
    std::vector<double> squares(static_cast<size_t>(groups));
    for (int64_t row = 0; row < m.rows(); ++row)
      for (int64_t col = 0; col < m.cols(); ++col) squares[group_of(row, col)] += m.at(row, col) * m.at(row, col);
    for (double& square : squares) square = std::sqrt(square);
    return squares;
  };
  magnitude.values = norms(before);
  for (double& m : magnitude.values) m = static_cast<float>(1.2 * m);
  const std::vector<double> lengths = norms(v);
  for (int64_t row = 0; row < v.rows(); ++row)
    for (int64_t col = 0; col < v.cols(); ++col) {
      const size_t group = group_of(row, col);
      v.at(row, col) *= magnitude.values[group] / lengths[group];
    }
  return v;
}

class WeightDifferences : public ::testing::TestWithParam<NetworkMode> {
 protected:
  /// That the file changes the network as the replaced tensors do, and at weight 0.5 half as much of each tensor.
  void expect_equal(const testing::SafetensorsFile& file, const std::map<std::string, DifferenceMatrix>& changed) {
    const testing::TemporaryFolder folder;
    const std::string path = folder.path() + "/lora.safetensors";
    file.write(path);
    const auto adapter = AdapterFile::open(path);
    ASSERT_TRUE(adapter.ok()) << adapter.status().message();
    DifferenceUnet adapted;
    adapted.open(GetParam(), adapter->max_rank);
    NetworkAdapters& bank = adapted.denoiser->adapters();
    bank.set_base(base_weights([] { return Checkpoint::open(testing::golden_root() + "/image/unet_sd15"); }));
    const Status loaded = bank.load("a", adapter->networks.at(""), GetParam() == NetworkMode::kInterpreter);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    for (const double weight : {1.0, 0.5}) {
      ASSERT_TRUE(bank.set(std::vector<std::pair<std::string, double>>{{"a", weight}}).ok());
      DifferenceUnet merged;
      for (const auto& [name, matrix] : changed) {
        DifferenceMatrix partly = stored_matrix(merged.golden.checkpoint, name);
        for (size_t i = 0; i < partly.values.size(); ++i)
          partly.values[i] += weight * (matrix.values[i] - partly.values[i]);
        merged.replace(name, partly);
      }
      merged.open(testing::rounds(GetParam()) ? NetworkMode::kF32 : GetParam(), 0);
      const std::vector<float> expected = merged.velocity();
      // Both round to float32; `auto` as for the UNet alone, whose error these products add to.
      EXPECT_LE(
          testing::relative_error(adapted.velocity(), {{std::ssize(expected)}, {expected.begin(), expected.end()}}),
          testing::rounds(GetParam()) ? 7e-2 : 2e-5)
          << weight;
    }
    // The differences are no rounding errors.
    ASSERT_TRUE(bank.set({}).ok());
    DifferenceUnet merged;
    for (const auto& [name, matrix] : changed) merged.replace(name, matrix);
    merged.open(NetworkMode::kF32, 0);
    const std::vector<float> plain = adapted.velocity();
    EXPECT_GE(testing::relative_error(merged.velocity(), {{std::ssize(plain)}, {plain.begin(), plain.end()}}), 0.15);
  }
};

TEST_P(WeightDifferences, DoraOfRowsAndOfInputChannels) {
  for (const bool is_by_column : {true, false})
    for (const bool is_kohya : {true, false}) {
      if (is_by_column && !is_kohya) continue;  // PEFT has rows only
      SCOPED_TRACE(::testing::Message() << is_by_column << is_kohya);
      const ImageGolden golden = testing::load_image_golden("unet_sd15");
      testing::SafetensorsFile file;
      std::map<std::string, DifferenceMatrix> changed;
      uint32_t seed = 1;
      for (const std::string module : kDifferenceModules) {
        const DifferenceMatrix before = stored_matrix(golden.checkpoint, module + ".weight");
        const DifferenceMatrix v = add_pair(file, golden.checkpoint, module, is_kohya, seed += 2);
        DifferenceMatrix magnitude;
        magnitude.shape.assign(before.shape.size(), 1);
        magnitude.shape[is_by_column ? 1 : 0] = before.shape[is_by_column ? 1 : 0];
        // PEFT's vector of a matrix has one axis, and of a convolution [1, out, 1, 1].
        if (!is_kohya && before.shape.size() == 2) magnitude.shape = {before.rows()};
        if (!is_kohya && before.shape.size() == 4) magnitude.shape = {1, before.rows(), 1, 1};
        changed[module + ".weight"] = decomposed(before, v, is_by_column, magnitude);
        add_matrix(file,
                   is_kohya ? in_kohyas_spelling(module) + ".dora_scale" : "unet." + module + ".lora_magnitude_vector",
                   magnitude);
      }
      expect_equal(file, changed);
    }
}

TEST_P(WeightDifferences, OfWholeWeightsAndBiases) {
  const ImageGolden golden = testing::load_image_golden("unet_sd15");
  testing::SafetensorsFile file;
  std::map<std::string, DifferenceMatrix> changed;
  uint32_t seed = 100;
  for (const std::string module : kDifferenceModules) {
    for (const auto& [parameter, end] : {std::pair{".weight", ".diff"}, {".bias", ".diff_b"}}) {
      if (!golden.checkpoint.tensors.contains(module + parameter)) continue;
      DifferenceMatrix value = stored_matrix(golden.checkpoint, module + parameter);
      const DifferenceMatrix difference = drawn_matrix(value.shape, ++seed);
      add_matrix(file, in_kohyas_spelling(module) + end, difference);
      for (size_t i = 0; i < value.values.size(); ++i) value.values[i] += difference.values[i];
      changed[module + parameter] = value;
    }
  }
  // A bias alone.
  DifferenceMatrix bias = stored_matrix(golden.checkpoint, "conv_out.bias");
  const DifferenceMatrix difference = drawn_matrix(bias.shape, ++seed);
  add_matrix(file, "lora_unet_conv_out.diff_b", difference);
  for (size_t i = 0; i < bias.values.size(); ++i) bias.values[i] += difference.values[i];
  changed["conv_out.bias"] = bias;
  expect_equal(file, changed);
}

TEST_P(WeightDifferences, BiasesOfTheUpMatrix) {
  const ImageGolden golden = testing::load_image_golden("unet_sd15");
  testing::SafetensorsFile file;
  std::map<std::string, DifferenceMatrix> changed;
  uint32_t seed = 200;
  for (const std::string module : kDifferenceModules) {
    if (!golden.checkpoint.tensors.contains(module + ".bias")) continue;
    for (const bool is_kohya : {module.find("resnets") != std::string::npos}) {
      changed[module + ".weight"] = add_pair(file, golden.checkpoint, module, is_kohya, seed += 2);
      DifferenceMatrix bias = stored_matrix(golden.checkpoint, module + ".bias");
      const DifferenceMatrix up = drawn_matrix(bias.shape, seed + 50);
      add_matrix(file, is_kohya ? in_kohyas_spelling(module) + ".lora_up.bias" : "unet." + module + ".lora_B.bias", up);
      const double scale = is_kohya ? kDifferenceAlpha / kDifferenceRank : 1;
      for (size_t i = 0; i < bias.values.size(); ++i) bias.values[i] += scale * up.values[i];
      changed[module + ".bias"] = bias;
    }
  }
  expect_equal(file, changed);
}

INSTANTIATE_TEST_SUITE_P(Modes, WeightDifferences, ::testing::ValuesIn(testing::network_modes()),
                         [](const auto& info) { return testing::network_mode_name(info.param); });

TEST(WeightDifferences, WhatDoesNotFitIsNamed) {
  const ImageGolden golden = testing::load_image_golden("unet_sd15");
  const std::string module = kDifferenceModules[0], name = in_kohyas_spelling(module);
  DifferenceUnet o;
  o.open(NetworkMode::kF32, 8);
  const auto message_of = [&](const std::function<void(testing::SafetensorsFile&)>& change) {
    testing::SafetensorsFile file;
    add_pair(file, golden.checkpoint, module, true, 1);
    change(file);
    const testing::TemporaryFolder folder;
    file.write(folder.path() + "/lora.safetensors");
    const auto adapter = AdapterFile::open(folder.path() + "/lora.safetensors");
    if (!adapter.ok()) return adapter.status().message();
    const Status status = o.denoiser->adapters().load("a", adapter->networks.at(""), false);
    EXPECT_FALSE(status.ok());
    return status.message();
  };
  const auto magnitudes = [&](int64_t count) {
    return [&, count](testing::SafetensorsFile& f) {
      add_matrix(f, name + ".dora_scale", drawn_matrix({count, 1}, 5));
    };
  };
  EXPECT_THAT(message_of(magnitudes(8)), HasSubstr("needs the weights of the model, which cannot be read here"));
  o.denoiser->adapters().set_base(
      base_weights([] { return Checkpoint::open(testing::golden_root() + "/image/unet_sd15"); }));
  EXPECT_THAT(message_of(magnitudes(7)), HasSubstr("a DoRA with 7 magnitudes; the weight has 8"));
  EXPECT_THAT(message_of([&](auto& f) {
                add_matrix(f, name + ".diff", drawn_matrix({8, 8}, 5));
              }),
              HasSubstr("has several forms of a difference at once"));
  EXPECT_THAT(message_of([&](auto& f) { add_matrix(f, name + ".diff_b", drawn_matrix({9}, 5)); }),
              HasSubstr("a bias of 9 elements, the weight has 8 rows"));
  EXPECT_THAT(message_of([&](auto& f) { add_matrix(f, "lora_unet_conv_norm_out.diff", drawn_matrix({8}, 5)); }),
              HasSubstr("differences of norms are not supported"));
  o.denoiser->adapters().set_base(
      base_weights([] { return Checkpoint::open(testing::golden_root() + "/image/unet_sdxl"); }));
  EXPECT_THAT(message_of(magnitudes(8)), HasSubstr("no tensor " + module + ".weight of [8, 8]"));
}

}  // namespace
}  // namespace redline
