"""Makes the tiny random models of tests/golden and their logits in PyTorch transformers.

    python tests/golden/make_golden.py [NAME ...]
    python tests/golden/make_golden.py --quant QUANT_VECTORS_FOLDER
    python tests/golden/make_golden.py --random REDLINE_BINARY

Needs torch, transformers (TRANSFORMERS below), safetensors, gguf, numpy; the engine and its tests need none of them. Seeds are fixed: the
same versions write the same bytes.

A case is a folder: config.json (spelled as transformers 4 or 5 writes it), weights.txt, from which the build makes
model.safetensors (weights.py: one file, shards with an index, or a link to another case's weights), tokens.json and logits.npy,
float32 [tokens, vocab]. Some have model.gguf too: the same values under llama.cpp's names, q and k rows of "llama" in its
interleaved rope order.

The logits are computed by transformers' own code (AutoModelForCausalLM, eager attention) in float64 from end to end:
where that code names torch.float32 (norms, softmax, rope), float64 is substituted, so the reference has no rounding of
its own above 1e-15. The same model run plainly in float32 must agree within 2e-5 of the largest logit.

A case only tests settings that affect its logits: `without` lists changes to the config (a scaling removed, the window
off, ...), and the script fails unless each of them changes the logits by 1e-3 of the largest.

over 600 lines: the list of cases, which grows with the families.
"""
import argparse
import contextlib
import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent
TRANSFORMERS = "5.24.0"  # the version whose logits new cases have
sys.path.insert(0, str(HERE))
import weights
DTYPES = {"f32": ("float32", torch.float32), "f16": ("float16", torch.float16), "bf16": ("bfloat16", torch.bfloat16)}
BASE = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=128, rms_norm_eps=1e-5, rope_theta=10000.0,
            hidden_act="silu", tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
LLAMA = dict(BASE, model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=False, mlp_bias=False)
MISTRAL = dict(BASE, model_type="mistral", architectures=["MistralForCausalLM"], sliding_window=None)
QWEN2 = {k: v for k, v in dict(BASE, model_type="qwen2", architectures=["Qwen2ForCausalLM"], use_sliding_window=False,
                               sliding_window=4096, max_window_layers=2, rms_norm_eps=1e-6).items() if k != "head_dim"}
QWEN3 = dict(BASE, model_type="qwen3", architectures=["Qwen3ForCausalLM"], attention_bias=False, rms_norm_eps=1e-6,
             use_sliding_window=False, sliding_window=None, max_window_layers=2)
GEMMA3 = {k: v for k, v in dict(BASE, model_type="gemma3_text", architectures=["Gemma3ForCausalLM"], tie_word_embeddings=True,
          hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=8, sliding_window=6, rope_theta=1000000.0,
          rope_local_base_freq=10000.0, num_hidden_layers=3, sliding_window_pattern=3, rms_norm_eps=1e-6).items()
          if k != "hidden_act"}
GEMMA2 = {k: v for k, v in dict(BASE, model_type="gemma2", architectures=["Gemma2ForCausalLM"], tie_word_embeddings=True,
          hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=8, sliding_window=6, rms_norm_eps=1e-6,
          attn_logit_softcapping=2.0, final_logit_softcapping=3.0).items() if k != "hidden_act"}
GRANITE = {k: v for k, v in dict(LLAMA, model_type="granite", architectures=["GraniteForCausalLM"], embedding_multiplier=3.0,
           residual_multiplier=0.4, attention_multiplier=0.2, logits_scaling=5.0).items() if k != "head_dim"}
GRANITE_HYBRID = dict(GRANITE, model_type="granitemoehybrid", architectures=["GraniteMoeHybridForCausalLM"], num_local_experts=0,
                      shared_intermediate_size=40, position_embedding_type="nope", num_hidden_layers=3, mamba_n_heads=4, mamba_d_head=16,
                      mamba_n_groups=1, mamba_d_state=17, mamba_chunk_size=8, layer_types=["mamba", "attention", "mamba"])
GRANITE_MOE = dict(GRANITE, model_type="granitemoe", architectures=["GraniteMoeForCausalLM"], num_local_experts=7, num_experts_per_tok=3,
                   intermediate_size=20)
SMOLLM3 = {k: v for k, v in dict(LLAMA, model_type="smollm3", architectures=["SmolLM3ForCausalLM"], num_hidden_layers=4,
           tie_word_embeddings=True, pad_token_id=0).items() if k != "head_dim"}
OLMO2 = {k: v for k, v in dict(BASE, model_type="olmo2", architectures=["Olmo2ForCausalLM"], attention_bias=False).items()
         if k != "head_dim"}
OLMO3 = dict(OLMO2, model_type="olmo3", architectures=["Olmo3ForCausalLM"], sliding_window=7, num_hidden_layers=4,
             rope_theta=500000.0)
PHI3 = {k: v for k, v in dict(BASE, model_type="phi3", architectures=["Phi3ForCausalLM"], sliding_window=None,
        original_max_position_embeddings=128, pad_token_id=0).items() if k != "head_dim"}
GLM4 = dict(BASE, model_type="glm4", architectures=["Glm4ForCausalLM"], attention_bias=True, partial_rotary_factor=0.5,
            pad_token_id=0)
COHERE = {k: v for k, v in dict(BASE, model_type="cohere", architectures=["CohereForCausalLM"], attention_bias=False,
          use_qk_norm=False, logit_scale=0.25, layer_norm_eps=1e-5, tie_word_embeddings=True, pad_token_id=0).items()
          if k not in ("head_dim", "rms_norm_eps")}
STARCODER2 = {k: v for k, v in dict(BASE, model_type="starcoder2", architectures=["Starcoder2ForCausalLM"], use_bias=True,
              hidden_act="gelu_pytorch_tanh", norm_epsilon=1e-5, sliding_window=None, tie_word_embeddings=True).items()
              if k not in ("head_dim", "rms_norm_eps")}
GPT2 = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_inner=None,
            n_positions=64, layer_norm_epsilon=1e-5, activation_function="gelu_new", bos_token_id=1, eos_token_id=2)
GPT_NEOX = dict(model_type="gpt_neox", architectures=["GPTNeoXForCausalLM"], vocab_size=64, hidden_size=32,
                intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=128,
                layer_norm_eps=1e-5, hidden_act="gelu", use_parallel_residual=True, attention_bias=True, rope_theta=10000.0,
                tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
FALCON = dict(model_type="falcon", architectures=["FalconForCausalLM"], vocab_size=64, hidden_size=32, num_hidden_layers=2,
              num_attention_heads=4, layer_norm_epsilon=1e-5, alibi=False, new_decoder_architecture=False, multi_query=True,
              parallel_attn=True, bias=False, max_position_embeddings=128, rope_theta=10000.0, activation="gelu",
              tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
BLOOM = dict(model_type="bloom", architectures=["BloomForCausalLM"], vocab_size=64, hidden_size=32, n_layer=2, n_head=4,
             layer_norm_epsilon=1e-5, seq_length=128, apply_residual_connection_post_layernorm=False, tie_word_embeddings=True,
             bos_token_id=1, eos_token_id=2)
MPT = dict(model_type="mpt", architectures=["MptForCausalLM"], vocab_size=64, d_model=32, n_layers=2, n_heads=4, expansion_ratio=4,
           max_seq_len=128, layer_norm_epsilon=1e-5, no_bias=True, learned_pos_emb=True, norm_type="low_precision_layernorm",
           attn_config=dict(attn_type="multihead_attention", alibi=True, alibi_bias_max=8, clip_qkv=None, softmax_scale=None),
           bos_token_id=1, eos_token_id=2)
MIXTRAL = dict(MISTRAL, model_type="mixtral", architectures=["MixtralForCausalLM"], num_local_experts=6, num_experts_per_tok=2,
               rope_theta=1000000.0)
QWEN2_MOE = dict(QWEN2, model_type="qwen2_moe", architectures=["Qwen2MoeForCausalLM"], num_experts=7, num_experts_per_tok=3,
                 moe_intermediate_size=20, shared_expert_intermediate_size=28, norm_topk_prob=False, decoder_sparse_step=1,
                 mlp_only_layers=[])
QWEN3_MOE = dict(QWEN3, model_type="qwen3_moe", architectures=["Qwen3MoeForCausalLM"], num_experts=8, num_experts_per_tok=3,
                 moe_intermediate_size=24, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[])
DEEPSEEK_V3 = dict({k: v for k, v in BASE.items() if k != "head_dim"}, model_type="deepseek_v3",
                   architectures=["DeepseekV3ForCausalLM"], rms_norm_eps=1e-6, num_key_value_heads=4, moe_intermediate_size=20,
                   n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2, norm_topk_prob=True,
                   routed_scaling_factor=2.5, first_k_dense_replace=1, kv_lora_rank=16, q_lora_rank=12, qk_nope_head_dim=12,
                   qk_rope_head_dim=8, v_head_dim=10, attention_bias=False, num_nextn_predict_layers=0, topk_method="noaux_tc",
                   scoring_func="sigmoid", num_hidden_layers=3)
DEEPSEEK_V2 = {k: v for k, v in dict(DEEPSEEK_V3, model_type="deepseek_v2", architectures=["DeepseekV2ForCausalLM"],
               topk_method="greedy", scoring_func="softmax", norm_topk_prob=False, routed_scaling_factor=1.0, q_lora_rank=None,
               n_group=1, topk_group=1, n_shared_experts=2).items() if k != "num_nextn_predict_layers"}
GPT_OSS = dict(BASE, model_type="gpt_oss", architectures=["GptOssForCausalLM"], num_local_experts=6, num_experts_per_tok=2,
               sliding_window=7, swiglu_limit=7.0, rope_theta=150000.0, attention_bias=True, num_hidden_layers=3, intermediate_size=64)
MAMBA2 = dict(model_type="mamba2", architectures=["Mamba2ForCausalLM"], vocab_size=64, hidden_size=32, num_hidden_layers=2,
              num_heads=4, head_dim=16, state_size=12, expand=2, n_groups=1, conv_kernel=4, chunk_size=8, layer_norm_epsilon=1e-5,
              use_bias=False, use_conv_bias=True, hidden_act="silu", tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
QWEN3_NEXT = dict(BASE, model_type="qwen3_next", architectures=["Qwen3NextForCausalLM"], num_hidden_layers=4, head_dim=16,
                  attention_bias=False, rms_norm_eps=1e-6, partial_rotary_factor=0.25, full_attention_interval=4,
                  linear_conv_kernel_dim=4, linear_key_head_dim=8, linear_value_head_dim=12, linear_num_key_heads=2,
                  linear_num_value_heads=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=20,
                  shared_expert_intermediate_size=28, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[0, 2])
QWEN3_5 = {k: v for k, v in dict(QWEN3_NEXT, model_type="qwen3_5_text", architectures=["Qwen3_5ForCausalLM"]).items()
           if not any(word in k for word in ("expert", "moe", "sparse", "topk", "mlp_only"))}
GEMMA = {k: v for k, v in dict(BASE, model_type="gemma", architectures=["GemmaForCausalLM"], tie_word_embeddings=True, rms_norm_eps=1e-6,
         hidden_act="gelu_pytorch_tanh").items()}
QWEN3_5_MOE = {k: v for k, v in dict(QWEN3_NEXT, model_type="qwen3_5_moe_text", architectures=["Qwen3_5MoeForCausalLM"]).items()
               if k not in ("intermediate_size", "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers")}
QWEN2_VL = dict(QWEN2, model_type="qwen2_vl_text", rope_scaling=dict(type="mrope", mrope_section=[1, 1, 2]))
QWEN2_VL_VISION = dict(depth=1, embed_dim=8, num_heads=2, mlp_ratio=2, in_channels=3, patch_size=2, spatial_merge_size=1, temporal_patch_size=1)
QWEN3_VL = dict(QWEN3, model_type="qwen3_vl_text", rope_scaling=dict(rope_type="default", mrope_section=[2, 1, 1]))
QWEN3_VL_VISION = dict(depth=1, hidden_size=8, num_heads=2, intermediate_size=8, in_channels=3, patch_size=2, spatial_merge_size=1,
                       temporal_patch_size=1, out_hidden_size=32, num_position_embeddings=4, deepstack_visual_indexes=[])
QWEN3_VL_MOE = dict(QWEN3_VL, model_type="qwen3_vl_moe_text", num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
                    decoder_sparse_step=1, mlp_only_layers=[])
GLM = dict(GLM4, model_type="glm", architectures=["GlmForCausalLM"])
BALANCED = dict(BASE, num_hidden_layers=3, n_routed_experts=8, num_experts_per_tok=3, n_shared_experts=1, n_group=4, topk_group=2,
                moe_intermediate_size=20, norm_topk_prob=True, routed_scaling_factor=2.5, first_k_dense_replace=1, attention_bias=False)
GLM4_MOE = dict(BALANCED, model_type="glm4_moe", architectures=["Glm4MoeForCausalLM"], partial_rotary_factor=0.5, use_qk_norm=True,
                num_nextn_predict_layers=0)
DOTS1 = dict(BALANCED, model_type="dots1", architectures=["Dots1ForCausalLM"], sliding_window=None, max_window_layers=3)
SOLAR_OPEN = {k: v for k, v in dict(BALANCED, model_type="solar_open", architectures=["SolarOpenForCausalLM"]).items()
              if k not in ("intermediate_size", "first_k_dense_replace")}
GLM4_MOE_LITE = {k: v for k, v in dict(DEEPSEEK_V3, model_type="glm4_moe_lite", architectures=["Glm4MoeLiteForCausalLM"], rms_norm_eps=1e-3,
                 mlp_layer_types=["dense", "sparse", "sparse"]).items() if k not in ("topk_method", "scoring_func", "first_k_dense_replace")}
YOUTU = {k: v for k, v in dict(DEEPSEEK_V3, model_type="youtu", architectures=["YoutuForCausalLM"], rms_norm_eps=1e-3).items()
         if not any(word in k for word in ("expert", "moe", "topk", "group", "scoring", "routed", "first_k", "nextn"))}
MINISTRAL = dict(BASE, model_type="ministral", architectures=["MinistralForCausalLM"], sliding_window=7)
MINISTRAL3 = dict(BASE, model_type="ministral3", architectures=["Ministral3ForCausalLM"], sliding_window=None, head_dim=16,
                  rope_scaling=dict(type="yarn", rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=8, beta_fast=32.0, beta_slow=1.0,
                                    mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5))
SEED_OSS = dict(BASE, model_type="seed_oss", architectures=["SeedOssForCausalLM"], attention_bias=True, attention_out_bias=False, mlp_bias=False)
ERNIE4_5 = dict(BASE, model_type="ernie4_5", architectures=["Ernie4_5ForCausalLM"], use_bias=False, tie_word_embeddings=True)
ERNIE4_5_MOE = {k: v for k, v in dict(ERNIE4_5, model_type="ernie4_5_moe", architectures=["Ernie4_5_MoeForCausalLM"], num_hidden_layers=3,
                moe_num_experts=7, moe_k=2, moe_intermediate_size=20, moe_num_shared_experts=2, moe_layer_start_index=1,
                moe_layer_end_index=2, moe_layer_interval=1).items() if k != "head_dim"}
HELIUM = dict(BASE, model_type="helium", architectures=["HeliumForCausalLM"], attention_bias=False, mlp_bias=False)
CWM = dict(BASE, model_type="cwm", architectures=["CwmForCausalLM"], sliding_window=6, num_hidden_layers=4)
HUNYUAN = dict(BASE, model_type="hunyuan_v1_dense", architectures=["HunYuanDenseV1ForCausalLM"], attention_bias=False)
HUNYUAN_MOE = dict(HUNYUAN, model_type="hunyuan_v1_moe", architectures=["HunYuanMoEV1ForCausalLM"], num_experts=6, moe_topk=2, intermediate_size=24)
EXAONE4 = dict(BASE, model_type="exaone4", architectures=["Exaone4ForCausalLM"], sliding_window=6, sliding_window_pattern=4, num_hidden_layers=4)
COHERE2 = {k: v for k, v in dict(COHERE, model_type="cohere2", architectures=["Cohere2ForCausalLM"], sliding_window=6, num_hidden_layers=4,
           rope_theta=50000.0).items() if k != "use_qk_norm"}
OLMO = {k: v for k, v in dict(BASE, model_type="olmo", architectures=["OlmoForCausalLM"], attention_bias=False, clip_qkv=None).items()
        if k not in ("rms_norm_eps", "head_dim")}
OLMOE = {k: v for k, v in dict(BASE, model_type="olmoe", architectures=["OlmoeForCausalLM"], num_experts=7, num_experts_per_tok=3,
         intermediate_size=20, norm_topk_prob=False, attention_bias=False).items() if k != "head_dim"}
FLEX_OLMO = dict(OLMOE, model_type="flex_olmo", architectures=["FlexOlmoForCausalLM"], num_experts=4, num_experts_per_tok=2, pad_token_id=0)
ARCEE = dict(BASE, model_type="arcee", architectures=["ArceeForCausalLM"], hidden_act="relu2", attention_bias=False, mlp_bias=False)
NEMOTRON = {k: v for k, v in dict(ARCEE, model_type="nemotron", architectures=["NemotronForCausalLM"], norm_eps=1e-5,
            partial_rotary_factor=0.5).items() if k != "rms_norm_eps"}
JAIS2 = {k: v for k, v in dict(ARCEE, model_type="jais2", architectures=["Jais2ForCausalLM"], layer_norm_eps=1e-5, attention_bias=True,
         mlp_bias=True).items() if k != "rms_norm_eps"}
MINIMAX_M2 = dict(BASE, model_type="minimax_m2", architectures=["MiniMaxM2ForCausalLM"], num_local_experts=8, num_experts_per_tok=3,
                  intermediate_size=20, rotary_dim=4)
PHI = {k: v for k, v in dict(BASE, model_type="phi", architectures=["PhiForCausalLM"], hidden_act="gelu_new", layer_norm_eps=1e-5,
       partial_rotary_factor=0.5, num_key_value_heads=4, qk_layernorm=False).items() if k not in ("rms_norm_eps", "head_dim")}
STABLELM = {k: v for k, v in dict(BASE, model_type="stablelm", architectures=["StableLmForCausalLM"], layer_norm_eps=1e-5,
            partial_rotary_factor=0.25, use_qkv_bias=False, qk_layernorm=False, use_parallel_residual=False).items()
            if k not in ("rms_norm_eps", "head_dim")}
GPTJ = dict(model_type="gptj", architectures=["GPTJForCausalLM"], vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_inner=None, rotary_dim=4,
            n_positions=64, layer_norm_epsilon=1e-5, activation_function="gelu_new", tie_word_embeddings=False, bos_token_id=1, eos_token_id=2)
GPT_NEO = dict(model_type="gpt_neo", architectures=["GPTNeoForCausalLM"], vocab_size=64, hidden_size=32, num_layers=2, num_heads=4,
               attention_types=[[["global", "local"], 1]], window_size=6, max_position_embeddings=64, intermediate_size=None,
               layer_norm_epsilon=1e-5, activation_function="gelu_new", bos_token_id=1, eos_token_id=2)
GPT_BIGCODE = dict(GPT2, model_type="gpt_bigcode", architectures=["GPTBigCodeForCausalLM"], multi_query=True,
                   activation_function="gelu_pytorch_tanh")
OPT = dict(model_type="opt", architectures=["OPTForCausalLM"], vocab_size=64, hidden_size=32, ffn_dim=48, num_hidden_layers=2,
           num_attention_heads=4, max_position_embeddings=64, word_embed_proj_dim=32, do_layer_norm_before=True, enable_bias=True,
           activation_function="relu", bos_token_id=1, eos_token_id=2, pad_token_id=0)
VAULTGEMMA = dict(GEMMA2, model_type="vaultgemma", architectures=["VaultGemmaForCausalLM"])
GRANITE_SWA = dict(GRANITE, model_type="granite_swa", architectures=["GraniteSWAForCausalLM"], sliding_window=6, num_hidden_layers=4)
LFM2 = {k: v for k, v in dict(BASE, model_type="lfm2", architectures=["Lfm2ForCausalLM"], norm_eps=1e-5, conv_L_cache=3, conv_bias=False, num_hidden_layers=3,
        block_auto_adjust_ff_dim=True, block_multiple_of=16, block_ffn_dim_multiplier=1.2, layer_types=["conv", "full_attention", "conv"],
        tie_word_embeddings=True).items() if k not in ("rms_norm_eps", "head_dim", "hidden_act")}
LFM2_MOE = {k: v for k, v in dict(LFM2, model_type="lfm2_moe", architectures=["Lfm2MoeForCausalLM"], num_experts=6, num_experts_per_tok=2,
            moe_intermediate_size=20, num_dense_layers=1, norm_topk_prob=True, use_expert_bias=True, routed_scaling_factor=1.0).items() if not k.startswith("block")}
FALCON_H1 = {k: v for k, v in dict(BASE, model_type="falcon_h1", architectures=["FalconH1ForCausalLM"], mamba_d_ssm=48, mamba_n_heads=4, mamba_d_head=12,
             mamba_n_groups=2, mamba_d_state=9, mamba_d_conv=4, mamba_chunk_size=8, mamba_rms_norm=False).items() if k != "head_dim"}
# Weights that the rope cases share: a head size large enough for the bands of llama3 and yarn.
ROPE = dict(LLAMA, num_attention_heads=2, num_key_value_heads=1, head_dim=32, num_hidden_layers=2)
NO_SCALING = {"rope_scaling": None}


def case(name, base, change=None, *, style=4, dtype="bf16", shards=1, tokens=30, weights=None, gguf_type=None, without=(),
         norm=1.0, seed=None, whole=None):
  """whole: settings of a multimodal model, which `config` is the text_config of. norm: the mean of norm weights. style: 4 or 5, how transformers of that major version spells the config. weights: the case whose files are linked.
  seed: None: by the place in the list."""
  return dict(name=name, config={**base, **(change or {})}, whole=whole, style=style, dtype=dtype, shards=shards, tokens=tokens,
              weights=weights, gguf_type=gguf_type, without=without, norm=norm, seed=seed)


LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=32)
YARN = dict(type="yarn", factor=4.0, original_max_position_embeddings=32)
LONGROPE = dict(type="longrope", short_factor=[1.0, 1.1, 1.2, 1.3, 1.5, 1.7, 2.0, 2.2],
                long_factor=[1.5, 2.0, 3.0, 3.5, 4.0, 5.0, 6.0, 6.5])
CASES = [
    # Shapes.
    case("llama_gqa", LLAMA, dtype="f32", shards=3, gguf_type="F32"),
    case("llama_mha_tied", LLAMA, dict(num_key_value_heads=4, head_dim=16, tie_word_embeddings=True), style=5, dtype="f16",
         gguf_type="F16"),
    case("llama_one_kv_head", LLAMA, dict(num_key_value_heads=1, head_dim=24, rope_theta=500000.0), gguf_type="BF16",
         without=[{"rope_theta": 10000.0}]),
    case("llama_hidden60_hd20", LLAMA, dict(hidden_size=60, intermediate_size=84, num_attention_heads=3,
         num_key_value_heads=3, head_dim=None, vocab_size=67), style=5, tokens=29),
    case("llama_hidden36_hd48", LLAMA, dict(hidden_size=36, intermediate_size=44, num_attention_heads=3,
         num_key_value_heads=1, head_dim=48, vocab_size=71), dtype="f16"),
    case("llama_hd80", LLAMA, dict(hidden_size=33, num_attention_heads=3, num_key_value_heads=1, head_dim=80,
         num_hidden_layers=1), style=5),
    case("llama_hd128", LLAMA, dict(num_attention_heads=2, num_key_value_heads=1, head_dim=128, num_hidden_layers=1)),
    case("llama_hd6", LLAMA, dict(num_attention_heads=5, num_key_value_heads=5, head_dim=6, hidden_size=35,
         intermediate_size=37, vocab_size=65)),
    case("llama_bias", LLAMA, dict(attention_bias=True, mlp_bias=True, rms_norm_eps=1e-6), dtype="f16", shards=2,
         gguf_type="F16"),
    case("llama_eps", LLAMA, dict(rms_norm_eps=0.5), weights="llama_gqa", dtype="f32", without=[{"rms_norm_eps": 1e-5}]),
    case("smollm2", LLAMA, dict(hidden_size=48, num_attention_heads=6, num_key_value_heads=3, head_dim=None,
         tie_word_embeddings=True, rope_theta=100000.0), style=5, gguf_type="BF16"),
    # Rope scaling; `rope_plain` owns the weights.
    case("rope_plain", ROPE),
    case("rope_linear", ROPE, dict(rope_scaling=dict(type="linear", factor=4.0)), weights="rope_plain", gguf_type="BF16",
         without=[NO_SCALING]),
    case("rope_linear_v5", ROPE, dict(rope_scaling=dict(rope_type="linear", factor=2.5)), style=5, weights="rope_plain",
         without=[NO_SCALING]),
    case("rope_dynamic", ROPE, dict(rope_scaling=dict(type="dynamic", factor=2.0), max_position_embeddings=16),
         weights="rope_plain", without=[NO_SCALING]),
    case("rope_dynamic_v5", ROPE, dict(rope_scaling=dict(rope_type="dynamic", factor=3.0), max_position_embeddings=16),
         style=5, weights="rope_plain", tokens=37, without=[NO_SCALING]),
    case("rope_dynamic_short", ROPE, dict(rope_scaling=dict(rope_type="dynamic", factor=2.0), max_position_embeddings=16),
         weights="rope_plain", tokens=14),
    case("rope_llama3", ROPE, dict(rope_scaling=LLAMA3, rope_theta=500000.0), weights="rope_plain", gguf_type="BF16",
         without=[NO_SCALING, {"rope_scaling": dict(LLAMA3, original_max_position_embeddings=64)}]),
    case("rope_llama3_v5", ROPE, dict(rope_scaling=dict(LLAMA3, factor=4.0, high_freq_factor=3.0)), style=5,
         weights="rope_plain", without=[NO_SCALING]),
    case("rope_yarn", ROPE, dict(rope_scaling=YARN), weights="rope_plain", gguf_type="BF16",
         without=[NO_SCALING, {"rope_scaling": dict(YARN, attention_factor=1.0)}]),
    case("rope_yarn_attention_factor", ROPE, dict(rope_scaling=dict(YARN, attention_factor=0.8)), weights="rope_plain",
         without=[{"rope_scaling": YARN}]),
    case("rope_yarn_betas", ROPE, dict(rope_scaling=dict(YARN, rope_type="yarn", beta_fast=4.0, beta_slow=0.25)), style=5,
         weights="rope_plain", without=[{"rope_scaling": YARN}]),
    case("rope_yarn_untruncated", ROPE, dict(rope_scaling=dict(YARN, rope_type="yarn", truncate=False, beta_fast=3.0)),
         style=5, weights="rope_plain", without=[{"rope_scaling": dict(YARN, beta_fast=3.0)}]),
    case("rope_yarn_mscale", ROPE, dict(rope_scaling=dict(YARN, rope_type="yarn", mscale=1.5, mscale_all_dim=0.5)),
         style=5, weights="rope_plain", without=[{"rope_scaling": YARN}]),
    # Mistral.
    case("mistral_window", MISTRAL, dict(sliding_window=7), style=4, without=[{"sliding_window": None},
         {"sliding_window": 8}, {"sliding_window": 6}]),
    case("mistral_window1", MISTRAL, dict(sliding_window=1), style=5, weights="mistral_window", tokens=24,
         without=[{"sliding_window": 2}]),
    case("mistral_head_dim", MISTRAL, dict(num_attention_heads=2, num_key_value_heads=2, head_dim=28), dtype="f16",
         gguf_type="F16"),
    # Qwen2 and Qwen2.5.
    case("qwen2", QWEN2, dict(max_position_embeddings=64), dtype="f32", gguf_type="F32"),
    case("qwen2_tied_window", QWEN2, dict(use_sliding_window=True, sliding_window=5, max_window_layers=1,
         tie_word_embeddings=True, num_hidden_layers=3), without=[{"max_window_layers": 0}, {"max_window_layers": 2},
         {"use_sliding_window": False}]),
    case("qwen2_layer_types", QWEN2, dict(use_sliding_window=True, sliding_window=6, tie_word_embeddings=True,
         num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"]), style=5,
         weights="qwen2_tied_window", without=[{"layer_types": ["full_attention"] * 3}]),
    case("qwen2_yarn", QWEN2, dict(max_position_embeddings=64, rope_theta=1000000.0, rope_scaling=dict(
         type="yarn", factor=4.0, original_max_position_embeddings=32)), weights="qwen2", dtype="f32",
         without=[NO_SCALING]),
    # Qwen3.
    case("qwen3", QWEN3, dict(head_dim=24, tie_word_embeddings=True, rope_theta=1000000.0), style=4, gguf_type="BF16"),
    case("qwen3_bias_window", QWEN3, dict(head_dim=16, attention_bias=True, use_sliding_window=True, sliding_window=9,
         layer_types=["full_attention", "sliding_attention"]), style=5, dtype="f16", shards=2,
         without=[{"layer_types": ["full_attention"] * 2}]),
    # Gemma 3.
    case("gemma3", GEMMA3, dict(num_hidden_layers=6, sliding_window_pattern=6, vocab_size=61), gguf_type="BF16", norm=0,
         without=[{"sliding_window": 7}, {"rope_local_base_freq": 20000.0}, {"rope_theta": 10000.0},
                  {"query_pre_attn_scalar": 16}, {"sliding_window_pattern": 2}]),
    case("gemma3_scaled", GEMMA3, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=20,
         query_pre_attn_scalar=12, sliding_window=5, rope_scaling=dict(rope_type="linear", factor=8.0),
         layer_types=["full_attention", "sliding_attention", "full_attention"]), style=5, dtype="f16", norm=0,
         without=[NO_SCALING, {"layer_types": ["full_attention"] * 3}]),
    # Granite.
    case("granite", GRANITE, gguf_type="BF16", without=[{"embedding_multiplier": 1.0}, {"residual_multiplier": 1.0},
         {"attention_multiplier": 0.3}, {"logits_scaling": 1.0}]),
    case("granite_bias", GRANITE, dict(hidden_size=44, num_attention_heads=2, num_key_value_heads=2, attention_bias=True,
         mlp_bias=True, tie_word_embeddings=True, vocab_size=67), style=5, dtype="f16"),
    # SmolLM3.
    case("smollm3", SMOLLM3, gguf_type="BF16", without=[{"no_rope_layer_interval": 3}]),
    case("smollm3_listed", SMOLLM3, dict(no_rope_layers=[0, 1, 1], num_hidden_layers=3, hidden_size=60,
         num_attention_heads=3, num_key_value_heads=1, vocab_size=69), style=5, dtype="f16",
         without=[{"no_rope_layers": [1, 1, 1]}]),
    # OLMo 2 and 3.
    case("olmo2", OLMO2, gguf_type="BF16"),
    case("olmo2_hd14", OLMO2, dict(hidden_size=42, num_attention_heads=3, num_key_value_heads=3, vocab_size=71,
         tie_word_embeddings=True), style=5, dtype="f16"),
    case("olmo3", OLMO3, gguf_type="BF16", without=[{"sliding_window": 8}, {"layer_types": ["full_attention"] * 4}]),
    case("olmo3_yarn", OLMO3, dict(hidden_size=64, num_attention_heads=2, num_key_value_heads=1, num_hidden_layers=2,
         layer_types=["full_attention", "sliding_attention"], rope_scaling=dict(YARN, rope_type="yarn")), dtype="f16",
         gguf_type=None, without=[NO_SCALING, {"layer_types": ["sliding_attention", "full_attention"]}]),
    # Phi-3.
    case("phi3", PHI3, dict(sliding_window=9), gguf_type="BF16", without=[{"sliding_window": None}]),
    case("phi3_long", PHI3, dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=1, vocab_size=65,
         original_max_position_embeddings=24, rope_scaling=LONGROPE), dtype="f16", gguf_type="F16", tokens=31,
         without=[dict(rope_scaling=dict(LONGROPE, long_factor=[1.0] * 8))]),
    case("phi3_long_short", PHI3, dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=1, vocab_size=65,
         original_max_position_embeddings=24, rope_scaling=LONGROPE), dtype="f16", weights="phi3_long", tokens=20,
         without=[dict(rope_scaling=dict(LONGROPE, short_factor=[2.0] * 8))]),
    # GLM-4.
    case("glm4", GLM4, gguf_type="BF16", without=[{"partial_rotary_factor": 1.0}]),
    case("glm4_hd20", GLM4, dict(hidden_size=42, num_attention_heads=3, num_key_value_heads=1, head_dim=20, vocab_size=67,
         attention_bias=False, partial_rotary_factor=0.7), style=5, dtype="f16"),
    # Cohere.
    case("cohere", COHERE, gguf_type="BF16", without=[{"logit_scale": 0.5}, {"layer_norm_eps": 0.1}]),
    case("cohere_bias", COHERE, dict(hidden_size=66, num_attention_heads=3, num_key_value_heads=3, attention_bias=True,
         vocab_size=69), style=5, dtype="f16"),
    # StarCoder2.
    case("starcoder2", STARCODER2, gguf_type="BF16", without=[{"norm_epsilon": 0.1}]),
    case("starcoder2_window", STARCODER2, dict(hidden_size=42, num_attention_heads=3, num_key_value_heads=1, use_bias=False,
         tie_word_embeddings=False, vocab_size=71, sliding_window=6), style=5, dtype="f16",
         without=[{"sliding_window": None}]),
    # GPT-2.
    case("gpt2", GPT2, gguf_type="BF16", without=[{"layer_norm_epsilon": 0.1}]),
    case("gpt2_inner", GPT2, dict(n_embd=42, n_head=3, n_inner=58, vocab_size=67, n_positions=47), style=5, dtype="f16",
         tokens=39),
    # GPT-NeoX.
    case("gpt_neox", GPT_NEOX, dict(rotary_pct=0.5, rotary_emb_base=20000), gguf_type="BF16", without=[{"rotary_pct": 1.0},
         {"use_parallel_residual": False}, {"rotary_emb_base": 10000}]),
    case("gpt_neox_sequential", GPT_NEOX, dict(hidden_size=60, intermediate_size=44, num_attention_heads=3,
         partial_rotary_factor=0.3, use_parallel_residual=False, vocab_size=71), style=5, dtype="f16"),
    # Falcon.
    case("falcon", FALCON, dict(ffn_hidden_size=48), gguf_type="BF16", without=[{"layer_norm_epsilon": 0.1}]),
    case("falcon_grouped", FALCON, dict(hidden_size=60, num_attention_heads=6, num_kv_heads=2, vocab_size=67, bias=True,
         new_decoder_architecture=True), style=5, dtype="f16", gguf_type="F16"),
    # Gemma 2.
    case("gemma2", GEMMA2, dict(num_hidden_layers=3, vocab_size=69), gguf_type="BF16", norm=0, seed=3000,
         without=[{"sliding_window": 7}, {"attn_logit_softcapping": None}, {"final_logit_softcapping": None},
                  {"attn_logit_softcapping": 4.0}, {"query_pre_attn_scalar": 16}]),
    case("gemma2_listed", GEMMA2, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=20,
         query_pre_attn_scalar=12, sliding_window=5, attn_logit_softcapping=None, final_logit_softcapping=0.75,
         layer_types=["full_attention", "sliding_attention"]), style=5, dtype="f16", norm=0, seed=3010,
         without=[{"layer_types": ["full_attention"] * 2}, {"final_logit_softcapping": None}]),
    # Mixtures of experts.
    case("mixtral", MIXTRAL, gguf_type="BF16", tokens=24, seed=3000),
    case("mixtral_window", MIXTRAL, dict(num_local_experts=3, num_experts_per_tok=1, hidden_size=36, intermediate_size=33,
         num_attention_heads=3, num_key_value_heads=1, head_dim=None, vocab_size=67, sliding_window=7), style=5, dtype="f16",
         tokens=24, shards=2, seed=3100, without=[{"sliding_window": None}]),
    case("qwen2_moe", QWEN2_MOE, gguf_type="BF16", tokens=24, seed=3200, without=[{"norm_topk_prob": True}]),
    case("qwen2_moe_sparse", QWEN2_MOE, dict(num_hidden_layers=4, hidden_size=36, num_attention_heads=3,
         num_key_value_heads=1, intermediate_size=52, num_experts=5,
         num_experts_per_tok=5, moe_intermediate_size=17, shared_expert_intermediate_size=15, decoder_sparse_step=2,
         mlp_only_layers=[3], norm_topk_prob=True, tie_word_embeddings=True, vocab_size=69), style=5, dtype="f16", tokens=24,
         seed=3300),
    case("qwen3_moe", QWEN3_MOE, gguf_type="BF16", tokens=24, seed=3400, without=[{"norm_topk_prob": False}]),
    case("qwen3_moe_dense_layer", QWEN3_MOE, dict(num_hidden_layers=3, hidden_size=40, intermediate_size=37, num_experts=5,
         num_experts_per_tok=2, moe_intermediate_size=31, head_dim=14, mlp_only_layers=[1], norm_topk_prob=False,
         attention_bias=True, tie_word_embeddings=True, vocab_size=71), style=5, dtype="f16", tokens=24, seed=3500,
         without=[{"norm_topk_prob": True}]),
    case("deepseek_v3", DEEPSEEK_V3, gguf_type="BF16", tokens=24, seed=3600, without=[{"topk_group": 4},
         {"routed_scaling_factor": 1.0}, {"norm_topk_prob": False}]),
    case("deepseek_v3_yarn", DEEPSEEK_V3, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=3, n_routed_experts=6,
         n_group=2, topk_group=1, num_experts_per_tok=2, n_shared_experts=2, moe_intermediate_size=17, kv_lora_rank=27,
         q_lora_rank=19, qk_nope_head_dim=7, qk_rope_head_dim=6, v_head_dim=9, num_hidden_layers=2, attention_bias=True,
         vocab_size=67, rope_scaling=dict(YARN, mscale=1.0, mscale_all_dim=1.0)), dtype="f16", gguf_type="F16", tokens=24,
         seed=3700, without=[NO_SCALING, {"rope_scaling": YARN}]),
    case("deepseek_v2", DEEPSEEK_V2, gguf_type="BF16", tokens=24, seed=3800),
    case("deepseek_v2_groups", DEEPSEEK_V2, dict(topk_method="group_limited_greedy", n_group=4, topk_group=2, q_lora_rank=21,
         n_routed_experts=12, routed_scaling_factor=16.0, num_attention_heads=2, num_key_value_heads=2, kv_lora_rank=34,
         qk_nope_head_dim=16, qk_rope_head_dim=4, v_head_dim=15, num_hidden_layers=2, first_k_dense_replace=0, vocab_size=71,
         rope_scaling=dict(YARN, rope_type="yarn", mscale=0.7, mscale_all_dim=0.9)), style=5, dtype="f16", tokens=24, seed=3900,
         without=[NO_SCALING, {"topk_method": "greedy"}]),
    case("gpt_oss", GPT_OSS, dict(rope_scaling=dict(YARN, rope_type="yarn", truncate=False), layer_types=["sliding_attention",
         "full_attention", "sliding_attention"]), gguf_type="BF16", tokens=24, seed=4000, without=[NO_SCALING,
         {"sliding_window": 8}]),
    case("gpt_oss_clamped", GPT_OSS, dict(swiglu_limit=1.5), weights="gpt_oss", tokens=24, seed=4050,
         without=[{"swiglu_limit": 7.0}]),
    case("gpt_oss_hd20", GPT_OSS, dict(hidden_size=36, intermediate_size=23, num_attention_heads=3, num_key_value_heads=1,
         head_dim=20, num_local_experts=5, num_experts_per_tok=3, num_hidden_layers=2, vocab_size=67, tie_word_embeddings=True,
         swiglu_limit=2.5, rope_scaling=dict(YARN, rope_type="yarn", beta_fast=3.0)), style=5, dtype="f16", tokens=24, seed=4100,
         without=[NO_SCALING, {"layer_types": ["full_attention"] * 2}]),
    # Mamba-2. More tokens than two chunks of a scan; the short steps of some are remembered over all of them.
    case("mamba2", MAMBA2, gguf_type="BF16", tokens=70, seed=5000, without=[{"layer_norm_epsilon": 0.1}]),
    case("mamba2_groups", MAMBA2, dict(hidden_size=36, num_heads=6, head_dim=12, state_size=17, n_groups=3, vocab_size=67,
         time_step_limit=[0.01, 0.06], use_bias=True, use_conv_bias=False, tie_word_embeddings=True), style=5, dtype="f16",
         tokens=71, shards=2, seed=5100, without=[{"time_step_limit": [0.01, 0.5]}]),
    case("mamba2_hd20", MAMBA2, dict(hidden_size=30, num_heads=3, head_dim=20, state_size=33, conv_kernel=3,
         num_hidden_layers=3, n_groups=1, vocab_size=71), dtype="f32", gguf_type="F32", tokens=67, seed=5200),
    case("mamba2_two_groups", MAMBA2, dict(hidden_size=24, num_heads=4, head_dim=12, state_size=9, n_groups=2,
         num_hidden_layers=2, vocab_size=65), dtype="f16", gguf_type="F16", tokens=40, seed=5300),
    # Gated delta networks.
    case("qwen3_next", QWEN3_NEXT, gguf_type="BF16", tokens=40, norm=0, seed=5400, without=[{"full_attention_interval": 2},
         {"partial_rotary_factor": 0.5}, {"norm_topk_prob": False}]),
    case("qwen3_next_listed", QWEN3_NEXT, dict(num_hidden_layers=3, hidden_size=36, num_attention_heads=3, num_key_value_heads=1,
         head_dim=24, linear_key_head_dim=17, linear_value_head_dim=9, linear_num_key_heads=3, linear_num_value_heads=3,
         linear_conv_kernel_dim=3, mlp_only_layers=[0, 1], intermediate_size=44, num_experts=5, num_experts_per_tok=1, vocab_size=67,
         tie_word_embeddings=True, layer_types=["linear_attention", "full_attention", "linear_attention"]), style=5, dtype="f16",
         tokens=40, norm=0, seed=5500, without=[{"layer_types": ["full_attention"] * 2 + ["linear_attention"]}]),
    case("qwen3_5", QWEN3_5, dict(linear_num_value_heads=6), gguf_type="BF16", tokens=70, norm=0, seed=5600),
    case("qwen3_5_hd12", QWEN3_5, dict(num_hidden_layers=3, full_attention_interval=2, hidden_size=30, num_attention_heads=2,
         num_key_value_heads=2, head_dim=12, partial_rotary_factor=0.5, linear_key_head_dim=6, linear_value_head_dim=16, linear_num_key_heads=2,
         linear_num_value_heads=2, vocab_size=65), dtype="f16", tokens=35, norm=0, seed=5700),
    case("granite_hybrid", GRANITE_HYBRID, gguf_type="BF16", tokens=40, seed=5800, without=[{"layer_types": ["attention"] * 3},
         {"residual_multiplier": 1.0}, {"position_embedding_type": "rope"}]),
    case("granite_hybrid_dense", GRANITE_HYBRID, dict(layer_types=["attention"] * 2, position_embedding_type="rope", hidden_size=36,
         num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1, shared_intermediate_size=44, mamba_n_heads=6, mamba_d_head=12,
         vocab_size=67), style=5, dtype="f16", seed=5900, without=[{"position_embedding_type": None}]),
    case("granite_hybrid_moe", GRANITE_HYBRID, dict(num_local_experts=5, num_experts_per_tok=2, intermediate_size=20, vocab_size=65),
         gguf_type="BF16", tokens=40, seed=6050, without=[{"num_experts_per_tok": 3}]),
    case("granite_hybrid_moe_attention", GRANITE_HYBRID, dict(num_local_experts=4, num_experts_per_tok=1, intermediate_size=17,
         layer_types=["attention"] * 2, num_hidden_layers=2), dtype="f16", tokens=24, seed=6100),
    case("granite_moe", GRANITE_MOE, gguf_type="BF16", tokens=24, seed=6200, without=[{"residual_multiplier": 1.0},
         {"num_experts_per_tok": 2}]),
    case("granite_moe_shared", GRANITE_MOE, dict(model_type="granitemoeshared", architectures=["GraniteMoeSharedForCausalLM"],
         shared_intermediate_size=28, num_local_experts=6, num_experts_per_tok=2, hidden_size=36, intermediate_size=23,
         num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=3, vocab_size=67, tie_word_embeddings=True), style=5,
         dtype="f16", gguf_type="F16", tokens=24, seed=6300),
    # ALiBi: Falcon-RW, BLOOM and MPT.
    case("falcon_alibi", FALCON, dict(alibi=True, multi_query=False, parallel_attn=False, bias=True), tokens=40, seed=6400,
         without=[{"alibi": False}, {"layer_norm_epsilon": 0.1}]),
    case("falcon_alibi_six_heads", FALCON, dict(alibi=True, hidden_size=60, num_attention_heads=6, vocab_size=67), style=5,
         dtype="f16", tokens=40, seed=6500, without=[{"alibi": False}]),
    case("bloom", BLOOM, gguf_type="BF16", tokens=40, seed=6600, without=[{"layer_norm_epsilon": 0.1}]),
    case("bloom_three_heads", BLOOM, dict(hidden_size=42, n_head=3, vocab_size=67), style=5, dtype="f16", tokens=70, seed=6700),
    # transformers computes the slopes of MPT for an alibi_bias_max of 8, whatever the config says.
    case("mpt", MPT, gguf_type="BF16", tokens=40, seed=6800, without=[{"layer_norm_epsilon": 0.1}]),
    case("mpt_six_heads", MPT, dict(d_model=60, n_heads=6, vocab_size=67, attn_config=dict(MPT["attn_config"], softmax_scale=0.25)),
         style=5, dtype="f16", tokens=70, seed=6900, without=[{"attn_config": MPT["attn_config"]}]),
    # Families of transformers 5.24.
    case("gemma", GEMMA, gguf_type="BF16", norm=0, seed=7000),
    case("gemma_hd12", GEMMA, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=12, vocab_size=67, hidden_act="gelu",
         attention_bias=True), style=5, dtype="f16", norm=0, seed=7010),
    case("qwen3_5_moe", QWEN3_5_MOE, dict(num_experts=6), gguf_type="BF16", tokens=40, norm=0, seed=7020),
    case("qwen3_5_moe_bias", QWEN3_5_MOE, dict(num_hidden_layers=2, layer_types=["full_attention", "linear_attention"], hidden_size=36,
         num_attention_heads=3, num_key_value_heads=1, head_dim=12, partial_rotary_factor=0.5, vocab_size=67, attention_bias=True,
         tie_word_embeddings=True), style=5, dtype="f16", tokens=30, norm=0, seed=7030),
    case("qwen2_vl", QWEN2_VL, dict(max_position_embeddings=64), whole=dict(model_type="qwen2_vl", architectures=["Qwen2VLForConditionalGeneration"],
         vision_config=dict(QWEN2_VL_VISION, hidden_size=32)), seed=7040),
    case("qwen2_5_vl", QWEN2_VL, dict(model_type="qwen2_5_vl_text", hidden_size=36, num_attention_heads=3, num_key_value_heads=1, vocab_size=67,
         rope_scaling=dict(type="mrope", mrope_section=[2, 2, 2]), tie_word_embeddings=True), whole=dict(model_type="qwen2_5_vl",
         architectures=["Qwen2_5_VLForConditionalGeneration"], tie_word_embeddings=True, vision_config=dict(depth=1, hidden_size=8, num_heads=2, intermediate_size=8,
         in_channels=3, patch_size=2, spatial_merge_size=1, temporal_patch_size=1, out_hidden_size=36, window_size=4, fullatt_block_indexes=[0])),
         dtype="f16", seed=7050),
    case("qwen3_vl", QWEN3_VL, dict(head_dim=10, rope_scaling=dict(rope_type="default", mrope_section=[2, 2, 1])), whole=dict(model_type="qwen3_vl",
         architectures=["Qwen3VLForConditionalGeneration"], vision_config=QWEN3_VL_VISION), style=5, seed=7060),
    case("qwen3_vl_moe", QWEN3_VL_MOE, whole=dict(model_type="qwen3_vl_moe", architectures=["Qwen3VLMoeForConditionalGeneration"],
         vision_config=QWEN3_VL_VISION), style=5, dtype="f16", tokens=24, seed=7070),
    case("glm", GLM, gguf_type="BF16", seed=7080),
    case("glm4_moe", GLM4_MOE, gguf_type="BF16", tokens=24, seed=7090, without=[{"routed_scaling_factor": 1.0}, {"partial_rotary_factor": 1.0}]),
    case("glm4_moe_bias", GLM4_MOE, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=12, attention_bias=True,
         use_qk_norm=False, n_group=1, topk_group=1, n_routed_experts=5, n_shared_experts=2, first_k_dense_replace=2, norm_topk_prob=False, vocab_size=67),
         style=5, dtype="f16", tokens=24, seed=7100),
    case("dots1", DOTS1, gguf_type="BF16", tokens=24, seed=7110, without=[{"norm_topk_prob": False}]),
    case("dots1_window", DOTS1, dict(sliding_window=6, max_window_layers=1, hidden_size=36, num_attention_heads=3, num_key_value_heads=1, n_group=1,
         topk_group=1, n_shared_experts=2, attention_bias=True, vocab_size=69), style=5, dtype="f16", tokens=24, seed=7120,
         without=[{"max_window_layers": 2}]),
    case("solar_open", SOLAR_OPEN, tokens=24, seed=7130),
    case("glm4_moe_lite", GLM4_MOE_LITE, gguf_type="BF16", tokens=24, seed=7140),
    case("glm4_moe_lite_noq", GLM4_MOE_LITE, dict(q_lora_rank=None, num_hidden_layers=2, mlp_layer_types=["sparse", "sparse"], n_group=1, topk_group=1,
         hidden_size=36, num_attention_heads=3, num_key_value_heads=3, vocab_size=67, rms_norm_eps=1e-2), dtype="f16", tokens=24, seed=7150),
    case("youtu", YOUTU, seed=7160),
    case("deepseek_v3_eps", DEEPSEEK_V3, dict(rms_norm_eps=1e-2), tokens=24, seed=7170),
    case("ministral", MINISTRAL, gguf_type="BF16", seed=7180, without=[{"sliding_window": 8}]),
    case("ministral_listed", MINISTRAL, dict(num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "full_attention"], head_dim=14,
         num_attention_heads=3, num_key_value_heads=1, vocab_size=67), style=5, dtype="f16", seed=7190, without=[{"layer_types": ["sliding_attention"] * 3}]),
    case("ministral3", MINISTRAL3, gguf_type="BF16", seed=7195, without=[{"rope_scaling": dict(MINISTRAL3["rope_scaling"], llama_4_scaling_beta=0.0)}]),
    case("ministral3_window", MINISTRAL3, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, sliding_window=9, vocab_size=67,
         tie_word_embeddings=True), style=5, dtype="f16", seed=7196),
    case("seed_oss", SEED_OSS, gguf_type="BF16", seed=7200),
    case("seed_oss_biases", SEED_OSS, dict(attention_bias=False, attention_out_bias=True, mlp_bias=True, num_attention_heads=3, num_key_value_heads=1,
         head_dim=18, vocab_size=67, tie_word_embeddings=True), style=5, dtype="f16", seed=7210),
    case("ernie4_5", ERNIE4_5, gguf_type="BF16", seed=7220),
    case("ernie4_5_bias", ERNIE4_5, dict(use_bias=True, num_attention_heads=3, num_key_value_heads=1, head_dim=10, vocab_size=67,
         tie_word_embeddings=False), style=5, dtype="f16", seed=7230),
    case("ernie4_5_moe", ERNIE4_5_MOE, gguf_type="BF16", tokens=24, seed=7240),
    case("ernie4_5_moe_some", ERNIE4_5_MOE, dict(num_hidden_layers=4, moe_layer_interval=2, moe_layer_end_index=-1, moe_layer_start_index=0,
         moe_num_shared_experts=0, num_attention_heads=2, num_key_value_heads=1, tie_word_embeddings=False, vocab_size=67), style=5, dtype="f16", tokens=24, seed=7250),
    case("helium", HELIUM, dict(num_attention_heads=2, num_key_value_heads=1, head_dim=16, vocab_size=67), dtype="f16", seed=7260),
    case("cwm", CWM, dict(rope_scaling=LLAMA3), style=5, seed=7270, without=[{"sliding_window": 7}, {"layer_types": ["full_attention"] * 4}]),
    case("hunyuan_dense", HUNYUAN, gguf_type="BF16", seed=7280),
    case("hunyuan_dense_alpha", HUNYUAN, dict(head_dim=20, num_attention_heads=3, num_key_value_heads=1, attention_bias=True, tie_word_embeddings=True,
         vocab_size=67, rope_scaling=dict(type="dynamic", alpha=50.0, factor=1.0)), dtype="f16", seed=7290, without=[NO_SCALING]),
    case("hunyuan_moe", HUNYUAN_MOE, gguf_type="BF16", tokens=24, seed=7300),
    case("exaone4", EXAONE4, gguf_type="BF16", seed=7310, without=[{"layer_types": ["full_attention"] * 4}]),
    case("exaone4_full", EXAONE4, dict(sliding_window=None, layer_types=["full_attention"] * 2, num_hidden_layers=2, num_attention_heads=3, num_key_value_heads=1,
         head_dim=14, vocab_size=67, tie_word_embeddings=True), style=5, dtype="f16", seed=7320),
    case("cohere2", COHERE2, gguf_type="BF16", seed=7330, without=[{"sliding_window": 7}, {"logit_scale": 0.5}]),
    case("cohere2_listed", COHERE2, dict(num_hidden_layers=2, layer_types=["full_attention", "sliding_attention"], hidden_size=42, num_attention_heads=3,
         num_key_value_heads=1, attention_bias=True, vocab_size=67), style=5, dtype="f16", seed=7340),
    case("olmo", OLMO, gguf_type="BF16", seed=7350),
    case("olmo_bias", OLMO, dict(hidden_size=42, num_attention_heads=3, num_key_value_heads=1, attention_bias=True, tie_word_embeddings=True, vocab_size=67),
         style=5, dtype="f16", seed=7360),
    case("olmoe", OLMOE, gguf_type="BF16", tokens=24, seed=7370, without=[{"norm_topk_prob": True}]),
    case("flex_olmo", FLEX_OLMO, dict(hidden_size=42, num_attention_heads=3, num_key_value_heads=1, norm_topk_prob=True, vocab_size=67), dtype="f16",
         tokens=24, seed=7380),
    case("arcee", ARCEE, gguf_type="BF16", seed=7390),
    case("arcee_bias", ARCEE, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, head_dim=18, attention_bias=True, mlp_bias=True, vocab_size=67,
         tie_word_embeddings=True), style=5, dtype="f16", seed=7400),
    case("nemotron", NEMOTRON, gguf_type="BF16", norm=0, seed=7410, without=[{"partial_rotary_factor": 1.0}]),
    case("nemotron_bias", NEMOTRON, dict(num_attention_heads=3, num_key_value_heads=1, head_dim=12, partial_rotary_factor=1.0, attention_bias=True,
         mlp_bias=True, vocab_size=67), style=5, dtype="f16", norm=0, seed=7420),
    case("jais2", JAIS2, gguf_type="BF16", seed=7430),
    case("minimax_m2", MINIMAX_M2, gguf_type="BF16", tokens=24, seed=7440, without=[{"rotary_dim": 8}]),
    case("phi", PHI, gguf_type="BF16", seed=7450, without=[{"partial_rotary_factor": 1.0}]),
    case("phi_gelu", PHI, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, hidden_act="gelu", partial_rotary_factor=0.4, vocab_size=67),
         style=5, dtype="f16", seed=7460, without=[{"hidden_act": "relu"}]),
    case("stablelm", STABLELM, gguf_type="BF16", seed=7470),
    case("stablelm_parallel", STABLELM, dict(hidden_size=48, num_attention_heads=3, num_key_value_heads=1, use_parallel_residual=True, use_qkv_bias=True,
         partial_rotary_factor=0.5, vocab_size=67, tie_word_embeddings=True), dtype="f16", gguf_type="F16", seed=7480),
    case("gptj", GPTJ, seed=7490),
    case("gptj_inner", GPTJ, dict(n_embd=42, n_head=3, n_inner=50, rotary_dim=6, vocab_size=67), dtype="f16", seed=7500),
    case("gpt_neo", GPT_NEO, seed=7510, without=[{"window_size": 7}]),
    case("gpt_neo_inner", GPT_NEO, dict(hidden_size=42, num_heads=3, num_layers=3, attention_types=[[["local"], 1], [["global"], 2]], intermediate_size=50,
         vocab_size=67), dtype="f16", seed=7520),
    case("gpt_bigcode", GPT_BIGCODE, gguf_type="BF16", seed=7530),
    case("gpt_bigcode_heads", GPT_BIGCODE, dict(multi_query=False, n_embd=42, n_head=3, n_inner=50, vocab_size=67, scale_attn_weights=False), dtype="f16", seed=7540),
    case("opt", OPT, seed=7550),
    case("opt_gelu", OPT, dict(hidden_size=42, word_embed_proj_dim=42, num_attention_heads=3, enable_bias=False, activation_function="gelu", vocab_size=67), dtype="f16", seed=7560),
    case("vaultgemma", VAULTGEMMA, dict(num_hidden_layers=3), norm=0, seed=7570, without=[{"sliding_window": 7}]),
    case("granite_swa", GRANITE_SWA, seed=7580, without=[{"sliding_window": 7}]),
    case("granite_swa_listed", GRANITE_SWA, dict(num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
         layer_rope_theta=[20000.0, 0, 20000.0], hidden_size=36, num_attention_heads=3, num_key_value_heads=1, vocab_size=67), style=5, dtype="f16",
         seed=7590, without=[{"layer_rope_theta": [10000.0, 0, 10000.0]}]),
    case("lfm2", LFM2, gguf_type="BF16", tokens=40, seed=7650, without=[{"norm_eps": 0.1}]),
    case("lfm2_bias", LFM2, dict(conv_bias=True, conv_L_cache=4, hidden_size=42, num_attention_heads=3, num_key_value_heads=1, block_auto_adjust_ff_dim=False,
         vocab_size=67), style=5, dtype="f16", tokens=40, seed=7660),
    case("lfm2_moe", LFM2_MOE, gguf_type="BF16", tokens=24, seed=7670),
    case("lfm2_moe_scaled", LFM2_MOE, dict(use_expert_bias=False, norm_topk_prob=False, routed_scaling_factor=2.5, num_dense_layers=0, vocab_size=67), style=5,
         dtype="f16", tokens=24, seed=7680),
    case("falcon_h1", FALCON_H1, dict(mamba_rms_norm=True, mamba_norm_before_gate=False), gguf_type="BF16", tokens=40, seed=9001),
    case("falcon_h1_scaled", FALCON_H1, dict(hidden_size=36, num_attention_heads=3, num_key_value_heads=1, embedding_multiplier=3.0, lm_head_multiplier=0.5,
         mlp_multipliers=[0.7, 1.3], key_multiplier=0.6, attention_in_multiplier=1.2, attention_out_multiplier=0.8, ssm_in_multiplier=1.1,
         ssm_out_multiplier=0.9, ssm_multipliers=[0.7, 1.2, 0.8, 1.3, 0.6], vocab_size=67, attention_bias=True, mlp_bias=True, projectors_bias=True,
         mamba_proj_bias=True, mamba_rms_norm=True, mamba_norm_before_gate=True, tie_word_embeddings=True), style=5, dtype="f16", tokens=40, seed=7700, without=[{"ssm_multipliers": [1.0] * 5},
         {"key_multiplier": 1.0}]),
    case("phi_norms", PHI, dict(qk_layernorm=True, hidden_size=42, num_attention_heads=3, num_key_value_heads=1, vocab_size=67, partial_rotary_factor=0.3), dtype="f16",
         seed=7710),
    case("stablelm_norms", STABLELM, dict(qk_layernorm=True, hidden_size=48, num_attention_heads=3, num_key_value_heads=1, vocab_size=67), dtype="f16", seed=7720),
    # Settings of the older families.
    case("cohere_norms", COHERE, dict(use_qk_norm=True, hidden_size=42, num_attention_heads=3, num_key_value_heads=1, vocab_size=67), gguf_type="BF16", seed=7730),
    case("gemma3_cap", GEMMA3, dict(final_logit_softcapping=3.0), norm=0, seed=7600, without=[{"final_logit_softcapping": None}]),
    case("smollm3_window", SMOLLM3, dict(use_sliding_window=True, sliding_window=6), seed=7610, without=[{"use_sliding_window": False}]),
    case("starcoder2_gelu", STARCODER2, dict(hidden_act="gelu"), seed=7620, without=[{"hidden_act": "relu"}]),
    case("falcon_sequential", FALCON, dict(parallel_attn=False, bias=True), seed=7630),
    case("qwen3_next_bias", QWEN3_NEXT, dict(attention_bias=True, full_attention_interval=2, num_hidden_layers=2, mlp_only_layers=[0], vocab_size=67), tokens=30,
         norm=0, seed=7640),
]


def config_json(config, style, dtype):
  """The config as transformers 4 (rope_theta, rope_scaling, torch_dtype) or 5 (rope_parameters, dtype) writes it."""
  c = copy.deepcopy(config)
  scaling = c.pop("rope_scaling", None)
  if style == 5:
    if "rope_theta" not in c:
      pass  # learned positions
    elif "rope_local_base_freq" in c:  # settings of each type of layer
      c["rope_parameters"] = {"full_attention": {"rope_type": "default", **(scaling or {}), "rope_theta": c.pop("rope_theta")},
                              "sliding_attention": {"rope_type": "default", "rope_theta": c.pop("rope_local_base_freq")}}
    else:
      c["rope_parameters"] = {"rope_type": "default", **(scaling or {}), "rope_theta": c.pop("rope_theta")}
      if "partial_rotary_factor" in c:
        c["rope_parameters"]["partial_rotary_factor"] = c.pop("partial_rotary_factor")
      c["rope_parameters"].pop("type", None)
    c["dtype"] = DTYPES[dtype][0]
    c["transformers_version"] = "5.0.0"
  else:
    c["rope_scaling"] = scaling
    c["torch_dtype"] = DTYPES[dtype][0]
    c["transformers_version"] = "4.51.0"
  return c


@contextlib.contextmanager
def float32_means_float64():
  saved = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
  torch.float32 = torch.float = torch.float64
  torch.Tensor.float = torch.Tensor.double
  torch.set_default_dtype(torch.float64)
  try:
    yield
  finally:
    torch.float32, torch.float, torch.Tensor.float = saved[:3]
    torch.set_default_dtype(saved[3])


def logits_of(model, tokens):
  with torch.no_grad(), float32_means_float64():
    model = model.double()
    base = getattr(model.base_model, "language_model", model.base_model)
    if getattr(base, "rotary_emb", None) is not None:
      base.rotary_emb = type(base.rotary_emb)(base.config)
    for i, rotary in enumerate(getattr(base, "rotary_embs", [])):
      base.rotary_embs[i] = type(rotary)(rotary.config)
    out = model(torch.tensor([tokens]), use_cache=False).logits[0]
    assert out.dtype == saved_float64, out.dtype
    return out.numpy()


saved_float64 = torch.float64


def parameters_of(model):
  """Views of all parameters, and of the buffers that files have, by the names of published files, sorted. In memory transformers 5
  keeps the matrices of all experts together."""
  named = dict(model.named_parameters())
  named.update((n, b) for n, b in model.named_buffers() if n.endswith(("e_score_correction_bias", "expert_bias")))
  kind, found = model.config.model_type, {}
  for name, p in named.items():
    p = p.data
    experts, _, part = name.rpartition(".")
    if kind.startswith("granitemoe") and ".block_sparse_moe." in name:
      for own, published in (("router.", "router.layer."), ("experts.gate_up_proj", "input_linear.weight"),
                             ("experts.down_proj", "output_linear.weight")):
        name = name.replace(own, published)
      found[name] = p
      continue
    if kind == "ernie4_5_moe":
      name = name.replace("mlp.gate.moe_statics", "mlp.moe_statics")
    if kind in ("mixtral", "minimax_m2"):
      experts, name = (n.replace(".mlp.", ".block_sparse_moe.") for n in (experts, name))
    if kind == "qwen3_vl_moe" and experts.endswith(".experts"):
      found[name] = p.transpose(1, 2)
      continue
    if kind in ("gpt_oss", "qwen3_5_moe_text") or not experts.endswith(".experts"):
      found[name] = p
      continue
    gate, up, down = ("w1", "w3", "w2") if kind in ("mixtral", "minimax_m2", "lfm2_moe") else ("gate_proj", "up_proj", "down_proj")
    for e in range(p.shape[0]):
      if part == "down_proj":
        found[f"{experts}.{e}.{down}.weight"] = p[e]
      else:
        found[f"{experts}.{e}.{gate}.weight"], found[f"{experts}.{e}.{up}.weight"] = p[e].chunk(2)
  return dict(sorted(found.items()))


def shapes_of(model):
  return {name: tuple(p.shape) for name, p in parameters_of(model).items()}


def keeps_its_experts(model, tokens, noise):
  """Whether each token has the same experts when every parameter is off by `noise`, relative to its size: rounding then changes
  logits only a little. Models without experts keep theirs."""
  def chosen():
    found = []
    hooks = [m.register_forward_hook(lambda module, inputs, outputs: found.append(outputs[-1].sort(-1)[0]))
             for m in model.modules() if type(m).__name__.lower().endswith(("router", "moev1gate"))]
    model(torch.tensor([tokens]), use_cache=False)
    for hook in hooks:
      hook.remove()
    return found
  with torch.no_grad():
    before, generator = chosen(), torch.Generator().manual_seed(1)
    for _ in range(3 if before else 0):
      saved = {n: p.clone() for n, p in parameters_of(model).items()}
      for p in parameters_of(model).values():
        p += noise * p.abs().mean() * torch.randn(p.shape, generator=generator)
      after = chosen()
      for n, p in parameters_of(model).items():
        p.copy_(saved[n])
      if not all(torch.equal(a, b) for a, b in zip(before, after)):
        return False
  return True


def random_weights(model, rng, norm):
  """The values of weights.draw_numpy."""
  parameters = parameters_of(model)
  with torch.no_grad():
    for name, x in weights.draw_numpy(rng, shapes_of(model), norm):
      parameters[name].copy_(torch.from_numpy(x.astype(np.float32)))


def write_gguf(path, model, config, gguf_type, name):
  weights.write_gguf(path, {n: p.detach().float().numpy() for n, p in parameters_of(model).items()}, config, gguf_type, name)


def save_weights(folder, model, dtype, shards):
  tensors = {k: v.detach().to(DTYPES[dtype][1]).contiguous().clone() for k, v in parameters_of(model).items()}
  if shards == 1:
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return
  names, parts = list(tensors), [{} for _ in range(shards)]
  for i, n in enumerate(names):
    parts[i % shards][n] = tensors[n]  # neighbouring tensors go to different files on purpose
  weight_map = {}
  for i, part in enumerate(parts):
    file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
    save_file(part, folder / file, metadata={"format": "pt"})
    weight_map.update({n: file for n in part})
  total = sum(t.numel() * t.element_size() for t in tensors.values())
  index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
  (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


def open_model(folder):
  config = json.loads((folder / "config.json").read_text())
  # Falcon's eager attention adds ALiBi twice: to the scores, and with the mask (transformers 5.24).
  attention = "sdpa" if config.get("alibi") else "eager"
  kind = transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM
  model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention,
                               experts_implementation="eager")
  return model.eval()


kRoutingNoise = 4e-3  # what float16 and bfloat16 do to sums


def relative(a, b):
  return float(np.abs(a - b).max() / np.abs(b).max())


def make(c, seed):
  folder = HERE / c["name"]
  folder.mkdir(exist_ok=True)
  for old in folder.iterdir():
    old.unlink()
  rng = np.random.default_rng(seed)
  def write_config(where, config):
    written = config_json(config, c["style"], c["dtype"])
    if c["whole"]:
      written = dict(c["whole"], text_config={k: v for k, v in written.items() if k != "architectures"})
    (where / "config.json").write_text(json.dumps(written, indent=1) + "\n")
  write_config(folder, c["config"])
  shapes = None
  if c["weights"]:
    weights.write_files(HERE / c["weights"], folder)
    (folder / "model.gguf").unlink(missing_ok=True)  # the twin of the other case
    for index in (HERE / c["weights"]).glob("*.index.json"):
      (folder / index.name).symlink_to(os.path.join("..", c["weights"], index.name))
  else:
    config = transformers.AutoConfig.from_pretrained(folder)
    kind = transformers.AutoModelForImageTextToText if c["whole"] else transformers.AutoModelForCausalLM
    model = kind.from_config(config)
    random_weights(model, rng, c["norm"])
    shapes = shapes_of(model)
    save_weights(folder, model, c["dtype"], c["shards"])

  rng = np.random.default_rng(seed + 1)
  tokens = [1] + rng.integers(3, c["config"]["vocab_size"], c["tokens"] - 1).tolist()
  plain = open_model(folder)
  if not keeps_its_experts(plain, tokens, kRoutingNoise):
    return make(c, seed + 1)
  with torch.no_grad():
    float32 = plain(torch.tensor([tokens]), use_cache=False).logits[0].double().numpy()
  if c["gguf_type"]:
    write_gguf(folder / "model.gguf", plain, c["config"], c["gguf_type"], c["name"])
  logits = logits_of(plain, tokens)
  own = relative(float32, logits)
  assert own < 2e-5, (c["name"], own)
  moves = []
  for change in c["without"]:
    write_config(folder, {**c["config"], **change})
    moves.append(relative(logits_of(open_model(folder), tokens), logits))
    assert moves[-1] > 1e-3, (c["name"], change, moves[-1])
  write_config(folder, c["config"])
  (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
  np.save(folder / "logits.npy", logits.astype(np.float32))
  files = sorted(path.name for path in folder.glob("model*.safetensors"))
  if c["weights"]:
    weights.describe_link(folder, "../" + c["weights"], files, c["gguf_type"])
  else:
    weights.describe(folder, files, c["dtype"], ["numpy", seed] + (["norm", c["norm"]] if c["norm"] != 1 else []), shapes, gguf_type=c["gguf_type"])
  print(f"{c['name']:28} float32 of transformers off by {own:.1e}; without: {' '.join(f'{m:.1e}' for m in moves)}")


RANDOM_TYPES = ("f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs iq3_s tq1_0 tq2_0 mxfp4").split()


def make_random(redline):
  """The same of the engine's own random:tiny:TYPE, whose weights are a function of the name and need not be stored."""
  with tempfile.TemporaryDirectory() as source:
    for name in RANDOM_TYPES:
      subprocess.run([redline, "bench", "--random", f"tiny:{name}", "--save", f"{source}/tiny-{name}.gguf", "--prefill", "8",
                      "--decode", "1", "--repeat", "1"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    make_quant(pathlib.Path(source), HERE / "random", last=2)


def make_quant(source, folder=HERE / "quant", last=5):
  """Logits of the tiny model in every weight type: transformers on the weights as the gguf package unpacks them."""
  folder.mkdir(exist_ok=True)
  tokens = [1] + np.random.default_rng(99).integers(3, 512, 23).tolist()
  rows = {}
  for path in sorted(source.glob("tiny-*.gguf")):
    reader = gguf.GGUFReader(path)
    field = lambda k: reader.fields[f"llama.{k}"].contents()
    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=field("embedding_length"), intermediate_size=field("feed_forward_length"),
        num_hidden_layers=field("block_count"), num_attention_heads=field("attention.head_count"),
        num_key_value_heads=field("attention.head_count_kv"), rms_norm_eps=field("attention.layer_norm_rms_epsilon"),
        rope_theta=field("rope.freq_base") if "llama.rope.freq_base" in reader.fields else 10000.0,
        tie_word_embeddings=not any(t.name == "output.weight" for t in reader.tensors), attn_implementation="eager")
    model = transformers.LlamaForCausalLM(config).eval()
    values = {t.name: np.array(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32) for t in reader.tensors}
    with torch.no_grad():
      for n, p in model.named_parameters():
        x = values.pop(weights.gguf_name(n))
        if "q_proj" in n or "k_proj" in n:
          heads = config.num_attention_heads if "q_proj" in n else config.num_key_value_heads
          d = x.shape[0] // heads
          x = x.reshape(heads, d // 2, 2, -1).swapaxes(1, 2).reshape(x.shape)
        p.copy_(torch.from_numpy(np.ascontiguousarray(x)))
    assert not values, values.keys()
    logits = logits_of(model, tokens)[-last:]
    name = path.stem.removeprefix("tiny-")
    rows[name] = logits
    np.save(folder / f"{name}.npy", logits.astype(np.float32))
  (folder / "tokens.json").write_text(json.dumps(tokens) + "\n")
  for name, logits in rows.items():
    print(f"quant {name:10} differs from F32 by {relative(logits, rows.get('F32', rows.get('f32'))):.2e}")


def main():
  p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  p.add_argument("names", nargs="*", help="cases to make; default: all")
  p.add_argument("--quant", type=pathlib.Path, help="folder with tiny-*.gguf: make tests/golden/quant instead")
  p.add_argument("--random", help="a built redline: make tests/golden/random, logits of its random models, instead")
  args = p.parse_args()
  if transformers.__version__ != TRANSFORMERS:
    p.error(f"transformers {transformers.__version__}: install {TRANSFORMERS}")
  transformers.logging.set_verbosity_error()
  transformers.logging.disable_progress_bar()
  torch.set_num_threads(1)
  if args.quant:
    return make_quant(args.quant)
  if args.random:
    return make_random(args.random)
  for i, c in enumerate(CASES):
    if not args.names or c["name"] in args.names:
      make(c, c["seed"] or 1000 + 10 * i)


if __name__ == "__main__":
  sys.exit(main())
