#include "graph/ops/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "graph/reference.h"

namespace redline {

Value sample(GraphBuilder& g, Value logits) {
  if (!logits.valid()) return {};
  const ValueInfo& info = g.info(logits);
  if (info.dtype != DType::kF32 || info.shape.size() != 2 || !info.shape[1].is_constant())
    return g.fail(invalid_argument("sample: logits are {}, expected f32 [rows, vocab_size]", to_string(info.shape)));
  return g.add(kSample, {logits}, DType::kI32, {info.shape[0], Dim(1)});
}

void add_sample(Graph& graph) {
  const ValueId logits = graph.find_output(PortRole::kLogits);
  if (logits < 0) return;
  ValueInfo sampled;
  sampled.name = "sampled";
  sampled.dtype = DType::kI32;
  sampled.shape = {graph.value(logits).shape[0], Dim(1)};
  sampled.role = PortRole::kSampled;
  const auto id = static_cast<ValueId>(graph.values.size());
  graph.values.push_back(std::move(sampled));
  Op op;
  op.def = &kSample;
  op.name = "sample";
  op.inputs = {logits};
  op.outputs = {id};
  graph.ops.push_back(std::move(op));
  graph.outputs.push_back(id);
}

namespace {

constexpr double kLargestFloat = std::numeric_limits<float>::max();

void edit_reference(const LogitEdit& edit, double& logit) {
  const double given = logit + static_cast<double>(edit.bias), repetition = static_cast<double>(edit.repetition);
  logit = given;
  if (repetition <= 0 || given < -kLargestFloat) return;
  const double scaled = (given > 0 ? given / repetition : given * repetition) - static_cast<double>(edit.penalty);
  logit = std::clamp(scaled, -kLargestFloat, kLargestFloat);
}

int64_t draw_reference(const SampleRow& row, const std::vector<double>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<size_t> kept(logits.size());
  for (size_t i = 0; i < kept.size(); ++i) kept[i] = i;
  std::stable_sort(kept.begin(), kept.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const auto weight = [&](size_t id) { return std::exp(static_cast<double>(row.scale) * (logits[id] - largest)); };
  const auto sum = [&] {
    double all = 0;
    for (const size_t id : kept) all += weight(id);
    return all;
  };
  if (row.top_k > 0 && row.top_k < std::ssize(kept)) kept.resize(static_cast<size_t>(row.top_k));
  if (row.top_p < 1) {
    const double wanted = static_cast<double>(row.top_p) * sum();
    double reached = 0;
    size_t count = 0;
    while (count < kept.size() && (count == 0 || reached < wanted)) reached += weight(kept[count++]);
    kept.resize(count);
  }
  if (row.min_p > 0) {
    const double least = static_cast<double>(row.min_p) * weight(kept[0]);
    std::erase_if(kept, [&](size_t id) { return weight(id) < least; });
  }
  const double wanted = row.u * sum();
  std::sort(kept.begin(), kept.end());
  double reached = 0;
  for (const size_t id : kept)
    if ((reached += weight(id)) > wanted) return static_cast<int64_t>(id);
  return static_cast<int64_t>(kept.back());
}

int64_t sample_reference_row(const SampleRow& row, std::vector<double> logits) {
  if (row.kind == SampleRow::Kind::kHost) return -1;
  for (const LogitEdit& edit : row.edits) edit_reference(edit, logits[static_cast<size_t>(edit.token)]);
  for (const double logit : logits)
    if (std::isnan(logit) || logit == INFINITY) return -1;
  const auto best = std::max_element(logits.begin(), logits.end());  // the first of several
  if (*best < -kLargestFloat) return -1;
  return row.kind == SampleRow::Kind::kGreedy ? best - logits.begin() : draw_reference(row, logits);
}

Status sample_reference(ReferenceContext& c) {
  const HostTensor& logits = c.in(0);
  for (int64_t row = 0; row < logits.rows(); ++row) {
    const bool is_asked = !c.samples().empty();
    c.out().row(row)[0] =
        static_cast<double>(is_asked ? sample_reference_row(c.samples()[static_cast<size_t>(row)],
                                                            {logits.row(row), logits.row(row) + logits.cols()})
                                     : -1);
  }
  return {};
}

}  // namespace

const OpDef kSample = {.name = "sample", .reference = sample_reference};

}  // namespace redline
