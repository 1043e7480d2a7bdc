// Everything about a language model except its graph: description, tokenizer, defaults, adapters, and the costs of a
// step.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_kernels.h"
#include "llm/output_constraints.h"
#include "llm/prompt_ports.h"
#include "llm/step_model.h"
#include "llm/text_adapters.h"
#include "models/registry.h"
#include "redline/text.h"

namespace redline {

struct TextModel {
  ModelInfo info;
  DecoderConfig config;
  PromptPorts ports;
  SamplingOptions sampling;
  std::unique_ptr<Tokenizer> tokenizer;
  Status tokenizer_status;  ///< why there is no tokenizer
  std::optional<ChatTemplate> chat_template;
  Status chat_template_status;  ///< why there is no chat template
  std::vector<int32_t> stop_tokens;
  int32_t bos = -1;
  std::unique_ptr<TextAdapters> adapters;
  std::unique_ptr<OutputConstraints> constraints;
  /// Cost of the linear ops with weights of one type, per token or, if is_output, per row of logits. For experts,
  /// `bytes` counts all of them and `flops` those that a token uses.
  struct LinearCost {
    DType dtype;
    bool is_output;
    double expert_share;  ///< share of the experts that a token uses; 1: no experts
    double bytes, flops;
  };
  std::vector<LinearCost> linear_costs;

  /// PromptPorts::max_position() of the engine's context.
  int64_t max_position() const { return ports.max_position(info.context); }
  /// Returns what a Stepper needs to know of the model. `graph` is the one that make() has seen.
  StepModel step_model(Graph graph, const CpuKernels& kernels) const;
  /// Makes the text model. Moves the tokenizer out of the checkpoint. `context`: as TextEngineOptions::context; 0: the
  /// model's own limit, which the memory for caches may lower (Stepper::context()).
  static Result<TextModel> make(Checkpoint& checkpoint, const LanguageModel& model, int64_t context);
  /// Sets the model's own template or, unless "", `file_or_name`. If the model's own template does not compile,
  /// render_chat() returns the error; for `file_or_name` this call does.
  Status set_chat_template(ChatTemplateSource source, const std::string& file_or_name);

  Result<std::vector<int32_t>> encode(std::string_view text, bool special, bool add_bos,
                                      const EncodeLimits& limits) const;
  Result<std::string> render_chat(const ChatInput& input) const;
  std::unique_ptr<ChatOutputParser> chat_reader(std::string_view prompt, std::string_view tools_json,
                                                OutputConstraint::Kind constraint) const;
  Result<std::string> decode(std::span<const int32_t> tokens, bool special) const;
  std::string token_bytes(int32_t token, bool special) const;
};

}  // namespace redline
