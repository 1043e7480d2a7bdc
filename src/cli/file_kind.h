// What a path of the command line holds, and which command takes it.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace redline::cli {

enum class FileKind {
  kGguf,
  kModelFolder,  ///< of Hugging Face
  kSafetensors,
  kLlama2c,
  kPipeline,      ///< diffusers folder
  kComponent,     ///< a folder in it
  kTextAdapter,   ///< LoRA for language models: PEFT folder, its adapter_model file, or GGUF
  kImageAdapter,  ///< LoRA for images: safetensors, or the folder that diffusers' save_lora_weights writes
  kPipelineFile,  ///< Stable Diffusion in one file under its original names, safetensors or .ckpt
  kTransformer,   ///< a FLUX.1 transformer in one file, safetensors or GGUF
};
/// "gguf", "huggingface", "safetensors", "llama2c", "diffusers", "diffusers component", "lora" for both, "image checkpoint",
/// "transformer".
std::string_view file_kind_name(FileKind kind);
/// "an image pipeline", for messages.
std::string_view file_kind_words(FileKind kind);

/// Detected by content, not by name. invalid_argument: unrecognized (the message shows the first bytes and the
/// supported kinds), or a file too short to recognise. A llama2.c checkpoint has no magic number: it is recognised by
/// plausible sizes.
Result<FileKind> detect_file_kind(const std::string& path);

/// What commands take.
enum class ModelUse { kText, kImage, kTextAdapter, kImageAdapter, kConvert };
/// The error when a command could not open `path` for `use`: its kind, and which command takes it;
/// else `status`.
Status explain_kind(Status status, const std::string& path, ModelUse use);
/// invalid_argument: a model of this kind is for another command, which the message names. Ok if it suits `use`.
Status check_kind(const std::string& path, FileKind kind, ModelUse use);

/// The folder of the pipeline that `path`, a component or a file in one, belongs to; "" if it lies in none.
std::string pipeline_around(const std::string& path);

/// The file of an image adapter: `path`, or pytorch_lora_weights.safetensors in it.
std::string image_adapter_file(const std::string& path);

}  // namespace redline::cli
