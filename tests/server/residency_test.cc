// Models on demand: fake ones of any size, without files.
#include "server/residency.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <thread>

#include "server/answers.h"
#include "server/fake_engine.h"

namespace redline::server {
namespace {

using State = Residency::State;
constexpr int64_t kMiB = 1 << 20;

/// Says that it takes so many bytes. A load waits at a closed gate.
class FakeModel final : public Resident {
 public:
  FakeModel(std::string name, int64_t bytes) : name_(std::move(name)), bytes_(bytes) {}
  const std::string& name() const override { return name_; }
  Result<int64_t> load() override {
    std::unique_lock lock(mutex_);
    is_waiting_ = true;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
    EXPECT_FALSE(is_loaded_);
    if (!failure.ok()) return failure;
    is_loaded_ = true;
    ++loads;
    return bytes_;
  }
  void unload() override {
    const std::lock_guard lock(mutex_);
    EXPECT_TRUE(is_loaded_);
    is_loaded_ = false;
  }
  void close_gate() {
    const std::lock_guard lock(mutex_);
    is_open_ = is_waiting_ = false;
  }
  void open_gate() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }
  void await_load() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_waiting_; });
  }
  Status failure;
  std::atomic<int> loads = 0;

 private:
  const std::string name_;
  const int64_t bytes_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = true, is_waiting_ = false, is_loaded_ = false;
};

Status await(PendingLoad& load) {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
  load.on_ready([&] {
    const std::lock_guard lock(mutex);
    is_done = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return is_done; });
  return load.status();
}

template <class Condition>
void eventually(const Condition& condition) {
  while (!condition()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

struct Models {
  explicit Models(const ResidencyOptions& options, std::vector<int64_t> mib) : residency(options) {
    for (size_t i = 0; i < mib.size(); ++i) {
      all.push_back(std::make_shared<FakeModel>(std::string(1, static_cast<char>('a' + i)), mib[i] * kMiB));
      residency.add(all.back(), mib[i] * kMiB);
    }
  }
  /// Loads a model, and uses it no more.
  Status load(size_t i) {
    const Status status = await(*residency.load(*all[i]));
    eventually([&] { return residency.entry(*all[i]).uses == 0; });  // the thread that loads may be the last to let go
    return status;
  }
  State state(size_t i) const { return residency.entry(*all[i]).state; }
  std::string loaded() const {
    std::string names;
    for (size_t i = 0; i < all.size(); ++i)
      if (state(i) == State::kLoaded) names += all[i]->name();
    return names;
  }
  std::vector<std::shared_ptr<FakeModel>> all;
  Residency residency;
};

TEST(Residency, WhatFitsIsLoadedAtTheStart) {
  Models m({.memory_bytes = 10 * kMiB}, {4, 5, 3, 1});
  std::vector<bool> fits;
  for (const auto& model : m.all) {
    const auto is_loaded = m.residency.load_if_it_fits(*model);
    ASSERT_TRUE(is_loaded.ok());
    fits.push_back(*is_loaded);
  }
  EXPECT_EQ(fits, (std::vector<bool>{true, true, false, true}));
  EXPECT_EQ(m.loaded(), "abd");
}

TEST(Residency, EvictionOfTheLeastRecentlyUsedModel) {
  Models m({.memory_bytes = 10 * kMiB}, {4, 4, 4, 9});
  for (const size_t i : {0, 1, 0, 2}) ASSERT_TRUE(m.load(i).ok());
  EXPECT_EQ(m.loaded(), "ac");  // b was used before a
  ASSERT_TRUE(m.load(3).ok());
  EXPECT_EQ(m.loaded(), "d");
  ASSERT_TRUE(m.load(1).ok());
  EXPECT_EQ(m.loaded(), "b");
  EXPECT_EQ(m.all[1]->loads, 2);
  EXPECT_EQ(m.residency.entry(*m.all[1]).loads, 2);
}

TEST(Residency, NothingInUseIsUnloaded) {
  Models m({.memory_bytes = 10 * kMiB}, {6, 6});
  ASSERT_TRUE(m.load(0).ok());
  auto use = m.residency.use(*m.all[0]);
  ASSERT_NE(use, nullptr);
  const auto pending = m.residency.load(*m.all[1]);
  // A load that nobody waits for any more is not made, however long the memory is in use.
  auto given_up = m.residency.load(*m.all[1]);
  given_up.reset();
  EXPECT_FALSE(pending->is_done());
  EXPECT_EQ(m.loaded(), "a");
  use.reset();
  EXPECT_TRUE(await(*pending).ok());
  EXPECT_EQ(m.loaded(), "b");
  EXPECT_EQ(m.residency.use(*m.all[0]), nullptr);
  // The pending load itself keeps it.
  EXPECT_EQ(m.residency.entry(*m.all[1]).uses, 1);
}

TEST(Residency, WhatNobodyWaitsForIsNotLoaded) {
  Models m({.memory_bytes = 10 * kMiB}, {6, 6, 1});
  m.all[0]->close_gate();
  const auto first = m.residency.load(*m.all[0]);
  m.all[0]->await_load();
  m.residency.load(*m.all[1]).reset();
  const auto last = m.residency.load(*m.all[2]);
  m.all[0]->open_gate();
  EXPECT_TRUE(await(*last).ok());
  EXPECT_EQ(m.loaded(), "ac");
  EXPECT_EQ(m.all[1]->loads, 0);
}

TEST(Residency, SeveralWaitForOneLoad) {
  Models m({.memory_bytes = 10 * kMiB}, {6});
  m.all[0]->close_gate();
  std::vector<std::shared_ptr<PendingLoad>> waiting;
  for (int i = 0; i < 5; ++i) waiting.push_back(m.residency.load(*m.all[0]));
  m.all[0]->await_load();
  EXPECT_EQ(m.state(0), State::kLoading);
  m.all[0]->open_gate();
  for (const auto& pending : waiting) EXPECT_TRUE(await(*pending).ok());
  EXPECT_EQ(m.all[0]->loads, 1);
  EXPECT_EQ(m.residency.entry(*m.all[0]).uses, 5);
  waiting.clear();
  eventually(
      [&] { return m.residency.entry(*m.all[0]).uses == 0; });  // the thread that loads may be the last to let go
}

TEST(Residency, AFailureIsToldAndTheNextRequestTriesAgain) {
  Models m({.memory_bytes = 10 * kMiB}, {6, 6});
  m.all[0]->failure = io("the file is truncated");
  const Status status = m.load(0);
  EXPECT_EQ(status.code(), Code::io);
  EXPECT_EQ(m.loaded(), "");
  EXPECT_TRUE(m.load(1).ok());
  m.all[0]->failure = {};
  EXPECT_TRUE(m.load(0).ok());
  EXPECT_EQ(m.loaded(), "a");
}

TEST(Residency, AModelThatTakesMoreThanExpected) {
  ResidencyOptions options{.memory_bytes = 10 * kMiB};
  Residency residency(options);
  const auto small = std::make_shared<FakeModel>("small", 4 * kMiB),
             grown = std::make_shared<FakeModel>("grown", 8 * kMiB),
             huge = std::make_shared<FakeModel>("huge", 11 * kMiB);
  residency.add(small, 4 * kMiB);
  residency.add(grown, kMiB);
  residency.add(huge, kMiB);
  ASSERT_TRUE(await(*residency.load(*small)).ok());
  ASSERT_TRUE(await(*residency.load(*grown)).ok());  // after the other was unloaded
  EXPECT_EQ(residency.entry(*small).state, State::kUnloaded);
  EXPECT_EQ(grown->loads, 2);
  const Status status = await(*residency.load(*huge));
  EXPECT_EQ(status.code(), Code::out_of_memory);
  EXPECT_NE(status.message().find("huge takes 11 MiB, and --memory is 10 MiB"), std::string::npos) << status.message();
  EXPECT_EQ(residency.entry(*grown).state, State::kLoaded);
}

TEST(Residency, IdleModelsAreUnloaded) {
  Models m({.keep_alive_s = 0.01}, {6, 6});
  ASSERT_TRUE(m.load(0).ok());
  eventually([&] { return m.loaded().empty(); });
  ASSERT_TRUE(m.load(0).ok());
  m.residency.set_keep_alive(*m.all[0], -1);  // stays, until it is loaded again
  {
    const auto pending = m.residency.load(*m.all[1]);
    ASSERT_TRUE(await(*pending).ok());
    EXPECT_EQ(m.state(1), State::kLoaded);
    EXPECT_GE(m.residency.entry(*m.all[1]).expires_in_s.value(), 0);
  }
  eventually([&] { return m.state(1) == State::kUnloaded; });
  EXPECT_EQ(m.loaded(), m.state(0) == State::kLoaded ? "a" : "");
  m.residency.set_keep_alive(*m.all[0], 0);
  eventually([&] { return m.loaded().empty(); });
}

TEST(Residency, ShutdownAnswersWaitingRequests) {
  Models m({.memory_bytes = 10 * kMiB}, {6, 6});
  ASSERT_TRUE(m.load(0).ok());
  const auto use = m.residency.use(*m.all[0]);
  const auto pending = m.residency.load(*m.all[1]);
  m.residency.close();
  EXPECT_EQ(await(*pending).code(), Code::cancelled);
  EXPECT_EQ(await(*m.residency.load(*m.all[1])).code(), Code::cancelled);
}

// --- Requests to models on demand ---

struct ResidencyServed {
  explicit ResidencyServed(double load_timeout_s = 300)
      : app({.residency = {.memory_bytes = kMiB}, .load_timeout_s = load_timeout_s}) {
    for (const char* name : {"one", "two"}) {
      const auto open = [this, name]() -> Result<std::unique_ptr<TextEngine>> {
        if (!failure.ok()) return failure;
        ++opened;
        auto engine = std::make_unique<testing::FakeEngine>(std::string("text of ") + name);
        engine->weight_bytes = kMiB;
        return std::unique_ptr<TextEngine>(std::move(engine));
      };
      models.push_back(std::make_shared<ServedModel>(name, open, 8, Adapters{{"low", "path"}}));
      app.models().add(models.back(), kMiB);
    }
    app.set_ready();
  }
  using Adapters = std::vector<std::pair<std::string, std::string>>;
  Json ask(const std::string& method, const std::string& path, const Json& body, int status = 200) {
    HttpRequest call = make_request(method, path, body.is_null() ? "" : body.dump());
    auto answer = whole(app.handle(call));
    const std::string text = body_of(*answer);
    EXPECT_EQ(answer->status, status) << text;
    headers = answer->headers;
    return Json::parse(text, nullptr, false);
  }
  Json complete(const std::string& model, int status = 200) {
    return ask("POST", "/v1/completions", {{"model", model}, {"prompt", "a"}}, status);
  }
  std::string statuses() {
    std::string text;
    const Json list = ask("GET", "/v1/models", nullptr);
    for (const Json& m : list["data"])
      if (!m.contains("parent")) text += m["id"].get<std::string>() + " " + m["status"].get<std::string>() + "; ";
    return text;
  }
  Status failure;
  std::atomic<int> opened = 0;
  Headers headers;
  App app;
  std::vector<std::shared_ptr<ServedModel>> models;
};

TEST(ModelsOnDemand, ARequestLoadsItsModel) {
  ResidencyServed served;
  EXPECT_EQ(served.statuses(), "one unloaded; two unloaded; ");
  EXPECT_EQ(served.complete("one")["choices"][0]["text"], "text of one");
  EXPECT_EQ(served.statuses(), "one loaded; two unloaded; ");
  EXPECT_EQ(served.complete("two:low")["choices"][0]["text"], "text of two");
  EXPECT_EQ(served.statuses(), "one unloaded; two loaded; ");
  EXPECT_EQ(served.complete("one:low")["choices"][0]["text"], "text of one");
  EXPECT_EQ(served.opened, 3);
  const Json models = served.ask("GET", "/v1/models", nullptr)["data"];
  EXPECT_EQ(models[1]["id"], "one:low");
  EXPECT_EQ(models[1]["parent"], "one");
  EXPECT_TRUE(models[0].contains("meta"));  // known since it was loaded
  const Json running = served.ask("GET", "/api/ps", nullptr)["models"];
  ASSERT_EQ(running.size(), 1U);
  EXPECT_EQ(running[0]["name"], "one");
  EXPECT_EQ(running[0]["size"], kMiB);
  EXPECT_EQ(served.ask("GET", "/api/tags", nullptr)["models"].size(), 2U);
  EXPECT_EQ(served.ask("GET", "/health", nullptr)["status"], "ok");
  EXPECT_EQ(served.ask("GET", "/v1/engine", nullptr)["models"].size(), 1U);
}

TEST(ModelsOnDemand, AFailureIsAnswered) {
  ResidencyServed served;
  served.failure = io("model.gguf: truncated at byte 17");
  const Json error = served.complete("one", 500)["error"];
  EXPECT_EQ(error["code"], "model_load_failed");
  EXPECT_NE(error["message"].get<std::string>().find("truncated at byte 17"), std::string::npos);
  served.failure = {};
  served.complete("one");
}

TEST(ModelsOnDemand, TheWaitIsBounded) {
  ResidencyServed served(0.01);
  ASSERT_TRUE(served.app.residency().load_if_it_fits(*served.models[0]).value());
  HttpRequest call = make_request("POST", "/v1/completions", R"({"model": "one", "prompt": "a"})");
  const auto held = whole(served.app.handle(call));  // not read: its model stays in use
  const Json error = served.complete("two", 503)["error"];
  EXPECT_EQ(error["type"], "unavailable_error");
  EXPECT_TRUE(std::any_of(served.headers.begin(), served.headers.end(),
                          [](const auto& header) { return header.first == "Retry-After"; }));
}

TEST(ModelsOnDemand, KeepAlive) {
  ResidencyServed served;
  const Json load = {{"model", "one"}, {"stream", false}};
  EXPECT_EQ(served.ask("POST", "/api/generate", load)["done_reason"], "load");
  EXPECT_EQ(served.ask("GET", "/api/ps", nullptr)["models"][0]["expires_at"], "9999-12-31T23:59:59Z");
  for (const Json& value : {Json("1h30m"), Json("90s"), Json(300), Json("-1")}) {
    Json body = load;
    body["keep_alive"] = value;
    served.ask("POST", "/api/generate", body);
    const std::string expiry = served.ask("GET", "/api/ps", nullptr)["models"][0]["expires_at"];
    EXPECT_EQ(expiry.starts_with("9999"), value == "-1") << value << " " << expiry;
  }
  for (const Json& value : {Json("soon"), Json("5x"), Json(""), Json("1h-")}) {
    Json body = load;
    body["keep_alive"] = value;
    served.ask("POST", "/api/chat", body, 400);
  }
  Json body = load;
  body["keep_alive"] = 0;
  EXPECT_EQ(served.ask("POST", "/api/chat", body)["done_reason"], "unload");
  eventually([&] { return served.statuses() == "one unloaded; two unloaded; "; });
}

TEST(ModelsOnDemand, CountersGoOn) {
  ResidencyServed served;
  for (const char* name : {"one", "two", "one"}) served.complete(name);
  HttpRequest call = make_request("GET", "/metrics");
  const std::string text = body_of(*served.app.handle(call));
  EXPECT_NE(text.find("redline:model_loads_total{model_name=\"one\"} 2"), std::string::npos) << text;
  EXPECT_NE(text.find("redline:model_loaded{model_name=\"two\"} 0"), std::string::npos);
  EXPECT_NE(text.find("vllm:generation_tokens_total{model_name=\"one\"} 2"), std::string::npos) << text;
}

}  // namespace
}  // namespace redline::server
