// A picture decoded in overlapping tiles: memory of one tile, whatever the picture's size.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "diffusion/latents.h"
#include "runtime/network.h"

namespace redline {

/// Where tiles of `tile` begin that cover `length`, evenly, each at least `overlap` into the next; one at 0 when the
/// tile covers all.
std::vector<int64_t> tile_starts(int64_t length, int64_t tile, int64_t overlap);

/// Decodes z, planes [channels, height, width] of `layout`, to rows of pixels [height * width * scale^2, 3]. `tile`:
/// its side in latent pixels. Tiles overlap by a quarter and are blended by weights that fall off linearly towards
/// their edges, as diffusers' enable_tiling does: group norms and the attention of a tile see that tile alone, so the
/// picture differs a little from the whole, smoothly.
Status decode_in_tiles(Network& decode, const LatentLayout& layout, std::span<const float> z, int64_t scale,
                       int64_t tile, std::vector<float>& rgb);

}  // namespace redline
