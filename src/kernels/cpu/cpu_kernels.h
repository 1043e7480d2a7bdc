// The table of CPU kernels: one function pointer per kernel, one table per instruction set.
//
// Kernels take raw pointers in one Args struct. They do not allocate, throw or lock; temporaries go into `scratch`,
// kScratchBytes owned by the calling worker thread. Kernel sources use no std containers or algorithms: the linker
// could pick a weak symbol compiled for AVX-512 for the whole program (tools/check_symbols.py checks that there is
// none). A kernel NAME lives in NAME.kernel.cc, whose fill_NAME(CpuKernels&) the build finds (table.base.kernel.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#ifndef REDLINE_ISA_NS
#include <string>
#include <string_view>
#include <vector>
#endif

#include "tensor/activation_layout.h"
#include "tensor/dtype.h"
#include "tensor/kv_page.h"
#include "tensor/row_panel.h"

namespace redline {

/// Size of the scratch memory per worker, which is aligned to 64 bytes.
inline constexpr int64_t kScratchBytes = 3 << 20;
/// Arguments of y[r, c] = x[r, c] * weight[c] / sqrt(mean_c x[r, c]^2 + eps). Rows dense, y may be x.
struct RmsNormArgs {
  const float* x;
  const float* weight;  ///< [cols]
  float* y;
  int64_t rows, cols;
  float eps;
};

/// Arguments of rope, which rotates pairs (i, i + rotary_dim/2) of every head (the half-split order of Hugging Face
/// checkpoints):
///   y[i] = x[i] cos[i] - x[i + h] sin[i];  y[i + h] = x[i + h] cos[i] + x[i] sin[i];  h = rotary_dim/2
/// Elements from rotary_dim on are copied. y may be x.
struct RopeArgs {
  const float* x;  ///< [rows, heads, head_dim] dense
  float* y;
  const float* cosine;  ///< [rows, rotary_dim/2]
  const float* sine;
  int64_t rows, heads, head_dim, rotary_dim;
};

/// Arguments of y = silu(gate) * up, silu(v) = v / (1 + exp(-v)). y may be gate or up.
struct SiluMulArgs {
  const float* gate;
  const float* up;
  float* y;
  int64_t count;
};

/// Arguments of y = a + b. y may be a or b.
struct AddArgs {
  const float* a;
  const float* b;
  float* y;
  int64_t count;
};

/// Arguments of y = e^x, relative error below 1.2e-7; -inf gives 0, overflow +inf, NaN stays. y may be x.
struct ExpArgs {
  const float* x;
  float* y;
  int64_t count;
};

/// Arguments of y = cap tanh(x / cap), relative error below 6e-7; infinities give +-cap, NaN stays. y may be x.
struct SoftCapArgs {
  const float* x;
  float* y;
  int64_t count;
  float cap;
};

/// Arguments of prepare_x, which converts rows [row_begin, row_end) and columns [col_begin, col_end) of x to an
/// activation layout (tensor/activation_layout.h). Column ranges are split at multiples of activation_grain. Zeros pad
/// the last tile of all layouts but kI8Grouped when col_end == cols. Elements that share a scale of 8 bits become zero
/// if all are below 2^-100; an infinity or NaN among them makes all products of its row NaN.
struct PrepareXArgs {
  const float* x;    ///< row row_begin, column col_begin
  int64_t x_stride;  ///< elements between rows
  int64_t cols;      ///< columns of the whole x
  int64_t row_begin, row_end, col_begin, col_end;
  void* out;  ///< start of the output for the whole x: activation_bytes
};

struct LinearEnd;  // linear_end.h

/// Arguments of the linear kernels: y[m, n] = gate[n] (sum_k x[m, k] * w[n, k] (+ bias[n])) (+ residual[m, n]) for n in
/// [n_begin, n_end). `weight` is packed (tensor/packed_weight.h); n_begin is a multiple of kRowPanelRows. Every output
/// element is summed in one fixed order that does not depend on rows, n_begin or n_end: one kernel gives the same bits
/// for any chunks of rows and any number of workers.
struct LinearArgs {
  const void* x;     ///< in the kernel's activation layout (tensor/activation_layout.h)
  int64_t x_stride;  ///< elements between rows; kF32 only
  int64_t rows;      ///< M
  const void* weight;
  int64_t out_features;  ///< N
  int64_t in_features;   ///< K
  int64_t n_begin, n_end;
  const float* bias;      ///< [N] or nullptr
  const float* residual;  ///< [M, N], y_stride apart, or nullptr; may be y
  float* y;
  int64_t y_stride;
  void* scratch;
  const float* gate = nullptr;     ///< [N], or nullptr for ones
  const LinearEnd* end = nullptr;  ///< epilogue of the tile unit and its emulation; for linear_q8 a LinearPrefetch
};

/// Arguments of y[m, :] = row tokens[m] of a packed weight, as float32. A token outside [0, vocab) gives zeros.
struct EmbeddingArgs {
  const int32_t* tokens;
  int64_t rows;
  const void* weight;
  int64_t vocab_size, hidden_size;
  float* y;  ///< [rows, hidden_size]
};

/// Arguments of kv_append, which writes rows of k and v of one KV head into KV pages: row r goes to page slots[r] /
/// kKvPageTokens, token slots[r] % kKvPageTokens. Rows with a negative slot are skipped. Whole aligned blocks of
/// consecutive tokens are written much faster than single ones.
struct KvAppendArgs {
  const float* k;  ///< [rows, row_stride apart], head_dim elements each
  const float* v;
  int64_t row_stride;
  const int32_t* slots;
  int64_t rows, head_dim;
  KvHeadView cache;
};

/// Minimum number of query rows (rows * group of AttentionArgs) for which attention uses the tile unit, on CPUs that
/// have one: fewer rows are faster with vectors (docs/history/performance-notes.md). The plan sets the rows of a call,
/// so the choice does not depend on the number of workers.
inline constexpr int64_t kAttentionTileRows = 9;

/// Arguments of c += a . b for one tile product (kernels/cpu/tiles.h), 64-byte rows. For tests of the tile unit.
struct TileProductArgs {
  enum Kind : uint8_t { kS8S8, kU8S8, kBF16 } kind;
  const void* a;  ///< [16][64] bytes
  const void* b;  ///< [16][16][4] bytes
  void* c;        ///< [16][16] int32 or float32
};

// Arguments of attention over a paged KV cache, in attention_args.h.
struct AttentionArgs;
struct AttentionMergeArgs;
// Arguments of kernels of image models and encoders, in headers of their own.
struct LayerNormArgs;              // layer_norm.h
struct ActivationArgs;             // activation.h
struct GatedAddArgs;               // gated_add.h
struct GroupNormArgs;              // group_norm.h
struct ConvPatchesArgs;            // conv2d.h
struct RelativeBiasAttentionArgs;  // relative_bias_attention.h
// Arguments of recurrent layers.
struct CausalConvArgs;  // recurrence.h
struct GatedScanArgs;   // recurrence.h
struct LstmCellArgs;    // recurrence.h
// Arguments of conversions to block formats of files.
struct QuantizeArgs;  // quantize.h
// Arguments of samplers of language models.
struct BlockMaxArgs;     // logit_blocks.h
struct BlockExpSumArgs;  // logit_blocks.h

/// A register-resident loop that measures a peak. It returns the number of operations done (2 per multiply-add).
using PeakFn = double (*)(int64_t iterations);

/// The table. A thread that calls kernels must call worker_begin first and worker_end last; either may be nullptr.
#define REDLINE_CPU_KERNELS(K)                                                                  \
  K(void (*rms_norm)(const RmsNormArgs&), rms_norm)                                             \
  K(void (*rope)(const RopeArgs&), rope)                                                        \
  K(void (*silu_mul)(const SiluMulArgs&), silu_mul)                                             \
  K(void (*add)(const AddArgs&), add)                                                           \
  K(void (*exp)(const ExpArgs&), exp)                                                           \
  K(void (*soft_cap)(const SoftCapArgs&), soft_cap)                                             \
  K(void (*attention_merge)(const AttentionMergeArgs&), attention_merge)                        \
  K(void (*layer_norm)(const LayerNormArgs&), layer_norm)                                       \
  K(void (*activation)(const ActivationArgs&), activation)                                      \
  K(void (*gated_add)(const GatedAddArgs&), gated_add)                                          \
  K(void (*group_norm_sums)(const GroupNormArgs&), group_norm_sums)                             \
  K(void (*group_norm)(const GroupNormArgs&), group_norm)                                       \
  K(void (*conv_patches)(const ConvPatchesArgs&), conv_patches)                                 \
  K(void (*conv_f32)(const ConvPatchesArgs&), conv_f32)                                         \
  K(void (*relative_bias_attention)(const RelativeBiasAttentionArgs&), relative_bias_attention) \
  K(void (*causal_conv)(const CausalConvArgs&), causal_conv)                                    \
  K(void (*gated_scan)(const GatedScanArgs&), gated_scan)                                       \
  K(void (*lstm_cell)(const LstmCellArgs&), lstm_cell)                                          \
  K(bool (*block_max)(const BlockMaxArgs&), block_max)                                          \
  K(void (*block_exp_sum)(const BlockExpSumArgs&), block_exp_sum)                               \
  K(uint64_t (*read_bytes)(const void* data, int64_t bytes), read_bytes)                        \
  K(PeakFn peak_f32, peak_f32)                                                                  \
  K(PeakFn peak_f16, peak_f16)                                                                  \
  K(PeakFn peak_bf16, peak_bf16)                                                                \
  K(PeakFn peak_i8, peak_i8)                                                                    \
  K(void (*tile_product)(const TileProductArgs&), tile_product)                                 \
  K(void (*worker_begin)(), worker_begin)                                                       \
  K(void (*worker_end)(), worker_end)

struct CpuKernels {
#define REDLINE_FIELD(declaration, name) declaration = nullptr;
  REDLINE_CPU_KERNELS(REDLINE_FIELD)
#undef REDLINE_FIELD
  // Kernels by weight type; kernels/cpu/linear/linear_choice.h selects a kernel by the number of rows.
  void (*linear[kNumDTypes])(const LinearArgs&) = {};           ///< x in kF32: float32 products; kI8: lora_up.h
  void (*linear_q8[kNumDTypes])(const LinearArgs&) = {};        ///< x in kI8Grouped: integer dots
  void (*linear_tiles[kNumDTypes])(const LinearArgs&) = {};     ///< x in kBf16Tiled: bfloat16 tile products
  void (*linear_i8[kNumDTypes])(const LinearArgs&) = {};        ///< x in kI8Tiled: integer dots or tile products
  void (*linear_i8_tiles[kNumDTypes])(const LinearArgs&) = {};  ///< x in kI8Tiled, always by tile products: for tests
  void (*linear_requantized[kNumDTypes])(const LinearArgs&) = {};  ///< x in kI8TiledGroups: weights rounded to int8
  bool has_tile_unit = false;      ///< if false, linear_tiles is only an emulation for tests
  bool has_fast_bf16_dot = false;  ///< vdpbf16ps beats float32 fma: linear_tiles serves bf16 weights
  void (*prepare_x[kNumActivationLayouts])(const PrepareXArgs&) = {};  ///< nullptr for kF32
  void (*embedding[kNumDTypes])(const EmbeddingArgs&) = {};
  bool (*quantize[kNumDTypes])(const QuantizeArgs&) = {};  ///< nullptr: not a block format
  const char* linear_isa[kNumDTypes] = {};  ///< instruction set of the linear kernels of a type; "": emulated
  void (*kv_append[kNumKvFormats])(const KvAppendArgs&) = {};
  void (*attention[kNumKvFormats])(const AttentionArgs&) = {};
  void (*attention_vectors[kNumKvFormats])(const AttentionArgs&) = {};     ///< attention without the tile unit
  void (*attention_tiles[kNumKvFormats])(const AttentionArgs&) = {};       ///< tile products; kBF16 also by dots
  void (*attention_with_tiles[kNumKvFormats])(const AttentionArgs&) = {};  ///< `attention` on CPUs with a tile unit
};

#ifndef REDLINE_ISA_NS  // The rest is for the host side only; kernel sources see pointers and Args.

/// One instruction set of cmake/RedlineKernels.cmake, and its table entries. Sets are ordered from the most basic to
/// the highest.
struct CpuIsa {
  const char* name;
  const char* features;             ///< names of cpu_features.h, separated by spaces
  void (*fill)(CpuKernels& table);  ///< overwrites the entries that this set provides
  /// Returns true if the CPU and the operating system have its features.
  bool supported() const;
};
/// Returns generic, avx2, avx2_vnni, avx512, avx512_vnni, avx512_bf16, avx512_fp16, amx, amx_fp16; only generic if not
/// built for x86-64.
const CpuIsa* cpu_isas(int* count);

/// Returns the table in use: generic overlaid by every supported set up to the one named by REDLINE_CPU_ISA (default:
/// all). Read once, at the first call. invalid_argument: an unknown or unsupported name; the message lists the valid
/// ones.
Result<const CpuKernels*> cpu_kernels();
/// Returns the table of a named set ("" for all), for tests and `devices --kernels`. A suffix selects the code path of
/// another kind of CPU, so that every path is tested on every machine, slowly: "avx2+tiles" runs bfloat16 and int8 tile
/// products on their portable emulation, "avx512+bf16_dot" bfloat16 dot products (in portable C++ where the set lacks
/// them).
Result<CpuKernels> cpu_kernels_for(std::string_view isa);
/// Returns the name of the table in use: its highest set, with the suffix; "" when REDLINE_CPU_ISA is invalid.
std::string_view cpu_isa_in_use();
/// The set that provides a kernel of a table, found by comparison with each set's own entries; isa is "none" for an
/// absent kernel. Kernels of one type are called NAME.TYPE: "linear.q4_k", "attention.bf16".
struct KernelOrigin {
  std::string kernel;
  const char* isa;
};
std::vector<KernelOrigin> kernel_origins(const CpuKernels& table);

#endif  // REDLINE_ISA_NS

}  // namespace redline
