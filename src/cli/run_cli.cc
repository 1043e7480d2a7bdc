// From the command line to a command, and from its Status to an exit code.
#include <algorithm>
#include <cstdio>
#include <new>
#include <stdexcept>
#include <system_error>

#include "base/late_failure.h"
#include "base/settings.h"
#include "cli/command.h"
#include "cli/flag_names.h"
#include "cli/json.h"
#include "cli/memory_advice.h"
#include "cli/table.h"
#include "redline/device_notice.h"

namespace redline::cli {
namespace {

bool asks_for_json(std::span<const std::string> arguments) {
  const auto end = std::find(arguments.begin(), arguments.end(), "--");
  return std::find(arguments.begin(), end, "--json") != end;
}

/// A command of another program, and the equivalent command of Redline.
struct PeerCommand {
  const char* name;
  const char* answer;
};
constexpr PeerCommand kPeerCommands[] = {
    {"generate", "did you mean run, or image?"},
    {"complete", "did you mean run?"},
    {"cli", "did you mean run?"},
    {"txt2img", "did you mean image?"},
    {"img2img", "did you mean image, with --init-image FILE?"},
    {"img_gen", "did you mean image?"},
    {"sd", "did you mean image?"},
    {"draw", "did you mean image?"},
    {"perplexity", "did you mean eval?"},
    {"ppl", "did you mean eval?"},
    {"info", "did you mean inspect, or devices?"},
    {"ls", "did you mean list?"},
    {"remove", "did you mean rm?"},
    {"delete", "did you mean rm?"},
    {"download", "did you mean pull?"},
    {"ps", "no model stays loaded after a command"},
    {"stop", "no model stays loaded after a command"},
    {"create", "did you mean convert?"},
    {"gguf-split", "all parts of a split model are found by the name of any of them"},
};

/// Returns the error for "redline -m F -p P", in which the command is missing.
Status command_missing(std::string_view flag) {
  return invalid_argument(
      "'{}': the command comes first, as in redline run {} ... for text or redline image {} ... for images; see "
      "redline help",
      flag, flag, flag);
}

Status dispatch(std::span<const std::string> arguments, Terminal& terminal) {
  const std::string name = arguments.empty() || arguments[0] == "-h" || arguments[0] == "--help" ? "help"
                           : arguments[0] == "--version"                                         ? "version"
                                                                                                 : arguments[0];
  if (arguments.size() > 1)
    if (const Command* command = find_command(fmt::format("{} {}", name, arguments[1])))
      return command->run(*command, arguments.subspan(2), terminal);
  if (const Command* command = find_command(name))
    return command->run(*command, arguments.empty() ? arguments : arguments.subspan(1), terminal);
  if (name.starts_with('-')) return command_missing(name);
  for (const PeerCommand& peer : kPeerCommands)
    if (name == peer.name) return invalid_argument("unknown command '{}'; {}", name, peer.answer);
  std::vector<std::string> names;
  for (const Command& c : commands()) names.push_back(c.name);
  const std::string hint = nearest_hint(name, names);
  return invalid_argument("unknown command '{}'{}", name,
                          hint.empty() ? fmt::format("; the commands are {}", fmt::join(names, ", ")) : hint);
}

/// Runs a command. Catches bad_alloc thrown outside the engine, for example while a command builds a table.
Status dispatch_guarded(std::span<const std::string> arguments, Terminal& terminal) {
  try {
    return dispatch(arguments, terminal);
  } catch (const std::bad_alloc&) {
    return out_of_memory("there is not enough memory; {:.0f} MB are available",
                         static_cast<double>(available_memory()) / 1e6);
  } catch (const std::length_error&) {
    return out_of_memory("there is not enough memory: a size exceeds the address space");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again)
      return out_of_memory("the system starts no further thread: {}", error.what());
    return internal("an exception: {}", error.what());
  } catch (const std::exception& error) {
    return internal("an exception: {}", error.what());
  }
}

/// Makes each line printable. Names from files and arguments may contain control bytes; line breaks come from Redline's
/// own messages, such as the report of a hang.
std::string printable_lines(std::string_view text) {
  std::string result;
  for (size_t begin = 0;;) {
    const size_t end = text.find('\n', begin);
    result += printable(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return result;
    result += '\n';
    begin = end + 1;
  }
}

}  // namespace

int run_cli(std::span<const std::string> arguments, Terminal& terminal) {
  for (const std::string& warning : warn_unknown_settings()) terminal.note("redline: warning: {}", warning);
  on_device_notice([](const std::string& sentence) {  // may be called from any thread, so write it with one call
    std::fputs(("redline: " + sentence + "\n").c_str(), stderr);
  });
  Status status = dispatch_guarded(arguments, terminal);
  if (!status.ok()) status = Status(status.code(), with_flag_names(status.message()));
  // Flush the output first. A failed write is reported if nothing else went wrong.
  if (Status written = terminal.finish(); status.ok()) status = std::move(written);
  // A timeline may have failed to be written when the engine was closed. Its message is already on stderr.
  if (status.ok()) return exit_code(has_late_failure() ? Code::io : Code::ok);
  // A command cancelled by Ctrl-C has already printed its message.
  if (status.code() == Code::cancelled && status.message().empty()) return exit_code(Code::cancelled);
  if (asks_for_json(arguments)) {
    terminal.note("{}", to_text({{"error", {{"code", code_name(status.code())}, {"message", status.message()}}}}, -1));
  } else {
    terminal.note("redline: {}", printable_lines(status.to_string()));
  }
  return exit_code(status.code());
}

}  // namespace redline::cli
