#include "cli/terminal.h"

#include <sys/stat.h>
#include <termios.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/output_file.h"
#include "base/progress.h"

namespace redline::cli {
namespace {

constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};
volatile std::sig_atomic_t g_interrupted = 0, g_is_guarded = 0;
volatile std::sig_atomic_t g_terminal = -1;  // the terminal whose modes are restored; -1: none
termios g_modes;

void on_signal(int number) {
  if (g_is_guarded && !g_interrupted && number != SIGHUP) {
    g_interrupted = 1;
    return;
  }
  remove_unfinished_files();
  if (g_terminal >= 0) ::tcsetattr(g_terminal, TCSANOW, &g_modes);
  std::signal(number, SIG_DFL);
  std::raise(number);
}

}  // namespace

void Terminal::check_output() {
  if (!std::ferror(out_)) return;
  if (errno == EPIPE) {
    reader_is_gone_ = true;
  } else if (error_ == 0) {
    error_ = errno ? errno : EIO;
  }
}

bool Terminal::write(std::string_view text) {
  if (reader_is_gone_ || error_ != 0) return false;
  Progress::hide_shown();
  if (std::fwrite(text.data(), 1, text.size(), out_) != text.size()) check_output();
  return !reader_is_gone_ && error_ == 0;
}

bool Terminal::flush() {
  if (reader_is_gone_ || error_ != 0) return false;
  if (std::fflush(out_) != 0) check_output();
  return !reader_is_gone_ && error_ == 0;
}

Status Terminal::finish() {
  flush();
  if (error_ != 0) return io("writing to standard output: {}", std::strerror(error_));
  return {};
}

void Terminal::write_note(const std::string& line) {
  Progress::hide_shown();
  std::fwrite(line.data(), 1, line.size(), err_);
  std::fputc('\n', err_);
  std::fflush(err_);
}

bool Terminal::has_piped_input() const {
  struct stat info;
  return ::fstat(fileno(in_), &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISREG(info.st_mode));
}

Result<std::string> Terminal::read_input(size_t max_bytes) {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const size_t n = std::fread(buffer, 1, sizeof buffer, in_);
    text.append(buffer, n);
    if (text.size() > max_bytes) return invalid_argument("standard input has more than {} bytes", max_bytes);
    if (n == sizeof buffer) continue;
    if (std::ferror(in_)) return io("reading standard input: {}", std::strerror(errno));
    return text;
  }
}

void clean_up_on_signals() {
  struct sigaction action = {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  for (const int number : kEndingSignals) {
    struct sigaction old = {};
    // An ignored signal stays ignored: `nohup` and shells ignore signals in background jobs.
    if (sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;
    sigaction(number, &action, nullptr);
  }
}

void keep_terminal_modes(int descriptor) {
  if (g_terminal < 0 && ::tcgetattr(descriptor, &g_modes) == 0) g_terminal = descriptor;
}

InterruptGuard::InterruptGuard() {
  g_interrupted = 0;
  g_is_guarded = 1;
  clean_up_on_signals();
}
InterruptGuard::~InterruptGuard() { g_is_guarded = 0; }
bool InterruptGuard::interrupted() { return g_interrupted != 0; }

}  // namespace redline::cli
