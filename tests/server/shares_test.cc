// Whose share a request takes, and that no request takes more than there is.
#include <gtest/gtest.h>

#include <algorithm>

#include "server/answers.h"
#include "server/fake_engine.h"

namespace redline::server {
namespace {

struct Served {
  App app{{}};
  testing::FakeEngine* engine;
  Served() {
    auto made = std::make_unique<testing::FakeEngine>("text", "{{ messages }}");
    engine = made.get();
    app.models().add(std::make_shared<ServedModel>("fake", std::move(made), 4));
    app.set_ready();
  }
  int post(const std::string& path, const Json& body, Headers headers = {}) {
    HttpRequest request = make_request("POST", path, body.dump(), std::move(headers));
    request.peer = "10.1.2.3";
    const auto answer = app.handle(request);
    body_of(*answer);
    return answer->status;
  }
};

TEST(Shares, MaxTokensOfABillionIsTheContext) {
  Served served;
  const Json messages = Json::array({{{"role", "user"}, {"content", "a"}}});
  for (const int64_t wanted : {int64_t{1000000000}, int64_t{2147483647}, int64_t{1000000000000}}) {
    const std::vector<std::pair<const char*, Json>> requests = {
        {"/v1/completions", {{"prompt", "a"}, {"max_tokens", wanted}}},
        {"/v1/completions", {{"prompt", "a"}, {"max_tokens", wanted}, {"min_tokens", wanted}}},
        {"/v1/chat/completions", {{"messages", messages}, {"max_tokens", wanted}}},
        {"/v1/chat/completions", {{"messages", messages}, {"max_completion_tokens", wanted}}},
        {"/v1/messages", {{"model", "fake"}, {"messages", messages}, {"max_tokens", wanted}}},
        {"/v1/responses", {{"model", "fake"}, {"input", "a"}, {"max_output_tokens", wanted}}},
        {"/api/generate", {{"model", "fake"}, {"prompt", "a"}, {"options", {{"num_predict", wanted}}}}}};
    for (const auto& [path, body] : requests) {
      served.engine->last = {};
      EXPECT_EQ(served.post(path, body), 200) << path;
      EXPECT_EQ(served.engine->last.max_tokens, served.engine->info().context) << path;
      EXPECT_LE(served.engine->last.min_tokens, served.engine->info().context) << path;
    }
  }
}

TEST(Shares, AUserIsOneOfItsKeyOrAddress) {
  Served served;
  const Json body = {{"prompt", "a"}, {"user", "u1"}};
  EXPECT_EQ(served.post("/v1/completions", body), 200);
  EXPECT_EQ(served.engine->last.client, "10.1.2.3\nu1");
  EXPECT_EQ(served.post("/v1/completions", {{"prompt", "a"}}), 200);
  EXPECT_EQ(served.engine->last.client, "10.1.2.3");
  ASSERT_TRUE(served.app.keys().add("ann", "secret").ok());
  EXPECT_EQ(served.post("/v1/completions", body, {{"authorization", "Bearer secret"}}), 200);
  EXPECT_EQ(served.engine->last.client, "ann\nu1");
}

// Requests that the head decides on need no body.
TEST(Shares, TheHeadIsCheckedOnceAndBeforeTheBody) {
  Served served;
  ASSERT_TRUE(served.app.keys().add("ann", "secret", 2).ok());
  const auto status_of = [&](const std::string& method, const std::string& path, const std::string& key) {
    HttpRequest request = make_request(method, path, "", {{"authorization", "Bearer " + key}});
    const Admission admission = served.app.admit(request);
    return admission.refusal ? admission.refusal->status : 0;
  };
  EXPECT_EQ(status_of("POST", "/v1/completions", "wrong"), 401);
  EXPECT_EQ(status_of("PUT", "/v1/completions", "secret"), 405);
  EXPECT_EQ(status_of("POST", "/nowhere", "secret"), 404);
  HttpRequest request =
      make_request("POST", "/v1/completions", R"({"prompt": "a"})", {{"authorization", "Bearer secret"}});
  EXPECT_EQ(served.app.admit(request).refusal, nullptr);
  EXPECT_EQ(served.app.admit(request).client, "ann");
  EXPECT_EQ(served.app.handle(request)->status, 200);  // its rate has been counted
  EXPECT_EQ(status_of("POST", "/v1/completions", "secret"), 429);
  HttpRequest live = make_request("GET", "/livez");
  EXPECT_TRUE(served.app.admit(live).is_quick);
}

TEST(Shares, ABodyThatWouldTakeMoreMemoryThanThereIsIsRefused) {
  Served served;
  const auto budget = std::make_shared<BodyBudget>(1 << 20);
  std::string list = "[";
  for (int i = 0; i < 20000; ++i) list += "1,";
  list.back() = ']';
  HttpRequest request = make_request("POST", "/v1/completions", R"({"prompt": )" + list + "}");
  request.lease = budget->open("a", {});
  ASSERT_TRUE(request.lease->grow(std::ssize(request.body)));
  const auto answer = served.app.handle(request);
  EXPECT_EQ(answer->status, 503);
  EXPECT_FALSE(header_of(*answer, "Retry-After").empty());
}

TEST(Shares, DisconnectOfAClientSkipsItsRequest) {
  Served served;
  HttpRequest request = make_request("POST", "/v1/completions", R"({"prompt": "a"})");
  request.abandoned = std::make_shared<std::atomic<bool>>(true);
  EXPECT_EQ(served.app.handle(request)->status, 503);
  EXPECT_TRUE(served.engine->last.prompt.empty());
}

TEST(Shares, ALineOfTheLogIsOneLineWhateverTheRequestHolds) {
  std::FILE* const file = std::tmpfile();
  {
    App app({.log = file});
    std::string path = "/";
    for (int c = 1; c < 256; ++c) path += static_cast<char>(c);
    const std::vector<std::string> values = {path, "/\r\n{\"id\":1}\xe2\x80\xa8\x1b[2J",
                                             "/" + std::string(100000, '\xc3')};
    for (const std::string& value : values) {
      HttpRequest request = make_request(value.substr(1), value);
      request.id = request.peer = request.client = value;
      app.finished(request, FixedAnswer(""), {});
    }
    app.flush_log();
  }
  std::rewind(file);
  std::string text;
  for (int c = 0; (c = std::fgetc(file)) != EOF;) text += static_cast<char>(c);
  std::fclose(file);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_LT(text.size(), 3 * 6 * 6 * AccessLog::kMaxText);
  for (const char c : text) EXPECT_TRUE(c == '\n' || (c >= ' ' && c <= '~')) << static_cast<int>(c);
}

}  // namespace
}  // namespace redline::server
