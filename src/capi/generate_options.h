// Requests of the C interface as those of the engine.
#pragma once

#include "capi/handles.h"

namespace redline::capi {

/// `model` may be null.
redline_generate_options default_generate_options(const TextContents* model);

/// `given` null: the model's defaults. Draws a seed where none is given.
Result<GenerateRequest> request_of(const redline_prompt& prompt, const redline_generate_options* given,
                                   const TextContents& model);

}  // namespace redline::capi
