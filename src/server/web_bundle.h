// The web page at /: the files of web/dist, compiled into the program by cmake/EmbedWeb.cmake.
#pragma once

#include <span>
#include <string_view>

namespace redline::server {

struct WebFile {
  std::string_view path;          ///< "/" for index.html, else "/app.js"
  std::string_view content_type;  ///< with a charset for text
  std::string_view encoding;      ///< value of Content-Encoding: "gzip"; "": `bytes` are the file
  std::string_view etag;          ///< with its quotes; a hash of the bytes
  std::string_view bytes;         ///< the bytes as sent
};

/// Returns the files in order of path.
std::span<const WebFile> web_files();

/// Content-Security-Policy of every file. The page loads nothing from elsewhere, runs no script but its own file, has
/// no inline script or style, and makes no HTML from strings (trusted types). A browser with an old version of a file
/// revalidates (Cache-Control: no-cache) and gets 304 by the ETag.
inline constexpr std::string_view kWebPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob: data:; connect-src 'self'; "
    "manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

}  // namespace redline::server
