// Batch files: what is read, what is written, and going on with a file that has answers already.
#include "server/batch.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "server/fake_engine.h"
#include "support/temporary_folder.h"

namespace redline::server {
namespace {

using redline::testing::FakeEngine;
using redline::testing::TemporaryFolder;
using ::testing::HasSubstr;

std::string request(const std::string& id, const std::string& more = "") {
  return R"({"custom_id": ")" + id + R"(", "method": "POST", "url": "/v1/completions", "body": {"prompt": "Once")" +
         more + "}}\n";
}

class Batch : public ::testing::Test {
 protected:
  Batch() {
    auto engine = std::make_unique<FakeEngine>("a\nstory");
    engine_ = engine.get();
    app_.models().add(std::make_shared<ServedModel>("tales", std::move(engine), 1000));
    app_.set_ready();
  }

  BatchInput input(const std::string& text) {
    return BatchInput::read(MappedFile::from_bytes("in.jsonl", text)).value();
  }
  Result<BatchOutput> output(const BatchInput& input, bool drops_failed = false) {
    return BatchOutput::open(path_, input, drops_failed);
  }
  /// Answers what is left.
  BatchSummary run(const std::string& text, const BatchOptions& options = {}, bool drops_failed = false) {
    const BatchInput in = input(text);
    BatchOutput out = output(in, drops_failed).value();
    BatchSummary summary = run_batch(app_, in, out, options).value();
    EXPECT_TRUE(out.close().ok());
    return summary;
  }
  std::string written() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_) << text; }
  std::vector<Json> rows() const {
    std::ifstream file(path_);
    std::vector<Json> rows;
    for (std::string line; std::getline(file, line);) rows.push_back(Json::parse(line));
    return rows;
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/out.jsonl";
  App app_{{}};
  FakeEngine* engine_ = nullptr;
};

TEST_F(Batch, AnswersAreInOpenAisFormat) {
  const BatchSummary summary = run(request("one") + "\r\n" + request("two", R"(, "max_tokens": "x")"));
  EXPECT_EQ(summary.answered, 2);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(summary.prompt_tokens, 4);
  EXPECT_EQ(summary.generated_tokens, 7);
  EXPECT_EQ(summary.first_failure, "line 3: max_tokens must be an integer");
  const std::vector<Json> all = rows();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0]["id"].get<std::string>(), HasSubstr("batch_req_"));
  EXPECT_EQ(all[0]["custom_id"], "one");
  EXPECT_TRUE(all[0]["error"].is_null());
  EXPECT_EQ(all[0]["response"]["status_code"], 200);
  EXPECT_TRUE(is_request_id(all[0]["response"]["request_id"].get<std::string>()));
  EXPECT_EQ(all[0]["response"]["body"]["choices"][0]["text"], "a\nstory");
  EXPECT_EQ(all[1]["response"]["status_code"], 400);
  EXPECT_EQ(all[1]["response"]["body"]["error"]["param"], "max_tokens");
}

TEST_F(Batch, LinesThatAreNoRequestsAreAnsweredWithTheirNumber) {
  struct Case {
    const char *line, *custom_id, *message, *param;
  };
  const Case cases[] = {
      {"{", nullptr, "line 1: ", ""},
      {"[1]", nullptr, "not a JSON object", ""},
      {R"({"custom_id": "a", "method": "GET", "url": "/v1/completions", "body": {}})", "a", "it must be one of POST",
       "method"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completion", "body": {}})", "a", "/v1/embeddings", "url"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions"})", "a", "body is missing", "body"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}, "bodi": 1})", "a",
       "did you mean \"body\"?", "bodi"},
      {R"({"custom_id": 7, "method": "POST", "url": "/v1/completions", "body": {}})", nullptr, "must be a string",
       "custom_id"},
      {R"({"custom_id": "", "method": "POST", "url": "/v1/completions", "body": {}})", nullptr, "at least 1 character",
       "custom_id"},
      {R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"stream": true}})", "a",
       "leave it out", "body.stream"}};
  for (const Case& c : cases) {
    write("");
    const BatchSummary summary = run(c.line);
    EXPECT_EQ(summary.failed, 1) << c.line;
    const Json row = rows().at(0);
    EXPECT_EQ(row["custom_id"], c.custom_id ? Json(c.custom_id) : Json(nullptr)) << c.line;
    EXPECT_TRUE(row["response"].is_null());
    EXPECT_EQ(row["error"]["line"], 1);
    EXPECT_THAT(row["error"]["message"].get<std::string>(), HasSubstr(c.message));
    EXPECT_EQ(row["error"]["param"], *c.param ? Json(c.param) : Json(nullptr)) << c.line;
    EXPECT_EQ(run(c.line).answered, 0) << "the row is kept";
  }
}

TEST_F(Batch, ManyRequestsShareTheEngineAndEachIsAnsweredOnce) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += request(fmt::format("r{}", i), i % 3 == 0 ? R"(, "n": 2)" : "");
  int64_t seen = 0;
  const BatchSummary summary = run(text, {.requests_at_once = 7, .on_answer = [&] { ++seen; }});
  EXPECT_EQ(summary.answered, 500);
  EXPECT_EQ(summary.failed, 0);
  EXPECT_EQ(seen, 500);
  std::map<std::string, int> times;
  for (const Json& row : rows()) ++times[row["custom_id"].get<std::string>()];
  EXPECT_EQ(times.size(), 500u);
}

TEST_F(Batch, GoesOnAfterAStop) {
  std::string text;
  for (int i = 0; i < 20; ++i) text += request(fmt::format("r{}", i));
  int left = 5;
  BatchSummary summary = run(text, {.requests_at_once = 1, .goes_on = [&] { return left-- > 0; }});
  EXPECT_EQ(summary.answered, 5);
  const std::string before = written();
  write(before + R"({"id": "batch_req_)");  // a line that a power failure cut
  summary = run(text);
  EXPECT_EQ(summary.answered, 15);
  EXPECT_EQ(written().substr(0, before.size()), before);
  EXPECT_EQ(rows().size(), 20u);
  EXPECT_EQ(run(text).answered, 0);
}

TEST_F(Batch, FailedAnswersAreComputedAgainIfThatIsAsked) {
  engine_->failure = out_of_memory("no pages");
  const std::string text = request("a") + request("b") + "{\n";
  EXPECT_EQ(run(request("a")).failed, 1);
  engine_->failure = {};
  EXPECT_EQ(run(text).answered, 2);
  EXPECT_EQ(run(text).answered, 0);
  const BatchSummary summary = run(text, {}, true);
  EXPECT_EQ(summary.answered, 2);
  EXPECT_EQ(summary.failed, 1);
  EXPECT_EQ(rows().size(), 3u);
  EXPECT_EQ(rows()[0]["custom_id"], "b");
}

TEST_F(Batch, WrongFilesAreRefused) {
  const auto read = [](const std::string& text) {
    return BatchInput::read(MappedFile::from_bytes("in.jsonl", text)).status().message();
  };
  EXPECT_THAT(read(request("a") + request("b") + request("a")),
              HasSubstr("in.jsonl: the custom_id \"a\" is on the lines 1 and 3"));
  EXPECT_THAT(read("\n \n"), HasSubstr("no request"));
  const BatchInput in = input(request("a"));
  const auto refused = [&] { return output(in).status().message(); };
  write("{\"custom_id\": \"z\", \"response\": null}\n");
  EXPECT_THAT(refused(), HasSubstr("out.jsonl:1: answers \"z\", which in.jsonl does not contain"));
  write("hello\n");
  EXPECT_THAT(refused(), HasSubstr("out.jsonl:1: is not an answer of a batch"));
  EXPECT_EQ(written(), "hello\n");
  write("");
  {
    const BatchOutput first = output(in).value();
    EXPECT_THAT(refused(), HasSubstr("another process"));
  }
  EXPECT_FALSE(std::filesystem::exists(path_)) << "it is empty";
  EXPECT_EQ(BatchOutput::open(folder_.path(), in, false).status().code(), Code::invalid_argument);
  std::ofstream(path_) << request("a");
  const BatchInput same = BatchInput::read(path_).value();
  EXPECT_THAT(output(same).status().message(), HasSubstr("is the input itself"));
}

}  // namespace
}  // namespace redline::server
