// Integer weights with a scale, and perhaps a zero point, for each group of elements of a row. GPTQ, AWQ and
// compressed-tensors' pack-quantized format store such weights, each in a different order.
#pragma once

#include <array>
#include <map>

#include "models/checkpoint/checkpoint.h"

namespace redline {

/// Unsigned integers of `bits` bits in 32-bit words, element (k, n) of a matrix. The words go along k or along n;
/// value i of a word is at bit places[i].
struct PackedInts {
  const uint8_t* words = nullptr;  ///< unaligned
  int bits = 4;
  bool along_k = true;
  /// distance in words of a step of k and of n; along the packed axis, of per_word() steps
  int64_t k_stride = 1, n_stride = 1;
  uint32_t added = 0;  ///< added to every word, modulo 2^32
  std::array<uint8_t, 16> places = {};

  int per_word() const { return 32 / bits; }
  uint32_t mask() const { return (1u << bits) - 1; }
  void set_places_in_order() {
    for (int i = 0; i < per_word(); ++i) places[static_cast<size_t>(i)] = static_cast<uint8_t>(bits * i);
  }
  uint32_t word(int64_t i) const {
    uint32_t value;
    __builtin_memcpy(&value, words + 4 * i, 4);
    return value + added;
  }
  uint32_t at(int64_t k, int64_t n) const {
    const int64_t per = per_word(), along = along_k ? k : n;
    const int64_t i = (along_k ? k / per : k) * k_stride + (along_k ? n : n / per) * n_stride;
    return word(i) >> places[static_cast<size_t>(along % per)] & mask();
  }
};

/// A weight with value(n, k) = scale(g, n) * (code(k, n) - zero(g, n)), where g is the group of column k.
struct GroupedWeight {
  std::string name;  ///< "model.layers.0.mlp.up_proj.weight"
  int64_t rows = 0, cols = 0;
  PackedInts codes;
  std::optional<PackedInts> zeros;  ///< zero points, element (g, n); unset: 2^(bits - 1)
  const WeightSource* scales = nullptr;
  std::string scales_name;
  bool has_scales_by_row = false;  ///< scales are [rows, groups] instead of [groups, rows]
  int64_t groups = 0;
  int64_t group_size = 0;               ///< columns of a group
  const WeightSource* g_idx = nullptr;  ///< the group of each column; nullptr: column / group_size
  std::string g_idx_name;
  std::vector<const WeightSource*> from;  ///< tensors that the weight is read from
};

/// Orders of columns. Matrices with the same order share one copy.
using ColumnOrders = std::map<std::vector<int32_t>, std::shared_ptr<const std::vector<int32_t>>>;

/// Returns the weight as blocks, which are made when they are needed. The type is the smallest of Q4_0, Q5_0 and Q8_0
/// that holds every code - zero exactly; scales are rounded to float16. If the columns of a group are not contiguous,
/// the columns are sorted by group (WeightSource::columns).
/// invalid_argument: a scale that is not finite or beyond float16, a group of a column that does not exist.
/// unsupported: groups that are not of whole blocks of 32, or a difference of more than 8 bits.
Result<WeightSource> make_grouped_weight(const GroupedWeight& weight, ColumnOrders& orders);

/// Returns the tensor `name` of a checkpoint; nullptr if there is none. invalid_argument: its integer type or its shape
/// (-1: any size) differs.
Result<const WeightSource*> find_integers(const Checkpoint& checkpoint, const std::string& name, DType type,
                                          const std::vector<int64_t>& shape);
/// Returns the tensor `name`, which may be of any float type; nullptr if there is none. invalid_argument: its type or
/// shape differs.
Result<const WeightSource*> find_floats(const Checkpoint& checkpoint, const std::string& name,
                                        const std::vector<int64_t>& shape);

}  // namespace redline
