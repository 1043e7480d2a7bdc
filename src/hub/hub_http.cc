#include "hub/hub_http.h"

#include <curl/curl.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "base/ascii.h"

namespace redline {
namespace {

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

bool is_network_trouble(CURLcode code) {
  switch (code) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_SSL_CONNECT_ERROR:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM: return true;
    default: return false;
  }
}

/// Returns true for 408, 429 and errors of the server.
bool is_busy(long status) {
  constexpr long kTimeout = 408, kTooMany = 429, kServer = 500;
  return status == kTimeout || status == kTooMany || status >= kServer;
}

struct Transfer {
  const HttpRequest& request;
  HttpAnswer& answer;
  const HubHttp& http;
  size_t header_bytes = 0;  ///< bytes of headers of all responses, redirects included
  std::string problem;      ///< reason for which this program has ended the transfer; empty: it has not
};

size_t take_header(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  HttpAnswer& answer = transfer.answer;
  const std::string_view line(data, size * count);
  transfer.header_bytes += line.size();
  if (transfer.header_bytes > kMaxHubHeaders) {
    transfer.problem = fmt::format("its headers have more than {} bytes", kMaxHubHeaders);
    return 0;
  }
  if (line.starts_with("HTTP/")) {  // a status line begins the next response, for example after a redirect
    answer.headers.clear();
    const std::string_view status = trimmed(line.substr(std::min(line.find(' '), line.size())));
    std::from_chars(status.data(), status.data() + status.size(), answer.status);
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    answer.headers[ascii_lower(line.substr(0, colon))] = trimmed(line.substr(colon + 1));
  }
  return size * count;
}

size_t take_body(char* data, size_t size, size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  const size_t bytes = size * count;
  const bool is_wanted = transfer.answer.status == 200 || transfer.answer.status == 206;
  if (is_wanted && transfer.request.on_body)
    return transfer.request.on_body(transfer.answer, {data, bytes}) ? bytes : bytes + 1;  // + 1: an error to libcurl
  const std::string stated = transfer.answer.header("content-length");
  int64_t length = 0;
  std::from_chars(stated.data(), stated.data() + stated.size(), length);
  if (std::max(transfer.answer.body.size() + bytes, static_cast<size_t>(std::max<int64_t>(length, 0))) > kMaxHubBody) {
    transfer.problem = fmt::format("its answer has more than {} bytes", kMaxHubBody);
    return bytes + 1;
  }
  transfer.answer.body.append(data, bytes);
  return bytes;
}

int check_cancelled(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<Transfer*>(user)->http.is_cancelled() ? 1 : 0;
}

/// Returns the file of certificates that the environment names for other programs; nullptr: none.
const char* own_certificates() {
  for (const char* name : {"REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"})
    if (const char* path = std::getenv(name); path && *path) return path;
  return nullptr;
}

}  // namespace

struct HubHttp::Connection {
  CURL* curl = curl_easy_init();
  ~Connection() { curl_easy_cleanup(curl); }
};

std::string HttpAnswer::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

HubHttp::HubHttp(const HubSettings& settings, std::function<bool()> is_cancelled)
    : settings_(settings), is_cancelled_(std::move(is_cancelled)) {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  static_cast<void>(kReady);
  connection_ = std::make_unique<Connection>();
}

HubHttp::~HubHttp() = default;

HttpAnswer HubHttp::send(const HttpRequest& request) {
  HttpAnswer answer;
  CURL* const curl = connection_->curl;
  if (!curl) {
    answer.failure = "libcurl cannot be initialized";
    return answer;
  }
  constexpr long kMaxRedirects = 10;
  Transfer transfer{request, answer, *this, 0, ""};
  char message[CURL_ERROR_SIZE] = "";
  curl_easy_reset(curl);  // keeps connections
  curl_easy_setopt(curl, CURLOPT_URL, request.url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  // A request over TLS must not be redirected to a URL without TLS.
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, request.url.starts_with("https://") ? "https" : "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
  curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS,
                   request.url.starts_with("https://") ? CURLPROTO_HTTPS : CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, request.follows_redirects ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_MAXREDIRS, kMaxRedirects);
  curl_easy_setopt(curl, CURLOPT_NOBODY, request.is_head ? 1L : 0L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "redline");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, static_cast<long>(settings_.timeout_s));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, static_cast<long>(kMinBytesPerSecond));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, static_cast<long>(settings_.timeout_s));
  if (!request.on_body) curl_easy_setopt(curl, CURLOPT_TIMEOUT, static_cast<long>(kMaxTimeouts * settings_.timeout_s));
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, message);
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, take_header);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, take_body);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, check_cancelled);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  if (request.offset > 0) curl_easy_setopt(curl, CURLOPT_RANGE, fmt::format("{}-", request.offset).c_str());
  if (const char* path = own_certificates()) curl_easy_setopt(curl, CURLOPT_CAINFO, path);
  // The token is given as a bearer token, which libcurl does not send to the host of a redirect.
  if (!settings_.token.empty()) {
    curl_easy_setopt(curl, CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    curl_easy_setopt(curl, CURLOPT_XOAUTH2_BEARER, settings_.token.c_str());
  }
  const CURLcode code = curl_easy_perform(curl);
  answer.is_cancelled = code == CURLE_ABORTED_BY_CALLBACK;
  if (code != CURLE_OK) answer.failure = *message ? message : curl_easy_strerror(code);
  if (!transfer.problem.empty()) answer.failure = transfer.problem;
  curl_off_t received = 0;
  curl_easy_getinfo(curl, CURLINFO_SIZE_DOWNLOAD_T, &received);
  answer.is_slow = code == CURLE_OPERATION_TIMEDOUT && (received > 0 || transfer.header_bytes > 0);
  if (answer.is_slow)
    answer.failure = fmt::format(
        "the answer comes too slowly: {} bytes arrived, and then less than {} bytes a second "
        "for {} s (HF_HUB_DOWNLOAD_TIMEOUT)",
        received, kMinBytesPerSecond, settings_.timeout_s);
  // An answer that was too slow would be too slow again, so it is not tried again. A download of a file is, because it
  // resumes from its last byte.
  answer.is_worth_another_try = (is_network_trouble(code) && !(answer.is_slow && !request.on_body)) ||
                                (code == CURLE_OK && is_busy(answer.status));
  const std::string after = answer.header("retry-after");
  int64_t seconds = 0;
  if (const auto read = std::from_chars(after.data(), after.data() + after.size(), seconds);
      read.ec == std::errc() && read.ptr == after.data() + after.size() && seconds >= 0)
    answer.retry_after_s = seconds;
  if (answer.retry_after_s > kMaxRetryAfter) answer.is_worth_another_try = false;
  return answer;
}

bool HubHttp::wait(int number, int64_t retry_after_s) const {
  using Clock = std::chrono::steady_clock;
  constexpr auto kFirst = std::chrono::milliseconds(250), kLongest = std::chrono::milliseconds(8000);
  constexpr int kMaxDoublings = 6;
  const auto pause = retry_after_s >= 0 ? std::chrono::milliseconds(1000 * retry_after_s)
                                        : std::min(kLongest, kFirst * (1 << std::min(number - 1, kMaxDoublings)));
  for (const auto end = Clock::now() + pause; Clock::now() < end;) {
    if (is_cancelled()) return false;
    std::this_thread::sleep_for(std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(50)));
  }
  return !is_cancelled();
}

HttpAnswer HubHttp::send_again(const HttpRequest& request, int tries) {
  for (int number = 1;; ++number) {
    HttpAnswer answer = send(request);
    if (!answer.is_worth_another_try || number >= tries || answer.is_cancelled) return answer;
    if (wait(number, answer.retry_after_s)) continue;
    answer.is_cancelled = true;
    return answer;
  }
}

Status hub_error(const HttpAnswer& answer, const HubSettings& settings, const std::string& repository,
                 const std::string& what) {
  if (answer.is_cancelled) return cancelled("stopped; the next pull resumes from here");
  if (!answer.failure.empty()) return io("{}: {}: {}", what, settings.endpoint, answer.failure);
  constexpr size_t kLongestMessage = 500;
  const std::string code = answer.header("x-error-code");
  const std::string message = answer.header("x-error-message").substr(0, kLongestMessage);
  const std::string said = message.empty() ? "" : fmt::format(" ({})", message);
  const char* const whose_token =
      settings.token.empty() ? "set HF_TOKEN to a token that may read it" : "the token of HF_TOKEN may not read it";
  if (code == "GatedRepo" || answer.status == 403)
    return io("{}: access is limited{}: ask for it at {}/{}, and {}", what, said, settings.endpoint, repository,
              whose_token);
  if (code == "RevisionNotFound") return not_found("{}: the repository has no such revision", what);
  if (code == "EntryNotFound") return not_found("{}: the repository has no such file", what);
  if (answer.status == 401 && !settings.token.empty() && code != "RepoNotFound")
    return io("{}: {} refuses the token of HF_TOKEN{}", what, settings.endpoint, said);
  if (code == "RepoNotFound" || answer.status == 401 || answer.status == 404)
    return not_found("{}: {} has no such repository{}, or it is private: {}", what, settings.endpoint, said,
                     whose_token);
  if (answer.status == 429)
    return io("{}: {} limits the number of requests{}; try again {}", what, settings.endpoint, said,
              answer.retry_after_s >= 0 ? fmt::format("in {} s", answer.retry_after_s) : "later");
  return io("{}: {} answers {}{}", what, settings.endpoint, answer.status, said);
}

std::string url_encoded(std::string_view text, bool keeps_slashes) {
  std::string result;
  for (const char c : text) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
                          c == '_' || c == '.' || c == '~' || (c == '/' && keeps_slashes);
    if (is_plain) result += c;
    else result += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return result;
}

}  // namespace redline
