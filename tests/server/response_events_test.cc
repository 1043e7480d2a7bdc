#include "server/response_events.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/answers.h"
#include "server/background_responses.h"

namespace redline::server {
namespace {

using Rest = ResponseEvents::Rest;

TEST(ResponseEvents, AreReadFromAnyNumberInParts) {
  ResponseEvents events;
  for (int i = 0; i < 4; ++i) events.append("a", {{"i", i}});
  const std::string first = numbered_event("a", 0, {{"i", 0}}), second = numbered_event("a", 1, {{"i", 1}});
  EXPECT_EQ(first, "event: a\ndata: {\"type\":\"a\",\"sequence_number\":0,\"i\":0}\n\n");
  std::string out;
  size_t next = 0;
  EXPECT_EQ(events.read(next, 1, out), Rest::kSome);  // one at least
  EXPECT_EQ(out, first);
  EXPECT_EQ(next, 1);
  next = 0;
  out.clear();
  EXPECT_EQ(events.read(next, first.size() + second.size(), out), Rest::kSome);
  EXPECT_EQ(out, first + second);
  EXPECT_EQ(events.read(next, 1 << 20, out), Rest::kComes);
  EXPECT_EQ(next, 4);
  EXPECT_EQ(events_of(out).size(), 4);
  out.clear();
  EXPECT_EQ(events.read(next, 1 << 20, out), Rest::kComes);
  next = 17;  // a number that is still to come
  EXPECT_EQ(events.read(next, 1 << 20, out), Rest::kComes);
  events.close();
  events.append("late", Json::object());
  EXPECT_EQ(events.read(next, 1 << 20, out), Rest::kNone);
  EXPECT_EQ(out, "");
  next = 3;
  EXPECT_EQ(events.read(next, 1 << 20, out), Rest::kNone);
  EXPECT_EQ(events_of(out)[0]["i"], 3);
}

TEST(ResponseEvents, ListenersHearOfEachAndOfTheEnd) {
  ResponseEvents events;
  int heard = 0;
  const uint64_t listener = events.listen([&] { ++heard; });
  events.append("a", Json::object());
  EXPECT_EQ(heard, 1);
  events.drop();
  EXPECT_EQ(heard, 2);
  EXPECT_TRUE(events.is_dropped());
  EXPECT_EQ(events.bytes(), 0);
  events.unlisten(listener);
  std::string out;
  size_t next = 0;
  EXPECT_EQ(events.read(next, 1, out), Rest::kDropped);
}

TEST(ResponseEvents, AreWholeForReadersOfEveryPace) {
  ResponseEvents events;
  constexpr int kEvents = 2000;
  std::vector<std::thread> readers;
  for (int r = 0; r < 3; ++r)
    readers.emplace_back([&, r] {
      std::atomic<int> heard = 0;
      const uint64_t listener = events.listen([&] { ++heard; });
      std::string out;
      size_t next = 0;
      Rest rest = Rest::kComes;
      while (rest == Rest::kComes || rest == Rest::kSome) {
        rest = events.read(next, r == 0 ? 1 : 1000, out);
        std::this_thread::yield();
      }
      events.unlisten(listener);
      EXPECT_EQ(events_of(out).size(), kEvents);
    });
  for (int i = 0; i < kEvents; ++i) events.append("a", {{"i", i}});
  events.close();
  for (std::thread& reader : readers) reader.join();
}

/// Gives an event of this size with each poll until it is destroyed.
class EndlessEvents final : public Answer {
 public:
  EndlessEvents(std::shared_ptr<ResponseEvents> events, size_t bytes) : events_(std::move(events)), bytes_(bytes) {}
  void on_ready(std::function<void()> wake) override { wake_ = std::move(wake); }
  Progress poll(std::string&) override {
    events_->append("a", {{"text", std::string(bytes_, 'x')}});
    if (wake_) wake_();
    return Progress::kWaiting;
  }

 private:
  const std::shared_ptr<ResponseEvents> events_;
  const size_t bytes_;
  std::function<void()> wake_;
};

TEST(BackgroundResponses, EventsBeyondTheLimitAreDropped) {
  constexpr size_t kMaxBytes = 20000;
  StoredResponses stored(10, kMaxBytes);
  BackgroundResponses background(stored);
  const auto start = [&](const std::string& id, size_t bytes) {
    const auto events = std::make_shared<ResponseEvents>();
    StoredResponse response = {id, "ann", {{"id", id}, {"status", "queued"}}, Json::array(), Json::array(), events};
    background.start(std::move(response), std::make_unique<EndlessEvents>(events, bytes));
    return events;
  };
  const auto small = start("small", 10), large = start("large", 1000);
  while (!large->is_dropped()) std::this_thread::yield();
  ASSERT_TRUE(background.find("large", "ann"));  // it goes on
  EXPECT_FALSE(background.find("large", "bob"));
  const auto cancelled = background.cancel("large", "ann");
  EXPECT_FALSE(cancelled->events);
  EXPECT_EQ(stored.find("large", "ann")->response["status"], "cancelled");
  while (!small->is_dropped()) std::this_thread::yield();
  background.close();
}

/// Waits for its end, which does not come.
class Silent final : public Answer {
 public:
  Progress poll(std::string&) override { return Progress::kWaiting; }
};

// There is room for the events while it runs, but not beside what it was made from.
TEST(BackgroundResponses, ACancelledOneIsKeptWithoutEventsThatDoNotFit) {
  constexpr size_t kMaxBytes = 20000;
  StoredResponses stored(10, kMaxBytes);
  BackgroundResponses background(stored);
  const auto start = [&](const std::string& id, size_t message_bytes) {
    const auto events = std::make_shared<ResponseEvents>();
    events->append("a", {{"text", std::string(kMaxBytes * 3 / 4, 'x')}});
    const Json messages = Json::array({{{"role", "user"}, {"content", std::string(message_bytes, 'y')}}});
    background.start({id, "ann", {{"id", id}, {"status", "queued"}}, messages, Json::array(), events},
                     std::make_unique<Silent>());
  };
  start("a", kMaxBytes / 2);
  ASSERT_TRUE(background.cancel("a", "ann"));
  ASSERT_TRUE(stored.find("a", "ann"));
  EXPECT_FALSE(stored.find("a", "ann")->events);
  start("b", kMaxBytes * 2);
  ASSERT_TRUE(background.cancel("b", "ann"));
  EXPECT_FALSE(stored.find("b", "ann"));
  background.close();
}

}  // namespace
}  // namespace redline::server
