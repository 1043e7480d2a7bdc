// Settings of language-model families that Redline does not run: each is an error that names the key.
#include <gmock/gmock.h>

#include <filesystem>

#include "models/registry.h"
#include "support/golden.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

/// A golden model, a change of its config, and a part of the message.
struct RefusedSetting {
  const char *model, *change, *message;
};
constexpr RefusedSetting kRefusedSettings[] = {
    {"olmo", R"({"clip_qkv": 8.0})", "clip_qkv"},
    {"olmoe", R"({"clip_qkv": 8.0})", "clip_qkv"},
    {"opt", R"({"do_layer_norm_before": false})", "do_layer_norm_before"},
    {"opt", R"({"word_embed_proj_dim": 16})", "word_embed_proj_dim"},
    {"gemma", R"({"use_bidirectional_attention": true})", "use_bidirectional_attention"},
    {"gemma", R"({"hidden_act": "silu"})", "hidden_act \"silu\""},
    {"gemma3", R"({"attn_logit_softcapping": 2.0})", "attn_logit_softcapping"},
    {"arcee", R"({"hidden_act": "silu"})", "hidden_act \"silu\""},
    {"nemotron", R"({"hidden_act": "gelu"})", "hidden_act \"gelu\""},
    {"gptj", R"({"rotary_dim": null})", "rotary_dim null"},
    {"gptj", R"({"rotary_dim": 16})", "rotary_dim is 16"},
    {"gpt_neo", R"({"attention_types": [[["strided"], 2]]})", "attention type \"strided\""},
    {"gpt_neo", R"({"attention_types": [[["local"], 1]]})", "names 1 of 2 layers"},
    {"gpt_bigcode", R"({"add_cross_attention": true})", "add_cross_attention"},
    {"hunyuan_moe", R"({"num_experts": [6, 5]})", "num_experts differs by layer"},
    {"glm4_moe_lite", R"({"mlp_layer_types": ["sparse", "dense", "sparse"]})", "mlp_layer_types"},
    {"exaone4", R"({"sliding_window_pattern": "LLLG"})", "sliding_window_pattern"},
    {"ernie4_5_moe", R"({"use_bias": true})", "use_bias"},
    {"ministral3", R"({"partial_rotary_factor": 0.5})", "llama_4_scaling_beta with rope on a part"},
    {"granite_swa_listed", R"({"layer_rope_theta": [1.0, 0, 2.0]})", "layer_rope_theta"},
    {"lfm2", R"({"layer_types": ["conv", "mamba", "conv"]})", "layer_types[1]"},
    {"cohere2", R"({"layer_types": ["full_attention"]})", "layer_types must list 4 layers"},
    {"falcon_h1", R"({"ssm_multipliers": [1.0]})", "ssm_multipliers must list 5 numbers"},
};

TEST(Families, RefusedSettingsAreNamed) {
  for (const RefusedSetting& refused : kRefusedSettings) {
    SCOPED_TRACE(std::string(refused.model) + " " + refused.change);
    const std::string source = golden_root() + "/" + refused.model;
    const TemporaryFolder folder;
    json config = read_json(source + "/config.json");
    config.update(json::parse(refused.change));
    std::ofstream(folder.path() + "/config.json") << config.dump();
    std::filesystem::create_symlink(source + "/model.safetensors", folder.path() + "/model.safetensors");
    const Result<Checkpoint> checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    const Result<LanguageModel> model = build_language_model(*checkpoint);
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.status().message(), HasSubstr(refused.message));
  }
}

// Files of transformers leave out settings that have their default.
TEST(Families, DefaultsAreThoseOfTheFamily) {
  struct Default {
    const char *model, *key;
    float eps;
  };
  for (const Default& d : {Default{"gemma", "rms_norm_eps", 1e-6f}, Default{"glm", "rms_norm_eps", 1.5625e-07f},
                           Default{"glm4_moe", "rms_norm_eps", 1e-5f}, Default{"helium", "rms_norm_eps", 1e-8f},
                           Default{"seed_oss", "rms_norm_eps", 1e-6f}, Default{"ernie4_5", "rms_norm_eps", 1e-5f},
                           Default{"qwen2_vl", "rms_norm_eps", 1e-5f}, Default{"arcee", "rms_norm_eps", 1e-5f},
                           Default{"nemotron", "norm_eps", 1e-5f}, Default{"lfm2", "norm_eps", 1e-5f}}) {
    SCOPED_TRACE(d.model);
    Result<Checkpoint> checkpoint = Checkpoint::open(golden_root() + "/" + d.model);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().message();
    checkpoint->config.erase(d.key);
    const Result<LanguageModel> model = build_language_model(*checkpoint);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_FLOAT_EQ(model->config.rms_norm_eps, d.eps);
  }
}

}  // namespace
}  // namespace redline::testing
