// Fields that say how tokens are sampled, under the names of OpenAI, vLLM and llama.cpp.
#pragma once

#include "redline/text.h"
#include "server/schema.h"

namespace redline::server {

const std::vector<Field>& sampling_fields();

/// The fields of a checked body over the model's own values. 400: a value that only shows as a whole to be wrong, such
/// such as a bias that is not a number, or an invalid order of samplers.
Outcome<SamplingOptions> sampling_of(const Json& body, const SamplingOptions& defaults, int64_t vocab_size);

}  // namespace redline::server
