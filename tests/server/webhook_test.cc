#include "server/webhook.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>
#include <thread>

namespace redline::server {
namespace {

/// A receiver on the loopback address. One that does not answer takes connections and says nothing.
class Receiver {
 public:
  explicit Receiver(bool answers) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(socket_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(socket_, 64), 0);
    getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    if (answers) thread_ = std::thread([this] { run(); });
  }
  ~Receiver() {
    shutdown(socket_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    close(socket_);
  }
  std::string url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }
  /// The first so many bodies, in the order in which they came.
  std::vector<std::string> bodies(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return bodies_.size() >= count; });
    return bodies_;
  }

 private:
  void run() {
    while (true) {
      const int connection = accept(socket_, nullptr, nullptr);
      if (connection < 0) return;
      std::string text;
      char part[4096];
      // The bodies of this test end with a full stop.
      for (ssize_t n = 1; n > 0 && !text.ends_with(".");
           text.append(part, static_cast<size_t>(std::max<ssize_t>(n, 0))))
        n = recv(connection, part, sizeof part, 0);
      const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      send(connection, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(connection);
      const std::lock_guard lock(mutex_);
      bodies_.push_back(text.substr(text.find("\r\n\r\n") + 4));
      changed_.notify_all();
    }
  }
  const int socket_;
  int port_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> bodies_;
  std::thread thread_;
};

// Whatever is posted to receivers that never answer, the events of another URL arrive, in their order; and the end does
// not wait for the receivers.
TEST(WebhookSender, AReceiverThatNeverAnswersHoldsUpNoOtherUrl) {
  Receiver dead(false), live(true);
  WebhookSender sender("");
  for (int i = 0; i < 20; ++i) sender.post(dead.url("/" + std::to_string(i)), "lost.");
  for (int i = 0; i < 5; ++i) sender.post(dead.url("/one"), "lost.");
  for (int i = 0; i < 3; ++i) sender.post(live.url("/"), std::to_string(i) + ".");
  EXPECT_EQ(live.bodies(3), (std::vector<std::string>{"0.", "1.", "2."}));
  sender.close(0.02);
  EXPECT_EQ(sender.num_lost(), 25);
  sender.post(live.url("/"), "late.");
  EXPECT_EQ(sender.num_lost(), 26);
}

TEST(WebhookSender, ClosingSendsWhatWasPosted) {
  Receiver live(true);
  WebhookSender sender("");
  for (int i = 0; i < 30; ++i) sender.post(live.url("/" + std::to_string(i % 3)), ".");
  sender.close(60);
  EXPECT_EQ(live.bodies(30).size(), 30u);
  EXPECT_EQ(sender.num_lost(), 0);
}

TEST(WebhookSender, EventsThatWaitHaveABound) {
  Receiver dead(false);
  WebhookSender sender("");
  const std::string large(1 << 20, 'a');
  for (int i = 0; i < 80; ++i) sender.post(dead.url("/"), large);
  EXPECT_EQ(sender.num_lost(), 80 - static_cast<int64_t>(WebhookSender::kMaxBytes / WebhookSender::kShare >> 20));
  sender.close(0.02);
  EXPECT_EQ(sender.num_lost(), 80);
}

// The example of the Standard Webhooks specification's libraries.
TEST(Webhook, SignaturesAreThoseOfTheStandard) {
  EXPECT_EQ(webhook_signature("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330,
                              "{\"test\": 2432232314}"),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
}

TEST(Webhook, UrlsAreOfHttp) {
  EXPECT_TRUE(check_webhook_url("https://example.org/hook").ok());
  EXPECT_TRUE(check_webhook_url("http://127.0.0.1:9000").ok());
  for (const char* url : {"", "example.org", "ftp://example.org", "file:///etc/passwd", "http://", "https:///x"})
    EXPECT_FALSE(check_webhook_url(url).ok()) << url;
}

}  // namespace
}  // namespace redline::server
