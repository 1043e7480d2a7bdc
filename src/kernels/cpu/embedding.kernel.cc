// Rows of a packed weight as float32: token t is row t % 16 of row panel t / 16.
#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"
#include "tensor/blocks/all.h"

namespace redline::REDLINE_ISA_NS {
namespace {

struct F32Lane {
  static constexpr int64_t kLaneElements = 1;
  REDLINE_INLINE static float value(const uint8_t* p) {
    float f;
    __builtin_memcpy(&f, p, 4);
    return f;
  }
};
struct F16Lane {
  static constexpr int64_t kLaneElements = 2;
  REDLINE_INLINE static float value(const uint8_t* p) { return blocks::load_half(p); }
};
struct BF16Lane {
  static constexpr int64_t kLaneElements = 2;
  REDLINE_INLINE static float value(const uint8_t* p) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(blocks::load_u16(p)) << 16);
  }
};

template <class Lane>
struct PlainRow {
  REDLINE_INLINE static void unpack(const void* weight, int64_t row, int64_t k, float* y) {
    constexpr int64_t kBytes = 4 / Lane::kLaneElements;
    const int64_t lines = (k + Lane::kLaneElements - 1) / Lane::kLaneElements;
    const uint8_t* lane =
        static_cast<const uint8_t*>(weight) + row / kRowPanelRows * lines * 64 + row % kRowPanelRows * 4;
    for (int64_t i = 0; i < k; ++i)
      y[i] = Lane::value(lane + i / Lane::kLaneElements * 64 + i % Lane::kLaneElements * kBytes);
  }
};
template <class Format>
struct BlockRow {
  REDLINE_INLINE static void unpack(const void* weight, int64_t row, int64_t k, float* y) {
    using RowPanel = blocks::RowPanel<Format>;
    constexpr int kGroups = Format::kElements / Format::kGroup;
    const int64_t units = k / Format::kElements, lane = row % kRowPanelRows;
    const uint8_t* block = static_cast<const uint8_t*>(weight) + row / kRowPanelRows * units * RowPanel::kBytes;
    for (int64_t b = 0; b < units; ++b, block += RowPanel::kBytes, y += Format::kElements) {
      // Unpacks all 16 rows to use one: their elements are interleaved, and a reader of single rows is not worth its
      // code.
      alignas(64) int8_t codes[Format::kElements * kRowPanelRows];
      alignas(64) float scales[kGroups * kRowPanelRows], mins[kGroups * kRowPanelRows];
      RowPanel::template unpack<true>(block, reinterpret_cast<uint8_t*>(codes), scales, mins);
      for (int64_t i = 0; i < Format::kElements; ++i) {
        const int64_t g = i / Format::kGroup * kRowPanelRows + lane;
        const float product = scales[g] * static_cast<float>(codes[i / 4 * 64 + lane * 4 + i % 4]);
        y[i] = Format::kHasMins ? product - mins[g] : product;
      }
    }
  }
};

template <class Format>
struct ScaledRow {
  REDLINE_INLINE static void unpack(const void* weight, int64_t row, int64_t k, float* y) {
    const uint8_t* row_panel = static_cast<const uint8_t*>(weight) + row / kRowPanelRows * Format::panel_bytes(k);
    const uint8_t* lane = row_panel + row % kRowPanelRows * 4;
    float scale;
    __builtin_memcpy(&scale, row_panel + Format::codes_bytes(k) + row % kRowPanelRows * 4, 4);
    for (int64_t i = 0; i < k; ++i) y[i] = scale * static_cast<float>(static_cast<int8_t>(lane[i / 4 * 64 + i % 4]));
  }
};

template <class Row>
void embedding(const EmbeddingArgs& a) {
  for (int64_t m = 0; m < a.rows; ++m) {
    float* y = a.y + m * a.hidden_size;
    const int64_t token = a.tokens[m];
    if (token < 0 || token >= a.vocab_size) {
      for (int64_t i = 0; i < a.hidden_size; ++i) y[i] = 0.0f;
      continue;
    }
    Row::unpack(a.weight, token, a.hidden_size, y);
  }
}

}  // namespace

void fill_embedding(CpuKernels& t) {
  t.embedding[static_cast<int>(DType::kF32)] = embedding<PlainRow<F32Lane>>;
  t.embedding[static_cast<int>(DType::kF16)] = embedding<PlainRow<F16Lane>>;
  t.embedding[static_cast<int>(DType::kBF16)] = embedding<PlainRow<BF16Lane>>;
#define REDLINE_SET(F) t.embedding[static_cast<int>(DType::k##F)] = embedding<BlockRow<blocks::F>>;
  REDLINE_BLOCK_FORMATS(REDLINE_SET)
#undef REDLINE_SET
#define REDLINE_SET(F) t.embedding[static_cast<int>(DType::k##F)] = embedding<ScaledRow<blocks::F>>;
  REDLINE_ROW_FORMATS(REDLINE_SET)
#undef REDLINE_SET
}

}  // namespace redline::REDLINE_ISA_NS
