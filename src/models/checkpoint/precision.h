// Converts the weights of a network according to a Precision.
#pragma once

#include <optional>

#include "models/checkpoint/checkpoint.h"
#include "redline/precision.h"
#include "runtime/executable.h"
#include "tensor/dtype.h"

namespace redline {

/// Replaces kQ8 by the 8-bit type that suits the device.
Precision resolve_precision(Precision precision, const CpuKernels& kernels, const DeviceChoice& device);
/// Returns the 8-bit type that matrices are quantized to; nullopt: they are not quantized.
std::optional<DType> quantized_type(Precision precision);
/// Converts the float matrices of a checkpoint: all of them to bfloat16, or those whose names `is_quantized` accepts to
/// 8 bits. Error: out_of_memory.
Status convert_matrices(Checkpoint& checkpoint, Precision precision,
                        const std::function<bool(const std::string&)>& is_quantized);

}  // namespace redline
