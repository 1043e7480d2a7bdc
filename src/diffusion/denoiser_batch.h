// The prompts of a request, and those that guidance leads away from, as rows of the denoiser's batch.
#pragma once

#include "diffusion/denoiser.h"
#include "models/pipeline.h"

namespace redline {

/// Rows of the prompts, then, with guidance, of the negative prompt; one prompt serves all pictures. `negative` may be
/// null. internal: the branches differ in their tokens.
Result<DenoiserBatch> make_denoiser_batch(const LatentLayout& layout, int64_t pictures, double distilled_guidance,
                                          const PromptConditions& positive, const PromptConditions* negative);

}  // namespace redline
