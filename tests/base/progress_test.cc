#include "base/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace redline {
namespace {

using ::testing::MatchesRegex;

/// Everything that waits in `descriptor`, which does not block.
std::string drain(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(descriptor, buffer.data(), buffer.size())) > 0;) text.append(buffer.data(), size_t(n));
  return text;
}

/// Both ends of a pipe, or of a terminal of `columns`.
struct Ends {
  int outside = -1, inside = -1;
  explicit Ends(int columns) {
    if (columns == 0) {
      int both[2];
      if (::pipe2(both, O_NONBLOCK) == 0) outside = both[0], inside = both[1];
      return;
    }
    outside = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    if (outside < 0 || ::grantpt(outside) != 0 || ::unlockpt(outside) != 0) return;
    inside = ::open(::ptsname(outside), O_RDWR | O_NOCTTY);
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    ::ioctl(inside, TIOCSWINSZ, &size);
  }
  ~Ends() {
    ::close(inside);
    ::close(outside);
  }
};

TEST(Progress, ShortWorkIsSilentWithoutATerminal) {
  const Ends pipe(0);
  {
    Progress progress("loading", 10, {.descriptor = pipe.inside});
    for (int i = 0; i < 10; ++i) progress.advance();
  }
  EXPECT_EQ(drain(pipe.outside), "");
}

TEST(Progress, LongWorkPrintsLinesWithoutATerminal) {
  const Ends pipe(0);
  Progress progress("drawing", 4, {.unit = "step", .descriptor = pipe.inside, .first_line_s = 0, .next_line_s = 0});
  EXPECT_EQ(drain(pipe.outside), "");
  progress.advance();
  progress.advance();
  EXPECT_THAT(drain(pipe.outside), MatchesRegex("drawing: step 1 of 4, [^,]+ a step, .+ left\n"
                                                "drawing: step 2 of 4, [^,]+ a step, .+ left\n"));
  progress.advance(2);
  EXPECT_EQ(drain(pipe.outside), "drawing: step 4 of 4\n");
}

TEST(Progress, DrawsOneLineAndWipesIt) {
  const Ends terminal(100);
  if (terminal.inside < 0) GTEST_SKIP() << "no pseudo terminal here: " << std::strerror(errno);
  {
    Progress progress("packing", 1000, {.descriptor = terminal.inside, .redraw_s = 0});
    EXPECT_EQ(drain(terminal.outside), "\rpacking [                              ] 0%\x1b[K");
    progress.advance(500);
    EXPECT_THAT(drain(terminal.outside), MatchesRegex("\rpacking \\[=+ +\\] 50%, .+ left\x1b\\[K"));
    Progress::hide_shown();
    EXPECT_EQ(drain(terminal.outside), "\r\x1b[K");
    Progress::hide_shown();
    EXPECT_EQ(drain(terminal.outside), "");
    progress.advance(5000);
    EXPECT_EQ(drain(terminal.outside), "\rpacking [==============================] 100%\x1b[K");
  }
  EXPECT_EQ(drain(terminal.outside), "\r\x1b[K");
}

TEST(Progress, FitsTheWidth) {
  for (const int columns : {20, 40, 60, 80, 200}) {
    const Ends terminal(columns);
    if (terminal.inside < 0) GTEST_SKIP() << "no pseudo terminal here: " << std::strerror(errno);
    Progress progress("drawing", 28, {.unit = "step", .descriptor = terminal.inside, .redraw_s = 0});
    progress.advance(3);
    const std::string text = drain(terminal.outside);
    const size_t begin = text.rfind('\r') + 1;
    const std::string line = text.substr(begin, text.find('\x1b', begin) - begin);
    EXPECT_LT(line.size(), static_cast<size_t>(columns)) << line;
    EXPECT_EQ(line.find('[') != std::string::npos, columns >= 60) << line;
    EXPECT_EQ(line.find("step 3 of 28") != std::string::npos, columns >= 24) << line;
    EXPECT_EQ(line.find(" left") != std::string::npos, columns >= 40) << line;
  }
}

TEST(Progress, WorkOfUnknownLengthShowsItsLabel) {
  const Ends terminal(80);
  if (terminal.inside < 0) GTEST_SKIP() << "no pseudo terminal here: " << std::strerror(errno);
  { Progress progress("loading a model", 0, {.descriptor = terminal.inside}); }
  EXPECT_EQ(drain(terminal.outside), "\rloading a model\x1b[K\r\x1b[K");
}

TEST(Progress, Durations) {
  EXPECT_EQ(duration_text(0.0012), "1.2 ms");
  EXPECT_EQ(duration_text(0.034), "34 ms");
  EXPECT_EQ(duration_text(1.239), "1.24 s");
  EXPECT_EQ(duration_text(31.2), "31 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(4330), "1 h 12 min");
}

}  // namespace
}  // namespace redline
