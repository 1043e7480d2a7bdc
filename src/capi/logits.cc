// The functions for logits, and for sequences with which a caller writes its own loop.
#include "capi/handles.h"

using namespace redline;
using namespace redline::capi;

struct redline_sequence {
  const Process process = {};
  std::shared_ptr<TextContents> model;
  std::unique_ptr<Sequence> sequence;
};

namespace {

/// Returns the caller's memory for rows of logits; empty if it wants none.
Result<std::span<float>> rows_of(const TextEngine& engine, size_t num_rows, float* logits, size_t num_floats) {
  if (num_rows == 0) return std::span<float>();
  REDLINE_TRY(required(logits, "logits"));
  const auto vocab = static_cast<size_t>(engine.info().vocab_size);
  if (num_rows != num_floats / vocab || num_floats % vocab != 0)
    return invalid_argument("logits: {} rows of {} tokens need {} floats, {} are given", num_rows, vocab,
                            num_rows * vocab, num_floats);
  return std::span<float>(logits, num_floats);
}

redline_logits_options default_logits_options() {
  redline_logits_options o = {};
  o.struct_size = sizeof o;
  return o;
}

bool is_stopped(const redline_logits_options& o) {
  return is_cancelled(o.canceller) || (o.on_step != nullptr && o.on_step(o.user_data) != 0);
}

/// Appends tokens in steps. The caller may cancel before each step.
Status append_cancellable(Sequence& sequence, std::span<const int32_t> tokens, const redline_logits_options& o,
                          size_t num_rows, std::span<float> logits) {
  if (is_stopped(o)) return cancelled("logits: cancelled after 0 of {} tokens", tokens.size());
  float* out = logits.data();
  return sequence.append_in_steps(tokens, static_cast<int64_t>(num_rows),
                                  [&](int64_t appended, std::span<const float> rows) {
                                    out = std::copy(rows.begin(), rows.end(), out);
                                    return appended == std::ssize(tokens) || !is_stopped(o);
                                  });
}

Status check_contents(const redline_batch_entry& entry) {
  return entry.num_tokens > 0 ? required(entry.tokens, "tokens") : Status();
}
Status check_contents(const redline_span_entry& entry) { return required(entry.spans, "spans"); }
PromptView contents_of(const redline_batch_entry& entry) { return {entry.tokens, entry.num_tokens}; }
PromptView contents_of(const redline_span_entry& entry) { return entry.spans->prompt; }

template <class Entry>
Status check_same_model(const Entry& entry, const redline_model& model) {
  REDLINE_TRY(usable(entry.sequence, "sequence"));
  REDLINE_TRY(check_contents(entry));
  if (entry.num_rows > 0) REDLINE_TRY(required(entry.logits, "logits"));
  return entry.sequence->model == model.shared ? Status() : invalid_argument("a sequence of another model");
}

/// Does what redline_model_run_batch does.
template <class Entry>
redline_code run_batch(redline_model* model, const Entry* entries, size_t num_entries, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(model, "model"));
    if (num_entries > 0) REDLINE_TRY(required(entries, "entries"));
    const auto vocab = static_cast<size_t>(model->shared->engine->info().vocab_size);
    std::vector<BatchEntry> batch;
    batch.reserve(num_entries);
    for (size_t i = 0; i < num_entries; ++i) {
      const Entry& entry = entries[i];
      REDLINE_TRY(check_same_model(entry, *model).within(fmt::format("entries[{}]", i)));
      const PromptView tokens = contents_of(entry);
      if (entry.num_rows > tokens.size())
        return invalid_argument("entries[{}]: {} rows of logits for {} tokens", i, entry.num_rows, tokens.size());
      batch.push_back({.sequence = entry.sequence->sequence.get(),
                       .tokens = tokens,
                       .logits = {entry.logits, entry.num_rows * vocab}});
    }
    return model->shared->engine->run_batch(batch);
  });
}

}  // namespace

void redline_logits_options_init(redline_logits_options* options, size_t struct_size) {
  init_struct(options, struct_size, default_logits_options());
}

redline_code redline_model_logits(redline_model* model, const int32_t* tokens, size_t num_tokens,
                                  const redline_logits_options* options, size_t num_rows, float* logits,
                                  size_t num_floats, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(model, "model"));
    const std::shared_ptr<TextContents> contents = model->shared;
    REDLINE_ASSIGN(const redline_logits_options o,
                   read_struct(options, default_logits_options(), "redline_logits_options"));
    if (num_tokens == 0) return invalid_argument("no tokens; a model needs one at least, such as BOS");
    REDLINE_TRY(required(tokens, "tokens"));
    if (const int64_t context = contents->engine->info().context; num_tokens > static_cast<size_t>(context))
      return invalid_argument("{} tokens, the context holds {}; open the model with a larger context", num_tokens,
                              context);
    if (num_rows > num_tokens) return invalid_argument("{} rows of logits for {} tokens", num_rows, num_tokens);
    REDLINE_ASSIGN(const std::span<float> rows, rows_of(*contents->engine, num_rows, logits, num_floats));
    REDLINE_ASSIGN(const AdapterWeights adapters, adapter_weights(o.adapters, o.num_adapters));
    REDLINE_ASSIGN(const std::unique_ptr<Sequence> sequence, contents->engine->new_sequence(adapters));
    return append_cancellable(*sequence, {tokens, num_tokens}, o, num_rows, rows);
  });
}

redline_code redline_sequence_open(redline_model* model, const redline_adapter_weight* adapters, size_t num_adapters,
                                   redline_sequence** sequence, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(sequence), "sequence"));
    *sequence = nullptr;
    REDLINE_TRY(usable(model, "model"));
    REDLINE_ASSIGN(const AdapterWeights weights, adapter_weights(adapters, num_adapters));
    auto opened = std::make_unique<redline_sequence>();
    opened->model = model->shared;
    REDLINE_ASSIGN(opened->sequence, model->shared->engine->new_sequence(weights));
    *sequence = opened.release();
    return {};
  });
}

redline_code redline_sequence_append(redline_sequence* sequence, const int32_t* tokens, size_t num_tokens,
                                     size_t num_rows, float* logits, size_t num_floats, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(sequence, "sequence"));
    if (num_tokens > 0) REDLINE_TRY(required(tokens, "tokens"));
    REDLINE_ASSIGN(const std::span<float> rows, rows_of(*sequence->model->engine, num_rows, logits, num_floats));
    return sequence->sequence->append({tokens, num_tokens}, rows);
  });
}

redline_code redline_sequence_append_spans(redline_sequence* sequence, const redline_prompt_spans* spans,
                                           size_t num_rows, float* logits, size_t num_floats, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(usable(sequence, "sequence"));
    REDLINE_TRY(required(spans, "spans"));
    REDLINE_ASSIGN(const std::span<float> rows, rows_of(*sequence->model->engine, num_rows, logits, num_floats));
    return sequence->sequence->append(spans->prompt, rows);
  });
}

int64_t redline_sequence_length(const redline_sequence* sequence) {
  return sequence != nullptr ? sequence->sequence->length() : 0;
}

redline_code redline_sequence_truncate(redline_sequence* sequence, int64_t length, int64_t* left,
                                       redline_error** error) {
  return guarded(error, [&]() -> Status {
    if (left != nullptr) *left = 0;
    REDLINE_TRY(usable(sequence, "sequence"));
    if (length < 0) return invalid_argument("length {}: a sequence has no fewer than 0 tokens", length);
    const int64_t kept = sequence->sequence->truncate(length);
    if (left != nullptr) *left = kept;
    return {};
  });
}

redline_code redline_sequence_fork(const redline_sequence* sequence, redline_sequence** fork, redline_error** error) {
  return guarded(error, [&]() -> Status {
    REDLINE_TRY(required(static_cast<void*>(fork), "fork"));
    *fork = nullptr;
    REDLINE_TRY(usable(sequence, "sequence"));
    auto forked = std::make_unique<redline_sequence>();
    forked->model = sequence->model;
    REDLINE_ASSIGN(forked->sequence, sequence->sequence->fork());
    *fork = forked.release();
    return {};
  });
}

void redline_sequence_release(redline_sequence* sequence) {
  if (sequence == nullptr) return;
  if (sequence->process.is_current()) sequence->sequence.reset();
  else (void)sequence->sequence.release();  // its engine has no threads here
  drop(std::move(sequence->model), sequence->process);
  delete sequence;
}

redline_code redline_model_run_batch(redline_model* model, const redline_batch_entry* entries, size_t num_entries,
                                     redline_error** error) {
  return run_batch(model, entries, num_entries, error);
}

redline_code redline_model_run_batch_spans(redline_model* model, const redline_span_entry* entries, size_t num_entries,
                                           redline_error** error) {
  return run_batch(model, entries, num_entries, error);
}
