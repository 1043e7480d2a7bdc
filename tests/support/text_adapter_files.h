// Random LoRA adapters of language models as files: PEFT folders and llama.cpp's GGUF.
#pragma once

#include <filesystem>
#include <list>
#include <random>

#include "formats/gguf_writer.h"
#include "models/checkpoint/checkpoint.h"
#include "models/checkpoint/gguf_names.h"
#include "support/safetensors_file.h"

namespace redline::testing {

/// Factors by module ("model.layers.0.self_attn.q_proj"), in Hugging Face's row order.
struct TextAdapter {
  struct Factors {
    int64_t rank, in, out;
    std::vector<float> a, b;    ///< [rank, in], [out, rank]
    bool is_embedding = false;  ///< whose rows are `in`
  };
  std::map<std::string, Factors> modules;
  int64_t rank = 8;
  double alpha = 16;

  /// Returns random factors of rank `rank` for each weight of a checkpoint whose module name ends with one of
  /// `targets`.
  static TextAdapter random(const Checkpoint& checkpoint, const std::vector<std::string>& targets, int64_t rank,
                            uint32_t seed, float size = 0.1f) {
    TextAdapter adapter;
    adapter.rank = rank;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, size);
    for (const auto& [name, source] : checkpoint.tensors) {
      const std::string module = name.substr(0, name.rfind('.'));
      const auto is_target = [&](const std::string& target) { return module.ends_with(target); };
      if (!name.ends_with(".weight") || std::none_of(targets.begin(), targets.end(), is_target)) continue;
      Factors f{rank, source.view.shape[1], source.view.shape[0], {}, {}};
      for (int64_t i = 0; i < f.rank * f.in; ++i) f.a.push_back(normal(random));
      for (int64_t i = 0; i < f.out * f.rank; ++i) f.b.push_back(normal(random));
      adapter.modules[module] = std::move(f);
    }
    return adapter;
  }

  /// Also beside an embedding.
  void add_embedding(const Checkpoint& checkpoint, const std::string& module, uint32_t seed, float size = 0.1f) {
    const TensorView& view = checkpoint.tensors.at(module + ".weight").view;
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, size);
    Factors f{rank, view.shape[0], view.shape[1], {}, {}, true};
    for (int64_t i = 0; i < f.rank * f.in; ++i) f.a.push_back(normal(random));
    for (int64_t i = 0; i < f.out * f.rank; ++i) f.b.push_back(normal(random));
    modules[module] = std::move(f);
  }

  nlohmann::json config() const {
    return {{"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", alpha}, {"bias", "none"}, {"target_modules", nullptr}};
  }
  SafetensorsFile tensors() const {
    SafetensorsFile file;
    for (const auto& [module, f] : modules) {
      const std::string name = "base_model.model." + module;
      const auto suffix = [&](const char* which) {
        return f.is_embedding ? std::string(".lora_embedding_") + which : fmt::format(".lora_{}.weight", which);
      };
      file.add(name + suffix("A"), "F32", {f.rank, f.in}, f.a.data(), f.a.size() * 4);
      file.add(name + suffix("B"), "F32", {f.out, f.rank}, f.b.data(), f.b.size() * 4);
    }
    return file;
  }
  static void write_folder(const std::string& folder, const nlohmann::json& config, const SafetensorsFile& tensors) {
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/adapter_config.json") << config.dump();
    tensors.write(folder + "/adapter_model.safetensors");
  }
  void write_peft(const std::string& folder) const { write_folder(folder, config(), tensors()); }

  /// `head_dim`: rows of q and k are written in interleaved rope order; 0: as they are.
  void write_gguf(const std::string& path, const GgufNames& names, int64_t head_dim) const {
    GgufWriter writer;
    writer.set("general.architecture", names.architecture);
    writer.set("general.type", "adapter");
    writer.set("adapter.type", "lora");
    writer.set_f32("adapter.lora.alpha", static_cast<float>(alpha));
    std::list<std::vector<float>> kept;
    for (const auto& [module, f] : modules) {
      const std::string name = names.to_gguf(module + ".weight");
      std::vector<float>& b = kept.emplace_back(f.b);
      if (head_dim > 0 && (module.ends_with("q_proj") || module.ends_with("k_proj"))) {
        const auto from = do_interleave(head_dim, head_dim);
        for (int64_t row = 0; row < f.out; ++row)
          std::copy_n(f.b.begin() + from(row) * f.rank, f.rank, b.begin() + row * f.rank);
      }
      if (f.is_embedding) {
        std::vector<float>& a = kept.emplace_back(f.a.size());
        for (int64_t r = 0; r < f.rank; ++r)
          for (int64_t k = 0; k < f.in; ++k)
            a[static_cast<size_t>(k * f.rank + r)] = f.a[static_cast<size_t>(r * f.in + k)];
        writer.add_tensor(name + ".lora_a", {DType::kF32, {f.in, f.rank}, a.data()});
      } else {
        writer.add_tensor(name + ".lora_a", {DType::kF32, {f.rank, f.in}, f.a.data()});
      }
      writer.add_tensor(name + ".lora_b", {DType::kF32, {f.out, f.rank}, b.data()});
    }
    const Status written = writer.write(path);
    if (!written.ok()) throw std::runtime_error(written.to_string());
  }

  /// Replaces the weights of the checkpoint by W + weight * alpha / rank * B A, summed in float64 and rounded to
  /// float32. `kept` owns the result.
  void merge(Checkpoint& checkpoint, double weight, std::list<std::vector<float>>& kept) const {
    for (const auto& [module, f] : modules) {
      TensorView& view = checkpoint.tensors.at(module + ".weight").view;
      std::vector<float>& merged = kept.emplace_back(static_cast<size_t>(f.out * f.in));
      unpack_row(view.dtype, view.data, merged.data(), f.out * f.in);
      for (int64_t n = 0; n < f.out; ++n)
        for (int64_t k = 0; k < f.in; ++k) {
          double sum = 0;
          for (int64_t r = 0; r < f.rank; ++r)
            sum += double{f.b[static_cast<size_t>(n * f.rank + r)]} * double{f.a[static_cast<size_t>(r * f.in + k)]};
          float& w = merged[static_cast<size_t>(f.is_embedding ? k * f.out + n : n * f.in + k)];
          w = static_cast<float>(double{w} + weight * alpha / static_cast<double>(f.rank) * sum);
        }
      view.dtype = DType::kF32;
      view.data = merged.data();
    }
  }
};

inline const std::vector<std::string> kAllProjections = {"q_proj",  "k_proj",    "v_proj",   "o_proj",
                                                         "up_proj", "gate_proj", "down_proj"};

}  // namespace redline::testing
