// Keys of config.json and names in GGUF files that the relatives of GPT-2 share.
#pragma once

#include <nlohmann/json.hpp>

#include "models/checkpoint/gguf_names.h"

namespace redline {

/// Returns the config with the common names of GPT-2's keys, which StarCoder 1 and GPT-J have too.
nlohmann::json gpt2_common_config(const nlohmann::json& own);

inline constexpr GgufName kGpt2GgufTop[] = {{"token_embd", "transformer.wte"},
                                            {"position_embd", "transformer.wpe"},
                                            {"output_norm", "transformer.ln_f"},
                                            {"output", "lm_head"}};
inline constexpr GgufName kGpt2GgufLayer[] = {{"attn_norm", "ln_1"},          {"attn_qkv", "attn.c_attn"},
                                              {"attn_output", "attn.c_proj"}, {"ffn_norm", "ln_2"},
                                              {"ffn_up", "mlp.c_fc"},         {"ffn_down", "mlp.c_proj"}};

}  // namespace redline
