// The server's sockets, with an application whose answers wait for the test.
#include "server/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <thread>
#include <utility>

namespace redline::server {
namespace {

class NeverAnswer final : public Answer {
 public:
  Progress poll(std::string&) override { return Progress::kWaiting; }
};

/// Counts the answers that exist.
class CountedAnswer final : public Answer {
 public:
  explicit CountedAnswer(std::shared_ptr<std::atomic<int>> count) : count_(std::move(count)) { ++*count_; }
  ~CountedAnswer() override { --*count_; }
  Progress poll(std::string& body) override {
    body.append(20000, 'a');
    return Progress::kDone;
  }

 private:
  std::shared_ptr<std::atomic<int>> count_;
};

/// /slow waits for open(), /never for ever; /big has 300,000 bytes, /echo the size of the body, /counted 20,000 bytes;
/// /deny is refused by its head. The header x-client names the client.
class GateApplication final : public HttpApplication {
 public:
  Admission admit(HttpRequest& request) override {
    Admission admission{.is_quick = request.path == "/quick", .client = std::string(request.header("x-client"))};
    if (request.path == "/deny") admission.refusal = std::make_unique<FixedAnswer>("denied", 401);
    return admission;
  }
  std::unique_ptr<Answer> handle(HttpRequest& request) override {
    count("handled " + request.path);
    if (request.path == "/slow") opened_.wait();
    if (request.path == "/never") return std::make_unique<NeverAnswer>();
    if (request.path == "/big") return std::make_unique<FixedAnswer>(std::string(300000, 'a'));
    if (request.path == "/counted") return std::make_unique<CountedAnswer>(num_answers);
    if (request.path == "/echo") return std::make_unique<FixedAnswer>(std::to_string(request.body.size()));
    return std::make_unique<FixedAnswer>(request.path);
  }
  std::unique_ptr<Answer> refuse(int status, const std::string&, const std::string& message) override {
    return std::make_unique<FixedAnswer>(message, status);
  }
  void finished(const HttpRequest&, const Answer& answer, const Served&) override {
    count("finished " + std::to_string(answer.status));
  }
  void draining() override {}

  const std::shared_ptr<std::atomic<int>> num_answers = std::make_shared<std::atomic<int>>(0);  ///< of /counted

  void open() { gate_.set_value(); }
  /// Waits until there are so many.
  void wait_for(const std::string& what, int number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return counts_[what] >= number; });
  }
  int count_of(const std::string& what) {
    const std::lock_guard lock(mutex_);
    return counts_[what];
  }

 private:
  void count(const std::string& what) {
    const std::lock_guard lock(mutex_);
    ++counts_[what];
    changed_.notify_all();
  }
  std::promise<void> gate_;
  const std::shared_future<void> opened_ = gate_.get_future().share();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, int> counts_;
};

class Client {
 public:
  explicit Client(int port, int receive_buffer = 0) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  Client(Client&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  Client& operator=(Client&&) = delete;
  ~Client() { leave(); }
  void leave() {
    if (socket_ >= 0) close(std::exchange(socket_, -1));
  }
  /// False: the server has closed the connection.
  bool write(const std::string& text) {
    for (size_t sent = 0; sent < text.size();) {
      const ssize_t n = send(socket_, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  void get(const std::string& path) { write("GET " + path + " HTTP/1.1\r\nHost: a\r\n\r\n"); }
  /// The head of a request with a body.
  void post(const std::string& path, size_t length, const std::string& headers = "") {
    write("POST " + path + " HTTP/1.1\r\nHost: a\r\n" + headers + "Content-Length: " + std::to_string(length) +
          "\r\n\r\n");
  }
  /// The status of the next answer, whose text follows in body; 0: the connection was closed before.
  int status() {
    size_t end = 0;
    while ((end = text_.find("\r\n\r\n")) == std::string::npos)
      if (!read()) return 0;
    const std::string head = text_.substr(0, end);
    text_.erase(0, end + 4);
    const size_t place = head.find("Content-Length: ");
    const size_t length = place == std::string::npos ? 0 : std::stoul(head.substr(place + 16));
    while (text_.size() < length && read()) {}
    body = text_.substr(0, length);
    text_.erase(0, length);
    return std::stoi(head.substr(9, 3));
  }
  bool has_answer() const {
    char c = 0;
    return recv(socket_, &c, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
  }
  std::string body;

 private:
  bool read() {
    char part[65536];
    const ssize_t n = recv(socket_, part, sizeof part, 0);
    if (n > 0) text_.append(part, static_cast<size_t>(n));
    return n > 0;
  }
  int socket_;
  std::string text_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void listen(HttpServerOptions options) {
    options.port = 0;
    auto server = HttpServer::listen(options, application_);
    ASSERT_TRUE(server.ok()) << server.status().to_string();
    server_ = std::move(server).value();
  }
  Client client(int receive_buffer = 0) const { return Client(server_->port(), receive_buffer); }
  int quick_status() const {
    Client one = client();
    one.get("/quick");
    return one.status();
  }
  GateApplication application_;
  std::unique_ptr<HttpServer> server_;
};

// Every handler thread is taken, and more requests wait; liveness is answered all the same.
TEST_F(HttpServerTest, LivenessDoesNotWaitForHandlersThatTakeLong) {
  listen({.handler_threads = 2});
  std::vector<Client> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(client());
    slow.back().get("/slow");
  }
  application_.wait_for("handled /slow", 1);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(quick_status(), 200);
  for (const Client& one : slow) EXPECT_FALSE(one.has_answer());
  application_.open();
  for (Client& one : slow) EXPECT_EQ(one.status(), 200);
}

TEST_F(HttpServerTest, FairnessAClientCannotTakeAllThreads) {
  listen({.handler_threads = 3});
  std::vector<Client> slow;
  for (int i = 0; i < 8; ++i) {
    slow.push_back(client());
    slow.back().write("GET /slow HTTP/1.1\r\nHost: a\r\nX-Client: hog\r\n\r\n");
  }
  application_.wait_for("handled /slow", 2);
  Client other = client();
  other.write("GET /other HTTP/1.1\r\nHost: a\r\nX-Client: other\r\n\r\n");
  EXPECT_EQ(other.status(), 200);
  EXPECT_EQ(application_.count_of("handled /slow"), 2);
  application_.open();
  for (Client& one : slow) EXPECT_EQ(one.status(), 200);
}

TEST_F(HttpServerTest, ARequestThatWaitsForAHandlerGoesWithItsClient) {
  listen({.handler_threads = 1});
  Client first = client(), second = client();
  first.get("/slow");
  application_.wait_for("handled /slow", 1);
  second.get("/slow");
  second.leave();
  application_.wait_for("finished 499", 1);
  application_.open();
  EXPECT_EQ(first.status(), 200);
  EXPECT_EQ(application_.count_of("handled /slow"), 1);
}

TEST_F(HttpServerTest, WhatTheHeadDecidesIsAnsweredBeforeTheBody) {
  listen({});
  for (const char* expect : {"", "Expect: 100-continue\r\n"}) {
    Client one = client();
    one.post("/deny", 30 << 20, expect);
    EXPECT_EQ(one.status(), 401);  // without an interim answer, and no byte of the body was sent
    EXPECT_EQ(one.body, "denied");
    one.leave();
  }
  Client welcome = client();
  welcome.post("/echo", 5, "Expect: 100-continue\r\n");
  EXPECT_EQ(welcome.status(), 100);
  welcome.write("12345");
  EXPECT_EQ(welcome.status(), 200);
  EXPECT_EQ(welcome.body, "5");
}

TEST_F(HttpServerTest, AConnectionGoesOnAfterAShortBodyThatWasRefused) {
  listen({});
  Client one = client();
  one.post("/deny", 5);
  EXPECT_EQ(one.status(), 401);
  one.write("12345");
  one.get("/quick");
  EXPECT_EQ(one.status(), 200);
}

TEST_F(HttpServerTest, BodiesOfAnyLengthAndKindAreRead) {
  listen({});
  Client one = client();
  for (const size_t length : {size_t{0}, size_t{1}, size_t{65535}, size_t{65536}, size_t{65537}, size_t{1 << 20}}) {
    one.post("/echo", length);
    one.write(std::string(length, 'x'));
    EXPECT_EQ(one.status(), 200) << length;
    EXPECT_EQ(one.body, std::to_string(length));
    one.write("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    size_t left = length;
    for (size_t part = 1; left > 0; part = 3 * part + 1) {
      const size_t n = std::min(part, left);
      char size[32];
      std::snprintf(size, sizeof size, "%zx\r\n", n);
      one.write(size + std::string(n, 'y') + "\r\n");
      left -= n;
    }
    one.write("0\r\n\r\n");
    EXPECT_EQ(one.status(), 200) << length;
    EXPECT_EQ(one.body, std::to_string(length));
  }
}

// Clients that send most of a body and stop. What all of them take stays within the budget, and another client's body
// has room at their cost.
TEST_F(HttpServerTest, BodiesThatNeverEndHaveOneBoundForAll) {
  constexpr int64_t kBody = 1 << 20, kMemory = 2 * kBody;
  const std::string most(static_cast<size_t>(kBody * 3 / 4), 'a');
  listen({.max_body_bytes = kBody, .max_body_memory = kMemory});
  std::vector<Client> hogs;
  for (int i = 0; i < 6; ++i) {
    hogs.push_back(client());
    hogs.back().post("/echo", kBody, "X-Client: hog\r\n");
    hogs.back().write(most);
    EXPECT_LE(server_->body_bytes(), kMemory);
  }
  application_.wait_for("finished 503", 4);
  EXPECT_EQ(application_.count_of("finished 503"), 4);
  Client other = client();
  other.post("/echo", most.size(), "X-Client: other\r\n");
  other.write(most);
  EXPECT_EQ(other.status(), 200);
  EXPECT_EQ(other.body, std::to_string(most.size()));
  EXPECT_LE(server_->body_bytes(), kMemory);
  application_.wait_for("finished 503", 5);  // one of those that had a place has made room
  hogs.clear();
  while (server_->body_bytes() > 0) std::this_thread::yield();
}

TEST_F(HttpServerTest, ABodyIsCountedUntilItsAnswerIsSent) {
  listen({.handler_threads = 2});
  Client one = client();
  one.post("/slow", 1 << 20);
  one.write(std::string(1 << 20, 'a'));
  application_.wait_for("handled /slow", 1);
  EXPECT_GE(server_->body_bytes(), 1 << 20);
  application_.open();
  EXPECT_EQ(one.status(), 200);
  while (server_->body_bytes() > 0) std::this_thread::yield();
}

TEST_F(HttpServerTest, ConnectionsOfOneAddressHaveALimit) {
  listen({.max_connections = 100, .max_connections_per_address = 4});
  std::vector<Client> open;
  for (int i = 0; i < 4; ++i) {
    open.push_back(client());
    open.back().get("/quick");
    EXPECT_EQ(open.back().status(), 200);
  }
  Client fifth = client();
  EXPECT_EQ(fifth.status(), 429);
  EXPECT_NE(fifth.body.find("--max-connections-per-address"), std::string::npos);
}

// The answer fits in the buffers of the sockets, so that no write ever waits. It is not read.
TEST_F(HttpServerTest, AnAnswerThatNobodyReadsLosesItsConnection) {
  listen({.idle_timeout_s = 1e6, .write_timeout_s = 0.1});
  std::vector<Client> silent;
  for (int i = 0; i < 5; ++i) {
    silent.push_back(client(4096));
    silent.back().get("/big");
  }
  application_.wait_for("finished 200", 5);
  while (server_->connections() > 0) std::this_thread::yield();
  EXPECT_EQ(quick_status(), 200);
}

// The answer fits in the client's receive buffer, whose bytes the client's kernel acknowledges: the server cannot tell
// such a client from one that has read its answer and keeps the connection. It no longer has the answer, and the
// connection ends with the idle timeout.
TEST_F(HttpServerTest, UnreadShortAnswers_AreNotKeptAndEndWithTheIdleTimeout) {
  constexpr int kClients = 40;
  for (const double idle_timeout_s : {1e6, 0.1}) {
    listen({.idle_timeout_s = idle_timeout_s, .write_timeout_s = 1e6});
    std::vector<Client> silent;
    for (int i = 0; i < kClients; ++i) {
      silent.push_back(client());
      silent.back().get("/counted");
    }
    const bool stays = idle_timeout_s > 1;
    application_.wait_for("finished 200", stays ? kClients : 2 * kClients);
    while (*application_.num_answers > 0) std::this_thread::yield();
    if (stays) EXPECT_EQ(server_->connections(), kClients);
    else
      while (server_->connections() > 0) std::this_thread::yield();
    EXPECT_EQ(server_->body_bytes(), 0);
    server_.reset();
  }
}

// A client that sends requests and reads nothing gets one answer after the other until its buffer is full. From then on
// the write timeout counts, and at most one answer waits.
TEST_F(HttpServerTest, UnreadShortAnswers_RequestsWithoutReadingEndWithTheWriteTimeout) {
  listen({.idle_timeout_s = 1e6, .write_timeout_s = 0.1});
  Client silent = client(4096);
  while (silent.write("GET /counted HTTP/1.1\r\nHost: a\r\n\r\n")) EXPECT_LE(*application_.num_answers, 1);
  while (server_->connections() > 0 || *application_.num_answers > 0) std::this_thread::yield();
  EXPECT_EQ(quick_status(), 200);
}

TEST_F(HttpServerTest, DrainTimeout) {
  listen({.drain_timeout_s = 0.05});
  Client one = client();
  one.get("/never");
  application_.wait_for("handled /never", 1);
  server_->drain();
  server_->wait();
  server_.reset();
  EXPECT_EQ(one.status(), 0);
}

}  // namespace
}  // namespace redline::server
