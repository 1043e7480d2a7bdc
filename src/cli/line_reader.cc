#include "cli/line_reader.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <clocale>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <filesystem>
#include <string_view>

#include "base/environment.h"
#include "base/output_file.h"

#ifdef REDLINE_HAS_LIBEDIT
#include <histedit.h>
#include <langinfo.h>
#endif

namespace redline::cli {
namespace {

/// Reads lines without editing. Prints prompts only if a person types.
class PlainReader : public LineReader {
 public:
  explicit PlainReader(Terminal& terminal)
      : terminal_(terminal), is_interactive_(::isatty(fileno(terminal.input())) == 1) {}

  TypedLine read(const std::string& prompt, const std::string&) override {
    if (is_interactive_) {
      terminal_.write(prompt);
      terminal_.flush();
    }
    std::string text;
    char buffer[4096];
    while (std::fgets(buffer, sizeof buffer, terminal_.input())) {
      text += buffer;
      if (!text.ends_with('\n')) continue;
      text.pop_back();
      if (text.ends_with('\r')) text.pop_back();
      return {TypedLine::Kind::kLine, std::move(text)};
    }
    return {text.empty() ? TypedLine::Kind::kEnd : TypedLine::Kind::kLine, std::move(text)};
  }
  void remember(const std::string&) override {}
  bool is_interactive() const override { return is_interactive_; }

 private:
  Terminal& terminal_;
  const bool is_interactive_;
};

#ifdef REDLINE_HAS_LIBEDIT

/// Reads lines with libedit: usual editing keys, pasted text of several lines, and Ctrl-C as a key.
class EditReader : public LineReader {
 public:
  /// Returns nullptr if libedit cannot edit on this terminal.
  static std::unique_ptr<EditReader> open(Terminal& terminal, Options options) {
    const char* const type = std::getenv("TERM");
    if (!type || !*type || std::string_view(type) == "dumb") return nullptr;
    std::FILE* const out = ::isatty(fileno(terminal.output())) == 1 ? terminal.output() : terminal.errors();
    if (::isatty(fileno(terminal.input())) != 1 || ::isatty(fileno(out)) != 1) return nullptr;
    // libedit counts columns of characters, which needs a locale other than C.
    std::setlocale(LC_CTYPE, "");
    if (std::string_view(::nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
    keep_terminal_modes(fileno(terminal.input()));
    auto reader = std::unique_ptr<EditReader>(new EditReader(std::move(options)));
    reader->edit_ = el_init("redline", terminal.input(), out, terminal.errors());
    reader->history_ = history_init();
    if (!reader->edit_ || !reader->history_) return nullptr;
    reader->out_ = out;
    reader->set_up();
    return reader;
  }

  ~EditReader() override {
    if (history_) history_end(history_);
    if (edit_) el_end(edit_);
  }
  EditReader(const EditReader&) = delete;
  EditReader& operator=(const EditReader&) = delete;

  TypedLine read(const std::string& prompt, const std::string& preset) override {
    prompt_ = prompt;
    is_interrupted_ = false;
    el_resize(edit_);
    // The initial text is inserted as if it had been typed, but its line breaks must not end the line.
    preset_ = preset;
    if (!preset_.empty()) el_push(edit_, kPresetKey);
    // Enter raw mode before the prompt appears, because text typed between the two would be read as lines.
    el_set(edit_, EL_PREP_TERM, 1);
    set_paste_marks(true);
    int length = 0;
    const char* line = el_gets(edit_, &length);
    set_paste_marks(false);
    if (is_interrupted_) return {TypedLine::Kind::kInterrupted, line ? line : ""};
    if (!line || length <= 0) {
      std::fputc('\n', out_);
      std::fflush(out_);
      return {TypedLine::Kind::kEnd, ""};
    }
    std::string text(line, static_cast<size_t>(length));
    if (text.ends_with('\n')) text.pop_back();
    return {TypedLine::Kind::kLine, std::move(text)};
  }

  void remember(const std::string& entry) override {
    if (entry.empty()) return;
    HistEvent event;
    history(history_, &event, H_ENTER, entry.c_str());
    if (options_.history_file.empty()) return;
    // Only the owner may read the history.
    const mode_t before = ::umask(S_IRWXG | S_IRWXO);
    history(history_, &event, H_SAVE, options_.history_file.c_str());
    ::umask(before);
  }
  bool is_interactive() const override { return true; }

 private:
  static constexpr int kMaxHistory = 1000;
  static constexpr const char* kPresetKey = "\x1b[preset~";  // a sequence that no key sends

  explicit EditReader(Options options) : options_(std::move(options)) {}

  static EditReader& self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return *static_cast<EditReader*>(data);
  }

  void set_up() {
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(
        edit_, EL_PROMPT, +[](EditLine* edit) { return self(edit).prompt_.data(); });
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 0);
    HistEvent event;
    history(history_, &event, H_SETSIZE, kMaxHistory);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!options_.history_file.empty()) history(history_, &event, H_LOAD, options_.history_file.c_str());
    el_set(edit_, EL_HIST, history, history_);

    el_set(
        edit_, EL_ADDFN, "redline-interrupt", "ends the line", +[](EditLine* edit, int) -> unsigned char {
          self(edit).is_interrupted_ = true;
          std::fputs("^C\n", self(edit).out_);
          return CC_NEWLINE;
        });
    el_set(
        edit_, EL_ADDFN, "redline-line-break", "inserts a line break",
        +[](EditLine* edit, int) -> unsigned char { return el_insertstr(edit, "\n") == 0 ? CC_REFRESH : CC_ERROR; });
    el_set(
        edit_, EL_ADDFN, "redline-paste", "inserts pasted text", +[](EditLine* edit, int) -> unsigned char {
          const std::string text = self(edit).pasted_text();
          return text.empty() || el_insertstr(edit, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
        });
    el_set(
        edit_, EL_ADDFN, "redline-preset", "inserts the text to edit", +[](EditLine* edit, int) -> unsigned char {
          return el_insertstr(edit, self(edit).preset_.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
        });
    el_set(
        edit_, EL_ADDFN, "redline-complete", "completes a command",
        +[](EditLine* edit, int) -> unsigned char { return self(edit).complete(); });
    el_set(
        edit_, EL_ADDFN, "redline-suspend", "stops the program", +[](EditLine* edit, int) -> unsigned char {
          el_set(edit, EL_PREP_TERM, 0);
          std::raise(SIGTSTP);
          el_set(edit, EL_PREP_TERM, 1);
          return CC_REDISPLAY;
        });
    // Ctrl-C and Ctrl-Z are keys while a line is edited, and send signals during the answer.
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    struct Binding {
      const char *key, *function;
    };
    // While libedit reads, Enter comes as \n and Ctrl-J as \r.
    constexpr Binding kBindings[] = {
        {"^C", "redline-interrupt"},       {"^Z", "redline-suspend"},     {"\\e\\r", "redline-line-break"},
        {"\\e\\n", "redline-line-break"},  {"\\r", "redline-line-break"}, {"\\e[200~", "redline-paste"},
        {"\\e[preset~", "redline-preset"}, {"\\t", "redline-complete"},   {"^R", "em-inc-search-prev"},
        {"\\e[3~", "ed-delete-next-char"}, {"\\e[H", "ed-move-to-beg"},   {"\\e[F", "ed-move-to-end"},
        {"\\e[1~", "ed-move-to-beg"},      {"\\e[4~", "ed-move-to-end"},  {"\\e[1;5C", "em-next-word"},
        {"\\e[1;5D", "ed-prev-word"},      {"\\e[1;3C", "em-next-word"},  {"\\e[1;3D", "ed-prev-word"},
    };
    for (const Binding& b : kBindings) el_set(edit_, EL_BIND, b.key, b.function, nullptr);
  }

  /// Switches bracketed paste (xterm), in which the terminal marks pasted text, so that its line breaks do not end
  /// lines.
  void set_paste_marks(bool on) {
    std::fputs(on ? "\x1b[?2004h" : "\x1b[?2004l", out_);
    std::fflush(out_);
  }

  std::string pasted_text() {
    constexpr std::string_view kEnd = "\x1b[201~";
    constexpr size_t kMaxPasted = size_t{1} << 20;
    std::string text;
    wchar_t c = 0;
    while (!text.ends_with(kEnd) && text.size() < kMaxPasted && el_wgetc(edit_, &c) == 1) {
      char bytes[MB_LEN_MAX];
      std::mbstate_t state = {};
      const size_t size = std::wcrtomb(bytes, c == L'\r' ? L'\n' : c, &state);
      if (size <= sizeof bytes) text.append(bytes, size);
    }
    if (text.ends_with(kEnd)) text.resize(text.size() - kEnd.size());
    // Control bytes in pasted text are not keys.
    std::erase_if(text, [](char b) { return static_cast<unsigned char>(b) < 0x20 && b != '\n' && b != '\t'; });
    return text;
  }

  unsigned char complete() {
    const LineInfo* line = el_line(edit_);
    const std::string_view typed(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
    std::vector<std::string_view> fitting;
    for (const std::string& word : options_.words)
      if (word.starts_with(typed)) fitting.emplace_back(word);
    if (typed.empty() || fitting.empty()) return CC_ERROR;
    // Complete the common beginning of all candidates.
    std::string_view common = fitting[0];
    for (const std::string_view word : fitting)
      common = common.substr(
          0, static_cast<size_t>(std::mismatch(common.begin(), common.end(), word.begin(), word.end()).first -
                                 common.begin()));
    std::string rest(common.substr(typed.size()));
    if (fitting.size() == 1) rest += ' ';
    if (rest.empty()) return CC_ERROR;
    return el_insertstr(edit_, rest.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  const Options options_;
  EditLine* edit_ = nullptr;
  ::History* history_ = nullptr;
  std::FILE* out_ = nullptr;
  std::string prompt_, preset_;
  bool is_interrupted_ = false;
};

#endif

}  // namespace

std::unique_ptr<LineReader> LineReader::open(Terminal& terminal, const Options& options) {
#ifdef REDLINE_HAS_LIBEDIT
  if (auto reader = EditReader::open(terminal, options)) return reader;
#endif
  static_cast<void>(options);
  return std::make_unique<PlainReader>(terminal);
}

std::string state_file(const std::string& name) {
  std::string folder = environment_folder("XDG_STATE_HOME");
  if (const std::string home = environment_folder("HOME"); folder.empty() && !home.empty())
    folder = home + "/.local/state";
  if (folder.empty()) return "";
  folder += "/redline";
  return create_folder(folder).ok() ? folder + "/" + name : "";
}

}  // namespace redline::cli
