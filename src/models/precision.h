// What a Precision means for the weights of a network.
#pragma once

#include <optional>

#include "models/checkpoint.h"
#include "redline/precision.h"
#include "runtime/executable.h"
#include "tensor/dtype.h"

namespace redline {

/// kQ8 is the 8-bit type that suits the device.
Precision resolve_precision(Precision precision, const CpuKernels& kernels, const DeviceChoice& device);
/// The type of 8 bits that matrices are quantized to; nullopt: they are not.
std::optional<DType> quantized_type(Precision precision);
/// Converts the float matrices of a checkpoint: to bfloat16 all, to 8 bits those whose names `is_quantized` accepts.
/// out_of_memory.
Status convert_matrices(Checkpoint& checkpoint, Precision precision,
                        const std::function<bool(const std::string&)>& is_quantized);

}  // namespace redline
