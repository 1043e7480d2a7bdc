#include "graph/ops/embedding.h"

#include <algorithm>

#include "graph/lower.h"
#include "graph/reference.h"

namespace redline {

Value embedding(GraphBuilder& g, Value weight, Value tokens) {
  if (!weight.valid() || !tokens.valid()) return {};
  const ValueInfo& w = g.info(weight);
  const ValueInfo& t = g.info(tokens);
  if (w.shape.size() != 2)
    return g.fail(invalid_argument("embedding: {} must be a matrix, not {}", w.name, to_string(w.shape)));
  if (t.dtype != DType::kI32 || t.shape.size() != 1)
    return g.fail(invalid_argument("embedding: tokens must be i32 [tokens], not {}", to_string(t.shape)));
  return g.add(kEmbedding, {weight, tokens}, DType::kF32, {t.shape[0], w.shape[1]});
}

namespace {

Status reference(ReferenceContext& c) {
  const HostTensor& weight = c.in(0);
  const HostTensor& tokens = c.in(1);
  for (int64_t t = 0; t < tokens.rows(); ++t) {
    const auto id = static_cast<int64_t>(tokens.data[static_cast<size_t>(t)]);
    if (id < 0 || id >= weight.rows())
      return invalid_argument("token {} is outside the vocabulary of {}", id, weight.rows());
    std::copy_n(weight.row(id), weight.cols(), c.out().row(t));
  }
  return {};
}

struct Attrs {
  void (*kernel)(const EmbeddingArgs&);
  int64_t vocab_size, hidden_size;
};

void run(const Stage& stage, const Tile& tile, const StepContext&, WorkerContext&) {
  const auto& a = stage.attrs_as<Attrs>();
  a.kernel({stage.operand<int32_t>(1) + tile.row_begin, tile.row_end - tile.row_begin, stage.operands[0], a.vocab_size,
            a.hidden_size, stage.operand<float>(2) + tile.row_begin * a.hidden_size});
}

Status lower(LowerContext& c) {
  const ValueInfo& w = c.in(0);
  auto* kernel = c.kernels().embedding[static_cast<int>(w.dtype)];
  if (!kernel)
    return unsupported("{} has type {}, which the embedding kernels do not read", w.name, dtype_info(w.dtype).name);
  REDLINE_ASSIGN(void* weight, c.packed_weight(0));
  Stage stage = c.output_stage(run);
  stage.row_tiles = c.workers();
  stage.reads = {{c.op().inputs[1], Reads::kRows}};
  stage.attrs = std::make_shared<Attrs>(Attrs{kernel, w.shape[0].constant(), w.shape[1].constant()});
  c.add_stage(std::move(stage), {c.at(weight), c.at(c.op().inputs[1]), c.at(c.op().outputs[0])});
  return {};
}

}  // namespace

const OpDef kEmbedding = {"embedding", reference, lower};

}  // namespace redline
