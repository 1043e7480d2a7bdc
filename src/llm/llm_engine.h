// The implementation of include/redline/text.h: a compiled decoder, its KV cache, and the generation loop.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "backends/cpu/executor.h"
#include "llm/attention_plan.h"
#include "llm/engine_profile.h"
#include "llm/kv_cache.h"
#include "models/registry.h"
#include "redline/text.h"
#include "runtime/interpreter.h"

namespace redline {

class LlmEngine final : public TextEngine, public EngineProfile {
 public:
  static Result<std::unique_ptr<LlmEngine>> make(Checkpoint checkpoint, const TextEngineOptions& options);
  ~LlmEngine() override;

  const ModelInfo& info() const override { return info_; }
  const SamplingOptions& default_sampling() const override { return sampling_; }
  Result<std::vector<int32_t>> encode(std::string_view text, bool special, bool add_bos) const override;
  Result<std::string> decode(std::span<const int32_t> tokens, bool special) const override;
  Result<std::unique_ptr<Session>> new_session() override;
  Result<GenerateResult> generate(const GenerateRequest& request,
                                  const std::function<bool(const TextPiece&)>& on_piece) override;
  Status run_batch(std::span<BatchEntry> batch) override;
  BatchLimits batch_limits() const override;
  int64_t free_cache_tokens() const override;
  std::string describe_program() const override;
  MemoryReport memory() const override;
  StepCost step_cost(int64_t tokens, int64_t depth, int64_t sequences) const override;
  std::vector<OpCost> op_costs(int64_t tokens, int64_t depth, int64_t sequences) const override;

 private:
  friend class SequenceSession;
  friend class CompiledSession;
  friend class InterpretedSession;
  LlmEngine() = default;
  /// Limits of a step and pages of the cache, from the options and info_.context.
  Status set_limits(const TextEngineOptions& options);
  Status compile_graph(Graph graph, const TextEngineOptions& options, double hang_seconds);
  /// Validates one entry. The caller holds the mutex.
  Status check(const BatchEntry& entry) const;
  /// Runs the step; the entries have been validated. The caller holds the mutex.
  Status step(std::span<BatchEntry> batch);
  Status run_program(std::span<const BatchEntry> batch);
  Status run_interpreter(std::span<const BatchEntry> batch);

  ModelInfo info_;
  SamplingOptions sampling_;
  DecoderConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Status tokenizer_status_;
  std::vector<int32_t> stop_tokens_;
  int32_t bos_ = -1;
  int64_t max_batch_tokens_ = 0, max_logit_rows_ = 0, max_sequences_ = 0, cache_pages_ = 0;
  int64_t plan_window_ = 0;  // the window that the attention plan is balanced for
  /// Linear ops with weights of one type: cost per token, or per row of logits.
  struct LinearCost {
    DType dtype;
    bool is_output;
    double bytes, flops;
  };
  std::vector<LinearCost> linear_costs_;

  mutable std::mutex mutex_;  // serializes steps and all changes to pages
  std::unique_ptr<Interpreter> interpreter_;
  std::unique_ptr<WorkerTeam> team_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<AttentionPlan> plan_;
  TimelineFile timeline_;
  std::unique_ptr<ProgramRunner> runner_;
  // Of the step in progress; capacity max_sequences_.
  std::vector<SequenceRows> step_rows_;
  std::vector<const int32_t*> step_pages_;
  std::vector<float> interpreted_logits_;
};

}  // namespace redline
