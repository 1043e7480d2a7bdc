"""ctypes declarations of the C interface. Written by python/generate_c_api.py from include/redline/c_api.h."""
# ruff: noqa
from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64, c_size_t,
                    c_uint8, c_uint64, c_void_p)
from typing import Any

VERSION_MAJOR = 0
VERSION_MINOR = 1
VERSION_PATCH = 0
OK = 0
INVALID_ARGUMENT = 1
NOT_FOUND = 2
UNSUPPORTED = 3
OUT_OF_MEMORY = 4
CANCELLED = 5
IO = 6
INTERNAL = 7
FINISH_NONE = -1
FINISH_STOP = 0
FINISH_LENGTH = 1
FINISH_CANCELLED = 2
FINISH_CONTEXT = 3
FINISH_TIMEOUT = 4
NEXT_PIECE = 1
NEXT_TIMEOUT = 2
NEXT_END = 3


class redline_runtime_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("threads", c_int32),
        ("trace_file", c_char_p),
    ]


class redline_adapter(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("path", c_char_p),
        ("weight", c_double),
    ]


class redline_adapter_weight(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("weight", c_double),
    ]


class redline_model_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("runtime", c_void_p),
        ("threads", c_int32),
        ("device", c_char_p),
        ("dtype", c_char_p),
        ("context", c_int64),
        ("max_batch_tokens", c_int64),
        ("max_sequences", c_int64),
        ("max_prefill_tokens", c_int64),
        ("max_slowdown", c_double),
        ("cache_tokens", c_int64),
        ("cache_memory", c_int64),
        ("prefix_cache", c_int32),
        ("cache_folder", c_char_p),
        ("cache_folder_bytes", c_int64),
        ("batch_invariant", c_int32),
        ("use_interpreter", c_int32),
        ("trace_file", c_char_p),
        ("chat_template", c_char_p),
        ("adapters", POINTER(redline_adapter)),
        ("num_adapters", c_size_t),
        ("max_adapter_rank", c_int64),
        ("on_notice", CFUNCTYPE(None, c_char_p, c_void_p)),
        ("user_data", c_void_p),
        ("gpu_layers", c_int64),
    ]


class redline_model_info(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("vocab_size", c_int64),
        ("context", c_int64),
        ("hidden_size", c_int64),
        ("num_layers", c_int64),
        ("max_batch_tokens", c_int64),
        ("max_batch_sequences", c_int64),
        ("max_batch_logit_rows", c_int64),
        ("has_tokenizer", c_int32),
        ("has_chat_template", c_int32),
        ("threads", c_int32),
    ]


class redline_generate_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("max_tokens", c_int64),
        ("temperature", c_float),
        ("top_p", c_float),
        ("top_k", c_int64),
        ("min_p", c_float),
        ("repetition_penalty", c_float),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("has_seed", c_int32),
        ("seed", c_uint64),
        ("stop", POINTER(c_char_p)),
        ("num_stop", c_size_t),
        ("ignore_eos", c_int32),
        ("skip_special_tokens", c_int32),
        ("add_bos", c_int32),
        ("parse_special", c_int32),
        ("logprobs", c_int32),
        ("logit_bias_tokens", POINTER(c_int32)),
        ("logit_bias_values", POINTER(c_float)),
        ("num_logit_bias", c_size_t),
        ("bad_words", POINTER(c_char_p)),
        ("num_bad_words", c_size_t),
        ("json_schema", c_char_p),
        ("regex", c_char_p),
        ("grammar", c_char_p),
        ("choices", POINTER(c_char_p)),
        ("num_choices", c_size_t),
        ("tool_calls", c_char_p),
        ("parallel_tool_calls", c_int32),
        ("adapters", POINTER(redline_adapter_weight)),
        ("num_adapters", c_size_t),
        ("priority", c_int32),
        ("timeout_ms", c_double),
        ("client", c_char_p),
        ("cache_salt", c_char_p),
        ("penalty_last_n", c_int64),
        ("typical_p", c_float),
        ("top_n_sigma", c_float),
        ("xtc_probability", c_float),
        ("xtc_threshold", c_float),
        ("dry_multiplier", c_float),
        ("dry_base", c_float),
        ("dry_allowed_length", c_int64),
        ("dry_penalty_last_n", c_int64),
        ("dry_sequence_breakers", POINTER(c_char_p)),
        ("num_dry_sequence_breakers", c_size_t),
        ("mirostat", c_int32),
        ("mirostat_tau", c_float),
        ("mirostat_eta", c_float),
        ("dynatemp_range", c_float),
        ("dynatemp_exponent", c_float),
        ("samplers", POINTER(c_char_p)),
        ("num_samplers", c_size_t),
        ("min_tokens", c_int64),
        ("stop_token_ids", POINTER(c_int32)),
        ("num_stop_token_ids", c_size_t),
    ]


class redline_prompt(Structure):
    _fields_ = [
        ("text", c_char_p),
        ("length", c_size_t),
        ("tokens", POINTER(c_int32)),
        ("num_tokens", c_size_t),
    ]


class redline_token_logprob(Structure):
    _fields_ = [
        ("token", c_int32),
        ("logprob", c_float),
    ]


class redline_piece(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("index", c_size_t),
        ("text", c_void_p),
        ("length", c_size_t),
        ("token", c_int32),
        ("logprob", c_float),
        ("top", POINTER(redline_token_logprob)),
        ("num_top", c_size_t),
        ("is_last", c_int32),
    ]


class redline_completion(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("text", c_void_p),
        ("length", c_size_t),
        ("tokens", POINTER(c_int32)),
        ("num_tokens", c_size_t),
        ("finish_reason", c_int32),
        ("seed", c_uint64),
        ("prompt_tokens", c_int64),
        ("cached_tokens", c_int64),
        ("first_token_ms", c_double),
        ("prefill_ms", c_double),
        ("decode_ms", c_double),
        ("decode_tokens", c_int64),
        ("logprobs", POINTER(c_float)),
        ("top", POINTER(redline_token_logprob)),
        ("top_offsets", POINTER(c_size_t)),
    ]

redline_on_step = CFUNCTYPE(c_int32, c_void_p)


class redline_logits_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("adapters", POINTER(redline_adapter_weight)),
        ("num_adapters", c_size_t),
        ("canceller", c_void_p),
        ("on_step", redline_on_step),
        ("user_data", c_void_p),
    ]


class redline_batch_entry(Structure):
    _fields_ = [
        ("sequence", c_void_p),
        ("tokens", POINTER(c_int32)),
        ("num_tokens", c_size_t),
        ("logits", POINTER(c_float)),
        ("num_rows", c_size_t),
    ]


class redline_float_array(Structure):
    _fields_ = [
        ("data", POINTER(c_float)),
        ("shape", POINTER(c_int64)),
        ("num_axes", c_size_t),
    ]


class redline_embedding_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("runtime", c_void_p),
        ("threads", c_int32),
        ("device", c_char_p),
        ("dtype", c_char_p),
        ("pooling", c_char_p),
        ("max_length", c_int64),
        ("max_batch_tokens", c_int64),
        ("use_interpreter", c_int32),
        ("trace_file", c_char_p),
    ]


class redline_embed_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompt_name", c_char_p),
        ("truncate", c_int32),
        ("normalize", c_int32),
        ("dimensions", c_int64),
        ("canceller", c_void_p),
        ("on_step", redline_on_step),
        ("user_data", c_void_p),
    ]


class redline_image_pipeline_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("runtime", c_void_p),
        ("threads", c_int32),
        ("device", c_char_p),
        ("dtype", c_char_p),
        ("max_side", c_int64),
        ("max_batch", c_int64),
        ("front_blocks", c_int64),
        ("tail_blocks", c_int64),
        ("vae_tile", c_int64),
        ("use_interpreter", c_int32),
        ("transformer_file", c_char_p),
        ("step_cache_file", c_char_p),
        ("vae_folder", c_char_p),
        ("trace_file", c_char_p),
        ("adapters", POINTER(redline_adapter)),
        ("num_adapters", c_size_t),
        ("max_adapter_rank", c_int64),
    ]


class redline_image(Structure):
    _fields_ = [
        ("width", c_int64),
        ("height", c_int64),
        ("rgb", POINTER(c_uint8)),
    ]


class redline_image_progress(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("step", c_int64),
        ("steps", c_int64),
        ("step_ms", c_double),
        ("computed", c_int64),
        ("latents", redline_float_array),
        ("sigma", c_double),
        ("next_sigma", c_double),
        ("preview", c_void_p),
    ]

redline_on_image_step = CFUNCTYPE(c_int32, POINTER(redline_image_progress), c_void_p)


class redline_image_request(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prompts", POINTER(c_char_p)),
        ("num_prompts", c_size_t),
        ("negative_prompt", c_char_p),
        ("width", c_int64),
        ("height", c_int64),
        ("num_inference_steps", c_int64),
        ("guidance_scale", c_double),
        ("true_cfg_scale", c_double),
        ("guidance_begin", c_double),
        ("guidance_end", c_double),
        ("split_guidance", c_int32),
        ("max_sequence_length", c_int64),
        ("num_images", c_int64),
        ("has_seed", c_int32),
        ("seed", c_uint64),
        ("seed_each", c_int32),
        ("scheduler", c_char_p),
        ("cache", c_char_p),
        ("quality", c_double),
        ("steps_budget", c_int64),
        ("init_noise", POINTER(redline_float_array)),
        ("prompt_embeds", POINTER(redline_float_array)),
        ("pooled_embeds", POINTER(redline_float_array)),
        ("init_image", POINTER(redline_image)),
        ("mask", POINTER(redline_image)),
        ("strength", c_double),
        ("keep_unmasked", c_int32),
        ("keep_latents", c_int32),
        ("canceller", c_void_p),
        ("on_step", redline_on_image_step),
        ("on_wait", redline_on_step),
        ("user_data", c_void_p),
        ("negative_prompt_embeds", POINTER(redline_float_array)),
        ("negative_pooled_embeds", POINTER(redline_float_array)),
        ("skip_decode", c_int32),
    ]


class redline_tensor(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("dtype", c_char_p),
        ("shape", POINTER(c_int64)),
        ("num_axes", c_size_t),
        ("data", c_void_p),
    ]


class redline_network_options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("runtime", c_void_p),
        ("threads", c_int32),
        ("device", c_char_p),
        ("dtype", c_char_p),
        ("max_batch", c_int64),
        ("max_latent_side", c_int64),
        ("max_text_tokens", c_int64),
        ("front_blocks", c_int64),
        ("tail_blocks", c_int64),
        ("max_adapter_rank", c_int64),
        ("vae_tile", c_int64),
    ]


class redline_network_output(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("data", POINTER(c_float)),
        ("num_floats", c_size_t),
    ]


class redline_network_step(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("context", c_char_p),
        ("step", c_int64),
        ("steps", c_int64),
        ("sigma", c_double),
        ("next_sigma", c_double),
        ("step_size", c_double),
        ("timesteps", POINTER(c_double)),
        ("num_timesteps", c_size_t),
    ]


class redline_adapter_pair(Structure):
    _fields_ = [
        ("adapter", c_char_p),
        ("module", c_char_p),
        ("down", redline_tensor),
        ("up", redline_tensor),
        ("scale", c_double),
    ]

redline_on_piece = CFUNCTYPE(c_int32, POINTER(redline_piece), c_void_p)


# Name, result, arguments.
FUNCTIONS: list[tuple[str, Any, list[Any]]] = [
    ("redline_version", c_char_p, []),
    ("redline_version_number", c_int32, []),
    ("redline_code_name", c_char_p, [c_int32]),
    ("redline_error_code", c_int32, [c_void_p]),
    ("redline_error_message", c_char_p, [c_void_p]),
    ("redline_error_free", None, [c_void_p]),
    ("redline_free", None, [c_void_p]),
    ("redline_canceller_create", c_int32, [c_void_p, c_void_p]),
    ("redline_canceller_cancel", None, [c_void_p]),
    ("redline_canceller_reset", None, [c_void_p]),
    ("redline_canceller_release", None, [c_void_p]),
    ("redline_devices", c_int32, [c_void_p, c_void_p]),
    ("redline_runtime_options_init", None, [c_void_p, c_size_t]),
    ("redline_runtime_open", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_runtime_retain", c_void_p, [c_void_p]),
    ("redline_runtime_release", None, [c_void_p]),
    ("redline_runtime_threads", c_int32, [c_void_p]),
    ("redline_model_options_init", None, [c_void_p, c_size_t]),
    ("redline_model_open", c_int32, [c_char_p, c_void_p, c_void_p, c_void_p]),
    ("redline_model_retain", c_void_p, [c_void_p]),
    ("redline_model_release", None, [c_void_p]),
    ("redline_model_get_info", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_model_describe", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_model_encode", c_int32, [c_void_p, c_char_p, c_size_t, c_int32, c_int32, c_void_p, c_void_p, c_void_p]),
    ("redline_model_decode", c_int32, [c_void_p, c_void_p, c_size_t, c_int32, c_void_p, c_void_p, c_void_p]),
    ("redline_model_render_chat", c_int32, [c_void_p, c_char_p, c_char_p, c_char_p, c_int32, c_void_p, c_void_p, c_void_p]),
    ("redline_chat_reader_open", c_int32, [c_void_p, c_char_p, c_size_t, c_char_p, c_void_p, c_void_p]),
    ("redline_chat_reader_push", c_int32, [c_void_p, c_char_p, c_size_t, c_int32, c_void_p, c_void_p]),
    ("redline_chat_reader_release", None, [c_void_p]),
    ("redline_model_load_adapter", c_int32, [c_void_p, c_char_p, c_char_p, c_void_p]),
    ("redline_model_unload_adapter", c_int32, [c_void_p, c_char_p, c_void_p]),
    ("redline_text_adapter_rank", c_int32, [c_char_p, c_void_p, c_void_p]),
    ("redline_generate_options_init", None, [c_void_p, c_size_t, c_void_p]),
    ("redline_finish_reason_name", c_char_p, [c_int32]),
    ("redline_submit", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_void_p]),
    ("redline_generate", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_void_p]),
    ("redline_generation_next", c_int32, [c_void_p, c_double, c_void_p, c_void_p, c_void_p]),
    ("redline_generation_wait", c_int32, [c_void_p, c_double, c_void_p, c_void_p]),
    ("redline_generation_cancel", None, [c_void_p]),
    ("redline_generation_cancel_prompt", None, [c_void_p, c_size_t]),
    ("redline_generation_count", c_size_t, [c_void_p]),
    ("redline_generation_release", None, [c_void_p]),
    ("redline_generation_completion", c_int32, [c_void_p, c_size_t, c_void_p, c_void_p]),
    ("redline_logits_options_init", None, [c_void_p, c_size_t]),
    ("redline_model_logits", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p]),
    ("redline_sequence_open", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p]),
    ("redline_sequence_append", c_int32, [c_void_p, c_void_p, c_size_t, c_size_t, c_void_p, c_size_t, c_void_p]),
    ("redline_sequence_length", c_int64, [c_void_p]),
    ("redline_sequence_truncate", c_int32, [c_void_p, c_int64, c_void_p, c_void_p]),
    ("redline_sequence_fork", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_sequence_release", None, [c_void_p]),
    ("redline_model_run_batch", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p]),
    ("redline_embedding_options_init", None, [c_void_p, c_size_t]),
    ("redline_embedding_model_open", c_int32, [c_char_p, c_void_p, c_void_p, c_void_p]),
    ("redline_embedding_model_retain", c_void_p, [c_void_p]),
    ("redline_embedding_model_release", None, [c_void_p]),
    ("redline_embedding_model_describe", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_embedding_model_dimensions", c_int64, [c_void_p]),
    ("redline_is_embedding_model", c_int32, [c_char_p]),
    ("redline_embed_options_init", None, [c_void_p, c_size_t]),
    ("redline_embed", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p]),
    ("redline_embed_tokens", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p]),
    ("redline_token_states_of", redline_float_array, [c_void_p, c_size_t]),
    ("redline_token_states_release", None, [c_void_p]),
    ("redline_rank", c_int32, [c_void_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p, c_void_p]),
    ("redline_image_pipeline_options_init", None, [c_void_p, c_size_t]),
    ("redline_image_pipeline_open", c_int32, [c_char_p, c_void_p, c_void_p, c_void_p]),
    ("redline_image_pipeline_retain", c_void_p, [c_void_p]),
    ("redline_image_pipeline_release", None, [c_void_p]),
    ("redline_image_pipeline_describe", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_image_pipeline_load_adapter", c_int32, [c_void_p, c_char_p, c_char_p, c_void_p]),
    ("redline_image_pipeline_set_adapters", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p]),
    ("redline_step_cache_rules", c_int32, [c_void_p, c_void_p]),
    ("redline_image_adapter_rank", c_int32, [c_char_p, c_void_p, c_void_p]),
    ("redline_image_preview", c_int32, [c_void_p, c_int64, c_int64, c_void_p, c_void_p, c_void_p, c_void_p]),
    ("redline_image_request_init", None, [c_void_p, c_size_t, c_void_p]),
    ("redline_image_generate", c_int32, [c_void_p, c_void_p, c_void_p, c_void_p]),
    ("redline_image_result_count", c_size_t, [c_void_p]),
    ("redline_image_result_image", redline_image, [c_void_p, c_size_t]),
    ("redline_image_result_latents", redline_float_array, [c_void_p]),
    ("redline_image_result_seed", c_uint64, [c_void_p]),
    ("redline_image_result_describe", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_image_result_release", None, [c_void_p]),
    ("redline_image_encode_prompts", c_int32, [c_void_p, c_void_p, c_size_t, c_int64, c_void_p, c_void_p]),
    ("redline_prompt_embeds_text", redline_float_array, [c_void_p]),
    ("redline_prompt_embeds_pooled", redline_float_array, [c_void_p]),
    ("redline_prompt_embeds_describe", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_prompt_embeds_release", None, [c_void_p]),
    ("redline_image_decode", c_int32, [c_void_p, c_void_p, c_void_p, c_void_p]),
    ("redline_save_png", c_int32, [c_char_p, c_void_p, c_void_p]),
    ("redline_network_options_init", None, [c_void_p, c_size_t]),
    ("redline_network_open", c_int32, [c_char_p, c_char_p, c_void_p, c_size_t, c_void_p, c_void_p, c_void_p]),
    ("redline_network_retain", c_void_p, [c_void_p]),
    ("redline_network_release", None, [c_void_p]),
    ("redline_network_describe", c_int32, [c_void_p, c_void_p, c_void_p]),
    ("redline_network_step_init", None, [c_void_p, c_size_t]),
    ("redline_network_run", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p]),
    ("redline_network_set_adapters", c_int32, [c_void_p, c_void_p, c_size_t, c_void_p]),
    ("redline_network_set_cache", c_int32, [c_void_p, c_char_p, c_double, c_int64, c_void_p]),
]
