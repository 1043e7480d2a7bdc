// The functions for prompts of tokens and rows of embeddings.
#include "capi/handles.h"

using namespace redline;
using namespace redline::capi;

namespace {

redline_embedding_rows default_embedding_rows() {
  redline_embedding_rows rows = {};
  rows.struct_size = sizeof rows;
  rows.num_axes = 1;
  return rows;
}

/// Copies rows [num_rows, hidden_size].
std::shared_ptr<const float> copy_rows(const float* from, const redline_embedding_rows& rows) {
  const auto size = static_cast<int64_t>(rows.num_rows) * rows.hidden_size;
  const auto owner = std::make_shared<const std::vector<float>>(from, from + size);
  return {owner, owner->data()};
}

}  // namespace

void redline_embedding_rows_init(redline_embedding_rows* rows, size_t struct_size) {
  init_struct(rows, struct_size, default_embedding_rows());
}

redline_code redline_prompt_spans_create(redline_prompt_spans** spans, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(spans), "spans"));
    *spans = nullptr;
    *spans = new redline_prompt_spans();
    return {};
  });
}

redline_code redline_prompt_spans_add_tokens(redline_prompt_spans* spans, const int32_t* tokens, size_t num_tokens,
                                             redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(spans, "spans"));
    if (num_tokens > 0) REDLINE_TRY(required(tokens, "tokens"));
    spans->prompt.append(std::span(tokens, num_tokens));
    return {};
  });
}

redline_code redline_prompt_spans_add_embeddings(redline_prompt_spans* spans, const redline_embedding_rows* rows,
                                                 redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(spans, "spans"));
    REDLINE_TRY(required(rows, "rows"));
    REDLINE_ASSIGN(const redline_embedding_rows given,
                   read_struct(rows, default_embedding_rows(), "redline_embedding_rows"));
    REDLINE_TRY(required(given.values, "values"));
    if (given.num_rows == 0 || given.hidden_size < 1)
      return invalid_argument("embeddings of {} rows of {} numbers; both must be at least 1", given.num_rows,
                              given.hidden_size);
    const int64_t shape[] = {static_cast<int64_t>(given.num_rows), given.hidden_size};
    REDLINE_TRY(shape_of(shape, 2, "values"));
    EmbeddingRows out;
    out.values = copy_rows(given.values, given);
    out.rows = shape[0];
    out.hidden_size = given.hidden_size;
    out.media_hash = given.media_hash;
    out.media_offset = given.media_offset;
    out.placeholder = given.placeholder;
    out.axes = given.num_axes;
    // More axes are an error of append(), which must not read them before.
    if (given.positions != nullptr && given.num_axes > 0 && given.num_axes <= Prompt::kMaxAxes)
      out.positions.assign(given.positions, given.positions + shape[0] * given.num_axes);
    if (given.num_layer_rows > 0) REDLINE_TRY(required(given.layer_rows, "layer_rows"));
    for (size_t i = 0; i < given.num_layer_rows; ++i)
      out.layer_rows.push_back(copy_rows(given.layer_rows + static_cast<int64_t>(i) * shape[0] * shape[1], given));
    return spans->prompt.append(std::move(out));
  });
}

size_t redline_prompt_spans_length(const redline_prompt_spans* spans) {
  return spans != nullptr ? spans->prompt.size() : 0;
}
void redline_prompt_spans_release(redline_prompt_spans* spans) { delete spans; }
