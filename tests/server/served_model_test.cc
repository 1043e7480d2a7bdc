#include <gtest/gtest.h>

#include <mutex>
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

}  // namespace
}  // namespace redline::server
