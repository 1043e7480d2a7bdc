#include "cli/flag_names.h"

#include <string_view>

namespace redline::cli {
namespace {

struct FlagName {
  std::string_view member, flag;
};
constexpr FlagName kFlagNames[] = {
    {"max_tokens", "--max-tokens"},
    {"temperature", "--temperature"},
    {"top_k", "--top-k"},
    {"top_p", "--top-p"},
    {"min_p", "--min-p"},
    {"repetition_penalty", "--repetition-penalty"},
    {"presence_penalty", "--presence-penalty"},
    {"frequency_penalty", "--frequency-penalty"},
    {"penalty_last_n", "--penalty-last-n"},
    {"typical_p", "--typical-p"},
    {"top_n_sigma", "--top-n-sigma"},
    {"xtc_probability", "--xtc-probability"},
    {"xtc_threshold", "--xtc-threshold"},
    {"dry_multiplier", "--dry-multiplier"},
    {"dry_base", "--dry-base"},
    {"dry_allowed_length", "--dry-allowed-length"},
    {"dry_penalty_last_n", "--dry-penalty-last-n"},
    {"dry_sequence_breakers", "--dry-sequence-breaker"},
    {"mirostat_tau", "--mirostat-tau"},
    {"mirostat_eta", "--mirostat-eta"},
    {"dynatemp_range", "--dynatemp-range"},
    {"dynatemp_exponent", "--dynatemp-exponent"},
    {"logit_bias", "--logit-bias"},
    {"bad_words", "--bad-word"},
    {"beam_width", "--beams"},
    {"length_penalty", "--length-penalty"},
    {"max_batch_tokens", "--chunk"},
    {"max_slowdown", "--max-slowdown"},
    {"max_sequences", "--batch"},
    {"num_inference_steps", "--steps"},
    {"guidance_scale", "--guidance"},
    {"true_cfg_scale", "--true-cfg-scale"},
    {"max_sequence_length", "--max-sequence-length"},
    {"max_batch", "the limit of --batch,"},
    {"max_side", "--max-side"},
    {"max_adapter_rank", "the sum of the ranks of --lora,"},
    {"vae_tile", "--vae-tile"},
    {"steps_budget", "--steps-budget"},
    {"prompt_embeds", "--prompt-embeds"},
    {"pooled_embeds", "--pooled-embeds"},
    {"init_noise", "--init-noise"},
    {"front_blocks", "--front-blocks"},
    {"tail_blocks", "--tail-blocks"},
    {"tune_prompts", "--tune-prompts"},
};

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.' || c == '/';
}

}  // namespace

std::string with_flag_names(const std::string& message) {
  std::string text;
  for (size_t begin = 0; begin < message.size();) {
    size_t end = begin;
    while (end < message.size() && is_word(message[end])) ++end;
    if (end == begin) {
      text += message[begin++];
      continue;
    }
    // A name of a file or of a key in quotes is not a member.
    const bool is_quoted = begin > 0 && (message[begin - 1] == '"' || message[begin - 1] == '\'');
    std::string_view word = std::string_view(message).substr(begin, end - begin);
    for (const FlagName& name : kFlagNames)
      if (!is_quoted && name.member == word) word = name.flag;
    text += word;
    begin = end;
  }
  return text;
}

}  // namespace redline::cli
