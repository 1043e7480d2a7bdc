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
  return g.add(kEmbedding, {weight, tokens}, DType::kF32, {t.shape[0], w.shape[1]}, EmbeddingAttrs{});
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
  if (const AdapterSite* site = c.attrs<EmbeddingAttrs>().adapters.get())
    for_adapted_rows(c.adapters(), *site, c.sizes(), 0, tokens.rows(), [&](const AdaptedRows& rows) {
      for (const WeightedAdapter& each : rows.adapters)
        if (const AdapterFactors* f = factors_at(each, *site))
          for (int64_t t = rows.begin; t < rows.end; ++t)
            for (int64_t n = 0; n < weight.cols(); ++n) {
              const float *up = f->plain_up + n * f->rank,
                          *down = f->plain_down + static_cast<int64_t>(tokens.data[static_cast<size_t>(t)]) * f->rank;
              double sum = 0;
              for (int64_t r = 0; r < f->rank; ++r) sum += static_cast<double>(up[r]) * static_cast<double>(down[r]);
              c.out().row(t)[n] += static_cast<double>(f->scale) * static_cast<double>(each.weight) * sum;
            }
    });
  return {};
}

std::string describe_embedding(const std::any& any) {
  return std::any_cast<const EmbeddingAttrs&>(any).adapters ? "+adapters" : "";
}

}  // namespace

const OpDef kEmbedding = {.name = "embedding", .reference = embedding_reference, .describe = describe_embedding};

}  // namespace redline
