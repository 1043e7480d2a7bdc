// Random adapters for the sites of compiled graphs, and what they add in float64.
#pragma once

#include "support/graph_harness.h"
#include "tensor/lora_up.h"
#include "tensor/packed_weight.h"

namespace redline::test {

/// One adapter. Its factors are what their packed types represent exactly, so that only activations are rounded.
struct RandomAdapter {
  std::shared_ptr<const Adapter> adapter;

  /// Call it when a program with these sites has been compiled. `rank`: by site, the same for all if there are fewer.
  static RandomAdapter make(Numbers& n, const AdapterSites& sites, const std::vector<int64_t>& rank,
                            float size = 0.2f) {
    struct Factors {
      std::vector<float> down, up;
      std::vector<uint8_t> packed_down, packed_up;
    };
    auto storage = std::make_shared<std::list<Factors>>();
    auto made = std::make_shared<Adapter>();
    for (size_t i = 0; i < sites.size(); ++i) {
      const AdapterSite& site = *sites[i];
      const int64_t r = rank[std::min(i, rank.size() - 1)];
      Factors& f = storage->emplace_back();
      f.down = n.vector(r * site.in_features, size);
      f.up = n.vector(site.out_features * r, 0.3f);
      f.packed_down = pack(f.down, site.down_shape(r), site.down_type);
      f.packed_up = pack_up(f.up, site.out_features, r, site.up_type);
      if (made->factors.size() <= site.index) made->factors.resize(site.index + 1);
      if (r > 0)
        made->factors[site.index] = {r, f.packed_down.data(), f.packed_up.data(), 0.75f, f.down.data(), f.up.data()};
    }
    made->storage = storage;
    return {made};
  }
  WeightedAdapter at(float weight) const { return {adapter, weight}; }

  static std::vector<uint8_t> pack_up(std::vector<float>& values, int64_t rows, int64_t rank, DType type) {
    if (type != DType::kI8) return pack(values, {rows, rank}, type);
    std::vector<uint8_t> packed(static_cast<size_t>(lora_up_bytes(rows, rank)));
    pack_lora_up(values.data(), rows, rank, packed.data());
    unpack_lora_up(packed.data(), rows, rank, values.data());
    return packed;
  }
  /// Rounds `values` to the type and packs them.
  static std::vector<uint8_t> pack(std::vector<float>& values, const std::vector<int64_t>& shape, DType type) {
    const auto [rows, cols] = packed_matrix({type, shape, nullptr});
    const int64_t bytes = row_bytes(type, cols);
    std::vector<uint8_t> stored(static_cast<size_t>(rows * bytes)),
        packed(static_cast<size_t>(packed_bytes(type, rows, cols)));
    for (int64_t r = 0; r < rows; ++r) {
      round_row(type, values.data() + r * cols, cols, stored.data() + r * bytes);
      unpack_row(type, stored.data() + r * bytes, values.data() + r * cols, cols);
    }
    pack_row_panels({type, shape, stored.data()}, 0, (rows + kRowPanelRows - 1) / kRowPanelRows, packed.data());
    return packed;
  }
};

/// y[n] += sum over adapters of weight * scale * up[n, :] (down x) for one row of a linear.
inline void add_adapters(std::span<const WeightedAdapter> adapters, const AdapterSite& site, const double* x,
                         double* y) {
  for (const WeightedAdapter& each : adapters) {
    if (site.index >= each.adapter->factors.size()) continue;
    const AdapterFactors& f = each.adapter->factors[site.index];
    for (int64_t r = 0; r < f.rank; ++r) {
      double t = 0;
      for (int64_t k = 0; k < site.in_features; ++k) t += double{f.plain_down[r * site.in_features + k]} * x[k];
      for (int64_t n = 0; n < site.out_features; ++n)
        y[n] += double{each.weight} * double{f.scale} * double{f.plain_up[n * f.rank + r]} * t;
    }
  }
}

/// The instruction sets of this machine, and the paths of others over stand-ins in C++.
inline std::vector<std::string> isa_paths() {
  std::vector<std::string> names;
  int count = 0;
  const CpuIsa* isas = cpu_isas(&count);
  for (int i = 0; i < count; ++i)
    if (isas[i].supported()) names.emplace_back(isas[i].name);
  for (const char* name : {"generic+tiles", "avx2+tiles", "avx512+tiles", "avx512+bf16_dot"})
    if (std::find(names.begin(), names.end(), std::string(name).substr(0, std::string(name).find('+'))) != names.end())
      names.emplace_back(name);
  return names;
}

}  // namespace redline::test
