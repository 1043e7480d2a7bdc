// Networks with random weights in the shapes of well-known models, to measure speed without a download:
// "flux-block:bf16" is one double block of FLUX.1 at 1024 x 1024, "stacked-lstm:f32" a tensor program
// (tensor_programs.h).
#pragma once

#include <string>
#include <vector>

#include "models/image_models.h"

namespace redline::lab {

struct RandomNetwork {
  std::string name;   ///< "flux-block"
  std::string about;  ///< "one double block of FLUX.1-dev, 1024x1024: 4096 tokens and 512 of text"
  DType weights = DType::kBF16;
  Graph graph;
  /// The step invariants of a denoiser (graph/hoist_invariants.h): its outputs are inputs of `graph`. May have
  /// no ops.
  Graph once;
  SymbolValues sizes;
  /// An odd, non-square size at which the interpreter takes seconds; no larger than `sizes`.
  SymbolValues check_sizes;
  std::string check_about;  ///< "48x48"
};

/// "flux-block, flux-single-block, ..."
std::string list_random_networks();
/// True if `name` ("flux-block:bf16", "flux-vae") starts with the name of a random network.
bool is_random_network(const std::string& name);
/// `side`: of the image, in pixels, or the columns of a tensor program; 0: the default. invalid_argument: unknown
/// network or type, or an unsupported side; the message lists the supported ones.
Result<RandomNetwork> make_random_network(const std::string& name, int64_t side);

}  // namespace redline::lab
