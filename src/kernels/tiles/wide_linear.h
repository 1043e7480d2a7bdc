// The product of linear.h for many rows on devices with warp groups. It has the same arguments, ring and decoders, and
// adds its sums in the same order. Weights are A, decoded into registers; rows of x are B, in shared memory as the
// descriptor says (warp_group.h), with the columns of each 16 in the order of the packed weight.
#pragma once

#include "kernels/tiles/conv2d.h"
#include "kernels/tiles/linear.h"
#include "kernels/tiles/warp_group.h"

namespace redline::tiles {

template <class Rows>
struct BasicWideLinear : BasicLinear<Rows> {
  using Base = BasicLinear<Rows>;
  using Args = typename Rows::Args;
  using Base::kPassRows;
  static_assert(kPassRows == kGroupCols);

  static TILE_FN void compute(const Args& a, const TileRange& tile, const StepTables& step, Warp& w,
                              RingPosition& ring) {
    const detail::Product product = Rows::product(a, tile, w);
    const int first_panel = product.col_begin / 16, num_panels = (product.col_end + 15) / 16;
    const int panel = first_panel + w.index();
    // A group multiplies with all its warps or not at all: the rows of a warp without a panel are not stored.
    const bool multiplies = first_panel + w.index() / kGroupWarps * kGroupWarps < num_panels;
    for (int pass = 0; pass < detail::linear_passes(product, kPassRows); ++pass) {
      const int first = product.row_begin + pass * kPassRows;
      const int rows = product.row_end - first < kPassRows ? product.row_end - first : kPassRows;
      GroupC sums;
      TILE_UNROLL
      for (int i = 0; i < kGroupCols / 8; ++i) sums.tiles[i] = zero_c();
      for (int chunk = 0, k = 0; chunk * a.chunk_bytes < a.panel_bytes; ++chunk, k += a.chunk_elements) {
        const int elements = a.in_features - k < a.chunk_elements ? a.in_features - k : a.chunk_elements;
        w.consumer_sync();  // the previous rows are no longer read
        if (Base::is_i8(a))
          Base::stage_codes(a, product, step, first, rows, k, elements, w,
                            [](int row, const Lanes<int>& column) { return place_of_codes(row, column); });
        else
          Base::stage_rows(a, product, step, first, rows, k, elements, w,
                           [](int row, const Lanes<int>& column) { return place(row, column); });
        w.publish_shared();
        w.consumer_sync();
        const int stage = Ring::wait(w, ring);
        if (multiplies) {
          if (Base::is_i8(a)) multiply_codes(stage, elements, (rows + 7) / 8, w, sums);
          else if (a.format.is_plain()) multiply_plain(a, stage, elements, w, sums);
          else multiply_blocks(a, stage, elements, w, sums);
        }
        Ring::release(w, ring);
      }
      if (panel < num_panels) Base::store(a, product, step, first, panel, (rows + 7) / 8, w, sums.tiles);
    }
  }

 private:
  /// Bytes of 64 elements of K of all rows.
  static constexpr int kSlabBytes = kPassRows * 128;
  static_assert(detail::kMaxChunk / 64 * kSlabBytes <= kActivationBytes);

  /// Returns the address of elements `element` (even) and `element` + 1 of a row. Within 16, elements 4t and 4t + 1 are
  /// columns 2t and 2t + 1, and 4t + 2 and 4t + 3 columns 2t + 8 and 2t + 9.
  static TILE_FN Lanes<uint32_t> place(int row, const Lanes<int>& element) {
    const Lanes<int> within = element % 64;
    const Lanes<int> column = within / 16 * 16 + within % 16 / 4 * 2 + within % 4 / 2 * 8;
    return swizzled<4, 3, 3>(convert<uint32_t>(element / 64 * kSlabBytes + column * 2 + row * 128));
  }
  /// Returns the address of four codes from a multiple of 4 on; a slab has 128 codes of K.
  static TILE_FN Lanes<uint32_t> place_of_codes(int row, const Lanes<int>& element) {
    return swizzled<4, 3, 3>(convert<uint32_t>(element / 128 * kSlabBytes + element % 128 + row * 128));
  }
  /// Returns the descriptor of 32 bytes of all rows: elements [k, k + 16), byte 2 k, or codes [k, k + 32), byte k.
  static TILE_FN uint64_t rows_at(int byte, Warp& w) {
    MatrixDescriptor d;
    d.begin = w.shared_address(static_cast<uint32_t>(byte / 128 * kSlabBytes + byte % 128));
    d.row_stride = 8 * 128;
    return d.encode();
  }
  static TILE_FN uint64_t rows_of(int k, Warp& w) { return rows_at(2 * k, w); }

  static TILE_FN void multiply_codes(int stage, int elements, int tiles, Warp& w, GroupC& sums) {
    GroupSums products;
    TILE_UNROLL
    for (int i = 0; i < kGroupCols / 8; ++i) products.tiles[i] = zero_sums();
    const auto multiply = [&](auto& fragments, int k) {
      constexpr int kCount = sizeof(fragments) / sizeof(FragmentA);
      uint64_t rows[kCount];
      TILE_UNROLL
      for (int part = 0; part < kCount; ++part) {
        fragments[part] = Base::codes_of(stage, k + 32 * part, w);
        rows[part] = rows_at(k + 32 * part, w);
      }
      group_multiply<true>(w, fragments, rows, products);
    };
    FragmentA four[4], one[1];
    int k = 0;
    for (; k + 128 <= elements; k += 128) multiply(four, k);
    for (; k < elements; k += 32) multiply(one, k);
    Base::add_products(products.tiles, tiles, w, sums.tiles);
  }

  static TILE_FN void multiply_plain(const Args& a, int stage, int elements, Warp& w, GroupC& sums) {
    const uint32_t slot = Ring::slot(stage, w.index());
    const auto words = [&](const Lanes<int>& offset) {
      return w.load_shared<uint32_t>(convert<uint32_t>(offset) + slot);
    };
    const Panel<decltype(words)> weights(a.format, words);
    const Lanes<int> g = fragment_group(w.lane()), line = fragment_thread(w.lane()) * 2;
    const int lines = (elements + 1) / 2;
    const auto multiply = [&](auto& fragments, int k) {
      constexpr int kCount = sizeof(fragments) / sizeof(FragmentA);
      uint64_t rows[kCount];
      TILE_UNROLL
      for (int part = 0; part < kCount; ++part) {
        for (int i = 0; i < 4; ++i)
          fragments[part].a[i] = weights.plain_word(g + 8 * (i % 2), line + ((k + 16 * part) / 2 + i / 2), lines);
        rows[part] = rows_of(k + 16 * part, w);
      }
      group_multiply<true>(w, fragments, rows, sums);
    };
    FragmentA four[4], one[1];
    int k = 0;
    for (; k + 64 <= elements; k += 64) multiply(four, k);
    for (; k < elements; k += 16) multiply(one, k);
  }

  /// Multiplies the group of 32 or 16 elements that begins at k.
  static TILE_FN void multiply_group(const PanelFormat& f, FragmentA (&a)[2], int k, Warp& w, GroupC& products) {
    if (f.group == 32) {
      const uint64_t rows[2] = {rows_of(k, w), rows_of(k + 16, w)};
      group_multiply<false>(w, a, rows, products);
    } else {
      FragmentA first[1] = {a[0]};
      const uint64_t rows[1] = {rows_of(k, w)};
      group_multiply<false>(w, first, rows, products);
    }
  }

  static TILE_FN void multiply_blocks(const Args& a, int stage, int elements, Warp& w, GroupC& sums) {
    const PanelFormat& f = a.format;
    const uint32_t slot = Ring::slot(stage, w.index());
    const auto words = [&](const Lanes<int>& offset) {
      return w.load_shared<uint32_t>(convert<uint32_t>(offset) + slot);
    };
    const Panel<decltype(words)> weights(f, words);
    const Lanes<int> g = fragment_group(w.lane()), t = fragment_thread(w.lane());
    const Lanes<uint32_t> one = 0x3f803f80u;
    for (int k = 0; k < elements; k += f.group) {
      FragmentA codes[2];
      Lanes<float> scale[2], min[2];
      Base::decode_group(weights, f, k, g, t, codes, scale, min);
      GroupC products;
      TILE_UNROLL
      for (int i = 0; i < kGroupCols / 8; ++i) products.tiles[i] = zero_c();
      multiply_group(f, codes, k, w, products);
      TILE_UNROLL
      for (int i = 0; i < kGroupCols / 8; ++i) TILE_UNROLL
      for (int c = 0; c < 4; ++c) {
        Lanes<float>& sum = sums.tiles[i].c[c];
        sum = sum + scale[c / 2] * products.tiles[i].c[c];
      }
      if (!f.has_mins) continue;
      FragmentA ones[2] = {{{one, one, one, one}}, {{one, one, one, one}}};
      multiply_group(f, ones, k, w, products);
      TILE_UNROLL
      for (int i = 0; i < kGroupCols / 8; ++i) TILE_UNROLL
      for (int c = 0; c < 4; ++c) {
        Lanes<float>& sum = sums.tiles[i].c[c];
        sum = sum - min[c / 2] * products.tiles[i].c[c];
      }
    }
  }
};

using WideLinear = BasicWideLinear<detail::DenseRows>;
using WideConv2d = BasicWideLinear<detail::PatchRows>;

}  // namespace redline::tiles
