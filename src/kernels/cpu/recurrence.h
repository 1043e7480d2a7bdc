// Arguments of the kernels of recurrent layers: a causal convolution, chunked scans and long short-term memory.
#pragma once

#include <cstdint>

namespace redline {

/// Arguments of y[t, c] = f(bias[c] + sum_i weight[i, c] x[t - taps + 1 + i, c]), where f is silu or the identity.
/// `before` holds the taps - 1 inputs before the first row; `after` gets those before the next row, oldest first. x,
/// weight, bias, before and after point to the first of `channels` adjacent channels.
struct CausalConvArgs {
  const float* x;
  const float* weight;
  const float* bias;  ///< or nullptr
  const float* before;
  float* after;
  float* y;
  int64_t stride;  ///< elements between rows of all of these
  int64_t rows, channels;
  int64_t taps;  ///< 2 to kMaxConvTaps
  bool has_silu;
};
inline constexpr int64_t kMaxConvTaps = 4;

/// Number of tokens of a chunk. Chunks begin at multiples of it in the sequence, however a prompt is cut into steps.
inline constexpr int64_t kScanChunk = 32;
inline constexpr int64_t kMaxScanKeyDim = 512, kMaxScanValueDim = 512;

/// Arguments for the rows of one chunk of a recurrence with one decay per head and token,
///   S[t] = e^log_decay[t] S[t-1] + k[t] u[t]^T,  y[t] = S[t]^T q[t] (+ skip v[t]),
/// for neighbouring heads that share q and k. u is scale[t] v[t] (kSelective: Mamba-2's state-space dual, Dao and Gu
/// 2024, arXiv:2405.21060), or scale[t] (v[t] - e^log_decay[t] S[t-1]^T k[t]) (kDelta: the gated delta rule, Yang,
/// Kautz and Hatamizadeh 2024, arXiv:2412.06464), where q and k are divided by their lengths first.
///
/// Within a chunk everything is a product of small matrices, on the state S at its beginning and on the k, u and
/// log_decay of its tokens. Those are kept until the chunk is complete, and S is replaced then. So a row's sums are the
/// same whether its chunk comes in one call or in many.
struct GatedScanArgs {
  enum Kind : uint8_t { kSelective, kDelta } kind;
  const float *q, *k;  ///< [rows][key_dim], `stride` apart
  const float* v;      ///< [rows][heads * value_dim], `stride` apart
  int64_t stride;
  int64_t key_dim, value_dim, heads;
  int64_t filled, rows;            ///< tokens of the chunk before this call, and in this call
  float query_scale;               ///< factor of q
  const float *log_decay, *scale;  ///< [heads][kScanChunk]; row r of this call is at index r
  const float* skip;               ///< [heads] or nullptr
  // The state, read and written. An `after` may be its `before`. Keys and values of whole chunks are not written.
  const float* state_before;  ///< [heads][key_dim][value_dim]
  float* state_after;
  const float* keys_before;    ///< [key_dim][kScanChunk]
  float* keys_after;           ///< nullptr: another call with the same keys writes them
  const float* values_before;  ///< [heads][kScanChunk][value_dim]
  float* values_after;
  const float* decays_before;  ///< [heads][kScanChunk]
  float* decays_after;
  float* y;  ///< [rows][heads * value_dim], `y_stride` apart
  int64_t y_stride;
  void* scratch;
};

/// Arguments of one token of long short-term memory (Hochreiter and Schmidhuber 1997) after its products: c becomes
/// sigmoid(forget) c + sigmoid(input) tanh(cell), h and y sigmoid(output) tanh(c).
struct LstmCellArgs {
  const float* gates;  ///< [4][hidden]: input, forget, cell, output
  float* h;            ///< [hidden], written
  float* c;            ///< [hidden]
  float* y;            ///< [hidden], written
  int64_t hidden;
};

}  // namespace redline
