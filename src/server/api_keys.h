// API keys: finds a client by its key, with names and rate limits.
#pragma once

#include <array>
#include <chrono>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "redline/status.h"
#include "server/http.h"

namespace redline::server {

/// The keys of all clients. Thread-safe after the keys were added.
class ApiKeys {
 public:
  /// Adds a key. `per_minute` 0: no limit. invalid_argument: an empty key or name, or a name that exists already.
  Status add(std::string name, std::string_view key, double per_minute = 0);
  /// Reads lines "NAME KEY [REQUESTS_PER_MINUTE]"; lines that begin with # are comments. The message names the line.
  Status read_file(const std::string& path);
  bool empty() const { return keys_.empty(); }

  struct Verdict {
    bool is_known = false;
    std::string name;
    double retry_after_s = 0;  ///< above 0: too many requests
  };
  /// Checks the key in "Authorization: Bearer KEY", "X-Api-Key: KEY" or "Api-Key: KEY", and counts the request of a
  /// known key. Takes the same time for every wrong key.
  Verdict check(const HttpRequest& request);

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Key {
    std::string name;
    Digest digest;
    double per_minute = 0, tokens = 0;  ///< state of a token bucket that holds a minute's requests
    std::chrono::steady_clock::time_point filled;
  };
  static Digest digest_of(std::string_view key);
  std::mutex mutex_;
  std::vector<Key> keys_;
};

}  // namespace redline::server
