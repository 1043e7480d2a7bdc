#include "server/webhook.h"

#include <curl/curl.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "base/base64.h"
#include "base/error.h"
#include "base/utc_time.h"
#include "server/generation.h"

namespace redline::server {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAttempts = 5;
constexpr long kTimeoutMs = 10000;

size_t drop(char*, size_t size, size_t count, void*) { return size * count; }

/// The handle and its headers.
struct Request {
  CURL* curl = curl_easy_init();
  curl_slist* headers = nullptr;
  ~Request() {
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
  }
  void header(const std::string& line) { headers = curl_slist_append(headers, line.c_str()); }
};

}  // namespace

std::string webhook_signature(std::string_view secret, std::string_view id, int64_t timestamp, std::string_view body) {
  constexpr std::string_view kPrefix = "whsec_";
  std::string key(secret);
  if (secret.starts_with(kPrefix))
    if (auto decoded = from_base64(secret.substr(kPrefix.size()))) key = std::move(*decoded);
  const std::string content = fmt::format("{}.{}.{}", id, timestamp, body);
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), reinterpret_cast<const unsigned char*>(content.data()),
       content.size(), digest, &size);
  return "v1," + to_base64({reinterpret_cast<const char*>(digest), size});
}

WebhookSender::WebhookSender(std::string secret) : secret_(std::move(secret)), thread_([this] { run(); }) {}

WebhookSender::~WebhookSender() {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void WebhookSender::post(std::string url, std::string body) {
  const std::lock_guard lock(mutex_);
  events_.push_back({std::move(url), std::move(body), new_id("msg_")});
  changed_.notify_all();
}

size_t WebhookSender::next() const {
  std::set<std::string_view> urls;
  size_t best = events_.size();
  for (size_t i = 0; i < events_.size(); ++i)
    if (urls.insert(events_[i].url).second && (best == events_.size() || events_[i].due < events_[best].due)) best = i;
  return best;
}

void WebhookSender::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return is_closing_ || !events_.empty(); });
    if (events_.empty()) return;
    const size_t place = next();  // stays: others are added behind it
    if (const auto due = events_[place].due; !is_closing_ && due > Clock::now()) {
      changed_.wait_until(lock, due);  // or an event is posted
      continue;
    }
    const Event event = events_[place];
    lock.unlock();
    const bool is_delivered = deliver(event);
    lock.lock();
    const bool is_last = is_closing_ || event.attempts + 1 == kAttempts;
    if (is_delivered || is_last) {
      events_.erase(events_.begin() + static_cast<std::ptrdiff_t>(place));
    } else {
      events_[place].attempts = event.attempts + 1;
      events_[place].due = Clock::now() + std::chrono::seconds(1 << event.attempts);
    }
  }
}

bool WebhookSender::deliver(const Event& event) const {
  Request request;
  if (!request.curl) return false;
  const int64_t timestamp = unix_time();
  request.header("Content-Type: application/json");
  request.header("User-Agent: redline");
  request.header("Expect:");
  request.header("webhook-id: " + event.id);
  request.header(fmt::format("webhook-timestamp: {}", timestamp));
  if (!secret_.empty())
    request.header("webhook-signature: " + webhook_signature(secret_, event.id, timestamp, event.body));
  CURL* const curl = request.curl;
  curl_easy_setopt(curl, CURLOPT_URL, event.url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request.headers);
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(event.body.size()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, event.body.c_str());
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, kTimeoutMs);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
  long status = 0;
  if (curl_easy_perform(curl) != CURLE_OK) return false;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  return status >= 200 && status < 300;
}

void Webhook::send(const std::string& event, const Json& prediction) const {
  if (events.empty() || std::find(events.begin(), events.end(), event) != events.end())
    sender->post(url, to_text(prediction));
}

Status check_webhook_url(const std::string& url) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (url.starts_with(scheme) && url.size() > scheme.size() && url[scheme.size()] != '/') return {};
  return invalid_argument("is not a URL of http:// or https://");
}

}  // namespace redline::server
