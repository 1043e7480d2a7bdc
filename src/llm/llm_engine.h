// The engine behind include/redline/engine.h: a compiled decoder, its cache, and the loop that feeds tokens back.
#pragma once

#include <memory>
#include <mutex>

#include "llm/attention_plan.h"
#include "llm/kv_cache.h"
#include "models/registry.h"
#include "redline/engine.h"
#include "runtime/executor.h"
#include "runtime/interpreter.h"

namespace redline {

class LlmEngine final : public Engine {
 public:
  static Result<std::unique_ptr<LlmEngine>> make(const std::string& path, const EngineOptions& options);
  ~LlmEngine() override;

  const ModelInfo& info() const override { return info_; }
  const SamplingOptions& default_sampling() const override { return sampling_; }
  Result<std::vector<int32_t>> encode(std::string_view text, bool special, bool add_bos) const override;
  Result<std::string> decode(std::span<const int32_t> tokens, bool special) const override;
  Result<std::unique_ptr<Session>> new_session() override;
  Result<GenerateResult> generate(const GenerateRequest& request,
                                  const std::function<bool(const TextPiece&)>& on_piece) override;
  std::string describe_program() const override;
  MemoryReport memory() const override;
  StepCost step_cost(int64_t tokens, int64_t depth) const override;

 private:
  friend class SequenceSession;
  friend class CompiledSession;
  friend class InterpretedSession;
  LlmEngine() = default;
  Status compile_graph(Graph graph, const EngineOptions& options);
  /// One step of at most options.max_chunk tokens of one sequence; the wanted logits lie in the program's output after.
  Status run_step(std::span<const int32_t> tokens, int64_t first_position, int64_t total_length, bool all,
                  const PageTable& pages);

  ModelInfo info_;
  SamplingOptions sampling_;
  DecoderConfig config_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Status tokenizer_status_;
  std::vector<int32_t> stop_tokens_;
  int32_t bos_ = -1;
  int64_t max_chunk_ = 0, max_logit_rows_ = 0;
  double weight_step_bytes_ = 0, layer_flops_ = 0, head_flops_ = 0;  // of one token

  std::mutex mutex_;  // sessions take turns
  std::unique_ptr<Interpreter> interpreter_;
  std::unique_ptr<WorkerTeam> team_;
  std::unique_ptr<KvCache> cache_;
  std::unique_ptr<AttentionPlan> plan_;
  std::unique_ptr<Program> program_;
  std::unique_ptr<Timeline> timeline_;
  std::string trace_file_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace redline
