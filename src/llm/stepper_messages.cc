// The messages of a stepper: how a step is made of entries, checked, and written to the inputs of the network.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>

#include "llm/stepper.h"

namespace redline {

void Stepper::write_message(std::span<const StepEntry> batch) {
  StepMessage& m = message_;
  const bool has_lengths = executable_.has_input(PortRole::kLengths);
  for (StepMessage::PageTables& group : m.groups) group.begin.push_back(0);
  for (const StepEntry& entry : batch) {
    const int64_t first = entry.state->length(), n = num_tokens(entry), row = std::ssize(m.tokens), end = row + n;
    m.tokens.insert(m.tokens.end(), entry.tokens.tokens().begin(), entry.tokens.tokens().end());
    m.positions.resize(static_cast<size_t>(end * ports_.axes));
    entry.tokens.copy_positions(ports_.axes, position_origin(entry), m.positions.data() + row * ports_.axes);
    for (int64_t i = 0; has_lengths && i < n; ++i)
      m.lengths.push_back(static_cast<int32_t>(std::min(std::max(entry.expected_length, first + i + 1), context_)));
    for (size_t g = 0; g < m.groups.size(); ++g) {
      const std::span<const int32_t> pages = entry.state->page_table(g);
      m.groups[g].pages.insert(m.groups[g].pages.end(), pages.begin(), pages.end());
      m.groups[g].begin.push_back(static_cast<int32_t>(m.groups[g].pages.size()));
    }
    m.sequences.push_back({static_cast<int32_t>(row), static_cast<int32_t>(n), first});
    for (int64_t i = end - entry.logit_rows; i < end; ++i) m.logit_rows.push_back(static_cast<int32_t>(i));
    for (int64_t i = end - entry.hidden_rows; i < end; ++i) m.hidden_rows.push_back(static_cast<int32_t>(i));
  }
  add_embeddings(batch);
  add_adapters(batch);
  if (std::any_of(batch.begin(), batch.end(), [](const StepEntry& entry) { return !entry.samples.empty(); }))
    for (const StepEntry& entry : batch) {
      m.samples.insert(m.samples.end(), entry.samples.begin(), entry.samples.end());
      if (entry.samples.empty()) m.samples.resize(m.samples.size() + static_cast<size_t>(entry.logit_rows));
    }
}

void Stepper::add_embeddings(std::span<const StepEntry> batch) {
  if (ports_.hidden_size == 0) return;
  StepMessage& m = message_;
  int64_t row = 0;
  for (const StepEntry& entry : batch) {
    for (const PromptView::RowSpan& span : entry.tokens.row_spans()) {
      const int64_t begin = span.first_row * ports_.hidden_size, size = span.count * ports_.hidden_size;
      for (int64_t i = 0; i < span.count; ++i)
        m.embedding_rows.push_back(static_cast<int32_t>(row + static_cast<int64_t>(span.place) + i));
      const float* values = span.rows->values.get() + begin;
      m.embeddings.insert(m.embeddings.end(), values, values + size);
      for (size_t i = 0; i < m.layer_rows.size(); ++i) {
        std::vector<float>& rows = m.layer_rows[i];
        if (span.rows->layer_rows.empty()) rows.resize(rows.size() + static_cast<size_t>(size), 0.0f);
        else
          rows.insert(rows.end(), span.rows->layer_rows[i].get() + begin,
                      span.rows->layer_rows[i].get() + begin + size);
      }
    }
    row += num_tokens(entry);
  }
}

// Neighbours with the same adapters share a segment, and so its products.
void Stepper::add_adapters(std::span<const StepEntry> batch) {
  const auto same = [](const WeightedAdapter& a, const WeightedAdapter& b) {
    return a.adapter == b.adapter && a.weight == b.weight;
  };
  std::vector<StepMessage::Adapters>& segments = message_.adapters;
  for (const Symbol unit : {Symbol::kTokens, Symbol::kLogitRows, Symbol::kHiddenRows}) {
    const size_t first = segments.size();
    int64_t row = 0;
    for (const StepEntry& entry : batch) {
      const int64_t begin = row, n = unit == Symbol::kTokens      ? num_tokens(entry)
                                     : unit == Symbol::kLogitRows ? entry.logit_rows
                                                                  : entry.hidden_rows;
      row += n;
      if (n == 0 || entry.adapters.empty()) continue;
      if (segments.size() > first && segments.back().row_end == begin &&
          std::equal(entry.adapters.begin(), entry.adapters.end(), segments.back().adapters.begin(),
                     segments.back().adapters.end(), same))
        segments.back().row_end = row;
      else segments.push_back({unit, begin, row, {entry.adapters.begin(), entry.adapters.end()}});
    }
  }
}

Status Stepper::check(const StepMessage& m) const {
  const int64_t tokens = std::ssize(m.tokens);
  if (m.sequences.empty() || std::ssize(m.sequences) > max_sequences_ || tokens > max_batch_tokens_ ||
      std::ssize(m.logit_rows) > max_logit_rows_)
    return invalid_argument("{} sequences, {} tokens and {} rows of logits; the model takes {}, {} and {}",
                            m.sequences.size(), tokens, m.logit_rows.size(), max_sequences_, max_batch_tokens_,
                            max_logit_rows_);
  int64_t row = 0;
  for (const SequenceRows& rows : m.sequences) {
    if (rows.row_begin != row || rows.rows < 1 || rows.rows > tokens - row)
      return invalid_argument("a sequence has {} rows from {} on; {} of {} are left", rows.rows, rows.row_begin,
                              tokens - row, tokens);
    if (rows.first_position < 0 || rows.first_position > context_ - rows.rows)
      return invalid_argument("a sequence has {} tokens from position {} on; the context is {}", rows.rows,
                              rows.first_position, context_);
    row += rows.rows;
  }
  if (row != tokens) return invalid_argument("{} of {} tokens belong to sequences", row, tokens);
  REDLINE_TRY(check_rows(m));
  return check_pages(m);
}

Status Stepper::check_rows(const StepMessage& m) const {
  const int64_t tokens = std::ssize(m.tokens);
  const auto check_size = [](const char* name, size_t size, int64_t expected) -> Status {
    if (static_cast<int64_t>(size) == expected) return {};
    return invalid_argument("{} has {} numbers, the model reads {}", name, size, expected);
  };
  const auto check_range = [](const char* name, std::span<const int32_t> values, int64_t end) -> Status {
    for (const int32_t value : values)
      if (value < 0 || value >= end) return invalid_argument("{} has {}, outside [0, {})", name, value, end);
    return {};
  };
  REDLINE_TRY(check_range("tokens", m.tokens, ports_.vocab_size));
  REDLINE_TRY(check_size("positions", m.positions.size(), tokens * ports_.axes));
  REDLINE_TRY(check_range("positions", m.positions, ports_.max_position(context_)));
  const bool has_lengths = executable_.has_input(PortRole::kLengths);
  REDLINE_TRY(check_size("lengths", m.lengths.size(), has_lengths ? tokens : 0));
  REDLINE_TRY(check_range("lengths", m.lengths, context_ + 1));
  REDLINE_TRY(check_range("logit_rows", m.logit_rows, executable_.has_output(PortRole::kLogits) ? tokens : 0));
  REDLINE_TRY(check_range("hidden_rows", m.hidden_rows, executable_.has_output(PortRole::kHidden) ? tokens : 0));
  if (std::ssize(m.hidden_rows) > max_batch_tokens_)
    return invalid_argument("{} rows of hidden states; the model takes {}", m.hidden_rows.size(), max_batch_tokens_);
  REDLINE_TRY(check_range("embedding_rows", m.embedding_rows, ports_.hidden_size > 0 ? tokens : 0));
  if (std::adjacent_find(m.embedding_rows.begin(), m.embedding_rows.end(), std::greater_equal<>()) !=
      m.embedding_rows.end())
    return invalid_argument("embedding_rows do not ascend");
  const int64_t numbers = std::ssize(m.embedding_rows) * ports_.hidden_size;
  REDLINE_TRY(check_size("embeddings", m.embeddings.size(), numbers));
  REDLINE_TRY(check_size("the list of layer_rows", m.layer_rows.size(), ports_.num_layer_rows));
  for (const std::vector<float>& rows : m.layer_rows) REDLINE_TRY(check_size("layer_rows", rows.size(), numbers));
  std::array<int64_t, kNumSymbols> ends = {};
  for (const StepMessage::Adapters& segment : m.adapters) {
    const auto unit = static_cast<size_t>(segment.unit);
    if (unit >= ends.size() || segment.row_begin < ends[unit] || segment.row_end < segment.row_begin)
      return invalid_argument("adapters of rows [{}, {}), which are negative or not in order", segment.row_begin,
                              segment.row_end);
    ends[unit] = segment.row_end;
    std::vector<int64_t> ranks;  // the sum for each site
    for (const WeightedAdapter& each : segment.adapters) {
      if (!each.adapter) return invalid_argument("an adapter is missing");
      const std::vector<AdapterFactors>& factors = each.adapter->factors;
      ranks.resize(std::max(ranks.size(), factors.size()));
      for (size_t site = 0; site < factors.size(); ++site)
        if ((ranks[site] += factors[site].rank) > max_adapter_rank_)
          return invalid_argument("the adapters of a row have rank {} together, the model was opened for {}",
                                  ranks[site], max_adapter_rank_);
    }
  }
  if (!m.samples.empty()) REDLINE_TRY(check_size("samples", m.samples.size(), std::ssize(m.logit_rows)));
  const auto is_share = [](float x) { return x >= 0 && x <= 1; };  // false for NaN
  for (const SampleRow& sample : m.samples) {
    if (sample.kind == SampleRow::Kind::kDraw &&
        (!(sample.scale >= 0 && std::isfinite(sample.scale)) || sample.top_k < 0 || !is_share(sample.top_p) ||
         !is_share(sample.min_p) || !(sample.u >= 0 && sample.u < 1)))
      return invalid_argument("a row is sampled with scale {}, top_k {}, top_p {}, min_p {} and u {}", sample.scale,
                              sample.top_k, sample.top_p, sample.min_p, sample.u);
    std::vector<int32_t> edited;
    for (const LogitEdit& edit : sample.edits) edited.push_back(edit.token);
    REDLINE_TRY(check_range("samples", edited, ports_.vocab_size));
    std::sort(edited.begin(), edited.end());
    if (std::adjacent_find(edited.begin(), edited.end()) != edited.end())
      return invalid_argument("samples has two edits of one token");
  }
  return {};
}

Status Stepper::check_pages(const StepMessage& m) const {
  if (m.groups.size() != pool_->num_groups())
    return invalid_argument("page tables of {} state groups; the model has {}", m.groups.size(), pool_->num_groups());
  for (size_t g = 0; g < m.groups.size(); ++g) {
    const StepMessage::PageTables& group = m.groups[g];
    if (group.begin.size() != m.sequences.size() + 1 || group.begin.front() != 0 ||
        group.begin.back() != std::ssize(group.pages) || !std::is_sorted(group.begin.begin(), group.begin.end()))
      return invalid_argument("state group {}: {} pages are not divided among {} sequences", g, group.pages.size(),
                              m.sequences.size());
    for (const int32_t page : group.pages)
      if (page < 0 || page >= pool_->capacity(g))
        return invalid_argument("state group {}: page {} of {}", g, page, pool_->capacity(g));
    for (size_t s = 0; s < m.sequences.size(); ++s) {
      const int64_t needed = pool_->group(g).kind == StateKind::kRecurrent
                                 ? 2
                                 : kv_pages_for(m.sequences[s].first_position + m.sequences[s].rows);
      if (const int64_t pages = group.begin[s + 1] - group.begin[s]; pages < needed)
        return invalid_argument("state group {}: sequence {} has {} pages and needs {}", g, s, pages, needed);
    }
  }
  for (const PageChange& change : m.page_changes) {
    if (change.group < 0 || change.group >= std::ssize(m.groups))
      return invalid_argument("a change of a page in state group {} of {}", change.group, m.groups.size());
    const int64_t pages = pool_->capacity(static_cast<size_t>(change.group));
    if (change.page < 0 || change.page >= pages || change.copy_of < PageChange::kCleared || change.copy_of >= pages ||
        change.copy_of == change.page)
      return invalid_argument("a change of page {} by page {}; state group {} has {} pages", change.page,
                              change.copy_of, change.group, pages);
  }
  return {};
}

void Stepper::write_inputs(const StepMessage& m) {
  const auto write = [&](PortRole role, const std::vector<int32_t>& values) {
    if (!values.empty()) std::memcpy(executable_.input_i32(role), values.data(), values.size() * sizeof(int32_t));
  };
  write(PortRole::kTokens, m.tokens);
  write(PortRole::kPositions, m.positions);
  write(PortRole::kLengths, m.lengths);
  write(PortRole::kLogitRows, m.logit_rows);
  write(PortRole::kHiddenRows, m.hidden_rows);
  write(PortRole::kEmbeddingRows, m.embedding_rows);
  if (m.embedding_rows.empty()) return;
  std::copy(m.embeddings.begin(), m.embeddings.end(), executable_.input(PortRole::kEmbeddings));
  for (size_t i = 0; i < m.layer_rows.size(); ++i)
    std::copy(m.layer_rows[i].begin(), m.layer_rows[i].end(), executable_.input(PortRole::kLayerRows, i));
}

void Stepper::plan_states(const StepMessage& m) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    GroupStep& group = groups_[g];
    group.pages.clear();
    for (size_t s = 0; s < m.sequences.size(); ++s) {
      const int32_t* pages = m.groups[g].pages.data() + m.groups[g].begin[s];
      group.pages.push_back(pages);
      if (group.slots.empty()) continue;
      const SequenceRows& rows = m.sequences[s];
      for (int64_t i = 0; i < rows.rows; ++i)
        group.slots[static_cast<size_t>(rows.row_begin + i)] = kv_slot(pages, rows.first_position + i);
    }
    StateStep& state = states_[g];
    state.memory = pool_->memory().pages(g);
    state.page_bytes = pool_->group(g).page_bytes;
    state.pages = group.pages.data();
    state.slots = group.slots.data();
    if (!group.plan) continue;
    group.plan->make(m.sequences, group.reach, group.pages);
    state.attention = group.plan->work();
  }
}

}  // namespace redline
