// Embedding lookup.
#pragma once

#include "graph/adapters.h"

namespace redline {

struct EmbeddingAttrs {
  std::shared_ptr<AdapterSite> adapters;  ///< added to the rows; nullptr: the op has no site
};

/// Embedding lookup: y[t] = weight[tokens[t]].
///
/// weight  [vocab_size, hidden_size]  any weight type
/// tokens  [tokens]                   i32, in [0, vocab_size)
/// returns [tokens, hidden_size]      f32
Value embedding(GraphBuilder& g, Value weight, Value tokens);

extern const OpDef kEmbedding;

}  // namespace redline
