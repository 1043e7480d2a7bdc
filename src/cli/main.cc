#include <csignal>

#include "cli/command.h"

int main(int argc, char** argv) {
  // A closed pipe (see Terminal) or a file size limit must show up as a failed write, which can name the file and clean
  // up, not as a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  redline::cli::clean_up_on_signals();
  redline::cli::Terminal terminal(stdin, stdout, stderr);
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  return redline::cli::run_cli(arguments, terminal);
}
