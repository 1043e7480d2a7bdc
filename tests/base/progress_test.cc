#include "base/progress.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

namespace redline {
namespace {

/// Everything that waits in `descriptor`, which does not block.
std::string drain(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(descriptor, buffer.data(), buffer.size())) > 0;) text.append(buffer.data(), size_t(n));
  return text;
}

TEST(Progress, IsSilentWithoutATerminal) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_NONBLOCK), 0);
  {
    Progress progress("loading", 10, ends[1]);
    for (int i = 0; i < 10; ++i) progress.advance();
  }
  EXPECT_EQ(drain(ends[0]), "");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Progress, DrawsEachPercentOnceAndWipesTheLine) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
  if (terminal < 0 || ::grantpt(terminal) != 0 || ::unlockpt(terminal) != 0)
    GTEST_SKIP() << "no pseudo terminal here: " << std::strerror(errno);
  const int inside = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  ASSERT_GE(inside, 0);
  {
    Progress progress("packing", 1000, inside);
    EXPECT_EQ(drain(terminal), "\rpacking [                              ]   0%");
    progress.advance(4);
    EXPECT_EQ(drain(terminal), "");
    progress.advance(496);
    EXPECT_EQ(drain(terminal), "\rpacking [===============               ]  50%");
    progress.advance(5000);
    EXPECT_EQ(drain(terminal), "\rpacking [==============================] 100%");
  }
  EXPECT_EQ(drain(terminal), "\r\x1b[K");
  ::close(inside);
  ::close(terminal);
}

}  // namespace
}  // namespace redline
