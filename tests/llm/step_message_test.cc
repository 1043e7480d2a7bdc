// Steps as values: bytes and back, recorded and executed again, and messages that do not fit the model.
#include <gmock/gmock.h>

#include <random>

#include "support/steppers.h"
#include "support/temporary_folder.h"

namespace redline::testing {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kStepVocab = 64;  // of the golden models

class RandomMessages {
 public:
  explicit RandomMessages(uint32_t seed) : random_(seed) {
    for (uint64_t id = 1; id <= 3; ++id) {
      adapters_.push_back(std::make_shared<Adapter>());
      adapters_.back()->identity = id << 40 | id;
    }
  }
  StepMessage::FindAdapter finder() const {
    return [this](uint64_t identity) -> std::shared_ptr<const Adapter> {
      for (const auto& adapter : adapters_)
        if (adapter->identity == identity) return adapter;
      return nullptr;
    };
  }
  StepMessage make() {
    StepMessage m;
    for (int64_t i = size(); i > 0; --i) m.page_changes.push_back({number(), number(), number()});
    for (int64_t i = size(); i > 0; --i) m.sequences.push_back({number(), number(), int64_t{number()} << 20});
    for (std::vector<int32_t>* list :
         {&m.tokens, &m.positions, &m.lengths, &m.logit_rows, &m.hidden_rows, &m.embedding_rows})
      *list = numbers();
    m.embeddings = reals();
    for (int64_t i = size(); i > 0; --i) m.layer_rows.push_back(reals());
    for (int64_t i = size(); i > 0; --i) m.groups.push_back({numbers(), numbers()});
    for (int64_t i = size(); i > 0; --i) {
      StepMessage::Adapters segment{static_cast<Symbol>(random_() % 3), number(), number(), {}};
      for (int64_t k = size(); k > 0; --k) segment.adapters.push_back({adapters_[random_() % 3], real()});
      m.adapters.push_back(std::move(segment));
    }
    for (int64_t i = size(); i > 0; --i) {
      SampleRow row;
      row.kind = static_cast<SampleRow::Kind>(random_() % 3);
      for (int64_t k = size(); k > 0; --k) row.edits.push_back({number(), real(), real(), real()});
      row.scale = real(), row.top_k = number(), row.top_p = real(), row.min_p = real();
      row.u = std::uniform_real_distribution<double>()(random_);
      m.samples.push_back(std::move(row));
    }
    return m;
  }

 private:
  int64_t size() { return random_() % 5; }
  int32_t number() { return static_cast<int32_t>(random_()); }
  float real() { return std::normal_distribution<float>()(random_); }
  std::vector<int32_t> numbers() {
    std::vector<int32_t> list(static_cast<size_t>(size()));
    for (int32_t& each : list) each = number();
    return list;
  }
  std::vector<float> reals() {
    std::vector<float> list(static_cast<size_t>(size()));
    for (float& each : list) each = real();
    return list;
  }
  std::mt19937 random_;
  std::vector<std::shared_ptr<Adapter>> adapters_;
};

bool operator==(const SequenceRows& a, const SequenceRows& b) {
  return a.row_begin == b.row_begin && a.rows == b.rows && a.first_position == b.first_position;
}

void expect_equal(const StepMessage& a, const StepMessage& b) {
  EXPECT_EQ(a.page_changes, b.page_changes);
  EXPECT_TRUE(std::equal(a.sequences.begin(), a.sequences.end(), b.sequences.begin(), b.sequences.end(),
                         [](const SequenceRows& x, const SequenceRows& y) { return x == y; }));
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.positions, b.positions);
  EXPECT_EQ(a.lengths, b.lengths);
  EXPECT_EQ(a.logit_rows, b.logit_rows);
  EXPECT_EQ(a.hidden_rows, b.hidden_rows);
  EXPECT_EQ(a.embedding_rows, b.embedding_rows);
  EXPECT_EQ(a.embeddings, b.embeddings);
  EXPECT_EQ(a.layer_rows, b.layer_rows);
  EXPECT_TRUE(a.groups == b.groups);
  ASSERT_EQ(a.adapters.size(), b.adapters.size());
  for (size_t i = 0; i < a.adapters.size(); ++i) {
    const StepMessage::Adapters &x = a.adapters[i], &y = b.adapters[i];
    EXPECT_EQ(x.unit, y.unit);
    EXPECT_EQ(x.row_begin, y.row_begin);
    EXPECT_EQ(x.row_end, y.row_end);
    EXPECT_TRUE(std::equal(x.adapters.begin(), x.adapters.end(), y.adapters.begin(), y.adapters.end(),
                           [](const WeightedAdapter& p, const WeightedAdapter& q) {
                             return p.adapter == q.adapter && p.weight == q.weight;
                           }));
  }
  ASSERT_EQ(a.samples.size(), b.samples.size());
  for (size_t i = 0; i < a.samples.size(); ++i) {
    const SampleRow &x = a.samples[i], &y = b.samples[i];
    EXPECT_TRUE(x.kind == y.kind && x.scale == y.scale && x.top_k == y.top_k && x.top_p == y.top_p &&
                x.min_p == y.min_p && x.u == y.u);
    EXPECT_TRUE(std::equal(
        x.edits.begin(), x.edits.end(), y.edits.begin(), y.edits.end(), [](const LogitEdit& p, const LogitEdit& q) {
          return p.token == q.token && p.bias == q.bias && p.repetition == q.repetition && p.penalty == q.penalty;
        }));
  }
}

TEST(StepMessage, BytesGiveTheMessageBack) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomMessages random(seed);
    const StepMessage message = random.make();
    const Result<std::string> bytes = message.to_bytes();
    ASSERT_TRUE(bytes.ok()) << bytes.status().to_string();
    const Result<StepMessage> back = StepMessage::from_bytes(*bytes, random.finder());
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    expect_equal(message, *back);
    EXPECT_EQ(*back->to_bytes(), *bytes);
  }
}

TEST(StepMessage, BytesThatAreCutOffOrTooManyAreErrors) {
  RandomMessages random(5);
  const std::string bytes = *random.make().to_bytes();
  for (size_t n = 0; n < bytes.size(); ++n)
    EXPECT_FALSE(StepMessage::from_bytes(std::string_view(bytes).substr(0, n), random.finder()).ok()) << n;
  EXPECT_THAT(StepMessage::from_bytes(bytes + "x", random.finder()).status().message(), HasSubstr("ends at byte"));
  // Any other byte in any place is an error or another message.
  std::mt19937 noise(1);
  for (int i = 0; i < 2000; ++i) {
    std::string broken = bytes;
    broken[noise() % broken.size()] = static_cast<char>(noise());
    (void)StepMessage::from_bytes(broken, random.finder());
  }
}

TEST(StepMessage, AdaptersAreFoundByTheirIdentity) {
  StepMessage message;
  const auto adapter = std::make_shared<Adapter>();
  message.adapters.push_back({Symbol::kTokens, 0, 1, {{adapter, 1}}});
  EXPECT_EQ(message.to_bytes().status().code(), Code::unsupported);
  adapter->identity = 0xabc;
  const Result<StepMessage> back = StepMessage::from_bytes(*message.to_bytes());
  EXPECT_EQ(back.status().code(), Code::not_found);
  EXPECT_THAT(back.status().message(), HasSubstr("0000000000000abc"));
}

class StepRecord : public ::testing::TestWithParam<const char*> {};

// Recorded in one process, executed by a stepper that has never seen the sequences, with another number of workers.
TEST_P(StepRecord, ReplayGivesTheSameBits) {
  const CpuKernels& kernels = **cpu_kernels();
  const TextEngineOptions options = stepper_options(ComputeType::kAuto);
  OwnStepper first = make_stepper(golden_step_model(GetParam(), kernels), kernels, 2, options);
  ASSERT_TRUE(first.stepper);
  const std::vector<RecordedStep> steps = run_script(*first.stepper, kStepVocab);
  ASSERT_GT(steps.size(), 8u);
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/steps";
  Result<StepRecorder> recorder = StepRecorder::create(path);
  ASSERT_TRUE(recorder.ok()) << recorder.status().to_string();
  for (const RecordedStep& step : steps) ASSERT_TRUE(recorder->write(step.message).ok());
  ASSERT_TRUE(recorder->close().ok());

  const Result<std::vector<StepMessage>> read = read_steps(path);
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  ASSERT_EQ(read->size(), steps.size());
  OwnStepper second = make_stepper(golden_step_model(GetParam(), kernels), kernels, 1, options);
  ASSERT_TRUE(second.stepper);
  for (size_t i = 0; i < steps.size(); ++i)
    EXPECT_EQ(execute(*second.stepper, (*read)[i], kStepVocab), steps[i].logits) << "step " << i;
}
INSTANTIATE_TEST_SUITE_P(Models, StepRecord,
                         ::testing::Values("llama_gqa", "mixtral", "mistral_window", "qwen2_tied_window", "qwen3_next",
                                           "rope_dynamic"));

TEST(StepRecord, FilesThatAreCutOffOrOfAnotherKindAreErrors) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/steps";
  {
    Result<StepRecorder> recorder = StepRecorder::create(path);
    ASSERT_TRUE(recorder.ok());
    RandomMessages random(3);
    StepMessage message = random.make();
    message.adapters.clear();
    ASSERT_TRUE(recorder->write(message).ok());
    ASSERT_TRUE(recorder->close().ok());
  }
  const std::string bytes = read_text(path);
  std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() - 1);
  EXPECT_THAT(read_steps(path).status().message(), HasSubstr("step 0 is cut off"));
  std::ofstream(path, std::ios::binary) << "GGUF";
  EXPECT_THAT(read_steps(path).status().message(), HasSubstr("not a file of recorded steps"));
  EXPECT_EQ(StepRecorder::create(folder.path() + "/none/steps").status().code(), Code::io);
}

TEST(StepMessage, MessagesThatDoNotFitAreErrors) {
  const CpuKernels& kernels = **cpu_kernels();
  OwnStepper own = make_stepper(golden_step_model("llama_gqa", kernels), kernels, 1);
  ASSERT_TRUE(own.stepper);
  const StepMessage good = run_script(*own.stepper, kStepVocab)[2].message;
  ASSERT_FALSE(good.page_changes.empty()) << "the fork copies a page";
  const auto error = [&](auto&& change) {
    StepMessage message = good;
    change(message);
    std::lock_guard lock(own.stepper->mutex());
    const Status status = own.stepper->execute(message);
    EXPECT_EQ(status.code(), Code::invalid_argument);
    return std::string(status.message());
  };
  using M = StepMessage;
  EXPECT_THAT(error([](M& m) { m.tokens[0] = 64; }), HasSubstr("tokens has 64, outside [0, 64)"));
  EXPECT_THAT(error([](M& m) { m.tokens.push_back(0); }), HasSubstr("belong to sequences"));
  EXPECT_THAT(error([](M& m) { m.positions.pop_back(); }), HasSubstr("positions has 3 numbers"));
  EXPECT_THAT(error([](M& m) { m.positions[0] = -1; }), HasSubstr("positions has -1"));
  EXPECT_THAT(error([](M& m) { m.sequences[1].row_begin = 0; }), HasSubstr("a sequence has 2 rows from 0 on"));
  EXPECT_THAT(error([](M& m) { m.sequences[0].first_position = 1 << 20; }), HasSubstr("the context is 96"));
  EXPECT_THAT(error([](M& m) { m.sequences.clear(); }), HasSubstr("0 sequences"));
  EXPECT_THAT(error([](M& m) { m.logit_rows[0] = 4; }), HasSubstr("logit_rows has 4, outside [0, 4)"));
  EXPECT_THAT(error([](M& m) { m.hidden_rows = {0}; }), HasSubstr("hidden_rows has 0, outside [0, 0)"));
  EXPECT_THAT(error([](M& m) { m.lengths = {1}; }), HasSubstr("lengths has 1 numbers, the model reads 0"));
  EXPECT_THAT(error([](M& m) { m.embedding_rows = {1}; }), HasSubstr("embedding_rows has 1"));
  EXPECT_THAT(error([](M& m) { m.groups.clear(); }), HasSubstr("page tables of 0 state groups"));
  EXPECT_THAT(error([](M& m) { m.groups[0].pages[0] = 1 << 20; }), HasSubstr("page 1048576 of"));
  EXPECT_THAT(error([](M& m) { m.groups[0].begin[1] = 0; }), HasSubstr("has 0 pages and needs 1"));
  EXPECT_THAT(error([](M& m) { m.page_changes[0].copy_of = -2; }), HasSubstr("by page -2"));
  EXPECT_THAT(error([](M& m) { m.samples.resize(1); }), HasSubstr("samples has 1 numbers, the model reads 3"));
}

}  // namespace
}  // namespace redline::testing
