#include "models/blocks/dit_blocks.h"

#include <cmath>

#include "graph/ops/activation.h"
#include "graph/ops/add.h"
#include "graph/ops/gated_add.h"
#include "graph/ops/joint_attention.h"
#include "graph/ops/layer_norm.h"
#include "graph/ops/linear.h"
#include "graph/ops/timestep_embedding.h"

namespace redline {

Value DitBuilder::project(Value x, const std::string& name, int64_t out, int64_t in, bool has_bias) {
  g_.set_scope(name);
  const Value weight = w_.take(name + ".weight", {out, in});
  return linear(g_, x, weight, has_bias ? w_.take(name + ".bias", {out}) : Value{});
}

Value DitBuilder::embed(Value x, const std::string& scope, int64_t in, Activation kind) {
  const Value hidden = activation(g_, project(x, scope + ".linear_1", width(), in), kind);
  return project(hidden, scope + ".linear_2", width(), width());
}

Value DitBuilder::embed_number(const std::string& name, const std::string& scope, float scale) {
  constexpr int64_t kCols = 256;
  const Value number = g_.input(name, DType::kF32, {kBatch});
  g_.set_scope(scope);
  return embed(timestep_embedding(g_, number, {.cols = kCols, .scale = scale}), scope, kCols);
}

Value DitBuilder::embed_patches(int64_t channels, int64_t patch) {
  const int64_t cols = channels * patch * patch;
  const Value latents = g_.input("latents", DType::kF32, {kBatch * kImage, cols});
  const Value positions = g_.input("positions", DType::kF32, {kBatch * kImage, width()});
  g_.set_scope("pos_embed.proj");
  const Value weight = w_.take_as("pos_embed.proj.weight", {width(), channels, patch, patch}, {width(), cols});
  return add(g_, positions, linear(g_, latents, weight, w_.take("pos_embed.proj.bias", {width()})));
}

Value DitBuilder::modulated(Value x, Value table, int64_t shift_part, int64_t scale_part, const Dim& rows_per_item) {
  return modulated_norm(g_, x, {table, shift_part * width(), scale_part * width(), rows_per_item}, {shape_.eps, true});
}

Value DitBuilder::gated(Value x, Value y, Value table, int64_t part, const Dim& rows_per_item) {
  return gated_add(g_, x, y, table, part * width(), rows_per_item);
}

Value DitBuilder::feed_forward(Value x, Value table, const Dim& rows_per_item, const std::string& norm,
                               const std::string& ff, Activation kind) {
  const int64_t D = width();
  g_.set_scope(norm);
  const Value in = modulated(x, table, 3, 4, rows_per_item);
  const Value hidden = activation(g_, project(in, ff + ".net.0.proj", 4 * D, D), kind);
  return gated(x, project(hidden, ff + ".net.2", D, 4 * D), table, 5, rows_per_item);
}

JointAttentionAttrs DitBuilder::attention() const {
  return {shape_.num_heads, shape_.head_dim, static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape_.head_dim)))};
}

DenoiserGraphs::DenoiserGraphs(const std::string& family, const Checkpoint& checkpoint)
    : front(family + " front"), middle(family + " middle"), tail(family + " tail"), front_weights(front, checkpoint),
      middle_weights(middle, checkpoint), tail_weights(tail, checkpoint) {}

Status DenoiserGraphs::finish(DenoiserModel& model) {
  REDLINE_ASSIGN(model.front, front.finish());
  REDLINE_ASSIGN(model.middle, middle.finish());
  REDLINE_ASSIGN(model.tail, tail.finish());
  front_weights.add_taken(middle_weights);
  front_weights.add_taken(tail_weights);
  return front_weights.expect_all_taken();
}

std::vector<float> sincos_positions(int64_t columns, int64_t height, int64_t width, int64_t base_size, double scale) {
  const int64_t quarter = columns / 4;
  // One axis: [positions][sines, cosines].
  auto axis = [&](int64_t places) {
    std::vector<float> table(static_cast<size_t>(places * 2 * quarter));
    for (int64_t i = 0; i < places; ++i) {
      // Checkpoints were trained with positions in float32.
      const auto step = static_cast<float>(static_cast<double>(places) / static_cast<double>(base_size));
      const float place = static_cast<float>(i) / step / static_cast<float>(scale);
      for (int64_t k = 0; k < quarter; ++k) {
        const double angle = double{place} / std::pow(10000.0, static_cast<double>(k) / static_cast<double>(quarter));
        table[static_cast<size_t>(i * 2 * quarter + k)] = static_cast<float>(std::sin(angle));
        table[static_cast<size_t>((i * 2 + 1) * quarter + k)] = static_cast<float>(std::cos(angle));
      }
    }
    return table;
  };
  const std::vector<float> by_row = axis(height), by_column = axis(width);
  std::vector<float> positions;
  positions.reserve(static_cast<size_t>(height * width * columns));
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (const auto& [table, place] : {std::pair{&by_column, x}, {&by_row, y}})
        positions.insert(positions.end(), table->begin() + place * 2 * quarter,
                         table->begin() + (place + 1) * 2 * quarter);
  return positions;
}

}  // namespace redline
