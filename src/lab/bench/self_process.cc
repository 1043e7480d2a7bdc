#include "lab/bench/self_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "base/elapsed.h"

extern char** environ;

namespace redline::lab {
namespace {

using Clock = std::chrono::steady_clock;

class Pipe {
 public:
  Pipe() {
    if (::pipe2(ends_, O_CLOEXEC) != 0) ends_[0] = ends_[1] = -1;
  }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool ok() const { return ends_[0] >= 0; }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void close_end(int end) {
    if (ends_[end] >= 0) ::close(ends_[end]);
    ends_[end] = -1;
  }

 private:
  int ends_[2];
};

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

std::vector<std::string> environment_with(const std::vector<std::string>& changes) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool is_replaced = false;
    for (const std::string& change : changes) is_replaced |= text.starts_with(change.substr(0, change.find('=') + 1));
    if (!is_replaced) all.emplace_back(text);
  }
  all.insert(all.end(), changes.begin(), changes.end());
  return all;
}

std::string last_line(std::string_view text) {
  while (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  return std::string(text.substr(text.rfind('\n') + 1));
}

}  // namespace

Result<SelfRun> run_self(const std::vector<std::string>& arguments, const std::vector<std::string>& environment,
                         double limit_seconds, const std::function<bool()>& is_cancelled) {
  std::error_code failed;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failed);
  // In a test program the same arguments would run its tests again, recursively.
  if (failed || !program.filename().string().starts_with("redline"))
    return unsupported("only the program redline can start itself again");
  Pipe out, error;
  if (!out.ok() || !error.ok()) return io("cannot make a pipe: {}", std::strerror(errno));
  std::vector<std::string> argv = {program.string()}, env = environment_with(environment);
  argv.insert(argv.end(), arguments.begin(), arguments.end());
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.writer(), 1);
  posix_spawn_file_actions_adddup2(&actions, error.writer(), 2);
  const Clock::time_point begin = Clock::now();
  const auto seconds = [&] { return seconds_since(begin); };
  pid_t pid = -1;
  const int refused =
      posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, pointers(argv).data(), pointers(env).data());
  posix_spawn_file_actions_destroy(&actions);
  if (refused != 0) return io("cannot start {}: {}", program.string(), std::strerror(refused));
  out.close_end(1);
  error.close_end(1);

  SelfRun run;
  Status stopped;
  pollfd ends[] = {{out.reader(), POLLIN, 0}, {error.reader(), POLLIN, 0}};
  while (ends[0].fd >= 0 || ends[1].fd >= 0) {
    if (seconds() > limit_seconds) stopped = cancelled("took more than {:.0f} s", limit_seconds);
    if (is_cancelled && is_cancelled()) stopped = cancelled("interrupted");
    if (!stopped.ok()) break;
    ::poll(ends, 2, 100);
    for (pollfd& end : ends) {
      if (end.fd < 0 || (end.revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
      char buffer[4096];
      const ssize_t got = ::read(end.fd, buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        end.fd = -1;
        continue;
      }
      std::string& text = &end == ends ? run.out : run.error;
      text.append(buffer, static_cast<size_t>(got));
      if (&end == ends && run.first_line_seconds == 0 && text.find('\n') != std::string::npos)
        run.first_line_seconds = seconds();
    }
  }
  if (!stopped.ok()) ::kill(pid, SIGKILL);
  int state = 0;
  pid_t ended = -1;
  do ended = ::waitpid(pid, &state, 0);
  while (ended < 0 && errno == EINTR);
  run.seconds = seconds();
  REDLINE_TRY(stopped);
  if (ended < 0) return io("cannot wait for redline {}: {}", arguments[0], std::strerror(errno));
  if (WIFSIGNALED(state)) return internal("redline {} was ended by signal {}", arguments[0], WTERMSIG(state));
  if (WEXITSTATUS(state) != 0) return internal("redline {} failed: {}", arguments[0], last_line(run.error));
  return run;
}

}  // namespace redline::lab
