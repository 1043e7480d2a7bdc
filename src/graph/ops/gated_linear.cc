#include "graph/ops/gated_linear.h"

#include <algorithm>
#include <cmath>

#include "graph/lower.h"
#include "graph/ops/linear.h"
#include "graph/prepared_output.h"
#include "graph/reference.h"

namespace redline {
namespace {

Status reference(ReferenceContext& c) {
  const HostTensor& x = c.in(0);
  const bool has_bias = c.attrs<GatedLinearAttrs>().has_bias;
  auto product = [&](size_t matrix, int64_t m, int64_t n) {
    const HostTensor& weight = c.in(1 + matrix);
    double sum = has_bias ? c.in(3 + matrix).data[static_cast<size_t>(n)] : 0.0;
    for (int64_t k = 0; k < x.cols(); ++k) sum += x.row(m)[k] * weight.row(n)[k];
    return sum;
  };
  for (int64_t m = 0; m < x.rows(); ++m)
    for (int64_t n = 0; n < c.out().cols(); ++n) {
      const double gate = product(0, m, n);
      c.out().row(m)[n] = gate / (1.0 + std::exp(-gate)) * product(1, m, n);
    }
  return {};
}

struct Attrs {
  LinearKernels kernels[2];  // gate, up
  void (*silu_mul)(const SiluMulArgs&);
  int64_t features, in_features;
  int64_t col_bytes[2];  // of the packed weights
  PreparedOutput out;
};

// Both intermediates of a block stay within the second-level cache.
constexpr int64_t kBlockBytes = 512 << 10;
// Columns are cut where prepared forms may be.
constexpr int64_t kGrain = 32;

int64_t block_cols(int64_t rows) {
  return std::max(kGrain, kBlockBytes / (std::max<int64_t>(rows, 1) * 2 * int64_t{sizeof(float)}) / kGrain * kGrain);
}

// operands: x, gate, up, y, gate bias or null, up bias or null
void run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext& worker) {
  const auto& a = stage.attrs_as<Attrs>();
  const int64_t rows = tile.row_end;  // not cut
  const int64_t block = block_cols(rows);
  for (int64_t begin = tile.col_begin; begin < tile.col_end; begin += block) {
    const int64_t end = std::min(begin + block, tile.col_end), width = end - begin;
    auto* gate = static_cast<float*>(worker.buffer);
    auto* up = gate + rows * width;
    for (int i = 0; i < 2; ++i) {
      // Kernels count columns from the first of the matrix.
      float* y = (i ? up : gate) - begin;
      a.kernels[i].for_rows(rows)({stage.operands[0], a.in_features, rows, stage.operands[static_cast<size_t>(1 + i)],
                                   a.features, a.in_features, begin, end,
                                   stage.operand<float>(static_cast<size_t>(4 + i)), nullptr, y, width,
                                   worker.scratch});
    }
    a.silu_mul({gate, up, gate, rows * width});
    a.out.write(gate, width, rows, {0, rows, begin, end, tile.index}, stage.operands[3]);
  }
}

FirstBytes first_weights(const Stage& stage, const Tile& tile) {
  const auto& a = stage.attrs_as<Attrs>();
  FirstBytes first;
  for (size_t i = 0; i < 2; ++i) {
    first.data[i] = static_cast<const uint8_t*>(stage.operands[1 + i]) + a.col_bytes[i] * tile.col_begin;
    first.bytes[i] = a.col_bytes[i] * (tile.col_end - tile.col_begin);
  }
  return first;
}

Status lower(LowerContext& c) {
  const auto& in = c.op().inputs;
  const bool has_bias = std::any_cast<const GatedLinearAttrs&>(c.op().attrs).has_bias;
  auto attrs = std::make_shared<Attrs>();
  void *weight[2], *bias[2] = {nullptr, nullptr};
  for (size_t i = 0; i < 2; ++i) {
    REDLINE_ASSIGN(attrs->kernels[i], linear_kernels(c, 1 + i));
    attrs->col_bytes[i] = packed_col_bytes(c.in(1 + i));
    REDLINE_ASSIGN(weight[i], c.packed_weight(1 + i));
    if (has_bias) {
      REDLINE_ASSIGN(bias[i], c.dense_weight(3 + i));
    }
  }
  attrs->silu_mul = c.kernels().silu_mul;
  attrs->features = c.in(1).shape[0].constant();
  attrs->in_features = c.in(1).shape[1].constant();
  REDLINE_ASSIGN(attrs->out, PreparedOutput::make(c));
  Stage stage = c.output_stage(run);
  stage.first_weights = first_weights;
  const int64_t bytes = row_bytes(c.in(1).dtype, attrs->in_features) + row_bytes(c.in(2).dtype, attrs->in_features);
  stage.col_begin = LowerContext::cut_columns(attrs->features, kGrain, linear_tiles(c, bytes * attrs->features));
  // One row may be wider than the block: its tile is then.
  const int64_t rows = stage.rows.eval(c.options().bounds);
  stage.buffer_bytes = std::max(kBlockBytes, rows * block_cols(rows) * 2 * int64_t{sizeof(float)});
  stage.reads = {{in[0], Reads::kAll}};
  stage.attrs = attrs;
  c.add_stage(std::move(stage),
              {c.at(in[0]), c.at(weight[0]), c.at(weight[1]), c.at(c.op().outputs[0]), c.at(bias[0]), c.at(bias[1])});
  return {};
}

}  // namespace

const OpDef kGatedLinear = {
    .name = "gated_linear", .reference = reference, .lower = lower, .num_matrices = 2, .prepares_output = true};

}  // namespace redline
