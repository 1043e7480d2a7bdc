// Runs every setting on every prompt and tunes rules to requested speed-ups.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <thread>

#include "diffusion/image_request.h"
#include "diffusion/step_cache/rule.h"
#include "lab/images/compare.h"
#include "lab/images/image_metrics.h"
#include "lab/images/lpips.h"
#include "media/png.h"
#include "models/image/image_models.h"

namespace redline::lab {
namespace {

std::string rule_name(const std::string& rule) {
  const std::string name = rule.substr(0, rule.find(':'));
  return name.empty() ? "auto" : name;
}

/// Returns the row of the rule; null for an unknown rule, which plan_rule has already reported.
const RuleRow* row_of(const std::string& rule) {
  const Result<const RuleRow*> row = find_rule(rule_name(rule));
  return row.ok() ? *row : nullptr;
}

bool is_fixed(const std::string& rule) {
  const RuleRow* row = row_of(rule);
  if (row == nullptr || row->knob.kind == TuningKnob::Kind::kNone) return true;
  return std::any_of(row->parameters.begin(), row->parameters.end(), [&](const RuleParameter& p) {
    return p.sets_cost && (rule.find(fmt::format(":{}=", p.name)) != std::string::npos ||
                           rule.find(fmt::format(",{}=", p.name)) != std::string::npos);
  });
}

std::string with_parameter(const std::string& rule, const std::string& parameter, double value) {
  const std::string base = rule.empty() || rule == "auto" ? "redline" : rule;
  return fmt::format("{}{}{}={:.6g}", base, base.find(':') == std::string::npos ? ":" : ",", parameter, value);
}

double median_of(std::vector<double> values) { return percentile_of(std::move(values), 50); }

class Comparison {
 public:
  explicit Comparison(const CompareOptions& options) : options_(options) {}

  Result<CompareReport> run() {
    const CompareOptions& o = options_;
    if (o.prompts.empty()) return invalid_argument("compare: there is no prompt");
    if (o.tune_prompts < 1) return invalid_argument("compare: tune_prompts {} is below 1", o.tune_prompts);
    for (const double speedup : o.speedups)
      if (!(speedup > 1 && speedup < 1000))
        return invalid_argument("compare: a speed-up of {} is not one; ask for more than 1", speedup);
    for (const std::string& rule : o.rules) REDLINE_TRY(plan_of(rule));
    if (!o.lpips_weights.empty()) {
      REDLINE_ASSIGN(Lpips lpips, Lpips::open(o.lpips_weights));
      lpips_.emplace(std::move(lpips));
    }
    REDLINE_ASSIGN(const BlockSplit first, blocks_of(o.rules.empty() ? "none" : o.rules[0]));
    REDLINE_TRY(open(first));
    // Groups settings by their block split, so that an engine is opened once per split.
    std::vector<std::pair<std::string, double>> wanted;
    for (const std::string& rule : o.rules) {
      if (is_fixed(rule) || o.speedups.empty()) {
        wanted.emplace_back(rule, 0);
        continue;
      }
      for (const double speedup : o.speedups) wanted.emplace_back(rule, speedup);
    }
    planned_ = static_cast<double>(wanted.size()) + 1;
    std::vector<size_t> order(wanted.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const Result<RulePlan> one = plan_of(wanted[a].first), other = plan_of(wanted[b].first);
      return std::pair(one->front_blocks, one->tail_blocks) < std::pair(other->front_blocks, other->tail_blocks);
    });
    std::map<size_t, ComparedSetting> settings;  // in the requested order
    Status stopped;
    for (const size_t i : order) {
      Result<ComparedSetting> setting = setting_of(wanted[i].first, wanted[i].second);
      if (!setting.ok()) {
        stopped = setting.status();
        break;
      }
      settings.emplace(i, std::move(*setting));
      ++done_;
    }
    for (auto& [place, setting] : settings) report_.settings.push_back(std::move(setting));
    if (stopped.ok()) stopped = add_fewer_steps();
    if (stopped.ok()) return std::move(report_);
    if (settings.empty()) return stopped;
    report_.stopped = fmt::format("stopped at {}: {} of {} settings are measured", at_, settings.size(), wanted.size());
    report_.failure = std::move(stopped);
    return std::move(report_);
  }

 private:
  struct Reference {
    std::vector<RgbImage> images;
    double loop_ms = 0;
  };

  Result<RulePlan> plan_of(const std::string& rule) const {
    RuleRequest request;
    request.rule = rule;
    return plan_rule(request);
  }
  Result<BlockSplit> blocks_of(const std::string& rule) const {
    REDLINE_ASSIGN(const RulePlan plan, plan_of(rule));
    const bool has_probe = plan.span == SkippedSpan::kMiddle || plan.span == SkippedSpan::kBlocks;
    return has_probe ? BlockSplit(plan.front_blocks, plan.tail_blocks) : BlockSplit(1);
  }

  /// Opens the engine for this block split and does the uncached run of every prompt.
  Status open(BlockSplit blocks) {
    if (engine_ != nullptr && blocks.front == blocks_.front && blocks.tail == blocks_.tail) return {};
    engine_.reset();
    ImageOptions engine = options_.engine;
    engine.front_blocks = blocks.front;
    engine.tail_blocks = blocks.tail;
    REDLINE_ASSIGN(engine_, ImageEngine::open(options_.model, engine));
    blocks_ = blocks;
    base_ = with_defaults(options_.request, engine_->defaults());
    reference_ = {};
    std::vector<double> times;
    for (size_t i = 0; i < options_.prompts.size(); ++i) {
      REDLINE_ASSIGN(ImageResult result, draw(i, "none", base_.num_inference_steps, "uncached"));
      times.push_back(result.loop_ms);
      reference_.images.push_back(std::move(result.images[0]));
    }
    reference_.loop_ms = median_of(times);
    if (report_.prompts.empty()) {
      report_.model = options_.model;
      report_.machine =
          fmt::format("{} threads", options_.engine.threads > 0 ? static_cast<unsigned>(options_.engine.threads)
                                                                : std::thread::hardware_concurrency());
      report_.request = base_;
      report_.prompts = options_.prompts;
      report_.reference_loop_ms = reference_.loop_ms;
      for (int64_t i = 0; i < shown(); ++i) {
        REDLINE_ASSIGN(std::string png, encode_png(reference_.images[static_cast<size_t>(i)]));
        report_.reference_png.push_back(std::move(png));
      }
    }
    return {};
  }

  int64_t shown() const { return std::min<int64_t>(options_.shown_images, std::ssize(options_.prompts)); }

  Result<ImageResult> draw(size_t prompt, const std::string& rule, int64_t steps, const std::string& what) {
    ImageRequest request = base_;
    request.prompts = {options_.prompts[prompt]};
    request.seed = base_.seed + prompt;
    request.cache = rule;
    request.num_inference_steps = steps;
    at_ = fmt::format("{}, prompt {}", what, prompt + 1);
    const auto goes_on = [&](const ImageProgress&) {
      const double within = static_cast<double>(prompt) / static_cast<double>(options_.prompts.size());
      return !options_.on_progress || options_.on_progress(what, std::min(1.0, (done_ + within) / planned_));
    };
    if (!goes_on({})) return cancelled("compare: stopped at {}", at_);
    Result<ImageResult> result = engine_->generate(request, goes_on);
    if (!result.ok()) return std::move(result).within(at_);
    return result;
  }

  /// Returns the mean fraction of the uncached run's operations, over the first prompts.
  Result<double> share_of(const std::string& rule) {
    double sum = 0;
    const int64_t count = std::min<int64_t>(options_.tune_prompts, std::ssize(options_.prompts));
    for (int64_t i = 0; i < count; ++i) {
      REDLINE_ASSIGN(const ImageResult result,
                     draw(static_cast<size_t>(i), rule, base_.num_inference_steps, "tuning " + rule));
      sum += result.executed_share;
    }
    return sum / static_cast<double>(count);
  }

  /// Returns the parameters of `rule` whose fraction of operations is nearest to 1 / speedup.
  Result<std::string> tune(const std::string& rule, double speedup) {
    const TuningKnob& knob = row_of(rule)->knob;
    if (knob.kind == TuningKnob::Kind::kChoice) return tune_choice(rule, knob, speedup);
    const double wanted = 1 / speedup;
    if (knob.kind == TuningKnob::Kind::kBudget)
      return with_parameter(rule, knob.parameter,
                            std::max(1.0, std::floor(wanted * static_cast<double>(base_.num_inference_steps) + 1e-9)));
    const bool is_integer = knob.kind == TuningKnob::Kind::kInteger;
    double low = knob.min, high = knob.max, best_error = 2;
    std::string best;
    const auto measure = [&](double value) -> Result<double> {
      const std::string text = with_parameter(rule, knob.parameter, value);
      REDLINE_ASSIGN(const double share, share_of(text));
      // If two settings are equally near, the slower one is kept, because it gives the better image.
      if (std::fabs(share - wanted) < best_error) {
        best_error = std::fabs(share - wanted);
        best = text;
      }
      return share;
    };
    for (int trial = 0; trial < 11 && best_error > 0.004; ++trial) {
      const double middle = is_integer ? std::floor((low + high) / 2) : std::sqrt(low * high);
      REDLINE_ASSIGN(const double share, measure(middle));
      (share > wanted ? low : high) = middle;
      if (is_integer && high - low <= 1) {
        REDLINE_TRY(measure(low));
        REDLINE_TRY(measure(high));
        break;
      }
    }
    return best;
  }

  Result<std::string> tune_choice(const std::string& rule, const TuningKnob& knob, double speedup) {
    std::string best;
    double best_error = 2;
    for (const char* choice : knob.choices) {
      const std::string base = rule.find(':') == std::string::npos ? rule + ":" : rule + ",";
      const std::string text = fmt::format("{}{}={}", base, knob.parameter, choice);
      REDLINE_ASSIGN(const double share, share_of(text));
      if (std::fabs(share - 1 / speedup) < best_error) {
        best_error = std::fabs(share - 1 / speedup);
        best = text;
      }
    }
    return best;
  }

  Result<ComparedSetting> measure(const std::string& name, const std::string& rule, int64_t steps) {
    ComparedSetting s;
    s.name = s.requested = name;
    s.steps = steps;
    double share = 0, computed = 0;
    std::vector<double> times;
    for (size_t i = 0; i < options_.prompts.size(); ++i) {
      REDLINE_ASSIGN(const ImageResult result, draw(i, rule, steps, name));
      share += result.executed_share * static_cast<double>(steps) / static_cast<double>(base_.num_inference_steps);
      computed += static_cast<double>(
          std::count_if(result.computed.begin(), result.computed.end(), [](int64_t images) { return images > 0; }));
      times.push_back(result.loop_ms);
      const RgbImage &image = result.images[0], &reference = reference_.images[i];
      REDLINE_ASSIGN(const double psnr_db, psnr(image, reference));
      REDLINE_ASSIGN(const double similarity, ssim(image, reference));
      s.psnr.push_back(psnr_db);
      s.ssim.push_back(similarity);
      if (lpips_) {
        REDLINE_ASSIGN(const double distance, lpips_->distance(image, reference));
        s.lpips.push_back(distance);
      }
      if (static_cast<int64_t>(i) < shown()) {
        REDLINE_ASSIGN(std::string png, encode_png(image));
        s.png.push_back(std::move(png));
      }
      if (i == 0) s.warnings = result.warnings;
    }
    const auto n = static_cast<double>(options_.prompts.size());
    s.executed_share = share / n;
    s.computed_steps = computed / n;
    s.loop_ms = median_of(times);
    return s;
  }

  Result<ComparedSetting> setting_of(const std::string& rule, double speedup) {
    REDLINE_ASSIGN(const BlockSplit blocks, blocks_of(rule));
    REDLINE_TRY(open(blocks));
    std::string text = rule;
    if (speedup > 0) {
      REDLINE_ASSIGN(text, tune(rule, speedup));
    }
    REDLINE_ASSIGN(ComparedSetting s, measure(text, text, base_.num_inference_steps));
    s.requested = rule;
    s.target_speedup = speedup;
    return s;
  }

  /// Adds, for each setting, the uncached runs with fewer steps that match its operations and its time.
  Status add_fewer_steps() {
    std::map<int64_t, int64_t> places;
    const auto place_of = [&](double share) -> Result<int64_t> {
      const auto steps = static_cast<int64_t>(std::lround(share * static_cast<double>(base_.num_inference_steps)));
      const int64_t clamped = std::clamp<int64_t>(steps, 1, base_.num_inference_steps);
      if (const auto found = places.find(clamped); found != places.end()) return found->second;
      REDLINE_ASSIGN(ComparedSetting s, measure(fmt::format("{} steps", clamped), "none", clamped));
      report_.settings.push_back(std::move(s));
      return places[clamped] = std::ssize(report_.settings) - 1;
    };
    const size_t count = report_.settings.size();
    for (size_t i = 0; i < count; ++i) {
      const double share = report_.settings[i].executed_share, time = report_.settings[i].loop_ms;
      REDLINE_ASSIGN(const int64_t by_operations, place_of(share));
      REDLINE_ASSIGN(const int64_t by_time, place_of(time / report_.reference_loop_ms));
      report_.settings[i].fewer_by_operations = by_operations;
      report_.settings[i].fewer_by_time = by_time;
    }
    return {};
  }

  const CompareOptions& options_;
  std::unique_ptr<ImageEngine> engine_;
  BlockSplit blocks_ = {0};
  ImageRequest base_;
  Reference reference_;
  std::optional<Lpips> lpips_;
  CompareReport report_;
  double done_ = 0, planned_ = 1;
  std::string at_;  ///< description of the last image, for messages
};

}  // namespace

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double v : values) sum += v;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double percentile_of(std::vector<double> values, double percent) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = percent / 100 * static_cast<double>(values.size() - 1);
  const auto below = static_cast<size_t>(at);
  const size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

Result<CompareReport> compare_images(const CompareOptions& options) { return Comparison(options).run(); }

}  // namespace redline::lab
