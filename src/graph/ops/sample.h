// Sampling of the token that follows each row of logits.
#pragma once

#include "graph/graph.h"

namespace redline {

/// Samples a token after each row of logits, as StepContext::samples asks for in each step:
/// 1. The edits of the row change the logits of single tokens (LogitEdit).
/// 2. kGreedy returns the most likely token, of equal ones the lowest id.
/// 3. kDraw gives each token the weight e^(scale (logit - the largest)). It keeps the top_k most likely tokens; of
///    these, in order of probability, as many as have a share of top_p of the weights; of these the tokens with at
///    least min_p times the largest weight. A tie keeps the lower ids. It returns the first token, in order of ids, at
///    which the sum of kept weights exceeds u times that of all kept tokens.
/// A back end gives the tokens of the host's sampler (llm/sampler.h), whose weights are rounded; the reference computes
/// with float64.
///
/// logits   [rows, vocab_size]  f32
/// returns  [rows, 1]  i32: the token. -1 if the host samples: the row asks for kHost, the step has no samples, a logit
///          is NaN or +inf, or no token is left.
Value sample(GraphBuilder& g, Value logits);

/// Adds sample() of the logits of a finished graph (PortRole::kLogits) as an output "sampled" with PortRole::kSampled.
/// Does nothing if the graph has no logits.
void add_sample(Graph& graph);

extern const OpDef kSample;

}  // namespace redline
