// redline version: version and build of this program.
#include "cli/command.h"
#include "cli/json.h"

#ifndef REDLINE_VERSION
#define REDLINE_VERSION "0.0.0"
#endif

namespace redline::cli {

std::string_view version_text() { return "redline " REDLINE_VERSION; }

namespace {

struct VersionArgs {
  bool json = false;
  void visit(OptionList& v) { v(json, "json", "", "print JSON"); }
};

Status run_version(const VersionArgs& args, Terminal& terminal) {
  if (!args.json) {
    terminal.print("{}\n", version_text());
    return {};
  }
#if defined(__clang__)
  const char* compiler = "clang " __clang_version__;
#else
  const char* compiler = "gcc " __VERSION__;
#endif
#ifdef NDEBUG
  const bool has_checks = false;
#else
  const bool has_checks = true;
#endif
  return print_json(
      {{"name", "redline"}, {"version", REDLINE_VERSION}, {"compiler", compiler}, {"debug_checks", has_checks}},
      terminal);
}

}  // namespace

Command version_command() {
  return make_command<VersionArgs, run_version>("version", "print the version", "",
                                                {"redline version", "redline version --json"})
      .in("this program", /*after_name=*/"completion");
}

}  // namespace redline::cli
