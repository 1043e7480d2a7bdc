// Rows that replace rows of the residual stream, or are added to them: embeddings of images and sounds in a prompt.
#pragma once

#include "graph/graph.h"

namespace redline {

struct PlaceRowsAttrs {
  bool adds = false;  ///< the rows are added (add_rows)
};

/// y[at[i]] = rows[i]; all other rows of y are those of x. Puts the embeddings that an image or audio encoder has
/// computed in the place of the embeddings of placeholder tokens.
///
/// x     [n, cols]     f32
/// rows  [rows, cols]  f32
/// at    [rows]        i32, in [0, n), ascending
/// returns like x
Value place_rows(GraphBuilder& g, Value x, Value rows, Value at);

/// y[at[i]] = x[at[i]] + rows[i]; all other rows of y are those of x. Adds the features of a vision encoder's inner
/// layers to the hidden states of the same tokens (DeepStack, Meng et al. 2024, arXiv:2406.04334). Arguments: as
/// place_rows().
Value add_rows(GraphBuilder& g, Value x, Value rows, Value at);

extern const OpDef kPlaceRows;

}  // namespace redline
