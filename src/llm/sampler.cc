#include "llm/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/text_distance.h"

namespace redline {

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;  // golden ratio, sqrt(3) - 1
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = kMultiplier0 * counter[0];
    const uint64_t b = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

double uniform_at(uint64_t seed, uint64_t position, uint32_t stream) {
  const auto bits = philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), stream, 0},
                               {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  const uint64_t word = (uint64_t{bits[1]} << 32) | bits[0];
  return static_cast<double>(word >> 11) * 0x1p-53;
}

enum class Sampler::Step : uint8_t {
  kPenalties,
  kDry,
  kTemperature,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kMirostat,
};

namespace {

constexpr uint32_t kXtcStream = 1;
constexpr int64_t kMaxInteger = int64_t{1} << 53;

Status check_range(const char* name, double value, bool good, const char* range) {
  if (good) return {};
  return invalid_argument("{} is {}; allowed: {}", name, value, range);
}

Status check_options(const SamplingOptions& o) {
  // Written so that NaN fails each check.
  const auto number = [](const char* name, double value, double min, double max, const char* range) {
    return check_range(name, value, value >= min && value <= max && std::isfinite(value), range);
  };
  const auto integer = [](const char* name, int64_t value, int64_t min, const char* range) {
    return check_range(name, static_cast<double>(value), value >= min && value <= kMaxInteger, range);
  };
  constexpr double kMax = std::numeric_limits<float>::max();
  REDLINE_TRY(number("temperature", o.temperature, 0, kMax, "a finite number, 0 (greedy) or more"));
  REDLINE_TRY(integer("top_k", o.top_k, 0, "0 (off) or more"));
  REDLINE_TRY(check_range("top_p", o.top_p, o.top_p > 0 && o.top_p <= 1, "more than 0, up to 1 (off)"));
  REDLINE_TRY(number("min_p", o.min_p, 0, 1, "0 (off) to 1"));
  REDLINE_TRY(check_range("repetition_penalty", o.repetition_penalty,
                          o.repetition_penalty > 0 && std::isfinite(o.repetition_penalty),
                          "a finite number more than 0; 1 is off"));
  REDLINE_TRY(number("presence_penalty", o.presence_penalty, -kMax, kMax, "a finite number; 0 is off"));
  REDLINE_TRY(number("frequency_penalty", o.frequency_penalty, -kMax, kMax, "a finite number; 0 is off"));
  REDLINE_TRY(integer("penalty_last_n", o.penalty_last_n, -1, "-1 (all), 0 (none) or more"));
  REDLINE_TRY(check_range("typical_p", o.typical_p, o.typical_p > 0 && o.typical_p <= 1, "more than 0, up to 1 (off)"));
  REDLINE_TRY(number("top_n_sigma", o.top_n_sigma, 0, kMax, "a finite number, 0 (off) or more"));
  REDLINE_TRY(number("xtc_probability", o.xtc_probability, 0, 1, "0 (off) to 1"));
  REDLINE_TRY(number("xtc_threshold", o.xtc_threshold, 0, 1, "0 to 1"));
  REDLINE_TRY(number("dry_multiplier", o.dry_multiplier, 0, kMax, "a finite number, 0 (off) or more"));
  REDLINE_TRY(number("dry_base", o.dry_base, 1, kMax, "a finite number, 1 or more"));
  REDLINE_TRY(integer("dry_allowed_length", o.dry_allowed_length, 0, "0 or more"));
  REDLINE_TRY(integer("dry_penalty_last_n", o.dry_penalty_last_n, -1, "-1 (all), 0 (none) or more"));
  for (const std::string& breaker : o.dry_sequence_breakers)
    if (breaker.empty()) return invalid_argument("dry_sequence_breakers has an empty string");
  REDLINE_TRY(check_range("mirostat", o.mirostat, o.mirostat >= 0 && o.mirostat <= 2, "0 (off), 1 or 2"));
  REDLINE_TRY(number("mirostat_tau", o.mirostat_tau, 0, kMax, "a finite number, 0 or more"));
  REDLINE_TRY(number("mirostat_eta", o.mirostat_eta, 0, kMax, "a finite number, 0 or more"));
  REDLINE_TRY(number("dynatemp_range", o.dynatemp_range, 0, kMax, "a finite number, 0 (off) or more"));
  REDLINE_TRY(number("dynatemp_exponent", o.dynatemp_exponent, 0, kMax, "a finite number, 0 or more"));
  for (const auto& [token, bias] : o.logit_bias)
    if (std::isnan(bias) || bias > kMax)
      return invalid_argument("logit_bias of token {} is {}; allowed: a finite number, or -inf", token, bias);
  for (const std::string& word : o.bad_words)
    if (word.empty()) return invalid_argument("bad_words has an empty string");
  return {};
}

/// In the order of Step.
constexpr std::string_view kNames[] = {"penalties", "dry",   "temperature", "top_n_sigma", "top_k",
                                       "typical_p", "top_p", "min_p",       "xtc",         "mirostat"};

}  // namespace

const std::vector<std::string>& default_samplers() {
  static const std::vector<std::string> names(std::begin(kNames), std::end(kNames) - 1);
  return names;
}

Result<std::string> sampler_name(std::string_view text) {
  std::string name(text);
  std::replace(name.begin(), name.end(), '-', '_');
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"typ_p", "typical_p"}, {"typical", "typical_p"}, {"temp", "temperature"}, {"top_nsigma", "top_n_sigma"}};
  for (const auto& [other, ours] : kOthers)
    if (name == other) name = ours;
  const std::vector<std::string>& names = default_samplers();
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  const std::vector<std::string_view> known(names.begin(), names.end());
  return invalid_argument("there is no sampler \"{}\"{} (there are \"{}\")", text, did_you_mean(name, known),
                          fmt::join(names, "\", \""));
}

Result<std::vector<Sampler::Step>> Sampler::steps_of(const SamplingOptions& o) {
  REDLINE_TRY(check_options(o));
  const bool is_greedy = o.temperature == 0 && o.dynatemp_range == 0;
  const auto is_active = [&](Step step) {
    switch (step) {
      case Step::kPenalties: return TokenHistory::has_penalties(o);
      case Step::kDry: return TokenHistory::has_dry(o);
      default: break;
    }
    if (is_greedy) return false;
    if (step == Step::kTemperature) return o.temperature != 1 || o.dynatemp_range > 0;
    if (o.mirostat != 0) return false;
    switch (step) {
      case Step::kTopNSigma: return o.top_n_sigma > 0;
      case Step::kTopK: return o.top_k > 0;
      case Step::kTypicalP: return o.typical_p < 1;
      case Step::kTopP: return o.top_p < 1;
      case Step::kMinP: return o.min_p > 0;
      default: return o.xtc_probability > 0 && o.xtc_threshold <= 0.5F;
    }
  };
  std::vector<Step> steps;
  std::vector<std::string> seen;
  for (const std::string& text : o.samplers.empty() ? default_samplers() : o.samplers) {
    REDLINE_ASSIGN(const std::string name, sampler_name(text));
    if (std::find(seen.begin(), seen.end(), name) != seen.end())
      return invalid_argument("the sampler \"{}\" is listed twice", name);
    seen.push_back(name);
    const auto step = static_cast<Step>(std::find(std::begin(kNames), std::end(kNames), name) - std::begin(kNames));
    if (is_active(step)) steps.push_back(step);
  }
  if (o.mirostat != 0 && !is_greedy) steps.push_back(Step::kMirostat);
  return steps;
}

Result<std::vector<std::string>> active_samplers(const SamplingOptions& options) {
  REDLINE_ASSIGN(const std::vector<Sampler::Step> steps, Sampler::steps_of(options));
  std::vector<std::string> names;
  names.reserve(steps.size() + 1);
  for (const Sampler::Step step : steps) names.emplace_back(kNames[static_cast<size_t>(step)]);
  names.emplace_back(options.temperature == 0 && options.dynatemp_range == 0 ? "greedy" : "draw");
  return names;
}

bool Sampler::needs_texts(const SamplingOptions& options) {
  return !options.bad_words.empty() || (TokenHistory::has_dry(options) && !options.dry_sequence_breakers.empty());
}

Result<Sampler> Sampler::create(const SamplingOptions& o, int64_t vocab_size,
                                std::shared_ptr<const TokenTrie> vocabulary, const CpuKernels* kernels) {
  REDLINE_ASSIGN(std::vector<Step> steps, steps_of(o));
  if (vocab_size < 1 || vocab_size > kMaxLogits)
    return invalid_argument("sampler: the vocabulary has {} tokens; allowed: 1 to {}", vocab_size, kMaxLogits);
  for (const auto& [token, bias] : o.logit_bias)
    if (token < 0 || token >= vocab_size)
      return invalid_argument("logit_bias: token {} is outside the vocabulary of {}", token, vocab_size);
  if (!o.bad_words.empty() && !vocabulary) return not_found("bad_words need a tokenizer, and the model has none");
  if (kernels == nullptr) {
    REDLINE_ASSIGN(kernels, cpu_kernels());
  }
  Sampler sampler(o, vocab_size, std::move(vocabulary), *kernels);
  sampler.steps_ = std::move(steps);
  return sampler;
}

Sampler::Sampler(const SamplingOptions& options, int64_t vocab_size, std::shared_ptr<const TokenTrie> vocabulary,
                 const CpuKernels& kernels)
    : options_(options), history_(options, vocab_size, vocabulary), mirostat_mu_(2 * double{options.mirostat_tau}),
      row_(kernels, vocab_size), candidates_(kernels) {
  if (!options.bad_words.empty()) bad_words_.emplace(options.bad_words, std::move(vocabulary));
  const auto size = static_cast<size_t>(vocab_size);
  if (changes_logits()) changed_.resize(size);
  candidates_.reserve(size);
}

void Sampler::accept_prompt(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens)
    if (token >= 0 && token < row_.vocab_size()) history_.accept_prompt(token);
}

void Sampler::accept(std::span<const int32_t> tokens) {
  for (const int32_t token : tokens) {
    if (token < 0 || token >= row_.vocab_size()) continue;
    history_.accept(token);
    if (bad_words_) bad_words_->accept(token);
  }
}

bool Sampler::changes_logits() const {
  return !options_.logit_bias.empty() || bad_words_ || TokenHistory::has_penalties(options_) ||
         TokenHistory::has_dry(options_);
}

size_t Sampler::change_logits(std::span<const float> logits) {
  std::copy(logits.begin(), logits.end(), changed_.begin());
  for (const auto& [token, bias] : options_.logit_bias) changed_[static_cast<size_t>(token)] += bias;
  if (bad_words_)
    bad_words_->for_each_excluded(
        [&](int32_t token) { changed_[static_cast<size_t>(token)] = -std::numeric_limits<float>::infinity(); });
  size_t step = 0;
  for (; step < steps_.size() && steps_[step] <= Step::kDry; ++step)
    penalize(steps_[step], [&](int32_t token) { return &changed_[static_cast<size_t>(token)]; });
  return step;
}

void Sampler::penalize(Step step, const TokenHistory::LogitOf& logit_of) {
  if (step == Step::kPenalties) history_.penalize(logit_of);
  else history_.apply_dry(logit_of);
}

Result<int32_t> Sampler::sample(std::span<const float> logits, int64_t position) {
  size_t step = 0;
  const std::span<const float> given = logits;
  if (!changed_.empty() && std::ssize(logits) == row_.vocab_size()) {
    step = change_logits(logits);
    logits = changed_;
  }
  const bool is_greedy = step == steps_.size() && options_.temperature == 0;
  float temperature = 1;
  if (!is_greedy && step < steps_.size() && steps_[step] == Step::kTemperature && options_.dynatemp_range == 0) {
    temperature = options_.temperature;
    ++step;
  }
  const bool is_top_p = step < steps_.size() && steps_[step] == Step::kTopP;
  if (Status status = row_.scan(logits, position, is_top_p ? temperature : 0); !status.ok()) {
    if ((bad_words_ || !options_.logit_bias.empty()) && row_.scan(given, position).ok())
      return invalid_argument("position {}: logit_bias and bad_words leave no token to choose", position);
    return status;
  }
  if (is_greedy) return row_.best_id();

  const double u = uniform_at(options_.seed, static_cast<uint64_t>(position));
  if (step == steps_.size()) return row_.draw(temperature, u);
  const bool is_cut = [&] {
    switch (steps_[step]) {
      case Step::kTopK: return row_.top_k(options_.top_k, temperature, candidates_);
      case Step::kTopP: return row_.top_p(options_.top_p, temperature, candidates_);
      case Step::kMinP: return row_.min_p(options_.min_p, temperature, candidates_);
      default: return false;
    }
  }();
  if (is_cut) {
    ++step;
  } else if (steps_[step] == Step::kTopP && row_.has_blocks()) {
    const Candidate last = row_.last_of_top_p(options_.top_p, temperature);
    if (++step == steps_.size()) return row_.draw_down_to(last, temperature, u);
    row_.keep_down_to(last, temperature, candidates_);
  } else {
    row_.all(candidates_);
    candidates_.set_temperature(temperature);
  }
  for (; step < steps_.size(); ++step) apply(steps_[step], position);
  const Candidates::Drawn drawn = candidates_.draw(u);
  if (options_.mirostat != 0)
    mirostat_mu_ -= double{options_.mirostat_eta} * (-std::log2(drawn.probability) - double{options_.mirostat_tau});
  return drawn.id;
}

SampleRow Sampler::device_row(int64_t position) const {
  SampleRow row;
  if (bad_words_) return row;
  row.edits.reserve(options_.logit_bias.size());
  for (const auto& [token, bias] : options_.logit_bias) row.edits.push_back({token, bias});
  const auto by_token = [](const LogitEdit& a, const LogitEdit& b) { return a.token < b.token; };
  std::sort(row.edits.begin(), row.edits.end(), by_token);
  const auto biased = static_cast<int64_t>(row.edits.size());
  for (int64_t i = 1; i < biased; ++i)
    if (row.edits[static_cast<size_t>(i)].token == row.edits[static_cast<size_t>(i - 1)].token) return row;

  auto step = steps_.begin();
  const auto is_next = [&](Step wanted) { return step != steps_.end() && *step == wanted && (++step, true); };
  if (is_next(Step::kPenalties))
    history_.for_each_penalty([&](const LogitEdit& penalty) {
      const auto end = row.edits.begin() + biased;
      const auto at = std::lower_bound(row.edits.begin(), end, penalty, by_token);
      if (at == end || at->token != penalty.token) return row.edits.push_back(penalty);
      at->repetition = penalty.repetition;
      at->penalty = penalty.penalty;
    });
  const bool is_greedy = step == steps_.end() && options_.temperature == 0;
  if (is_next(Step::kTemperature)) {
    if (options_.dynatemp_range != 0) return row;
    row.scale = scale_of(options_.temperature);
  }
  if (is_next(Step::kTopK)) row.top_k = options_.top_k;
  if (is_next(Step::kTopP)) row.top_p = options_.top_p;
  if (is_next(Step::kMinP)) row.min_p = options_.min_p;
  if (step != steps_.end()) return row;
  row.u = uniform_at(options_.seed, static_cast<uint64_t>(position));
  row.kind = is_greedy ? SampleRow::Kind::kGreedy : SampleRow::Kind::kDraw;
  return row;
}

void Sampler::apply(Step step, int64_t position) {
  switch (step) {
    case Step::kPenalties:
    case Step::kDry: return penalize(step, [&](int32_t token) { return candidates_.logit_of(token); });
    case Step::kTemperature: return apply_temperature();
    case Step::kTopNSigma: return candidates_.keep_top_n_sigma(options_.top_n_sigma);
    case Step::kTopK: return candidates_.keep_top_k(options_.top_k);
    case Step::kTypicalP: return candidates_.keep_typical(options_.typical_p);
    case Step::kTopP: return candidates_.keep_top_p(options_.top_p);
    case Step::kMinP: return candidates_.keep_min_p(options_.min_p);
    case Step::kXtc:
      if (uniform_at(options_.seed, static_cast<uint64_t>(position), kXtcStream) < double{options_.xtc_probability})
        candidates_.drop_top_choices(options_.xtc_threshold);
      return;
    case Step::kMirostat:
      if (options_.mirostat == 1) candidates_.keep_zipf(mirostat_mu_, row_.vocab_size());
      else candidates_.keep_surprise(mirostat_mu_);
      return;
  }
}

/// The largest entropy is that of equally likely candidates.
void Sampler::apply_temperature() {
  if (options_.dynatemp_range == 0) return candidates_.set_temperature(options_.temperature);
  if (candidates_.size() < 2) return;
  const double least = std::max(0.0, double{options_.temperature} - double{options_.dynatemp_range});
  const double most = double{options_.temperature} + double{options_.dynatemp_range};
  const double share = std::clamp(candidates_.entropy() / std::log(static_cast<double>(candidates_.size())), 0.0, 1.0);
  const auto temperature =
      static_cast<float>(least + (most - least) * std::pow(share, double{options_.dynatemp_exponent}));
  if (temperature > 0) candidates_.set_temperature(temperature);
  else candidates_.keep_top_k(1);
}

Result<float> Sampler::logprobs(std::span<const float> logits, int32_t token, int64_t count,
                                std::vector<TokenLogprob>& top) {
  REDLINE_TRY(row_.scan(logits, -1));
  if (token < 0 || token >= row_.vocab_size())
    return invalid_argument("sampler: token {} is outside the vocabulary of {}", token, logits.size());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - row_.best());
  const double log_sum = std::log(sum) + row_.best();

  top.clear();
  const int64_t wanted = std::clamp<int64_t>(count, 0, row_.vocab_size());
  if (wanted > 0) {
    if (!row_.top_k(wanted, 1, candidates_) || std::ssize(candidates_) < wanted) {
      candidates_.clear();
      for (size_t i = 0; i < logits.size(); ++i) candidates_.add({logits[i], static_cast<int32_t>(i)});
      candidates_.keep_top_k(wanted);
    }
    std::vector<Candidate> best(candidates_.tokens().begin(), candidates_.tokens().end());
    std::sort(best.begin(), best.end(), likelier);
    for (const Candidate& c : best) top.push_back({c.id, static_cast<float>(c.logit - log_sum)});
  }
  return static_cast<float>(logits[static_cast<size_t>(token)] - log_sum);
}

}  // namespace redline
