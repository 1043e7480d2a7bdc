// Makes random weights in the shapes of well-known models, to measure speed without a download.
// Checkpoint::open accepts a name like "random:llama-1b:q4_0" as it accepts the path of a file or folder.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "models/checkpoint/checkpoint.h"
#include "tensor/dtype.h"

namespace redline {

/// Differences of an architecture's layers from Llama's.
struct RandomFamily {
  std::string_view architecture;  ///< general.architecture: "llama", "qwen3moe"
  bool has_qkv_biases = false, has_head_norms = false;
  /// has_other_biases: of attention's output, the router and the experts
  bool has_sinks = false, has_other_biases = false;
  std::string_view mlp_norm = "ffn_norm";
  /// Type of all matrices except experts in a model of MXFP4.
  DType beside_mxfp4 = DType::kMXFP4;
  int64_t sliding_window = 0;
  float yarn_factor = 0;  ///< 0: no YaRN
  int64_t yarn_original_context = 0;
  bool is_recurrent = false;  ///< Mamba-2
};

/// The sizes of a decoder, from its published config.json.
struct RandomShape {
  std::string_view name;  ///< "llama-1b"
  const RandomFamily* family;
  int64_t num_layers, hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim, vocab_size;
  bool tied;  ///< the embedding is also the output matrix
  int64_t context;
  float rope_theta, rms_norm_eps;
  float llama3_factor;                             ///< factor of Llama 3's rope scaling; 0: none
  int64_t num_experts = 0, experts_per_token = 0;  ///< experts of `intermediate_size` each; 0: an MLP
  int64_t state_size = 0;                          ///< state size of Mamba-2's heads, which have one group
};
const std::vector<RandomShape>& random_shapes();

inline constexpr std::string_view kRandomPrefix = "random:";
inline bool is_random_model(std::string_view path) { return path.starts_with(kRandomPrefix); }

struct RandomModelSpec {
  const RandomShape* shape = nullptr;
  DType dtype = DType::kF32;
};
/// Parses "random:SHAPE:TYPE" or "SHAPE:TYPE". invalid_argument: an unknown shape or type (the message lists the known
/// ones), or a type whose blocks do not divide the shape's rows (the message lists the types that do).
Result<RandomModelSpec> parse_random_model(std::string_view name);

/// Returns the number of elements of all tensors.
int64_t count_parameters(const RandomModelSpec& spec);

/// Returns the model as a GGUF v3 file in memory, with the same bytes for one name on every machine. Every matrix has
/// the named type; in gpt-oss with mxfp4 only those of experts have it, and the others are q8_0. Codes are random bits,
/// scales are such that a matrix product keeps the variance of its input (1 / sqrt(K)), norms are one, biases small.
/// The vocabulary consists of 256 bytes and numbered words, so that any text can be encoded. All allowed cores fill the
/// matrices; MappedFile::release frees their pages, so that loading needs no second copy.
/// invalid_argument: as parse_random_model(). unsupported: a type that GGUF files cannot hold. out_of_memory: the
/// message has the number of bytes.
Result<std::shared_ptr<MappedFile>> make_random_model(std::string_view name);

/// Makes one tensor of any model, by its name: a matrix or a convolution of `dtype` (bf16 if its blocks do not fit), or
/// a vector in float32. The values follow the rules of make_random_model(). Error: out_of_memory.
Result<WeightSource> make_random_weight(const std::string& name, const std::vector<int64_t>& shape, DType dtype);

/// Writes the GGUF file of make_random_model() to `path` (convention: .gguf), for llama.cpp and other programs.
Status save_random_model(std::string_view name, const std::string& path);

}  // namespace redline
