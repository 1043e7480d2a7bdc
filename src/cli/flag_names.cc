#include "cli/flag_names.h"

#include <algorithm>
#include <string_view>

#include "redline/sampling_parameters.h"

namespace redline::cli {
namespace {

/// Members that are not in sampling_parameters(), and their flags. The flags of sampling_parameters() have the names of
/// the members.
struct FlagName {
  std::string_view member, flag;
};
constexpr FlagName kFlagNames[] = {
    {"max_tokens", "--max-tokens"},
    {"dry_sequence_breakers", "--dry-sequence-breaker"},
    {"logit_bias", "--logit-bias"},
    {"bad_words", "--bad-word"},
    {"beam_width", "--beams"},
    {"length_penalty", "--length-penalty"},
    {"max_batch_tokens", "--chunk"},
    {"num_speculative_tokens", "--draft-max"},
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

/// Returns the flag of a member; another word is returned unchanged.
std::string flag_name(std::string_view word) {
  for (const FlagName& name : kFlagNames)
    if (name.member == word) return std::string(name.flag);
  if (find_sampling_parameter(word) == nullptr) return std::string(word);
  std::string flag = "--" + std::string(word);
  std::replace(flag.begin(), flag.end(), '_', '-');
  return flag;
}

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
    // A word in quotes is the name of a file or of a key, not a member.
    const bool is_quoted = begin > 0 && (message[begin - 1] == '"' || message[begin - 1] == '\'');
    const std::string_view word = std::string_view(message).substr(begin, end - begin);
    text += is_quoted ? std::string(word) : flag_name(word);
    begin = end;
  }
  return text;
}

}  // namespace redline::cli
