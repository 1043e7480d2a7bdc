#include "lab/images/mask_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

namespace redline::lab {

MaskCosts::MaskCosts(std::span<const Trajectory> trajectories) {
  steps_ = trajectories.empty() ? 0 : std::ssize(trajectories[0].velocity);
  gram_.assign(static_cast<size_t>(steps_ * steps_), 0);
  for (const Trajectory& t : trajectories) {
    u_ = t.u;
    step_sizes_ = t.step_sizes;
    const double count = static_cast<double>(trajectories.size()) * static_cast<double>(t.velocity[0].size());
    for (int64_t a = 0; a < steps_; ++a)
      for (int64_t b = 0; b <= a; ++b) {
        // The product is in float64, because costs are small differences of these numbers.
        const double product = std::transform_reduce(t.velocity[a].begin(), t.velocity[a].end(), t.velocity[b].begin(),
                                                     0.0, std::plus<>(), [](double x, double y) { return x * y; }) /
                               count;
        gram_[a * steps_ + b] += product;
        if (a != b) gram_[b * steps_ + a] += product;
      }
  }
}

double MaskCosts::cost(int64_t i, int64_t j, int64_t k) const {
  // Weights of v_i, v_j .. v_k in the error: sum over skipped steps of step_size (line - v).
  const int64_t from = i < 0 ? j : i, to = std::min(k, steps_ - 1);
  std::vector<double> weights(static_cast<size_t>(to - from + 1), 0.0);
  const auto at = [&](int64_t step) -> double& { return weights[static_cast<size_t>(step - from)]; };
  for (int64_t s = j + 1; s < k; ++s) {
    const double size = step_sizes_[s];
    at(s) -= size;
    if (k < steps_) {
      const double share = (u_[s] - u_[j]) / (u_[k] - u_[j]);
      at(j) += size * (1 - share);
      at(k) += size * share;
    } else {
      const double way = i < 0 ? 0 : (u_[s] - u_[j]) / (u_[j] - u_[i]);
      at(j) += size * (1 + way);
      if (i >= 0) at(i) -= size * way;
    }
  }
  double sum = 0;
  for (int64_t a = from; a <= to; ++a)
    for (int64_t b = from; b <= to; ++b) sum += at(a) * at(b) * gram_[a * steps_ + b];
  return std::max(sum, 0.0);
}

Result<std::vector<int64_t>> plan_mask(int64_t steps, int64_t budget, int64_t forced,
                                       const std::function<double(int64_t, int64_t, int64_t)>& cost) {
  forced = std::max<int64_t>(forced, 1);
  if (budget < forced || budget > steps)
    return invalid_argument("a budget of {} of {} steps with the first {} forced; it can be {} .. {}", budget, steps,
                            forced, forced, steps);
  const auto none = std::numeric_limits<double>::infinity();
  // Costs are kept, because the cost of an interval is needed for each number of computed steps before it.
  std::vector<double> known(static_cast<size_t>((steps + 1) * steps * (steps + 1)), -1);
  const auto cost_of = [&](int64_t i, int64_t j, int64_t k) {
    double& value = known[static_cast<size_t>(((i + 1) * steps + j) * (steps + 1) + k)];
    if (value < 0) value = cost(i, j, k);
    return value;
  };
  // best[n][i + 1][j]: minimum cost of everything before j, with j the n-th computed step and i the previous one.
  const auto place = [&](int64_t i, int64_t j) { return static_cast<size_t>((i + 1) * steps + j); };
  const size_t pairs = static_cast<size_t>((steps + 1) * steps);
  std::vector<std::vector<double>> best(static_cast<size_t>(budget), std::vector<double>(pairs, none));
  std::vector<std::vector<int64_t>> before(static_cast<size_t>(budget), std::vector<int64_t>(pairs, -1));
  best[0][place(-1, 0)] = 0;
  for (int64_t n = 1; n < budget; ++n)
    for (int64_t j = n - 1; j < steps; ++j)
      for (int64_t i = -1; i < j; ++i) {
        const double so_far = best[n - 1][place(i, j)];
        if (so_far == none) continue;
        const int64_t first = j + 1, last = n < forced ? j + 1 : steps - (budget - n);
        for (int64_t k = first; k <= last; ++k) {
          const double total = so_far + cost_of(i, j, k);
          if (total < best[n][place(j, k)]) {
            best[n][place(j, k)] = total;
            before[n][place(j, k)] = i;
          }
        }
      }
  double least = none;
  int64_t i = -1, j = 0;
  for (int64_t b = 0; b < steps; ++b)
    for (int64_t a = -1; a < b; ++a) {
      const double so_far = best[budget - 1][place(a, b)];
      if (so_far == none) continue;
      const double total = so_far + cost_of(a, b, steps);
      if (total < least) {
        least = total;
        i = a;
        j = b;
      }
    }
  if (least == none) return internal("no mask of {} of {} steps has a finite cost", budget, steps);
  std::vector<int64_t> computed;
  for (int64_t n = budget - 1; n >= 0; --n) {
    computed.push_back(j);
    const int64_t next = before[n][place(i, j)];
    j = i;
    i = next;
  }
  std::reverse(computed.begin(), computed.end());
  return computed;
}

Result<ClimbResult> climb_mask(int64_t steps, std::vector<int64_t> start, int64_t reach, int64_t evaluations,
                               const std::function<Result<double>(const std::vector<int64_t>&)>& error) {
  ClimbResult result;
  result.computed = std::move(start);
  std::map<std::vector<int64_t>, double> known;
  REDLINE_ASSIGN(result.error, error(result.computed));
  known[result.computed] = result.error;
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t n = 1; n < result.computed.size(); ++n)
      for (int64_t distance = 1; distance <= reach; ++distance)
        for (const int64_t direction : {-1, 1}) {
          std::vector<int64_t> trial = result.computed;
          trial[n] += direction * distance;
          if (trial[n] < 1 || trial[n] >= steps) continue;
          if (std::count(trial.begin(), trial.end(), trial[n]) > 1) continue;
          std::sort(trial.begin(), trial.end());
          if (known.contains(trial)) continue;
          if (std::ssize(known) > evaluations) {
            result.evaluations = std::ssize(known);
            return result;
          }
          REDLINE_ASSIGN(const double now, error(trial));
          known[trial] = now;
          if (now < result.error) {
            result.error = now;
            result.computed = trial;
            moved = true;
          }
        }
  }
  result.evaluations = std::ssize(known);
  return result;
}

}  // namespace redline::lab
