// Inputs, outputs and adapters of the networks behind include/redline/network.h.
#pragma once

#include <span>

#include "diffusion/adapters.h"
#include "redline/network.h"
#include "runtime/executable.h"

namespace redline {

DType dtype_of(TensorType type);

/// nullptr: no such name.
const NamedTensor* find_tensor(std::span<const NamedTensor> tensors, std::string_view name);
/// invalid_argument: a name that is not among `known`, or another type than that of the input.
Status expect_known(std::span<const NamedTensor> inputs, std::span<const std::string_view> known);
/// invalid_argument: missing, or another number of axes.
Result<const NamedTensor*> take_input(std::span<const NamedTensor> inputs, std::string_view name, size_t axes);
int64_t num_elements_of(const NamedTensor& tensor);
std::span<const float> floats_of(const NamedTensor& tensor);

/// invalid_argument: the output has room for another number of elements.
Status expect_room(const NamedOutput& output, int64_t elements);
/// `known`: the names that there are.
Status unknown_output(const NamedOutput& output, const char* known);

/// Loads the pairs as adapters of their names and makes those the active ones, in place of the names in `active`. An
/// error leaves the active ones as they are.
Status replace_adapters(NetworkAdapters& bank, std::span<const AdapterFactorPair> pairs, int64_t max_rank,
                        std::vector<std::string>& active);

ImageEngine::MemoryReport memory_of(std::span<const Executable* const> networks);
/// The error of set_cache() for networks that are not denoisers.
Status no_cache(const char* kind);

}  // namespace redline
