// Hidden states as outputs of a decoder: of any layer, with and without the final norm, beside logits of other rows.
#include <gmock/gmock.h>

#include <cmath>

#include "llm/stepper.h"
#include "models/registry.h"
#include "support/golden.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

/// The number of final rows of each of two texts whose outputs are asked for.
struct Rows {
  int64_t logits, hidden;
};

/// The outputs of a step of two texts: rows of logits, and rows of every hidden state.
struct StepOutputs {
  std::vector<float> logits;
  std::vector<std::vector<float>> hidden;
};

struct Place {
  const char* device = "cpu";
  int64_t gpu_layers = -1;
};

const std::vector<int32_t> kFirst = {5, 9, 3, 11, 8, 2, 40}, kSecond = {7, 1, 30};

Checkpoint open_checkpoint(const std::string& name) {
  auto checkpoint = Checkpoint::open(golden_root() + "/" + name);
  EXPECT_TRUE(checkpoint.ok()) << checkpoint.status().to_string();
  return std::move(checkpoint).value();
}

/// Computes one step of kFirst and kSecond in float32.
Result<StepOutputs> run_step(const Checkpoint& checkpoint, const DecoderOutputs& outputs, Rows first, Rows second,
                             const Place& place = {}) {
  REDLINE_ASSIGN(LanguageModel model, build_language_model(checkpoint, outputs));
  StepModel step_model;
  step_model.graph = std::move(model.graph);
  step_model.vocab_size = model.config.vocab_size;
  step_model.context = model.config.max_positions;
  TextEngineOptions options;
  options.dtype = ComputeType::kF32;
  options.max_sequences = 2;
  options.gpu_layers = place.gpu_layers;
  REDLINE_ASSIGN(const DeviceChoice device, choose_engine_device(place.device, false));
  REDLINE_ASSIGN(const std::shared_ptr<Runtime> runtime, Runtime::open({.threads = 2}));
  REDLINE_ASSIGN(const auto stepper, Stepper::make(std::move(step_model), options, device, resources_of(*runtime)));
  SequenceState a(stepper->pool()), b(stepper->pool());
  const std::vector<StepEntry> batch = {
      {.state = &a, .tokens = kFirst, .logit_rows = first.logits, .hidden_rows = first.hidden},
      {.state = &b, .tokens = kSecond, .logit_rows = second.logits, .hidden_rows = second.hidden}};
  for (const StepEntry& entry : batch) REDLINE_TRY(stepper->check(entry));
  REDLINE_TRY(stepper->step(batch));
  StepOutputs out;
  if (const int64_t rows = first.logits + second.logits; rows > 0)
    out.logits.assign(stepper->logits(), stepper->logits() + rows * model.config.vocab_size);
  const int64_t size = (first.hidden + second.hidden) * model.config.hidden_size;
  for (size_t i = 0; i < outputs.hidden.size(); ++i)
    out.hidden.emplace_back(stepper->hidden(i), stepper->hidden(i) + size);
  return out;
}

StepOutputs step(const Checkpoint& checkpoint, const DecoderOutputs& outputs, Rows first, Rows second,
                 const Place& place = {}) {
  auto out = run_step(checkpoint, outputs, first, second, place);
  EXPECT_TRUE(out.ok()) << out.status().to_string();
  return out.ok() ? std::move(out).value() : StepOutputs{};
}

/// Returns the largest difference, relative to the largest element of `want`.
double hidden_difference(const std::vector<float>& got, const std::vector<double>& want) {
  EXPECT_EQ(got.size(), want.size());
  double largest = 0, error = 0;
  for (size_t i = 0; i < std::min(got.size(), want.size()); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    error = std::max(error, std::abs(double{got[i]} - want[i]));
  }
  return error / largest;
}
double hidden_difference(const std::vector<float>& got, const std::vector<float>& want) {
  return hidden_difference(got, std::vector<double>(want.begin(), want.end()));
}

/// Reads a float32 or bfloat16 tensor.
std::vector<double> values_of(Checkpoint& checkpoint, const std::string& name) {
  WeightSource& source = checkpoint.tensors.at(name);
  source.need_all();
  std::vector<double> values(static_cast<size_t>(source.view.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    uint32_t bits = 0;
    if (source.view.dtype == DType::kF32) bits = static_cast<const uint32_t*>(source.view.data)[i];
    else bits = static_cast<uint32_t>(static_cast<const uint16_t*>(source.view.data)[i]) << 16;
    float value;
    std::memcpy(&value, &bits, 4);
    values[i] = double{value};
  }
  return values;
}

/// Keeps the first layers only.
Checkpoint with_layers(Checkpoint checkpoint, int64_t layers) {
  const int64_t all = checkpoint.config["num_hidden_layers"].get<int64_t>();
  checkpoint.config["num_hidden_layers"] = layers;
  std::erase_if(checkpoint.tensors, [&](const auto& tensor) {
    for (int64_t i = layers; i < all; ++i)
      if (tensor.first.starts_with(fmt::format("model.layers.{}.", i))) return true;
    return false;
  });
  return checkpoint;
}

// Both are sums of the same float32 numbers in rows of 32 to 48 elements, fused differently at most: two layers of
// eight sums, each with an error of a few units of 6e-8.
constexpr double kSameSums = 1e-5;

TEST(HiddenStates, AreThoseOfAModelWithFewerLayers) {
  for (const char* name : {"llama_gqa", "gemma2", "cohere", "qwen3_moe"}) {
    const int64_t layers = open_checkpoint(name).config["num_hidden_layers"].get<int64_t>();
    for (int64_t k = 1; k < layers; ++k) {
      const DecoderOutputs of_all = {.logits = false, .hidden = {{k, true}, {HiddenState::kAllLayers}, {k, false}}};
      const DecoderOutputs of_some = {.logits = false, .hidden = {{HiddenState::kAllLayers, true}, {k, false}}};
      const StepOutputs all = step(open_checkpoint(name), of_all, {0, 7}, {0, 2});
      const StepOutputs some = step(with_layers(open_checkpoint(name), k), of_some, {0, 7}, {0, 2});
      ASSERT_EQ(all.hidden.size(), 3u);
      ASSERT_EQ(some.hidden.size(), 2u);
      EXPECT_LE(hidden_difference(all.hidden[0], some.hidden[0]), kSameSums) << name << " " << k;
      EXPECT_LE(hidden_difference(all.hidden[2], some.hidden[1]), kSameSums) << name << " " << k;
      EXPECT_GT(hidden_difference(all.hidden[1], some.hidden[1]), 1e-2) << name << ": the last layer changes nothing";
    }
  }
}

TEST(HiddenStates, OfNoLayersAreTheEmbeddings) {
  Checkpoint checkpoint = open_checkpoint("llama_gqa");
  const std::vector<double> table = values_of(checkpoint, "model.embed_tokens.weight");
  const StepOutputs out = step(checkpoint, {.logits = false, .hidden = {{0, false}}}, {0, 2}, {0, 1});
  std::vector<double> want;
  for (const int32_t token : {kFirst[5], kFirst[6], kSecond[2]})
    want.insert(want.end(), table.begin() + token * 32, table.begin() + (token + 1) * 32);
  ASSERT_EQ(out.hidden.size(), 1u);
  EXPECT_EQ(hidden_difference(out.hidden[0], want), 0);
}

// The rows of logits and of hidden states are chosen apart from one another.
TEST(HiddenStates, GiveTheLogitsThatTheStepAlsoComputes) {
  const DecoderOutputs outputs = {.hidden = {{.is_normed = true}}};
  Checkpoint checkpoint = open_checkpoint("llama_gqa");
  const std::vector<double> head = values_of(checkpoint, "lm_head.weight");
  for (const Place& place : {Place{}, Place{.device = "emu"}, Place{.device = "emu", .gpu_layers = 1}}) {
    const StepOutputs out = step(checkpoint, outputs, {1, 3}, {2, 2}, place);
    ASSERT_EQ(out.hidden.size(), 1u);
    ASSERT_EQ(out.hidden[0].size(), 5u * 32);
    std::vector<double> want;
    for (const size_t row : {2, 3, 4})  // the last of the first text, both of the second
      for (size_t word = 0; word < 64; ++word) {
        double sum = 0;
        for (size_t k = 0; k < 32; ++k) sum += double{out.hidden[0][row * 32 + k]} * head[word * 32 + k];
        want.push_back(sum);
      }
    EXPECT_LE(hidden_difference(out.logits, want), kSameSums) << place.device << " " << place.gpu_layers;
    const StepOutputs on_cpu = step(checkpoint, outputs, {0, 3}, {0, 2});
    EXPECT_LE(hidden_difference(out.hidden[0], on_cpu.hidden[0]), kSameSums) << place.device << " " << place.gpu_layers;
  }
}

// A part that runs on a device may end before the layer whose states are asked for, or after it.
TEST(HiddenStates, ComeFromThePartThatHasTheLayer) {
  const DecoderOutputs outputs = {.hidden = {{1, false}, {2, true}, {0, false}}};
  const Checkpoint checkpoint = open_checkpoint("gemma2");
  const StepOutputs want = step(checkpoint, outputs, {1, 4}, {1, 1});
  for (const int64_t gpu_layers : {-1, 0, 1, 2}) {
    const StepOutputs got = step(checkpoint, outputs, {1, 4}, {1, 1}, {.device = "emu", .gpu_layers = gpu_layers});
    ASSERT_EQ(got.hidden.size(), 3u);
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(hidden_difference(got.hidden[i], want.hidden[i]), kSameSums) << gpu_layers;
    EXPECT_LE(hidden_difference(got.logits, want.logits), kSameSums) << gpu_layers;
  }
}

TEST(HiddenStates, NeedNoOutputMatrix) {
  Checkpoint checkpoint = open_checkpoint("llama_gqa");
  checkpoint.tensors.erase("lm_head.weight");
  const DecoderOutputs outputs = {.logits = false, .hidden = {{.is_normed = true}}};
  const StepOutputs out = step(checkpoint, outputs, {0, 1}, {0, 1});
  ASSERT_EQ(out.hidden.size(), 1u);
  EXPECT_EQ(out.hidden[0].size(), 2u * 32);
  EXPECT_FALSE(build_language_model(checkpoint).ok());
}

TEST(HiddenStates, ImpossibleOutputsAreErrors) {
  const Checkpoint checkpoint = open_checkpoint("llama_gqa");
  const auto message = [&](const DecoderOutputs& outputs) {
    return build_language_model(checkpoint, outputs).status().message();
  };
  EXPECT_THAT(message({.logits = false}), HasSubstr("no output"));
  EXPECT_THAT(message({.hidden = {{3}}}), HasSubstr("after 3 layers is asked for; the model has 2"));
  EXPECT_THAT(message({.hidden = {{-2}}}), HasSubstr("the model has 2"));
  const DecoderOutputs only_hidden = {.logits = false, .hidden = {{.is_normed = true}}};
  EXPECT_THAT(run_step(checkpoint, only_hidden, {1, 1}, {0, 0}).status().message(), HasSubstr("does not compute"));
  EXPECT_THAT(run_step(checkpoint, {}, {1, 1}, {0, 0}).status().message(), HasSubstr("does not compute"));
  EXPECT_THAT(run_step(checkpoint, only_hidden, {0, 8}, {0, 0}).status().message(), HasSubstr("8 rows"));
}

}  // namespace
}  // namespace redline::testing
