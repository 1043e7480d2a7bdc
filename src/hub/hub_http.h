// Requests to the Hub: HTTP through libcurl, with the token, redirects and the errors of the Hub.
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
  long status = 0;                             ///< 0: there was none
  std::map<std::string, std::string> headers;  ///< of the last response, names in lower case
  std::string body;                            ///< what on_body did not get
  std::string failure;                         ///< why there is no whole answer; "": there is one
  bool is_worth_another_try = false;           ///< a connection that broke, or a server that is busy
  bool is_cancelled = false;
  bool is_slow = false;        ///< it was coming, at less than kMinBytesPerSecond
  int64_t retry_after_s = -1;  ///< that the server asks to wait; -1: nothing
  std::string header(const std::string& name) const;
};

struct HttpRequest {
  std::string url;
  int64_t offset = 0;  ///< bytes of the body to leave out
  bool is_head = false, follows_redirects = true;
  /// Takes the body of an answer of status 200 or 206; false ends the transfer.
  std::function<bool(const HttpAnswer& head, std::string_view bytes)> on_body;
};

/// One connection at a time, kept open between requests. Not thread-safe.
class HubHttp {
 public:
  /// `is_cancelled` is polled while a request runs.
  HubHttp(const HubSettings& settings, std::function<bool()> is_cancelled);
  ~HubHttp();
  HubHttp(const HubHttp&) = delete;
  HubHttp& operator=(const HubHttp&) = delete;

  HttpAnswer send(const HttpRequest& request);
  /// As send(), up to `tries` times while that is worth it, with growing pauses.
  HttpAnswer send_again(const HttpRequest& request, int tries);
  /// Waits before try number `number` (from 1), or as long as the server asks; false: cancelled.
  bool wait(int number, int64_t retry_after_s) const;

  bool is_cancelled() const { return is_cancelled_ && is_cancelled_(); }

 private:
  struct Connection;
  const HubSettings settings_;
  const std::function<bool()> is_cancelled_;
  std::unique_ptr<Connection> connection_;
};

/// The longest pause that a server may ask for (Retry-After).
inline constexpr int64_t kMaxRetryAfter = 300;
/// A transfer that stays below it for HubSettings::timeout_s ends.
inline constexpr int64_t kMinBytesPerSecond = 1024;
/// Bodies that are not written to a file, and the headers of an answer. The Hub describes 100,000 files in 25 MB.
inline constexpr size_t kMaxHubBody = size_t{32} << 20, kMaxHubHeaders = size_t{256} << 10;
/// An answer without a file takes at most so many times HubSettings::timeout_s.
inline constexpr int64_t kMaxTimeouts = 12;

/// What an answer other than 200 or 206 means. not_found: no such repository, revision or file. io: no access, too many
/// requests, an error of the server, or of the network.
Status hub_error(const HttpAnswer& answer, const HubSettings& settings, const std::string& repository,
                 const std::string& what);

/// `text` as a part of an address; '/' stays if `keeps_slashes`.
std::string url_encoded(std::string_view text, bool keeps_slashes);

}  // namespace redline
