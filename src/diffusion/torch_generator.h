// PyTorch's random number generator for CPUs, so that a seed gives the same image as in PyTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "diffusion/noise_source.h"

namespace redline {

/// torch.Generator("cpu").manual_seed(seed). draw() is torch.randn(n, generator=...) in float32, with the same bits as
/// PyTorch 2 on x86 CPUs with AVX2. PyTorch itself differs from that by up to 3e-6 without AVX2 and on other
/// architectures, where it takes sines and logarithms from other libraries.
class TorchGenerator final : public NoiseSource {
 public:
  /// torch takes seeds from -2^63 to 2^64 - 1; a negative one is its two's complement: static_cast<uint64_t>(-1).
  /// Only the low 32 bits count, as in torch.
  explicit TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

  /// Draws as PyTorch does. Fewer than 16 values are drawn one at a time in float64, from pairs whose second value may
  /// be kept for the next such call. 16 or more values are drawn in float32 in blocks of 16; if the size is not a
  /// multiple of 16, the last 16 values are drawn again.
  void draw(std::span<float> out) override;

 private:
  double draw_double();
  double uniform_double();

  std::mt19937 engine_;
  std::optional<double> kept_;  ///< second value of a pair
};

/// One generator for all values, or a list of generators as in diffusers, each of which fills an equal part of every
/// draw.
class TorchGenerators final : public NoiseSource {
 public:
  /// Makes `count` generators with the seeds seed, seed + 1, ...
  TorchGenerators(uint64_t seed, int64_t count) {
    for (int64_t i = 0; i < count; ++i) generators_.emplace_back(seed + static_cast<uint64_t>(i));
  }
  int64_t count() const { return static_cast<int64_t>(generators_.size()); }
  void draw(std::span<float> out) override {
    const size_t part = out.size() / generators_.size();
    for (size_t i = 0; i < generators_.size(); ++i) generators_[i].draw(out.subspan(i * part, part));
  }

 private:
  std::vector<TorchGenerator> generators_;
};

}  // namespace redline
