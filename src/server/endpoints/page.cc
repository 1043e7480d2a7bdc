// GET /: the page of web/, and its files.
#include <algorithm>

#include "server/app.h"
#include "server/web_bundle.h"

namespace redline::server {
namespace {

/// Returns true if If-None-Match lists the ETag, or is "*".
bool has_current(std::string_view if_none_match, std::string_view etag) {
  return if_none_match == "*" || if_none_match.find(etag) != std::string::npos;
}

AnswerOr get_file(Call& call) {
  const std::span<const WebFile> files = web_files();
  const auto file =
      std::find_if(files.begin(), files.end(), [&](const WebFile& f) { return f.path == call.http.path; });
  if (file == files.end()) return not_found_error("", "there is no such file", "not_found");
  const bool is_current = has_current(call.http.header("if-none-match"), file->etag);
  // Every browser takes gzip; a client that says that it does not cannot run the page either.
  auto answer = std::make_unique<FixedAnswer>(is_current ? "" : std::string(file->bytes), is_current ? 304 : 200);
  answer->content_type = file->content_type;
  answer->headers = {{"ETag", std::string(file->etag)},
                     {"Cache-Control", "no-cache"},
                     {"Content-Security-Policy", std::string(kWebPolicy)},
                     {"X-Content-Type-Options", "nosniff"},
                     {"Referrer-Policy", "no-referrer"}};
  if (!file->encoding.empty()) answer->headers.emplace_back("Content-Encoding", std::string(file->encoding));
  return std::unique_ptr<Answer>(std::move(answer));
}

}  // namespace

std::vector<Endpoint> page_endpoints() {
  std::vector<Endpoint> rows;
  for (const WebFile& file : web_files())
    rows.push_back({"GET",
                    std::string(file.path),
                    "page",
                    file.path == "/" ? "the page" : "a file of the page",
                    {{200, "the file", nullptr, std::string(file.content_type.substr(0, file.content_type.find(';')))},
                     {304, "the client has it already"}},
                    get_file,
                    {.needs_key = false}});
  return rows;
}

}  // namespace redline::server
