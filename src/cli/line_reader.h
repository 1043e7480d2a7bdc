// Reads lines that a person types, or that come from a pipe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/terminal.h"

namespace redline::cli {

struct TypedLine {
  enum class Kind : uint8_t {
    kLine,
    kEnd,          ///< end of the input: Ctrl-D, or the end of a pipe
    kInterrupted,  ///< Ctrl-C
  };
  Kind kind = Kind::kLine;
  std::string
      text;  ///< typed text, also that before Ctrl-C, without the final line break; lines pasted together are one text
};

class LineReader {
 public:
  struct Options {
    std::string history_file;        ///< "": the history is not kept
    std::vector<std::string> words;  ///< words that Tab completes at the beginning of a line
  };
  /// Opens an editor with arrow keys and history if standard input and a standard output are terminals and the program
  /// was built with libedit; otherwise a reader of plain lines.
  static std::unique_ptr<LineReader> open(Terminal& terminal, const Options& options);
  virtual ~LineReader() = default;

  /// Reads a line. `preset`: initial text, which can be edited; in an editor only.
  virtual TypedLine read(const std::string& prompt, const std::string& preset = "") = 0;
  /// Adds an entry to the history and to its file.
  virtual void remember(const std::string& entry) = 0;
  /// Returns true if input is interactive, so that a question can be repeated.
  virtual bool is_interactive() const = 0;
};

/// Returns $XDG_STATE_HOME/redline/NAME, else ~/.local/state/redline/NAME; "" if there is no such folder.
std::string state_file(const std::string& name);

}  // namespace redline::cli
