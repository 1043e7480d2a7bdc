#include "graph/adapters.h"

#include "graph/ops/conv2d.h"
#include "graph/ops/embedding.h"
#include "graph/ops/linear.h"
#include "graph/reference.h"

namespace redline {
namespace {

/// Sizes are polynomials with positive factors.
bool depends_on(const Dim& dim, Symbol symbol) {
  SymbolValues ones;
  for (int64_t& value : ones.value) value = 1;
  SymbolValues doubled = ones;
  doubled[symbol] = 2;
  return dim.eval(ones) != dim.eval(doubled);
}

Symbol unit_of(const Dim& rows) {
  for (const Symbol symbol : {Symbol::kBatch, Symbol::kLogitRows, Symbol::kHiddenRows})
    if (depends_on(rows, symbol)) return symbol;
  return Symbol::kTokens;
}

}  // namespace

AdapterSites add_adapter_sites(Graph& graph, int64_t max_rank, const std::function<bool(const std::string&)>& wanted,
                               size_t first_index) {
  AdapterSites sites;
  for (Op& op : graph.ops) {
    if ((op.def != &kLinear && op.def != &kConv2d) || !wanted(graph.value(op.inputs[1]).name)) continue;
    const ValueInfo& weight = graph.value(op.inputs[1]);
    auto site = std::make_shared<AdapterSite>();
    site->index = first_index + sites.size();
    site->op = op.name;
    site->weight = weight.name;
    site->out_features = weight.shape[0].constant();
    site->in_features = num_elements(weight.shape).constant() / site->out_features;
    site->rows = graph.value(op.outputs[0]).shape[0];
    site->unit = unit_of(site->rows);
    site->source_row = weight.weight.source_row;
    site->columns = weight.weight.columns;
    site->max_rank = max_rank;
    if (op.def == &kConv2d) {
      auto attrs = std::any_cast<Conv2dOpAttrs>(op.attrs);
      site->kernel = attrs.kernel;
      attrs.adapters = site;
      op.attrs = std::move(attrs);
    } else {
      auto attrs = std::any_cast<LinearAttrs>(op.attrs);
      attrs.adapters = site;
      op.attrs = std::move(attrs);
    }
    sites.push_back(std::move(site));
  }
  return sites;
}

AdapterSites add_lookup_sites(Graph& graph, int64_t max_rank, size_t first_index) {
  AdapterSites sites;
  for (Op& op : graph.ops) {
    if (op.def != &kEmbedding) continue;
    const ValueInfo& weight = graph.value(op.inputs[0]);
    auto site = std::make_shared<AdapterSite>();
    site->index = first_index + sites.size();
    site->op = op.name;
    site->weight = weight.name;
    site->out_features = weight.shape[1].constant();
    site->in_features = weight.shape[0].constant();
    site->is_lookup = true;
    site->rows = graph.value(op.outputs[0]).shape[0];
    site->unit = unit_of(site->rows);
    site->max_rank = max_rank;
    op.attrs = EmbeddingAttrs{site};
    sites.push_back(std::move(site));
  }
  return sites;
}

bool is_adapted(std::span<const AdapterSegment> segments, const AdapterSite* site, const SymbolValues& sizes) {
  if (site == nullptr || segments.empty()) return false;
  bool found = false;
  for_adapted_rows(segments, *site, sizes, 0, site->rows.eval(sizes), [&](const AdaptedRows&) { found = true; });
  return found;
}

void add_adapters_reference(const ReferenceContext& c, const AdapterSite* site, const HostTensor& x, HostTensor& y,
                            int64_t first_feature) {
  if (site == nullptr) return;
  for_adapted_rows(c.adapters(), *site, c.sizes(), 0, x.rows(), [&](const AdaptedRows& rows) {
    for (const WeightedAdapter& each : rows.adapters) {
      const AdapterFactors* f = factors_at(each, *site);
      const double scale = f == nullptr ? 0 : static_cast<double>(f->scale) * static_cast<double>(each.weight);
      for (int64_t m = rows.begin; f != nullptr && m < rows.end; ++m) {
        for (int64_t n = 0; f->bias != nullptr && n < y.cols(); ++n)
          y.row(m)[n] += scale * static_cast<double>(f->bias[first_feature + n]);
        for (int64_t r = 0; r < f->rank; ++r) {
          double t = 0;
          for (int64_t k = 0; k < x.cols(); ++k)
            t += x.row(m)[k] * static_cast<double>(f->plain_down[r * x.cols() + k]);
          t *= scale;
          for (int64_t n = 0; n < y.cols(); ++n)
            y.row(m)[n] += t * static_cast<double>(f->plain_up[(first_feature + n) * f->rank + r]);
        }
      }
    }
  });
}

}  // namespace redline
