// Convolution by bfloat16 tile products (tiles.h), directly from rows of the feature map.
//
// Input rows are loaded into a buffer once: normalized, activated, rounded, with zero padding, in blocks of 32 channels
// with neighbouring pixels contiguous. The left operand of a product, 16 pixels x 32 channels of one tap, is then a run
// of 64-byte rows at any offset, so all nine taps of a 3 x 3 kernel read the same bytes and no patches are built. The
// weight is packed in the order in which it is read: 32 channels of all taps, then the next 32.
//
// A region of about 512 output pixels stays in L2 while all output columns are computed, two row panels of the weight
// at a time; 2 x 2 accumulator tiles stay in registers over all of K. Only where two row panels would fill the cache is
// K split, with the sums in scratch. Regions proceed down the feature map, and the rows that two of them share are
// copied, not loaded again. A few small items form one region, each with its own padding.
//
// Interleaved with the products, a few vector instructions per step of K, the input rows of the next region are loaded
// and the sums of the previous block get bias and residual and are written to y. Both, and their memory latency, are
// hidden behind the tile unit.
//
// Without a tile unit the same regions are multiplied by dot products, or in float32 from a buffer of float32
// (conv2d_dots.h). There K is always split, so that the weights of a step are in L1, and input rows are loaded between
// regions: nothing can be hidden.
//
// Pixels are grouped into pixel panels of 16: of one row, or, where the width does not divide well, of consecutive
// positions in the buffer, whose results between rows are discarded.
#pragma once

#include "kernels/cpu/activation_functions.h"
#include "kernels/cpu/convolution/conv2d.h"
#include "kernels/cpu/convolution/conv2d_dots.h"
#include "kernels/cpu/linear/linear_tiles_end.h"
#include "kernels/cpu/tiles.h"

namespace redline::REDLINE_ISA_NS {
namespace {

constexpr int64_t kConvTileBytes = 1024;
constexpr int64_t kConvPanel = 16;
constexpr int64_t kConvSumsFloats = 4 * kConvPanel * kRowPanelRows;  // [2 pixel panels][2 row panels][16][16]
constexpr int64_t kConvMaxPanels = 2 * kConvRegionRows;
constexpr int64_t kConvMaxSteps = 160;  // maximum steps of K whose sums stay in tiles

constexpr int64_t kConvPixels = 2 * kConvPanel;  // pixels of a block of products
constexpr int64_t kConvPrefetchPixels = 8;       // pixels of y prefetched before they are written

#if defined(__AVX512F__)
/// Prefetches a cache line for writing. Without -mprfchw the builtin would prefetch it in shared state.
REDLINE_INLINE void prefetch_for_write(const float* image_row) { asm volatile("prefetchw %0" : : "m"(*image_row)); }
/// Computes silu to 2^-12 relative, for results that are rounded to bfloat16 (2^-9), in half the instructions: 2^t to
/// 7.5e-5 as in attention_bf16_pipeline.h, the reciprocal to 2^-14. -inf gives NaN, as the formula does.
REDLINE_INLINE VecF32 rough_silu(VecF32 x) {
  const VecF32 t = x * set1(-1.44269504f), r = {_mm512_reduce_ps(t.v, 0x09)};  // t - floor(t)
  const VecF32 p = fma(fma(fma(r, set1(0x1.3f9694p-4f), set1(0x1.cefc5cp-3f)), r, set1(0x1.64444ap-1f)), r,
                       set1(0x1.00fb18p0f - 0x1p-8f));
  const VecF32 y = set1(1.0f) + VecF32{_mm512_scalef_ps(p.v, t.v)};
  return x * VecF32{_mm512_rcp14_ps(y.v)};
}
#else
REDLINE_INLINE void prefetch_for_write(const float* image_row) { __builtin_prefetch(image_row, 1, 3); }
REDLINE_INLINE VecF32 rough_silu(VecF32 x) { return silu(x); }
#endif

struct ConvTilesScratch {
  alignas(64) float sums[kConvMaxPanels / 2][kConvSumsFloats];
  alignas(64) float done[2][kConvSumsFloats];  // sums of the previous block and of the current one
  // Biases of both blocks, per pixel panel: its item may have its own bias
  alignas(64) float bias[2][2][2 * kRowPanelRows];
  alignas(64) float weights[2][kConvF32Lines * kRowPanelRows];  // weights of a step, for ConvF32
};
static_assert(sizeof(ConvTilesScratch) <= kScratchBytes);

template <class Unit>
class ConvTilesRun {
 public:
  ConvTilesRun(const ConvPatchesArgs& picture, const ConvTiles& conv)
      : p_(picture), a_(conv), scratch_(*static_cast<ConvTilesScratch*>(conv.scratch)),
        blocks_(picture.channels / kConvBlock), taps_(picture.kernel * picture.kernel),
        size_(conv.items > 1 ? conv_region_of(picture.out_width, picture.out_height, picture.channels, picture.kernel,
                                              picture.stride, conv.items, kElementBytes)
                             : conv_region(max_i64(picture.out_width, 1), picture.channels, picture.kernel,
                                           picture.stride, kElementBytes)),
        streams_(kHasStreams && conv.streams && conv.out_channels % kRowPanelRows == 0 &&
                 reinterpret_cast<uintptr_t>(conv.y) % 64 == 0) {}

  void run() {
    if (a_.image_row_begin >= a_.image_row_end || a_.n_begin >= a_.n_end || p_.out_width <= 0) return;
    Region now = region(0, a_.image_row_begin, 0);
    for (Loading all = loading(now, nullptr); all.there;) load_block(all);
    for (int side = 1; now.there; side ^= 1) {
      const Region next = after(now, side);
      Loading b = loading(next, &now);
      multiply_all(now, b);
      while (b.there) load_block(b);
      now = next;
    }
    while (pending_.next < pending_.count) finish();
    if (streams_) stream_fence();
  }

 private:
  static constexpr bool kIsF32 = __is_same(Unit, ConvF32), kHasTiles = !kIsF32 && !__is_same(Unit, ConvDots);
  static constexpr int64_t kElementBytes = kIsF32 ? 4 : 2, kPixelBytes = kElementBytes * kConvBlock;

  // Regions.

  struct Region {
    bool there;
    int64_t x0, width, pitch;  // output pixels; pixels of a buffer row
    int64_t image_row, image_rows;
    uint8_t* buffer;
    int64_t per_line, item_panels, panels;
    int64_t item_bytes;  // bytes of an item in a plane
    bool is_flat;
  };

  Region region(int64_t x0, int64_t image_row, int side) const {
    Region r;
    r.there = x0 < p_.out_width;
    r.x0 = x0;
    r.width = min_i64(size_.width, p_.out_width - x0);
    r.pitch = conv_extent(r.width, p_.kernel, p_.stride);
    r.image_row = image_row;
    r.image_rows = min_i64(size_.image_rows, a_.image_row_end - image_row);
    r.buffer = static_cast<uint8_t*>(a_.buffer) + side * ((size_.bytes + 63) / 64 * 64);
    r.per_line = (r.width + kConvPanel - 1) / kConvPanel;
    r.item_panels = r.image_rows * r.per_line;
    const int64_t flat = ((r.image_rows - 1) * r.pitch + r.width + kConvPanel - 1) / kConvPanel;
    r.is_flat = p_.stride == 1 && flat < r.item_panels;
    if (r.is_flat) r.item_panels = flat;
    r.panels = a_.items * r.item_panels;
    r.item_bytes = conv_extent(r.image_rows, p_.kernel, p_.stride) * r.pitch * kPixelBytes;
    return r;
  }
  Region after(const Region& r, int side) const {
    if (r.image_row + r.image_rows < a_.image_row_end) return region(r.x0, r.image_row + r.image_rows, side);
    return region(r.x0 + size_.width, a_.image_row_begin, side);
  }
  /// Returns the offset of a pixel panel in a plane.
  int64_t panel_at(const Region& r, int64_t panel) const {
    const int64_t item_at = panel / r.item_panels * r.item_bytes;
    panel %= r.item_panels;
    if (r.is_flat) return item_at + panel * kConvPanel * kPixelBytes;
    return item_at + (panel / r.per_line * r.pitch + panel % r.per_line * kConvPanel) * p_.stride * kPixelBytes;
  }

  // Loading of input rows.

  /// The progress of loading a region's input rows, 32 channels of a pixel at a time.
  struct Loading {
    bool there;
    const Region* region;
    int64_t item;
    int64_t image_row, end;  // buffer rows of the item
    int64_t x, last, left;   // next and end column in the buffer; feature-map x of column 0
    int64_t block;
    const float* from_line;
    const float* from;
    const float *scale, *shift;
    uint8_t* to;
  };

  Loading loading(const Region& r, const Region* before) const {
    Loading b = {};
    b.region = &r;
    if (!r.there) return b;
    b.end = conv_extent(r.image_rows, p_.kernel, p_.stride);
    b.left = r.x0 * p_.stride - p_.pad;
    int64_t have = 0;
    if (before && before->x0 == r.x0 && p_.kernel > p_.stride) {
      have = p_.kernel - p_.stride;
      const int64_t line_bytes = r.pitch * kPixelBytes, from = before->image_rows * p_.stride * line_bytes;
      for (int64_t i = 0; i < blocks_; ++i)
        __builtin_memcpy(r.buffer + i * size_.plane_bytes, before->buffer + i * size_.plane_bytes + from,
                         static_cast<size_t>(have * line_bytes));
    }
    b.image_row = have - 1;
    next_line(b);
    return b;
  }

  uint8_t* place(const Loading& b, int64_t x) const {
    return b.region->buffer + b.item * b.region->item_bytes + (b.image_row * b.region->pitch + x) * kPixelBytes;
  }
  void zero(const Loading& b, int64_t x, int64_t pixels) const {
    for (int64_t block = 0; block < blocks_ && pixels > 0; ++block)
      __builtin_memset(place(b, x) + block * size_.plane_bytes, 0, static_cast<size_t>(pixels * kPixelBytes));
  }

  /// Writes the padding and advances to the next row that has pixels of the feature map.
  void next_line(Loading& b) const {
    const Region& r = *b.region;
    const bool is_empty = p_.in_height == 0 || p_.in_width == 0;
    const int64_t height = is_empty ? 0 : p_.upsample ? p_.out_height : p_.in_height;
    const int64_t width = p_.upsample ? p_.out_width : p_.in_width;
    const int64_t top = r.image_row * p_.stride - p_.pad;
    b.x = min_i64(max_i64(-b.left, 0), r.pitch);
    b.last = max_i64(b.x, min_i64(r.pitch, width - b.left));
    for (++b.image_row; b.item < a_.items; ++b.item, b.image_row = 0)
      for (; b.image_row < b.end; ++b.image_row) {
        int64_t y = top + b.image_row;
        if (y < 0 || y >= height || b.x == b.last) {
          zero(b, 0, r.pitch);
          continue;
        }
        zero(b, 0, b.x);
        zero(b, b.last, r.pitch - b.last);
        if (p_.upsample) y = y * p_.in_height / p_.out_height;
        b.from_line = p_.x + (b.item * p_.in_height + y) * p_.in_width * p_.channels;
        if (a_.scale) {
          b.scale = a_.scale + b.item * p_.channels;
          b.shift = a_.shift + b.item * p_.channels;
        }
        b.to = place(b, b.x);
        pixel(b);
        b.there = true;
        return;
      }
    b.there = false;
  }
  REDLINE_INLINE void pixel(Loading& b) const {
    const int64_t x = b.left + b.x;
    b.from = b.from_line + (p_.upsample ? x * p_.in_width / p_.out_width : x) * p_.channels;
    b.block = 0;
  }

  REDLINE_INLINE void load_block(Loading& b) const {
    const float* x = b.from + b.block * kConvBlock;
    RowPanelF32 v[2] = {load_row_panel(x), load_row_panel(x + kRowPanelRows)};
    if (a_.scale) {
      const float *scale = b.scale + b.block * kConvBlock, *shift = b.shift + b.block * kConvBlock;
#pragma GCC unroll 2
      for (int s = 0; s < 2; ++s)
#pragma GCC unroll 4
        for (int i = 0; i < kRowPanelVecs; ++i) {
          const int64_t lane = s * kRowPanelRows + i * kWidth;
          v[s].v[i] = fma(v[s].v[i], load(scale + lane, Full{}), load(shift + lane, Full{}));
        }
      if (a_.silu) {
#pragma GCC unroll 2
        for (int s = 0; s < 2; ++s)
#pragma GCC unroll 4
          for (int i = 0; i < kRowPanelVecs; ++i) v[s].v[i] = kIsF32 ? silu(v[s].v[i]) : rough_silu(v[s].v[i]);
      }
    }
    uint8_t* to = b.to + b.block * size_.plane_bytes;
    if constexpr (kIsF32) {
      store_row_panel(reinterpret_cast<float*>(to), v[0]);
      store_row_panel(reinterpret_cast<float*>(to) + kRowPanelRows, v[1]);
    } else {
      store_tile_line(to, v[0], v[1], false);
    }
    if (++b.block < blocks_) return;
    b.to += kPixelBytes;
    if (++b.x < b.last) pixel(b);
    else next_line(b);
  }

  // Products.

  struct Block {
    const uint8_t* x[2];  // pixel panels
    const uint8_t* w[2];  // row panels of the weight
    int64_t blocks;       // channel blocks
    bool first;
    float* sums;
    float* out;
    const uint8_t* prefetch[2];  // weights to prefetch
    int64_t prefetch_lines;      // cache lines of each per step; with dots per block
    int64_t load_per_step;       // pixel blocks
    int64_t store_per_step;      // pixels
  };

  void multiply_all(const Region& r, Loading& loading) {
    for (int64_t t = 0; t < taps_; ++t) tap_at_[t] = (t / p_.kernel * r.pitch + t % p_.kernel) * kPixelBytes;
    // Number of bytes of the packed weights of 32 channels of a tap.
    const int64_t tile_bytes = kIsF32 && a_.weight_type == DType::kF32 ? 2 * kConvTileBytes : kConvTileBytes;
    const int64_t row_panel_bytes = blocks_ * taps_ * tile_bytes, pairs = (r.panels + 1) / 2;
    const int64_t max_blocks = !kHasTiles ? max_i64(1, kConvDotSteps * 2 / kElementBytes / taps_)
                               : blocks_ * taps_ <= kConvMaxSteps ? blocks_
                                                                  : max_i64(1, kConvMaxSteps / 2 / taps_);
    const int64_t all_steps =
        (a_.n_end - a_.n_begin + 2 * kRowPanelRows - 1) / (2 * kRowPanelRows) * pairs * blocks_ * taps_;
    const int64_t to_load =
        loading.there ? (loading.end - loading.image_row) * (loading.last - loading.x) * blocks_ : 0;  // for one item
    Block block;
    block.load_per_step = (to_load + all_steps - 1) / all_steps;
    for (int64_t n = a_.n_begin; n < a_.n_end; n += 2 * kRowPanelRows) {
      const bool alone = n + kRowPanelRows >= a_.n_end;
      const uint8_t* w = static_cast<const uint8_t*>(a_.weight) + n / kRowPanelRows * row_panel_bytes;
      for (int64_t b = 0; b < blocks_; b += max_blocks) {
        block.blocks = min_i64(max_blocks, blocks_ - b);
        block.first = b == 0;
        block.w[0] = w + b * taps_ * tile_bytes;
        block.w[1] = alone ? block.w[0] : block.w[0] + row_panel_bytes;
        const bool last = b + block.blocks == blocks_;
        // Prefetches the following weights meanwhile, a share with every step.
        const int64_t steps = block.blocks * taps_;
        const bool more = !last || n + 4 * kRowPanelRows <= a_.n_end;
        const uint8_t* next = last ? w + 2 * row_panel_bytes : block.w[0] + steps * tile_bytes;
        const int64_t share = (steps * (tile_bytes / 64) + pairs - 1) / pairs;
        block.store_per_step = (kConvPixels + steps - 1) / steps;
        if constexpr (kIsF32)
          for (int i = 0; i < (alone ? 1 : 2); ++i)
            block.w[i] = conv_weights_f32(a_.weight_type, block.w[i], steps * kConvBlock, scratch_.weights[i]);
        for (int64_t p = 0; p < r.panels; p += 2) {
          const int64_t prefetched = p / 2 * share;
          block.prefetch_lines = !more ? 0 : !kHasTiles ? share : (share + steps - 1) / steps;
          block.prefetch[0] = next + prefetched * 64;
          block.prefetch[1] = alone ? next : next + row_panel_bytes + prefetched * 64;
          const bool single = p + 1 == r.panels;
          const uint8_t* plane = r.buffer + b * size_.plane_bytes;
          block.x[0] = plane + panel_at(r, p);
          block.x[1] = single ? block.x[0] : plane + panel_at(r, p + 1);
          block.sums = scratch_.sums[p / 2];
          block.out = last ? scratch_.done[side_] : block.sums;
          if (single) alone ? multiply<1, 1>(block, loading) : multiply<1, 2>(block, loading);
          else alone ? multiply<2, 1>(block, loading) : multiply<2, 2>(block, loading);
          if (last) hand_over(r, p, single ? 1 : 2, n);
        }
      }
    }
  }

  template <int kPanels, int kRowPanels>
  [[gnu::noinline]] void multiply(const Block& block, Loading& loading) {
    if constexpr (kHasTiles) multiply_by_tiles<kPanels, kRowPanels>(block, loading);
    else multiply_by_dots<kPanels, kRowPanels>(block);
  }

  template <int kPanels, int kRowPanels>
  REDLINE_INLINE void multiply_by_dots(const Block& block) {
    while (pending_.prefetched < pending_.count) prefetch_result(pending_.prefetched++);
    for (int64_t i = 0; i < block.prefetch_lines; ++i) {
      __builtin_prefetch(block.prefetch[0] + i * 64, 0, 2);
      __builtin_prefetch(block.prefetch[1] + i * 64, 0, 2);
    }
    for (int p = 0; p < kPanels; ++p) {
      const int64_t at = p * 2 * kConvDotPanel;
      conv_dots_panel<Unit, kRowPanels>({.x = block.x[p],
                                         .w = {block.w[0], block.w[1]},
                                         .blocks = block.blocks,
                                         .taps = taps_,
                                         .tap_at = tap_at_,
                                         .pixel_bytes = p_.stride * kPixelBytes,
                                         .plane_bytes = size_.plane_bytes,
                                         .from = block.first ? nullptr : block.sums + at,
                                         .to = block.out + at});
    }
  }

  template <int kPanels, int kRowPanels>
  REDLINE_INLINE void multiply_by_tiles(const Block& block, Loading& loading) {
    constexpr bool kTwoPanels = kPanels == 2, kTwoRowPanels = kRowPanels == 2;
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
    const uint8_t *prefetch0 = block.prefetch[0], *prefetch1 = block.prefetch[1];
    const int64_t taps = taps_, row = p_.stride * kPixelBytes, plane = size_.plane_bytes,
                  prefetch_lines = block.prefetch_lines;
    for (int64_t b = block.blocks; b > 0; --b, x0 += plane, x1 += plane)
      for (int64_t tap = 0; tap < taps; ++tap, w0 += kConvTileBytes, w1 += kConvTileBytes) {
        const int64_t at = tap_at_[tap];
        t.template load<6>(w0, 64);
        t.template load<4>(x0 + at, row);
        t.template dot_bf16<0, 4, 6>();
        if constexpr (kTwoRowPanels) {
          t.template load<7>(w1, 64);
          t.template dot_bf16<1, 4, 7>();
        }
        if constexpr (kTwoPanels) {
          t.template load<5>(x1 + at, row);
          t.template dot_bf16<2, 5, 6>();
          if constexpr (kTwoRowPanels) t.template dot_bf16<3, 5, 7>();
        }
        for (int64_t i = prefetch_lines; i > 0; --i, prefetch0 += 64, prefetch1 += 64) {
          __builtin_prefetch(prefetch0, 0, 2);
          __builtin_prefetch(prefetch1, 0, 2);
        }
        for (int64_t i = block.store_per_step; i > 0 && pending_.next < pending_.count; --i) {
          if (pending_.prefetched < pending_.count) prefetch_result(pending_.prefetched++);
          if (pending_.prefetched == pending_.count || pending_.prefetched - pending_.next > kConvPrefetchPixels)
            finish();
        }
        for (int64_t i = block.load_per_step; i > 0 && loading.there; --i) load_block(loading);
      }
    t.template store<0>(block.out, 64);
    if constexpr (kTwoRowPanels) t.template store<1>(block.out + 256, 64);
    if constexpr (kTwoPanels) t.template store<2>(block.out + 512, 64);
    if constexpr (kTwoPanels && kTwoRowPanels) t.template store<3>(block.out + 768, 64);
  }

  // Epilogue: bias, residual, store.

  /// The sums of a finished block, [pixel panel][row panel][16 pixels][16 columns], that are to be written to y.
  struct Pending {
    const float* sums;
    const float* bias;  // [2 pixel panels][2 row panels][16]
    int64_t lanes;      // number of columns of y that exist
    int64_t next = 0, count = 0, prefetched = 0;
    int64_t of_first = 0;  // pixels of the first pixel panel
    int64_t y_at[kConvPixels];
    int64_t sums_at[kConvPixels];
  };

  void hand_over(const Region& r, int64_t panel, int64_t panels, int64_t n) {
    while (pending_.next < pending_.count) finish();
    pending_.sums = scratch_.done[side_];
    pending_.lanes = min_i64(2 * kRowPanelRows, a_.n_end - n);
    pending_.next = pending_.count = pending_.prefetched = 0;
    pending_.bias = scratch_.bias[side_][0];
    for (int64_t p = 0; p < panels; ++p) {
      const float* from = a_.bias ? a_.bias + (panel + p) / r.item_panels * a_.bias_stride + n : nullptr;
      for (int64_t i = 0; i < 2; ++i) {
        const int64_t lanes = pending_.lanes - i * kRowPanelRows;
        store_row_panel(scratch_.bias[side_][p] + i * kRowPanelRows,
                        from && lanes > 0 ? load_row_panel(from + i * kRowPanelRows, lanes) : zero_row_panel());
      }
      list_pixels(r, panel + p, n, p * 2 * kConvPanel * kRowPanelRows);
      if (p == 0) pending_.of_first = pending_.count;
    }
    side_ ^= 1;
  }
  /// Lists the pixels of a pixel panel that are part of y.
  void list_pixels(const Region& r, int64_t panel, int64_t n, int64_t sums_at) {
    const int64_t first_line = panel / r.item_panels * p_.out_height + r.image_row;
    panel %= r.item_panels;
    int64_t image_row = panel / r.per_line, x = panel % r.per_line * kConvPanel,
            rows = min_i64(kConvPanel, r.width - x);
    if (r.is_flat) {
      image_row = panel * kConvPanel / r.pitch;
      x = panel * kConvPanel % r.pitch;
      rows = kConvPanel;
    }
    // A run of pixels of one row, followed by the padding between rows.
    for (int64_t count; rows > 0 && image_row < r.image_rows;
         rows -= count, sums_at += count * kRowPanelRows, ++image_row) {
      const int64_t there = min_i64(rows, r.width - x);
      count = min_i64(rows, r.pitch - x);
      const int64_t y_at = ((first_line + image_row) * p_.out_width + r.x0 + x) * a_.out_channels + n;
      int64_t* y_list = pending_.y_at + pending_.count;
      int64_t* sums_list = pending_.sums_at + pending_.count;
      for (int64_t i = 0; i < there; ++i) {
        y_list[i] = y_at + i * a_.out_channels;
        sums_list[i] = sums_at + i * kRowPanelRows;
      }
      if (there > 0) pending_.count += there;
      x = 0;
    }
  }
  /// Prefetches the memory that finish() reads and writes: stores that miss the cache would delay those of tiles.
  REDLINE_INLINE void prefetch_result(int64_t i) const {
    const int64_t y_at = pending_.y_at[i];
    for (int64_t row_panel = 0; row_panel < 2; ++row_panel) {
      if (a_.residual) __builtin_prefetch(a_.residual + y_at + row_panel * kRowPanelRows, 0, 3);
      if (!streams_) prefetch_for_write(a_.y + y_at + row_panel * kRowPanelRows);
    }
  }
  REDLINE_INLINE void finish() {
    const int64_t i = pending_.next++, y_at = pending_.y_at[i], lanes = pending_.lanes;
    const float* sums = pending_.sums + pending_.sums_at[i];
    const float* bias = pending_.bias + (i < pending_.of_first ? 0 : 2 * kRowPanelRows);
    if (lanes < 2 * kRowPanelRows) [[unlikely]] {
      finish_row_panel_of(y_at, sums, bias, min_i64(lanes, kRowPanelRows));
      if (lanes > kRowPanelRows)
        finish_row_panel_of(y_at + kRowPanelRows, sums + kConvPanel * kRowPanelRows, bias + kRowPanelRows,
                            lanes - kRowPanelRows);
      return;
    }
    finish_row_panel_of(y_at, sums, bias, kRowPanelRows);
    finish_row_panel_of(y_at + kRowPanelRows, sums + kConvPanel * kRowPanelRows, bias + kRowPanelRows, kRowPanelRows);
  }
  REDLINE_INLINE void finish_row_panel_of(int64_t y_at, const float* sums, const float* bias, int64_t lanes) const {
    RowPanelF32 v = load_row_panel(sums);
    const RowPanelF32 b = load_row_panel(bias);
#pragma GCC unroll 4
    for (int i = 0; i < kRowPanelVecs; ++i) v.v[i] = v.v[i] + b.v[i];
    if (a_.residual) {
      const RowPanelF32 rest = load_row_panel(a_.residual + y_at, lanes);
#pragma GCC unroll 4
      for (int i = 0; i < kRowPanelVecs; ++i) v.v[i] = v.v[i] + rest.v[i];
    }
    float* y = a_.y + y_at;
    if (streams_) {
#pragma GCC unroll 4
      for (int i = 0; i < kRowPanelVecs; ++i) stream(y + i * kWidth, v.v[i]);
    } else {
      store_row_panel(y, v, lanes);
    }
  }

  const ConvPatchesArgs& p_;
  const ConvTiles& a_;
  ConvTilesScratch& scratch_;
  const int64_t blocks_, taps_;
  const ConvRegion size_;
  const bool streams_;  // y is written by non-temporal stores
  int side_ = 0;        // index into `done`
  int64_t tap_at_[kConvMaxKernel * kConvMaxKernel] = {};
  Pending pending_;
};

}  // namespace
}  // namespace redline::REDLINE_ISA_NS
