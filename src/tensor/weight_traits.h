// Properties of weight types that kernels depend on, besides the layout (dtype.h).
#pragma once

#include "tensor/dtype.h"

namespace redline {

struct WeightTraits {
  /// True if instructions that multiply pairs of bfloat16 read the weight as it is stored. Other types are expanded for
  /// them.
  bool is_bf16_pairs = false;
  /// True if matrices of the type are factors of adapters, packed with scales of their own (lora_up.h). `linear` has no
  /// weights of such a type.
  bool is_adapter_factor = false;
};
const WeightTraits& weight_traits(DType type);

}  // namespace redline
