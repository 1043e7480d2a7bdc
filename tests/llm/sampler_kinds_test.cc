// Every sampler against its definition, written down in float64 with a plain sort, and by chi-square.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "llm/sampler_draws.h"
#include "support/special_values.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A token and its logit.
struct Token {
  size_t id;
  double logit;
};
using SamplerKindsTokens = std::vector<Token>;

std::vector<double> softmax(const SamplerKindsTokens& tokens) {
  double best = -INFINITY, sum = 0;
  for (const Token& t : tokens) best = std::max(best, t.logit);
  std::vector<double> p;
  for (const Token& t : tokens) sum += p.emplace_back(std::exp(t.logit - best));
  for (double& x : p) x /= sum;
  return p;
}

double entropy(const SamplerKindsTokens& tokens) {
  double sum = 0;
  for (const double p : softmax(tokens)) sum -= p > 0 ? p * std::log(p) : 0;
  return sum;
}

void sort(SamplerKindsTokens& tokens) {
  std::stable_sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.logit > b.logit; });
}

/// The text: prompt, then output.
struct SamplerKindsText {
  std::vector<int32_t> prompt, output;
  std::vector<int32_t> all() const {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.end(), output.begin(), output.end());
    return tokens;
  }
};

void penalties(SamplerKindsTokens& tokens, const SamplingOptions& o, const SamplerKindsText& text) {
  const std::vector<int32_t> all = text.all();
  const size_t n = o.penalty_last_n < 0 ? all.size() : std::min(all.size(), size_t(o.penalty_last_n));
  std::map<size_t, int> in_text, in_output;
  for (size_t i = all.size() - n; i < all.size(); ++i) {
    ++in_text[size_t(all[i])];
    if (i >= text.prompt.size()) ++in_output[size_t(all[i])];
  }
  for (Token& t : tokens) {
    if (in_text.count(t.id)) t.logit = t.logit > 0 ? t.logit / o.repetition_penalty : t.logit * o.repetition_penalty;
    if (in_output.count(t.id)) t.logit -= in_output[t.id] * o.frequency_penalty + o.presence_penalty;
  }
}

/// Without breakers. Every earlier place of the token is compared with the end of the text, token by token.
void dry(SamplerKindsTokens& tokens, const SamplingOptions& o, const SamplerKindsText& text) {
  std::vector<int32_t> all = text.all();
  if (o.dry_penalty_last_n >= 0 && std::ssize(all) > o.dry_penalty_last_n)
    all.erase(all.begin(), all.end() - o.dry_penalty_last_n);
  for (Token& t : tokens) {
    int64_t longest = -1;
    for (size_t place = 1; place < all.size(); ++place) {
      if (size_t(all[place]) != t.id) continue;
      size_t length = 0;
      while (length < place && all[place - 1 - length] == all[all.size() - 1 - length]) ++length;
      longest = std::max(longest, int64_t(length));
    }
    if (longest >= o.dry_allowed_length)
      t.logit -= o.dry_multiplier * std::pow(o.dry_base, longest - o.dry_allowed_length);
  }
}

void temperature(SamplerKindsTokens& tokens, const SamplingOptions& o) {
  double t = o.temperature;
  if (o.dynatemp_range > 0) {
    const double low = std::max(0.0, t - o.dynatemp_range), high = t + o.dynatemp_range;
    t = low + (high - low) * std::pow(entropy(tokens) / std::log(double(tokens.size())), o.dynatemp_exponent);
  }
  for (Token& x : tokens) x.logit /= t;
}

void top_n_sigma(SamplerKindsTokens& tokens, double n) {
  double mean = 0, variance = 0, best = -INFINITY;
  for (const Token& t : tokens) mean += t.logit / double(tokens.size());
  for (const Token& t : tokens) {
    variance += (t.logit - mean) * (t.logit - mean) / double(tokens.size());
    best = std::max(best, t.logit);
  }
  std::erase_if(tokens, [&](const Token& t) { return t.logit < best - n * std::sqrt(variance); });
}

void typical(SamplerKindsTokens& tokens, double p) {
  const std::vector<double> probability = softmax(tokens);
  const double h = entropy(tokens);
  std::vector<size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto shift = [&](size_t i) { return std::abs(-std::log(probability[i]) - h); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return shift(a) < shift(b); });
  SamplerKindsTokens kept;
  double sum = 0;
  for (const size_t i : order) {
    kept.push_back(tokens[i]);
    sum += probability[i];
    if (sum > p) break;
  }
  tokens = kept;
}

void top_p(SamplerKindsTokens& tokens, double p) {
  sort(tokens);
  const std::vector<double> probability = softmax(tokens);
  double sum = 0;
  size_t kept = 0;
  while (kept < tokens.size() && sum < p) sum += probability[kept++];
  tokens.resize(kept);
}

void min_p(SamplerKindsTokens& tokens, double p) {
  double best = -INFINITY;
  for (const Token& t : tokens) best = std::max(best, t.logit);
  std::erase_if(tokens, [&](const Token& t) { return std::exp(t.logit - best) < p; });
}

void xtc(SamplerKindsTokens& tokens, double threshold) {
  sort(tokens);
  const std::vector<double> probability = softmax(tokens);
  size_t above = 0;
  while (above < tokens.size() && probability[above] >= threshold) ++above;
  if (above > 1) tokens.erase(tokens.begin(), tokens.begin() + int64_t(above) - 1);
}

void mirostat1(SamplerKindsTokens& tokens, double mu, double vocab_size) {
  sort(tokens);
  const std::vector<double> p = softmax(tokens);
  double products = 0, squares = 0;
  for (size_t i = 0; i < 99 && i + 1 < p.size(); ++i) {
    const double t = std::log(double(i + 2) / double(i + 1)), b = std::log(p[i] / p[i + 1]);
    products += t * b;
    squares += t * t;
  }
  const double s = products / squares, epsilon = s - 1;
  const double k = std::pow(epsilon * std::pow(2.0, mu) / (1 - std::pow(vocab_size, -epsilon)), 1 / s);
  tokens.resize(std::min(tokens.size(), size_t(std::max(1.0, k))));
}

void mirostat2(SamplerKindsTokens& tokens, double mu) {
  sort(tokens);
  const std::vector<double> p = softmax(tokens);
  size_t kept = 0;
  while (kept < p.size() && -std::log2(p[kept]) <= mu) ++kept;
  tokens.resize(std::max<size_t>(1, kept));
}

/// The probabilities of all tokens by the definitions. `removes_top`: what XTC's random number says.
std::vector<double> sampler_kinds_reference(const std::vector<float>& logits, const SamplingOptions& o,
                                            const SamplerKindsText& text, bool removes_top, double mu) {
  SamplerKindsTokens tokens;
  for (size_t i = 0; i < logits.size(); ++i) {
    double logit = logits[i];
    for (const auto& [token, bias] : o.logit_bias)
      if (size_t(token) == i) logit += bias;
    if (logit > -INFINITY) tokens.push_back({i, logit});
  }
  for (const std::string& name : o.samplers.empty() ? default_samplers() : o.samplers) {
    if (name == "penalties") penalties(tokens, o, text);
    if (name == "dry" && o.dry_multiplier > 0) dry(tokens, o, text);
    if (name == "temperature") temperature(tokens, o);
    if (o.mirostat != 0) continue;
    if (name == "top_n_sigma" && o.top_n_sigma > 0) top_n_sigma(tokens, o.top_n_sigma);
    if (name == "top_k" && o.top_k > 0) {
      sort(tokens);
      tokens.resize(std::min(tokens.size(), size_t(o.top_k)));
    }
    if (name == "typical_p" && o.typical_p < 1) typical(tokens, o.typical_p);
    if (name == "top_p" && o.top_p < 1) top_p(tokens, o.top_p);
    if (name == "min_p") min_p(tokens, o.min_p);
    if (name == "xtc" && removes_top) xtc(tokens, o.xtc_threshold);
  }
  if (o.mirostat == 1) mirostat1(tokens, mu, double(logits.size()));
  if (o.mirostat == 2) mirostat2(tokens, mu);
  const std::vector<double> p = softmax(tokens);
  std::vector<double> all(logits.size());
  for (size_t i = 0; i < tokens.size(); ++i) all[tokens[i].id] = p[i];
  return all;
}

struct SamplerKindsCase {
  const char* name;
  SamplingOptions options;
};
SamplingOptions with(const std::function<void(SamplingOptions&)>& set) {
  SamplingOptions o;
  o.temperature = 1;
  set(o);
  return o;
}
class SamplerKinds : public ::testing::TestWithParam<SamplerKindsCase> {};

TEST_P(SamplerKinds, DrawsFromTheDefinition) {
  SamplingOptions o = GetParam().options;
  o.seed = 4711;
  const SamplerKindsText text = {{0, 3, 1, 2, 0, 3}, {5, 1, 2, 0, 1, 2}};
  for (const size_t vocab : {8, 17, 300}) {
    const std::vector<float> logits = random_logits(vocab, uint32_t(vocab));
    const std::vector<double> plain = sampler_kinds_reference(logits, o, text, false, 2 * o.mirostat_tau);
    const std::vector<double> cut = sampler_kinds_reference(logits, o, text, true, 2 * o.mirostat_tau);
    std::vector<double> p(vocab);
    for (size_t i = 0; i < vocab; ++i) p[i] = o.xtc_probability * cut[i] + (1 - o.xtc_probability) * plain[i];
    Sampler sampler = make_sampler(o, vocab);
    sampler.accept_prompt(text.prompt);
    sampler.accept(text.output);
    constexpr int kDraws = 40000;
    std::vector<int> count(vocab);
    for (int i = 0; i < kDraws; ++i) {
      const auto token = sampler.sample(logits, i);
      ASSERT_TRUE(token.ok()) << token.status().to_string();
      ++count[size_t(*token)];
      // Inversion of the exact distribution, in which tokens are in the order of their ids, gives the same token.
      const std::vector<double>& exact = uniform_at(o.seed, uint64_t(i), 1) < double{o.xtc_probability} ? cut : plain;
      double sum = 0;
      size_t expected = 0;
      while (sum + exact[expected] <= uniform_at(o.seed, uint64_t(i))) sum += exact[expected++];
      ASSERT_EQ(*token, int32_t(expected)) << "vocabulary " << vocab << ", position " << i;
    }
    expect_distribution(count, p, kDraws);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SamplerKinds,
    ::testing::Values(
        SamplerKindsCase{"typical", with([](auto& o) { o.typical_p = 0.6f; })},
        SamplerKindsCase{"typical_hot", with([](auto& o) { o.typical_p = 0.9f, o.temperature = 2; })},
        SamplerKindsCase{"top_n_sigma", with([](auto& o) { o.top_n_sigma = 1.3f; })},
        SamplerKindsCase{"top_n_sigma_hot", with([](auto& o) { o.top_n_sigma = 1, o.temperature = 3; })},
        SamplerKindsCase{"xtc_always", with([](auto& o) { o.xtc_probability = 1, o.xtc_threshold = 0.05f; })},
        SamplerKindsCase{"xtc_half", with([](auto& o) { o.xtc_probability = 0.5f, o.xtc_threshold = 0.1f; })},
        SamplerKindsCase{"xtc_off", with([](auto& o) { o.xtc_probability = 0, o.xtc_threshold = 0; })},
        SamplerKindsCase{"dry", with([](auto& o) { o.dry_multiplier = 0.8f; })},
        SamplerKindsCase{"dry_window", with([](auto& o) {
                           o.dry_multiplier = 2, o.dry_allowed_length = 1, o.dry_penalty_last_n = 5;
                         })},
        SamplerKindsCase{"mirostat_1",
                         with([](auto& o) { o.mirostat = 1, o.mirostat_tau = 1.2f, o.mirostat_eta = 0; })},
        SamplerKindsCase{"mirostat_2",
                         with([](auto& o) { o.mirostat = 2, o.mirostat_tau = 1.2f, o.mirostat_eta = 0; })},
        SamplerKindsCase{"mirostat_2_narrow",
                         with([](auto& o) { o.mirostat = 2, o.mirostat_tau = 0.1f, o.mirostat_eta = 0; })},
        SamplerKindsCase{"dynatemp", with([](auto& o) { o.dynatemp_range = 0.7f; })},
        SamplerKindsCase{"dynatemp_exponent", with([](auto& o) {
                           o.temperature = 1.5f, o.dynatemp_range = 1.5f, o.dynatemp_exponent = 0.5f;
                         })},
        SamplerKindsCase{"presence", with([](auto& o) { o.presence_penalty = 1.5f; })},
        SamplerKindsCase{"frequency", with([](auto& o) { o.frequency_penalty = 0.7f; })},
        SamplerKindsCase{"negative_frequency", with([](auto& o) { o.frequency_penalty = -0.7f; })},
        SamplerKindsCase{"penalties_window", with([](auto& o) {
                           o.repetition_penalty = 1.3f, o.presence_penalty = 0.5f, o.frequency_penalty = 0.5f,
                           o.penalty_last_n = 4;
                         })},
        SamplerKindsCase{"penalty_of_none", with([](auto& o) { o.repetition_penalty = 3, o.penalty_last_n = 0; })},
        SamplerKindsCase{"bias", with([](auto& o) {
                           o.logit_bias = {{2, 1.5f}, {0, -kInf}, {5, -3}};
                         })},
        SamplerKindsCase{"llama_order", with([](auto& o) {
                           o.temperature = 0.6f, o.top_k = 12, o.typical_p = 0.95f, o.top_p = 0.9f, o.min_p = 0.05f;
                           o.xtc_probability = 0.5f, o.repetition_penalty = 1.1f, o.dry_multiplier = 0.8f,
                           o.top_n_sigma = 2;
                           o.samplers = {"penalties", "dry",   "top_n_sigma", "top_k",      "typical_p",
                                         "top_p",     "min_p", "xtc",         "temperature"};
                         })},
        SamplerKindsCase{"penalties_last", with([](auto& o) {
                           o.top_p = 0.8f, o.repetition_penalty = 1.5f, o.presence_penalty = 1, o.dry_multiplier = 1;
                           o.samplers = {"min_p", "top_p", "penalties", "dry"};
                         })},
        SamplerKindsCase{"all", with([](auto& o) {
                           o.temperature = 1.3f, o.dynatemp_range = 0.4f, o.top_k = 14, o.typical_p = 0.97f,
                           o.top_p = 0.95f;
                           o.min_p = 0.01f, o.xtc_probability = 0.3f, o.presence_penalty = 0.2f,
                           o.frequency_penalty = 0.1f;
                         })}),
    [](const auto& info) { return info.param.name; });

TEST(Mirostat, HoldsTheSurprise) {
  for (const int version : {1, 2}) {
    SamplingOptions o;
    o.temperature = 1;
    o.seed = 5;
    o.mirostat = version;
    o.mirostat_tau = 2;
    o.mirostat_eta = 0.2f;
    const size_t vocab = 500;
    Sampler sampler = make_sampler(o, vocab);
    double mu = 2 * o.mirostat_tau, surprise = 0;
    constexpr int kSteps = 600;
    for (int i = 0; i < kSteps; ++i) {
      const std::vector<float> logits = random_logits(vocab, uint32_t(i), 1 + float(i % 4));
      const std::vector<double> p = sampler_kinds_reference(logits, o, {}, false, mu);
      const int32_t token = sampler.sample(logits, i).value();
      double sum = 0;
      size_t expected = 0;
      while (sum + p[expected] <= uniform_at(o.seed, uint64_t(i))) sum += p[expected++];
      ASSERT_EQ(token, int32_t(expected)) << "step " << i;
      mu -= o.mirostat_eta * (-std::log2(p[expected]) - o.mirostat_tau);
      surprise -= std::log2(p[expected]) / kSteps;
    }
    EXPECT_NEAR(surprise, o.mirostat_tau, 0.2) << "version " << version;  // mu moves by eta times the sum of deviations
  }
}

TEST(Penalties, CountWithinTheWindow) {
  SamplingOptions o;
  o.temperature = 0;
  o.frequency_penalty = 1;
  o.penalty_last_n = 3;
  Sampler sampler = make_sampler(o, 4);
  const std::vector<float> logits = {3, 1.5f, 0, -9};
  sampler.accept_prompt(std::vector<int32_t>{0, 0, 0, -5, 99});  // a prompt counts for repetition only
  EXPECT_EQ(sampler.sample(logits, 0).value(), 0);
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(logits, 1).value(), 0);  // 2 against 1.5
  sampler.accept(0);
  EXPECT_EQ(sampler.sample(logits, 2).value(), 1);  // 1 against 1.5
  sampler.accept(2);
  EXPECT_EQ(sampler.sample(logits, 3).value(), 1);
  sampler.accept(2);
  EXPECT_EQ(sampler.sample(logits, 4).value(), 0);  // one of the two has left the window
}

std::shared_ptr<const TokenTrie> letters() {
  std::vector<std::string> texts;
  for (char c = 'a'; c <= 'z'; ++c) texts.emplace_back(1, c);
  texts.insert(texts.end(), {"bad", "xbad", "ad", "dx", ".", "a.", ""});
  return TokenTrie::make(std::move(texts), {});
}

TEST(Dry, BreakersEndRepetitions) {
  SamplingOptions o;
  o.temperature = 0;
  o.dry_multiplier = 10;
  o.dry_allowed_length = 2;
  std::vector<float> logits(33);
  logits[2] = 2;      // c
  logits[3] = 1;      // d
  logits[30] = 1.5f;  // .
  const auto next = [&](const std::vector<int32_t>& text, std::vector<std::string> breakers) {
    o.dry_sequence_breakers = std::move(breakers);
    Sampler sampler = make_sampler(o, logits.size(), letters());
    sampler.accept(text);
    return sampler.sample(logits, 0).value();
  };
  EXPECT_EQ(next({0, 1, 2, 9, 0, 1}, {}), 30);      // a b c j a b: c is penalized
  EXPECT_EQ(next({0, 1, 2, 9, 0, 1}, {"b"}), 2);    // the repetition ended with b
  EXPECT_EQ(next({0, 1, 2, 9, 0, 1}, {"ab"}), 2);   // a string over two tokens
  EXPECT_EQ(next({0, 1, 2, 9, 0, 1}, {"j"}), 30);   // two tokens since then
  EXPECT_EQ(next({31, 1, 2, 9, 31, 1}, {"."}), 2);  // one token since "a."
  EXPECT_EQ(next({0, 1, 30, 9, 0, 1}, {"x"}), 2);   // "." would be penalized
  logits[2] = 0;
  EXPECT_EQ(next({0, 1, 30, 9, 0, 1}, {"x"}), 3);
  EXPECT_EQ(next({0, 1, 30, 9, 0, 1}, {"."}), 30);  // breakers are not
}

TEST(BadWords, NeverAppear) {
  SamplingOptions o;
  o.temperature = 1;
  o.bad_words = {"bad", "aa"};
  const auto vocabulary = letters();
  std::vector<float> logits(33, -kInf);
  for (const int32_t id : {0, 1, 3, 23, 26, 27, 28, 29}) logits[size_t(id)] = 1;  // a b d x bad xbad ad dx
  Sampler sampler = make_sampler(o, logits.size(), vocabulary);
  std::string text;
  std::vector<int> count(logits.size());
  for (int i = 0; i < 4000; ++i) {
    const int32_t token = sampler.sample(logits, i).value();
    ++count[size_t(token)];
    sampler.accept(token);
    text += vocabulary->text(token);
  }
  EXPECT_EQ(text.find("bad"), std::string::npos);
  EXPECT_EQ(text.find("aa"), std::string::npos);
  EXPECT_EQ(count[26] + count[27], 0);
  for (const int32_t id : {0, 1, 3, 23, 28, 29}) EXPECT_GT(count[size_t(id)], 100) << id;
  EXPECT_NE(text.find("ba"), std::string::npos);  // a beginning may appear
}

TEST(BadWords, MayLeaveNothing) {
  SamplingOptions o;
  o.bad_words = {"a"};
  Sampler sampler = make_sampler(o, 33, letters());
  std::vector<float> logits(33, -kInf);
  logits[0] = logits[26] = 1;  // what an output constraint allows
  const auto none = sampler.sample(logits, 3);
  EXPECT_EQ(none.status().code(), Code::invalid_argument);
  EXPECT_THAT(none.status().message(), HasSubstr("position 3: logit_bias and bad_words leave no token"));
  EXPECT_EQ(Sampler::create(o, 33).status().code(), Code::not_found);
}

TEST(Sampler, MaskedTokensStayExcluded) {
  // A constraint excludes tokens before any sampler sees them, and neither bias nor a reward brings one back.
  SamplingOptions o;
  o.temperature = 1;
  o.logit_bias = {{0, 100}, {1, 1}};
  o.presence_penalty = -50;
  o.frequency_penalty = -50;
  o.repetition_penalty = 0.1f;
  o.dry_multiplier = 3;
  for (const int mirostat : {0, 1, 2}) {
    o.mirostat = mirostat;
    Sampler sampler = make_sampler(o, 6);
    std::vector<int32_t> text = {0, 4, 0, 4, 0, 4};
    sampler.accept(text);
    for (int i = 0; i < 300; ++i) {
      const int32_t token = sampler.sample(std::vector<float>{-kInf, 1, 2, -5, -kInf, 0}, i).value();
      EXPECT_TRUE(token != 0 && token != 4) << token;
    }
  }
}

TEST(Samplers, OrderIsCheckedAndShown) {
  SamplingOptions o;
  o.temperature = 0.5f;
  o.top_k = 40;
  o.xtc_probability = 0.5f;
  o.presence_penalty = 1;
  EXPECT_THAT(*active_samplers(o), ElementsAre("penalties", "temperature", "top_k", "xtc", "draw"));
  o.samplers = {"top-k", "typ_p", "temp"};
  EXPECT_THAT(*active_samplers(o), ElementsAre("top_k", "temperature", "draw"));
  o.mirostat = 2;
  EXPECT_THAT(*active_samplers(o), ElementsAre("temperature", "mirostat", "draw"));
  o.temperature = 0;
  EXPECT_THAT(*active_samplers(o), ElementsAre("greedy"));
  o.samplers = {"top_k", "top_kk"};
  EXPECT_THAT(std::string(active_samplers(o).status().message()),
              HasSubstr(R"(there is no sampler "top_kk"; did you mean "top_k"? (there are "penalties", "dry", )"));
  o.samplers = {"top_k", "min_p", "top-k"};
  EXPECT_THAT(std::string(active_samplers(o).status().message()), HasSubstr("the sampler \"top_k\" is listed twice"));
}

TEST(Samplers, ParametersDescribeTheOptions) {
  std::set<std::string_view> names;
  const SamplingOptions defaults;
  for (const SamplingParameter& p : sampling_parameters()) {
    EXPECT_TRUE(names.insert(p.name).second) << p.name;
    EXPECT_TRUE(p.check(defaults).ok()) << p.name;
    EXPECT_LE(p.input.max, p.range.max) << p.name;
    EXPECT_FALSE(p.help.empty()) << p.name;
    if (!p.depends_on.empty()) {
      const SamplingParameter* const parent = find_sampling_parameter(p.depends_on);
      ASSERT_NE(parent, nullptr) << p.name;
      EXPECT_EQ(parent->sampler, p.sampler) << p.name;
    }
    // Every value that flags and fields take is one of the sampler's, after -1 has become "off".
    for (const double value : {p.input.min, p.input.max}) {
      SamplingOptions o;
      p.set(o, std::max(value, p.range.min));
      EXPECT_EQ(p.value(o), std::max<double>(p.is_integer() ? value : double(float(value)), p.range.min)) << p.name;
      EXPECT_EQ(p.check(o).ok(), !p.excludes_min || value > p.range.min) << p.name << " " << value;
    }
  }
  // The numbers of SamplingOptions, without the seed.
  EXPECT_EQ(names.size(), 21U);
}

TEST(Samplers, NeutralValuesTurnASamplerOff) {
  SamplingOptions o;
  for (const SamplingParameter& p : sampling_parameters())
    if (p.neutral) p.set(o, *p.neutral);
  EXPECT_THAT(*active_samplers(o), ElementsAre("draw"));
}

TEST(Samplers, OptionsOutsideTheirRangeAreNamed) {
  const auto message = [](const std::function<void(SamplingOptions&)>& set) {
    const auto sampler = Sampler::create(with(set), 10);
    EXPECT_EQ(sampler.status().code(), Code::invalid_argument);
    return std::string(sampler.status().message());
  };
  EXPECT_THAT(message([](auto& o) { o.presence_penalty = NAN; }), HasSubstr("presence_penalty is nan"));
  EXPECT_THAT(message([](auto& o) { o.frequency_penalty = kInf; }), HasSubstr("frequency_penalty is inf"));
  EXPECT_THAT(message([](auto& o) { o.penalty_last_n = -2; }), HasSubstr("penalty_last_n is -2"));
  EXPECT_THAT(message([](auto& o) { o.typical_p = 0; }), HasSubstr("typical_p is 0; allowed: more than 0"));
  EXPECT_THAT(message([](auto& o) { o.top_n_sigma = -1; }), HasSubstr("top_n_sigma is -1"));
  EXPECT_THAT(message([](auto& o) { o.xtc_probability = 2; }), HasSubstr("xtc_probability is 2"));
  EXPECT_THAT(message([](auto& o) { o.xtc_threshold = -1; }), HasSubstr("xtc_threshold is -1"));
  EXPECT_THAT(message([](auto& o) { o.dry_multiplier = -1; }), HasSubstr("dry_multiplier is -1"));
  EXPECT_THAT(message([](auto& o) { o.dry_base = 0.5f; }), HasSubstr("dry_base is 0.5"));
  EXPECT_THAT(message([](auto& o) { o.dry_allowed_length = -1; }), HasSubstr("dry_allowed_length is -1"));
  EXPECT_THAT(message([](auto& o) { o.dry_penalty_last_n = -2; }), HasSubstr("dry_penalty_last_n is -2"));
  EXPECT_THAT(message([](auto& o) { o.dry_sequence_breakers = {""}; }), HasSubstr("dry_sequence_breakers"));
  EXPECT_THAT(message([](auto& o) { o.mirostat = 3; }), HasSubstr("mirostat is 3; allowed: 0 (off), 1 or 2"));
  EXPECT_THAT(message([](auto& o) { o.mirostat_tau = -1; }), HasSubstr("mirostat_tau is -1"));
  EXPECT_THAT(message([](auto& o) { o.mirostat_eta = NAN; }), HasSubstr("mirostat_eta is nan"));
  EXPECT_THAT(message([](auto& o) { o.dynatemp_range = -1; }), HasSubstr("dynatemp_range is -1"));
  EXPECT_THAT(message([](auto& o) { o.dynatemp_exponent = -1; }), HasSubstr("dynatemp_exponent is -1"));
  EXPECT_THAT(message([](auto& o) {
                o.logit_bias = {{10, 1}};
              }),
              HasSubstr("token 10 is outside the vocabulary of 10"));
  EXPECT_THAT(message([](auto& o) { o.logit_bias = {{1, kInf}}; }), HasSubstr("logit_bias of token 1 is inf"));
  EXPECT_THAT(message([](auto& o) { o.bad_words = {""}; }), HasSubstr("bad_words"));
}

// After roll_back() a sampler chooses what it would have chosen without the tokens in between.
TEST(SamplerRollBack, ForgetsTheTokensSinceTheCheckpoint) {
  std::vector<SamplingOptions> cases(8);
  cases[1].repetition_penalty = 1.5f, cases[1].frequency_penalty = 0.7f, cases[1].presence_penalty = 0.2f;
  cases[2] = cases[1], cases[2].penalty_last_n = 4;
  cases[3].dry_multiplier = 2, cases[3].dry_allowed_length = 1, cases[3].dry_sequence_breakers = {"b", "ca"};
  cases[4].mirostat = 1;
  cases[5].mirostat = 2, cases[5].mirostat_eta = 0.9f;
  cases[6].bad_words = {"ab", "bca"};
  cases[7] = cases[2], cases[7].mirostat = 2, cases[7].bad_words = {"aab"}, cases[7].dry_multiplier = 1;
  const std::shared_ptr<const TokenTrie> vocabulary = letters();
  const auto size = static_cast<size_t>(vocabulary->vocab_size());
  std::mt19937 random(4);
  for (size_t which = 0; which < cases.size(); ++which) {
    Sampler rolled = make_sampler(cases[which], size, vocabulary), plain = make_sampler(cases[which], size, vocabulary);
    const std::vector<int32_t> prompt = {0, 1, 0, 2, 1};
    rolled.accept_prompt(prompt);
    plain.accept_prompt(prompt);
    for (int64_t position = 5; position < 60; ++position) {
      SCOPED_TRACE(::testing::Message() << "case " << which << ", position " << position);
      const Sampler::Checkpoint checkpoint = rolled.checkpoint();
      for (int64_t i = 0, n = random() % 7; i < n; ++i) {
        const std::vector<float> other = random_logits(size, random());
        if (random() % 2) (void)rolled.sample(other, position + i);
        rolled.accept(static_cast<int32_t>(random() % size));
      }
      rolled.roll_back(checkpoint);
      const std::vector<float> logits = random_logits(size, random());
      const Result<int32_t> want = plain.sample(logits, position), got = rolled.sample(logits, position);
      ASSERT_EQ(got.ok(), want.ok());
      if (!want.ok()) continue;
      ASSERT_EQ(*got, *want);
      const SampleRow want_row = plain.device_row(position), got_row = rolled.device_row(position);
      const auto edits = [](const SampleRow& row) {
        std::vector<std::array<float, 4>> all;
        for (const LogitEdit& e : row.edits)
          all.push_back({static_cast<float>(e.token), e.bias, e.repetition, e.penalty});
        std::sort(all.begin(), all.end());
        return all;
      };
      EXPECT_EQ(got_row.kind, want_row.kind);
      EXPECT_EQ(edits(got_row), edits(want_row));
      plain.accept(*want);
      rolled.accept(*got);
    }
  }
}

}  // namespace
}  // namespace redline
