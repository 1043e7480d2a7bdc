#include "graph/adapter_sites.h"

#include "graph/ops/convolution.h"
#include "graph/ops/embedding.h"
#include "graph/ops/linear.h"

namespace redline {
namespace {

/// Returns true if a size contains a symbol. Sizes are polynomials with positive factors, so they grow with each
/// symbol.
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

/// Makes the site of `op` with index `index`. The caller sets the members that depend on the kind of op.
std::shared_ptr<AdapterSite> new_site(const Graph& graph, const Op& op, const ValueInfo& weight, size_t index,
                                      int64_t max_rank) {
  auto site = std::make_shared<AdapterSite>();
  site->index = index;
  site->op = op.name;
  site->weight = weight.name;
  site->rows = graph.value(op.outputs[0]).shape[0];
  site->unit = unit_of(site->rows);
  site->max_rank = max_rank;
  return site;
}

}  // namespace

AdapterSites add_adapter_sites(Graph& graph, int64_t max_rank, const std::function<bool(const std::string&)>& wanted,
                               size_t first_index) {
  AdapterSites sites;
  for (Op& op : graph.ops) {
    const bool is_convolution = op.def == &kConvolution && may_have_adapters(graph, op);
    if ((op.def != &kLinear && !is_convolution) || !wanted(graph.value(op.inputs[1]).name)) continue;
    const ValueInfo& weight = graph.value(op.inputs[1]);
    auto site = new_site(graph, op, weight, first_index + sites.size(), max_rank);
    site->out_features = weight.shape[0].constant();
    site->in_features = num_elements(weight.shape).constant() / site->out_features;
    site->source_row = weight.weight.source_row;
    site->columns = weight.weight.columns;
    if (is_convolution) {
      auto attrs = std::any_cast<ConvolutionOpAttrs>(op.attrs);
      site->kernel = SquareConv2d::of(attrs)->kernel;
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
    auto site = new_site(graph, op, weight, first_index + sites.size(), max_rank);
    site->out_features = weight.shape[1].constant();
    site->in_features = weight.shape[0].constant();
    site->is_lookup = true;
    op.attrs = EmbeddingAttrs{site};
    sites.push_back(std::move(site));
  }
  return sites;
}

}  // namespace redline
