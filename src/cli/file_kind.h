// Detects the kind of file that a command-line path names, and which command accepts it.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace redline::cli {

enum class FileKind {
  kGguf,
  kModelFolder,  ///< Hugging Face folder
  kSafetensors,
  kLlama2c,
  kPipeline,      ///< diffusers folder
  kComponent,     ///< component folder of a diffusers folder
  kTextAdapter,   ///< LoRA for language models: PEFT folder, its adapter_model file, or GGUF
  kImageAdapter,  ///< LoRA for images: safetensors, or the folder that diffusers' save_lora_weights writes
  kPipelineFile,  ///< Stable Diffusion in one file under its original names, safetensors or .ckpt
  kTransformer,   ///< a FLUX.1 transformer in one file, safetensors or GGUF
  kOnnx,          ///< a network in one file, with or without files of external data
};
/// Returns "gguf", "huggingface", "safetensors", "llama2c", "diffusers", "diffusers component", "lora" for both
/// adapters, "image checkpoint", "transformer", or "onnx".
std::string_view file_kind_name(FileKind kind);
/// Returns "an image pipeline", for messages.
std::string_view file_kind_words(FileKind kind);

/// Detects the kind by content, not by name. A llama2.c checkpoint has no magic number: it is recognised by plausible
/// sizes. invalid_argument: unrecognized (the message shows the first bytes and the supported kinds), or a file too
/// short to recognise.
Result<FileKind> detect_file_kind(const std::string& path);

/// The purpose for which a command opens a file.
enum class ModelUse { kText, kImage, kTextAdapter, kImageAdapter, kConvert };
/// Returns an error that states the kind of file and the command that accepts it, if a command could not open `path`
/// for `use` because of its kind; else `status`.
Status explain_kind(Status status, const std::string& path, ModelUse use);
/// Returns ok if a model of this kind suits `use`. invalid_argument: it is for another command, which the message
/// names.
Status check_kind(const std::string& path, FileKind kind, ModelUse use);

/// Returns the folder of the pipeline that contains `path`, a component or a file in one; "" if there is none.
std::string pipeline_around(const std::string& path);

/// Returns the file of an image adapter: `path`, or pytorch_lora_weights.safetensors in it.
std::string image_adapter_file(const std::string& path);

}  // namespace redline::cli
