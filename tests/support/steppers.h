// Steppers of the golden models without the engine around them, and a script of steps that moves pages in every way.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "llm/stepper.h"
#include "llm/text_model.h"
#include "models/checkpoint/convert_graph.h"
#include "models/registry.h"
#include "runtime/runtime_resources.h"
#include "support/golden.h"

namespace redline::testing {

/// A stepper with the runtime that it runs on.
struct OwnStepper {
  std::unique_ptr<RuntimeResources> runtime;
  std::unique_ptr<Stepper> stepper;
};

/// Builds a model of golden_models(), or a random one ("random:tiny:q8_0"), with its matrices converted as `dtype` says.
inline StepModel golden_step_model(const std::string& model, const CpuKernels& kernels,
                                   ComputeType dtype = ComputeType::kF32) {
  Result<Checkpoint> checkpoint = Checkpoint::open(model.starts_with("random:") ? model : golden_root() + "/" + model);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  Result<LanguageModel> language = build_language_model(*checkpoint);
  EXPECT_TRUE(language.ok()) << language.status().to_string();
  const auto converted = convert_graph_matrices(language->graph, dtype, dtype);
  EXPECT_TRUE(converted.ok()) << converted.status().to_string();
  const int64_t context = language->config.names.positions.empty() ? 96 : 0;  // 0: as many as are learned
  const Result<TextModel> text = TextModel::make(*checkpoint, *language, context);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text->step_model(std::move(language->graph), kernels);
}

inline TextEngineOptions stepper_options(ComputeType dtype = ComputeType::kF32) {
  TextEngineOptions options;
  options.dtype = dtype;
  options.max_sequences = 8;
  options.max_batch_tokens = 64;
  options.cache_tokens = 1024;
  return options;
}

inline OwnStepper make_stepper(StepModel model, const CpuKernels& kernels, int threads,
                               const TextEngineOptions& options = stepper_options()) {
  OwnStepper own;
  own.runtime = std::make_unique<RuntimeResources>(threads, kernels);
  auto stepper = Stepper::make(std::move(model), options, {}, *own.runtime);
  EXPECT_TRUE(stepper.ok()) << stepper.status().to_string();
  if (stepper.ok()) own.stepper = std::move(stepper).value();
  return own;
}

/// The inputs and the logits of one step.
struct RecordedStep {
  StepMessage message;
  std::vector<float> logits;
};

/// Steps of a chunked prompt, of a batch of prefill and decode, of a fork whose last page is shared, and of decoding
/// past the end of a page. `send`: called with the message of each step before it runs.
inline std::vector<RecordedStep> run_script(Stepper& stepper, int64_t vocab_size,
                                            const std::function<Status(const StepMessage&)>& send = {}) {
  std::vector<RecordedStep> steps;
  stepper.set_on_message([&](const StepMessage& message) {
    steps.push_back({message, {}});
    return send ? send(message) : Status();
  });
  int32_t next = 3;
  std::vector<std::vector<int32_t>> tokens;
  const auto entry = [&](SequenceState& state, int64_t count, int64_t logit_rows) {
    std::vector<int32_t>& own = tokens.emplace_back();
    for (int64_t i = 0; i < count; ++i) own.push_back(next = (next * 7 + 5) % static_cast<int32_t>(vocab_size));
    StepEntry e;
    e.state = &state;
    e.tokens = PromptView(own.data(), own.size());
    e.logit_rows = logit_rows;
    e.expected_length = state.length() + count;
    return e;
  };
  const auto run = [&](const std::vector<StepEntry>& batch) {
    std::lock_guard lock(stepper.mutex());
    const Status status = stepper.step(batch);
    EXPECT_TRUE(status.ok()) << status.to_string();
    if (!status.ok() || steps.empty()) return;
    const size_t count = steps.back().message.logit_rows.size() * static_cast<size_t>(vocab_size);
    steps.back().logits.assign(stepper.logits(), stepper.logits() + count);
  };
  SequenceState a(stepper.pool()), b(stepper.pool()), c(stepper.pool());
  tokens.reserve(64);
  run({entry(a, 13, 13)});
  run({entry(a, 6, 1), entry(b, 9, 2)});
  a.fork_into(c);
  run({entry(a, 1, 1), entry(c, 2, 1), entry(b, 1, 1)});
  for (int i = 0; i < 3; ++i) run({entry(a, 1, 1), entry(b, 1, 1), entry(c, 1, 1)});
  run({entry(b, 17, 3), entry(a, 1, 1)});
  run({entry(c, 20, 1), entry(b, 9, 1)});
  for (int i = 0; i < 2; ++i) run({entry(c, 1, 1), entry(b, 1, 1)});
  stepper.set_on_message({});
  return steps;
}

/// Runs one step of all tokens of a new sequence and returns the logits of all of them; empty and a failed test on an
/// error.
inline std::vector<float> run_prompt(Stepper& stepper, std::span<const int32_t> tokens, int64_t vocab_size,
                                     const std::function<Status(const StepMessage&)>& send = {}) {
  SequenceState state(stepper.pool());
  StepEntry entry;
  entry.state = &state;
  entry.tokens = PromptView(tokens.data(), tokens.size());
  entry.logit_rows = entry.expected_length = std::ssize(tokens);
  stepper.set_on_message(send);
  std::lock_guard lock(stepper.mutex());
  const Status status = stepper.step({&entry, 1});
  EXPECT_TRUE(status.ok()) << status.to_string();
  stepper.set_on_message({});
  if (!status.ok()) return {};
  return {stepper.logits(), stepper.logits() + std::ssize(tokens) * vocab_size};
}

/// Executes a message and returns the logits; empty and a failed test on an error.
inline std::vector<float> execute(Stepper& stepper, const StepMessage& message, int64_t vocab_size) {
  std::lock_guard lock(stepper.mutex());
  const Status status = stepper.execute(message);
  EXPECT_TRUE(status.ok()) << status.to_string();
  if (!status.ok()) return {};
  return {stepper.logits(), stepper.logits() + message.logit_rows.size() * static_cast<size_t>(vocab_size)};
}

}  // namespace redline::testing
