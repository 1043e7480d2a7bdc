#include "diffusion/denoiser_batch.h"

namespace redline {

Result<DenoiserBatch> make_denoiser_batch(const LatentShape& latents, int64_t images, double distilled_guidance,
                                          const PromptConditions& positive, const PromptConditions* negative) {
  DenoiserBatch batch;
  batch.images = images;
  batch.rows = images * (negative ? 2 : 1);
  batch.latents = latents;
  batch.text_tokens = positive.tokens;
  if (negative && negative->tokens != positive.tokens)
    return internal("the negative prompt has {} tokens, the prompt {}", negative->tokens, positive.tokens);
  const auto gather = [&](auto member, auto& out) {
    for (const PromptConditions* branch : {&positive, negative}) {
      if (!branch) continue;
      for (const auto& [name, values] : branch->*member) {
        auto& to = out[name];
        const int64_t given = branch->prompts;
        const auto n = static_cast<std::ptrdiff_t>(static_cast<int64_t>(values.size()) / std::max<int64_t>(given, 1));
        for (int64_t p = 0; p < images; ++p) {
          const auto from = values.begin() + (given == 1 ? 0 : p) * n;
          to.insert(to.end(), from, from + n);
        }
      }
    }
  };
  gather(&PromptConditions::values, batch.conditions);
  gather(&PromptConditions::integers, batch.integer_conditions);
  batch.conditions["guidance"].assign(static_cast<size_t>(batch.rows), static_cast<float>(distilled_guidance));
  return batch;
}

}  // namespace redline
