#include "server/webhook.h"

#include <curl/curl.h>
#include <openssl/hmac.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>

#include "base/base64.h"
#include "base/error.h"
#include "base/utc_time.h"
#include "server/ids.h"

namespace redline::server {
namespace {

constexpr int kAttempts = 5;
constexpr long kTimeoutMs = 10000;
/// Maximum numbers of concurrent transfers: in total, to one host, and of events that have failed before.
constexpr size_t kMaxTransfers = 128, kMaxOfHost = 8, kMaxRepeated = 64;

size_t drop(char*, size_t size, size_t count, void*) { return size * count; }

/// A curl handle with its headers.
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

/// The transfers in progress.
class WebhookSender::Transfers {
 public:
  Transfers() : multi_(curl_multi_init()) {}
  ~Transfers() {
    while (!all_.empty()) end(all_.begin());
    curl_multi_cleanup(multi_);
  }
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Ends wait(). May be called from any thread.
  void wake() { curl_multi_wakeup(multi_); }
  bool has_place(const std::string& host, bool is_repeated) const {
    const auto of_host = hosts_.find(host);
    return multi_ && all_.size() < kMaxTransfers && (of_host == hosts_.end() || of_host->second < kMaxOfHost) &&
           !(is_repeated && num_repeated_ >= kMaxRepeated);
  }
  bool empty() const { return all_.empty(); }

  /// Begins a transfer. Returns false if there is no memory.
  bool begin(const std::string& url, const std::string& host, const Event& event, const std::string& secret) {
    auto transfer = std::make_unique<Transfer>();
    CURL* const curl = transfer->request.curl;
    if (!curl) return false;
    transfer->url = url;
    transfer->host = host;
    transfer->body = event.body;
    transfer->is_repeated = event.attempts > 0;
    const int64_t timestamp = unix_time();
    Request& request = transfer->request;
    request.header("Content-Type: application/json");
    request.header("User-Agent: redline");
    request.header("Expect:");
    request.header("webhook-id: " + event.id);
    request.header(fmt::format("webhook-timestamp: {}", timestamp));
    if (!secret.empty())
      request.header("webhook-signature: " + webhook_signature(secret, event.id, timestamp, event.body));
    curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
#if LIBCURL_VERSION_NUM >= 0x075500
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS);
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // closing does not wait for a name lookup
#endif
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, request.headers);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(transfer->body.size()));
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, transfer->body.c_str());
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, kTimeoutMs);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, drop);
    if (curl_multi_add_handle(multi_, curl) != CURLM_OK) return false;
    ++hosts_[host];
    num_repeated_ += transfer->is_repeated;
    all_[curl] = std::move(transfer);
    return true;
  }

  /// Continues all transfers. Returns those that have ended: the URL, and true if the receiver accepted the event.
  std::vector<std::pair<std::string, bool>> go_on() {
    int running = 0;
    curl_multi_perform(multi_, &running);
    std::vector<std::pair<std::string, bool>> ended;
    int left = 0;
    while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const auto found = all_.find(message->easy_handle);
      long status = 0;
      curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &status);
      ended.emplace_back(found->second->url, message->data.result == CURLE_OK && status >= 200 && status < 300);
      end(found);
    }
    return ended;
  }
  /// Waits until a transfer can continue, wake() is called, or `time` has passed.
  void wait(Clock::duration time) {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(std::min<Clock::duration>(time, kLongest)).count();
    curl_multi_poll(multi_, nullptr, 0, static_cast<int>(std::max<int64_t>(ms, 0)), nullptr);
  }

 private:
  static constexpr std::chrono::seconds kLongest{60};
  struct Transfer {
    Request request;
    std::string url, host, body;
    bool is_repeated = false;
  };
  using All = std::map<CURL*, std::unique_ptr<Transfer>>;
  void end(All::iterator transfer) {
    curl_multi_remove_handle(multi_, transfer->first);
    num_repeated_ -= transfer->second->is_repeated;
    if (const auto host = hosts_.find(transfer->second->host); --host->second == 0) hosts_.erase(host);
    all_.erase(transfer);
  }

  CURLM* const multi_;
  All all_;
  std::map<std::string, size_t> hosts_;
  size_t num_repeated_ = 0;
};

WebhookSender::WebhookSender(std::string secret)
    : secret_(std::move(secret)), transfers_(std::make_unique<Transfers>()), thread_([this] { run(); }) {}

WebhookSender::~WebhookSender() { close(1); }

void WebhookSender::close(double seconds) {
  {
    const std::lock_guard lock(mutex_);
    is_closing_ = true;
    end_ = std::min(end_, Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(seconds * 1e3)));
  }
  transfers_->wake();
  if (thread_.joinable()) thread_.join();
}

void WebhookSender::post(std::string url, std::string body) {
  {
    const std::lock_guard lock(mutex_);
    const size_t begin = url.find("//") + 2;
    const std::string host = url.substr(begin, url.find_first_of("/?#", begin) - begin);
    const Total before = of_host_.contains(host) ? of_host_[host] : Total();
    if (is_over_ || total_.events >= kMaxEvents || total_.bytes + body.size() > kMaxBytes ||
        before.events >= kMaxEvents / kShare || before.bytes + body.size() > kMaxBytes / kShare) {
      num_lost_.fetch_add(1, std::memory_order_relaxed);
      return;
    }
    for (Total* total : {&total_, &of_host_[host]}) {
      ++total->events;
      total->bytes += body.size();
    }
    Queue& queue = queues_[url];
    queue.host = host;
    queue.events.push_back({std::move(body), new_id("msg_")});
  }
  transfers_->wake();
}

WebhookSender::Clock::time_point WebhookSender::begin_due(Transfers& transfers) {
  const Clock::time_point now = Clock::now();
  Clock::time_point next = end_;
  const std::lock_guard lock(mutex_);
  for (auto& [url, queue] : queues_) {
    if (queue.is_sending) continue;
    const Event& event = queue.events.front();
    if (!is_closing_ && event.due > now) next = std::min(next, event.due);
    else if (transfers.has_place(queue.host, event.attempts > 0))
      queue.is_sending = transfers.begin(url, queue.host, event, secret_);
  }
  return next;
}

void WebhookSender::finish(const std::string& url, bool is_delivered) {
  const std::lock_guard lock(mutex_);
  const auto found = queues_.find(url);
  Queue& queue = found->second;
  Event& event = queue.events.front();
  queue.is_sending = false;
  if (!is_delivered && !is_closing_ && event.attempts + 1 < kAttempts) {
    event.due = Clock::now() + std::chrono::seconds(1 << event.attempts);
    ++event.attempts;
    return;
  }
  if (!is_delivered) num_lost_.fetch_add(1, std::memory_order_relaxed);
  for (Total* total : {&total_, &of_host_[queue.host]}) {
    --total->events;
    total->bytes -= event.body.size();
  }
  if (of_host_[queue.host].events == 0) of_host_.erase(queue.host);
  queue.events.pop_front();
  if (queue.events.empty()) queues_.erase(found);
}

void WebhookSender::run() {
  pthread_setname_np(pthread_self(), "webhooks");
  while (true) {
    const Clock::time_point next = begin_due(*transfers_);
    const auto ended = transfers_->go_on();
    for (const auto& [url, is_delivered] : ended) finish(url, is_delivered);
    {
      const std::lock_guard lock(mutex_);
      if (is_closing_ && (queues_.empty() || Clock::now() >= end_)) {
        num_lost_.fetch_add(static_cast<int64_t>(total_.events), std::memory_order_relaxed);
        is_over_ = true;
        return;
      }
    }
    if (ended.empty()) transfers_->wait(next - Clock::now());
  }
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
