#include "diffusion/step_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "diffusion/step_cache/measures.h"

namespace redline {

struct StepCache::Row {
  explicit Row(int64_t depth) : history(depth) {}

  // Position in the run. The state is reset if these values do not continue it.
  int64_t first_step = 0;
  StepPoint at;
  size_t latents = 0;
  Guards guards;

  std::unique_ptr<Statistic> statistic;
  std::unique_ptr<Forecaster> forecaster;
  History history;
  Snapshot pending, own;  ///< pending: forecast of this gap; own: last forecast of the previous gap (FoCa)
  bool has_own = false, has_pending = false;
  StateTensor probe;  ///< front_image - embedded of this step

  bool skips = false;  ///< the decision of step at.step, which other branches may follow
  bool is_decided = false;
  double sum = 0, measured = 0;

  // Error correction: sums over the skipped steps since the last computed one.
  std::vector<float> pending_error;             ///< sum step_size * forecast
  double pending_step_size = 0, pending_u = 0;  ///< sum step_size; sum step_size * u
  // Values of the last computed step.
  std::vector<float> model_output;
  double u = 0;
  Report report;
};

StepCache::StepCache(RulePlan plan) : plan_(std::move(plan)), reads_(reads_of(plan_)) {}
StepCache::StepCache(StepCache&&) noexcept = default;
StepCache& StepCache::operator=(StepCache&&) noexcept = default;
StepCache::~StepCache() = default;

namespace {

bool skips_network(SkippedSpan span) { return span == SkippedSpan::kOutput || span == SkippedSpan::kResidual; }

Status require(const StateView& view, int64_t length, const char* name, const char* rule) {
  if (view.size() == length && length > 0) return {};
  return invalid_argument("step cache: {} needs the row's {} with {} elements; it has {}", rule, name, length,
                          view.size());
}

}  // namespace

Result<StepCache> StepCache::make(const RuleRequest& request) {
  REDLINE_ASSIGN(RulePlan plan, plan_rule(request));
  return StepCache(std::move(plan));
}

StepCache::Row& StepCache::state_of(const CacheRow& row) {
  std::unique_ptr<Row>& state = rows_[{row.request, row.branch}];
  const StepPoint& now = row.at;
  const bool goes_on = state != nullptr && now.steps == state->at.steps &&
                       (now.step == state->at.step ||  // a later call of the same step
                        (now.step == state->at.step + 1 && now.sigma <= state->at.sigma)) &&
                       (now.step_size == 0) == (state->at.step_size == 0) && row.latents.size() == state->latents;
  if (!goes_on) {
    auto forecaster = plan_.forecaster();
    state = std::make_unique<Row>(forecaster->depth());
    state->forecaster = std::move(forecaster);
    if (plan_.statistic) state->statistic = plan_.statistic(now.steps);
    state->guards = plan_.guards;
    state->guards.begin(now.steps);
    state->first_step = now.step;
    state->latents = row.latents.size();
  }
  if (!goes_on || now.step != state->at.step) {
    state->at = now;
    state->is_decided = false;
    state->measured = std::numeric_limits<double>::quiet_NaN();
    state->report.actions.push_back(CacheAction::kRunFront);
    state->report.statistics.push_back(state->measured);
  }
  return *state;
}

void StepCache::measure(const StepView& view, Row& state) const {
  state.measured = state.statistic->measure(view);
  state.report.statistics.back() = state.measured;
  if (std::isnan(state.measured)) ++state.report.num_not_finite;
  state.sum += state.measured;
  state.guards.measured(state.measured);
}

bool StepCache::skips(const StepView& view, Row& state) {
  if (state.history.size() == 0) return false;
  if (plan_.share_decision && view.row.branch != 0) {
    const auto leader = rows_.find({view.row.request, 0});
    if (leader != rows_.end() && leader->second->is_decided && leader->second->at.step == view.row.at.step)
      return leader->second->skips;
  }
  if (state.guards.computes(view.row.at, view.row.at.step - state.first_step)) return false;
  if (plan_.decision == Decision::kNever) return false;
  if (plan_.decision == Decision::kAlways) return true;
  measure(view, state);
  double value = plan_.decision == Decision::kBelow ? state.measured : state.sum;
  if (plan_.joint) {
    double total = value, count = 1;
    for (auto it = rows_.upper_bound({view.row.request, 0}); it != rows_.end() && it->first.first == view.row.request;
         ++it) {
      Row& other = *it->second;
      if (other.history.size() == 0 || other.statistic == nullptr) continue;
      other.measured = other.statistic->measure(view);
      other.sum += other.measured;
      total += plan_.decision == Decision::kBelow ? other.measured : other.sum;
      ++count;
    }
    value = total / count;
  }
  if (std::isnan(value)) return false;
  return plan_.decision == Decision::kSumAtMost ? value <= plan_.threshold : value < plan_.threshold;
}

Status StepCache::decide(const CacheRow& row, Row& state, bool& skips_step) {
  const bool reads_probe =
      state.forecaster->reads_probe() || (state.statistic && state.statistic->reads() == StatisticInput::kFront);
  if (reads_probe) {
    REDLINE_TRY(require(row.embedded, row.embedded.size(), "embedded image tokens", plan_.description.c_str()));
    REDLINE_TRY(
        require(row.front_image, row.embedded.size(), "image tokens after the front", plan_.description.c_str()));
    state.probe.resize_like(row.front_image);
    subtract(row.front_image, row.embedded, state.probe);
  }
  if (state.statistic && state.statistic->reads() == StatisticInput::kModulated)
    REDLINE_TRY(require(row.modulated, row.modulated.size(), "modulated input", plan_.description.c_str()));
  const StepView view = {row, state.probe};
  skips_step = skips(view, state);
  state.is_decided = true;
  state.skips = skips_step;
  state.guards.decided(row.at.step, skips_step);
  if (!skips_step) state.sum = 0;
  if (state.statistic) state.statistic->decided(view, !skips_step);
  return {};
}

void StepCache::forecast(const CacheRow& row, Row& state) {
  std::vector<double> weights(static_cast<size_t>(state.history.size()) +
                              (state.forecaster->reads_own_forecast() ? 1 : 0));
  const ForecastPoint point = {row.at.step, row.at.sigma, state.probe};
  state.forecaster->weights(state.history, point, state.has_own ? state.own.step : -1, weights);
  if (!std::all_of(weights.begin(), weights.end(), [](double w) { return std::isfinite(w); })) {
    ++state.report.num_not_finite;
    std::fill(weights.begin(), weights.end(), 0.0);
    weights[0] = 1;
  }
  std::vector<StateView> images, texts;
  for (int64_t k = 0; k < state.history.size(); ++k) {
    images.push_back(state.history[k].image);
    texts.push_back(state.history[k].text);
  }
  if (state.forecaster->reads_own_forecast()) {
    images.push_back(state.own.image);
    texts.push_back(state.own.text);
    state.pending.step = row.at.step;
    state.pending.image.resize_like(state.history[0].image);
    state.pending.text.resize_like(state.history[0].text);
    weighted_sum({}, weights, images, state.pending.image);
    weighted_sum({}, weights, texts, state.pending.text);
    state.has_pending = true;
  }
  switch (plan_.span) {
    case SkippedSpan::kOutput: return weighted_sum({}, weights, images, row.model_output);
    case SkippedSpan::kResidual: return weighted_sum(row.latents, weights, images, row.model_output);
    case SkippedSpan::kMiddle:
    case SkippedSpan::kBlocks:
      weighted_sum(plan_.span == SkippedSpan::kMiddle ? row.front_image : row.embedded, weights, images,
                   row.middle_image);
      if (!row.middle_text.empty()) weighted_sum(row.front_text, weights, texts, row.middle_text);
  }
}

void StepCache::accumulate_error(const CacheRow& row, Row& state) const {
  if (!plan_.correct_errors || row.at.step_size == 0) return;
  state.pending_error.resize(row.model_output.size());
  const auto size = static_cast<float>(row.at.step_size);
  for (size_t i = 0; i < state.pending_error.size(); ++i) state.pending_error[i] += size * row.model_output[i];
  state.pending_step_size += row.at.step_size;
  state.pending_u += row.at.step_size * u_of_sigma(row.at.sigma);
}

void StepCache::store(CacheRow& row, Row& state) {
  if (state.statistic) state.statistic->computed(row);
  Snapshot& snapshot = state.history.push();
  snapshot.step = row.at.step;
  snapshot.sigma = row.at.sigma;
  switch (plan_.span) {
    case SkippedSpan::kOutput: snapshot.image.assign(row.model_output); break;
    case SkippedSpan::kResidual:
      snapshot.image.resize_like(row.model_output);
      subtract(row.model_output, row.latents, snapshot.image);
      break;
    case SkippedSpan::kMiddle:
    case SkippedSpan::kBlocks:
      snapshot.image.resize_like(row.middle_image);
      subtract(row.middle_image, plan_.span == SkippedSpan::kMiddle ? row.front_image : row.embedded, snapshot.image);
      snapshot.text.resize_like(row.middle_text);
      subtract(row.middle_text, row.front_text, snapshot.text);
  }
  if (state.forecaster->reads_probe()) snapshot.probe.assign(state.probe);
  state.has_own = state.has_pending;
  if (state.has_pending) std::swap(state.own, state.pending);
  state.has_pending = false;
  state.forecaster->stored(state.history);

  if (!plan_.correct_errors) return;
  const double u = u_of_sigma(row.at.sigma);
  std::vector<float> raw(row.model_output.begin(), row.model_output.end());
  if (state.pending_step_size != 0 && row.at.step_size != 0 && u != state.u) {
    const double along = (state.pending_u - state.pending_step_size * state.u) / (u - state.u);
    const auto to_now = static_cast<float>(along / row.at.step_size),
               to_before = static_cast<float>((state.pending_step_size - along) / row.at.step_size),
               taken = static_cast<float>(1 / row.at.step_size);
    for (size_t i = 0; i < raw.size(); ++i)
      row.model_output[i] =
          raw[i] + (to_now * raw[i] + to_before * state.model_output[i] - taken * state.pending_error[i]);
  }
  state.model_output = std::move(raw);
  state.u = u;
  state.pending_step_size = state.pending_u = 0;
  std::fill(state.pending_error.begin(), state.pending_error.end(), 0.0F);
}

Status StepCache::before(std::span<CacheRow> rows) {
  // All states must exist before the first decision, because a joint decision reads every branch.
  for (CacheRow& row : rows) {
    row.action = CacheAction::kRunFront;
    state_of(row);
  }
  if (!skips_network(plan_.span)) return {};
  for (const bool leads : {true, false})
    for (CacheRow& row : rows) {
      if ((row.branch == 0) != leads) continue;
      Row& state = state_of(row);
      bool skips_step = false;
      REDLINE_TRY(decide(row, state, skips_step));
      if (!skips_step) continue;
      const int64_t stored = state.history[0].image.size();
      REDLINE_TRY(require(row.model_output, stored, "model output", plan_.description.c_str()));
      if (plan_.span == SkippedSpan::kResidual)
        REDLINE_TRY(require(row.latents, stored, "latents", plan_.description.c_str()));
      forecast(row, state);
      accumulate_error(row, state);
      row.action = state.report.actions.back() = CacheAction::kSkipAll;
    }
  return {};
}

Status StepCache::after_front(std::span<CacheRow> rows) {
  for (const bool leads : {true, false})
    for (CacheRow& row : rows) {
      if ((row.branch == 0) != leads || row.action != CacheAction::kRunFront) continue;
      Row& state = state_of(row);
      bool skips_step = false;
      if (!skips_network(plan_.span)) REDLINE_TRY(decide(row, state, skips_step));
      if (skips_step) {
        const int64_t stored = state.history[0].image.size(), text = state.history[0].text.size();
        const bool is_middle = plan_.span == SkippedSpan::kMiddle;
        REDLINE_TRY(
            require(is_middle ? row.front_image : row.embedded, stored, "image tokens", plan_.description.c_str()));
        REDLINE_TRY(require(row.middle_image, stored, "output of the middle", plan_.description.c_str()));
        if (text > 0) {
          REDLINE_TRY(require(row.middle_text, text, "text of the middle", plan_.description.c_str()));
          REDLINE_TRY(require(row.front_text, text, "text after the front", plan_.description.c_str()));
        }
        forecast(row, state);
      }
      row.action = skips_step ? CacheAction::kSkipMiddle : CacheAction::kCompute;
      state.report.actions.back() = row.action;
    }
  return {};
}

Status StepCache::after_tail(std::span<CacheRow> rows) {
  for (CacheRow& row : rows) {
    if (row.action == CacheAction::kSkipAll) continue;
    Row& state = state_of(row);
    if (row.action == CacheAction::kSkipMiddle) {
      accumulate_error(row, state);
      continue;
    }
    const char* rule = plan_.description.c_str();
    if (skips_network(plan_.span) || plan_.correct_errors)
      REDLINE_TRY(require(row.model_output, std::ssize(row.model_output), "model output", rule));
    if (plan_.span == SkippedSpan::kResidual)
      REDLINE_TRY(require(row.latents, std::ssize(row.model_output), "latents", rule));
    if (!skips_network(plan_.span) && plan_.decision != Decision::kNever) {
      const StateView& base = plan_.span == SkippedSpan::kMiddle ? row.front_image : row.embedded;
      REDLINE_TRY(require(row.middle_image, base.size(), "output of the middle", rule));
      if (!row.middle_text.empty())
        REDLINE_TRY(require(row.front_text, row.middle_text.size(), "text after the front", rule));
    }
    if (plan_.decision != Decision::kNever) store(row, state);
  }
  return {};
}

void StepCache::forget(uint64_t request) {
  rows_.erase(rows_.lower_bound({request, std::numeric_limits<int64_t>::min()}),
              rows_.upper_bound({request, std::numeric_limits<int64_t>::max()}));
}

const StepCache::Report* StepCache::report(uint64_t request, int64_t branch) const {
  const auto found = rows_.find({request, branch});
  return found == rows_.end() ? nullptr : &found->second->report;
}

int64_t StepCache::bytes() const {
  int64_t floats = 0, history = 0;
  for (const auto& [key, row] : rows_) {
    history += row->history.bytes();
    for (const StateTensor* t : {&row->pending.image, &row->pending.text, &row->own.image, &row->own.text, &row->probe})
      floats += t->size();
    floats += std::ssize(row->pending_error) + std::ssize(row->model_output);
  }
  return history + floats * static_cast<int64_t>(sizeof(float));
}

}  // namespace redline
