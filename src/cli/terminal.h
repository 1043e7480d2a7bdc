// Where a command reads and writes: results to stdout, everything else to
// stderr.
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

  /// Writes results. False when nobody reads them any more (`redline ... |
  /// head`): the command should stop quietly.
  bool write(std::string_view text);
  template <class... A>
  bool print(fmt::format_string<A...> text, A&&... args) {
    return write(fmt::format(text, std::forward<A>(args)...));
  }
  /// Writes what was printed so far, for text that streams.
  bool flush();
  /// io: stdout could not be written (a full disk). A reader that left is no
  /// failure.
  Status finish();
  bool reader_is_gone() const { return reader_is_gone_; }
  /// Where results go, for asking what it is.
  std::FILE* output() const { return out_; }

  /// A line of information, warning or error on stderr.
  template <class... A>
  void note(fmt::format_string<A...> text, A&&... args) {
    write_note(fmt::format(text, std::forward<A>(args)...));
  }

  /// Everything of stdin. invalid_argument when it is larger than `max_bytes`.
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

/// While one lives, the first Ctrl-C (or SIGTERM) only sets a flag; the second
/// ends the process at once.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  static bool interrupted();
};

}  // namespace redline::cli
