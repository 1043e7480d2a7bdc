// Weights that are NaN or infinite, scales of blocks included: found by tensor and place, and named when they are run.
#include "models/checkpoint/weight_examiner.h"

#include <gmock/gmock.h>

#include "models/files/text_adapter.h"
#include "redline/embedding.h"
#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"
#include "support/text_adapter_files.h"

namespace redline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string found_in(DType type, std::vector<int64_t> shape, const std::vector<uint8_t>& bytes) {
  return find_not_finite(WeightSource{.view = {type, std::move(shape), bytes.data()}}).value_or("");
}

template <class T>
std::vector<uint8_t> bytes_with(size_t count, size_t at, T value) {
  std::vector<T> values(count, T{});
  values[at] = value;
  std::vector<uint8_t> bytes(count * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

TEST(BrokenWeights, NaNAndInfinityAreFoundByPlace) {
  EXPECT_EQ(found_in(DType::kF32, {2, 3, 4}, bytes_with<float>(24, 23, NAN)), "is NaN at [1, 2, 3]");
  EXPECT_EQ(found_in(DType::kF32, {5}, bytes_with<float>(5, 4, -INFINITY)), "is -inf at [4]");
  EXPECT_EQ(found_in(DType::kF16, {2, 3}, bytes_with<uint16_t>(6, 1, 0x7c00)), "is +inf at [0, 1]");
  EXPECT_EQ(found_in(DType::kBF16, {3, 2}, bytes_with<uint16_t>(6, 4, 0x7fc1)), "is NaN at [2, 0]");
  EXPECT_EQ(found_in(DType::kF32, {2, 3}, bytes_with<float>(6, 0, 3e38f)), "");
  EXPECT_EQ(found_in(DType::kI32, {2}, {255, 255, 255, 255, 0, 0, 192, 127}), "");
  EXPECT_EQ(found_in(DType::kF32, {0, 3}, {}), "");
}

TEST(BrokenWeights, ScalesOfBlocksAndRows) {
  constexpr size_t kBlock = 18;  // a scale of float16, then 32 codes of 4 bits
  std::vector<uint8_t> blocks(4 * kBlock, 0x77);
  for (size_t b = 0; b < 4; ++b) blocks[b * kBlock] = 0, blocks[b * kBlock + 1] = 0x3c;
  EXPECT_EQ(found_in(DType::kQ4_0, {2, 64}, blocks), "");
  blocks[3 * kBlock + 1] = 0x7e;
  EXPECT_EQ(found_in(DType::kQ4_0, {2, 64}, blocks), "is NaN at [1, 32] (q4_0: the scale of a block of 32 elements)");
  std::vector<uint8_t> rows(2 * static_cast<size_t>(row_bytes(DType::kW8A8, 32)), 1);
  const float scales[] = {1, INFINITY};
  for (size_t r = 0; r < 2; ++r) std::memcpy(rows.data() + (r + 1) * rows.size() / 2 - 4, &scales[r], 4);
  EXPECT_EQ(found_in(DType::kW8A8, {2, 32}, rows), "is +inf at [1, 0] (w8a8: the scale of the row)");
}

/// A copy of a golden model with one BF16 element of a tensor replaced.
void write_broken(const std::string& source, const std::string& target, const std::string& tensor, int64_t element,
                  uint16_t bits) {
  std::filesystem::copy(source + "/config.json", target + "/config.json");
  SafetensorsFile file = SafetensorsFile::read(source + "/model.safetensors");
  ASSERT_TRUE(file.header.contains(tensor)) << tensor;
  const bool is_bf16 = file.header[tensor]["dtype"] == "BF16";
  const size_t begin = file.header[tensor]["data_offsets"][0];
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  if (is_bf16) std::memcpy(file.data.data() + begin + 2 * static_cast<size_t>(element), &bits, 2);
  else std::memcpy(file.data.data() + begin + 4 * static_cast<size_t>(element), &wide, 4);
  file.write(target + "/model.safetensors");
}

constexpr uint16_t kNaN = 0x7fc0, kInfinity = 0x7f80;

TEST(BrokenWeights, TheTensorIsNamedWhenLogitsAreNaN) {
  const TemporaryFolder folder;
  write_broken(golden_root() + "/rope_plain", folder.path(), "model.layers.0.mlp.up_proj.weight", 7, kNaN);
  const auto engine = TextEngine::open(folder.path(), {.threads = 2});
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  GenerateRequest request;
  request.prompt = {1, 2, 3};
  request.max_tokens = 2;
  for (int again = 0; again < 2; ++again) {  // the files are read once
    const Status status = (*engine)->generate(request, {}).status();
    EXPECT_EQ(status.code(), Code::io);
    EXPECT_THAT(status.message(),
                AllOf(StartsWith(folder.path() + "/model.safetensors: tensor "
                                                 "model.layers.0.mlp.up_proj.weight is NaN at [0, 7]"),
                      HasSubstr("the file is damaged")));
  }
  BeamSearchRequest beams;
  beams.prompt = request.prompt;
  EXPECT_THAT(beam_search(**engine, beams).status().message(), HasSubstr("up_proj.weight is NaN at [0, 7]"));
}

TEST(BrokenWeights, EveryCallForLogitsNamesTheTensor) {
  const TemporaryFolder folder;
  write_broken(golden_root() + "/rope_plain", folder.path(), "model.layers.0.mlp.up_proj.weight", 7, kNaN);
  for (const char* device : {"cpu", "emu"}) {
    const auto engine = TextEngine::open(folder.path(), {.threads = 2, .device = device});
    ASSERT_TRUE(engine.ok()) << engine.status().to_string();
    const auto expect_named = [&](const Status& status) {
      EXPECT_EQ(status.code(), Code::io) << device << ": " << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("up_proj.weight is NaN at [0, 7]")) << device;
    };
    const auto vocab = static_cast<size_t>((*engine)->info().vocab_size);
    const std::vector<int32_t> tokens = {1, 2, 3};
    const auto sequence = (*engine)->new_sequence();
    ASSERT_TRUE(sequence.ok());
    expect_named((*sequence)->forward(tokens).status());
    expect_named((*sequence)->forward(tokens, true).status());
    int steps = 0;
    expect_named((*sequence)->append_in_steps(tokens, 1, [&](int64_t, std::span<const float>) { return ++steps > 0; }));
    EXPECT_EQ(steps, 0) << "the caller does not see such logits";
    std::vector<float> logits(vocab);
    std::vector<BatchEntry> batch = {{sequence->get(), tokens, logits}};
    expect_named((*engine)->run_batch(batch));
    EXPECT_EQ((*sequence)->length(), 0) << "as before the calls";
    GenerateRequest request;
    request.prompt = tokens;
    request.max_tokens = 2;
    for (const float temperature : {0.0F, 1.0F}) {  // with kernels that sample, where the device has them
      request.sampling.temperature = temperature;
      expect_named((*engine)->generate(request, {}).status());
    }
    request.num_logprobs = 2;
    expect_named((*engine)->generate(request, {}).status());
  }
}

// A step drops state: earlier recurrent states, and pages that leave a window. So a step whose logits are not finite
// must be undone before it drops them.
class BrokenStep : public ::testing::TestWithParam<const char*> {};

TEST_P(BrokenStep, LeavesTheSequenceAsItWas) {
  const std::string source = golden_root() + "/" + GetParam();
  const SafetensorsFile file = SafetensorsFile::read(source + "/model.safetensors");
  std::string embedding;
  for (const auto& [name, tensor] : file.header.items())
    if (name.find("embed") != std::string::npos) embedding = name;
  ASSERT_FALSE(embedding.empty());
  constexpr int32_t kBroken = 63;  // only steps with this token have logits that are NaN
  const TemporaryFolder folder;
  write_broken(source, folder.path(), embedding, kBroken * file.header[embedding]["shape"][1].get<int64_t>(), kNaN);
  const auto engine = TextEngine::open(
      folder.path(), {.threads = 2, .dtype = ComputeType::kF32, .context = 2048, .max_batch_tokens = 512});
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  const auto tokens = [](int32_t count, int32_t seed) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < count; ++i) ids.push_back((seed * 31 + i * 17 + i * i / 7) % kBroken);
    return ids;
  };
  // More tokens than a window keeps behind its border.
  std::vector<int32_t> broken = tokens(400, 3);
  broken.back() = kBroken;
  const std::vector<int32_t> first = tokens(30, 1), second = tokens(40, 2), next = tokens(5, 4);
  std::vector<float> logits(static_cast<size_t>((*engine)->info().vocab_size));
  const auto begin = [&] {
    auto sequence = (*engine)->new_sequence().value();
    EXPECT_TRUE(sequence->forward(first).ok());
    EXPECT_TRUE(sequence->forward(second).ok());
    return sequence;
  };
  const auto expect_as_before = [&](Sequence& sequence, const char* what) {
    const auto other = begin();
    EXPECT_EQ(sequence.length(), 70) << what;
    EXPECT_EQ(*sequence.forward(next), *other->forward(next)) << what;
    EXPECT_EQ(sequence.truncate(70), other->truncate(70)) << what;
    EXPECT_EQ(*sequence.forward(next), *other->forward(next)) << what;
  };
  const auto one = begin(), two = begin();
  std::vector<float> more(logits.size());
  std::vector<BatchEntry> batch = {{one.get(), broken, logits}, {two.get(), next, more}};
  EXPECT_EQ((*engine)->run_batch(batch).code(), Code::io);
  expect_as_before(*one, "run_batch");
  expect_as_before(*two, "run_batch, the other sequence");
  const auto three = begin();
  EXPECT_EQ(three->forward(broken).status().code(), Code::io);
  expect_as_before(*three, "forward");
  EXPECT_EQ(three->truncate(0), 0);
  const auto four = begin(), five = begin();
  EXPECT_EQ(four->append_in_steps(broken, 1, [](int64_t, std::span<const float>) { return true; }).code(), Code::io);
  expect_as_before(*four, "append_in_steps");
  const std::vector<int32_t> good = tokens(400, 5);
  EXPECT_EQ(five->append_in_steps(good, 1, [](int64_t, std::span<const float>) { return false; }).code(),
            Code::cancelled);
  expect_as_before(*five, "append_in_steps, cancelled");
  // The state before the last step is kept, so a failed step must not replace it.
  const auto six = begin();
  EXPECT_EQ(six->forward(broken).status().code(), Code::io);
  EXPECT_EQ(six->truncate(30), 30);
  const auto fresh = (*engine)->new_sequence().value();
  ASSERT_TRUE(fresh->forward(first).ok());
  EXPECT_EQ(*six->forward(next), *fresh->forward(next));
}

INSTANTIATE_TEST_SUITE_P(Models, BrokenStep, ::testing::Values("mamba2", "qwen3_next", "qwen3_5", "mistral_window"));

TEST(BrokenWeights, OfEmbeddings) {
  const TemporaryFolder folder;
  write_broken(golden_root() + "/encoders/bert", folder.path(), "encoder.layer.0.output.dense.weight", 3, kInfinity);
  std::filesystem::copy(std::string(REDLINE_SOURCE_DIR) + "/tests/golden/tokenizers/bert.json",
                        folder.path() + "/tokenizer.json");
  const auto engine = EmbeddingEngine::open(folder.path(), {.threads = 1});
  ASSERT_TRUE(engine.ok()) << engine.status().to_string();
  EmbedRequest request;
  request.tokens = {{1, 2, 3}, {4, 5}};
  const Status status = (*engine)->embed(request).status();
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_THAT(status.message(), HasSubstr("tensor encoder.layer.0.output.dense.weight is +inf at [0, 3]"));
}

TEST(BrokenWeights, WithoutOneTheComputationIsToBlame) {
  WeightExaminer examiner(golden_root() + "/rope_plain");
  EXPECT_EQ(examiner.explain(internal("x is NaN")).to_string(),
            "internal: x is NaN; every weight in its files is finite");
  EXPECT_EQ(WeightExaminer("/nowhere").explain(internal("x is NaN")).message(), "x is NaN");
}

TEST(BrokenWeights, AdaptersAreRefusedWhenTheyAreRead) {
  const Checkpoint base = Checkpoint::open(golden_root() + "/rope_plain").value();
  TextAdapter adapter = TextAdapter::random(base, {"q_proj"}, 4, 1);
  SafetensorsFile tensors = adapter.tensors();
  const std::string name = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight";
  ASSERT_TRUE(tensors.header.contains(name));
  const float nan = NAN;
  std::memcpy(tensors.data.data() + tensors.header[name]["data_offsets"][0].get<size_t>(), &nan, sizeof nan);
  const TemporaryFolder folder;
  TextAdapter::write_folder(folder.path(), adapter.config(), tensors);
  EXPECT_THAT(TextAdapterFile::open(folder.path()).status().message(),
              HasSubstr("adapter_model.safetensors: tensor " + name + " is NaN at [0, 0]"));
}

}  // namespace
}  // namespace redline::testing
