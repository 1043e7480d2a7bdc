// The networks of a text-to-image pipeline: text encoders, denoisers, autoencoders. Each is built by a file in this
// folder; image_registry.h finds the builder by the class name in model_index.json.
#pragma once

#include <algorithm>
#include <span>

#include "graph/ops/conv2d.h"
#include "models/checkpoint/checkpoint.h"
#include "tensor/grid.h"

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
  bool has_position_limit = true;  ///< the network has max_tokens positions; false: positions are relative (T5)
  /// CLIP: "pooled" is the row of the first token with this id; -1: of the first token with the largest id.
  int32_t pooled_token = -1;
};
/// Returns the row of "pooled" among `ids`, the tokens of one item; 0 if there is no such token.
int64_t pooled_place(int32_t pooled_token, std::span<const int32_t> ids);

/// The tokens of an image or clip: frames, and tokens along height and width.
struct TokenGrid {
  int64_t frames = 1, height = 0, width = 0;
};

/// A denoiser as three graphs, tail(middle(front(x))), so that a step cache can skip parts
/// (docs/architecture/diffusion.md). Values named "carry.*" are outputs of the front that the middle or the tail takes
/// as inputs.
///   front   inputs: "latents" [batch * image_tokens, in_channels], "timestep" [batch], and what the family has of
///           "guidance" [batch], "pooled" [batch, pooled_width], "text" [batch * text_tokens, text_width],
///           "rope" [batch * (text_tokens + image_tokens), rotary_dim], "key_lengths" [batch] i32 (PixArt),
///           "positions" [batch * image_tokens, width] (SD3, PixArt), "time_ids" [batch * num_time_ids] (SDXL)
///           outputs: "embedded" (only with blocks in the front) and "image" [batch * image_tokens, width], "text"
///           [..., width] if later blocks read it, the values "carry.*", and "modulated" [batch * image_tokens, width],
///           the input of the first block's image attention. "modulated" is an output of transformers without blocks
///           in the front, and of those that are built with BlockSplit::modulated
///   middle  inputs "image", "text", values "carry.*"; outputs "image", and "text" if the tail reads it
///   tail    inputs "image", values "carry.*", and "text", "rope", "key_lengths" if blocks of the tail read them;
///           output "model_output" [batch * image_tokens, out_channels]
/// A transformer has at least one block in the middle, whatever BlockSplit requests. In convolutional networks
/// image_tokens are the pixels of the grid; everything is in the front, and middle and tail are empty.
struct DenoiserModel {
  std::string family;                         ///< "flux", "sd3", "pixart", "unet"
  Graph front, middle, tail;                  ///< middle and tail have no ops if everything is in the front
  int64_t in_channels = 0, out_channels = 0;  ///< columns of a row: latent channels * patch * patch for transformers
  int64_t latent_channels = 0;
  int64_t patch = 1;  ///< side of a token in latent pixels; 1 for convolutional networks
  /// Rows of the tail's output are [patch, patch, channels] (SD3, PixArt); false: [channels, patch, patch].
  bool channels_last_patch = false;
  /// The axes of the latents, if the network computes on feature maps (convolutional networks): height and width, with
  /// the frames before them for video.
  Grid grid;
  int64_t text_width = 0, pooled_width = 0;
  bool takes_guidance = false, masks_text = false;
  /// Number of time ids. SDXL has six: height and width of the original, top and left of the crop, height and width of
  /// the image. Its refiner has five, with a score instead of the last two.
  int64_t num_time_ids = 0;
  double timestep_scale = 1;  ///< factor from the solver's timestep (0 .. 1000) to the input "timestep"
  /// Returns [rows, rotary_dim], cosines then sines, for text_tokens rows of text, then the tokens of the image. Empty:
  /// the network has no input "rope".
  std::function<std::vector<float>(int64_t text_tokens, const TokenGrid& tokens)> rope_table;
  int64_t rotary_dim = 0;
  /// Layers of the checkpoint whose output is not used, such as "transformer_blocks.23.attn.add_q_proj". LoRA files
  /// have factors for them.
  std::vector<std::string> idle_modules;
  /// Returns the input "positions" for the tokens of an image, [tokens, width of the network], the same for every item.
  /// Empty: the network has no such input. invalid_argument: the network does not have that many positions.
  std::function<Result<std::vector<float>>(const TokenGrid& tokens)> position_table;

  /// Returns true for an inpainting network, whose input is the latents, a mask, and the latents of the masked image.
  bool is_inpainting() const { return patch == 1 && in_channels == 2 * latent_channels + 1; }
};

/// An autoencoder of images or of video. Images are rows of pixels (graph/ops/conv2d.h) in [-1, 1]. "latents" are the
/// latents z of the autoencoder; the denoiser's latents are (z - shift) * scaling, with the scaling and shift of each
/// channel.
///   decode  input "latents" [batch * height * width, latent_channels], output "image" [batch * s height * s width, 3].
///           Video has frames as a further axis before the height; each frame is an image
///   encode  input "image", output "moments" [batch * height * width, 2 * latent_channels]: means, log variances
///           (tiny autoencoders: means alone)
struct AutoencoderModel {
  Graph decode, encode;
  int64_t latent_channels = 0, scale = 8;  ///< scale: image pixels per latent pixel, in each direction
  /// Video: frames per frame of the latents. The first frame of the latents is one frame (causal convolutions).
  int64_t temporal_scale = 1;
  std::vector<double> scaling, shift;  ///< [latent_channels]
  Grid grid;                           ///< height and width of the latents; for video frames, height and width
  bool has_variance = true;

  /// Returns true for an autoencoder of video.
  bool has_frames() const { return grid.num_axes() == 3; }
  /// Returns the number of frames that `latent_frames` frames of the latents decode to.
  int64_t decoded_frames(int64_t latent_frames) const { return (latent_frames - 1) * temporal_scale + 1; }
  /// Returns the number of frames of the latents whose decoding has at least `frames` frames.
  int64_t latent_frames(int64_t frames) const { return (frames - 1 + temporal_scale - 1) / temporal_scale + 1; }

  /// Sets the same scaling and shift for all channels.
  void scale_all(double all_scaling, double all_shift) {
    scaling.assign(static_cast<size_t>(latent_channels), all_scaling);
    shift.assign(static_cast<size_t>(latent_channels), all_shift);
  }
};

/// Division of a transformer's blocks: the first `front` blocks, the last `tail` blocks, and the others, the middle.
struct BlockSplit {
  BlockSplit(int64_t front_blocks, int64_t tail_blocks = 0) : front(front_blocks), tail(tail_blocks) {}
  /// Returns the division of a network with `blocks` blocks, with at least one in the middle.
  BlockSplit within(int64_t blocks) const {
    const int64_t first = std::clamp<int64_t>(front, 0, blocks - 1);
    BlockSplit parts(first, std::clamp<int64_t>(tail, 0, blocks - 1 - first));
    parts.modulated = modulated;
    return parts;
  }
  /// Converts to the number of front blocks, for a network without a tail.
  operator int64_t() const { return front; }
  int64_t front, tail;
  /// The front has the output "modulated" even if it has blocks, so that any step cache can be set later.
  bool modulated = false;
};

/// Opens the two files of an original TAESD ("taef2_encoder.pth", "taef2_decoder.pth") as a checkpoint of
/// AutoencoderTiny.
Result<Checkpoint> open_original_autoencoder_tiny(const std::string& encoder_path, const std::string& decoder_path);

}  // namespace redline
