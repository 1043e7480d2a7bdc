// How kernels may read weights of a type, beside its layout (dtype.h).
#pragma once

#include "tensor/dtype.h"

namespace redline {

struct WeightTraits {
  /// Instructions that multiply pairs of bfloat16 read the weight as it is stored; other types are expanded for them.
  bool is_bf16_pairs = false;
  /// Matrices of the type are the factors of adapters, packed with scales of their own (lora_up.h): `linear` has no
  /// weights of it.
  bool is_adapter_factor = false;
};
const WeightTraits& weight_traits(DType type);

}  // namespace redline
