#include "tensor/weight_traits.h"

#include <array>

namespace redline {
namespace {

// Traits of each type. A type that is not set here has none of the properties.
constexpr std::array<WeightTraits, kNumDTypes> kWeightTraits = [] {
  std::array<WeightTraits, kNumDTypes> rows = {};
  rows[static_cast<size_t>(DType::kBF16)] = {.is_bf16_pairs = true};
  rows[static_cast<size_t>(DType::kI8)] = {.is_adapter_factor = true};
  return rows;
}();

}  // namespace

const WeightTraits& weight_traits(DType type) { return kWeightTraits[static_cast<size_t>(type)]; }

}  // namespace redline
