#include <csignal>

#include "cli/command.h"

int main(int argc, char** argv) {
  // A reader that leaves early is found by the failing write, not by a signal:
  // see Terminal.
  std::signal(SIGPIPE, SIG_IGN);
  redline::cli::Terminal terminal(stdin, stdout, stderr);
  const std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  return redline::cli::run_cli(arguments, terminal);
}
