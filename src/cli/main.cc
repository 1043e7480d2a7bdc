#include <atomic>
#include <csignal>
#include <cstdlib>
#include <new>

#include "cli/command.h"

namespace {

/// Memory that is freed when an allocation fails, before std::bad_alloc is thrown. Destructors that run during
/// unwinding may allocate, for example that of a JSON array, and a second failure would end the program without a
/// message. Untouched pages are address space only.
constexpr size_t kReserveBytes = size_t{8} << 20;
std::atomic<void*> g_reserve = nullptr;

void give_reserve_back() {
  std::free(g_reserve.exchange(nullptr));
  throw std::bad_alloc();
}

}  // namespace

int main(int argc, char** argv) {
  g_reserve = std::malloc(kReserveBytes);
  std::set_new_handler(give_reserve_back);
  // A closed pipe (see Terminal) or a file size limit must show up as a failed write, which can name the file and clean
  // up, not as a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  // A parent process may ignore SIGCHLD, and its children inherit that. waitpid() would then fail.
  std::signal(SIGCHLD, SIG_DFL);
  redline::cli::clean_up_on_signals();
  redline::cli::Terminal terminal(stdin, stdout, stderr);
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  return redline::cli::run_cli(arguments, terminal);
}
