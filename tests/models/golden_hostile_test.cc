// Checkpoints that contradict themselves: each must be refused with a message that names the trouble, never a crash, a
// hang or gigabytes asked for. Made on the fly from a golden folder, one thing wrong at a time.
#include <functional>

#include "support/golden.h"
#include "support/safetensors_file.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

using nlohmann::json;

using GoldenHostileWeights = SafetensorsFile;

/// Another tensor, all zeros.
void add_zeros(GoldenHostileWeights& weights, const std::string& name, const std::vector<int64_t>& shape) {
  size_t bytes = 2;
  for (const int64_t n : shape) bytes *= static_cast<size_t>(n);
  weights.add(name, "BF16", shape, std::string(bytes, '\0').data(), bytes);
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

/// A copy of a golden folder with something changed.
Status open_changed(const std::string& golden,
                    const std::function<void(json& config, GoldenHostileWeights& weights)>& change) {
  const std::string source = golden_root() + "/" + golden;
  json config = read_json(source + "/config.json");
  GoldenHostileWeights weights = GoldenHostileWeights::read(source + "/model.safetensors");
  EXPECT_TRUE(config.is_object() && weights.header.is_object()) << source;
  change(config, weights);
  const TemporaryFolder folder;
  write_text(folder.path() + "/config.json", config.dump());
  weights.write(folder.path() + "/model.safetensors");
  TextEngineOptions options;
  options.threads = 1;
  options.context = 32;
  return TextEngine::open(folder.path(), options).status();
}

void expect_refused(const Status& status, const std::string& word, const std::string& what) {
  ASSERT_FALSE(status.ok()) << what << ": was accepted";
  EXPECT_TRUE(status.code() == Code::invalid_argument || status.code() == Code::unsupported ||
              status.code() == Code::not_found)
      << what << ": " << status.to_string();
  EXPECT_NE(status.message().find(word), std::string::npos)
      << what << ": the message should name \"" << word << "\": " << status.to_string();
}

TEST(GoldenHostile, TheUnchangedCopyOpens) {
  const Status status = open_changed("rope_plain", [](json&, GoldenHostileWeights&) {});
  EXPECT_TRUE(status.ok()) << status.to_string();
}

TEST(GoldenHostile, ListsTensorsThatAreMissingOrLeftOver) {
  const auto remove = [](GoldenHostileWeights& weights, const std::string& name) {
    EXPECT_EQ(weights.header.erase(name), 1U) << name;
  };
  const Status missing = open_changed("rope_plain", [&](json&, GoldenHostileWeights& weights) {
    remove(weights, "model.layers.0.mlp.up_proj.weight");
    remove(weights, "model.layers.1.self_attn.k_proj.weight");
    remove(weights, "model.norm.weight");
  });
  expect_refused(missing,
                 "tensor model.layers.0.mlp.up_proj.weight is missing (and 2 more: "
                 "model.layers.1.self_attn.k_proj.weight, model.norm.weight)",
                 "three tensors less");
  const Status more = open_changed("rope_plain", [&](json&, GoldenHostileWeights& weights) {
    add_zeros(weights, "model.layers.0.adapter.weight", {2, 2});
    for (int i = 0; i < 10; ++i) add_zeros(weights, fmt::format("other.{}.weight", i), {3});
  });
  expect_refused(more,
                 "tensor model.layers.0.adapter.weight (and 10 more: other.0.weight, other.1.weight, other.2.weight, "
                 "other.3.weight, other.4.weight, other.5.weight, other.6.weight, other.7.weight, ...) is not used",
                 "eleven tensors more");
}

struct ConfigCase {
  const char* what;  ///< also names the key
  json value;        ///< null with `erase`: the key goes
  const char* word;  ///< must be in the message
  bool erase = false;
};

TEST(GoldenHostile, ConfigValuesThatCannotBe) {
  const double huge = 1e300;
  const ConfigCase cases[] = {
      // shapes that the tensors contradict
      {"hidden_size", 64, "embed_tokens"},
      {"hidden_size", 31, ""},
      {"intermediate_size", 64, "mlp"},
      {"num_attention_heads", 4, "q_proj"},
      {"num_key_value_heads", 2, "_proj"},
      {"head_dim", 16, "q_proj"},
      {"vocab_size", 65, "embed_tokens"},
      {"vocab_size", 63, "embed_tokens"},
      {"num_hidden_layers", 3, "layers.2"},
      {"num_hidden_layers", 1, "layers.1"},
      {"attention_bias", true, "bias"},
      // no model at all
      {"num_key_value_heads", 3, "num_key_value_heads"},
      {"num_key_value_heads", 0, "num_key_value_heads"},
      {"num_attention_heads", 0, "num_attention_heads"},
      {"num_attention_heads", -2, "num_attention_heads"},
      {"head_dim", 33, "33"},
      {"head_dim", 0, "head_dim"},
      {"head_dim", -32, "head_dim"},
      {"hidden_size", 0, "hidden_size"},
      {"hidden_size", -32, "hidden_size"},
      {"vocab_size", 0, "vocab_size"},
      {"num_hidden_layers", 0, "num_hidden_layers"},
      {"num_hidden_layers", -1, "num_hidden_layers"},
      {"max_position_embeddings", 0, "max_position_embeddings"},
      {"max_position_embeddings", -5, "max_position_embeddings"},
      {"rms_norm_eps", -1e-5, "rms_norm_eps"},
      {"rope_theta", 0, "rope_theta"},
      {"rope_theta", -10000.0, "rope_theta"},
      // absurd sizes
      {"hidden_size", int64_t{1} << 62, ""},
      {"num_hidden_layers", 1000000000, ""},
      {"num_attention_heads", INT64_MAX, ""},
      {"head_dim", int64_t{1} << 40, ""},
      {"vocab_size", UINT64_MAX, "vocab_size"},
      {"intermediate_size", huge, "intermediate_size"},
      // wrong types
      {"hidden_size", "32", "hidden_size"},
      {"hidden_size", 32.5, "hidden_size"},
      {"hidden_size", json::array({32}), "hidden_size"},
      {"hidden_size", true, "hidden_size"},
      {"num_hidden_layers", "two", "num_hidden_layers"},
      {"vocab_size", json::object(), "vocab_size"},
      {"rms_norm_eps", "1e-5", "rms_norm_eps"},
      {"rope_theta", "10000", "rope_theta"},
      {"tie_word_embeddings", "no", "tie_word_embeddings"},
      {"attention_bias", 1.5, "attention_bias"},
      {"rope_scaling", "linear", "rope_scaling"},
      {"rope_scaling", json::array(), "rope_scaling"},
      {"model_type", 3, "model_type"},
      {"hidden_act", 3, "hidden_act"},
      // missing
      {"hidden_size", nullptr, "hidden_size", true},
      {"num_hidden_layers", nullptr, "num_hidden_layers", true},
      {"num_attention_heads", nullptr, "num_attention_heads", true},
      {"vocab_size", nullptr, "vocab_size", true},
      {"intermediate_size", nullptr, "intermediate_size", true},
      // what Redline does not know
      {"hidden_act", "gelu", "gelu"},
      {"hidden_act", "relu2", "relu2"},
  };
  for (const ConfigCase& c : cases) {
    const Status status = open_changed("rope_plain", [&](json& config, GoldenHostileWeights&) {
      if (c.erase) config.erase(c.what);
      else config[c.what] = c.value;
    });
    expect_refused(status, c.word, fmt::format("{} = {}", c.what, c.erase ? "absent" : c.value.dump()));
  }
}

TEST(GoldenHostile, RopeScalingThatCannotBe) {
  const json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 32}};
  const auto with = [](json base, const char* key, json value) {
    if (value.is_null()) base.erase(key);
    else base[key] = std::move(value);
    return base;
  };
  const std::pair<json, const char*> cases[] = {
      {{{"rope_type", "spiral"}, {"factor", 2.0}}, "spiral"},
      {{{"type", "spiral"}, {"factor", 2.0}}, "spiral"},
      {{{"type", 5}, {"factor", 2.0}}, "type"},
      {json::object({{"type", "factors"}}), "factors"},
      {{{"type", "factors"}, {"factors", json::array()}}, "factors"},
      {{{"type", "factors"}, {"factors", json::array({"1"})}}, "factors"},
      {{{"type", "factors"}, {"factors", json(std::vector<double>(16, 0.0))}}, "factors"},
      {{{"type", "factors"}, {"factors", 16}}, "factors"},
      {{{"type", "factors"}, {"factors", "sixteen characte"}}, "factors"},
      {json::object({{"type", "linear"}}), "factor"},
      {{{"type", "linear"}, {"factor", 0.0}}, "factor"},
      {{{"type", "linear"}, {"factor", -2.0}}, "factor"},
      {{{"type", "linear"}, {"factor", "2"}}, "factor"},
      {json::object({{"type", "dynamic"}}), "factor"},
      {{{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 0}},
       "original_max_position_embeddings"},
      {{{"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", "32"}},
       "original_max_position_embeddings"},
      {{{"type", "yarn"}, {"factor", 4.0}, {"beta_fast", "x"}}, "beta_fast"},
      {{{"type", "yarn"}, {"factor", 4.0}, {"attention_factor", -1.0}}, "attention_factor"},
      {with(llama3, "factor", nullptr), "factor"},
      {with(llama3, "low_freq_factor", nullptr), "low_freq_factor"},
      {with(llama3, "high_freq_factor", nullptr), "high_freq_factor"},
      {with(llama3, "high_freq_factor", 1.0), "freq_factor"},
      {with(llama3, "original_max_position_embeddings", -4), "original_max_position_embeddings"},
  };
  for (const auto& [scaling, word] : cases) {
    const Status v4 =
        open_changed("rope_plain", [&](json& config, GoldenHostileWeights&) { config["rope_scaling"] = scaling; });
    expect_refused(v4, word, "rope_scaling " + scaling.dump());
    const Status v5 = open_changed("rope_plain", [&](json& config, GoldenHostileWeights&) {
      config.erase("rope_scaling");
      config.erase("rope_theta");
      config["rope_parameters"] = scaling;
      config["rope_parameters"]["rope_theta"] = 10000.0;
    });
    expect_refused(v5, word, "rope_parameters " + scaling.dump());
  }
}

TEST(GoldenHostile, WindowsThatCannotBe) {
  const std::pair<json, const char*> cases[] = {
      {json::object({{"sliding_window", 0}}), "sliding_window"},
      {{{"sliding_window", -4}}, "sliding_window"},
      {{{"sliding_window", "5"}}, "sliding_window"},
      {{{"max_window_layers", -1}}, "max_window_layers"},
      {{{"layer_types", {"full_attention"}}}, "layer_types"},
      {{{"layer_types", {"full_attention", "full_attention", "linear_attention"}}}, "linear_attention"},
      {{{"layer_types", {1, 2, 3}}}, "layer_types"},
      {{{"layer_types", "full_attention"}}, "layer_types"},
  };
  for (const auto& [change, word] : cases) {
    const Status status =
        open_changed("qwen2_tied_window", [&](json& config, GoldenHostileWeights&) { config.update(change); });
    expect_refused(status, word, change.dump());
  }
}

TEST(GoldenHostile, UnknownArchitecture) {
  const Status status = open_changed("rope_plain", [](json& config, GoldenHostileWeights&) {
    config["model_type"] = "llamma";
    config["architectures"] = {"LlammaForCausalLM"};
    config["architectures"] = {"LlammaForCausalLM"};
  });
  expect_refused(status, "lamma", "model_type llamma");
  EXPECT_EQ(status.code(), Code::unsupported);
  EXPECT_NE(status.message().find("llama"), std::string::npos) << "should name what it knows: " << status.to_string();
  const Status none = open_changed("rope_plain", [](json& config, GoldenHostileWeights&) {
    config.erase("model_type");
    config.erase("architectures");
  });
  expect_refused(none, "model_type", "no model_type");
}

TEST(GoldenHostile, TensorsThatDoNotFit) {
  const std::string q = "model.layers.1.self_attn.q_proj.weight", norm = "model.norm.weight";
  const auto open = [](const std::function<void(GoldenHostileWeights&)>& change) {
    return open_changed("rope_plain", [&](json&, GoldenHostileWeights& weights) { change(weights); });
  };
  expect_refused(open([&](GoldenHostileWeights& w) { w.header.erase(q); }), q, "missing tensor");
  expect_refused(open([&](GoldenHostileWeights& w) { w.header.erase(norm); }), norm, "missing norm");
  // A folder without an output matrix uses the embeddings, whatever its config says.
  EXPECT_TRUE(open([](GoldenHostileWeights& w) { w.header.erase("lm_head.weight"); }).ok());
  expect_refused(open([&](GoldenHostileWeights& w) { w.rename(q, "model.layers.1.self_attn.query.weight"); }), q,
                 "renamed tensor");
  expect_refused(open([](GoldenHostileWeights& w) { add_zeros(w, "model.layers.0.self_attn.q_norm.weight", {32}); }),
                 "q_norm", "extra tensor");
  expect_refused(open([](GoldenHostileWeights& w) {
                   add_zeros(w, "model.layers.2.mlp.up_proj.weight", {48, 32});
                 }),
                 "layers.2", "extra layer");
  expect_refused(open([&](GoldenHostileWeights& w) { w.header[q]["shape"] = {32, 64}; }), q, "transposed tensor");
  expect_refused(open([&](GoldenHostileWeights& w) { w.header[q]["shape"] = {2048}; }), q, "flat tensor");
  expect_refused(open([&](GoldenHostileWeights& w) { w.header[norm]["shape"] = {1, 32}; }), norm, "norm with two axes");
  expect_refused(open([&](GoldenHostileWeights& w) { w.header[q]["dtype"] = "I16"; }), q, "integer tensor");
  // Old Llama checkpoints carry their rope frequencies along; nobody reads them.
  const Status frequencies = open([](GoldenHostileWeights& w) {
    add_zeros(w, "model.layers.0.self_attn.rotary_emb.inv_freq", {16});
    add_zeros(w, "model.layers.1.self_attn.rotary_emb.inv_freq", {16});
  });
  EXPECT_TRUE(frequencies.ok()) << frequencies.to_string();
}

TEST(GoldenHostile, ConfigsThatAreNone) {
  const std::string weights = golden_root() + "/rope_plain/model.safetensors";
  for (const char* text :
       {"", "{", "[]", "null", "42", "\"llama\"", "{\"model_type\": \"llama\"", "\xff\xfe{}", "{\"a\":1}x"}) {
    const TemporaryFolder folder;
    write_text(folder.path() + "/config.json", text);
    std::filesystem::copy_file(weights, folder.path() + "/model.safetensors");
    expect_refused(TextEngine::open(folder.path()).status(), "config.json", std::string("config.json is ") + text);
  }
  const TemporaryFolder deep;
  write_text(deep.path() + "/config.json", std::string(200000, '['));
  std::filesystem::copy_file(weights, deep.path() + "/model.safetensors");
  expect_refused(TextEngine::open(deep.path()).status(), "config.json", "200,000 brackets");
}

TEST(GoldenHostile, FoldersThatAreNone) {
  const TemporaryFolder empty;
  const Status nothing = TextEngine::open(empty.path()).status();
  expect_refused(nothing, empty.path(), "empty folder");
  const Status nowhere = TextEngine::open(empty.path() + "/nowhere").status();
  expect_refused(nowhere, "nowhere", "no such path");
  EXPECT_EQ(nowhere.code(), Code::not_found);
  std::filesystem::copy_file(golden_root() + "/rope_plain/config.json", empty.path() + "/config.json");
  expect_refused(TextEngine::open(empty.path()).status(), "safetensors", "a config without weights");
  write_text(empty.path() + "/notes.txt", "no model");
  expect_refused(TextEngine::open(empty.path() + "/notes.txt").status(), "notes.txt", "a text file");
  write_text(empty.path() + "/empty.gguf", "");
  expect_refused(TextEngine::open(empty.path() + "/empty.gguf").status(), "empty.gguf", "an empty file");
}

/// GGUF bytes with `from` replaced by `to`, same length, everywhere.
std::string replaced(std::string bytes, const std::string& from, const std::string& to) {
  EXPECT_EQ(from.size(), to.size());
  EXPECT_NE(bytes.find(from), std::string::npos) << from;
  for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size())
    bytes.replace(at, from.size(), to);
  return bytes;
}

TEST(GoldenHostile, GgufThatContradictsItself) {
  const std::string good = read_text(golden_root() + "/rope_llama3/model.gguf");
  ASSERT_FALSE(good.empty());
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/model.gguf";
  const auto open = [&](const std::string& bytes) {
    write_text(path, bytes);
    TextEngineOptions options;
    options.threads = 1;
    options.context = 32;
    return TextEngine::open(path, options).status();
  };
  const Status unchanged = open(good);
  EXPECT_TRUE(unchanged.ok()) << unchanged.to_string();
  for (const std::string key : {"llama.block_count", "llama.embedding_length", "llama.attention.head_count\x04"}) {
    const bool bare = key.back() != '\x04';  // head_count_kv begins alike: the type that follows tells them apart
    const std::string name = bare ? key : key.substr(0, key.size() - 1);
    std::string other = key;
    other[6] = 'X';
    expect_refused(open(replaced(good, key, other)), name, "without " + name);
  }
  // A u32 value follows its key and its type (4).
  const auto with_u32 = [&](const std::string& key, uint32_t value) {
    std::string bytes = good;
    const size_t at = bytes.find(key + std::string("\x04\0\0\0", 4));
    EXPECT_NE(at, std::string::npos) << key;
    if (at != std::string::npos) std::memcpy(bytes.data() + at + key.size() + 4, &value, 4);
    return bytes;
  };
  for (const uint32_t value : {0u, 1u, 3u, 0x7fffffffu, 0xffffffffu}) {
    expect_refused(open(with_u32("llama.block_count", value)), "", fmt::format("block_count {}", value));
    expect_refused(open(with_u32("llama.embedding_length", value)), "", fmt::format("embedding_length {}", value));
    expect_refused(open(with_u32("llama.feed_forward_length", value)), "",
                   fmt::format("feed_forward_length {}", value));
    expect_refused(open(with_u32("llama.attention.key_length", value)), "", fmt::format("key_length {}", value));
  }
  for (const uint32_t value : {0u, 3u, 0xffffffffu})
    expect_refused(open(with_u32("llama.attention.head_count", value)), "", fmt::format("head_count {}", value));
  expect_refused(open(replaced(good, "blk.1.attn_q.weight", "blk.1.attn_X.weight")), "blk.1.attn_X.weight",
                 "renamed tensor");
  expect_refused(open(with_u32("llama.block_count", 1)), "blk.1.", "a layer too many");
  expect_refused(open(with_u32("llama.block_count", 3)), "blk.2.", "a layer too few");
  expect_refused(open(replaced(good, "blk.1.", "blk.7.")), "blk.1.", "renamed layer");
  std::string unknown = good;
  const size_t at = unknown.find("general.architecture");
  ASSERT_NE(at, std::string::npos);
  const size_t name = unknown.find("llama", at);
  unknown.replace(name, 5, "lxama");
  expect_refused(open(unknown), "lxama", "unknown architecture");
  // Cut off anywhere: the reader's own tests go byte by byte; here the engine on top of it.
  for (size_t bytes = 0; bytes < good.size(); bytes += good.size() / 23 + 1)
    expect_refused(open(good.substr(0, bytes)), "model.gguf", fmt::format("cut at {}", bytes));
}

}  // namespace
}  // namespace redline::testing
