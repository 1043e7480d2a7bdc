// llama2.c checkpoints: real ones, made ones, wrong ones, and their way into GGUF.
#include "formats/llama2c.h"

#include <gmock/gmock.h>

#include <cmath>

#include "formats/format_test_files.h"
#include "formats/gguf.h"
#include "formats/llama2c_to_gguf.h"
#include "support/heap_meter.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Sizes {
  int32_t dim = 8, hidden = 12, layers = 2, heads = 2, kv_heads = 1, vocab = 5, context = 3;
};
/// Float number i of the file is i, so that every tensor's place can be read off its data.
std::string checkpoint(const Sizes& s, int64_t more_floats = 0) {
  const int64_t hd = s.dim / s.heads, kv = hd * s.kv_heads, vocab = std::abs(s.vocab);
  int64_t floats = vocab * s.dim + s.layers * (2 * s.dim + 2 * s.dim * s.dim + 2 * kv * s.dim + 3 * s.dim * s.hidden) +
                   s.dim + 2 * s.context * (hd / 2) + (s.vocab < 0 ? vocab * s.dim : 0) + more_floats;
  std::string out;
  for (const int32_t field : {s.dim, s.hidden, s.layers, s.heads, s.kv_heads, s.vocab, s.context}) out += raw(field);
  for (int64_t i = 0; i < floats; ++i) out += raw(static_cast<float>(i));
  return out;
}
Result<Llama2cFile> parse_llama2c(const std::string& bytes) { return Llama2cFile::from_file(memory_file(bytes)); }

const TensorView& tensor(const Llama2cFile& model, std::string_view name) {
  for (const auto& [there, view] : model.tensors) {
    if (there == name) return view;
  }
  ADD_FAILURE() << "no tensor " << name;
  static const TensorView kNone;
  return kNone;
}
float first(const Llama2cFile& model, std::string_view name) {
  float value = NAN;
  std::memcpy(&value, tensor(model, name).data, sizeof(value));
  return value;
}

TEST(Llama2c, EveryTensorHasItsPlace) {
  Sizes sizes;
  for (const bool tied : {true, false}) {
    sizes.vocab = tied ? 5 : -5;
    auto model = parse_llama2c(checkpoint(sizes));
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    EXPECT_EQ(model->tied, tied);
    EXPECT_EQ(model->vocab_size, 5);
    EXPECT_EQ(model->tensors.size(), tied ? 20u : 21u);
    EXPECT_EQ(first(*model, "token_embd.weight"), 0);
    const int attn_norm = 40, q = attn_norm + 16, k = q + 128, v = k + 64, o = v + 64, ffn_norm = o + 128,
              gate = ffn_norm + 16, down = gate + 192, up = down + 192, norm = up + 192, output = norm + 8 + 2 * 3 * 2;
    EXPECT_EQ(first(*model, "blk.0.attn_norm.weight"), attn_norm);
    EXPECT_EQ(first(*model, "blk.1.attn_norm.weight"), attn_norm + 8);
    EXPECT_EQ(first(*model, "blk.1.attn_q.weight"), q + 64);
    EXPECT_EQ(first(*model, "blk.1.attn_k.weight"), k + 32);
    EXPECT_EQ(first(*model, "blk.0.attn_v.weight"), v);
    EXPECT_EQ(first(*model, "blk.0.attn_output.weight"), o);
    EXPECT_EQ(first(*model, "blk.1.ffn_norm.weight"), ffn_norm + 8);
    EXPECT_EQ(first(*model, "blk.0.ffn_gate.weight"), gate);
    EXPECT_EQ(first(*model, "blk.1.ffn_down.weight"), down + 96);
    EXPECT_EQ(first(*model, "blk.0.ffn_up.weight"), up);
    EXPECT_EQ(first(*model, "output_norm.weight"), norm);
    if (!tied) {
      EXPECT_EQ(first(*model, "output.weight"), output);
    }
    EXPECT_THAT(tensor(*model, "blk.0.attn_k.weight").shape, ElementsAre(4, 8));
    EXPECT_THAT(tensor(*model, "blk.0.ffn_down.weight").shape, ElementsAre(8, 12));
    EXPECT_THAT(tensor(*model, "blk.0.ffn_gate.weight").shape, ElementsAre(12, 8));
  }
}

TEST(Llama2c, TruncatedAtEveryByteOrTooLong) {
  Sizes small;
  small.dim = 4, small.hidden = 3, small.layers = 1, small.vocab = 3, small.context = 2;
  const std::string whole = checkpoint(small);
  ASSERT_TRUE(parse_llama2c(whole).ok());
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(parse_llama2c(whole.substr(0, length)).ok()) << "cut at " << length;
  for (const int more : {1, 2, 3, 4, 100})
    EXPECT_FALSE(parse_llama2c(whole + std::string(static_cast<size_t>(more), 'x')).ok());
  EXPECT_THAT(parse_llama2c(checkpoint(small, 1)).status().message(), HasSubstr("weights), the file has"));
}

TEST(Llama2c, MemoryStaysBelowTheFile) {
  const auto file = memory_file(checkpoint({2, 1, 20000, 1, 1, 1, 1}));
  const HeapMeter meter;
  const auto model = Llama2cFile::from_file(file);
  EXPECT_LE(meter.peak_growth(), file->size() + (int64_t{1} << 20));
  EXPECT_THAT(model.status().message(), HasSubstr("20000 layers are too many"));
}

TEST(Llama2c, AbsurdSizes) {
  const auto error_of = [](const Sizes& sizes) {
    std::string bytes;
    for (const int32_t field :
         {sizes.dim, sizes.hidden, sizes.layers, sizes.heads, sizes.kv_heads, sizes.vocab, sizes.context})
      bytes += raw(field);
    auto model = parse_llama2c(bytes + std::string(1000, 'x'));
    EXPECT_FALSE(model.ok());
    return model.status().message();
  };
  Sizes good;
  for (int32_t Sizes::*field :
       {&Sizes::dim, &Sizes::hidden, &Sizes::layers, &Sizes::heads, &Sizes::kv_heads, &Sizes::vocab, &Sizes::context}) {
    Sizes sizes = good;
    for (const int32_t wrong : {0, INT32_MAX, INT32_MIN}) {
      sizes.*field = wrong;
      EXPECT_THAT(error_of(sizes), HasSubstr("x.bin: at byte ")) << wrong;
      EXPECT_THAT(error_of(sizes), HasSubstr("expected 1 to 16777216")) << wrong;
    }
  }
  EXPECT_THAT(error_of({8, 12, 2, 3, 1, 5, 3}), HasSubstr("dim 8 over 3 heads"));
  EXPECT_THAT(error_of({6, 12, 2, 2, 1, 5, 3}), HasSubstr("expected an even number"));
  EXPECT_THAT(error_of({8, 12, 2, 4, 3, 5, 3}), HasSubstr("4 heads over 3 key-value heads"));
  const int32_t most = 1 << 24;
  EXPECT_THAT(error_of({most, most, most, 1, 1, most, most}), HasSubstr("overflow"));
  EXPECT_THAT(error_of({most, 1, 1, 1, 1, 1, 1}), HasSubstr("the file has 1028"));
  EXPECT_THAT(parse_llama2c("24ka" + std::string(300, '\1')).status().message(), HasSubstr("--version 0"));
  EXPECT_THAT(parse_llama2c("GGUF" + u32(3) + std::string(300, '\0')).status().message(),
              HasSubstr("looks like a GGUF file"));
}

Llama2cVocab vocab_of(const GgufFile& file) {
  Llama2cVocab vocab;
  vocab.tokens = file.find("tokenizer.ggml.tokens")->as_strings()->to_vector();
  const GgufValue &scores = *file.find("tokenizer.ggml.scores"), &types = *file.find("tokenizer.ggml.token_type");
  for (uint64_t i = 0; i < scores.count; ++i) vocab.scores.push_back(static_cast<float>(*scores.double_at(i)));
  for (uint64_t i = 0; i < types.count; ++i) vocab.token_types.push_back(static_cast<int32_t>(*types.int_at(i)));
  return vocab;
}

TEST(Llama2cToGguf, RefusesAVocabularyOfAnotherSize) {
  auto model = parse_llama2c(checkpoint({}));
  ASSERT_TRUE(model.ok());
  GgufWriter writer;
  const Status status = llama2c_to_gguf(*model, "m", {{"a"}, {0}, {1}}, writer);
  EXPECT_EQ(status.code(), Code::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("5 tokens"));
}

TEST(Llama2cToGguf, EqualsTheReferenceFiles) {
  REDLINE_NEEDS_SHARED("models/gguf-real");
  const std::string shared = REDLINE_SHARED_DIR "/models/";
  const std::pair<const char*, const char*> pairs[] = {
      {"stories260K/stories260K.bin", "gguf-real/stories260K-F32.gguf"},
      {"babyllama-tok361/model5000.bin", "gguf-real/babyllama-tok361-F32.gguf"}};
  for (const auto& [checkpoint_path, gguf_path] : pairs) {
    SCOPED_TRACE(gguf_path);
    auto model = Llama2cFile::open(shared + checkpoint_path);
    ASSERT_TRUE(model.ok()) << model.status().to_string();
    auto reference = GgufFile::open(shared + gguf_path);
    ASSERT_TRUE(reference.ok()) << reference.status().to_string();
    GgufWriter writer;
    ASSERT_TRUE(llama2c_to_gguf(*model, "x", vocab_of(*reference), writer).ok());
    TestFolder folder;
    ASSERT_TRUE(writer.write(folder / "m.gguf").ok());
    auto made = GgufFile::open(folder / "m.gguf");
    ASSERT_TRUE(made.ok()) << made.status().to_string();

    for (const auto& [key, value] : reference->metadata()) {
      if (key == "general.name") continue;
      const GgufValue* ours = made->find(key);
      ASSERT_NE(ours, nullptr) << key;
      EXPECT_EQ(ours->type, value.type) << key;
      EXPECT_EQ(ours->payload, value.payload) << key;
    }
    EXPECT_EQ(made->tensors().size(), reference->tensors().size());
    for (const GgufTensor& expected : reference->tensors()) {
      const GgufTensor* ours = made->tensor(expected.name);
      ASSERT_NE(ours, nullptr) << expected.name;
      EXPECT_EQ(ours->gguf_type, expected.gguf_type);
      EXPECT_EQ(ours->view.shape, expected.view.shape) << expected.name;
      ASSERT_EQ(ours->bytes, expected.bytes);
      EXPECT_EQ(std::memcmp(ours->view.data, expected.view.data, static_cast<size_t>(ours->bytes)), 0) << expected.name;
    }
  }
}

}  // namespace
}  // namespace redline
