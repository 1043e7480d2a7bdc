// PyTorch's random number generator on a CPU, so that a seed gives the same image as there.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "diffusion/noise_source.h"

namespace redline {

/// torch.Generator("cpu").manual_seed(seed), and torch.randn(n, generator=...) in float32 by draw(): the same bits as
/// PyTorch 2 on x86 CPUs with AVX2. PyTorch without AVX2, and on other architectures, takes sines and logarithms from
/// other libraries and itself differs from that by up to 3e-6.
class TorchGenerator final : public NoiseSource {
 public:
  /// torch takes seeds from -2^63 to 2^64 - 1; a negative one is its two's complement: static_cast<uint64_t>(-1).
  /// Only the low 32 bits count, as in torch.
  explicit TorchGenerator(uint64_t seed) : engine_(static_cast<uint32_t>(seed)) {}

  /// Below 16 values: one at a time in float64, by pairs, of which the second may be kept for the next such call. From
  /// 16 on: float32 by blocks of 16, the last block is regenerated over the end if the size is not a multiple of 16.
  void draw(std::span<float> out) override;

 private:
  double draw_double();
  double uniform_double();

  std::mt19937 engine_;
  std::optional<double> kept_;  ///< second value of a pair
};

/// One generator for all values, or a list of them as in diffusers: then each fills an equal part of every draw.
class TorchGenerators final : public NoiseSource {
 public:
  /// `count` generators of the seeds seed, seed + 1, ...
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
