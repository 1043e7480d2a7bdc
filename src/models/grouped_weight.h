// Integer weights with a scale, and maybe a zero point, for each group of elements of a row: what GPTQ, AWQ and
// compressed-tensors' pack-quantized store, each in an order of its own.
#pragma once

#include <array>
#include <map>

#include "models/checkpoint.h"

namespace redline {

/// Unsigned integers of `bits` bits in 32-bit words, element (k, n) of a matrix. The words go along k or along n;
/// value i of a word is at bit places[i].
struct PackedInts {
  const uint8_t* words = nullptr;  ///< unaligned
  int bits = 4;
  bool along_k = true;
  int64_t k_stride = 1, n_stride = 1;  ///< in words, of a step of k or n, or along the words of per_word() steps
  uint32_t added = 0;                  ///< to every word, modulo 2^32
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

/// value(n, k) = scale(g, n) * (code(k, n) - zero(g, n)), g the group of column k.
struct GroupedWeight {
  std::string name;  ///< "model.layers.0.mlp.up_proj.weight"
  int64_t rows = 0, cols = 0;
  PackedInts codes;
  std::optional<PackedInts> zeros;  ///< (g, n); none: 2^(bits - 1)
  const WeightSource* scales = nullptr;
  std::string scales_name;
  bool has_scales_by_row = false;  ///< [rows, groups] in place of [groups, rows]
  int64_t groups = 0;
  int64_t group_size = 0;               ///< columns
  const WeightSource* g_idx = nullptr;  ///< the group of each column; nullptr: column / group_size
  std::string g_idx_name;
  std::vector<const WeightSource*> from;  ///< what is read
};

/// Orders of columns that several matrices have are kept once.
using ColumnOrders = std::map<std::vector<int32_t>, std::shared_ptr<const std::vector<int32_t>>>;

/// The weight as blocks of a type that holds every value exactly but for the rounding of scales to float16, made when
/// they are needed: Q4_0, Q5_0 or Q8_0, whichever is the smallest with room for code - zero. Where the groups do not
/// follow one another, its columns are sorted by group (WeightSource::columns).
/// invalid_argument: a scale that is not finite or beyond float16, a group of a column that does not exist.
/// unsupported: groups that are not of whole blocks of 32, or a difference of more than 8 bits.
Result<WeightSource> make_grouped_weight(const GroupedWeight& weight, ColumnOrders& orders);

/// The tensor `name` of a checkpoint, which must be of integers of this type and of this shape (-1: any size).
/// nullptr: there is none. invalid_argument: it differs.
Result<const WeightSource*> find_integers(const Checkpoint& checkpoint, const std::string& name, DType type,
                                          const std::vector<int64_t>& shape);
/// The same of a float type.
Result<const WeightSource*> find_floats(const Checkpoint& checkpoint, const std::string& name,
                                        const std::vector<int64_t>& shape);

}  // namespace redline
