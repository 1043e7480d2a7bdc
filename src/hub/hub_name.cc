#include "hub/hub_name.h"

#include <algorithm>

namespace redline {
namespace {

constexpr std::string_view kHosts[] = {"https://huggingface.co/", "http://huggingface.co/", "huggingface.co/",
                                       "https://hf.co/", "hf.co/"};

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }

/// Returns true for a part of a name that follows the rule of the Hub: letters, digits, '-', '_' and '.'; neither "--"
/// nor "..", which the cache's folder names need.
bool is_name_part(std::string_view part) {
  if (part.empty() || part.size() > 96 || part.front() == '-' || part.front() == '.' || part.back() == '-' ||
      part.back() == '.')
    return false;
  if (part.find("--") != std::string_view::npos || part.find("..") != std::string_view::npos) return false;
  return std::all_of(part.begin(), part.end(),
                     [](char c) { return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.'; });
}

Status bad_name(std::string_view text) {
  constexpr size_t kShown = 100;
  if (text.size() > 2 * kShown)
    return invalid_argument(
        "\"{}...\" has {} characters, which no name of a model on Hugging Face has; expected hf:owner/name",
        text.substr(0, kShown), text.size());
  return invalid_argument(
      "\"{}\" is not a name of a model on Hugging Face; expected hf:owner/name, with @revision, and with :FILE or a "
      "quantization such as :Q4_K_M where one is meant",
      text);
}

/// Removes the text before `separator` from `rest`, and the separator, and returns the text. Without a separator, takes
/// all.
std::string_view take_until(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view head = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return head;
}

/// Reads "owner/name/blob/main/FILE", which is the path of a web address.
Result<HubName> from_address(std::string_view text, std::string_view rest) {
  rest = rest.substr(0, rest.find_first_of("?#"));
  const std::string_view owner = take_until(rest, '/');
  std::string_view name = take_until(rest, '/');
  HubName result;
  if (const size_t colon = name.find(':'); colon != std::string_view::npos) {  // hf.co/owner/name:Q4_K_M
    result.selection = name.substr(colon + 1);
    name = name.substr(0, colon);
  }
  result.repository = fmt::format("{}/{}", owner, name);
  if (!is_name_part(owner) || !is_name_part(name)) return bad_name(text);
  if (rest.empty()) return result;
  const std::string_view what = take_until(rest, '/');
  if (what != "blob" && what != "resolve" && what != "tree") return bad_name(text);
  result.revision = take_until(rest, '/');
  if (what != "tree") result.selection = rest;
  return result;
}

}  // namespace

std::string HubName::text() const {
  std::string result = "hf:" + repository;
  if (revision != "main") result += "@" + revision;
  if (!selection.empty()) result += ":" + selection;
  return result;
}

bool is_hub_name(std::string_view text) {
  return text.starts_with("hf:") ||
         std::any_of(std::begin(kHosts), std::end(kHosts), [&](auto host) { return text.starts_with(host); });
}

Result<HubName> parse_hub_name(std::string_view text) {
  HubName name;
  bool is_address = false;
  for (const std::string_view host : kHosts) {
    if (!text.starts_with(host)) continue;
    REDLINE_ASSIGN(name, from_address(text, text.substr(host.size())));
    is_address = true;
    break;
  }
  if (!is_address) {
    if (!text.starts_with("hf:")) return bad_name(text);
    std::string_view rest = text.substr(3);
    if (rest.starts_with("//")) rest.remove_prefix(2);
    // A revision may contain slashes, and so may a file. So the first ':' begins the selection, and the first '@'
    // before it begins the revision.
    std::string_view head = take_until(rest, ':');
    name.selection = rest;
    const bool has_revision = head.find('@') != std::string_view::npos;
    name.repository = take_until(head, '@');
    if (has_revision) name.revision = head;
    std::string_view parts = name.repository;
    const std::string_view owner = take_until(parts, '/');
    if (!is_name_part(owner) || (name.repository.size() > owner.size() && !is_name_part(parts))) return bad_name(text);
  }
  if (name.selection == "latest") name.selection.clear();
  // Git allows no colon either; in hf:owner/name@revision:FILE it ends the revision.
  if (!is_safe_path(name.revision) || name.revision.find(':') != std::string::npos) return bad_name(text);
  if (!name.selection.empty() && !is_safe_path(name.selection)) return bad_name(text);
  return name;
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  for (const char c : path)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  for (std::string_view rest = path;;) {
    const size_t end = rest.find('/');
    const std::string_view part = rest.substr(0, end);
    if (part.empty() || part == "." || part == "..") return false;
    if (end == std::string_view::npos) return true;
    rest.remove_prefix(end + 1);
  }
}

}  // namespace redline
