#include "models/checkpoint/grouped_weight.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/hash.h"
#include "tensor/blocks/q4_0.h"
#include "tensor/blocks/q5_0.h"
#include "tensor/blocks/q8_0.h"

namespace redline {
namespace {

constexpr int64_t kBlock = 32;
constexpr int kTile = 64;  // rows that are converted at a time: a multiple of the values of a word
// Incremented when the bytes made of a file change: part of the identity of cached weights.
constexpr uint64_t kVersion = 1;

using Codes = uint8_t[kBlock][kTile];

/// Makes the blocks of a grouped weight. Copies the fields of GroupedWeight, whose pointers do not outlive the call.
struct BlockMaker {
  DType type;
  int64_t rows, cols;
  PackedInts codes;
  std::optional<PackedInts> zeros;
  TensorView scales;
  bool has_scales_by_row;
  int64_t groups;
  std::vector<int32_t> group_of_block;
  std::shared_ptr<const std::vector<int32_t>> columns;
  // The byte ranges that are read, by file.
  std::vector<std::pair<std::shared_ptr<const MappedFile>, std::pair<int64_t, int64_t>>> ranges;

  int64_t column(int64_t k) const { return columns ? (*columns)[static_cast<size_t>(k)] : k; }

  /// Loads the codes of the 32 columns of block `block` and of `count` rows from `row` on, at most kTile.
  void load(int64_t block, int64_t row, int count, Codes& out) const {
    const PackedInts& c = codes;
    const int per = c.per_word();
    const auto mask = static_cast<uint8_t>(c.mask());
    for (int64_t i = 0; i < kBlock; ++i) {
      const int64_t k = column(block * kBlock + i);
      uint8_t* to = out[i];
      if (!c.along_k) {
        for (int n = 0; n < count; n += per) {
          const uint32_t word = c.word(k * c.k_stride + (row + n) / per * c.n_stride);
          for (int j = 0; j < per; ++j)
            to[n + j] = static_cast<uint8_t>(word >> c.places[static_cast<size_t>(j)]) & mask;
        }
        continue;
      }
      const uint8_t* words = c.words + 4 * (k / per * c.k_stride + row * c.n_stride);
      const int place = c.places[static_cast<size_t>(k % per)];
      const auto take = [&](int64_t stride) {
        for (int n = 0; n < count; ++n) {
          uint32_t word;
          std::memcpy(&word, words + n * stride, 4);
          to[n] = static_cast<uint8_t>(word >> place) & mask;
        }
      };
      if (c.n_stride == 1) take(4);  // constant stride: the compiler vectorizes this loop
      else take(4 * c.n_stride);
    }
  }

  uint16_t scale(int64_t group, int64_t row) const {
    const int64_t at = has_scales_by_row ? row * groups + group : group * rows + row;
    const auto* data = static_cast<const uint8_t*>(scales.data);
    uint16_t half;
    if (scales.dtype == DType::kF32) {
      float value;
      std::memcpy(&value, data + 4 * at, 4);
      return f32_to_f16(value);
    }
    std::memcpy(&half, data + 2 * at, 2);
    return scales.dtype == DType::kF16 ? half : f32_to_f16(bf16_to_f32(half));
  }

  /// Makes rows [row, row + count) of the matrix.
  void make_rows(int64_t row, int count, uint8_t* out) const {
    const int64_t stride = row_bytes(type, cols), block_bytes = dtype_info(type).block_bytes;
    const int center = type == DType::kQ4_0 ? 8 : type == DType::kQ5_0 ? 16 : 0;
    Codes q = {};
    uint8_t offset[kTile] = {};
    uint16_t scale_of[kTile] = {};
    int64_t group = -1;
    for (int64_t b = 0; b < cols / kBlock; ++b) {
      if (group_of_block[static_cast<size_t>(b)] != group) {
        group = group_of_block[static_cast<size_t>(b)];
        for (int n = 0; n < count; ++n) {
          const uint32_t zero = zeros ? zeros->at(group, row + n) : (codes.mask() + 1) / 2;
          offset[n] = static_cast<uint8_t>(center - static_cast<int>(zero));
          scale_of[n] = scale(group, row + n);
        }
      }
      load(b, row, count, q);
      for (auto& line : q)
        for (int n = 0; n < kTile; ++n) line[n] = static_cast<uint8_t>(line[n] + offset[n]);
      uint8_t* to = out + b * block_bytes;
      if (type == DType::kQ8_0) {
        for (int n = 0; n < count; ++n, to += stride) {
          std::memcpy(to, &scale_of[n], 2);
          for (int64_t i = 0; i < kBlock; ++i) to[2 + i] = q[i][n];
        }
        continue;
      }
      uint32_t fifth[kTile] = {};
      if (type == DType::kQ5_0)
        for (int64_t i = 0; i < kBlock; ++i)
          for (int n = 0; n < kTile; ++n) fifth[n] |= static_cast<uint32_t>(q[i][n] >> 4) << i;
      for (int64_t i = 0; i < kBlock / 2; ++i)
        for (int n = 0; n < kTile; ++n)
          q[i][n] = static_cast<uint8_t>((q[i][n] & 15) | (q[i + kBlock / 2][n] & 15) << 4);
      const int64_t head = type == DType::kQ5_0 ? 6 : 2;
      for (int n = 0; n < count; ++n, to += stride) {
        std::memcpy(to, &scale_of[n], 2);
        if (type == DType::kQ5_0) std::memcpy(to + 2, &fifth[n], 4);
        for (int64_t i = 0; i < kBlock / 2; ++i) to[head + i] = q[i][n];
      }
    }
  }

  void release() const {
    for (const auto& [file, range] : ranges) file->release(range.first, range.second);
  }
};

Status check_scales(const GroupedWeight& w) {
  const TensorView& view = w.scales->view;
  constexpr int64_t kAtOnce = 4096;
  constexpr float kMax = 65504;
  std::vector<float> values(kAtOnce);
  const int64_t count = view.num_elements(), size = row_bytes(view.dtype, 1);
  for (int64_t i = 0; i < count; i += kAtOnce) {
    const int64_t n = std::min(kAtOnce, count - i);
    unpack_row(view.dtype, static_cast<const uint8_t*>(view.data) + i * size, values.data(), n);
    bool fits = true;
    for (int64_t j = 0; j < n; ++j) fits &= std::abs(values[static_cast<size_t>(j)]) <= kMax;  // not: NaN
    if (fits) continue;
    const auto at = std::find_if(values.begin(), values.end(), [](float v) { return !(std::abs(v) <= kMax); });
    return invalid_argument("tensor {} holds {}; scales are finite and at most {}", w.scales_name, *at, kMax);
  }
  return {};
}

/// Returns the smallest and the largest zero point.
std::pair<int, int> zero_range(const GroupedWeight& w) {
  if (!w.zeros) return {1 << (w.codes.bits - 1), 1 << (w.codes.bits - 1)};
  uint32_t least = std::numeric_limits<uint32_t>::max(), most = 0;
  const PackedInts& z = *w.zeros;  // along n in every format
  for (int64_t g = 0; g < w.groups; ++g)
    for (int64_t n = 0; n < w.rows; n += z.per_word()) {
      const uint32_t word = z.word(g * z.k_stride + n / z.per_word() * z.n_stride);
      const int64_t count = std::min<int64_t>(z.per_word(), w.rows - n);
      for (int64_t j = 0; j < count; ++j) {
        const uint32_t zero = word >> z.places[static_cast<size_t>(j)] & z.mask();
        least = std::min(least, zero), most = std::max(most, zero);
      }
    }
  return {static_cast<int>(least), static_cast<int>(most)};
}

/// Returns the smallest type that holds every code - zero. unsupported: there is none.
Result<DType> type_of(const GroupedWeight& w) {
  const auto [least, most] = zero_range(w);
  const int low = -most, high = static_cast<int>(w.codes.mask()) - least;
  if (low >= -8 && high <= 7) return DType::kQ4_0;
  if (low >= -16 && high <= 15) return DType::kQ5_0;
  if (low >= -128 && high <= 127) return DType::kQ8_0;
  return unsupported("tensor {}: {} bits with zero points {} to {}; Redline reads {} bits with the zero point {}",
                     w.name, w.codes.bits, least, most, w.codes.bits, 1 << (w.codes.bits - 1));
}

/// Computes the group of every block of 32 columns, and the order of the columns if they have to be sorted by group.
Status order_columns(const GroupedWeight& w, std::vector<int32_t>& group_of_block, std::vector<int32_t>& columns) {
  const int64_t blocks = w.cols / kBlock;
  const auto group_of = [&](int64_t k) -> int64_t {
    if (!w.g_idx) return k / w.group_size;
    const auto* data = static_cast<const uint8_t*>(w.g_idx->view.data);
    if (w.g_idx->view.dtype == DType::kI64) {
      int64_t value;
      std::memcpy(&value, data + 8 * k, 8);
      return value;
    }
    int32_t value;
    std::memcpy(&value, data + 4 * k, 4);
    return value;
  };
  std::vector<int64_t> count(static_cast<size_t>(w.groups) + 1);
  bool in_blocks = true;
  for (int64_t k = 0; k < w.cols; ++k) {
    const int64_t g = group_of(k);
    if (g < 0 || g >= w.groups)
      return invalid_argument("tensor {} holds group {} for column {}; {} has {} groups",
                              w.g_idx ? w.g_idx_name : w.name, g, k, w.scales_name, w.groups);
    ++count[static_cast<size_t>(g) + 1];
    in_blocks &= g == group_of(k / kBlock * kBlock);
  }
  group_of_block.resize(static_cast<size_t>(blocks));
  if (in_blocks) {
    for (int64_t b = 0; b < blocks; ++b)
      group_of_block[static_cast<size_t>(b)] = static_cast<int32_t>(group_of(b * kBlock));
    return {};
  }
  for (size_t g = 1; g < count.size(); ++g) {
    if (count[g] % kBlock != 0)
      return unsupported("tensor {}: group {} has {} columns; Redline reads groups of multiples of {}",
                         w.g_idx ? w.g_idx_name : w.name, g - 1, count[g], kBlock);
    count[g] += count[g - 1];  // now the end of group g - 1
  }
  columns.resize(static_cast<size_t>(w.cols));
  for (size_t g = 0; g + 1 < count.size(); ++g)
    std::fill(group_of_block.begin() + count[g] / kBlock, group_of_block.begin() + count[g + 1] / kBlock,
              static_cast<int32_t>(g));
  for (int64_t k = 0; k < w.cols; ++k)
    columns[static_cast<size_t>(count[static_cast<size_t>(group_of(k))]++)] = static_cast<int32_t>(k);
  return {};
}

Result<const WeightSource*> find_shaped(const Checkpoint& checkpoint, const std::string& name, std::string_view type,
                                        const std::function<bool(DType)>& is_type, const std::vector<int64_t>& shape) {
  const auto at = checkpoint.tensors.find(name);
  if (at == checkpoint.tensors.end()) return static_cast<const WeightSource*>(nullptr);
  const TensorView& view = at->second.view;
  bool fits = is_type(view.dtype) && view.shape.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) fits = shape[i] < 0 ? view.shape[i] > 0 : view.shape[i] == shape[i];
  if (fits) return &at->second;
  std::vector<std::string> sizes;
  sizes.reserve(shape.size());
  for (const int64_t size : shape) sizes.push_back(size < 0 ? "any" : std::to_string(size));
  return invalid_argument("tensor {} is {} [{}]; {} [{}] is expected", name, dtype_info(view.dtype).name,
                          fmt::join(view.shape, ", "), type, fmt::join(sizes, ", "));
}

}  // namespace

Result<const WeightSource*> find_integers(const Checkpoint& checkpoint, const std::string& name, DType type,
                                          const std::vector<int64_t>& shape) {
  return find_shaped(
      checkpoint, name, dtype_info(type).name, [&](DType own) { return own == type; }, shape);
}

Result<const WeightSource*> find_floats(const Checkpoint& checkpoint, const std::string& name,
                                        const std::vector<int64_t>& shape) {
  const auto is_read = [](DType own) { return own == DType::kF32 || own == DType::kF16 || own == DType::kBF16; };
  return find_shaped(checkpoint, name, "f16, bf16 or f32", is_read, shape);
}

Result<WeightSource> make_grouped_weight(const GroupedWeight& w, ColumnOrders& orders) {
  if (w.cols % kBlock != 0 || (w.group_size % kBlock != 0 && w.group_size < w.cols))
    return unsupported("tensor {}: rows of {} elements in groups of {}; Redline reads multiples of {}", w.name, w.cols,
                       w.group_size, kBlock);
  REDLINE_TRY(check_scales(w));
  REDLINE_ASSIGN(const DType type, type_of(w));
  auto maker = std::make_shared<BlockMaker>();
  std::vector<int32_t> columns;
  REDLINE_TRY(order_columns(w, maker->group_of_block, columns));
  if (!columns.empty()) {
    auto& kept = orders[columns];
    if (!kept) kept = std::make_shared<const std::vector<int32_t>>(columns);
    maker->columns = kept;
  }
  maker->type = type;
  maker->rows = w.rows, maker->cols = w.cols;
  maker->codes = w.codes, maker->zeros = w.zeros;
  maker->scales = w.scales->view;
  maker->has_scales_by_row = w.has_scales_by_row;
  maker->groups = w.groups;
  // The identity covers the file and the way in which its bytes are read.
  uint64_t identity = hash_word(kVersion, static_cast<uint64_t>(w.codes.bits));
  identity = hash_word(hash_word(identity, w.zeros ? w.zeros->added : 1), static_cast<uint64_t>(w.group_size));
  bool is_on_disk = true;
  for (const WeightSource* source : w.from) {
    const int64_t at = static_cast<const uint8_t*>(source->view.data) - source->file->data();
    maker->ranges.push_back({source->file, {at, source->view.bytes()}});
    identity = hash_word(hash_word(identity, source->file->identity()), static_cast<uint64_t>(at));
    is_on_disk &= source->file->identity() != 0;
  }
  const int64_t row = row_bytes(type, w.cols);
  MappedFile::Maker lazy;
  lazy.piece = kTile * row;
  lazy.fill = [maker, row](int64_t begin, int64_t end, uint8_t* out) {
    maker->make_rows(begin / row, static_cast<int>((end - begin) / row), out);
  };
  lazy.release = [maker](int64_t, int64_t) { maker->release(); };
  lazy.identity = is_on_disk ? identity : 0;
  REDLINE_ASSIGN(auto file, MappedFile::make_lazily(w.from[0]->file->path(), w.rows * row, std::move(lazy)));
  WeightSource source;
  source.view = {type, {w.rows, w.cols}, file->data()};
  source.file = std::move(file);
  source.columns = maker->columns;
  return source;
}

}  // namespace redline
