// A convolution by bfloat16 tile products (tiles.h), straight from lines of the picture.
//
// Lines are brought into a buffer once: normalized, activated, rounded, with zeros around, 32 channels of neighbouring
// pixels side by side. The left operand of a product, 16 pixels x 32 channels of one tap, is then a run of lines of 64 bytes
// wherever it begins, so the nine taps read the same bytes and patches are never made. The weight lies in the order in which
// it is read: 32 channels of all taps, then the next 32.
//
// A region of some 512 output pixels stays in the second-level cache while all columns go by, two strips of the weight at a
// time; the sums of 2 x 2 tiles stay in tiles over all of K. Only where two strips would take the cache for themselves is K
// cut, and sums wait in scratch. Regions go down the picture, and what two share is moved, not brought again.
//
// Pixels come to tiles in panels of 16: of one line, or, where lines do not divide so, of all positions of the region in the
// buffer one after the other, of which those between lines are thrown away.
#pragma once

#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/conv2d.h"
#include "kernels/cpu/linear_tiles_end.h"
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t kConvTileBytes = 1024;
constexpr int64_t kConvPixelBytes = 2 * kConvBlock;
constexpr int64_t kConvPanel = 16;
constexpr int64_t kConvSumsFloats = 4 * kConvPanel * kStripRows;  // [2 panels][2 strips][16][16]
constexpr int64_t kConvMostPanels = 2 * kConvRegionLines;
constexpr int64_t kConvMostSteps = 160;  // of K whose sums stay in tiles

struct ConvTilesScratch {
  alignas(64) float sums[kConvMostPanels / 2][kConvSumsFloats];
  alignas(64) float done[kConvSumsFloats];
};
static_assert(sizeof(ConvTilesScratch) <= kScratchBytes);

template <class Unit>
class ConvTilesRun {
 public:
  ConvTilesRun(const ConvPatchesArgs& picture, const ConvTiles& conv)
      : p_(picture), a_(conv), scratch_(*static_cast<ConvTilesScratch*>(conv.scratch)),
        buffer_(static_cast<uint8_t*>(conv.buffer)), blocks_(picture.channels / kConvBlock),
        taps_(picture.kernel * picture.kernel),
        region_(conv_region(max_i64(picture.out_width, 1), picture.channels, picture.kernel, picture.stride)),
        streams_(kHasStreams && conv.streams && conv.out_channels % kStripRows == 0 &&
                 reinterpret_cast<uintptr_t>(conv.y) % 64 == 0) {}

  void run() {
    if (a_.line_begin >= a_.line_end || a_.n_begin >= a_.n_end) return;
    for (x0_ = 0; x0_ < p_.out_width; x0_ += region_.width) {
      width_ = min_i64(region_.width, p_.out_width - x0_);
      pitch_ = conv_extent(width_, p_.kernel, p_.stride);
      for (int64_t t = 0; t < taps_; ++t) tap_at_[t] = (t / p_.kernel * pitch_ + t % p_.kernel) * kConvPixelBytes;
      for (line_ = a_.line_begin; line_ < a_.line_end; line_ += region_.lines) {
        lines_ = min_i64(region_.lines, a_.line_end - line_);
        bring();
        choose_panels();
        multiply_all();
      }
    }
    if (streams_) stream_fence();
  }

 private:
  // Bringing lines.

  void bring() const {
    const int64_t wanted = conv_extent(lines_, p_.kernel, p_.stride);
    int64_t have = 0;
    if (line_ > a_.line_begin && p_.kernel > p_.stride) {
      have = p_.kernel - p_.stride;
      const int64_t line_bytes = pitch_ * kConvPixelBytes, from = region_.lines * p_.stride * line_bytes;
      for (int64_t b = 0; b < blocks_; ++b) {
        uint8_t* plane = buffer_ + b * region_.plane_bytes;
        __builtin_memmove(plane, plane + from, static_cast<size_t>(have * line_bytes));
      }
    }
    if (!a_.scale) bring_lines<false, false>(have, wanted);
    else if (a_.silu) bring_lines<true, true>(have, wanted);
    else bring_lines<true, false>(have, wanted);
  }

  void zero(int64_t at, int64_t pixels) const {
    for (int64_t b = 0; b < blocks_ && pixels > 0; ++b)
      __builtin_memset(buffer_ + b * region_.plane_bytes + at * kConvPixelBytes, 0,
                       static_cast<size_t>(pixels * kConvPixelBytes));
  }

  template <bool kNorm, bool kSilu>
  void bring_lines(int64_t first, int64_t end) const {
    const bool is_empty = p_.in_height == 0 || p_.in_width == 0;
    const int64_t height = is_empty ? 0 : p_.upsample ? p_.out_height : p_.in_height;
    const int64_t width = p_.upsample ? p_.out_width : p_.in_width;
    const int64_t top = line_ * p_.stride - p_.pad, left = x0_ * p_.stride - p_.pad;
    // Pixels [begin, last) of a line are the picture's.
    const int64_t begin = min_i64(max_i64(-left, 0), pitch_), last = max_i64(begin, min_i64(pitch_, width - left));
    for (int64_t i = first; i < end; ++i) {
      const int64_t y = top + i, at = i * pitch_;
      if (y < 0 || y >= height) {
        zero(at, pitch_);
        continue;
      }
      zero(at, begin);
      if (p_.upsample) {
        const float* line = p_.x + y * p_.in_height / p_.out_height * p_.in_width * p_.channels;
        for (int64_t x = begin; x < last; ++x)
          bring_pixel<kNorm, kSilu>(line + (left + x) * p_.in_width / p_.out_width * p_.channels, at + x);
      } else {
        const float* line = p_.x + (y * p_.in_width + left) * p_.channels;
        for (int64_t x = begin; x < last; ++x) bring_pixel<kNorm, kSilu>(line + x * p_.channels, at + x);
      }
      zero(at + last, pitch_ - last);
    }
  }
  template <bool kNorm, bool kSilu>
  REDLINE_INLINE void bring_pixel(const float* x, int64_t at) const {
    uint8_t* out = buffer_ + at * kConvPixelBytes;
    const float *scale = a_.scale, *shift = a_.shift;
    const int64_t plane = region_.plane_bytes;
    for (int64_t b = blocks_; b > 0; --b, x += kConvBlock, out += plane) {
      StripF32 v[2] = {load_strip(x), load_strip(x + kStripRows)};
      if constexpr (kNorm) {
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s)
#pragma GCC unroll 4
          for (int i = 0; i < kStripVecs; ++i) {
            const int64_t at_lane = s * kStripRows + i * kWidth;
            VecF32& value = v[s].v[i];
            value = fma(value, load(scale + at_lane, Full{}), load(shift + at_lane, Full{}));
            if constexpr (kSilu) value = silu(value);
          }
        scale += kConvBlock;
        shift += kConvBlock;
      }
      store_tile_line(out, v[0], v[1], false);
    }
  }

  // Products.

  void choose_panels() {
    per_line_ = (width_ + kConvPanel - 1) / kConvPanel;
    panels_ = lines_ * per_line_;
    const int64_t positions = (lines_ - 1) * pitch_ + width_;
    const int64_t flat = (positions + kConvPanel - 1) / kConvPanel;
    is_flat_ = p_.stride == 1 && flat < panels_;
    if (is_flat_) panels_ = flat;
  }
  /// Where in a plane a panel begins.
  int64_t panel_at(int64_t panel) const {
    if (is_flat_) return panel * kConvPanel * kConvPixelBytes;
    return (panel / per_line_ * pitch_ + panel % per_line_ * kConvPanel) * p_.stride * kConvPixelBytes;
  }

  struct Block {
    const uint8_t* x[2];  // panels
    const uint8_t* w[2];  // strips
    int64_t blocks;       // of channels
    bool first;
    float* sums;
    float* out;
    const uint8_t* ask[2];  // weights to ask for, `asks` lines of each with a step
    int64_t asks;
  };

  void multiply_all() const {
    const int64_t strip_bytes = blocks_ * taps_ * kConvTileBytes;
    const int64_t most = max_i64(1, blocks_ * taps_ <= kConvMostSteps ? blocks_ : kConvMostSteps / 2 / taps_);
    for (int64_t n = a_.n_begin; n < a_.n_end; n += 2 * kStripRows) {
      const bool alone = n + kStripRows >= a_.n_end;
      const uint8_t* w = static_cast<const uint8_t*>(a_.weight) + n / kStripRows * strip_bytes;
      for (int64_t b = 0; b < blocks_; b += most) {
        Block block;
        block.blocks = min_i64(most, blocks_ - b);
        block.first = b == 0;
        block.w[0] = w + b * taps_ * kConvTileBytes;
        block.w[1] = alone ? block.w[0] : block.w[0] + strip_bytes;
        const bool last = b + block.blocks == blocks_;
        // The weights that come next are asked for meanwhile, a share with every step.
        const int64_t steps = block.blocks * taps_, pairs = (panels_ + 1) / 2;
        const bool more = !last || n + 4 * kStripRows <= a_.n_end;
        const uint8_t* next = last ? w + 2 * strip_bytes : block.w[0] + steps * kConvTileBytes;
        const int64_t lines = steps * (kConvTileBytes / 64);
        const int64_t share = (lines + pairs - 1) / pairs;
        for (int64_t p = 0; p < panels_; p += 2) {
          const int64_t asked = p / 2 * share;
          block.asks = more ? (share + steps - 1) / steps : 0;
          block.ask[0] = next + asked * 64;
          block.ask[1] = alone ? next : next + strip_bytes + asked * 64;
          const bool single = p + 1 == panels_;
          block.x[0] = buffer_ + b * region_.plane_bytes + panel_at(p);
          block.x[1] = single ? block.x[0] : buffer_ + b * region_.plane_bytes + panel_at(p + 1);
          block.sums = scratch_.sums[p / 2];
          block.out = last ? scratch_.done : block.sums;
          if (single) alone ? multiply<1, 1>(block) : multiply<1, 2>(block);
          else alone ? multiply<2, 1>(block) : multiply<2, 2>(block);
          if (last) {
            finish(p, n, scratch_.done);
            if (!single) finish(p + 1, n, scratch_.done + kConvSumsFloats / 2);
          }
        }
      }
    }
  }

  template <int kPanels, int kStrips>
  [[gnu::noinline]] void multiply(const Block& block) const {
    constexpr bool kTwoPanels = kPanels == 2, kTwoStrips = kStrips == 2;
    Unit t;
    if (block.first) {
      t.template zero<0>();
      t.template zero<1>();
      t.template zero<2>();
      t.template zero<3>();
    } else {
      t.template load<0>(block.sums, 64);
      t.template load<1>(block.sums + 256, 64);
      t.template load<2>(block.sums + 512, 64);
      t.template load<3>(block.sums + 768, 64);
    }
    const uint8_t *x0 = block.x[0], *x1 = block.x[1], *w0 = block.w[0], *w1 = block.w[1];
    const uint8_t *ask0 = block.ask[0], *ask1 = block.ask[1];
    const int64_t taps = taps_, row = p_.stride * kConvPixelBytes, plane = region_.plane_bytes, asks = block.asks;
    for (int64_t b = block.blocks; b > 0; --b, x0 += plane, x1 += plane)
      for (int64_t tap = 0; tap < taps; ++tap, w0 += kConvTileBytes, w1 += kConvTileBytes) {
        const int64_t at = tap_at_[tap];
        t.template load<6>(w0, 64);
        t.template load<4>(x0 + at, row);
        t.template dot_bf16<0, 4, 6>();
        if constexpr (kTwoStrips) {
          t.template load<7>(w1, 64);
          t.template dot_bf16<1, 4, 7>();
        }
        if constexpr (kTwoPanels) {
          t.template load<5>(x1 + at, row);
          t.template dot_bf16<2, 5, 6>();
          if constexpr (kTwoStrips) t.template dot_bf16<3, 5, 7>();
        }
        for (int64_t i = asks; i > 0; --i, ask0 += 64, ask1 += 64) {
          __builtin_prefetch(ask0, 0, 2);
          __builtin_prefetch(ask1, 0, 2);
        }
      }
    t.template store<0>(block.out, 64);
    if constexpr (kTwoStrips) t.template store<1>(block.out + 256, 64);
    if constexpr (kTwoPanels) t.template store<2>(block.out + 512, 64);
    if constexpr (kTwoPanels && kTwoStrips) t.template store<3>(block.out + 768, 64);
  }

  // The end.

  /// The sums of one panel, [2 strips][16 pixels][16 columns], and the columns from n on.
  void finish(int64_t panel, int64_t n, const float* sums) const {
    int64_t line, x, rows;
    if (is_flat_) {
      line = panel * kConvPanel / pitch_;
      x = panel * kConvPanel % pitch_;
      rows = kConvPanel;
    } else {
      line = panel / per_line_;
      x = panel % per_line_ * kConvPanel;
      rows = min_i64(kConvPanel, width_ - x);
    }
    for (int64_t r = 0; r < rows && line < lines_; ++line, x = 0) {
      const int64_t to_end = min_i64(rows - r, pitch_ - x), count = min_i64(to_end, width_ - x);
      if (count > 0)
        finish_run(((line_ + line) * p_.out_width + x0_ + x) * a_.out_channels + n, count, n, sums + r * 16);
      r += to_end;
    }
  }
  /// `count` neighbouring pixels, whose first lies at y_at in y.
  void finish_run(int64_t y_at, int64_t count, int64_t n, const float* sums) const {
    for (int64_t s = 0; s < 2; ++s, n += kStripRows, y_at += kStripRows, sums += kConvPanel * kStripRows) {
      const int64_t lanes = min_i64(kStripRows, a_.n_end - n);
      if (lanes <= 0) return;
      const StripF32 bias = a_.bias ? load_strip(a_.bias + n, lanes) : zero_strip();
      float* y = a_.y + y_at;
      const float* residual = a_.residual ? a_.residual + y_at : nullptr;
      const int64_t stride = a_.out_channels;
      for (int64_t r = 0; r < count; ++r, y += stride) {
        StripF32 v = load_strip(sums + r * kStripRows);
#pragma GCC unroll 4
        for (int i = 0; i < kStripVecs; ++i) v.v[i] = v.v[i] + bias.v[i];
        if (residual) {
          const StripF32 rest = load_strip(residual + r * stride, lanes);
#pragma GCC unroll 4
          for (int i = 0; i < kStripVecs; ++i) v.v[i] = v.v[i] + rest.v[i];
        }
        if (streams_) {
#pragma GCC unroll 4
          for (int i = 0; i < kStripVecs; ++i) stream(y + i * kWidth, v.v[i]);
        } else {
          store_strip(y, v, lanes);
        }
      }
    }
  }

  const ConvPatchesArgs& p_;
  const ConvTiles& a_;
  ConvTilesScratch& scratch_;
  uint8_t* const buffer_;
  const int64_t blocks_, taps_;
  const ConvRegion region_;
  const bool streams_;  // whole lines of y go past the caches
  int64_t x0_ = 0, width_ = 0, pitch_ = 0, line_ = 0, lines_ = 0;
  int64_t per_line_ = 0, panels_ = 0;
  bool is_flat_ = false;
  int64_t tap_at_[kConvMostKernel * kConvMostKernel] = {};
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
