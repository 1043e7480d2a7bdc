// Pipelines of Stable Diffusion in one file under the original names. The files are made of golden folders by the
// definition of the original layouts, so their latents must equal those of the folders.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "diffusion/single_file.h"
#include "models/image/image_registry.h"
#include "redline/image.h"
#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"
#include "support/torch_archive.h"

namespace redline {
namespace {

using ::testing::HasSubstr;

/// Tensors of a component in float32, by the names of diffusers.
using SingleTensors = std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>>;

SingleTensors tensors_of(const std::string& folder) {
  SingleTensors tensors;
  const auto checkpoint = Checkpoint::open(folder);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().message();
  if (!checkpoint.ok()) return tensors;
  for (const auto& [name, source] : checkpoint->tensors) {
    auto& [shape, values] = tensors[name];
    shape = source.view.shape;
    values.resize(static_cast<size_t>(source.view.num_elements()));
    unpack_row(source.view.dtype, source.view.data, values.data(), source.view.num_elements());
  }
  return tensors;
}

std::vector<std::string> words_of(const std::string& name) {
  std::vector<std::string> words;
  for (size_t at = 0; at <= name.size();) {
    const size_t dot = std::min(name.find('.', at), name.size());
    words.push_back(name.substr(at, dot - at));
    at = dot + 1;
  }
  return words;
}
std::string joined(const std::vector<std::string>& words, size_t begin) {
  std::string text;
  for (size_t i = begin; i < words.size(); ++i) text += (i > begin ? "." : "") + words[i];
  return text;
}

std::string original_resnet(const std::string& rest) {
  const std::map<std::string, std::string> names = {
      {"norm1", "in_layers.0"},  {"conv1", "in_layers.2"},  {"time_emb_proj", "emb_layers.1"},
      {"norm2", "out_layers.0"}, {"conv2", "out_layers.3"}, {"conv_shortcut", "skip_connection"}};
  const size_t dot = rest.rfind('.');
  return names.at(rest.substr(0, dot)) + rest.substr(dot);
}

SingleTensors original_unet(const SingleTensors& own, int layers) {
  SingleTensors original;
  for (const auto& [name, tensor] : own) {
    const std::vector<std::string> p = words_of(name);
    std::string to;
    if (p[0] == "conv_in") to = "input_blocks.0.0." + p[1];
    else if (p[0] == "conv_norm_out") to = "out.0." + p[1];
    else if (p[0] == "conv_out") to = "out.2." + p[1];
    else if (p[0] == "time_embedding") to = std::string("time_embed.") + (p[1] == "linear_1" ? "0." : "2.") + p[2];
    else if (p[0] == "add_embedding") to = std::string("label_emb.0.") + (p[1] == "linear_1" ? "0." : "2.") + p[2];
    else if (p[0] == "mid_block" && p[1] == "attentions") to = "middle_block.1." + joined(p, 3);
    else if (p[0] == "mid_block")
      to = fmt::format("middle_block.{}.{}", 2 * std::stoi(p[2]), original_resnet(joined(p, 3)));
    else {
      const bool is_down = p[0] == "down_blocks";
      const int level = std::stoi(p[1]), layer = std::stoi(p[3]), per_level = layers + 1;
      const std::string half = is_down ? "input_blocks" : "output_blocks";
      const int block = per_level * level + layer + (is_down ? 1 : 0);
      if (p[2] == "resnets") to = fmt::format("{}.{}.0.{}", half, block, original_resnet(joined(p, 4)));
      else if (p[2] == "attentions") to = fmt::format("{}.{}.1.{}", half, block, joined(p, 4));
      else if (is_down) to = fmt::format("{}.{}.0.op.{}", half, per_level * (level + 1), p.back());
      else {
        const bool has_attention = own.lower_bound(fmt::format("up_blocks.{}.attentions", level))
                                       ->first.starts_with(fmt::format("up_blocks.{}.attentions", level));
        to = fmt::format("{}.{}.{}.conv.{}", half, per_level * (level + 1) - 1, has_attention ? 2 : 1, p.back());
      }
    }
    original[to] = tensor;
  }
  return original;
}

SingleTensors original_autoencoder(const SingleTensors& own, int levels) {
  const std::map<std::string, std::string> attention = {
      {"group_norm", "norm"}, {"to_q", "q"}, {"to_k", "k"}, {"to_v", "v"}, {"to_out", "proj_out"}};
  SingleTensors original;
  for (const auto& [name, given] : own) {
    const std::vector<std::string> p = words_of(name);
    auto tensor = given;
    std::string to = name;
    if (p[1] == "conv_norm_out") to = p[0] + ".norm_out." + p[2];
    else if (p[1] == "mid_block" && p[2] == "resnets")
      to = fmt::format("{}.mid.block_{}.{}", p[0], std::stoi(p[3]) + 1, joined(p, 4));
    else if (p[1] == "mid_block") {
      to = fmt::format("{}.mid.attn_1.{}.{}", p[0], attention.at(p[4]), p.back());
      if (tensor.first.size() == 2) tensor.first.resize(4, 1);
    } else if (p[1] == "down_blocks" || p[1] == "up_blocks") {
      const bool is_down = p[1] == "down_blocks";
      const int level = is_down ? std::stoi(p[2]) : levels - 1 - std::stoi(p[2]);
      const std::string scope = fmt::format("{}.{}.{}.", p[0], is_down ? "down" : "up", level);
      if (p[3] == "resnets") to = fmt::format("{}block.{}.{}", scope, p[4], joined(p, 5));
      else to = fmt::format("{}{}.conv.{}", scope, is_down ? "downsample" : "upsample", p.back());
    }
    if (const size_t at = to.find("conv_shortcut"); at != std::string::npos) to.replace(at, 13, "nin_shortcut");
    original[to] = tensor;
  }
  return original;
}

/// transformers' names with the prefix that versions before 5 have.
SingleTensors with_text_model(const SingleTensors& own) {
  SingleTensors named;
  for (const auto& [name, tensor] : own) named[name.starts_with("text_") ? name : "text_model." + name] = tensor;
  return named;
}

SingleTensors original_open_clip(const SingleTensors& given, int layers, bool has_last_layer) {
  const SingleTensors own = with_text_model(given);
  SingleTensors original;
  for (int i = 0; i < layers; ++i) {
    const std::string from = fmt::format("text_model.encoder.layers.{}.", i),
                      to = fmt::format("transformer.resblocks.{}.", i);
    for (const std::string end : {"weight", "bias"}) {
      auto& fused = original[to + "attn.in_proj_" + end];
      for (const char* part : {"q", "k", "v"}) {
        const auto& [shape, values] = own.at(fmt::format("{}self_attn.{}_proj.{}", from, part, end));
        fused.first = shape;
        fused.second.insert(fused.second.end(), values.begin(), values.end());
      }
      fused.first[0] *= 3;
      for (const auto& [mine, theirs] : {std::pair{"self_attn.out_proj.", "attn.out_proj."},
                                         {"layer_norm1.", "ln_1."},
                                         {"layer_norm2.", "ln_2."},
                                         {"mlp.fc1.", "mlp.c_fc."},
                                         {"mlp.fc2.", "mlp.c_proj."}})
        original[to + theirs + end] = own.at(from + mine + end);
    }
  }
  // Stable Diffusion 2 leaves the last layer out.
  for (const char* end : {"ln_1.weight", "attn.in_proj_bias"})
    if (has_last_layer)
      original[fmt::format("transformer.resblocks.{}.{}", layers, end)] =
          original[std::string("transformer.resblocks.0.") + end];
  original["ln_final.weight"] = own.at("text_model.final_layer_norm.weight");
  original["ln_final.bias"] = own.at("text_model.final_layer_norm.bias");
  original["token_embedding.weight"] = own.at("text_model.embeddings.token_embedding.weight");
  original["positional_embedding"] = own.at("text_model.embeddings.position_embedding.weight");
  original["logit_scale"] = {{}, {4.6f}};
  if (const auto at = own.find("text_projection.weight"); at != own.end()) {
    const auto& [shape, values] = at->second;
    auto& [transposed_shape, transposed] = original["text_projection"];
    transposed_shape = {shape[1], shape[0]};
    for (int64_t col = 0; col < shape[1]; ++col)
      for (int64_t row = 0; row < shape[0]; ++row)
        transposed.push_back(values[static_cast<size_t>(row * shape[1] + col)]);
  }
  return original;
}

/// All tensors of a golden pipeline in one file.
SingleTensors one_file(const std::string& pipeline) {
  const std::string folder = testing::golden_root() + "/image/" + pipeline + "/";
  SingleTensors all;
  const auto add = [&](const std::string& prefix, const SingleTensors& part) {
    for (const auto& [name, tensor] : part) all[prefix + name] = tensor;
  };
  add("model.diffusion_model.", original_unet(tensors_of(folder + "unet"), 1));
  add("first_stage_model.", original_autoencoder(tensors_of(folder + "vae"), 2));
  const SingleTensors clip = tensors_of(folder + "text_encoder");
  if (std::filesystem::exists(folder + "text_encoder_2")) {
    add("conditioner.embedders.0.transformer.", with_text_model(clip));
    const SingleTensors second = tensors_of(folder + "text_encoder_2");
    add("conditioner.embedders.1.model.", original_open_clip(second, 3, false));
  } else if (pipeline == "pipeline_sd2") {
    add("cond_stage_model.model.", original_open_clip(clip, 3, true));
  } else {
    add("cond_stage_model.transformer.", with_text_model(clip));
  }
  all["alphas_cumprod"] = {{2}, {1, 0.5}};  // of the training
  return all;
}

void write_safetensors(const SingleTensors& tensors, const std::string& path) {
  testing::SafetensorsFile file;
  for (const auto& [name, tensor] : tensors)
    file.add(name, "F32", tensor.first, tensor.second.data(), tensor.second.size() * sizeof(float));
  file.write(path);
}
void write_torch(const SingleTensors& tensors, const std::string& path) {
  std::vector<testing::TorchArchiveTensor> all;
  for (const auto& [name, tensor] : tensors)
    all.push_back(
        {name, "FloatStorage", tensor.first,
         std::string(reinterpret_cast<const char*>(tensor.second.data()), tensor.second.size() * sizeof(float))});
  std::ofstream(path, std::ios::binary) << testing::torch_archive(all, "state_dict");
}

/// A folder of configurations and tokenizers without weights.
void copy_without_weights(const std::string& from, const std::string& to) {
  std::filesystem::copy(from, to, std::filesystem::copy_options::recursive);
  std::vector<std::filesystem::path> weights;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(to))
    if (entry.path().extension() == ".safetensors") weights.push_back(entry.path());
  for (const std::filesystem::path& file : weights) std::filesystem::remove(file);
}

std::vector<float> single_file_latents(const std::string& path, std::string* error = nullptr) {
  ImageOptions options;
  options.threads = 1;
  options.max_side = 64;
  options.dtype = Precision::kF32;
  const auto engine = ImageEngine::open(path, options);
  if (error) {
    *error = engine.status().message();
    return {};
  }
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  if (!engine.ok()) return {};
  ImageRequest request = (*engine)->defaults();
  request.prompts = {"a star"};
  request.num_inference_steps = 2;
  request.width = request.height = 16;
  request.keep_latents = true;
  const auto result = (*engine)->generate(request);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? result->latents.data : std::vector<float>();
}

TEST(SingleFile, LatentsEqualThoseOfTheFolder) {
  for (const char* pipeline :
       {"pipeline_sd1", "pipeline_sd2", "pipeline_sdxl", "pipeline_sd_inpaint", "pipeline_sdxl_inpaint"}) {
    SCOPED_TRACE(pipeline);
    const std::string golden = testing::golden_root() + "/image/" + pipeline;
    const std::vector<float> expected = single_file_latents(golden);
    ASSERT_FALSE(expected.empty());
    const testing::TemporaryFolder folder;
    copy_without_weights(golden, folder.path() + "/model");
    const SingleTensors tensors = one_file(pipeline);
    write_safetensors(tensors, folder.path() + "/model.safetensors");
    EXPECT_EQ(single_file_latents(folder.path() + "/model.safetensors"), expected);
    write_torch(tensors, folder.path() + "/model/renamed.ckpt");  // beside model_index.json
    EXPECT_EQ(single_file_latents(folder.path() + "/model/renamed.ckpt"), expected);
  }
}

TEST(SingleFile, WhatIsMissingIsNamed) {
  const testing::TemporaryFolder folder;
  const std::string path = folder.path() + "/model.safetensors",
                    golden = testing::golden_root() + "/image/pipeline_sd1";
  const auto error_of = [&](const SingleTensors& tensors) {
    write_safetensors(tensors, path);
    std::string error;
    single_file_latents(path, &error);
    return error;
  };
  const SingleTensors whole = one_file("pipeline_sd1");
  // Without configurations beside it, those of the family, which other sizes contradict.
  EXPECT_THAT(error_of(whole), HasSubstr("model.safetensors: "));
  copy_without_weights(golden, folder.path() + "/model");
  std::filesystem::remove_all(folder.path() + "/model/tokenizer");
  EXPECT_THAT(error_of(whole), HasSubstr("the file has no tokenizer; put the folder tokenizer of a diffusers folder of "
                                         "Stable Diffusion 1 beside it"));
  const auto without = [&](std::string_view prefix) {
    SingleTensors part;
    for (const auto& [name, tensor] : whole)
      if (!name.starts_with(prefix)) part.insert({name, tensor});
    return part;
  };
  EXPECT_THAT(error_of(without("cond_stage_model.")), HasSubstr("holds a UNet without text encoders; pipelines in one "
                                                                "file are those of Stable Diffusion XL, Stable"));
  std::filesystem::copy(golden + "/tokenizer", folder.path() + "/model/tokenizer");
  EXPECT_THAT(error_of(without("first_stage_model.")),
              HasSubstr("has no vae: no tensor begins with first_stage_model."));
  SingleTensors strange = whole;
  strange["model.diffusion_model.middle_block.0.weight"] = {{1}, {1}};
  EXPECT_THAT(error_of(strange), HasSubstr("tensor \"middle_block.0.weight\" is not part of a UNet"));
  EXPECT_THAT(error_of({{"a", {{1}, {1}}}}), HasSubstr("holds no model of images"));
}

/// Numbers of parameters that are published of these networks.
TEST(SingleFile, ConfigurationsOfTheFamiliesHaveTheKnownSizes) {
  const std::map<std::pair<std::string, std::string>, int64_t> known = {
      {{"Stable Diffusion 1", "unet"}, 859'520'964},
      {{"Stable Diffusion 1", "vae"}, 83'653'863},
      {{"Stable Diffusion 1", "text_encoder"}, 123'060'480},
      {{"Stable Diffusion 2", "unet"}, 865'910'724},
      {{"Stable Diffusion 2", "vae"}, 83'653'863},
      {{"Stable Diffusion 2", "text_encoder"}, 340'387'840},
      {{"Stable Diffusion XL", "unet"}, 2'567'463'684},
      {{"Stable Diffusion XL", "vae"}, 83'653'863},
      {{"Stable Diffusion XL", "text_encoder"}, 123'060'480},
      {{"Stable Diffusion XL", "text_encoder_2"}, 694'659'840}};
  size_t found = 0;
  for (const SingleFileFamily& family : single_file_families())
    for (const SingleFileComponent& component : family.components) {
      SCOPED_TRACE(fmt::format("{}, {}", family.name, component.name));
      std::map<std::string, int64_t> elements;
      Checkpoint checkpoint;
      checkpoint.path = std::string(component.name);
      checkpoint.config = nlohmann::json::parse(component.config);
      checkpoint.make_tensor = [&](const std::string& name, const std::vector<int64_t>& shape) -> Result<WeightSource> {
        WeightSource source;
        source.view = {DType::kF32, shape, nullptr};
        elements[name] = source.view.num_elements();
        return source;
      };
      const auto build = [&]() -> Status {
        if (component.name == "unet") {
          REDLINE_ASSIGN(const DenoiserRow* row, find_denoiser(component.class_name));
          return row->build(checkpoint, 0).status();
        }
        if (component.name == "vae") {
          REDLINE_ASSIGN(const AutoencoderRow* row, find_autoencoder(component.class_name));
          return row->build(checkpoint).status();
        }
        REDLINE_ASSIGN(const TextEncoderRow* row, find_text_encoder(component.class_name));
        return row->build(checkpoint).status();
      };
      const Status built = build();
      ASSERT_TRUE(built.ok()) << built.message();
      int64_t sum = 0;
      for (const auto& [name, count] : elements) sum += count;
      const auto at = known.find({std::string(family.name), std::string(component.name)});
      ASSERT_NE(at, known.end());
      EXPECT_EQ(sum, at->second);
      ++found;
    }
  EXPECT_EQ(found, known.size());
}

}  // namespace
}  // namespace redline
