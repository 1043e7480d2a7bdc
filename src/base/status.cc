#include "redline/status.h"

#include <cstdio>
#include <cstdlib>

#include "base/error.h"

namespace redline {
namespace {

struct CodeRow {
  Code code;
  std::string_view name;
  int exit_code;
};
constexpr CodeRow kCodes[] = {
    {Code::ok, "ok", 0},
    {Code::invalid_argument, "invalid_argument", 2},
    {Code::not_found, "not_found", 3},
    {Code::unsupported, "unsupported", 4},
    {Code::out_of_memory, "out_of_memory", 5},
    {Code::cancelled, "cancelled", 130},
    {Code::io, "io", 6},
    {Code::internal, "internal", 1},
    {Code::out_of_device_memory, "out_of_memory", 5},
};
const CodeRow& row(Code code) { return kCodes[static_cast<size_t>(code)]; }

/// Returns the length of the name of the file or folder `place` at the start of `message`. The name is its path, also
/// as the beginning of the path of a file in the folder, or the last component of its path if that has an extension.
/// 0: the message does not begin with such a name.
size_t named_path_size(std::string_view message, std::string_view place) {
  const auto begins_with = [&](std::string_view path, std::string_view next) {
    return !path.empty() && message.starts_with(path) && message.size() > path.size() &&
           next.find(message[path.size()]) != std::string_view::npos;
  };
  const bool is_path = place.find('/') != std::string_view::npos;
  if (begins_with(place, is_path ? "/: " : "/")) return place.size();
  const std::string_view name = place.substr(place.find_last_of('/') + 1);
  return name.find('.') != std::string_view::npos && begins_with(name, ": ") ? name.size() : 0;
}

}  // namespace

std::string_view code_name(Code code) { return row(code).name; }
int exit_code(Code code) { return row(code).exit_code; }

std::string Status::to_string() const { return ok() ? "ok" : fmt::format("{}: {}", code_name(code_), message_); }

Status Status::within(std::string_view place) && {
  if (ok()) return std::move(*this);
  // A reader that was given a text names its file by the usual name, and its caller adds the path of the same file.
  if (const size_t named = named_path_size(message_, place)) message_.replace(0, named, place);
  else message_ = fmt::format("{}: {}", place, message_);
  return std::move(*this);
}
Status Status::within(std::string_view place) const& { return Status(*this).within(place); }

void detail::no_value(const Status& status) {
  fmt::print(stderr, "redline: the value of a failed Result was read: {}\n", status.to_string());
  std::abort();
}

void detail::check_failed(const char* file, int line, const char* condition) {
  fmt::print(stderr, "redline: internal error at {}:{}: {} does not hold\n", file, line, condition);
  std::abort();
}

}  // namespace redline
