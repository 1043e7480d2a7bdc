#include "diffusion/text_encoders.h"
#include "graph/adapter_sites.h"

namespace redline {

Result<std::unique_ptr<TextEncoder>> TextEncoder::make(std::string name, TextEncoderModel model,
                                                       PromptTokenizer tokenizer, const ExecutableOptions& options,
                                                       int64_t max_adapter_rank, RuntimeResources& runtime) {
  std::unique_ptr<TextEncoder> encoder(new TextEncoder(std::move(name), std::move(model), std::move(tokenizer)));
  if (max_adapter_rank > 0)
    encoder->adapters_ = NetworkAdapters(
        add_adapter_sites(encoder->model_.graph, max_adapter_rank, [](const std::string&) { return true; }));
  REDLINE_ASSIGN(encoder->network_, Executable::make(std::move(encoder->model_.graph), options, runtime));
  return encoder;
}

Status run_text_encoder(Executable& network, std::span<const int32_t> ids, int64_t pooled_row, int64_t key_length,
                        const NetworkAdapters& adapters) {
  std::copy(ids.begin(), ids.end(), network.input_i32("tokens"));
  if (network.has_input("positions"))
    for (int64_t i = 0; i < std::ssize(ids); ++i) network.input_i32("positions")[i] = static_cast<int32_t>(i);
  if (network.has_input("pooled_rows")) network.input_i32("pooled_rows")[0] = static_cast<int32_t>(pooled_row);
  if (network.has_input("key_lengths")) network.input_i32("key_lengths")[0] = static_cast<int32_t>(key_length);
  SymbolValues sizes;
  sizes[Symbol::kBatch] = 1;
  sizes[Symbol::kTextTokens] = std::ssize(ids);
  return network.run(sizes, adapters.segments());
}

Result<EncodedText> TextEncoder::encode(std::span<const std::string> prompts, int64_t tokens, bool mask_padding) {
  if (tokens <= 0 || (tokens > model_.max_tokens && model_.max_tokens > 0)) tokens = model_.max_tokens;
  EncodedText text;
  text.prompts = static_cast<int64_t>(prompts.size());
  text.tokens = tokens;
  text.width = model_.width;
  text.pooled_width = model_.pooled_width;
  // One prompt at a time: results do not depend on the other prompts, and the arena is sized for one.
  for (const std::string& prompt : prompts) {
    REDLINE_ASSIGN(const PromptIds ids, tokenizer_.encode(prompt, tokens).within(name_));
    if (ids.cut > 0)
      text.warnings.push_back(fmt::format("{}: the prompt is {} tokens longer than {}; truncated at \"{}\"", name_,
                                          ids.cut, tokens, ids.cut_text));
    text.lengths.push_back(static_cast<int32_t>(ids.length));
    REDLINE_TRY(run_text_encoder(network_, ids.ids, ids.pooled_row, mask_padding ? ids.length : tokens, adapters_)
                    .within(name_));
    const auto take = [&](const char* port, int64_t count, std::vector<float>& out) {
      if (network_.has_output(port)) out.insert(out.end(), network_.output(port), network_.output(port) + count);
    };
    take("hidden", tokens * model_.width, text.hidden);
    take("penultimate", tokens * model_.width, text.penultimate);
    take("pooled", model_.pooled_width, text.pooled);
  }
  return text;
}

}  // namespace redline
