// Makes networks with random weights in the shapes of well-known models, to measure speed without a download:
// "flux-block:bf16" is one double block of FLUX.1 at 1024 x 1024, "stacked-lstm:f32" a tensor program
// (tensor_programs.h).
#pragma once

#include <string>
#include <vector>

#include "models/image/image_models.h"

namespace redline::lab {

struct RandomNetwork {
  std::string name;   ///< "flux-block"
  std::string about;  ///< "one double block of FLUX.1-dev, 1024x1024: 4096 tokens and 512 of text"
  DType weights = DType::kBF16;
  Graph graph;
  /// The graph of a denoiser's step invariants (graph/hoist_invariants.h), whose outputs are inputs of `graph`. It may
  /// have no ops.
  Graph once;
  SymbolValues sizes;
  /// An odd, non-square size at which the interpreter takes seconds; no larger than `sizes`.
  SymbolValues check_sizes;
  std::string check_about;  ///< "48x48"
};

/// Returns "flux-block, flux-single-block, ..."
std::string list_random_networks();
/// Returns true if `name` ("flux-block:bf16", "flux-vae") starts with the name of a random network.
bool is_random_network(const std::string& name);
/// Checks the name of a random model, as parse_random_model() does. If no model has that name, the message also lists
/// the networks.
Status check_random_model(const std::string& name);
/// Makes a network. `side`: side of the image in pixels, or columns of a tensor program; 0: the default.
/// invalid_argument: unknown network or type, or an unsupported side; the message lists the supported ones.
Result<RandomNetwork> make_random_network(const std::string& name, int64_t side);

}  // namespace redline::lab
