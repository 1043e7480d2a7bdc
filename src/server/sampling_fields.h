// Fields for sampling parameters, under the names of OpenAI, vLLM and llama.cpp.
#pragma once

#include "redline/sampling_parameters.h"
#include "server/schema.h"

namespace redline::server {

/// Return the fields of sampling_parameters(): all, or one.
std::vector<Field> sampling_numbers();
Field sampling_number(std::string_view name);
/// Returns these fields and the lists: biases, excluded words, samplers.
const std::vector<Field>& sampling_fields();

/// Returns the sampling options: the fields of a checked body over the model's defaults. 400: a value that the schema
/// cannot check, such as a bias that is not a number, or an invalid order of samplers.
Outcome<SamplingOptions> sampling_of(const Json& body, const SamplingOptions& defaults, int64_t vocab_size);

}  // namespace redline::server
