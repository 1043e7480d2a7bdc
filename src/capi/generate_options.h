// Converts requests of the C interface to requests of the engine.
#pragma once

#include "capi/handles.h"

namespace redline::capi {

/// Returns the default options. `model` may be null.
redline_generate_options default_generate_options(const TextContents* model);

/// Returns the request for a prompt. `given` null: the model's defaults. Draws a seed if none is given.
Result<GenerateRequest> request_of(const redline_prompt& prompt, const redline_generate_options* given,
                                   const TextContents& model);
Result<GenerateRequest> request_of(const redline_prompt_spans* prompt, const redline_generate_options* given,
                                   const TextContents& model);

}  // namespace redline::capi
