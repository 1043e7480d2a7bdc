#include "llm/prompt_ports.h"

namespace redline {

PromptPorts PromptPorts::of(const Graph& graph, int64_t vocab_size) {
  PromptPorts ports;
  ports.vocab_size = vocab_size;
  for (const ValueId id : graph.inputs) {
    const ValueInfo& input = graph.value(id);
    if (input.role == PortRole::kEmbeddings) ports.hidden_size = input.shape[1].constant();
    if (input.role == PortRole::kLayerRows) ++ports.num_layer_rows;
    if (input.role == PortRole::kPositions && input.shape.size() > 1) ports.axes = input.shape[1].constant();
  }
  return ports;
}

Status PromptPorts::check(const PromptView& prompt) const {
  for (const int32_t id : prompt.tokens())
    if (id < 0 || id >= vocab_size) return invalid_argument("token {} is outside the vocabulary of {}", id, vocab_size);
  for (const PromptView::RowSpan& span : prompt.row_spans()) {
    const EmbeddingRows& rows = *span.rows;
    if (hidden_size == 0)
      return unsupported(
          "the prompt has rows of embeddings, and the model was opened without an input for them; open it with "
          "prompt_embeddings");
    if (rows.hidden_size != hidden_size)
      return invalid_argument("embeddings: rows of {} numbers; the model's hidden_size is {}", rows.hidden_size,
                              hidden_size);
    if (!rows.positions.empty() && rows.axes != axes)
      return invalid_argument("embeddings: positions on {} axes; the model's positions have {}", rows.axes, axes);
    if (!rows.layer_rows.empty() && std::ssize(rows.layer_rows) != num_layer_rows)
      return invalid_argument("embeddings: {} layer_rows; the model adds rows after {} layers", rows.layer_rows.size(),
                              num_layer_rows);
  }
  return {};
}

}  // namespace redline
