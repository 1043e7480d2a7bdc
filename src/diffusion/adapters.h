// Reads LoRA files of image models, and holds the adapters of a pipeline's networks (denoiser and text encoders).
#pragma once

#include <map>
#include <memory>

#include "base/mapped_file.h"
#include "models/checkpoint/adapter_bank.h"

namespace redline {

/// A LoRA file: safetensors with the names of PEFT and diffusers (lora_A, lora_B), kohya's trainers (lora_down,
/// lora_up, alpha), XLabs (processor.qkv_lora1), or LyCORIS (LoHa, LoKr), each also as DoRA; and whole differences of
/// weights and biases (diff, diff_b). A pair is scaled by its alpha tensor divided by its rank. Without an alpha tensor
/// it is scaled by lora_alpha / r from the file's lora_adapter_metadata for its network, else by 1.
struct AdapterFile {
  std::shared_ptr<const MappedFile> file;
  std::map<std::string, AdapterMatrices> networks;  ///< by component: "" is the denoiser, "text_encoder", ...
  int64_t max_rank = 0;
  /// Factors that are computed from the file's tensors. Views in `networks` point into them.
  std::vector<std::unique_ptr<std::vector<float>>> computed;

  /// Opens a file. invalid_argument: an incomplete pair, shapes that do not match, several adapters under one name, a
  /// rank other than the metadata's, or no pair. unsupported, by name: trained norms, biases of the first factor, and
  /// the three factors of Tucker forms.
  static Result<AdapterFile> open(const std::string& path);
};

/// The adapters of one network of a pipeline. The active ones apply to all rows of every step.
class NetworkAdapters : public AdapterBank {
 public:
  NetworkAdapters() = default;
  /// `idle_modules`: DenoiserModel::idle_modules, whose factors have no effect.
  explicit NetworkAdapters(AdapterSites sites, std::span<const std::string> idle_modules = {});
  /// Sets the adapters that apply from the next step on, each scaled by its weight; an empty list is the plain network.
  /// Errors: as select().
  Status set(NamedWeights adapters);
  /// Returns a number that every set() changes. Values computed with another version are stale.
  int64_t version() const { return version_; }
  /// Returns the active adapters for a step of this network; valid until the next set().
  std::vector<AdapterSegment> segments() const;

 private:
  int64_t version_ = 0;
  std::vector<WeightedAdapter> active_;
};

}  // namespace redline
