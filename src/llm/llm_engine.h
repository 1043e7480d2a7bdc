// The implementation of include/redline/text.h. It consists of the text model (tokenizer, templates, defaults), the
// stepper, and the loop that runs requests.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>

#include "llm/generation_loop.h"
#include "llm/stepper.h"
#include "llm/text_model.h"
#include "redline/engine_profile.h"
#include "redline/fill_in.h"

namespace redline {

class LlmEngine final : public TextEngine, public EngineProfile, public FillInVocabulary {
 public:
  static Result<std::unique_ptr<LlmEngine>> make(Checkpoint checkpoint, const TextEngineOptions& options);

  const ModelInfo& info() const override { return model_.info; }
  const SamplingOptions& default_sampling() const override { return model_.sampling; }
  using TextEngine::encode;
  Result<std::vector<int32_t>> encode(std::string_view text, bool special, bool add_bos,
                                      const EncodeLimits& limits) const override {
    return model_.encode(text, special, add_bos, limits);
  }
  std::string token_bytes(int32_t token, bool special) const override { return model_.token_bytes(token, special); }
  Result<std::string> decode(std::span<const int32_t> tokens, bool special) const override {
    return model_.decode(tokens, special);
  }
  Result<std::string> render_chat(const ChatInput& input) const override { return model_.render_chat(input); }
  std::unique_ptr<ChatReader> chat_reader(std::string_view prompt, std::string_view tools_json,
                                          OutputConstraint::Kind constraint) const override {
    return model_.chat_reader(prompt, tools_json, constraint);
  }
  Result<std::vector<std::string>> unenforced_keywords(const OutputConstraint& constraint,
                                                       std::string_view chat_prompt) override {
    REDLINE_ASSIGN(const auto compiled, model_.constraints->compile(constraint, chat_prompt));
    if (!compiled) return std::vector<std::string>();
    return std::vector<std::string>(compiled->unenforced().begin(), compiled->unenforced().end());
  }
  Result<std::unique_ptr<Sequence>> new_sequence(const AdapterWeights& adapters) override;
  Status load_adapter(const std::string& name, const std::string& path) override {
    return model_.adapters->load(name, path);
  }
  Status replace_adapter(const std::string& name, const std::string& path) override {
    return model_.adapters->replace(name, path);
  }
  Status unload_adapter(const std::string& name) override { return model_.adapters->unload(name); }
  Status run_batch(std::span<BatchEntry> batch) override;
  BatchLimits batch_limits() const override { return stepper_->limits(); }
  int64_t free_cache_tokens() const override;
  EngineStats stats() const override;
  Result<GenerateResult> generate(const GenerateRequest& request,
                                  const std::function<bool(const TextPiece&)>& on_piece) override {
    return loop_->run(request, on_piece);
  }
  Result<std::shared_ptr<Generation>> submit(const GenerateRequest& request,
                                             std::function<bool(const TextPiece&)> on_piece) override {
    return loop_->submit(request, std::move(on_piece));
  }
  MemoryReport memory() const override;

  Stepper& stepper() { return *stepper_; }

  const FillInTokens& fill_in_tokens() const override { return fill_in_tokens_; }

  std::string describe_program() const override { return stepper_->executable().describe(); }
  StepCost step_cost(int64_t tokens, int64_t depth, int64_t sequences) const override;
  std::vector<OpCost> op_costs(int64_t tokens, int64_t depth, int64_t sequences) const override;
  void count_bounds(const MachineLimitsOf& limits_of) override;

 private:
  LlmEngine() = default;
  std::vector<OpCost> costs(const StepWork& work) const;

  // Each member uses the members before it.
  std::shared_ptr<Runtime> runtime_;
  TextModel model_;
  std::unique_ptr<Stepper> stepper_;
  std::unique_ptr<GenerationLoop> loop_;

  FillInTokens fill_in_tokens_;
  bool is_exact_f32_ = false;
  std::mutex bounds_mutex_;  ///< serializes count_bounds()
  std::atomic<bool> counts_bounds_{false};
};

}  // namespace redline
