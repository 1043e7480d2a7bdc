#include <gtest/gtest.h>

#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "server/fake_engine.h"
#include "server/models.h"

namespace redline::server {
namespace {

// Two clients at a time: one loads an adapter, the other unloads it while its file is read.
TEST(ServedModel, AdaptersAreThoseOfTheEngine) {
  auto made = std::make_unique<testing::FakeEngine>("text");
  std::mutex mutex;
  std::set<std::string> loaded;
  testing::FakeEngine& engine = *made;
  ServedModel model("fake", std::move(made), 4);
  std::thread other;
  engine.on_unload = [&](const std::string& name) {
    const std::lock_guard lock(mutex);
    return loaded.erase(name) > 0 ? Status() : not_found("{}", name);
  };
  engine.on_load = [&](const std::string& name) {
    {
      const std::lock_guard lock(mutex);
      loaded.insert(name);
    }
    if (name != "b") return Status();
    other = std::thread([&] { (void)model.unload_adapter("b"); });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // enough for it to come before the end of this
    return Status();
  };
  ASSERT_TRUE(model.load_adapter("a", "file").ok());
  ASSERT_TRUE(model.load_adapter("b", "file").ok());
  other.join();
  std::set<std::string> listed;
  for (const Adapter& adapter : model.adapters()) listed.insert(adapter.name);
  EXPECT_EQ(listed, loaded);
}

TEST(ServedModel, AdaptersHaveALimit) {
  ServedModel model("fake", std::make_unique<testing::FakeEngine>("text"), 4);
  for (size_t i = 0; i < ServedModel::kMaxAdapters; ++i)
    ASSERT_TRUE(model.load_adapter(std::to_string(i), "file").ok());
  EXPECT_EQ(model.load_adapter("more", "file").code(), Code::invalid_argument);
  EXPECT_EQ(model.replace_adapter("more", "file").code(), Code::invalid_argument);
  EXPECT_EQ(model.adapters().size(), ServedModel::kMaxAdapters);
}

// A client that fills the queue leaves places for others, and the next one does so too.
TEST(ServedModel, FairnessTheQueueKeepsPlacesForOtherClients) {
  const auto model = std::make_shared<ServedModel>("fake", std::make_unique<testing::FakeEngine>("text"), 316);
  ASSERT_EQ(model->max_in_flight(), 320);
  std::vector<ServedModel::Ticket> tickets;
  const auto fill = [&](const std::string& client) {
    int64_t count = 0;
    for (; auto ticket = ServedModel::admit(model, 1, client); ++count) tickets.push_back(std::move(*ticket));
    return count;
  };
  const int64_t first = fill("a");
  EXPECT_EQ(first, 284);  // 285 of 320 are more than 8 times as many as the 35 others
  EXPECT_EQ(fill("b"), 32);
  for (const char* client : {"c", "d"}) EXPECT_GE(fill(client), 1) << client;
  tickets.clear();
  EXPECT_EQ(model->in_flight(), 0);
  EXPECT_TRUE(ServedModel::admit(model, 320, "a"));
  EXPECT_FALSE(ServedModel::admit(model, 321, "a"));
}

// Requests are answered by the list: at no time it lacks the name, and the engine has it all the time.
TEST(ServedModel, AReplacedAdapterIsThereAllTheTime) {
  auto made = std::make_unique<testing::FakeEngine>("text");
  testing::FakeEngine& engine = *made;
  ServedModel model("fake", std::move(made), 4);
  bool is_read = true, was_unloaded = false;
  std::optional<Adapter> meanwhile;
  engine.on_replace = [&](const std::string& name) {
    meanwhile = model.adapter(name);
    return is_read ? Status() : io("broken");
  };
  engine.on_unload = [&](const std::string&) {
    was_unloaded = true;
    return Status();
  };
  ASSERT_TRUE(model.load_adapter("a", "old").ok());
  const int64_t id = model.adapter("a")->id;
  model.set_scales({{id, 0.5}});
  ASSERT_TRUE(model.replace_adapter("a", "new").ok());
  ASSERT_TRUE(meanwhile);
  EXPECT_EQ(meanwhile->path, "old");
  EXPECT_EQ(model.adapter("a")->path, "new");
  EXPECT_EQ(model.adapter("a")->id, id);
  EXPECT_EQ(model.adapter("a")->scale, 0.5);
  EXPECT_FALSE(was_unloaded);
  is_read = false;
  EXPECT_EQ(model.replace_adapter("a", "broken").code(), Code::io);
  EXPECT_EQ(model.adapter("a")->path, "new");
  EXPECT_EQ(model.adapters().size(), 1u);
  is_read = true;
  ASSERT_TRUE(model.replace_adapter("b", "new").ok());  // there is none to replace
  EXPECT_EQ(model.adapter("b")->path, "new");
}

}  // namespace
}  // namespace redline::server
