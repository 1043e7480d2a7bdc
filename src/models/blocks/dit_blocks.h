// Shared parts of diffusion transformers (Peebles and Xie 2022, arXiv:2212.09748): projections by name, embeddings of
// timesteps and patches, modulated norms, gated residuals, and the three graphs of a denoiser.
#pragma once

#include "graph/ops/joint_attention.h"
#include "models/checkpoint/weight_reader.h"
#include "models/image/image_models.h"
#include "tensor/activation.h"

namespace redline {

struct DitShape {
  int64_t num_heads = 0, head_dim = 0;
  float eps = 1e-6f;  ///< epsilon of every norm
  int64_t width() const { return num_heads * head_dim; }
};

/// Adds blocks to one graph. Modulation tables are [batch, n * width]; part p is the `width` columns from p * width on.
class DitBuilder {
 public:
  DitBuilder(GraphBuilder& g, WeightReader& w, DitShape shape) : g_(g), w_(w), shape_(shape) {}

  /// Adds x W^T + b with the tensors name.weight [out, in] and name.bias.
  Value project(Value x, const std::string& name, int64_t out, int64_t in, bool has_bias = true);
  /// Adds an MLP from [rows, in] to [rows, width]: scope.linear_1, the activation `kind`, scope.linear_2.
  Value embed(Value x, const std::string& scope, int64_t in, Activation kind = Activation::kSilu);
  /// Adds the input `name` [batch], multiplies it by `scale`, and applies a sinusoidal embedding and embed().
  Value embed_number(const std::string& name, const std::string& scope, float scale = 1);
  /// Adds the input "latents", patches of `channels` x patch x patch, projects it by the convolution pos_embed.proj,
  /// and adds the input "positions".
  Value embed_patches(int64_t channels, int64_t patch);

  /// Adds norm(x) * (1 + scale) + shift, with scale and shift from the given parts of `table`.
  Value modulated(Value x, Value table, int64_t shift_part, int64_t scale_part, const Dim& rows_per_item);
  /// Adds x + gate * y, where the gate is part `part` of `table`.
  Value gated(Value x, Value y, Value table, int64_t part, const Dim& rows_per_item);
  /// Adds x + gate * f(modulated x), with shift, scale and gate from parts 3 to 5 of `table`. f is ff.net.0.proj to 4 *
  /// width columns, the activation `kind`, and ff.net.2. `norm` names the norm.
  Value feed_forward(Value x, Value table, const Dim& rows_per_item, const std::string& norm, const std::string& ff,
                     Activation kind = Activation::kGeluTanh);
  JointAttentionAttrs attention() const;

  int64_t width() const { return shape_.width(); }

  const Dim kBatch = Symbol::kBatch, kText = Symbol::kTextTokens, kImage = Symbol::kImageTokens;

 protected:
  GraphBuilder& g_;
  WeightReader& w_;
  const DitShape shape_;
};

/// Builders of the three graphs of a DenoiserModel, and the readers of their weights.
struct DenoiserGraphs {
  DenoiserGraphs(const std::string& family, const Checkpoint& checkpoint);
  /// Moves the graphs into `model`. invalid_argument: the first error of a builder, or a tensor that none of them used.
  Status finish(DenoiserModel& model);

  GraphBuilder front, middle, tail;
  WeightReader front_weights, middle_weights, tail_weights;
};

/// Returns sinusoidal embeddings of the positions on a grid of height x width: [height * width, columns]. The first
/// half of the columns embeds x, the second y; each half has sines, then cosines of position * 10000^(-k / (columns /
/// 4)). Position i of n is i / (n / base_size) / scale. `columns` is a multiple of 4.
std::vector<float> sincos_positions(int64_t columns, int64_t height, int64_t width, int64_t base_size, double scale);

}  // namespace redline
