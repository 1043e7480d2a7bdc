// LoRA files beside compiled networks, a denoiser and text encoders: read and packed once, then swapped by pointers
// between steps.
#pragma once

#include <map>
#include <span>

#include "graph/adapters.h"
#include "models/checkpoint.h"

namespace redline {

/// Low-rank factors of one matrix or convolution as a file holds them; of one pixel are matrices here.
struct AdapterMatrix {
  TensorView down;   ///< [rank, in_features] or [rank, channels, kernel, kernel]
  TensorView up;     ///< [out_features, rank]
  double scale = 1;  ///< alpha / rank
};

/// Of one network, by the module's name as the file spells it, prefix taken off.
using AdapterMatrices = std::map<std::string, AdapterMatrix>;

/// A LoRA file: safetensors with PEFT's names (lora_A, lora_B) or kohya's (lora_down, lora_up, alpha).
struct AdapterFile {
  std::shared_ptr<const MappedFile> file;
  std::map<std::string, AdapterMatrices> networks;  ///< by component: "" the denoiser, "text_encoder", ...
  int64_t max_rank = 0;

  /// invalid_argument: half of a pair, shapes that do not go together, no pair at all. unsupported: LoHa, LoKr, DoRA
  /// and the three factors of LoCon's Tucker form, named.
  static Result<AdapterFile> open(const std::string& path);
};

/// The adapters of one network. Not for use while a step runs.
class AdapterBank {
 public:
  explicit AdapterBank(AdapterSlots slots) : slots_(std::move(slots)) {}
  /// `plain`: keeps float32 copies for the interpreter.
  /// invalid_argument: a module that the network does not have (the message names it and counts), shapes that differ, a
  /// rank above the slots'; a name that is taken.
  Status load(const std::string& name, const AdapterMatrices& matrices, bool plain);
  /// Takes back what load() did.
  void unload(const std::string& name) { adapters_.erase(name); }
  /// What stands beside the weights from the next step on, each times its weight; none: the network alone.
  /// not_found: no such name. invalid_argument: together they exceed the slots' rank.
  Status set(std::span<const std::pair<std::string, double>> adapters);
  /// What set() would say, without setting anything.
  Status check(std::span<const std::pair<std::string, double>> adapters) const { return parts(adapters).status(); }
  /// Another number after every set(): what was computed with other adapters is out of date.
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
