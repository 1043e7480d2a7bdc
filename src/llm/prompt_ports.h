// The inputs of a network that a prompt feeds, and whether a prompt fits them.
#pragma once

#include "base/error.h"
#include "graph/graph.h"
#include "redline/prompt.h"

namespace redline {

/// The inputs of a network of steps (PortRole) that depend on the prompt.
struct PromptPorts {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;     ///< numbers of a row of embeddings; 0: the network takes none
  int64_t axes = 1;            ///< axes of the positions
  int64_t num_layer_rows = 0;  ///< inputs for EmbeddingRows::layer_rows

  /// Returns the end of the positions: that of the context if they have one axis, where the model may have a table of
  /// learned positions.
  int64_t max_position(int64_t context) const { return axes == 1 ? context : INT32_MAX; }
  static PromptPorts of(const Graph& graph, int64_t vocab_size);
  /// invalid_argument: a token outside the vocabulary, or rows of another width, with positions on other axes or with
  /// another number of layer rows. unsupported: rows for a network that takes none.
  Status check(const PromptView& prompt) const;
};

}  // namespace redline
