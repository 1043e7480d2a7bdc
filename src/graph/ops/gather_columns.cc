#include "graph/ops/gather_columns.h"

#include "graph/reference.h"

namespace redline {

Value gather_columns(GraphBuilder& g, Value x, std::shared_ptr<const std::vector<int32_t>> columns) {
  if (!x.valid()) return {};
  const ValueInfo& xi = g.info(x);
  if (xi.shape.size() != 2 || !xi.shape[1].is_constant())
    return g.fail(
        invalid_argument("gather_columns: x {} must be a matrix with a fixed number of columns", to_string(xi.shape)));
  const int64_t cols = xi.shape[1].constant();
  for (const int32_t column : *columns)
    if (column < 0 || column >= cols)
      return g.fail(invalid_argument("gather_columns: column {} is outside [0, {})", column, cols));
  const auto is_same = [&](const std::any& attrs) {
    const auto& known = std::any_cast<const GatherColumnsAttrs&>(attrs).columns;
    return known == columns || *known == *columns;
  };
  if (const Value known = g.find(kGatherColumns, x, is_same); known.valid()) return known;
  const auto count = static_cast<int64_t>(columns->size());
  return g.add(kGatherColumns, {x}, DType::kF32, {xi.shape[0], Dim(count)}, GatherColumnsAttrs{std::move(columns)});
}

namespace {

Status gather_columns_reference(ReferenceContext& c) {
  const std::vector<int32_t>& columns = *c.attrs<GatherColumnsAttrs>().columns;
  for (int64_t i = 0; i < c.out().rows(); ++i)
    for (size_t k = 0; k < columns.size(); ++k) c.out().row(i)[k] = c.in(0).row(i)[columns[k]];
  return {};
}

}  // namespace

const OpDef kGatherColumns = {"gather_columns", gather_columns_reference};

}  // namespace redline
