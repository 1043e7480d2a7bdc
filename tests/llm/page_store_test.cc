// Pages of the prefix cache on disk. (over 600 lines: they share the store with notices and its pages.)
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "base/hash.h"
#include "llm/page_store.h"
#include "llm/prefix_cache.h"
#include "llm/written_pool.h"
#include "redline/text.h"
#include "support/bundled.h"
#include "support/temporary_folder.h"

namespace redline {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::TemporaryFolder;

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

std::vector<ContentKey> text_of(int64_t length, int32_t seed) {
  std::vector<ContentKey> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back(token_key(seed * 1000 + i));
  return tokens;
}

constexpr uint64_t kBoth = 3;

bool reads(PageStore& store, const PageOfText& page, const std::string& key, const Pages& want) {
  Pages got(99);
  return store.read(page, key, kBoth, [&](size_t g) { return got.bytes[g].data(); }) && got.bytes[0] == want.bytes[0] &&
         got.bytes[1] == want.bytes[1];
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files.push_back(entry.path());
  return files;
}

/// Without what the writers of the folder keep for themselves.
std::vector<std::filesystem::path> pages_in(const std::string& folder) {
  std::vector<std::filesystem::path> files = files_in(folder);
  std::erase_if(files, [](const auto& path) { return path.filename() == "usage"; });
  return files;
}

int64_t bytes_in(const std::string& folder) {
  int64_t bytes = 0;
  for (const auto& path : pages_in(folder)) {
    struct stat info {};
    EXPECT_EQ(lstat(path.c_str(), &info), 0);
    bytes += int64_t{info.st_blocks} * 512;
  }
  return bytes;
}

// Pages of tokens have the bytes and the names that they had before there were other contents.
TEST(PageStore, OnlyPagesWithRowsOfMediaHaveTheNewFormat) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1);
  const auto tokens = text_of(32, 1);
  std::vector<ContentKey> media = tokens, other = tokens;
  media[5] = kMediaKeyBit | 1;
  other[5] = kMediaKeyBit | 2;
  PageOfText of_tokens, of_media, of_other;
  {
    const auto store = open_store(folder.path(), notices);
    of_tokens = store->page({}, "key", tokens);
    of_media = store->page({}, "key", media);
    of_other = store->page({}, "key", other);
    EXPECT_TRUE(store->write(of_tokens, "key", pages.pointers()));
    EXPECT_TRUE(store->write(of_media, "key", Pages(2).pointers()));
    store->flush();
    EXPECT_TRUE(reads(*store, of_media, "key", Pages(2)));
    EXPECT_FALSE(store->has(of_other.name));
  }
  std::vector<int32_t> ids(tokens.begin(), tokens.end());
  const uint64_t name = hash_bytes(hash_bytes(7, "key", 3), ids.data(), ids.size() * sizeof(int32_t));
  EXPECT_EQ(of_tokens.name.a, name);
  std::map<std::string, int> versions;
  for (const auto& path : pages_in(folder.path())) {
    std::ifstream file(path, std::ios::binary);
    std::string magic(8, ' ');
    file.read(magic.data(), 8);
    ++versions[magic];
  }
  EXPECT_EQ(versions, (std::map<std::string, int>{{"RLPAGES2", 1}, {"RLPAGES3", 1}}));
  const auto store = open_store(folder.path(), notices);
  EXPECT_TRUE(reads(*store, of_tokens, "key", pages));
  EXPECT_TRUE(reads(*store, of_media, "key", Pages(2)));
  EXPECT_THAT(notices.take(), IsEmpty());
  // A file of a version that this program does not know is named and removed.
  for (const auto& path : pages_in(folder.path())) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(7);
    file.put('9');
  }
  EXPECT_EQ(store->groups(of_media, "key"), std::nullopt);
  EXPECT_THAT(notices.take(), ElementsAre(HasSubstr("version 9 of the format; this program reads 2 and 3")));
}

TEST(PageStore, PagesAreThereForALaterStoreOfTheSameModel) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1), part(2);
  const auto text = text_of(64, 1);
  PageOfText first, second;
  {
    const auto store = open_store(folder.path(), notices);
    first = store->page({}, "key", std::span(text).first(32));
    second = store->page(first.name, "key", std::span(text).subspan(32));
    EXPECT_FALSE(store->has(first.name));
    EXPECT_FALSE(store->write(second, "key", pages.pointers())) << "nothing leads to it";
    EXPECT_TRUE(store->write(first, "key", pages.pointers()));
    EXPECT_TRUE(store->write(first, "key", pages.pointers()));
    EXPECT_TRUE(store->write(second, "key", std::vector<const uint8_t*>{nullptr, part.bytes[1].data()}));
    store->flush();
    EXPECT_TRUE(reads(*store, first, "key", pages));
  }
  const auto store = open_store(folder.path(), notices);
  EXPECT_EQ(store->num_files(), 2);
  EXPECT_EQ(store->groups(first, "key"), kBoth);
  EXPECT_TRUE(reads(*store, first, "key", pages));
  // The second one has no page of the first group.
  EXPECT_EQ(store->groups(second, "key"), 2U);
  std::vector<size_t> groups;
  Pages got(99);
  EXPECT_TRUE(store->read(second, "key", 2, [&](size_t g) {
    groups.push_back(g);
    return got.bytes[g].data();
  }));
  EXPECT_THAT(groups, ElementsAre(1));
  EXPECT_EQ(got.bytes[1], part.bytes[1]);
  EXPECT_FALSE(store->read(second, "key", kBoth, [&](size_t g) { return got.bytes[g].data(); }));
  // Without a free page nothing is said, and the file stays.
  EXPECT_FALSE(store->read(second, "key", 2, [](size_t) { return nullptr; }));
  EXPECT_TRUE(store->has(second.name));
  EXPECT_FALSE(open_store(folder.path(), notices, 1 << 20, 8)->has(first.name)) << "another model";
  EXPECT_THAT(notices.take(), IsEmpty());
}

TEST(PageStore, BrokenForeignAndTruncatedFilesAreIgnoredWithANotice) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1);
  const auto text = text_of(32, 1), other = text_of(32, 2);
  const auto damage = [&](const std::function<void(std::fstream&, const std::filesystem::path&)>& change) {
    PageOfText page;
    {
      const auto store = open_store(folder.path(), notices);
      page = store->page({}, "key", text);
      EXPECT_TRUE(store->write(page, "key", pages.pointers()));
    }
    const auto path = pages_in(folder.path()).at(0);
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      change(file, path);
    }
    const auto store = open_store(folder.path(), notices);
    EXPECT_FALSE(reads(*store, page, "key", pages));
    EXPECT_FALSE(store->has(page.name));
    EXPECT_THAT(pages_in(folder.path()), IsEmpty());
    const auto said = notices.take();
    EXPECT_EQ(said.size(), 1u);
    return said.empty() ? std::string() : said[0];
  };
  const auto write_at = [](std::fstream& file, int64_t at, const char* bytes) {
    file.seekp(at);
    file << bytes;
  };
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 0, "GGUF"); }), HasSubstr("not a page file"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 9, "xx"); }), HasSubstr("do not match the file name"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 40, "xx"); }), HasSubstr("do not match the file name"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 85, "xx"); }), HasSubstr("its checksum is wrong"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 400, "xx"); }), HasSubstr("checksum of a page is wrong"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 64, "\377\377\377\377"); }), HasSubstr("instead of"));
  EXPECT_THAT(damage([&](auto& file, auto&) { write_at(file, 59, "\377"); }), HasSubstr("too many state groups"));
  EXPECT_THAT(damage([&](auto&, auto& path) { std::filesystem::resize_file(path, 700); }), HasSubstr("700 bytes"));
  EXPECT_THAT(damage([&](auto&, auto& path) { std::filesystem::resize_file(path, 20); }),
              HasSubstr("truncated header"));
  EXPECT_THAT(damage([&](auto&, auto& path) { std::filesystem::resize_file(path, 0); }), HasSubstr("truncated header"));
  // Names are hashes: what counts is the text in the file, and whose it is.
  const auto store = open_store(folder.path(), notices);
  const PageOfText page = store->page({}, "key", text);
  const auto write_and_ask = [&](const PageOfText& asked, const std::string& key) {
    EXPECT_TRUE(store->write(page, "key", pages.pointers()));
    store->flush();
    EXPECT_EQ(store->groups(asked, key), std::nullopt);
    return notices.take().at(0);
  };
  EXPECT_THAT(write_and_ask({page.name, {}, other}, "key"), HasSubstr("another text"));
  EXPECT_THAT(write_and_ask({page.name, {1, 2}, text}, "key"), HasSubstr("do not match the file name"));
  EXPECT_THAT(write_and_ask(page, "yek"), HasSubstr("another text"));
}

TEST(PageStore, TheLimitHoldsAndTheLeastRecentlyUsedGoFirst) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1);
  constexpr int64_t kFour = 5 * 4096 - 1;
  const auto store = open_store(folder.path(), notices, kFour);
  std::vector<PageOfText> all;
  std::vector<std::vector<ContentKey>> texts(7);
  const auto write = [&](PageStore& to, const PageName& parent = {}) {
    texts[all.size()] = text_of(32, static_cast<int32_t>(all.size()));
    all.push_back(to.page(parent, "", texts[all.size()]));
    EXPECT_TRUE(to.write(all.back(), "", pages.pointers()));
    to.flush();
    EXPECT_LE(bytes_in(folder.path()), kFour);
  };
  for (int i = 0; i < 4; ++i) write(*store);
  EXPECT_EQ(store->num_files(), 4);
  EXPECT_EQ(store->bytes(), bytes_in(folder.path()));
  store->use(std::array{all[0].name});
  write(*store);
  EXPECT_TRUE(store->has(all[0].name));
  EXPECT_FALSE(store->has(all[1].name));
  EXPECT_EQ(pages_in(folder.path()).size(), 4u);
  EXPECT_EQ(open_store(folder.path(), notices)->num_files(), 4);
  // The last page of a text goes first, although it was written last.
  write(*store, all[4].name);
  store->use(std::array{all[4].name, all[5].name});
  store->use(std::array{all[0].name, all[3].name});
  write(*store);
  EXPECT_TRUE(store->has(all[4].name));
  EXPECT_FALSE(store->has(all[5].name));
}

TEST(PageStore, ThePagesThatFitInTheQueueAreTheFirstOfAText) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1);
  auto opened = PageStore::open({folder.path(),
                                 1 << 20,
                                 7,
                                 {std::begin(kPageBytes), std::end(kPageBytes)},
                                 notices.sink(),
                                 /*max_queued_bytes=*/3000});
  ASSERT_TRUE(opened.ok());
  PageStore& store = **opened;
  const auto text = text_of(20 * 32, 1);
  int64_t kept = 0;
  for (int rounds = 0; kept < 20; ++rounds) {
    ASSERT_LT(rounds, 20) << "each round keeps at least one more";
    PageName parent;
    bool goes_on = true;
    int64_t now = 0;
    for (size_t i = 0; i < 20; ++i) {
      const PageOfText page = store.page(parent, "", std::span(text).subspan(32 * i, 32));
      const bool is_kept = store.write(page, "", pages.pointers());
      EXPECT_TRUE(goes_on || !is_kept) << "after a page that was not kept";
      goes_on = goes_on && is_kept;
      now += is_kept;
      parent = page.name;
    }
    store.flush();
    EXPECT_EQ(store.num_files(), now);
    EXPECT_GT(now, kept);
    kept = now;
  }
  EXPECT_THAT(notices.take(), IsEmpty());
}

TEST(PageStore, NothingIsKeptBehindAPageThatCouldNotBeWritten) {
  const TemporaryFolder folder;
  Notices notices;
  const auto store = open_store(folder.path(), notices, 4096);  // one file
  const Pages pages(1);
  const auto text = text_of(96, 1);
  PageName parent;
  for (size_t i = 0; i < 3; ++i) {
    const PageOfText page = store->page(parent, "", std::span(text).subspan(32 * i, 32));
    (void)store->write(page, "", pages.pointers());
    parent = page.name;
  }
  store->flush();
  EXPECT_LE(bytes_in(folder.path()), 4096);
  const auto again = open_store(folder.path(), notices);
  EXPECT_EQ(again->num_files(), 1);
  EXPECT_TRUE(again->has(again->page({}, "", std::span(text).first(32)).name));
}

TEST(PageStore, TheLimitIsOneForAllEnginesOfAFolder) {
  const TemporaryFolder folder;
  Notices notices;
  const Pages pages(1);
  constexpr int64_t kLimit = 10 * 4096;
  std::vector<std::unique_ptr<PageStore>> stores;
  for (uint64_t model = 0; model < 3; ++model) stores.push_back(open_store(folder.path(), notices, kLimit, model));
  std::vector<std::thread> threads;
  for (const auto& store : stores)
    threads.emplace_back([&] {
      for (int32_t i = 0; i < 40; ++i) {
        const auto text = text_of(32, i);
        EXPECT_TRUE(store->write(store->page({}, "", text), "", pages.pointers()));
        if (i % 4 == 0) store->flush();
      }
      store->flush();
    });
  const int usage = ::open((folder.path() + "/usage").c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(usage, 0);
  for (int looks = 0; looks < 50; ++looks) {
    ASSERT_EQ(flock(usage, LOCK_EX), 0);  // between two writers
    EXPECT_LE(bytes_in(folder.path()), kLimit);
    ASSERT_EQ(flock(usage, LOCK_UN), 0);
    std::this_thread::yield();
  }
  ::close(usage);
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(bytes_in(folder.path()), kLimit);
  EXPECT_GE(pages_in(folder.path()).size(), 8u);
  // Two stores have the same model: a page that one has written is not written again by the other.
  const auto twin = open_store(folder.path(), notices, kLimit, 0);
  const auto text = text_of(32, 1000);
  EXPECT_TRUE(stores[0]->write(stores[0]->page({}, "", text), "", pages.pointers()));
  stores[0]->flush();
  EXPECT_TRUE(twin->write(twin->page({}, "", text), "", pages.pointers()));
  twin->flush();
  EXPECT_TRUE(reads(*twin, twin->page({}, "", text), "", pages));
  EXPECT_LE(bytes_in(folder.path()), kLimit);
  // A total that a killed writer has left unset, or that is damaged, is recomputed.
  for (const char* usage : {"", "12", "nonsense\n", "-5\n"}) {
    std::ofstream(folder.path() + "/usage", std::ios::trunc) << usage;
    const auto more = text_of(32, 2000 + static_cast<int32_t>(std::strlen(usage)));
    EXPECT_TRUE(twin->write(twin->page({}, "", more), "", pages.pointers()));
    twin->flush();
    EXPECT_EQ(twin->bytes(), bytes_in(folder.path())) << usage;
  }
  EXPECT_THAT(notices.take(), IsEmpty());
}

// --- In a prefix cache ---

std::unique_ptr<PageStore> open_store_of(const test::WrittenPool& p, const std::string& folder, Notices& notices,
                                         int64_t max_queued = int64_t{256} << 20) {
  PageStoreOptions options{folder, int64_t{1} << 30, 7, {}, notices.sink(), max_queued};
  for (const StateGroup& group : p.plan.groups) options.page_bytes.push_back(group.page_bytes);
  auto store = PageStore::open(std::move(options));
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return std::move(store).value();
}

std::vector<uint8_t> bytes_of_text(int64_t length) {
  std::vector<uint8_t> tokens;
  for (int64_t i = 0; i < length; ++i) tokens.push_back(static_cast<uint8_t>(i * 7 % 251));
  return tokens;
}
std::vector<ContentKey> page_store_ids(const std::vector<uint8_t>& tokens) { return {tokens.begin(), tokens.end()}; }

TEST(PrefixCacheOnDisk, ATextIsKeptWhileItGrowsAsFarAsTheQueueTakesIt) {
  const TemporaryFolder folder;
  Notices notices;
  const auto tokens = bytes_of_text(40 * 32);
  int64_t kept = 0;
  {
    test::WrittenPool p({test::key_values(1, 16)}, 50);
    const int64_t two = 2 * (p.plan.groups[0].page_bytes + 300);
    PrefixCache cache(p.pool, INT64_MAX, open_store_of(p, folder.path(), notices, two));
    SequenceState state(p.pool);
    // The first twenty pages at once: more than the queue takes. Then page by page.
    p.append(state, {tokens.begin(), tokens.begin() + 20 * 32});
    cache.store({}, page_store_ids({tokens.begin(), tokens.begin() + 20 * 32}), state, false);
    cache.disk()->flush();
    EXPECT_GE(cache.disk()->num_files(), 1);
    for (int64_t n = 21; n <= 40; ++n) {
      p.append(state, {tokens.begin() + (n - 1) * 32, tokens.begin() + n * 32});
      cache.store({}, page_store_ids({tokens.begin(), tokens.begin() + n * 32}), state, n == 40);
      cache.disk()->flush();
    }
    kept = cache.disk()->num_files();
    EXPECT_GE(kept, 21);
  }
  test::WrittenPool p({test::key_values(1, 16)}, 50);
  PrefixCache cache(p.pool, INT64_MAX, open_store_of(p, folder.path(), notices));
  SequenceState state(p.pool);
  EXPECT_EQ(cache.restore({}, page_store_ids(tokens), state).length, kept * 32);
  for (int64_t i = 0; i < kept * 32; i += 5) EXPECT_EQ(p.at(state, 0, i), tokens[static_cast<size_t>(i)]);
  EXPECT_THAT(notices.take(), IsEmpty());
}

TEST(PrefixCacheOnDisk, OfLayersWithAWindowOnlyItsPagesAreRead) {
  constexpr int64_t kWindow = 64;
  const TemporaryFolder folder;
  Notices notices;
  const auto tokens = bytes_of_text(60 * 32);
  const std::vector<std::vector<StateAttrs>> models = {{test::key_values(1, 16), test::key_values(1, 16, kWindow)},
                                                       {test::key_values(1, 16, kWindow)}};
  for (size_t m = 0; m < models.size(); ++m) {
    const std::string path = fmt::format("{}/{}", folder.path(), m);
    const size_t window_group = models[m].size() - 1;
    {
      test::WrittenPool p(models[m], 100);
      PrefixCache cache(p.pool, INT64_MAX, open_store_of(p, path, notices));
      SequenceState state(p.pool);
      for (int64_t n = 1; n <= 60; ++n) {
        p.append(state, {tokens.begin() + (n - 1) * 32, tokens.begin() + n * 32});
        cache.store({}, page_store_ids({tokens.begin(), tokens.begin() + n * 32}), state, n == 60);
      }
    }
    // The pool has few pages of the window.
    test::WrittenPool small(models[m], 100);
    std::vector<int32_t> taken;
    for (int i = 0; i < 95; ++i) taken.push_back(*small.pool.take(window_group));
    PrefixCache cache(small.pool, INT64_MAX, open_store_of(small, path, notices));
    for (const int64_t length : {60, 25}) {
      SequenceState state(small.pool);
      std::vector<uint8_t> prompt(tokens.begin(), tokens.begin() + length * 32);
      prompt.push_back(255);
      EXPECT_EQ(cache.restore({}, page_store_ids(prompt), state).length, length * 32) << m;
      for (int64_t i = length * 32 - kWindow + 1; i < length * 32; ++i)
        ASSERT_EQ(small.at(state, window_group, i), tokens[static_cast<size_t>(i)]);
    }
    // In memory the pages before are there, but not those of the window: these are read again.
    std::vector<int32_t> rest;
    while (small.pool.num_available(window_group) > 0) rest.push_back(*small.pool.take(window_group));
    for (const int32_t page : rest) small.pool.drop(window_group, page);
    SequenceState state(small.pool);
    EXPECT_EQ(cache.restore({}, page_store_ids(tokens), state).length, 60 * 32) << m;
    for (const int32_t page : taken) small.pool.drop(window_group, page);
  }
  EXPECT_THAT(notices.take(), IsEmpty());
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

std::unique_ptr<TextEngine> open_page_store(const TextEngineOptions& options, const std::string& path = kTales) {
  auto engine = TextEngine::open(path, options);
  EXPECT_TRUE(engine.ok()) << engine.status().to_string();
  return std::move(engine).value();
}

GenerateRequest page_store_request(int32_t seed = 0, int64_t length = 200) {
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
  const auto want = open_page_store(options_with(folder.path(), &notices))->generate(page_store_request());
  ASSERT_TRUE(want.ok());
  {
    const auto engine = open_page_store(options_with(folder.path(), &notices));
    const auto got = engine->generate(page_store_request());
    EXPECT_EQ(got->cached_tokens, 192);
    EXPECT_EQ(got->tokens, want->tokens);
    // In memory now, to the token.
    EXPECT_EQ(engine->generate(page_store_request())->cached_tokens, 199);
    GenerateRequest salted = page_store_request();
    salted.cache_salt = "mine";
    EXPECT_EQ(engine->generate(salted)->cached_tokens, 0);
    EXPECT_EQ(engine->free_cache_tokens(), engine->batch_limits().cache_tokens);
  }
  TextEngineOptions other = options_with(folder.path(), &notices);
  other.dtype = ComputeType::kF32;
  EXPECT_EQ(open_page_store(other)->generate(page_store_request())->cached_tokens, 0);
  GenerateRequest salted = page_store_request();
  salted.cache_salt = "mine";
  EXPECT_EQ(open_page_store(options_with(folder.path()))->generate(salted)->cached_tokens, 192);
  EXPECT_THAT(notices.take(), IsEmpty());
}

TEST(PagesOnDisk, AdaptersAreToldApartByTheirContents) {
  const TemporaryFolder folder;
  TextEngineOptions options = options_with(folder.path());
  options.max_adapter_rank = 64;
  GenerateRequest r = page_store_request();
  for (int round = 0; round < 2; ++round) {
    const auto engine = open_page_store(options);
    for (const std::string name : {"tolstoy", "shout"}) {
      // The names change, the contents do not.
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

TEST(PagesOnDisk, PagesEvictedFromMemoryAreReloaded) {
  const TemporaryFolder folder;
  TextEngineOptions options = options_with(folder.path());
  options.cache_tokens = 9 * 32;  // one text at a time
  const auto engine = open_page_store(options);
  std::vector<std::vector<int32_t>> want;
  for (int32_t i = 0; i < 4; ++i) want.push_back(engine->generate(page_store_request(i))->tokens);
  for (int round = 0; round < 3; ++round)
    for (int32_t i = 0; i < 4; ++i) {
      const auto got = engine->generate(page_store_request(i));
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
    GenerateRequest r = page_store_request(0, 100);
    std::vector<int32_t> ids = r.prompt.tokens();
    for (int32_t& id : ids) id %= 60;
    r.prompt = std::move(ids);
    r.max_tokens = 2;
    std::vector<int32_t> want;
    {
      const auto engine = open_page_store(options, path);
      r.prompt.truncate(std::min<size_t>(r.prompt.size(), static_cast<size_t>(engine->info().context) - 4));
      want = engine->generate(r)->tokens;
    }
    const auto got = open_page_store(options, path)->generate(r);
    EXPECT_EQ(got->tokens, want);
    EXPECT_GT(got->cached_tokens, 0) << model;
  }
}

TEST(PagesOnDisk, AFullDiskFailsNoRequest) {
  const TemporaryFolder folder;
  Notices notices;
  const auto engine = open_page_store(options_with(folder.path(), &notices));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto ignored = signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 4096;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto first = engine->generate(page_store_request()), again = engine->generate(page_store_request());
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
  EXPECT_EQ(engine->generate(page_store_request(5))->tokens.size(), 8u);
}

TEST(PagesOnDisk, AKilledProcessLosesNothingThatWasWritten) {
  const TemporaryFolder folder;
  const std::string pages = folder.path() + "/prefix-pages";
  EXPECT_EXIT(
      {
        const auto engine = open_page_store(options_with(folder.path()));
        (void)engine->generate(page_store_request()).ok();
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
  EXPECT_EQ(open_page_store(options_with(folder.path()))->generate(page_store_request())->cached_tokens, 192);
  for (const auto& file : pages_in(pages)) EXPECT_EQ(file.extension(), ".redline-cache") << file;
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
