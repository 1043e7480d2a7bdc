// The input and output of a command: results go to stdout, everything else to stderr.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline::cli {

class Terminal {
 public:
  /// The files are borrowed; tests pass their own.
  Terminal(std::FILE* in, std::FILE* out, std::FILE* err) : in_(in), out_(out), err_(err) {}

  /// Writes results. Returns false if the reader has closed the pipe (`redline ... | head`); the command should then
  /// stop quietly.
  bool write(std::string_view text);
  template <class... A>
  bool print(fmt::format_string<A...> text, A&&... args) {
    return write(fmt::format(text, std::forward<A>(args)...));
  }
  /// Flushes the output so far, for streaming text.
  bool flush();
  /// Flushes and checks stdout. io: it could not be written (a full disk). A closed pipe is not an error.
  Status finish();
  bool reader_is_gone() const { return reader_is_gone_; }
  /// Returns the result stream, to query its properties.
  std::FILE* output() const { return out_; }
  std::FILE* input() const { return in_; }
  std::FILE* errors() const { return err_; }

  /// Writes a line of information, warning or error to stderr.
  template <class... A>
  void note(fmt::format_string<A...> text, A&&... args) {
    write_note(fmt::format(text, std::forward<A>(args)...));
  }

  /// Returns true if stdin is a pipe or a file, as in `... | redline` or `redline ... < FILE`.
  bool has_piped_input() const;
  /// Reads all of stdin. invalid_argument: more than `max_bytes`.
  Result<std::string> read_input(size_t max_bytes = size_t{64} << 20);

 private:
  void write_note(const std::string& line);
  void check_output();
  std::FILE* in_;
  std::FILE* out_;
  std::FILE* err_;
  bool reader_is_gone_ = false;
  int error_ = 0;
};

/// Installs handlers for signals that end the process: they remove its unfinished files first. Called by main().
void clean_up_on_signals();

/// Makes these handlers also restore the modes that the terminal has at this call.
void keep_terminal_modes(int descriptor);

/// While an instance exists, the first Ctrl-C (or SIGTERM) only sets a flag; the second ends the process at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();
};

}  // namespace redline::cli
