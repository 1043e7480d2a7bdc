#include <csignal>

#include "cli/command.h"

int main(int argc, char** argv) {
  // A reader that leaves early (see Terminal) and a limit on the size of files are found by the failing write, which can
  // name the file and clean up, not by a signal.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  redline::cli::Terminal terminal(stdin, stdout, stderr);
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  return redline::cli::run_cli(arguments, terminal);
}
