// LoRA adapters of language models: what the readers take and refuse, and a decoder with adapters against one with
// merged weights.
#include "models/files/text_adapter.h"

#include <gmock/gmock.h>

#include <fstream>

#include "backends/host_memory.h"
#include "graph/pass.h"
#include "runtime/interpreter.h"
#include "support/golden.h"
#include "support/sequences.h"
#include "support/temporary_folder.h"
#include "support/text_adapter_files.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

std::string base_folder() { return golden_root() + "/llama_gqa"; }

/// A model with its graph, the adapter bank of all linears, and the interpreter.
struct Decoder {
  LanguageModel model;
  const ModelFamily* family = nullptr;
  AdapterBank bank;
  std::optional<Interpreter> interpreter;

  Decoder(const Checkpoint& checkpoint, int64_t max_rank) {
    model = build_language_model(checkpoint).value();
    family = find_model_family(checkpoint).value();
    Graph graph = model.graph;
    if (max_rank > 0) bank = make_text_adapter_bank(graph, max_rank);
    EXPECT_TRUE(run_passes(graph).ok());
    interpreter = Interpreter::make(std::move(graph)).value();
  }
  Status load(const std::string& name, const std::string& path) {
    REDLINE_ASSIGN(const TextAdapterFile file, TextAdapterFile::open(path));
    REDLINE_ASSIGN(const AdapterMatrices matrices, file.for_model(*family, model.config));
    return bank.load(name, matrices, true);
  }
  /// Logits of all tokens of one sequence.
  std::vector<double> logits(const std::vector<int64_t>& tokens, std::span<const AdapterSegment> segments) {
    const auto n = std::ssize(tokens);
    HostTensor ids{{n}, {tokens.begin(), tokens.end()}}, positions{{n}, {}};
    for (int64_t i = 0; i < n; ++i) positions.data.push_back(static_cast<double>(i));
    const std::vector<int64_t> pages(interpreter->states().groups.size(), 1);
    test::TestSequences sequence(interpreter->states(), make_host_state_memory(interpreter->states(), pages).value(), 1,
                                 1);
    StepContext step = sequence.begin({n});
    step.sizes[Symbol::kLogitRows] = n;
    step.adapters = segments;
    auto out = interpreter->run({{"tokens", ids}, {"positions", positions}, {"logit_rows", positions}}, step);
    EXPECT_TRUE(out.ok()) << out.status().to_string();
    return (*out)["logits"].data;
  }
  std::vector<double> logits(const std::vector<int64_t>& tokens, NamedWeights weights) {
    const auto selected = bank.select(weights);
    EXPECT_TRUE(selected.ok()) << selected.status().to_string();
    const AdapterSegment segments[] = {{Symbol::kTokens, 0, INT64_MAX, *selected},
                                       {Symbol::kLogitRows, 0, INT64_MAX, *selected}};
    return logits(tokens, segments);
  }
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double most = 0, error = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    most = std::max(most, std::abs(want[i]));
    error = std::max(error, std::abs(got[i] - want[i]));
  }
  // Merged weights are rounded to float32: 6e-8 of each, in two layers of seven products and the embedding.
  EXPECT_LE(error, 3e-6 * most);
}

// Both kinds of adapter beside both kinds of model: rows of q and k are in the order of their file.
TEST(TextAdapters, EqualMergedWeights) {
  const TemporaryFolder folder;
  const Checkpoint plain = Checkpoint::open(base_folder()).value();
  std::vector<std::string> targets = kAllProjections;
  targets.emplace_back("lm_head");
  TextAdapter first = TextAdapter::random(plain, targets, 8, 1), second = TextAdapter::random(plain, targets, 3, 2);
  first.add_embedding(plain, "model.embed_tokens", 3);
  second.add_embedding(plain, "model.embed_tokens", 4);
  ASSERT_EQ(first.modules.size(), 16u);
  for (const auto& [adapter, name] : {std::pair{&first, "first"}, {&second, "second"}}) {
    adapter->write_peft(folder.path() + "/" + name);
    adapter->write_gguf(folder.path() + "/" + name + ".gguf", *find_gguf_family("llama").value().names, 8);
  }
  Checkpoint merged = Checkpoint::open(base_folder()).value();
  std::list<std::vector<float>> kept;
  first.merge(merged, 0.7, kept);
  second.merge(merged, -1.2, kept);
  const std::vector<int64_t> tokens = {1, 5, 63, 0, 17, 17, 30, 2, 44, 8, 9};
  const std::vector<double> want = Decoder(merged, 0).logits(tokens, std::span<const AdapterSegment>()),
                            none = Decoder(plain, 0).logits(tokens, std::span<const AdapterSegment>());
  for (const char* base : {"", "/model.gguf"})
    for (const char* suffix : {"", ".gguf"}) {
      SCOPED_TRACE(std::string("model") + base + ", adapter" + suffix);
      Decoder decoder(Checkpoint::open(base_folder() + base).value(), 11);
      for (const char* name : {"first", "second"}) {
        const Status loaded = decoder.load(name, folder.path() + "/" + name + suffix);
        ASSERT_TRUE(loaded.ok()) << loaded.to_string();
      }
      const std::pair<std::string, double> both[] = {{"first", 0.7}, {"second", -1.2}};
      expect_near(decoder.logits(tokens, both), want);
      expect_near(decoder.logits(tokens, NamedWeights()), none);
      // Tokens of one sequence with different adapters: the causal past is that of each token's own adapters.
      const auto selected = decoder.bank.select(both);
      ASSERT_TRUE(selected.ok());
      const AdapterSegment tail[] = {{Symbol::kTokens, 6, 11, *selected}, {Symbol::kLogitRows, 6, 11, *selected}};
      const std::vector<double> mixed = decoder.logits(tokens, tail);
      const std::ptrdiff_t head = 6 * 64;
      expect_near({mixed.begin(), mixed.begin() + head}, {none.begin(), none.begin() + head});
      EXPECT_NE(mixed.back(), none.back());
    }
}

// Families whose rope takes neighbouring rows as pairs have the rows of queries and keys in another order than their
// files.
TEST(TextAdapters, OfInterleavedRopeEqualMergedWeights) {
  for (const auto& [name, architecture] : {std::pair{"glm4", "glm4"}, {"cohere", "command-r"}}) {
    SCOPED_TRACE(name);
    const std::string base = golden_root() + "/" + name;
    const TemporaryFolder folder;
    const Checkpoint plain = Checkpoint::open(base).value();
    const TextAdapter adapter = TextAdapter::random(plain, {"q_proj", "k_proj"}, 4, 1);
    adapter.write_peft(folder.path() + "/a");
    adapter.write_gguf(folder.path() + "/a.gguf", *find_gguf_family(architecture).value().names, 0);
    Checkpoint merged = Checkpoint::open(base).value();
    std::list<std::vector<float>> kept;
    adapter.merge(merged, 0.7, kept);
    const std::vector<int64_t> tokens = {1, 5, 63, 0, 17, 17, 30, 2};
    const std::vector<double> want = Decoder(merged, 0).logits(tokens, std::span<const AdapterSegment>());
    for (const char* suffix : {"", ".gguf"}) {
      Decoder decoder(plain, 4);
      const Status loaded = decoder.load("a", folder.path() + "/a" + suffix);
      ASSERT_TRUE(loaded.ok()) << loaded.to_string();
      const std::pair<std::string, double> one[] = {{"a", 0.7}};
      expect_near(decoder.logits(tokens, one), want);
    }
  }
}

// A tied lm_head has a site of its own: the embedding stays.
TEST(TextAdapters, OfATiedHeadLeaveTheEmbedding) {
  const Checkpoint plain = Checkpoint::open(golden_root() + "/llama_mha_tied").value();
  Decoder decoder(plain, 4);
  TextAdapter adapter = TextAdapter::random(plain, {"embed_tokens"}, 4, 1);
  adapter.modules["lm_head"] = adapter.modules.at("model.embed_tokens");
  adapter.modules.erase("model.embed_tokens");
  const TemporaryFolder folder;
  adapter.write_peft(folder.path());
  const Status loaded = decoder.load("head", folder.path());
  ASSERT_TRUE(loaded.ok()) << loaded.to_string();
  const std::pair<std::string, double> one[] = {{"head", 1.0}};
  const std::vector<int64_t> tokens = {1, 2, 3};
  EXPECT_NE(decoder.logits(tokens, one), decoder.logits(tokens, NamedWeights()));
}

// And so has the embedding: a tied head stays. Learned positions are a table of their own.
TEST(TextAdapters, OfEmbeddings) {
  for (const char* name : {"llama_mha_tied", "gpt2"}) {
    SCOPED_TRACE(name);
    const Checkpoint plain = Checkpoint::open(golden_root() + "/" + name).value();
    Decoder decoder(plain, 4);
    const auto& names = decoder.model.config.names;
    const std::vector<int64_t> tokens = {1, 2, 3, 2, 9};
    const std::vector<double> without = Decoder(plain, 0).logits(tokens, std::span<const AdapterSegment>());
    for (const std::string& module : {names.embedding, names.positions}) {
      if (module.empty()) continue;
      const TemporaryFolder folder;
      TextAdapter adapter;
      adapter.rank = 4;
      adapter.add_embedding(plain, module, 1);
      adapter.write_peft(folder.path());
      const Status loaded = decoder.load(module, folder.path());
      ASSERT_TRUE(loaded.ok()) << loaded.to_string();
      const std::pair<std::string, double> one[] = {{module, 0.5}};
      EXPECT_NE(decoder.logits(tokens, one), without) << module;
    }
    EXPECT_EQ(decoder.logits(tokens, NamedWeights()), without);
  }
}

TEST(TextAdapters, OfTheBundledModelAreRead) {
  for (const char* name : {"tolstoy", "shelley", "shout", "lower"}) {
    auto file = TextAdapterFile::open(fmt::format("{}/assets/redline-tales/adapters/{}", REDLINE_SOURCE_DIR, name));
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    EXPECT_EQ(file->max_rank, 8);
    EXPECT_EQ(file->matrices.size(), 56u);
    const AdapterMatrix& down = file->matrices.at("model.layers.7.mlp.down_proj");
    EXPECT_EQ(down.scale, 2);
    EXPECT_EQ(down.down.shape, (std::vector<int64_t>{8, 768}));
    EXPECT_EQ(down.up.shape, (std::vector<int64_t>{256, 8}));
  }
}

class PeftFolder : public ::testing::Test {
 protected:
  const Checkpoint base_ = Checkpoint::open(base_folder()).value();
  TextAdapter adapter_ = TextAdapter::random(base_, {"q_proj", "down_proj"}, 4, 1);
  nlohmann::json config_ = adapter_.config();
  SafetensorsFile tensors_ = adapter_.tensors();
  TemporaryFolder folder_;

  Result<TextAdapterFile> read() {
    TextAdapter::write_folder(folder_.path(), config_, tensors_);
    return TextAdapterFile::open(folder_.path());
  }
};

TEST_F(PeftFolder, ScalesByAlphaAndRank) {
  constexpr const char *kQ = "model.layers.1.self_attn.q_proj", *kDown = "model.layers.0.mlp.down_proj";
  EXPECT_EQ(read()->matrices.at(kQ).scale, 4);
  config_["use_rslora"] = true;
  EXPECT_EQ(read()->matrices.at(kQ).scale, 8);
  config_["use_rslora"] = false;
  // Keys are regular expressions for the ends of names; the first that matches counts.
  config_["alpha_pattern"] = {{"layers.1.self_attn.q_proj", 2.5}, {"proj", 3}, {".*\\.0\\..*down_proj", 6}};
  EXPECT_EQ(read()->matrices.at(kQ).scale, 2.5 / 4);
  EXPECT_EQ(read()->matrices.at(kDown).scale, 1.5);
  EXPECT_EQ(read()->matrices.at("model.layers.1.mlp.down_proj").scale, 4) << "\"proj\" is not a whole part of the name";
  config_["r"] = 32;
  config_["rank_pattern"] = {{"q_proj|down_proj", 4}};
  EXPECT_EQ(read()->matrices.at(kQ).scale, 2.5 / 4);
  config_["rank_pattern"] = {{"q_proj", 4}};
  EXPECT_THAT(read().status().message(),
              HasSubstr("model.layers.0.mlp.down_proj has rank 4, adapter_config.json has 32"));
  config_["rank_pattern"] = {{"q_proj(", 4}};
  EXPECT_THAT(read().status().message(), HasSubstr("rank_pattern"));
  nlohmann::json many;
  for (int i = 0; i < 10'000; ++i) many["layers." + std::to_string(i)] = 2;
  config_["rank_pattern"] = many;
  EXPECT_THAT(read().status().message(), HasSubstr("rank_pattern has 10000 patterns; the limit is 8192"));
}

TEST_F(PeftFolder, IsNamedByItsFolderOrItsWeights) {
  ASSERT_TRUE(read().ok());
  EXPECT_TRUE(TextAdapterFile::open(folder_.path() + "/adapter_model.safetensors").ok());
  EXPECT_EQ(TextAdapterFile::open(folder_.path() + "/none").status().code(), Code::not_found);
  std::filesystem::remove(folder_.path() + "/adapter_model.safetensors");
  EXPECT_THAT(TextAdapterFile::open(folder_.path()).status().message(), HasSubstr("has no adapter_model.safetensors"));
  std::filesystem::remove(folder_.path() + "/adapter_config.json");
  EXPECT_THAT(TextAdapterFile::open(folder_.path()).status().message(),
              HasSubstr("has no adapter_config.json: not an adapter in PEFT's format"));
}

TEST_F(PeftFolder, WhatIsMoreThanLowRankFactorsIsRefusedByName) {
  const std::vector<std::tuple<const char*, nlohmann::json, const char*>> members = {
      {"peft_type", "LOHA", "peft_type is \"LOHA\"; only LORA"},
      {"bias", "all", "bias is \"all\""},
      {"use_dora", true, "use_dora is set; DoRA"},
      {"lora_bias", true, "lora_bias is set"},
      {"modules_to_save", {"lm_head"}, "modules_to_save is set; fully trained modules"},
      {"trainable_token_indices", {1, 2}, "trainable_token_indices is set"},
      {"layer_replication", {{0, 2}}, "layer_replication is set"},
      {"init_lora_weights", "pissa_niter_16",
       "init_lora_weights is \"pissa_niter_16\", which changes the base weights"},
      {"use_dora", "yes", "use_dora is set"}};
  for (const auto& [key, value, message] : members) {
    config_ = adapter_.config();
    config_[key] = value;
    const Status status = read().status();
    EXPECT_EQ(status.code(), Code::unsupported) << key;
    EXPECT_THAT(status.message(), HasSubstr(message));
    EXPECT_THAT(status.message(), HasSubstr("adapter_config.json"));
  }
  config_ = adapter_.config();
  config_["use_dora"] = false;
  config_["modules_to_save"] = nullptr;
  config_["rank_pattern"] = nlohmann::json::object();
  config_["layer_replication"] = nlohmann::json::array();
  config_["init_lora_weights"] = "gaussian";
  EXPECT_TRUE(read().ok()) << read().status().to_string();
  config_["r"] = "8";
  EXPECT_EQ(read().status().code(), Code::invalid_argument);
  EXPECT_THAT(read().status().message(), HasSubstr("r"));

  config_ = adapter_.config();
  const float one = 1;
  for (const auto& [name, message] :
       {std::pair{"base_model.model.lm_head.weight", "belongs to no LoRA pair"},
        {"base_model.model.model.layers.0.mlp.up_proj.lora_magnitude_vector", "belongs to no LoRA pair"}}) {
    tensors_ = adapter_.tensors();
    tensors_.add(name, "F32", {1, 1}, &one, sizeof one);
    const Status status = read().status();
    EXPECT_EQ(status.code(), Code::unsupported);
    EXPECT_THAT(status.message(), HasSubstr(name));
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

TEST_F(PeftFolder, PairsAreComplete) {
  tensors_.header.erase("base_model.model.model.layers.0.mlp.down_proj.lora_B.weight");
  EXPECT_THAT(read().status().message(), HasSubstr("model.layers.0.mlp.down_proj has only one of its two matrices"));
  tensors_ = adapter_.tensors();
  tensors_.header["base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"]["shape"] = {64, 2};
  EXPECT_THAT(read().status().message(), HasSubstr("A is [4, 48], B is [64, 2]: the ranks differ"));
  tensors_.header["base_model.model.model.layers.0.mlp.down_proj.lora_B.weight"]["shape"] = {128};
  EXPECT_THAT(read().status().message(), HasSubstr("is [128], expected a matrix"));
  tensors_ = {};
  EXPECT_THAT(read().status().message(), HasSubstr("holds no LoRA pair"));
}

TEST_F(PeftFolder, OfAnotherModelIsRefused) {
  ASSERT_TRUE(read().ok());
  Decoder small(base_, 3);
  EXPECT_THAT(small.load("a", folder_.path()).message(), HasSubstr("has rank 4, the engine was opened for 3"));
  Decoder other(Checkpoint::open(golden_root() + "/qwen3").value(), 4);
  EXPECT_THAT(other.load("a", folder_.path()).message(), HasSubstr("the network has room for"));
  adapter_ = TextAdapter::random(base_, {"layers.0.mlp.up_proj"}, 4, 1);
  adapter_.modules["model.layers.9.mlp.up_proj"] = adapter_.modules.at("model.layers.0.mlp.up_proj");
  tensors_ = adapter_.tensors();
  ASSERT_TRUE(read().ok());
  Decoder decoder(base_, 4);
  EXPECT_THAT(decoder.load("a", folder_.path()).message(),
              HasSubstr("the network has no model.layers.9.mlp.up_proj; is it a LoRA of this model?"));
}

TEST(GgufAdapters, AreCheckedAndRefusedByName) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.gguf";
  const std::vector<float> values(64, 1.0f);
  const auto write = [&](const std::function<void(GgufWriter&)>& change, const char* tensor = "blk.0.attn_q.weight") {
    GgufWriter writer;
    writer.set("general.architecture", "llama");
    writer.set("general.type", "adapter");
    writer.set("adapter.type", "lora");
    writer.set_f32("adapter.lora.alpha", 6);
    writer.add_tensor(std::string(tensor) + ".lora_a", {DType::kF32, {2, 32}, values.data()});
    writer.add_tensor(std::string(tensor) + ".lora_b", {DType::kF32, {32, 2}, values.data()});
    if (change) change(writer);
    EXPECT_TRUE(writer.write(path).ok());
    return TextAdapterFile::open(path);
  };
  auto file = write({});
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(file->matrices.at("blk.0.attn_q.weight").scale, 3);
  EXPECT_EQ(file->max_rank, 2);
  // llama.cpp does not scale factors without alpha.
  EXPECT_EQ(write([](GgufWriter& w) { w.set_f32("adapter.lora.alpha", 0); })->matrices.begin()->second.scale, 1);

  const auto message = [&](const Result<TextAdapterFile>& result) { return result.status().message(); };
  EXPECT_THAT(message(write([](GgufWriter& w) { w.set("general.type", "model"); })),
              HasSubstr("general.type is \"model\", not \"adapter\""));
  EXPECT_THAT(message(write([](GgufWriter& w) { w.set("adapter.type", "control_vector"); })),
              HasSubstr("adapter.type is \"control_vector\"; only lora"));
  EXPECT_THAT(message(write([](GgufWriter& w) { w.set_i32s("adapter.alora.invocation_tokens", {1}); })),
              HasSubstr("activated LoRA"));
  EXPECT_THAT(message(write([&](GgufWriter& w) {
                w.add_tensor("blk.0.attn_norm.weight", {DType::kF32, {32}, values.data()});
              })),
              HasSubstr("tensor blk.0.attn_norm.weight belongs to no LoRA pair"));

  const Checkpoint base = Checkpoint::open(base_folder()).value();
  Decoder decoder(base, 4);
  ASSERT_TRUE(write({}).ok());
  EXPECT_TRUE(decoder.load("a", path).ok());
  ASSERT_TRUE(write([](GgufWriter& w) { w.set("general.architecture", "qwen2"); }).ok());
  EXPECT_THAT(decoder.load("b", path).message(), HasSubstr("an adapter of qwen2 models, this one is llama"));
  ASSERT_TRUE(write({}, "blk.0.ssm_in.weight").ok());
  EXPECT_THAT(decoder.load("b", path).message(), HasSubstr("blk.0.ssm_in.weight is not a weight of a llama model"));
  ASSERT_TRUE(write({}, "blk.0.ffn_up.weight").ok());
  EXPECT_THAT(decoder.load("b", path).message(),
              HasSubstr("model.layers.0.mlp.up_proj is [32, 2] x [2, 32], the network has room for [48, 2] x [2, 32]"));
}

}  // namespace
}  // namespace redline::testing
