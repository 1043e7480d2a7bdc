#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <vector>

#include "text/unicode.h"

namespace redline {
namespace {

// Oniguruma's \s is White_Space. PCRE2's \s also has U+180E, which Unicode 6.3 removed from White_Space.
constexpr std::string_view kSpaceSet =
    "\\x{09}-\\x{0d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kNotSpace =
    "\\x{00}-\\x{08}\\x{0e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{"
    "2027}\\x{202a}-\\x{202e}"
    "\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";
// \w is Alphabetic, M, Nd, Pc and the Latin-1 digits described at is_regex_word(); PCRE2's \w lacks the marks. Written
// without \p{Alphabetic}, which requires PCRE2 10.40.
constexpr std::string_view kWord =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{"
    "1f189}"
    "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

// PCRE2 work limit per match attempt: far above what published patterns need on a megabyte of text.
constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;

template <auto free_function>
struct Free {
  template <class T>
  void operator()(T* p) const {
    free_function(p);
  }
};

/// The match data and context of one thread. Concurrent searches must not share them.
struct Scratch {
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>> stack{
      pcre2_jit_stack_create(64 << 10, 16 << 20, nullptr)};
  Scratch() {
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

}  // namespace

struct Regex::Program {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code;
};

Result<std::string> to_pcre2_syntax(std::string_view in) {
  std::string out;
  out.reserve(in.size() * 2);
  const auto bad = [&](std::string_view what, size_t pos) {
    return unsupported("regex \"{}\": {} at byte {} has no equal in PCRE2", in, what, pos);
  };
  bool in_class = false;
  bool class_begins = false;        // the next character is the first of the class, where ] is literal
  size_t atom = 0;                  // position in `out` of the last atom that a quantifier can follow
  std::vector<size_t> open_groups;  // positions of the open groups in `out`
  for (size_t i = 0; i < in.size(); ++i) {
    const char c = in[i];
    const bool first = class_begins;
    class_begins = false;
    if (c == '\\' && i + 1 < in.size()) {
      const char e = in[++i];
      if (!in_class) atom = out.size();
      const auto put = [&](std::string_view body) { out += in_class ? std::string(body) : fmt::format("[{}]", body); };
      switch (e) {
        case 's': put(kSpaceSet); break;
        case 'S': put(kNotSpace); break;
        case 'w': put(kWord); break;
        case 'h': put("0-9A-Fa-f"); break;
        case 'd': out += "\\p{Nd}"; break;
        case 'D': out += "\\P{Nd}"; break;
        case 'W':
          if (in_class) return bad("\\W inside [...]", i - 1);
          out += fmt::format("[^{}]", kWord);
          break;
        case 'b': out += in_class ? "\\b" : fmt::format("(?:(?<=[{0}])(?![{0}])|(?<![{0}])(?=[{0}]))", kWord); break;
        case 'B':
          if (in_class) return bad("\\B inside [...]", i - 1);
          out += fmt::format("(?:(?<=[{0}])(?=[{0}])|(?<![{0}])(?![{0}]))", kWord);
          break;
        default: {
          out += '\\';
          out += e;
          const size_t close = in.find('}', i);
          if (i + 1 < in.size() && in[i + 1] == '{' && close != std::string_view::npos &&
              std::string_view("pPxogk").find(e) != std::string_view::npos) {
            out += in.substr(i + 1, close - i);
            i = close;
          }
        }
      }
      continue;
    }
    if (in_class) {
      if (c == '^' && first && in[i - 1] == '[') {
        class_begins = true;
      } else if (c == ']' && !first) {
        in_class = false;
      } else if (c == '[') {
        return bad("a class inside a class", i);
      } else if (c == '&' && i + 1 < in.size() && in[i + 1] == '&') {
        return bad("&& inside [...]", i);
      }
      out += c;
      continue;
    }
    switch (c) {
      case '[':
        atom = out.size();
        in_class = class_begins = true;
        break;
      case '(': open_groups.push_back(out.size()); break;
      case ')':
        if (!open_groups.empty()) {
          atom = open_groups.back();
          open_groups.pop_back();
        }
        break;
      case '{': {
        const size_t close = in.find('}', i);
        const std::string_view counts = close == std::string_view::npos ? "" : in.substr(i + 1, close - i - 1);
        if (counts.find_first_of("0123456789") == std::string_view::npos ||
            counts.find_first_not_of("0123456789,") != std::string_view::npos) {
          atom = out.size();
          break;
        }
        out += counts.front() == ',' ? "{0" : "{";
        out.append(counts).append("}");
        i = close;
        // Ruby reads x{1,3}+ as (x{1,3})+; in PCRE2 the + would make the count possessive.
        if (i + 1 < in.size() && in[i + 1] == '+') {
          out.insert(atom, "(?:");
          out += ")+";
          ++i;
        }
        continue;
      }
      case '*':
      case '+':
      case '?':
      case '|':
      case '^':
      case '$': break;
      default: atom = (static_cast<uint8_t>(c) & 0xC0) == 0x80 ? atom : out.size();
    }
    out += c;
  }
  if (in_class) return invalid_argument("regex \"{}\": [ without ]", in);
  return out;
}

Result<Regex> Regex::compile(std::string_view oniguruma) {
  Regex regex;
  regex.pattern_ = oniguruma;
  REDLINE_ASSIGN(const std::string pattern, to_pcre2_syntax(oniguruma));
  std::unique_ptr<pcre2_compile_context, Free<pcre2_compile_context_free>> context(
      pcre2_compile_context_create(nullptr));
  if (!context) return out_of_memory("regex \"{}\": no memory to compile it", oniguruma);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  pcre2_set_parens_nest_limit(context.get(), 100);
  int error = 0;
  PCRE2_SIZE place = 0;
  auto program = std::make_shared<Program>();
  // Ruby's ^ and $ always match at lines, hence MULTILINE.
  program->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &place,
                                    context.get()));
  if (!program->code) {
    char words[160] = "";
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(words), sizeof(words));
    return invalid_argument("regex \"{}\": {} (at byte {} of \"{}\")", oniguruma, words, place, pattern);
  }
  // Without JIT support PCRE2 falls back to its interpreter, with the same results.
  pcre2_jit_compile(program->code.get(), PCRE2_JIT_COMPLETE);
  regex.program_ = std::move(program);
  return regex;
}

size_t Regex::match_at(std::string_view text, size_t from) const {
  thread_local Scratch scratch;
  if (!scratch.data || !scratch.context) return from;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  int rc = pcre2_match(program_->code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK, scratch.data.get(),
                       scratch.context.get());
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
    rc = pcre2_match(program_->code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                     scratch.data.get(), scratch.context.get());
  if (rc < 0) return from;
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data.get());
  return ends[0] == from && ends[1] > from ? ends[1] : from;
}

void Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  for_each(text, [&](Span match) {
    matches.push_back(match);
    return true;
  });
}

void Regex::for_each(std::string_view text, const std::function<bool(Span)>& visit) const {
  thread_local Scratch scratch;
  if (!scratch.data || !scratch.context) return;  // out of memory: no matches
  bool goes_on = true;
  for_each_utf8_run(text, [&](std::string_view run, bool valid) {
    if (!valid || !goes_on) return;
    const size_t base = static_cast<size_t>(run.data() - text.data());
    const auto* subject = reinterpret_cast<PCRE2_SPTR>(run.data());
    size_t from = 0;
    size_t last_end = std::string_view::npos;
    uint32_t options = PCRE2_NO_UTF_CHECK;
    while (from <= run.size()) {
      int rc = pcre2_match(program_->code.get(), subject, run.size(), from, options, scratch.data.get(),
                           scratch.context.get());
      if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
        rc = pcre2_match(program_->code.get(), subject, run.size(), from, options | PCRE2_NO_JIT, scratch.data.get(),
                         scratch.context.get());
      }
      if (rc < 0) break;  // no match, or the work limit
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(scratch.data.get());
      const size_t begin = ends[0], end = ends[1];
      if (begin > end) break;  // possible with \K inside a lookahead; no tokenizer needs it
      if (begin == end && begin == last_end) {
        if (from >= run.size()) break;
        from = end + utf8_at(run, end).bytes;
        last_end = end;
        continue;
      }
      last_end = end;
      from = end;
      if (!(goes_on = visit({base + begin, base + end}))) return;
    }
  });
}

}  // namespace redline
