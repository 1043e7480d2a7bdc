// Fields that say how tokens are sampled, under the names of OpenAI, vLLM and llama.cpp.
#pragma once

#include "redline/sampling_parameters.h"
#include "server/schema.h"

namespace redline::server {

/// The fields of sampling_parameters(): all, or one.
std::vector<Field> sampling_numbers();
Field sampling_number(std::string_view name);
/// These and the lists: biases, excluded words, samplers.
const std::vector<Field>& sampling_fields();

/// The fields of a checked body over the model's own values. 400: a value that only shows as a whole to be wrong, such
/// such as a bias that is not a number, or an invalid order of samplers.
Outcome<SamplingOptions> sampling_of(const Json& body, const SamplingOptions& defaults, int64_t vocab_size);

}  // namespace redline::server
