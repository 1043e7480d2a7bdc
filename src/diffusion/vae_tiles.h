// Decodes an image or a clip in overlapping tiles, with the memory of one tile for any size. A tile has all frames.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "diffusion/latents.h"
#include "models/image/image_models.h"
#include "runtime/executable.h"

namespace redline {

/// Returns the offsets of tiles of size `tile` that cover `length` evenly, each overlapping the next by at least
/// `overlap`; {0} if one tile covers all.
std::vector<int64_t> tile_starts(int64_t length, int64_t tile, int64_t overlap);

/// Decodes z, planes of `shape`, to rows of pixels [decoded frames * height * width * scale^2, 3]. `model`: the
/// autoencoder whose decoder is `decode`. `tile`: side of a tile in latent pixels. Tiles overlap by a quarter and are
/// blended by weights that fall off linearly towards their edges, as diffusers' enable_tiling does. Group norms and
/// attention see one tile only, so the result differs slightly and smoothly from decoding the whole.
Status decode_in_tiles(Executable& decode, const AutoencoderModel& model, const LatentShape& shape,
                       std::span<const float> z, int64_t tile, std::vector<float>& rgb);

}  // namespace redline
