// Flags of llama.cpp, ollama and stable-diffusion.cpp that have no equivalent here. Flags with an equivalent are
// aliases of that option (cli/options.h).
#pragma once

#include <fmt/format.h>

#include "cli/options.h"

namespace redline::cli {

/// Adds flags of llama.cpp's programs that concern the engine.
inline void add_text_engine_peers(OptionList& v) {
  using Kind = ForeignFlags::Kind;
  v.foreign({.kind = Kind::kIgnored,
             .names = {"-ngl", "--n-gpu-layers", "-sm", "--split-mode", "-ts", "--tensor-split", "-mg", "--main-gpu",
                       "-dev", "--device"},
             .takes_value = true,
             .answer = "a GPU runs the layers that fit and are faster there, the first N with --gpu-layers N, none "
                       "with --device cpu"});
  v.foreign({.kind = Kind::kImplied, .names = {"-fa", "--flash-attn"}, .values = {"on", "off", "auto", "0", "1"}});
  v.foreign(
      {.kind = Kind::kIgnored, .names = {"--mlock", "--no-mmap"}, .answer = "weights are mapped and packed once"});
  v.foreign({.kind = Kind::kIgnored,
             .names = {"--numa"},
             .takes_value = true,
             .answer = "workers are pinned to cores, and memory is local to them"});
  v.foreign({.kind = Kind::kIgnored,
             .names = {"-tb", "--threads-batch"},
             .takes_value = true,
             .answer = "--threads is for prompts and for generation"});
  v.foreign({.kind = Kind::kIgnored,
             .names = {"-b", "--batch-size", "-ub", "--ubatch-size"},
             .takes_value = true,
             .answer = "prompts are processed in chunks of 512 tokens"});
  v.foreign({.names = {"-ctk", "--cache-type-k", "-ctv", "--cache-type-v"},
             .takes_value = true,
             .answer = "keys and values are cached in 16 bits; --dtype f32 keeps them in float32"});
  v.foreign({.names = {"-hf", "-hfr", "--hf-repo", "-mu", "--model-url"},
             .takes_value = true,
             .answer = "write hf:owner/name or hf:owner/name:Q4_K_M as MODEL"});
}

/// Adds flags of llama-cli and of `ollama run` that concern the text.
inline void add_run_peers(OptionList& v) {
  using Kind = ForeignFlags::Kind;
  v.foreign({.kind = Kind::kImplied,
             .names = {"-no-cnv", "--no-conversation", "-st", "--single-turn", "--no-display-prompt", "--simple-io",
                       "--log-disable", "--no-warmup", "--nowordwrap", "--no-perf"}});
  v.foreign({.kind = Kind::kIgnored, .names = {"-co", "--color"}, .answer = "text has no colour"});
  v.foreign({.kind = Kind::kIgnored,
             .names = {"--keepalive"},
             .takes_value = true,
             .answer = "the model is closed when the text ends"});
  v.foreign({.names = {"-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first"},
             .answer = "`redline chat MODEL` is a conversation; `run` continues one text"});
  v.foreign({.names = {"-sys", "--system-prompt", "--chat-template", "--chat-template-file"},
             .takes_value = true,
             .answer = "`run` continues PROMPT as it is; `redline chat MODEL` uses the model's template"});
  v.foreign({.names = {"--jinja"},
             .answer = "`run` continues PROMPT as it is; `redline chat MODEL` uses the model's template"});
  v.foreign({.names = {"-e", "--escape"},
             .answer = "escapes are not replaced in PROMPT; most shells do that with $'first line\\nsecond line'"});
  v.foreign({.names = {"-r", "--reverse-prompt"},
             .takes_value = true,
             .answer = "write --stop TEXT, which ends before TEXT"});
  v.foreign({.names = {"--tfs"}, .takes_value = true, .answer = "is not supported; see --samplers"});
  v.foreign({.names = {"--sampling-seq", "--sampler-seq"},
             .takes_value = true,
             .answer = "write --samplers with the names of the samplers"});
  v.foreign({.names = {"--grammar-file"}, .takes_value = true, .answer = "write --grammar @FILE"});
  v.foreign({.names = {"-jf", "--json-schema-file"}, .takes_value = true, .answer = "write --json-schema @FILE"});
  v.foreign({.names = {"--format"},
             .takes_value = true,
             .answer = "write --json-schema SCHEMA, or --json-schema {} for any JSON"});
  v.foreign({.names = {"--lora-scaled"}, .takes_value = true, .answer = "write --lora FILE:WEIGHT for each adapter"});
  v.foreign({.names = {"-md", "--model-draft", "--mmproj", "--image"},
             .takes_value = true,
             .answer = "is not supported for language models"});
}

/// Adds flags of llama-cli and of `ollama run` that concern a conversation.
inline void add_chat_peers(OptionList& v) {
  using Kind = ForeignFlags::Kind;
  v.foreign({.kind = Kind::kImplied,
             .names = {"-cnv", "--conversation", "-i", "--interactive", "-if", "--interactive-first", "-co", "--color",
                       "--jinja", "-mli", "--multiline-input", "--no-display-prompt", "--simple-io", "--log-disable",
                       "--no-warmup", "--nowordwrap", "--no-perf", "-st", "--single-turn"}});
  v.foreign({.kind = Kind::kIgnored,
             .names = {"--keepalive"},
             .takes_value = true,
             .answer = "the model is closed when the conversation ends"});
  v.foreign({.names = {"-no-cnv", "--no-conversation"}, .answer = "`redline run MODEL PROMPT` continues a text"});
  v.foreign({.names = {"--hidethinking"}, .answer = "write --reasoning hide"});
  v.foreign({.names = {"--grammar-file"}, .takes_value = true, .answer = "write --grammar @FILE"});
  v.foreign({.names = {"-jf", "--json-schema-file"}, .takes_value = true, .answer = "write --json-schema @FILE"});
  v.foreign({.names = {"--format"},
             .takes_value = true,
             .answer = "write --json-schema SCHEMA, or --json-schema {} for any JSON"});
  v.foreign({.names = {"--lora-scaled"}, .takes_value = true, .answer = "write --lora FILE:WEIGHT for each adapter"});
  v.foreign({.names = {"-r", "--reverse-prompt"}, .takes_value = true, .answer = "write --stop TEXT"});
  v.foreign({.names = {"-md", "--model-draft", "--mmproj", "--image"},
             .takes_value = true,
             .answer = "is not supported for language models"});
}

/// Adds a flag of an earlier version, which reports its present name.
inline void add_renamed(OptionList& v, std::string before, std::string_view now) {
  v.foreign({.names = {std::move(before)}, .takes_value = true, .answer = fmt::format("was renamed; write {}", now)});
}

/// Adds flags of stable-diffusion.cpp's sd-cli.
inline void add_image_peers(OptionList& v) {
  using Kind = ForeignFlags::Kind;
  add_renamed(v, "--init-picture", "--init-image");
  add_renamed(v, "--true-guidance", "--true-cfg-scale");
  v.foreign({.kind = Kind::kImplied, .names = {"--diffusion-fa", "--color"}});
  v.foreign({.kind = Kind::kImplied, .names = {"-M", "--mode"}, .values = {"img_gen", "txt2img", "img2img"}});
  v.foreign({.kind = Kind::kIgnored,
             .names = {"--offload-to-cpu", "--clip-on-cpu", "--vae-on-cpu", "--control-net-cpu", "--mmap"},
             .answer = "models run on the CPU, and their weights are mapped"});
  v.foreign({.kind = Kind::kIgnored,
             .names = {"--rng", "--sampler-rng"},
             .takes_value = true,
             .answer = "noise is that of torch.Generator(\"cpu\")"});
  v.foreign({.names = {"--scheduler", "--schedule"},
             .takes_value = true,
             .answer = "the spacing of the noise levels is a suffix of the solver, as in --solver dpm++-karras"});
  v.foreign({.names = {"--clip_l", "--clip-l", "--clip_g", "--clip-g", "--t5xxl", "--llm", "--qwen2vl"},
             .takes_value = true,
             .answer = "MODEL is a diffusers folder, which holds the text encoders"});
  v.foreign({.names = {"--taesd", "--tae"},
             .takes_value = true,
             .answer = "write --vae FOLDER, a tiny autoencoder in the format of diffusers"});
  v.foreign({.names = {"--vae-tiling"}, .answer = "write --vae-tile N; by default, large images are decoded in tiles"});
  v.foreign(
      {.names = {"--lora-model-dir"}, .takes_value = true, .answer = "write --lora FILE:WEIGHT for each adapter"});
  v.foreign({.names = {"--control-net", "--control-image", "--upscale-model", "--photo-maker", "--embd-dir", "-r",
                       "--ref-image", "--high-noise-diffusion-model"},
             .takes_value = true,
             .answer = "is not supported"});
}

}  // namespace redline::cli
