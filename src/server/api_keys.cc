#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "base/error.h"
#include "base/mapped_file.h"

namespace redline::server {

ApiKeys::Digest ApiKeys::digest_of(std::string_view key) {
  Digest digest{};
  unsigned size = 0;
  EVP_Digest(key.data(), key.size(), digest.data(), &size, EVP_sha256(), nullptr);
  return digest;
}

Status ApiKeys::add(std::string name, std::string_view key, double per_minute) {
  if (key.empty() || name.empty()) return invalid_argument("an API key and its name must not be empty");
  for (const Key& other : keys_)
    if (other.name == name) return invalid_argument("there is an API key named \"{}\" already", name);
  keys_.push_back({std::move(name), digest_of(key), per_minute, per_minute, std::chrono::steady_clock::now()});
  return {};
}

Status ApiKeys::read_file(const std::string& path) {
  REDLINE_ASSIGN(const std::string text, read_text_file(path));
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    std::string name, key, rest;
    if (!(words >> name) || name[0] == '#') continue;
    double per_minute = 0;
    if (!(words >> key)) return invalid_argument("{}:{}: the name \"{}\" has no key", path, number, name);
    if (std::string rate; words >> rate) {
      // The stream is not used for the number: it would read "-" at the end of a line as 0, which means no limit.
      const auto [end, error] = std::from_chars(rate.data(), rate.data() + rate.size(), per_minute);
      if (error != std::errc() || end != rate.data() + rate.size() || !std::isfinite(per_minute))
        return invalid_argument("{}:{}: the third word must be a number of requests per minute", path, number);
    }
    if (per_minute < 0 || words >> rest)
      return invalid_argument("{}:{}: a line is NAME KEY [REQUESTS_PER_MINUTE]", path, number);
    REDLINE_TRY(add(name, key, per_minute).within(fmt::format("{}:{}", path, number)));
  }
  if (keys_.empty()) return invalid_argument("{}: has no key", path);
  return {};
}

ApiKeys::Verdict ApiKeys::check(const HttpRequest& request) {
  std::string_view given = request.header("x-api-key");
  if (given.empty()) given = request.header("api-key");
  if (given.empty()) {
    given = request.header("authorization");
    const std::string_view scheme = given.substr(0, 7);
    const auto same = [](char a, char b) { return (a | 0x20) == b; };
    given = std::equal(scheme.begin(), scheme.end(), "bearer ", "bearer " + 7, same) ? given.substr(7) : "";
  }
  const Digest digest = digest_of(given);
  const std::lock_guard lock(mutex_);
  Key* found = nullptr;
  for (Key& key : keys_)  // every key is compared, whichever matches
    if (CRYPTO_memcmp(key.digest.data(), digest.data(), digest.size()) == 0) found = &key;
  if (!found) return {};
  Verdict verdict{true, found->name, 0};
  if (found->per_minute == 0) return verdict;
  const auto now = std::chrono::steady_clock::now();
  const double rate = found->per_minute / 60;
  found->tokens = std::min(std::max(found->per_minute, 1.0),
                           found->tokens + rate * std::chrono::duration<double>(now - found->filled).count());
  found->filled = now;
  if (found->tokens < 1) verdict.retry_after_s = (1 - found->tokens) / rate;
  else found->tokens -= 1;
  return verdict;
}

}  // namespace redline::server
