#include "server/http.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/ascii.h"

namespace redline::server {

bool is_request_id(std::string_view id) {
  return !id.empty() && id.size() <= 128 &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 127; });
}

std::string new_request_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:016x}", random(), random());
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200: return "OK";
    case 204: return "No Content";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 408: return "Request Timeout";
    case 413: return "Content Too Large";
    case 429: return "Too Many Requests";
    case 431: return "Request Header Fields Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    default: return "Unknown";
  }
}

std::pair<std::string_view, std::string_view> split_target(std::string_view target) {
  if (target.starts_with("http://") || target.starts_with("https://")) {
    const size_t end = target.find_first_of("/?", target.find("//") + 2);  // of the host
    target = end == std::string_view::npos ? "/" : target.substr(end);
    if (target.starts_with('?')) return {"/", target.substr(1)};
  }
  const size_t mark = target.find('?');
  return {target.substr(0, mark), mark == std::string_view::npos ? "" : target.substr(mark + 1)};
}

bool decode_path(std::string_view path, std::string& decoded) {
  return path.starts_with('/') && percent_decode(path, decoded);
}

bool percent_decode(std::string_view text, std::string& decoded) {
  decoded.clear();
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') return false;
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return false;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

}  // namespace redline::server
