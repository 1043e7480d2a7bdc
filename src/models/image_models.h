// The networks of a text-to-image pipeline: text encoders, denoisers, autoencoders. One file each beside this one, one
// row each in image_registry.cc, by the class name that model_index.json gives.
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
  /// CLIP's "pooled" is the row of an item's first token with this id; -1: of the first of the largest id.
  int32_t pooled_token = -1;
};
/// Where in `ids`, one item's tokens, that row is; 0 when the token is not there.
int64_t pooled_place(int32_t pooled_token, std::span<const int32_t> ids);

/// A denoiser in three programs, so that a step cache can decide between them (docs/architecture.md, step cache).
/// Values named "carry.*" go from one program to a later one: outputs of probe that are inputs of body or head.
///   probe  inputs: "latents" [batch * image_tokens, in_channels], "timestep" [batch], and what the family takes of
///          "guidance" [batch], "pooled" [batch, pooled_width], "text" [batch * text_tokens, text_width],
///          "rope" [batch * (text_tokens + image_tokens), rotary_dim], "key_lengths" [batch] i32 (PixArt),
///          "positions" [batch * image_tokens, width] (SD3, PixArt), "time_ids" [batch * num_time_ids] (SDXL)
///          outputs: "embedded" and "image" [batch * image_tokens, width], "text" [..., width] where the family goes on
///          with text, carries; of transformers with no block in the probe also "modulated" [batch * image_tokens,
///          width],
///          what the first block's attention will see of the picture
///   body   inputs "image", "text", carries; outputs "image", "text" (when read by head)
///   head   inputs "image", carries, and with blocks of its own what they take of "text", "rope", "key_lengths"; output
/// "velocity" [batch * image_tokens, out_channels] The whole is head(body(probe(x))). Transformers leave the body at
/// least one block, whatever BlockSplit says, and have no "embedded" where the probe has none. Convolutional networks
/// have pixels of kHeight x kWidth for image_tokens and a body and head without ops of their own may be left empty.
struct DenoiserModel {
  std::string family;                         ///< "flux", "sd3", "pixart", "unet"
  Graph probe, body, head;                    ///< body, head: no ops when everything is in probe
  int64_t in_channels = 0, out_channels = 0;  ///< of a row: latent channels * patch * patch for transformers
  int64_t latent_channels = 0;
  int64_t patch = 1;  ///< latent pixels of a token, each way; 1 for convolutional networks
  bool channels_last_patch =
      false;  ///< the head's rows are [patch, patch, channels] (SD3, PixArt), else [channels, patch, patch]
  int64_t text_width = 0, pooled_width = 0;
  bool takes_guidance = false, masks_text = false;
  /// SDXL: height and width of the original, top and left of the crop, height and width of the picture; its refiner's
  /// five have a score for the last two.
  int64_t num_time_ids = 0;
  double timestep_scale = 1;  ///< of what the solver calls the timestep (0 .. 1000) before the network sees it
  /// [rows, rotary_dim] cosines then sines for text_tokens rows of text, then height x width tokens; empty: no "rope"
  /// input.
  std::function<std::vector<float>(int64_t text_tokens, int64_t height, int64_t width)> rope_table;
  int64_t rotary_dim = 0;
  /// [height * width, width of the network] of so many tokens each way, the same for every item; empty: no "positions"
  /// input. invalid_argument: more tokens than the network knows places for.
  std::function<Result<std::vector<float>>(int64_t height, int64_t width)> position_table;

  /// An inpainting network: beside the latents it takes a mask and the latents of what the mask keeps.
  bool is_inpainting() const { return patch == 1 && in_channels == 2 * latent_channels + 1; }
};

/// An autoencoder. Pictures are rows of pixels (graph/ops/conv2d.h) in [-1, 1]; latents are as the network sees them,
/// that is before `scaling` and `shift` are applied: what a denoiser sees is (z - shift) * scaling.
///   decode  input "latents" [batch * height * width, latent_channels], output "picture" [batch * s height * s width,
///   3]
///   encode  input "picture", output "moments" [batch * height * width, 2 * latent_channels]: means, log variances
///           (tiny autoencoders: means alone)
struct AutoencoderModel {
  Graph decode, encode;
  int64_t latent_channels = 0, scale = 8;  ///< pixels of the picture per pixel of the latent, each way
  double scaling = 1, shift = 0;
  bool has_variance = true;
};

/// A transformer's blocks: the first `probe` of them are the probe's, the last `tail` the head's, the others the
/// body's.
struct BlockSplit {
  BlockSplit(int64_t probe_blocks, int64_t tail_blocks = 0) : probe(probe_blocks), tail(tail_blocks) {}
  /// Of `blocks` blocks, one of them the body's.
  BlockSplit within(int64_t blocks) const {
    const int64_t front = std::clamp<int64_t>(probe, 0, blocks - 1);
    return {front, std::clamp<int64_t>(tail, 0, blocks - 1 - front)};
  }
  /// For a network without a tail of its own.
  operator int64_t() const { return probe; }
  int64_t probe, tail;
};

/// The two files of an original TAESD network ("taef2_encoder.pth", "taef2_decoder.pth") as a checkpoint of
/// AutoencoderTiny.
Result<Checkpoint> open_original_autoencoder_tiny(const std::string& encoder_path, const std::string& decoder_path);

}  // namespace redline
