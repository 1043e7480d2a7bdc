// Random weights in the shapes of well-known models, to measure speed without a download. The commands accept a name
// like "random:llama-1b:q4_0" wherever they accept the path of a model.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "models/checkpoint.h"
#include "redline/text.h"
#include "tensor/dtype.h"

namespace redline::lab {

/// How layers of an architecture differ from Llama's.
struct RandomFamily {
  std::string_view architecture;  ///< general.architecture: "llama", "qwen3moe"
  bool has_qkv_biases = false, has_head_norms = false;
  bool has_sinks = false, has_other_biases = false;  ///< of attention's output, the router and the experts
  std::string_view mlp_norm = "ffn_norm";
  /// In a model of MXFP4 the type of all but the experts.
  DType beside_mxfp4 = DType::kMXFP4;
  int64_t sliding_window = 0;
  float yarn_factor = 0;  ///< 0: no YaRN
  int64_t yarn_original_context = 0;
  bool is_recurrent = false;  ///< Mamba-2
};

/// The sizes of a decoder, as its published config.json gives them.
struct RandomShape {
  std::string_view name;  ///< "llama-1b"
  const RandomFamily* family;
  int64_t num_layers, hidden_size, intermediate_size, num_heads, num_kv_heads, head_dim, vocab_size;
  bool tied;  ///< the embedding is also the output matrix
  int64_t context;
  float rope_theta, rms_norm_eps;
  float llama3_factor;                             ///< of Llama 3's rope scaling; 0: none
  int64_t num_experts = 0, experts_per_token = 0;  ///< of `intermediate_size` each; 0: an MLP
  int64_t state_size = 0;                          ///< of Mamba-2's heads, which have one group
};
const std::vector<RandomShape>& random_shapes();

inline constexpr std::string_view kRandomPrefix = "random:";
inline bool is_random_model(std::string_view path) { return path.starts_with(kRandomPrefix); }

struct RandomModelSpec {
  const RandomShape* shape = nullptr;
  DType dtype = DType::kF32;
};
/// From "random:SHAPE:TYPE" or "SHAPE:TYPE". invalid_argument: no such shape or type (with those there are), or a type
/// whose blocks the shape's rows do not fill (with the types that fit).
Result<RandomModelSpec> parse_random_model(std::string_view name);

/// Number of elements of all its tensors.
int64_t count_parameters(const RandomModelSpec& spec);

/// The model as a GGUF v3 file in memory, the same bytes for one name on every machine. Every matrix has the named
/// type; of gpt-oss in mxfp4 those of experts, and the others are q8_0. Codes are random bits, scales are such that
/// a matrix product keeps the variance of its input (1 / sqrt(K)), norms are one, biases small. The vocabulary consists
/// of 256 bytes and numbered words, so that any text can be encoded. All allowed cores fill the matrices;
/// MappedFile::release frees their pages, so that loading needs no second copy.
/// invalid_argument: as parse_random_model. unsupported: a type that GGUF files cannot hold. out_of_memory: the message
/// gives the bytes.
Result<std::shared_ptr<MappedFile>> make_random_model(std::string_view name);

/// One tensor of any model, by its name: a matrix or a convolution of `dtype` (bf16 if its blocks do not fit), or a
/// vector in float32. The values follow the rules above. out_of_memory.
Result<WeightSource> make_random_weight(const std::string& name, const std::vector<int64_t>& shape, DType dtype);

/// Checkpoint::open, which also accepts "random:SHAPE:TYPE". Types that GGUF files cannot hold: the model is
/// generated in bf16 and its matrices are then quantized. Same errors as Checkpoint::open and make_random_model.
Result<Checkpoint> open_checkpoint(const std::string& path);
/// TextEngine::open, which also accepts "random:SHAPE:TYPE".
Result<std::unique_ptr<TextEngine>> open_engine(const std::string& path, const TextEngineOptions& options = {});

/// Writes these bytes to `path` (convention: .gguf), for llama.cpp and other programs.
Status save_random_model(std::string_view name, const std::string& path);

}  // namespace redline::lab
