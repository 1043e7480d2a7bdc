// Quantizing to formats of 32 elements, and to ternary ones. Without weights the simple formats take the largest
// element as it is; with weights a scale is searched (ggml: quantize_row_q4_0_ref, quantize_row_q4_0_impl, ...).
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/quantize_lanes.h"
#include "tensor/blocks/all.h"

namespace redline::REDLINE_ISA_NS {
namespace {

/// Combines importance-matrix and element weights.
template <int kCount>
REDLINE_INLINE void scale_weights(const LaneBlocks& block, Floats* w) {
  for (int i = 0; i < kCount; ++i) w[i] = block.w[i] * square_root(block.row_mean_square + block.x[i] * block.x[i]);
}

/// Stores the lower nibbles of 32 codes as all formats of 32 elements do: byte i has elements i and 16 + i.
template <int kBytes>
REDLINE_INLINE void put_nibbles(const Floats* codes, int at, BlockBytes<kBytes>& out) {
  for (int i = 0; i < 16; ++i) out.put(at + i, (to_int(codes[i]) & 15) | (to_int(codes[16 + i]) & 15) << 4);
}
/// Stores the fifth bits of 32 codes, element 0 in the lowest bit.
template <int kBytes>
REDLINE_INLINE void put_fifth_bits(const Floats* codes, int at, BlockBytes<kBytes>& out) {
  for (int b = 0; b < 4; ++b) {
    Ints bits = {};
    for (int i = 0; i < 8; ++i) bits |= (to_int(codes[8 * b + i]) >> 4 & 1) << i;
    out.put(at + b, bits);
  }
}

/// Encodes Q4_0 and Q5_0: codes from 0 to 2 kMaxCode - 1 around kMaxCode.
template <class Format, int kMaxCode, int kFirstNibble>
struct Symmetric {
  static constexpr int kElements = 32, kBytes = Format::kBytes;
  static constexpr bool kWantsRow = true;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats codes[32], scale;
    if (block.w) {
      Floats w[32];
      scale_weights<32>(block, w);
      scale = search_scale<32>(block.x, w, kMaxCode, codes);
    } else {
      Floats size;
      scale = signed_peak<32>(block.x, size) / static_cast<float>(-kMaxCode);
      const Floats inverse = pick(scale != 0.0f, 1.0f / scale, Floats{});
      for (int i = 0; i < 32; ++i)
        codes[i] = lesser(to_float(to_int(block.x[i] * inverse + (static_cast<float>(kMaxCode) + 0.5f))),
                          splat(static_cast<float>(2 * kMaxCode - 1)));
    }
    Ints half;
    round_to_half(scale, half);
    out.put_half(0, half);
    if (kFirstNibble == 6) put_fifth_bits(codes, 2, out);
    put_nibbles(codes, kFirstNibble, out);
  }
};

/// Encodes Q4_1 and Q5_1: codes from 0 to kMaxCode above a minimum.
template <class Format, int kMaxCode, int kFirstNibble>
struct WithMinimum {
  static constexpr int kElements = 32, kBytes = Format::kBytes;
  static constexpr bool kWantsRow = true;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats codes[32], scale, low;
    if (block.w) {
      Floats w[32];
      scale_weights<32>(block, w);
      scale = search_scale_min<32, false>(block.x, w, kMaxCode, {-0.9f, 0.05f, 36}, codes, low);
      low = -low;
    } else {
      Floats high = low = block.x[0];
      for (int i = 1; i < 32; ++i) {
        low = lesser(block.x[i], low);
        high = greater(block.x[i], high);
      }
      scale = (high - low) / static_cast<float>(kMaxCode);
      const Floats inverse = pick(scale != 0.0f, 1.0f / scale, Floats{});
      for (int i = 0; i < 32; ++i)
        codes[i] = lesser(to_float(to_int((block.x[i] - low) * inverse + 0.5f)), splat(static_cast<float>(kMaxCode)));
    }
    Ints half;
    round_to_half(scale, half);
    out.put_half(0, half);
    round_to_half(low, half);
    out.put_half(2, half);
    if (kFirstNibble == 8) put_fifth_bits(codes, 4, out);
    put_nibbles(codes, kFirstNibble, out);
  }
};

struct EightBits {
  static constexpr int kElements = 32, kBytes = blocks::Q8_0::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats size = {};
    for (int i = 0; i < 32; ++i) size = greater(size, absolute(block.x[i]));
    const Floats scale = size / 127.0f, inverse = pick(scale != 0.0f, 1.0f / scale, Floats{});
    Ints half;
    round_to_half(scale, half);
    out.put_half(0, half);
    for (int i = 0; i < 32; ++i) out.put(2 + i, to_int(round_away(block.x[i] * inverse)) & 255);
  }
};

/// Encodes MXFP4: a power of two as scale of 32 elements, and for each element the nearest of 16 values, the first of
/// two that are equally near.
struct Microscaling {
  static constexpr int kElements = 32, kBytes = blocks::MXFP4::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats size = {}, scale;
    for (int i = 0; i < 32; ++i) size = greater(size, absolute(block.x[i]));
    Ints exponent = {};
    for (int lane = 0; lane < kWidth; ++lane) {
      if (size[lane] > 0)
        exponent[lane] = static_cast<uint8_t>(static_cast<int>(__builtin_floorf(__builtin_log2f(size[lane]))) + 125);
      const auto e = static_cast<uint32_t>(exponent[lane]);
      scale[lane] = __builtin_bit_cast(float, e < 2 ? 0x00200000u << e : (e - 1) << 23);
    }
    out.put(0, exponent);
    Floats codes[32];
    for (int i = 0; i < 32; ++i) {
      Floats nearest_error = absolute(block.x[i]);
      codes[i] = Floats{};
      for (int c = 1; c < 16; ++c) {
        const Floats error = absolute(static_cast<float>(blocks::kE2m1DoubledCodes[c]) * scale - block.x[i]);
        const Ints is_nearer = error < nearest_error;
        nearest_error = pick(is_nearer, error, nearest_error);
        codes[i] = pick(is_nearer, splat(static_cast<float>(c)), codes[i]);
      }
    }
    put_nibbles(codes, 1, out);
  }
};

/// Computes the digit 0, 1 or 2 of an element of a ternary format. The scale is the largest magnitude of the block.
struct Ternary {
  Floats inverse;
  REDLINE_INLINE explicit Ternary(const Floats* x, Ints& half) {
    Floats size = {};
    for (int i = 0; i < 256; ++i) size = greater(size, absolute(x[i]));
    inverse = pick(size != 0.0f, 1.0f / size, Floats{});
    round_to_half(size, half);
  }
  REDLINE_INLINE Ints digit(Floats x) const { return to_int(round_away(x * inverse)) + 1; }
};

struct FiveToAByte {
  static constexpr int kElements = 256, kBytes = blocks::TQ1_0::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Ints half;
    const Ternary ternary(block.x, half);
    const auto put = [&](int at, const Floats* x, int stride, int digits) REDLINE_INLINE_LAMBDA {
      Ints q = {};
      for (int n = 0; n < 5; ++n) q = q * 3 + (n < digits ? ternary.digit(x[n * stride]) : Ints{});
      out.put(at, (q * 256 + 242) / 243);
    };
    for (int i = 0; i < 32; ++i) put(i, block.x + i, 32, 5);
    for (int i = 0; i < 16; ++i) put(32 + i, block.x + 160 + i, 16, 5);
    for (int i = 0; i < 4; ++i) put(48 + i, block.x + 240 + i, 4, 4);
    out.put_half(52, half);
  }
};

struct FourToAByte {
  static constexpr int kElements = 256, kBytes = blocks::TQ2_0::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Ints half;
    const Ternary ternary(block.x, half);
    for (int part = 0; part < 2; ++part)
      for (int i = 0; i < 32; ++i) {
        Ints q = {};
        for (int n = 0; n < 4; ++n) q |= (ternary.digit(block.x[128 * part + 32 * n + i]) & 3) << (2 * n);
        out.put(32 * part + i, q);
      }
    out.put_half(64, half);
  }
};

// IQ4_NL, IQ4_XS
// ---------------------------------------------------------------------------------------------------------

/// Returns the nearest of the 16 values of the table; the upper one of two that are equally near.
REDLINE_INLINE Floats nearest_value(Floats x) {
  Floats value = splat(blocks::kIq4Codes[0]);
  for (int c = 1; c < 16; ++c) {
    const float step = static_cast<float>(blocks::kIq4Codes[c] - blocks::kIq4Codes[c - 1]);
    const float middle = 0.5f * static_cast<float>(blocks::kIq4Codes[c] + blocks::kIq4Codes[c - 1]);
    value += pick(x >= middle, splat(step), Floats{});
  }
  return value;
}
REDLINE_INLINE Floats nearest_index(Floats x) {
  Floats index = {};
  for (int c = 1; c < 16; ++c) {
    const float middle = 0.5f * static_cast<float>(blocks::kIq4Codes[c] + blocks::kIq4Codes[c - 1]);
    index += pick(x >= middle, splat(1), Floats{});
  }
  return index;
}

/// Returns the one of 16 scales that gives 32 elements the least weighted error.
REDLINE_INLINE Floats search_table_scale(const Floats* x, const Floats* w) {
  Floats size;
  const Floats peak = signed_peak<32>(x, size);
  const auto first = static_cast<float>(blocks::kIq4Codes[0]);
  const auto sums = [&](Floats inverse, Floats& qx, Floats& q2) REDLINE_INLINE_LAMBDA {
    qx = q2 = Floats{};
    for (int i = 0; i < 32; ++i) {
      const Floats q = nearest_value(inverse * x[i]), wq = w[i] * q;
      qx += wq * x[i];
      q2 += wq * q;
    }
  };
  Floats qx, q2;
  sums(1.0f / (-peak / first), qx, q2);
  Floats scale = qx / q2, best = scale * qx;
  for (int step = -7; step <= 7; ++step) {
    sums((static_cast<float>(step) + first) / peak, qx, q2);
    const Ints is_better = (q2 > 0.0f) & (qx * qx > best * q2);
    scale = pick(is_better, qx / q2, scale);
    best = pick(is_better, scale * qx, best);
  }
  // Weights that are all zero carry no information: the scale of the largest element.
  scale = pick(scale == scale, scale, -peak / first);
  return pick(size < kMinGroup, Floats{}, scale);
}

REDLINE_INLINE void table_weights(const LaneBlocks& block, int begin, Floats mean, Floats* w) {
  for (int i = 0; i < 32; ++i) {
    const Floats x = block.x[begin + i];
    w[i] = block.w ? block.w[begin + i] * square_root(mean + x * x) : x * x;
  }
}
template <int kCount>
REDLINE_INLINE Floats doubled_mean_square(const Floats* x) {
  Floats sum = {};
  for (int i = 0; i < kCount; ++i) sum += x[i] * x[i];
  return sum * (2.0f / static_cast<float>(kCount));
}

struct TableOf32 {
  static constexpr int kElements = 32, kBytes = blocks::IQ4_NL::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    Floats w[32], codes[32];
    table_weights(block, 0, doubled_mean_square<32>(block.x), w);
    const Floats scale = search_table_scale(block.x, w);
    const Floats inverse = pick(scale != 0.0f, 1.0f / scale, Floats{});
    for (int i = 0; i < 32; ++i) codes[i] = nearest_index(inverse * block.x[i]);
    Ints half;
    round_to_half(scale, half);
    out.put_half(0, half);
    put_nibbles(codes, 2, out);
  }
};

struct TableOf256 {
  static constexpr int kElements = 256, kBytes = blocks::IQ4_XS::kBytes;
  static constexpr bool kWantsRow = false;
  REDLINE_INLINE static void encode(const LaneBlocks& block, BlockBytes<kBytes>& out) {
    const Floats mean = doubled_mean_square<256>(block.x);
    Floats scales[8], most = {}, size = {};
    for (int g = 0; g < 8; ++g) {
      Floats w[32];
      table_weights(block, 32 * g, mean, w);
      scales[g] = search_table_scale(block.x + 32 * g, w);
      const Ints is_more = absolute(scales[g]) > size;
      size = pick(is_more, absolute(scales[g]), size);
      most = pick(is_more, scales[g], most);
    }
    const Floats scale = -most / 32.0f, inverse = pick(scale != 0.0f, 1.0f / scale, Floats{});
    Ints half, high = {}, low = {};
    round_to_half(scale, half);
    out.put_half(0, half);
    for (int g = 0; g < 8; ++g) {
      const Floats level = clamp_code(nearest(inverse * scales[g]), -32, 31), own = scale * level;
      const Floats own_inverse = pick(own != 0.0f, 1.0f / own, Floats{});
      Floats codes[32];
      for (int i = 0; i < 32; ++i) codes[i] = nearest_index(own_inverse * block.x[32 * g + i]);
      put_nibbles(codes, 8 + 16 * g, out);
      const Ints stored = to_int(level) + 32;
      high |= (stored >> 4) << (2 * g);
      low = g % 2 == 0 ? stored & 15 : low | (stored & 15) << 4;
      if (g % 2 == 1) out.put(4 + g / 2, low);
    }
    out.put_half(2, high);
  }
};

}  // namespace

void fill_quantize(CpuKernels& table) {
  const auto set = [&](DType type, QuantizeFn function) { table.quantize[static_cast<int>(type)] = function; };
  set(DType::kQ4_0, quantize<Symmetric<blocks::Q4_0, 8, 2>>);
  set(DType::kQ5_0, quantize<Symmetric<blocks::Q5_0, 16, 6>>);
  set(DType::kQ4_1, quantize<WithMinimum<blocks::Q4_1, 15, 4>>);
  set(DType::kQ5_1, quantize<WithMinimum<blocks::Q5_1, 31, 8>>);
  set(DType::kQ8_0, quantize<EightBits>);
  set(DType::kMXFP4, quantize<Microscaling>);
  set(DType::kTQ1_0, quantize<FiveToAByte>);
  set(DType::kTQ2_0, quantize<FourToAByte>);
  set(DType::kIQ4_NL, quantize<TableOf32>);
  set(DType::kIQ4_XS, quantize<TableOf256>);
}

}  // namespace redline::REDLINE_ISA_NS
