// Arranges the prompts of a request and its negative prompt as rows of the denoiser's batch.
#pragma once

#include "diffusion/denoiser.h"
#include "models/image/pipeline.h"

namespace redline {

/// Returns a batch with the rows of the prompts, then those of the negative prompt, if any. A single prompt is used for
/// all images. `negative` may be null. internal: the branches differ in their number of tokens.
Result<DenoiserBatch> make_denoiser_batch(const LatentShape& latents, int64_t images, double distilled_guidance,
                                          const PromptConditions& positive, const PromptConditions* negative);

}  // namespace redline
