// Far into a context the engine still computes what the interpreter does: a random model with the head counts of a
// real one, its rope stretched by yarn, the prompt in chunks of 512; the logits of the last rows, some of them decoded
// one by one.
//
// The interpreter in float64 would need hours for a whole prompt of 32768. But rows before the last ones matter only
// through the keys and values that they leave, and those of the second layer depend on the first alone. So the first
// layer has a window, and the interpreter goes through the prompt with a window in the second layer too; the last rows
// then see all.
#include <fstream>
#include <random>

#include "backends/host_memory.h"
#include "models/registry.h"
#include "runtime/interpreter.h"
#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/sequences.h"
#include "support/temporary_folder.h"
#include "tensor/dtype.h"

namespace redline::testing {
namespace {

constexpr int64_t kHidden = 48, kHeads = 14, kKvHeads = 2, kHeadDim = 64, kFfn = 64, kVocab = 96, kWindow = 24;
constexpr int64_t kChunk = 512, kLastRows = 8, kDecoded = 4;

/// Writes the model into `folder`. `windows`: of how many layers from the first.
void write_model(const std::string& folder, int64_t depth, int windows) {
  nlohmann::json config = {
      {"model_type", "qwen2"},
      {"architectures", {"Qwen2ForCausalLM"}},
      {"vocab_size", kVocab},
      {"hidden_size", kHidden},
      {"intermediate_size", kFfn},
      {"num_hidden_layers", 2},
      {"num_attention_heads", kHeads},
      {"num_key_value_heads", kKvHeads},
      {"head_dim", kHeadDim},
      {"max_position_embeddings", depth},
      {"rms_norm_eps", 1e-6},
      {"rope_theta", 1e6},
      {"hidden_act", "silu"},
      {"tie_word_embeddings", true},
      {"use_sliding_window", true},
      {"sliding_window", kWindow},
      {"layer_types", {"sliding_attention", windows > 1 ? "sliding_attention" : "full_attention"}},
      {"rope_scaling", {{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", depth / 4}}}};
  std::ofstream(folder + "/config.json") << config.dump();

  SafetensorsFile weights;
  std::mt19937 random(7);
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, double size, double mean = 0) {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    std::normal_distribution<double> normal(mean, size);
    std::vector<uint16_t> values;
    for (int64_t i = 0; i < count; ++i) values.push_back(f32_to_bf16(static_cast<float>(normal(random))));
    weights.add(name, "BF16", shape, values.data(), 2 * values.size());
  };
  const double of_hidden = 1 / std::sqrt(double{kHidden}), q_width = kHeads * kHeadDim;
  add("model.embed_tokens.weight", {kVocab, kHidden}, 1);
  add("model.norm.weight", {kHidden}, 0.1, 1);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string in = "model.layers." + std::to_string(layer) + ".";
    add(in + "input_layernorm.weight", {kHidden}, 0.1, 1);
    add(in + "post_attention_layernorm.weight", {kHidden}, 0.1, 1);
    for (const char* name : {"q", "k", "v"}) {
      const int64_t rows = *name == 'q' ? kHeads * kHeadDim : kKvHeads * kHeadDim;
      // Queries and keys somewhat larger than others: a row shall look at some positions more than at the rest.
      const double size = *name == 'v' ? 1 : 1.5;
      add(in + "self_attn." + name + "_proj.weight", {rows, kHidden}, size * of_hidden);
      add(in + "self_attn." + name + "_proj.bias", {rows}, 0.1);
    }
    add(in + "self_attn.o_proj.weight", {kHidden, kHeads * kHeadDim}, 2 / std::sqrt(q_width));
    add(in + "mlp.gate_proj.weight", {kFfn, kHidden}, of_hidden);
    add(in + "mlp.up_proj.weight", {kFfn, kHidden}, of_hidden);
    add(in + "mlp.down_proj.weight", {kHidden, kFfn}, 1 / std::sqrt(double{kFfn}));
  }
  weights.write(folder + "/model.safetensors");
}

Result<Interpreter> make_interpreter(const std::string& folder) {
  REDLINE_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(folder));
  REDLINE_ASSIGN(LanguageModel model, build_language_model(checkpoint));
  // Every position is kept, so both models have their states in the same places.
  for (ValueInfo& value : model.graph.values) value.state.window = 0;
  return Interpreter::make(std::move(model.graph));
}

test::TestSequences sequences_of(const Interpreter& interpreter, int64_t depth) {
  const StatePlan& plan = interpreter.states();
  const int64_t pages = depth / kKvPageTokens + 2;
  return {plan, make_host_state_memory(plan, std::vector<int64_t>(plan.groups.size(), pages)).value(), pages, 1};
}

/// One step of `tokens` from position `first` on: logits of the last `rows`.
std::vector<double> interpret(Interpreter& interpreter, std::span<const int32_t> tokens, size_t first, int64_t rows,
                              StepContext step) {
  const size_t n = tokens.size();
  const auto vector = [](size_t count, auto&& at) {
    HostTensor t;
    t.shape = {static_cast<int64_t>(count)};
    for (size_t i = 0; i < count; ++i) t.data.push_back(static_cast<double>(at(i)));
    return t;
  };
  const auto count = static_cast<size_t>(rows);
  std::map<std::string, HostTensor> inputs;
  inputs["tokens"] = vector(n, [&](size_t i) { return tokens[i]; });
  inputs["positions"] = vector(n, [&](size_t i) { return first + i; });
  inputs["logit_rows"] = vector(count, [&](size_t i) { return n - count + i; });
  step.sizes[Symbol::kLogitRows] = rows;
  auto outputs = interpreter.run(inputs, step);
  EXPECT_TRUE(outputs.ok()) << outputs.status().to_string();
  return outputs.ok() ? (*outputs)["logits"].data : std::vector<double>();
}

/// Logits of the last kLastRows of `tokens`: chunks, the rest of the prompt, and the last kDecoded one by one.
std::vector<float> last_logits(const std::string& folder, std::span<const int32_t> tokens, ComputeType dtype) {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = dtype;
  options.context = static_cast<int64_t>(tokens.size());
  auto engine = open_engine(folder, options);
  if (engine == nullptr) return {};
  auto sequence = engine->new_sequence();
  EXPECT_TRUE(sequence.ok()) << sequence.status().to_string();
  if (!sequence.ok()) return {};
  const auto before = static_cast<int64_t>(tokens.size()) - kLastRows;
  for (int64_t at = 0; at < before; at += kChunk) {
    const auto part = tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(std::min(kChunk, before - at)));
    auto step = (*sequence)->append(part, {});
    EXPECT_TRUE(step.ok()) << step.to_string();
    if (!step.ok()) return {};
  }
  const std::vector<int64_t> chunks = {kLastRows - kDecoded, 1};
  return all_logits(**sequence, tokens.subspan(static_cast<size_t>(before)), chunks);
}

void expect_like_interpreter(int64_t depth) {
  TemporaryFolder seeing_all, with_windows;
  write_model(seeing_all.path(), depth, 1);
  write_model(with_windows.path(), depth, 2);
  std::mt19937 random(3);
  std::vector<int32_t> tokens(static_cast<size_t>(depth));
  for (int32_t& token : tokens) token = static_cast<int32_t>(random() % kVocab);
  const std::span<const int32_t> all = tokens;
  const auto before = static_cast<size_t>(depth - kLastRows);

  auto windowed = make_interpreter(with_windows.path()), whole = make_interpreter(seeing_all.path());
  ASSERT_TRUE(windowed.ok()) << windowed.status().to_string();
  ASSERT_TRUE(whole.ok()) << whole.status().to_string();
  test::TestSequences sequences = sequences_of(*windowed, depth);
  for (size_t at = 0; at < before; at += kChunk) {
    const size_t n = std::min<size_t>(kChunk, before - at);
    interpret(*windowed, all.subspan(at, n), at, 1, sequences.begin({static_cast<int64_t>(n)}));
    sequences.commit();
  }
  const std::vector<double> want =
      interpret(*whole, all.subspan(before), before, kLastRows, sequences.begin({kLastRows}));
  ASSERT_EQ(want.size(), static_cast<size_t>(kLastRows * kVocab));
  for (const ComputeType dtype : {ComputeType::kF32, ComputeType::kAuto}) {
    const std::vector<float> got = last_logits(seeing_all.path(), tokens, dtype);
    ASSERT_EQ(got.size(), want.size());
    const Difference d = difference(got.data(), want.data(), kLastRows, kVocab);
    const bool exact = dtype == ComputeType::kF32;
    fmt::print("depth {}, {}: largest difference {:.2e} of a row's largest logit\n", depth, exact ? "f32" : "auto",
               d.worst_row);
    const AutoRounding rounding = auto_rounding("bf16 x1");
    if (exact || !rounding.any()) {
      EXPECT_LE(d.worst_row, exact ? 2e-5 : 4e-3) << "depth " << depth;
    } else {
      EXPECT_LE(d.rms, rounding.golden_rms()) << "depth " << depth;
      EXPECT_LE(d.all, rounding.golden_largest()) << "depth " << depth;
    }
  }
}

TEST(Depth, LogitsOfTheLastRowsAreTheInterpreters) { expect_like_interpreter(2085); }

// Minutes: `cmake --build build/dev --target long`.
TEST(Depth, DISABLED_LogitsAtDepth32768AreTheInterpreters) { expect_like_interpreter(32768); }

}  // namespace
}  // namespace redline::testing
