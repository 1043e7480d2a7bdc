// Inputs, outputs and adapters of the networks behind include/redline/network.h.
#pragma once

#include <span>

#include "diffusion/adapters.h"
#include "redline/network.h"
#include "runtime/executable.h"

namespace redline {

DType dtype_of(TensorType type);

/// Returns the tensor with this name; nullptr: there is none.
const NamedTensor* find_tensor(std::span<const NamedTensor> tensors, std::string_view name);
/// Checks the inputs. invalid_argument: a name that is not among `known`, or a type that the input does not have.
Status expect_known(std::span<const NamedTensor> inputs, std::span<const std::string_view> known);
/// Returns an input. invalid_argument: it is missing or has another number of axes.
Result<const NamedTensor*> take_input(std::span<const NamedTensor> inputs, std::string_view name, size_t axes);
int64_t num_elements_of(const NamedTensor& tensor);
std::span<const float> floats_of(const NamedTensor& tensor);

/// Checks the size of an output. invalid_argument: it has room for another number of elements.
Status expect_room(const NamedOutput& output, int64_t elements);
/// Returns the error for an unknown output. `known`: list of the known names.
Status unknown_output(const NamedOutput& output, const char* known);

/// Loads the pairs as adapters under their names and activates these instead of the adapters in `active`. On error the
/// active adapters do not change.
Status replace_adapters(NetworkAdapters& bank, std::span<const AdapterFactorPair> pairs, int64_t max_rank,
                        std::vector<std::string>& active);

ImageEngine::MemoryReport memory_of(std::span<const Executable* const> networks);
/// Returns the error of set_cache() for networks that are not denoisers.
Status no_cache(const char* kind);

}  // namespace redline
