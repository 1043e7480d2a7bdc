#include "server/access_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

namespace redline::server {
namespace {

/// A pipe of one page, and the file that a log writes to.
struct Pipe {
  int ends[2] = {-1, -1};
  std::FILE* file = nullptr;
  Pipe() {
    if (pipe(ends) != 0) return;
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    file = fdopen(ends[1], "a");
  }
  ~Pipe() {
    std::fclose(file);
    leave();
  }
  void leave() {
    if (ends[0] >= 0) close(std::exchange(ends[0], -1));
  }
  std::string read_some() const {
    char text[65536];
    const ssize_t n = read(ends[0], text, sizeof text);
    return {text, static_cast<size_t>(std::max<ssize_t>(n, 0))};
  }
};

TEST(AccessLog, ALineStaysOneLineWhateverItHolds) {
  std::string all;
  for (int c = 0; c < 256; ++c) all += static_cast<char>(c);
  for (const std::string& text :
       {all, std::string("a\r\nb\x1b[2J"), std::string("\xc2\x85 \xe2\x80\xa8 \xe2\x80\xa9 \xf0\x9f\x98\x80"),
        std::string("\xff\xfe\xc3"), std::string(100000, '\n')}) {
    const std::string line = AccessLog::line_of({{"path", text}, {"method", text}, {"status", 200}});
    EXPECT_TRUE(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; })) << line;
    EXPECT_LE(line.size(), 2 * 6 * AccessLog::kMaxText + 100);
    const Json back = Json::parse(line);
    EXPECT_EQ(back["status"], 200);
  }
  EXPECT_EQ(Json::parse(AccessLog::line_of({{"path", "a\r\nb"}}))["path"], "a\r\nb");
}

// A reader that has stopped takes a page of lines. The others wait up to their limit and are then lost, and nobody
// waits for the log.
TEST(AccessLog, AReaderThatHasStoppedStopsNobody) {
  Pipe pipe;
  ASSERT_NE(pipe.file, nullptr);
  const size_t written = AccessLog::kMaxWaiting + 1000;
  {
    AccessLog log(pipe.file);
    const Json entry = {{"path", std::string(20, 'a')}};
    for (size_t i = 0; i < written; ++i) log.write(entry);
    const size_t in_pipe = 4096 / AccessLog::line_of(entry).size() + 2;
    EXPECT_GE(log.num_lost(), static_cast<int64_t>(1000 - in_pipe));
    EXPECT_LE(log.num_lost(), 1000);
    // It goes on when it is read, and tells of the lines that are missing.
    std::string text;
    int64_t told = 0;
    while (told < log.num_lost()) {
      text += pipe.read_some();
      for (size_t end = 0; (end = text.find('\n')) != std::string::npos; text.erase(0, end + 1))
        told += Json::parse(text.substr(0, end)).value("lost_lines", int64_t{0});
    }
    EXPECT_EQ(told, log.num_lost());
    pipe.leave();  // a reader that has gone is no end of the process
  }
}

TEST(AccessLog, WhatWasWrittenIsThereAfterFlush) {
  std::FILE* const file = std::tmpfile();
  {
    AccessLog log(file);
    for (int i = 0; i < 100; ++i) log.write({{"number", i}});
    log.flush();
    std::fseek(file, 0, SEEK_END);
    EXPECT_GT(std::ftell(file), 100 * 12);
    EXPECT_EQ(log.num_lost(), 0);
  }
  std::fclose(file);
}

}  // namespace
}  // namespace redline::server
