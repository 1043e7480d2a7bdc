#include "kernels/cpu/linear/linear_choice.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/linear/linear_record.h"
#include "tensor/weight_traits.h"

namespace redline {
namespace {

// Minimum rows for bf16 tiles. A tile pass takes the same time for 1 to 16 rows; below the threshold, float32 products
// of float weights or integer dot products of quantized weights are cheaper (docs/history/performance-notes.md).
constexpr int64_t kMinTileRowsOfFloats = 5, kMinTileRowsOfCodes = 7;

// Minimum rows for kI8Tiled, which has one scale per 1024 elements of a row. Fewer rows read the weights just as fast
// with groups of 256, which round more finely and can be split among more workers.
constexpr int64_t kMinI8Rows = 5;

// Minimum rows for kI8TiledGroups, whose kernels round block formats to int8 again: that costs as much as the faster
// loop saves at 17 (q6_k) to 65 rows (q4_0; docs/history/performance-notes.md). One number for all of them, because an
// activation that products of several types read is then prepared once, and so that steps of up to 64 rows, such as
// those of 64 streams, have one kernel.
constexpr int64_t kMinRequantizedRows = 65;

/// Measured choice for one weight type on one instruction set of one maker's CPUs.
struct Recorded {
  std::string_view maker, isa, type;
  int count;
  struct {
    int64_t min_rows;
    ActivationLayout form;
  } at[ActivationLayouts::kMax];
};
constexpr Recorded kRecorded[] = {
#include "kernels/cpu/linear/linear_choice_table.inc"
    {"", "", "", 0, {}},  // an array needs an element
};

/// Returns the maker of this CPU as the table spells it; "" for other makers.
std::string_view maker_of_this_cpu() {
#if defined(__x86_64__)
  if (__builtin_cpu_is("intel")) return "intel";
  if (__builtin_cpu_is("amd")) return "amd";
#endif
  return "";
}

/// Returns linear_kernel(); nullptr for tile kernels that are only emulated on this CPU, and for requantizing kernels
/// on CPUs with a tile unit, which is faster.
void (*kernel_of(const CpuKernels& table, DType type, ActivationLayout form))(const LinearArgs&) {
  const bool has_fast_tiles = table.has_tile_unit || (weight_traits(type).is_bf16_pairs && table.has_fast_bf16_dot);
  const bool is_fast = form == ActivationLayout::kBf16Tiled       ? has_fast_tiles
                       : form == ActivationLayout::kI8TiledGroups ? !table.has_tile_unit
                                                                  : true;
  return is_fast ? linear_kernel(table, type, form) : nullptr;
}

/// Sets `kernels` to the recorded choice. Returns false if there is no record, or if `table` lacks a recorded kernel.
bool choose_recorded(const CpuKernels& table, DType weight, LinearKernels& kernels) {
  const auto type = static_cast<size_t>(weight);
  const std::string_view isa = table.linear_isa[type] ? table.linear_isa[type] : "", name = dtype_info(weight).name;
  for (const Recorded& row : kRecorded) {
    if (row.count == 0 || row.maker != maker_of_this_cpu() || row.isa != isa || row.type != name) continue;
    LinearKernels chosen;
    chosen.layouts.count = row.count;
    for (int i = 0; i < row.count; ++i) {
      chosen.layouts.at[i] = {row.at[i].min_rows, row.at[i].form};
      chosen.run[i] = kernel_of(table, weight, row.at[i].form);
      if (chosen.run[i] == nullptr) return false;
    }
    kernels = chosen;
    return true;
  }
  return false;
}

/// Keeps one layout for any number of rows, if there is one that takes no longer than the others for few rows and none
/// of the others is faster for many: a row then has the same bits in every step. Measured for 1 to 6 rows: bf16 dots
/// and tiles of BF16 weights against float32, int8 with scales per 1024 elements against groups of 256.
void keep_one(LinearKernels& kernels, DType weight, BatchInvariance rows) {
  int kept = rows == BatchInvariance::kAlways ? 0 : -1;
  for (int i = 0; i < kernels.layouts.count; ++i) {
    const ActivationLayout layout = kernels.layouts.at[i].layout;
    if (layout == ActivationLayout::kI8Tiled ||
        (layout == ActivationLayout::kBf16Tiled && weight_traits(weight).is_bf16_pairs))
      kept = i;
  }
  if (kept < 0) return;
  kernels.run[0] = kernels.run[kept];
  kernels.layouts.at[0] = {0, kernels.layouts.at[kept].layout};
  kernels.layouts.count = 1;
}

LinearKernels choose_by_rule(const CpuKernels& table, DType weight) {
  const auto type = static_cast<size_t>(weight);
  LinearKernels kernels;
  kernels.run[0] = table.linear[type];
  if (table.linear_q8[type]) {
    kernels.layouts.at[0].layout = ActivationLayout::kI8Grouped;
    kernels.run[0] = table.linear_q8[type];
  }
  if (auto* eight_bits = kernel_of(table, weight, ActivationLayout::kI8Tiled)) {
    kernels.layouts.at[kernels.layouts.count] = {kMinI8Rows, ActivationLayout::kI8Tiled};
    kernels.run[kernels.layouts.count++] = eight_bits;
  }
  if (auto* requantized = kernel_of(table, weight, ActivationLayout::kI8TiledGroups)) {
    kernels.layouts.at[kernels.layouts.count] = {kMinRequantizedRows, ActivationLayout::kI8TiledGroups};
    kernels.run[kernels.layouts.count++] = requantized;
  }
  if (auto* tiles = kernel_of(table, weight, ActivationLayout::kBf16Tiled)) {
    kernels.layouts.at[kernels.layouts.count] = {table.linear_q8[type] ? kMinTileRowsOfCodes : kMinTileRowsOfFloats,
                                                 ActivationLayout::kBf16Tiled};
    kernels.run[kernels.layouts.count++] = tiles;
  }
  return kernels;
}

}  // namespace

bool is_linear_choice_recorded(const CpuKernels& table, DType weight) {
  LinearKernels kernels;
  return choose_recorded(table, weight, kernels);
}

void (*linear_kernel(const CpuKernels& table, DType weight, ActivationLayout layout))(const LinearArgs&) {
  const auto type = static_cast<size_t>(weight);
  switch (layout) {
    case ActivationLayout::kF32: return table.linear[type];
    case ActivationLayout::kI8Grouped: return table.linear_q8[type];
    case ActivationLayout::kBf16Tiled: return table.linear_tiles[type];
    case ActivationLayout::kI8Tiled: return table.linear_i8[type];
    case ActivationLayout::kI8TiledGroups: return table.linear_requantized[type];
  }
  return nullptr;
}

std::optional<DType> weight_type_reading(const CpuKernels& table, const ActivationLayouts& layouts, bool exact_f32) {
  std::vector<DType> types = {exact_f32 ? DType::kF32 : DType::kBF16};
  for (int i = 0; i < kNumDTypes; ++i)
    if (const auto type = static_cast<DType>(i); dtype_info(type).is_block && can_round_to(type)) types.push_back(type);
  const auto* const end = layouts.at + layouts.count;
  for (const DType type : types)
    if (std::all_of(layouts.at, end, [&](const auto& at) { return linear_kernel(table, type, at.layout) != nullptr; }))
      return type;
  return std::nullopt;
}

LinearKernels choose_linear(const CpuKernels& table, DType weight, bool exact_f32, BatchInvariance rows) {
  LinearKernels kernels;
  if (weight_traits(weight).is_adapter_factor) return kernels;
  kernels.run[0] = table.linear[static_cast<size_t>(weight)];
  if (exact_f32) return kernels;
  if (!choose_recorded(table, weight, kernels)) kernels = choose_by_rule(table, weight);
  if (rows != BatchInvariance::kNone) keep_one(kernels, weight, rows);
  return kernels;
}

}  // namespace redline
