#include "hub/revision.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/ascii.h"
#include "base/json_text.h"

namespace redline {
namespace {

using Json = nlohmann::json;
constexpr size_t kMaxFiles = 200'000, kShownName = 200;

std::string text_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}
int64_t number_at(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : -1;
}

bool is_hex(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return hex_digit(c) >= 0; });
}

}  // namespace

bool is_etag(const std::string& text) {
  return !text.empty() && text.size() <= 128 && text[0] != '.' && std::all_of(text.begin(), text.end(), [](char c) {
    return hex_digit(c) >= 0 || (c >= 'g' && c <= 'z') || (c >= 'G' && c <= 'Z') || c == '-' || c == '_' || c == '.';
  });
}

std::string shortened(const std::string& name) {
  if (name.size() <= kShownName) return name;
  return fmt::format("{}...\" of {} characters, \"{}", name.substr(0, kShownName / 2), name.size(),
                     name.substr(name.size() - kShownName / 4));
}

Result<Revision> read_revision(std::string_view body, const HubName& name, const std::string& endpoint) {
  const auto bad = [&](std::string_view what) {
    return io("{}: the answer of {} is not that of a Hub: {}", name.text(), endpoint, what);
  };
  if (const Status bounds = check_json_bounds(body, "its JSON"); !bounds.ok()) return bad(bounds.message());
  const auto json = parse_json_or_discard<Json>(body);
  if (json.is_discarded()) return bad(fmt::format("{} bytes that are not JSON", body.size()));
  if (!json.is_object()) return bad("no JSON object");
  Revision revision{.commit = text_at(json, "sha"), .files = {}};
  constexpr size_t kCommitDigits = 40;
  if (!is_hex(revision.commit) || revision.commit.size() != kCommitDigits) return bad("no commit (sha)");
  const auto siblings = json.find("siblings");
  if (siblings == json.end() || !siblings->is_array()) return bad("no list of files (siblings)");
  if (siblings->size() > kMaxFiles)
    return bad(fmt::format("{} files; at most {} are listed", siblings->size(), kMaxFiles));
  for (const Json& sibling : *siblings) {
    if (!sibling.is_object()) return bad("a file that is not an object");
    HubFile file{
        .path = text_at(sibling, "rfilename"), .bytes = number_at(sibling, "size"), .etag = text_at(sibling, "blobId")};
    if (const auto lfs = sibling.find("lfs"); lfs != sibling.end() && lfs->is_object()) {
      file.etag = text_at(*lfs, "sha256");
      if (number_at(*lfs, "size") >= 0) file.bytes = number_at(*lfs, "size");
    }
    if (!is_safe_path(file.path)) return bad(fmt::format("a file \"{}\"", shortened(file.path)));
    if (!is_etag(file.etag)) file.etag.clear();
    revision.files.push_back(std::move(file));
  }
  return revision;
}

}  // namespace redline
