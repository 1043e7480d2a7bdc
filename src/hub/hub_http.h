// Sends HTTP requests to the Hub with libcurl, and handles the token, redirects and the errors of the Hub.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "hub/hub_settings.h"

namespace redline {

struct HttpAnswer {
  long status = 0;                             ///< 0: there was no answer
  std::map<std::string, std::string> headers;  ///< headers of the last response, with names in lower case
  std::string body;                            ///< body, except the part that on_body has received
  std::string failure;                         ///< why the answer is incomplete; "": it is complete
  bool is_worth_another_try = false;           ///< retrying may help: a broken connection or a busy server
  bool is_cancelled = false;
  bool is_slow = false;        ///< the transfer was ended because it was slower than kMinBytesPerSecond
  int64_t retry_after_s = -1;  ///< seconds that the server asks to wait; -1: it does not
  std::string header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  int64_t offset = 0;  ///< number of bytes at the beginning of the body to skip
  bool is_head = false, follows_redirects = true;
  /// Receives the body of an answer with status 200 or 206. Returning false ends the transfer.
  std::function<bool(const HttpAnswer& head, std::string_view bytes)> on_body;
};

/// A client with one connection at a time, which is kept open between requests. Not thread-safe.
class HubHttp {
 public:
  /// `is_cancelled` is polled while a request runs.
  HubHttp(const HubSettings& settings, std::function<bool()> is_cancelled);
  ~HubHttp();
  HubHttp(const HubHttp&) = delete;
  HubHttp& operator=(const HubHttp&) = delete;

  HttpAnswer send(const HttpRequest& request);
  /// Calls send() up to `tries` times, with increasing pauses, while HttpAnswer::is_worth_another_try.
  HttpAnswer send_again(const HttpRequest& request, int tries);
  /// Waits before try number `number` (from 1), or as long as the server asks. Returns false if cancelled.
  bool wait(int number, int64_t retry_after_s) const;

  bool is_cancelled() const { return is_cancelled_ && is_cancelled_(); }

 private:
  struct Connection;
  const HubSettings settings_;
  const std::function<bool()> is_cancelled_;
  std::unique_ptr<Connection> connection_;
};

/// Maximum seconds that a server may ask to wait (Retry-After).
inline constexpr int64_t kMaxRetryAfter = 300;
/// A transfer that is slower than this for HubSettings::timeout_s is ended.
inline constexpr int64_t kMinBytesPerSecond = 1024;
/// Maximum bytes of bodies that are not written to a file, and of the headers of an answer. The Hub's description of
/// 100,000 files has 25 MB.
inline constexpr size_t kMaxHubBody = size_t{32} << 20, kMaxHubHeaders = size_t{256} << 10;
/// An answer other than a file may take at most this many times HubSettings::timeout_s.
inline constexpr int64_t kMaxTimeouts = 12;

/// Returns the error for an answer other than 200 or 206. not_found: no such repository, revision or file. io: no
/// access, too many requests, or an error of the server or the network.
Status hub_error(const HttpAnswer& answer, const HubSettings& settings, const std::string& repository,
                 const std::string& what);

/// Returns `text` encoded as a part of an address; '/' is kept if `keeps_slashes`.
std::string url_encoded(std::string_view text, bool keeps_slashes);

}  // namespace redline
