#include "graph/adapter_sites.h"

#include "graph/ops/conv2d.h"
#include "graph/ops/embedding.h"
#include "graph/ops/linear.h"

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

}  // namespace redline
