// Converts the matrices of a language model to another type while they are packed, without a copy in memory.
#pragma once

#include "graph/graph.h"
#include "redline/precision.h"

namespace redline {

/// Converts the matrices that linear ops and experts multiply by to the type of a Precision: bf16, q8_0 or w8a8. kAuto
/// and kF32 convert nothing; kQ8 must be resolved before (resolve_precision()). Rows are read and rounded when they are
/// needed first, so the conversion runs on the workers that pack the weights, and not at all where packed weights come
/// from the cache: the identity of a converted weight includes both types.
///
/// These matrices keep their type, and WeightConversion::kept counts them:
///   - types that are not wider than the target; w8a8 has fewer bytes than Q8_0 and is faster, so that is converted
///   - rows that are not whole blocks of the target
///   - routers, and gates of shared experts: a changed choice of experts changes everything after it
///   - matrices that other ops read as well, except the embedding that is also the output matrix
/// An embedding that is only looked up is no product, and keeps its type too.
/// The output matrix becomes Q8_0 where the others become w8a8: it has the same size, and its errors, unlike those of
/// layers, go into the logits directly.
///
/// unsupported: no matrix of a layer is converted, and none has the target's type already. The message gives the
/// reasons and names `asked`, the type that the user has given. out_of_memory.
Result<WeightConversion> convert_graph_matrices(Graph& graph, Precision precision, Precision asked);

}  // namespace redline
