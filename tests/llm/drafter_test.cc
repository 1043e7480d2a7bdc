// Drafts change nothing: text, log probabilities, finish reason and usage of a request are those without drafts,
// whatever is drafted.
#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "llm/generation_loop.h"
#include "llm/sampler_draws.h"
#include "redline/text.h"
#include "support/bundled.h"
#include "support/golden.h"
#include "support/temporary_folder.h"
#include "support/test_device.h"

namespace redline {
namespace {

using ::testing::HasSubstr;
using Kind = OutputConstraint::Kind;

/// Drafts the tokens of a text that is known, some of them replaced by others. Checks what the engine tells it.
class KnownTextDrafter final : public Drafter {
 public:
  /// `right`: share of the drafted tokens that are right.
  KnownTextDrafter(std::vector<int32_t> text, double right, int64_t vocab_size, uint32_t seed)
      : text_(std::move(text)), right_(right), vocab_size_(vocab_size), random_(seed) {}

  Status propose(int64_t max_tokens, Draft& draft) override {
    EXPECT_TRUE(draft.tokens.empty());
    const auto wanted = std::uniform_int_distribution<int64_t>(0, max_tokens)(random_);
    for (auto i = static_cast<size_t>(length_); std::ssize(draft.tokens) < wanted; ++i) {
      const bool is_right = i < text_.size() && std::uniform_real_distribution<>()(random_) < right_;
      const auto other = std::uniform_int_distribution<int64_t>(0, vocab_size_ - 1)(random_);
      draft.tokens.push_back(is_right ? text_[i] : static_cast<int32_t>(other));
    }
    drafted_ = std::ssize(draft.tokens);
    return {};
  }
  void observe(std::span<const int32_t> tokens, int64_t num_accepted) override {
    EXPECT_LE(num_accepted, drafted_);
    EXPECT_LE(num_accepted, std::ssize(tokens));
    for (const int32_t token : tokens) {
      if (length_ < std::ssize(text_)) {
        EXPECT_EQ(token, text_[static_cast<size_t>(length_)]);
      }
      ++length_;
    }
    drafted_ = 0;
  }
  void roll_back(int64_t length) override {
    EXPECT_GE(length, length_);  // a verified token is never taken back
    EXPECT_LE(length, length_ + drafted_);
  }

 private:
  std::vector<int32_t> text_;
  double right_;
  int64_t vocab_size_, length_ = 0, drafted_ = 0;
  std::mt19937 random_;
};

/// Everything that a request gives, except for times.
struct DraftedOutput {
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<std::string> pieces;
  std::string text;
  FinishReason reason = FinishReason::kStop;
  int64_t prompt_tokens = 0, decode_tokens = 0;
  Code code = Code::ok;
  bool operator==(const DraftedOutput&) const = default;
};
std::ostream& operator<<(std::ostream& out, const DraftedOutput& o) {
  return out << o.tokens.size() << " tokens, \"" << o.text << "\", " << finish_reason_name(o.reason) << ", "
             << o.decode_tokens << " decoded, code " << static_cast<int>(o.code);
}

std::function<bool(const TextPiece&)> note_pieces(DraftedOutput& out, size_t max_pieces = SIZE_MAX) {
  return [&out, max_pieces](const TextPiece& piece) {
    if (piece.token >= 0 || !piece.text.empty()) out.pieces.emplace_back(piece.text);
    if (piece.token < 0) return true;
    out.logprobs.push_back(piece.logprob);
    for (const TokenLogprob& top : piece.top) {
      out.logprobs.push_back(static_cast<float>(top.id));
      out.logprobs.push_back(top.logprob);
    }
    return out.pieces.size() < max_pieces;
  };
}
void note_result(DraftedOutput& out, const Result<GenerateResult>& result) {
  out.code = result.status().code();
  if (!result.ok()) return;
  out.tokens = result->tokens;
  out.text = result->text;
  out.reason = result->reason;
  out.prompt_tokens = result->prompt_tokens;
  out.decode_tokens = result->decode_tokens;
}

/// A request, and after how many pieces its callback cancels it.
struct DraftedRequest {
  std::string name;
  GenerateRequest request;
  size_t max_pieces = SIZE_MAX;
};

/// Requests with every sampler option, constraint and way to end.
std::vector<DraftedRequest> every_option(const TextEngine& engine) {
  std::vector<DraftedRequest> all;
  const std::vector<int32_t> base = engine.encode("Once upon a time there was a little dog. The little dog").value();
  const auto add = [&](const std::string& name, const std::function<void(GenerateRequest&)>& set) -> DraftedRequest& {
    DraftedRequest& r = all.emplace_back();
    r.name = name;
    r.request.prompt = base;
    r.request.sampling.temperature = 1;
    r.request.sampling.seed = 17 * all.size();
    r.request.max_tokens = 40;
    set(r.request);
    return r;
  };
  using R = GenerateRequest;
  add("greedy", [](R& r) { r.sampling.temperature = 0, r.num_logprobs = 2; });
  add("draw", [](R& r) { r.num_logprobs = 0; });
  add("top_k", [](R& r) { r.sampling.top_k = 5; });
  add("top_p, min_p", [](R& r) { r.sampling.top_p = 0.8f, r.sampling.min_p = 0.05f; });
  add("typical_p", [](R& r) { r.sampling.typical_p = 0.6f; });
  add("top_n_sigma", [](R& r) { r.sampling.top_n_sigma = 1.0f; });
  add("xtc", [](R& r) { r.sampling.xtc_probability = 0.7f, r.sampling.xtc_threshold = 0.1f; });
  add("dynatemp", [](R& r) { r.sampling.dynatemp_range = 0.7f; });
  add("penalties", [](R& r) {
    r.sampling.repetition_penalty = 1.4f, r.sampling.presence_penalty = 0.5f, r.sampling.frequency_penalty = 0.3f;
    r.num_logprobs = 1;
  });
  add("penalties of a window", [](R& r) {
    r.sampling.repetition_penalty = 1.6f, r.sampling.frequency_penalty = 0.9f, r.sampling.penalty_last_n = 7;
  });
  add("greedy with penalties", [](R& r) { r.sampling.temperature = 0, r.sampling.repetition_penalty = 1.3f; });
  add("dry", [](R& r) { r.sampling.dry_multiplier = 2, r.sampling.dry_allowed_length = 1; });
  add("dry without breakers", [](R& r) {
    r.sampling.temperature = 0, r.sampling.dry_multiplier = 3, r.sampling.dry_allowed_length = 1;
    r.sampling.dry_sequence_breakers.clear();
  });
  add("mirostat 1", [](R& r) { r.sampling.mirostat = 1, r.sampling.mirostat_tau = 3; });
  add("mirostat 2", [](R& r) { r.sampling.mirostat = 2, r.sampling.mirostat_eta = 0.6f; });
  add("logit_bias", [&](R& r) { r.sampling.logit_bias = {{base[3], 3.0f}, {base[4], -INFINITY}}; });
  add("bad_words", [](R& r) { r.sampling.bad_words = {"the", " was", "ing"}; });
  add("order of samplers", [](R& r) {
    r.sampling.samplers = {"top_p", "temperature", "penalties"}, r.sampling.top_p = 0.7f;
    r.sampling.repetition_penalty = 1.2f;
  });
  add("stop", [](R& r) { r.stop = {" the", ". "}, r.max_tokens = 200; });
  add("stop over several tokens", [](R& r) {
    r.sampling.temperature = 0, r.stop = {"was very hap", "dog wanted to p"};
  });
  add("stop tokens", [&](R& r) { r.stop_tokens = {base[1], base[5]}, r.max_tokens = 100; });
  add("min_tokens", [&](R& r) { r.stop_tokens = {base[1], base[5], base[6]}, r.min_tokens = 25, r.max_tokens = 100; });
  add("end of the text", [](R& r) { r.max_tokens = 2000; });
  for (const int64_t n : {0, 1, 2, 3, 33}) add("max_tokens", [&](R& r) { r.max_tokens = n; });
  add("context", [](R& r) { r.max_tokens = 100000, r.ignore_stop_tokens = true; });
  add("regex", [](R& r) { r.constraint = {Kind::kRegex, "[a-z]{3,12}( [a-z]{2,9}){4}\\.", {}}; });
  add("regex, greedy, log probabilities", [](R& r) {
    r.constraint = {Kind::kRegex, "( [a-z]{1,9}){3,6}!", {}}, r.sampling.temperature = 0, r.num_logprobs = 1;
  });
  add("json", [](R& r) {
    r.constraint = {Kind::kJsonSchema, R"({"type":"array","items":{"type":"integer"},"maxItems":9})", {}};
    r.max_tokens = 100;
  });
  add("choice", [](R& r) { r.constraint = {Kind::kChoice, "", {"yes", "no", "perhaps, but not today"}}; });
  add("grammar", [](R& r) {
    r.constraint = {Kind::kGrammar, "root ::= list\nlist ::= list \";\" | [a-c]+ \"!\"", {}};
    r.sampling.repetition_penalty = 1.2f;
  });
  add("cancelled", [](R&) {}).max_pieces = 12;
  // The pages of a sequence have 32 tokens.
  for (int64_t length = 28; length < 36; ++length)
    add("page border", [&](R& r) {
      std::vector<int32_t> prompt;
      while (std::ssize(prompt) < length) prompt.push_back(base[prompt.size() % base.size()]);
      r.prompt = prompt, r.sampling.temperature = length % 2 ? 0.0f : 1.0f;
    });
  return all;
}

/// Sets GenerationLoop::make_test_drafter while it exists.
class UseDrafter {
 public:
  explicit UseDrafter(std::function<std::unique_ptr<Drafter>(const GenerateRequest&)> make) {
    GenerationLoop::make_test_drafter = std::move(make);
  }
  ~UseDrafter() { GenerationLoop::make_test_drafter = nullptr; }
  UseDrafter(const UseDrafter&) = delete;
  UseDrafter& operator=(const UseDrafter&) = delete;
};

/// The tokens of prompt and output.
std::vector<int32_t> whole_text(const GenerateRequest& request, const DraftedOutput& output) {
  std::vector<int32_t> text = request.prompt.tokens();
  text.insert(text.end(), output.tokens.begin(), output.tokens.end());
  return text;
}

DraftedOutput run_one(TextEngine& engine, const DraftedRequest& r, int64_t num_speculative_tokens,
                      int64_t* accepted = nullptr) {
  DraftedOutput out;
  GenerateRequest request = r.request;
  request.num_speculative_tokens = num_speculative_tokens;
  const auto result = engine.generate(request, note_pieces(out, r.max_pieces));
  note_result(out, result);
  if (result.ok()) {
    EXPECT_LE(result->accepted_tokens, result->drafted_tokens);
    if (accepted != nullptr) *accepted += result->accepted_tokens;
  }
  return out;
}

TextEngineOptions drafting_options() {
  TextEngineOptions options;
  options.threads = 2;
  options.dtype = ComputeType::kF32;  // a sequence has the same bits in any batch
  options.context = 160;
  return options;
}

std::unique_ptr<TextEngine> open_drafting(const std::string& path, const TextEngineOptions& options) {
  auto engine = TextEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

TEST(Drafts, EveryOptionGivesTheSameAsWithoutDrafts) {
  const auto engine = open_drafting(kTales, drafting_options());
  int64_t accepted = 0;
  for (const DraftedRequest& r : every_option(*engine)) {
    SCOPED_TRACE(r.name);
    const DraftedOutput want = run_one(*engine, r, 0);
    for (const double right : {1.0, 0.0, 0.8}) {
      const UseDrafter use([&](const GenerateRequest& request) {
        return std::make_unique<KnownTextDrafter>(whole_text(request, want), right, engine->info().vocab_size,
                                                  static_cast<uint32_t>(r.request.sampling.seed));
      });
      EXPECT_EQ(run_one(*engine, r, right == 1.0 ? 16 : 5, &accepted), want) << "share of right tokens: " << right;
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.accepted_tokens, accepted);
  EXPECT_GT(stats.drafted_tokens, stats.accepted_tokens);
}

/// Runs all requests together, every third without drafts, and compares with each alone.
void check_together(TextEngine& engine, const std::vector<DraftedRequest>& all) {
  std::vector<DraftedOutput> want, got(all.size());
  for (const DraftedRequest& r : all) want.push_back(run_one(engine, r, 0));
  for (const int round : {0, 1}) {
    const UseDrafter use([&](const GenerateRequest& request) -> std::unique_ptr<Drafter> {
      const size_t i = std::stoul(request.client);
      return std::make_unique<KnownTextDrafter>(whole_text(all[i].request, want[i]), 0.9, engine.info().vocab_size,
                                                static_cast<uint32_t>(i));
    });
    std::vector<std::shared_ptr<Generation>> running;
    for (size_t i = 0; i < all.size(); ++i) {
      got[i] = {};
      GenerateRequest request = all[i].request;
      request.client = std::to_string(i);  // tells the drafter which request it is
      request.num_speculative_tokens = i % 3 == 2 ? 0 : 7;
      running.push_back(engine.submit(request, note_pieces(got[i], all[i].max_pieces)).value());
    }
    for (size_t i = 0; i < all.size(); ++i) {
      note_result(got[i], running[i]->wait());
      EXPECT_EQ(got[i], want[i]) << all[i].name << ", round " << round;
    }
  }
}

TEST(Drafts, BatchesOfRequestsWithAndWithoutDrafts) {
  TextEngineOptions options = drafting_options();
  const auto engine = open_drafting(kTales, options);
  std::vector<DraftedRequest> all = every_option(*engine);
  check_together(*engine, all);
  EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
  EXPECT_EQ(engine->stats().preemptions, 0);
}

// Requests wait and are preempted; drafts take no page that another request needs.
TEST(Drafts, SmallCacheAndSmallSteps) {
  TextEngineOptions options = drafting_options();
  options.cache_tokens = 12 * 32;
  options.max_batch_tokens = 24;
  options.max_sequences = 6;
  const auto engine = open_drafting(kTales, options);
  std::vector<DraftedRequest> all = every_option(*engine);
  check_together(*engine, all);
  EXPECT_EQ(engine->free_cache_tokens(), 12 * 32);
}

TEST(Drafts, OtherModels) {
  for (const char* model :
       {"llama_gqa", "mistral_window", "gemma2", "deepseek_v3", "gpt_oss", "gpt2", "falcon_alibi"}) {
    SCOPED_TRACE(model);
    TextEngineOptions options = drafting_options();
    options.context = 0;  // what the model has: 64 positions and more
    const auto engine = open_drafting(testing::golden_root() + "/" + model, options);
    ASSERT_TRUE(engine);
    for (uint32_t seed = 0; seed < 6; ++seed) {
      DraftedRequest r;
      std::vector<int32_t> prompt;
      for (uint32_t i = 0; i < 20 + 9 * seed; ++i)
        prompt.push_back(
            static_cast<int32_t>((i * 7 + i * i + seed) % static_cast<uint32_t>(engine->info().vocab_size)));
      r.request.prompt = prompt;
      r.request.sampling.temperature = seed % 2 ? 1.0f : 0.0f;
      r.request.sampling.seed = seed;
      r.request.max_tokens = 60;
      r.request.ignore_stop_tokens = true;
      r.request.num_logprobs = 1;
      const DraftedOutput want = run_one(*engine, r, 0);
      const UseDrafter use([&](const GenerateRequest& request) {
        return std::make_unique<KnownTextDrafter>(whole_text(request, want), 0.7, engine->info().vocab_size, seed);
      });
      EXPECT_EQ(run_one(*engine, r, 11), want) << seed;
    }
  }
}

// Types that have other kernels for many rows: drafts stay below the number of rows where they begin.
TEST(Drafts, OtherComputeTypes) {
  for (const ComputeType type :
       {ComputeType::kAuto, ComputeType::kBF16, ComputeType::kQ8, ComputeType::kQ8_0, ComputeType::kW8A8}) {
    TextEngineOptions options = drafting_options();
    options.dtype = type;
    options.prefix_cache = false;
    const auto engine = open_drafting(kTales, options);
    int64_t accepted = 0;
    for (const size_t i : {size_t{0}, size_t{1}, size_t{8}}) {
      DraftedRequest r = every_option(*engine)[i];
      r.request.max_tokens = 80;
      const DraftedOutput want = run_one(*engine, r, 0);
      const UseDrafter use([&](const GenerateRequest& request) {
        return std::make_unique<KnownTextDrafter>(whole_text(request, want), 0.95, engine->info().vocab_size, 1);
      });
      EXPECT_EQ(run_one(*engine, r, 64, &accepted), want) << static_cast<int>(type) << ", " << r.name;
    }
    EXPECT_GT(accepted, 0) << static_cast<int>(type);
  }
}

// The device samples every row of a draft; penalties of a row count the tokens drafted before it.
TEST(Drafts, EmulatedDevice) {
  TextEngineOptions options = drafting_options();
  options.device = test::test_device();
  options.max_sequences = 4;
  options.max_batch_tokens = 64;
  for (const char* model : {"llama_gqa", "mistral_window"}) {
    const auto engine = open_drafting(testing::golden_root() + "/" + model, options);
    ASSERT_TRUE(engine);
    for (const int kind : {0, 1, 2, 3, 4}) {
      DraftedRequest r;
      r.request.prompt = std::vector<int32_t>{5, 9, 11, 4, 5, 9, 30, 2};
      r.request.sampling.temperature = kind == 0 ? 0.0f : 1.0f;
      r.request.sampling.seed = 3;
      if (kind == 2) r.request.sampling.repetition_penalty = 1.5f, r.request.sampling.frequency_penalty = 0.6f;
      if (kind == 3) r.request.sampling.repetition_penalty = 1.5f, r.request.sampling.penalty_last_n = 3;
      if (kind == 4) r.request.sampling.typical_p = 0.5f, r.request.min_tokens = 5;
      r.request.max_tokens = 20;
      r.request.ignore_stop_tokens = true;
      const DraftedOutput want = run_one(*engine, r, 0);
      const UseDrafter use([&](const GenerateRequest& request) {
        return std::make_unique<KnownTextDrafter>(whole_text(request, want), 0.8, engine->info().vocab_size, 1);
      });
      int64_t accepted = 0;
      EXPECT_EQ(run_one(*engine, r, 6, &accepted), want) << model << ", " << kind;
      EXPECT_GT(accepted, 0);
    }
  }
}

// A request that starts from the prefix cache of one with drafts continues as it would without them.
TEST(Drafts, PrefixCacheHasNoDraftedState) {
  const auto drafting = open_drafting(kTales, drafting_options()), plain = open_drafting(kTales, drafting_options());
  DraftedRequest r;
  r.request.prompt = drafting->encode("Lily and Tom went to the park").value();
  r.request.sampling.temperature = 0;
  r.request.max_tokens = 70;
  r.request.ignore_stop_tokens = true;
  const DraftedOutput want = run_one(*plain, r, 0);
  const UseDrafter use([&](const GenerateRequest& request) {
    return std::make_unique<KnownTextDrafter>(whole_text(request, want), 0.6, drafting->info().vocab_size, 5);
  });
  EXPECT_EQ(run_one(*drafting, r, 9), want);
  std::vector<int32_t> next = whole_text(r.request, want);
  next.push_back(9);
  r.request.prompt = next;
  r.request.num_logprobs = 3;
  r.request.max_tokens = 20;
  r.request.num_speculative_tokens = 0;
  const auto from_cache = drafting->generate(r.request).value(), from_plain = plain->generate(r.request).value();
  EXPECT_EQ(from_cache.tokens, from_plain.tokens);
  EXPECT_EQ(from_cache.cached_tokens, from_plain.cached_tokens);
  EXPECT_GE(from_cache.cached_tokens, 64);
}

// A drafter may propose anything: too much, tokens that do not exist, trees, errors.
TEST(Drafts, BadDraftsFailNoRequest) {
  class Wild final : public Drafter {
   public:
    explicit Wild(int kind) : kind_(kind) {}
    Status propose(int64_t max_tokens, Draft& draft) override {
      if (kind_ == 0) return internal("no draft");
      for (int64_t i = 0; i < 2 * max_tokens + 3; ++i)
        draft.tokens.push_back(kind_ == 1 ? -5 : kind_ == 2 ? 1 << 30 : 7);
      if (kind_ == 3)
        for (size_t i = 0; i < draft.tokens.size(); ++i) draft.parents.push_back(i % 2 ? 0 : -1);
      return {};
    }
    void observe(std::span<const int32_t>, int64_t) override {}
    void roll_back(int64_t) override {}

   private:
    int kind_;
  };
  const auto engine = open_drafting(kTales, drafting_options());
  const DraftedRequest r = every_option(*engine)[1];
  const DraftedOutput want = run_one(*engine, r, 0);
  for (const int kind : {0, 1, 2, 3, 4}) {
    const UseDrafter use([&](const GenerateRequest&) { return std::make_unique<Wild>(kind); });
    EXPECT_EQ(run_one(*engine, r, 5), want) << kind;
  }
}

TEST(Drafts, PromptLookupCopiesAndKeepsTheText) {
  TextEngineOptions options = drafting_options();
  const auto plain = open_drafting(kTales, options);
  options.speculate = "prompt-lookup";
  const auto engine = open_drafting(kTales, options);
  for (const DraftedRequest& r : every_option(*plain))
    EXPECT_EQ(run_one(*engine, r, -1), run_one(*plain, r, 0)) << r.name;
  // A text that repeats itself.
  DraftedRequest r;
  r.request.prompt = plain->encode("The dog ran. The dog ran. The dog ran. The dog").value();
  r.request.sampling.temperature = 0;
  r.request.sampling.logit_bias = {};
  r.request.max_tokens = 100;
  r.request.ignore_stop_tokens = true;
  r.request.constraint = {Kind::kRegex, "( ran\\. The dog){20}", {}};
  int64_t accepted = 0;
  EXPECT_EQ(run_one(*engine, r, -1, &accepted), run_one(*plain, r, 0));
  EXPECT_GT(accepted, 20);
}

TEST(Drafts, OptionsAndRecurrentStates) {
  TextEngineOptions options = drafting_options();
  options.speculate = "medusa";
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("no drafter \"medusa\""));
  options.speculate = "prompt-lookup";
  options.num_speculative_tokens = 65;
  EXPECT_EQ(TextEngine::open(kTales, options).status().message(), "num_speculative_tokens 65 is outside [0, 64]");
  options.num_speculative_tokens = 8;
  std::string notice;
  options.on_notice = [&](const std::string& text) { notice = text; };
  const auto engine = open_drafting(testing::golden_root() + "/mamba2", options);
  EXPECT_THAT(notice, HasSubstr("speculate prompt-lookup: nothing is drafted, because the recurrent states of mamba2"));
  GenerateRequest request;
  request.prompt = std::vector<int32_t>{4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7};
  request.max_tokens = 20;
  request.ignore_stop_tokens = true;
  EXPECT_EQ(engine->generate(request)->drafted_tokens, 0);
  request.num_speculative_tokens = 65;
  EXPECT_EQ(engine->generate(request).status().code(), Code::invalid_argument);
}

}  // namespace
}  // namespace redline
