#include "graph/ops/embedding.h"

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

Status embedding_reference(ReferenceContext& c) {
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

}  // namespace

const OpDef kEmbedding = {"embedding", embedding_reference};

}  // namespace redline
