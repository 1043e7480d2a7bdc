// The networks of a text-to-image pipeline: text encoders, denoisers, autoencoders. Each is built by a file beside this
// one; image_registry.h finds the builder by the class name that model_index.json gives.
#pragma once

#include <algorithm>
#include <span>

#include "graph/ops/conv2d.h"
#include "models/checkpoint.h"

namespace redline {

/// A text encoder.
///   inputs   tokens [batch * text_tokens] i32, positions [batch * text_tokens] i32 (CLIP: 0, 1, .. in each item),
///            pooled_rows [batch] i32 (CLIP: the row of each item's end-of-text token), key_lengths [batch] i32 (T5)
///   outputs  "hidden" [batch * text_tokens, width]  last hidden state, after the final norm
///            "penultimate" [batch * text_tokens, width]  CLIP: before the last layer, without the final norm (SD3,
///            SDXL)
///            "pooled" [batch, projection or width]  CLIP
struct TextEncoderModel {
  Graph graph;
  int64_t width = 0, pooled_width = 0, max_tokens = 0, vocab_size = 0;
  bool has_position_limit = true;  ///< at most max_tokens positions; false: positions are relative (T5)
  /// CLIP: "pooled" is the row of the first token with this id; -1: of the first token with the largest id.
  int32_t pooled_token = -1;
};
/// That row among `ids`, the tokens of one item; 0 without such a token.
int64_t pooled_place(int32_t pooled_token, std::span<const int32_t> ids);

/// A denoiser as three graphs, between which a step cache can decide (docs/architecture/diffusion.md):
/// tail(middle(front(x))). Values named "carry.*" are outputs of the front that the middle or the tail takes as inputs.
///   front   inputs: "latents" [batch * image_tokens, in_channels], "timestep" [batch], and what the family has of
///           "guidance" [batch], "pooled" [batch, pooled_width], "text" [batch * text_tokens, text_width],
///           "rope" [batch * (text_tokens + image_tokens), rotary_dim], "key_lengths" [batch] i32 (PixArt),
///           "positions" [batch * image_tokens, width] (SD3, PixArt), "time_ids" [batch * num_time_ids] (SDXL)
///           outputs: "embedded" (only with blocks in the front) and "image" [batch * image_tokens, width], "text"
///           [..., width] where later blocks read it, carries; of transformers without blocks in the front, or
///           with BlockSplit::modulated, also "modulated" [batch * image_tokens, width], the input of the first block's
///           image attention
///   middle  inputs "image", "text", carries; outputs "image", and "text" when the tail reads it
///   tail    inputs "image", carries, and "text", "rope", "key_lengths" as its own blocks need; output "model_output"
///           [batch * image_tokens, out_channels]
/// A transformer has at least one block in the middle, whatever BlockSplit requests. In convolutional networks
/// image_tokens are kHeight x kWidth pixels; everything is in the front, and middle and tail are empty.
struct DenoiserModel {
  std::string family;                         ///< "flux", "sd3", "pixart", "unet"
  Graph front, middle, tail;                  ///< middle, tail: no ops when everything is in the front
  int64_t in_channels = 0, out_channels = 0;  ///< of a row: latent channels * patch * patch for transformers
  int64_t latent_channels = 0;
  int64_t patch = 1;  ///< latent pixels of a token, each way; 1 for convolutional networks
  /// The tail's rows are [patch, patch, channels] (SD3, PixArt), else [channels, patch, patch].
  bool channels_last_patch = false;
  int64_t text_width = 0, pooled_width = 0;
  bool takes_guidance = false, masks_text = false;
  /// SDXL: height and width of the original, top and left of the crop, height and width of the image; its refiner
  /// has five, with a score instead of the last two.
  int64_t num_time_ids = 0;
  double timestep_scale = 1;  ///< from the solver's timestep (0 .. 1000) to the input "timestep"
  /// [rows, rotary_dim] cosines then sines for text_tokens rows of text, then height x width tokens; empty: no "rope"
  /// input.
  std::function<std::vector<float>(int64_t text_tokens, int64_t height, int64_t width)> rope_table;
  int64_t rotary_dim = 0;
  /// Layers of the checkpoint whose output nothing reads, "transformer_blocks.23.attn.add_q_proj": LoRA files have
  /// them.
  std::vector<std::string> idle_modules;
  /// [height * width, width of the network] for that many tokens each way, the same for every item; empty: no
  /// "positions" input. invalid_argument: more tokens than the network has positions for.
  std::function<Result<std::vector<float>>(int64_t height, int64_t width)> position_table;

  /// An inpainting network: its input is the latents, a mask, and the latents of the masked image.
  bool is_inpainting() const { return patch == 1 && in_channels == 2 * latent_channels + 1; }
};

/// An autoencoder. Images are rows of pixels (graph/ops/conv2d.h) in [-1, 1]. Latents z are the autoencoder's own; the
/// denoiser's are (z - shift) * scaling.
///   decode  input "latents" [batch * height * width, latent_channels], output "image" [batch * s height * s width,
///   3]
///   encode  input "image", output "moments" [batch * height * width, 2 * latent_channels]: means, log variances
///           (tiny autoencoders: means alone)
struct AutoencoderModel {
  Graph decode, encode;
  int64_t latent_channels = 0, scale = 8;  ///< image pixels per latent pixel, each way
  double scaling = 1, shift = 0;
  bool has_variance = true;
};

/// How a transformer's blocks are divided: the first `front`, the last `tail`, and the others in the middle.
struct BlockSplit {
  BlockSplit(int64_t front_blocks, int64_t tail_blocks = 0) : front(front_blocks), tail(tail_blocks) {}
  /// The division of `blocks` blocks, with at least one in the middle.
  BlockSplit within(int64_t blocks) const {
    const int64_t first = std::clamp<int64_t>(front, 0, blocks - 1);
    BlockSplit parts(first, std::clamp<int64_t>(tail, 0, blocks - 1 - first));
    parts.modulated = modulated;
    return parts;
  }
  /// For a network without a tail of its own.
  operator int64_t() const { return front; }
  int64_t front, tail;
  /// The front has the output "modulated" with blocks too, so that any step cache can be set later.
  bool modulated = false;
};

/// The two files of an original TAESD ("taef2_encoder.pth", "taef2_decoder.pth") as a checkpoint of AutoencoderTiny.
Result<Checkpoint> open_original_autoencoder_tiny(const std::string& encoder_path, const std::string& decoder_path);

}  // namespace redline
