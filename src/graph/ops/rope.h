// Rotary position embedding: the table of a step and the rotation.
#pragma once

#include <cmath>

#include "graph/graph.h"
#include "graph/reference.h"

namespace redline {

/// Rotary position embedding (Su et al. 2021, arXiv:2104.09864) as two ops: the table of a step, shared by all layers,
/// and the rotation.
struct RopeTableAttrs {
  std::vector<float> inverse_frequencies;  ///< [rotary_dim / 2], radians per position
  float attention_factor = 1.0f;           ///< multiplies cosines and sines (yarn)
  /// Dynamic NTK scaling: for a sequence longer than `original_context` the base grows with its length L to
  ///   base * (factor * L / original_context - (factor - 1)) ^ (rotary_dim / (rotary_dim - 2)).
  struct Dynamic {
    double base = 10000, factor = 1;
    int64_t original_context = 0;  ///< 0: off
  } dynamic;
  /// LongRoPE (Ding et al. 2024, arXiv:2402.13753): sequences longer than `original_context` use these frequencies.
  struct Long {
    std::vector<float> inverse_frequencies;
    int64_t original_context = 0;  ///< 0: off
  } beyond;
  /// Growth of queries with their position p (Llama 4's attention temperature; Meta 2025): cosines and sines are
  /// multiplied by 1 + beta ln(1 + floor(p / original_context)).
  struct Growth {
    double beta = 0;
    int64_t original_context = 0;  ///< 0: off
  } growth;
  /// [rotary_dim / 2]: the axis of the positions that each frequency multiplies (M-RoPE of Qwen2-VL, Wang et al. 2024,
  /// arXiv:2409.12191: time, height and width of an image's patches). Empty: positions have one axis.
  std::vector<int32_t> axes = {};
  bool depends_on_length() const { return dynamic.original_context > 0 || beyond.original_context > 0; }
};

/// Cosines and sines of position * inverse frequency. The angle is rounded to float32 as in PyTorch implementations;
/// cos and sin are exact.
///
/// positions  [tokens]  i32; with RopeTableAttrs::axes [tokens, axes]
/// lengths    [tokens]  i32, known total length of the token's sequence; only where the table depends on it
/// returns    [tokens, rotary_dim]  f32: cosines, then sines
Value rope_table(GraphBuilder& g, Value positions, Value lengths, RopeTableAttrs attrs);

struct RopeAttrs {
  int64_t head_dim = 0;
};

/// Rotates the pairs (i, i + rotary_dim/2) of every head; elements from rotary_dim on are unchanged.
///
/// x      [tokens, heads * head_dim]  f32
/// table  [tokens, rotary_dim]        from rope_table; rotary_dim even and at most head_dim
/// returns like x
Value rope(GraphBuilder& g, Value x, Value table, RopeAttrs attrs);

/// Computes y = rope(x) in float64, for references.
void rope_reference(const HostTensor& x, const HostTensor& table, int64_t head_dim, HostTensor& y);

// Computes one row of the table: out[0, h) are cosines, out[h, 2h) sines, with h = rotary_dim / 2. `positions`: the
// token's position on every axis.
template <class Position, class T>
void rope_table_row(const RopeTableAttrs& a, const Position* positions, int32_t length, T* out) {
  const size_t half = a.inverse_frequencies.size();
  const auto& d = a.dynamic;
  double base = 0;
  if (d.original_context > 0 && length > d.original_context) {
    const double dim = static_cast<double>(half) * 2;
    base = d.base *
           std::pow(d.factor * length / static_cast<double>(d.original_context) - (d.factor - 1), dim / (dim - 2));
  }
  double factor = a.attention_factor;
  if (a.growth.original_context > 0)
    factor *= 1 + a.growth.beta * std::log1p(std::floor(static_cast<double>(positions[0]) /
                                                        static_cast<double>(a.growth.original_context)));
  const bool is_long = a.beyond.original_context > 0 && length > a.beyond.original_context;
  const std::vector<float>& frequencies = is_long ? a.beyond.inverse_frequencies : a.inverse_frequencies;
  for (size_t i = 0; i < half; ++i) {
    const float frequency =
        base == 0 ? frequencies[i]
                  : static_cast<float>(1.0 / std::pow(base, static_cast<double>(i) / static_cast<double>(half)));
    const double angle = static_cast<float>(positions[a.axes.empty() ? 0 : a.axes[i]]) * frequency;
    out[i] = static_cast<T>(std::cos(angle) * factor);
    out[half + i] = static_cast<T>(std::sin(angle) * factor);
  }
}

extern const OpDef kRopeTable;
extern const OpDef kRope;

}  // namespace redline
