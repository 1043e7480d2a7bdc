// Pages of the prefix cache on disk.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/resource.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "llm/page_store.h"
#include "redline/text.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryFolder;

const std::string kTales = std::string(REDLINE_SOURCE_DIR) + "/assets/redline-tales";

class Notices {
 public:
  std::function<void(const std::string&)> sink() {
    return [this](const std::string& text) {
      std::lock_guard lock(mutex_);
      all_.push_back(text);
    };
  }
  std::vector<std::string> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(all_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> all_;
};

constexpr int64_t kPageBytes[] = {1000, 24};

std::unique_ptr<PageStore> open_store(const std::string& folder, Notices& notices, int64_t max_bytes = 1 << 20,
                                      uint64_t identity = 7) {
  auto store =
      PageStore::open({folder, max_bytes, identity, {std::begin(kPageBytes), std::end(kPageBytes)}, notices.sink()});
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return std::move(store).value();
}

struct Pages {
  std::vector<uint8_t> bytes[2];
  explicit Pages(int seed = 0) {
    for (size_t g = 0; g < 2; ++g)
      for (int64_t i = 0; i < kPageBytes[g]; ++i) bytes[g].push_back(static_cast<uint8_t>(seed * 31 + i * 7));
  }
  std::vector<const uint8_t*> pointers() const { return {bytes[0].data(), bytes[1].data()}; }
};

std::vector<int32_t> text_of(int64_t length, int32_t seed) {
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back(seed * 1000 + i);
  return tokens;
}

bool reads(PageStore& store, uint64_t name, const std::string& key, std::span<const int32_t> tokens,
           const Pages& want) {
  Pages got(99);
  return store.read(name, key, tokens, [&](size_t g) { return got.bytes[g].data(); }) &&
         got.bytes[0] == want.bytes[0] && got.bytes[1] == want.bytes[1];
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

TEST(PageStore, PagesAreThereForALaterStoreOfTheSameModel) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1), part(2);
  const auto text = text_of(64, 1);
  uint64_t first = 0, second = 0;
  {
    const auto store = open_store(folder.path(), notices);
    first = store->name(0, "key", std::span(text).first(32));
    second = store->name(first, "key", std::span(text).subspan(32));
    EXPECT_FALSE(store->has(first));
    EXPECT_TRUE(store->write(first, "key", std::span(text).first(32), pages.pointers()));
    EXPECT_FALSE(store->write(first, "key", std::span(text).first(32), pages.pointers()));
    EXPECT_TRUE(store->write(second, "key", text, std::vector<const uint8_t*>{nullptr, part.bytes[1].data()}));
    store->flush();
    EXPECT_TRUE(reads(*store, first, "key", std::span(text).first(32), pages));
  }
  const auto store = open_store(folder.path(), notices);
  EXPECT_EQ(store->num_files(), 2);
  EXPECT_TRUE(reads(*store, first, "key", std::span(text).first(32), pages));
  // The second one has no page of the first group.
  std::vector<size_t> groups;
  Pages got(99);
  EXPECT_TRUE(store->read(second, "key", text, [&](size_t g) {
    groups.push_back(g);
    return got.bytes[g].data();
  }));
  EXPECT_THAT(groups, ElementsAre(1));
  EXPECT_EQ(got.bytes[1], part.bytes[1]);
  // Without a free page nothing is said, and the file stays.
  EXPECT_FALSE(store->read(second, "key", text, [](size_t) { return nullptr; }));
  EXPECT_TRUE(store->has(second));
  EXPECT_FALSE(open_store(folder.path(), notices, 1 << 20, 8)->has(first)) << "another model";
  EXPECT_THAT(notices.take(), IsEmpty());
}

TEST(PageStore, BrokenForeignAndTruncatedFilesAreIgnoredWithANotice) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1);
  const auto text = text_of(32, 1), other = text_of(32, 2);
  const auto damage = [&](const std::function<void(std::fstream&, const std::filesystem::path&)>& change) {
    uint64_t name = 0;
    {
      const auto store = open_store(folder.path(), notices);
      name = store->name(0, "key", text);
      EXPECT_TRUE(store->write(name, "key", text, pages.pointers()));
    }
    const auto path = files_in(folder.path()).at(0);
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      change(file, path);
    }
    const auto store = open_store(folder.path(), notices);
    EXPECT_FALSE(reads(*store, name, "key", text, pages));
    EXPECT_FALSE(store->has(name));
    EXPECT_THAT(files_in(folder.path()), IsEmpty());
    const auto said = notices.take();
    EXPECT_EQ(said.size(), 1u);
    return said.empty() ? std::string() : said[0];
  };
  const auto write_at = [](std::fstream& file, int64_t at, const char* bytes) {
    file.seekp(at);
    file << bytes;
  };
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 0, "GGUF"); }), HasSubstr("it does not hold pages"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 9, "xx"); }), HasSubstr("another model or text"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 400, "xx"); }), HasSubstr("its checksum is wrong"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 40, "\377\377\377\377"); }), HasSubstr("instead of"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 35, "\377"); }), HasSubstr("too many state groups"));
  EXPECT_THAT(damage([&](auto&, auto& path) { std::filesystem::resize_file(path, 700); }), HasSubstr("700 bytes"));
  EXPECT_THAT(damage([&](auto&, auto& path) { std::filesystem::resize_file(path, 20); }), HasSubstr("no header"));
  EXPECT_THAT(damage([&](auto&, auto& path) { std::filesystem::resize_file(path, 0); }), HasSubstr("no header"));
  // Names are hashes: what counts is the text in the file, and whose it is.
  const auto store = open_store(folder.path(), notices);
  const uint64_t name = store->name(0, "key", text);
  EXPECT_TRUE(store->write(name, "key", text, pages.pointers()));
  store->flush();
  EXPECT_FALSE(reads(*store, name, "key", other, pages));
  EXPECT_THAT(notices.take().at(0), HasSubstr("another text"));
  EXPECT_TRUE(store->write(name, "key", text, pages.pointers()));
  store->flush();
  EXPECT_FALSE(reads(*store, name, "yek", text, pages));
  EXPECT_THAT(notices.take().at(0), HasSubstr("another text"));
}

TEST(PageStore, TheLimitHoldsAndTheLeastRecentlyUsedGoFirst) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1);
  const auto store = open_store(folder.path(), notices, 5000);  // four files
  std::vector<uint64_t> names;
  std::vector<std::vector<int32_t>> texts;
  const auto write = [&](int32_t i) {
    texts.push_back(text_of(32, i));
    names.push_back(store->name(0, "", texts.back()));
    EXPECT_TRUE(store->write(names.back(), "", texts.back(), pages.pointers()));
    store->flush();
    EXPECT_LE(store->bytes(), 5000);
  };
  for (int32_t i = 0; i < 4; ++i) write(i);
  EXPECT_EQ(store->num_files(), 4);
  EXPECT_TRUE(reads(*store, names[0], "", texts[0], pages));
  write(4);
  EXPECT_TRUE(store->has(names[0]));
  EXPECT_FALSE(store->has(names[1]));
  EXPECT_EQ(files_in(folder.path()).size(), 4u);
  EXPECT_EQ(open_store(folder.path(), notices)->num_files(), 4);
}

// --- In an engine ---

TextEngineOptions options_with(const std::string& folder, Notices* notices = nullptr) {
  TextEngineOptions options;
  options.threads = 2;
  options.context = 512;
  options.cache_folder = folder;
  if (notices) options.on_notice = notices->sink();
  return options;
}

std::unique_ptr<TextEngine> open(const TextEngineOptions& options, const std::string& path = kTales) {
  auto engine = TextEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

GenerateRequest request(int32_t seed = 0, int64_t length = 200) {
  GenerateRequest r;
  for (int32_t i = 0; i < length; ++i) r.prompt.push_back((seed * 77 + i * 37) % 4000 + 3);
  r.sampling.temperature = 0;
  r.max_tokens = 8;
  r.ignore_stop_tokens = true;
  r.num_logprobs = 0;
  return r;
}

TEST(PagesOnDisk, ALaterEngineComputesOnlyWhatIsNew) {
  const TemporaryFolder folder;
  Notices notices;
  const auto want = open(options_with(folder.path(), &notices))->generate(request());
  ASSERT_TRUE(want.ok());
  {
    const auto engine = open(options_with(folder.path(), &notices));
    const auto got = engine->generate(request());
    EXPECT_EQ(got->cached_tokens, 192);
    EXPECT_EQ(got->tokens, want->tokens);
    // In memory now, to the token.
    EXPECT_EQ(engine->generate(request())->cached_tokens, 199);
    GenerateRequest salted = request();
    salted.cache_salt = "mine";
    EXPECT_EQ(engine->generate(salted)->cached_tokens, 0);
    EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
  }
  TextEngineOptions other = options_with(folder.path(), &notices);
  other.dtype = ComputeType::kF32;
  EXPECT_EQ(open(other)->generate(request())->cached_tokens, 0);
  GenerateRequest salted = request();
  salted.cache_salt = "mine";
  EXPECT_EQ(open(options_with(folder.path()))->generate(salted)->cached_tokens, 192);
  EXPECT_THAT(notices.take(), IsEmpty());
}

TEST(PagesOnDisk, AdaptersAreToldApartByTheirContents) {
  const TemporaryFolder folder;
  TextEngineOptions options = options_with(folder.path());
  options.max_adapter_rank = 64;
  GenerateRequest r = request();
  for (int round = 0; round < 2; ++round) {
    const auto engine = open(options);
    for (const std::string name : {"tolstoy", "shout"}) {
      // The names change, what is behind them does not.
      const std::string as = fmt::format("{}{}", name, round);
      ASSERT_TRUE(engine->load_adapter(as, kTales + "/adapters/" + name).ok());
      r.adapters = {{as, 1.0}};
      const auto result = engine->generate(r);
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      EXPECT_EQ(result->cached_tokens, round == 0 ? 0 : 192) << as;
    }
    r.adapters = {{fmt::format("shout{}", round), 0.5}};
    EXPECT_EQ(engine->generate(r)->cached_tokens, round == 0 ? 0 : 192);
    r.adapters = {{fmt::format("shout{}", round), 0.25 + round}};
    EXPECT_EQ(engine->generate(r)->cached_tokens, 0);
  }
}

TEST(PagesOnDisk, WhatMemoryHasEvictedComesBack) {
  const TemporaryFolder folder;
  TextEngineOptions options = options_with(folder.path());
  options.cache_tokens = 9 * 32;  // one text at a time
  const auto engine = open(options);
  std::vector<std::vector<int32_t>> want;
  for (int32_t i = 0; i < 4; ++i) want.push_back(engine->generate(request(i))->tokens);
  for (int round = 0; round < 3; ++round)
    for (int32_t i = 0; i < 4; ++i) {
      const auto got = engine->generate(request(i));
      ASSERT_TRUE(got.ok());
      EXPECT_EQ(got->tokens, want[static_cast<size_t>(i)]);
      EXPECT_GE(got->cached_tokens, 160);
      EXPECT_EQ(engine->free_cache_tokens(), 9 * 32);
    }
}

TEST(PagesOnDisk, WindowsToo) {
  for (const std::string model : {"mistral_window", "qwen2_layer_types"}) {
    const TemporaryFolder folder;
    TextEngineOptions options = options_with(folder.path());
    options.context = 0;
    const std::string path = std::string(REDLINE_GOLDEN_DIR) + "/" + model;
    GenerateRequest r = request(0, 100);
    for (int32_t& id : r.prompt) id %= 60;
    r.max_tokens = 2;
    std::vector<int32_t> want;
    {
      const auto engine = open(options, path);
      r.prompt.resize(std::min<size_t>(r.prompt.size(), static_cast<size_t>(engine->info().context) - 4));
      want = engine->generate(r)->tokens;
    }
    const auto got = open(options, path)->generate(r);
    EXPECT_EQ(got->tokens, want);
    EXPECT_GT(got->cached_tokens, 0) << model;
  }
}

TEST(PagesOnDisk, AFullDiskFailsNoRequest) {
  const TemporaryFolder folder;
  Notices notices;
  const auto engine = open(options_with(folder.path(), &notices));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto first = engine->generate(request()), again = engine->generate(request());
  EXPECT_TRUE(first.ok() && again.ok());
  EXPECT_EQ(again->cached_tokens, 199);
  std::vector<std::string> said;
  for (int i = 0; i < 6000 && said.empty(); ++i) {
    said = notices.take();
    if (said.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, ignored);
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said[0], HasSubstr("pages of the prefix cache are not kept on disk"));
  EXPECT_EQ(engine->generate(request(5))->tokens.size(), 8u);
}

TEST(PagesOnDisk, AKilledProcessLosesNothingThatWasWritten) {
  const TemporaryFolder folder;
  const std::string pages = folder.path() + "/prefix-pages";
  EXPECT_EXIT(
      {
        const auto engine = open(options_with(folder.path()));
        (void)engine->generate(request()).ok();
        const auto written = [&] {
          int64_t count = 0;
          for (const auto& file : files_in(pages)) count += file.extension() == ".redline-cache";
          return count;
        };
        for (int i = 0; i < 6000 && written() < 6; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
        raise(SIGKILL);
      },
      ::testing::KilledBySignal(SIGKILL), "");
  std::ofstream(pages + "/pages-1-2.3.4.unfinished") << "left by the dead";
  EXPECT_EQ(open(options_with(folder.path()))->generate(request())->cached_tokens, 192);
  for (const auto& file : files_in(pages)) EXPECT_EQ(file.extension(), ".redline-cache") << file;
}

TEST(PagesOnDisk, AFolderThatCannotBeWrittenIsAnError) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/file") << "x";
  EXPECT_FALSE(TextEngine::open(kTales, options_with(folder.path() + "/file")).ok());
  TextEngineOptions options = options_with(folder.path());
  options.cache_folder_bytes = -1;
  EXPECT_THAT(TextEngine::open(kTales, options).status().message(), HasSubstr("cache_folder_bytes -1"));
}

}  // namespace
}  // namespace redline
