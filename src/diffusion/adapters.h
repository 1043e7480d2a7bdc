// LoRA adapters of compiled networks (denoiser and text encoders): read and packed once, then exchanged by pointer
// between steps.
#pragma once

#include <map>
#include <span>

#include "graph/adapters.h"
#include "models/checkpoint.h"

namespace redline {

/// Low-rank factors of one matrix or convolution as the file stores them; 1x1 convolutions are matrices here.
struct AdapterMatrix {
  TensorView down;   ///< [rank, in_features] or [rank, channels, kernel, kernel]
  TensorView up;     ///< [out_features, rank]
  double scale = 1;  ///< alpha / rank
};

/// The matrices of one network, by the module's name in the file, without its prefix.
using AdapterMatrices = std::map<std::string, AdapterMatrix>;

/// A LoRA file: safetensors with PEFT's names (lora_A, lora_B) or kohya's (lora_down, lora_up, alpha).
struct AdapterFile {
  std::shared_ptr<const MappedFile> file;
  std::map<std::string, AdapterMatrices> networks;  ///< by component: "" the denoiser, "text_encoder", ...
  int64_t max_rank = 0;

  /// invalid_argument: an incomplete pair, shapes that do not match, or no pair. unsupported: LoHa, LoKr, DoRA, and the
  /// three factors of LoCon's Tucker form; the message names them.
  static Result<AdapterFile> open(const std::string& path);
};

/// The adapters of one network. Not for use while a step runs.
class AdapterBank {
 public:
  explicit AdapterBank(AdapterSlots slots) : slots_(std::move(slots)) {}
  /// `plain`: keeps float32 copies for the interpreter.
  /// invalid_argument: a module that the network does not have (the message names the first and counts the others),
  /// shapes that differ, a rank above that of the slots, or a name that is in use.
  Status load(const std::string& name, const AdapterMatrices& matrices, bool plain);
  /// Undoes load().
  void unload(const std::string& name) { adapters_.erase(name); }
  /// The adapters that apply from the next step on, each scaled by its weight; none: the plain network.
  /// not_found: no such name. invalid_argument: their ranks together exceed that of the slots.
  Status set(std::span<const std::pair<std::string, double>> adapters);
  /// The status of set(), without setting anything.
  Status check(std::span<const std::pair<std::string, double>> adapters) const { return parts(adapters).status(); }
  /// Changes with every set(): values computed with other adapters are stale.
  int64_t version() const { return version_; }

 private:
  using Parts = std::vector<std::vector<AdapterPart>>;  // by slot
  Result<Parts> parts(std::span<const std::pair<std::string, double>> adapters) const;
  struct Packed {
    AdapterPart part;
    std::vector<uint8_t> down, up;
    std::vector<float> plain_down, plain_up;
  };
  AdapterSlots slots_;
  int64_t version_ = 0;
  std::map<std::string, std::map<size_t, Packed>> adapters_;  ///< by name, then by slot
};

}  // namespace redline
