// Runs steps of a language model: passes a batch of sequences, with their states, through the executable.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/fair_mutex.h"
#include "llm/attention_plan.h"
#include "llm/layer_placement.h"
#include "llm/prompt_ports.h"
#include "llm/state_pool.h"
#include "llm/step_bound.h"
#include "llm/step_message.h"
#include "llm/step_model.h"
#include "llm/text_adapters.h"
#include "redline/text.h"
#include "runtime/executable.h"

namespace redline {

/// One sequence's part of a step.
struct StepEntry {
  SequenceState* state = nullptr;
  PromptView tokens;            ///< tokens, or a part of a prompt with rows of embeddings, which count as tokens
  int64_t logit_rows = 0;       ///< number of final tokens whose logits are computed
  int64_t hidden_rows = 0;      ///< number of final tokens whose hidden states are computed
  int64_t expected_length = 0;  ///< length of the whole prompt, for rope scaling that depends on it; 0: unknown
  int64_t next_position = -1;   ///< position at which `tokens` begin; -1: the length of the state
  std::span<const WeightedAdapter> adapters;
  std::span<const SampleRow> samples;  ///< [logit_rows] how the device samples each row; empty: the host samples all
};

inline int64_t num_tokens(const StepEntry& entry) { return static_cast<int64_t>(entry.tokens.size()); }
/// Returns the number that is added to the positions of a prompt to give those of the sequence.
inline int64_t position_origin(const StepEntry& entry) {
  return (entry.next_position < 0 ? entry.state->length() : entry.next_position) - entry.tokens.position_after(0);
}

class Stepper {
 public:
  /// Compiles the graph and allocates the states. `device` is ignored with TextEngineOptions::use_interpreter.
  /// `runtime` must outlive the stepper. Messages of errors name the option of TextEngineOptions.
  static Result<std::unique_ptr<Stepper>> make(StepModel model, const TextEngineOptions& options,
                                               const DeviceChoice& device, RuntimeResources& runtime);

  /// Appends the entries' tokens to their sequences; logits() and hidden() then hold the requested rows, in order. On
  /// error every sequence is unchanged. The entries have passed check(). The caller holds mutex(). internal: the batch
  /// exceeds limits(), or asks for rows that the network does not compute. `check_logits`: called when logits() are
  /// there; if it fails, so does the step.
  Status step(std::span<const StepEntry> batch, const std::function<Status()>& check_logits = {});
  /// Executes a step that another stepper of the same network has made, or that was recorded: changes and writes the
  /// pages that it names, whatever sequences have them. logits() and hidden() then hold its rows. The caller holds
  /// mutex(). invalid_argument: the message does not fit the network, limits() or the pages of the pool.
  Status execute(const StepMessage& message);
  /// Sets a function that step() calls with each message before it is executed, to record it or to send it to other
  /// ranks. If it fails, so does the step. The caller holds mutex().
  void set_on_message(std::function<Status(const StepMessage&)> fn) { on_message_ = std::move(fn); }
  /// Returns the logits of the last step, [rows, vocab_size], valid until the next step.
  const float* logits() const { return executable_.output(PortRole::kLogits); }
  /// Returns the hidden states of the last step, [rows, hidden_size], valid until the next step; `number`: which of the
  /// network's.
  const float* hidden(size_t number = 0) const { return executable_.output(PortRole::kHidden, number); }
  /// Returns, for each row of logits of the last step, the token that the device sampled according to
  /// StepEntry::samples. -1: none; only then logits() has the row. Empty: the device sampled nothing, and logits() has
  /// all rows.
  std::span<const int32_t> sampled() const;
  bool can_sample() const { return executable_.has_output(PortRole::kSampled); }
  /// Sets AttentionPlanShape::cached_bytes, for tests. The caller holds mutex().
  void set_cached_bytes(int64_t bytes);
  /// Calls fn(0) .. fn(count - 1), each of which reads `work` numbers, on the workers, in any order. The calling thread
  /// makes all calls if the work is small, or if the workers serve another engine, whose step may be long.
  void for_each(int64_t count, int64_t work, const std::function<void(int64_t)>& fn);

  /// Serializes steps and every change to the state of a sequence.
  FairMutex& mutex() { return mutex_; }
  StatePool& pool() { return *pool_; }
  /// Sets a function that the thread of a step calls after every successful step. bound_seconds() is the sum of its
  /// results.
  void set_bound(std::function<double(const StepWork&)> bound) { bound_ = std::move(bound); }
  /// Checks one entry against context and vocabulary.
  Status check(const StepEntry& entry) const;
  BatchLimits limits() const;
  /// Limits within which the logits of a row do not depend, to the last bit, on the other rows of its step: tokens of a
  /// step, and tokens of one sequence. Beyond them another kernel may be chosen (docs/numerics.md).
  struct SameBits {
    int64_t step_tokens = INT64_MAX, sequence_tokens = INT64_MAX;
  };
  const SameBits& same_bits() const { return same_bits_; }
  /// Returns the maximum tokens of one sequence: the option, or the number that make() has chosen.
  int64_t context() const { return context_; }
  /// Returns the bytes of the pages of all groups.
  int64_t cache_bytes() const { return cache_bytes(cache_pages_); }
  const Executable& executable() const { return executable_; }
  /// Runner::time_stages() for the last step. The caller holds mutex().
  Result<std::vector<StageTime>> time_stages(double seconds) { return executable_.time_stages(seconds); }
  /// Returns the KV cache format of the first layers. If a device runs them, that of the CPU's layers may differ.
  KvFormat kv_format() const { return is_on_cpu_ ? kv_formats_.cpu : kv_formats_.device; }
  /// Returns the KV cache format of the layers that the CPU runs.
  KvFormat cpu_kv_format() const { return is_on_cpu_ || device_layers_ ? kv_formats_.cpu : kv_formats_.device; }
  /// Returns the number of layers that the device runs, if the CPU runs the others.
  std::optional<int64_t> device_layers() const { return device_layers_; }
  /// Returns the number of these layers whose experts also run on the device.
  std::optional<int64_t> device_experts() const { return device_experts_; }
  /// Number of successful steps, their total time, and the sum of their bounds. Thread-safe.
  int64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  double step_seconds() const { return 1e-9 * static_cast<double>(step_ns_.load(std::memory_order_relaxed)); }
  double bound_seconds() const { return bound_seconds_.load(std::memory_order_relaxed); }

 private:
  Stepper() = default;
  Status set_limits(const TextEngineOptions& options);
  Status open(Graph graph, const ExecutableOptions& executable, const TextEngineOptions& options);
  /// open() with as many layers on the device as fit and make steps fastest. `why`: the error of open() with the whole
  /// model.
  Status open_in_parts(const Graph& graph, ExecutableOptions executable, const TextEngineOptions& options,
                       const Status& why);
  Status make_pool(const TextEngineOptions& options);
  /// Returns the bytes of caches if the user has set no limit: half of the memory that is available besides the weights
  /// on the device that holds them.
  Result<int64_t> default_cache_bytes() const;
  /// Returns the number of pages that fit in `bytes`, at least 1 and at most `most`.
  int64_t pages_within(int64_t bytes, int64_t most) const;
  int64_t min_context() const;
  /// Lowers the context to the capacity of the cache, unless the user has set it.
  void fit_context();
  int64_t cache_bytes(int64_t cache_pages) const;
  std::vector<int64_t> pages_of_groups(int64_t cache_pages) const;
  Status check_limits(std::span<const StepEntry> batch) const;
  /// Makes and executes the message of a step.
  Status run(std::span<const StepEntry> batch);
  /// Fills message_, whose page changes are there.
  void write_message(std::span<const StepEntry> batch);
  void add_embeddings(std::span<const StepEntry> batch);
  void add_adapters(std::span<const StepEntry> batch);
  void apply_page_changes();
  Status check(const StepMessage& message) const;
  Status check_rows(const StepMessage& message) const;
  Status check_pages(const StepMessage& message) const;
  /// Executes a message, except for its page changes.
  Status run(const StepMessage& message);
  void write_inputs(const StepMessage& message);
  void plan_states(const StepMessage& message);
  /// Returns SameBits for matrices of these types.
  SameBits find_same_bits(const std::set<DType>& types, const ExecutableOptions& options) const;
  /// Returns the work of the step in progress.
  StepWork work(std::span<const StepEntry> batch) const;

  int64_t context_ = 0, weight_bytes_ = 0;
  int64_t max_adapter_rank_ = 0;  ///< TextEngineOptions::max_adapter_rank
  PromptPorts ports_;
  bool is_context_set_ = false;
  DeviceChoice device_;  ///< the device that runs the first layers
  int64_t max_batch_tokens_ = 0, max_logit_rows_ = 0, max_sequences_ = 0, cache_pages_ = 0;
  int64_t recurrent_pages_ = 0;  ///< number of pages of each recurrent group
  KvFormats kv_formats_ = {};
  SameBits same_bits_;
  bool is_on_cpu_ = true;
  std::optional<int64_t> device_layers_, device_experts_;
  RuntimeResources* runtime_ = nullptr;
  Executable executable_;
  size_t num_samples_ = 0;  ///< rows of logits of the last step, if its message says how to sample them
  std::unique_ptr<StatePool> pool_;
  FairMutex mutex_;
  std::atomic<int64_t> steps_{0}, step_ns_{0};
  std::function<double(const StepWork&)> bound_;
  std::atomic<double> bound_seconds_{0};

  // State of the step in progress; memory is reserved when the stepper is made.
  struct GroupStep {
    std::unique_ptr<AttentionPlan> plan;  ///< null for groups that are not kKeyValue
    AttentionReach reach = {};            ///< of `plan`
    std::vector<const int32_t*> pages;    ///< [sequences]
    std::vector<int32_t> slots;           ///< [tokens]; empty for groups that are not kKeyValue
  };
  std::vector<GroupStep> groups_;
  std::vector<StateStep> states_;
  std::vector<AdapterSegment> adapters_;
  StepMessage message_;                 ///< the step that step() makes
  bool has_unapplied_changes_ = false;  ///< the page changes of message_ are still to be made
  std::function<Status(const StepMessage&)> on_message_;
};

}  // namespace redline
