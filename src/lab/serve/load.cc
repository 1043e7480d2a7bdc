#include "lab/serve/load.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/elapsed.h"
#include "lab/serve/event_stream.h"

namespace redline::lab {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using Tcp = asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

/// The text of one answer with its events; a server that never ends one must not fill the memory.
constexpr uint64_t kMaxAnswerBytes = uint64_t{1} << 30;

class Load {
 public:
  Load(const ServeTarget& target, const LoadOptions& options, const std::function<bool()>& on_done)
      : target_(target), options_(options), on_done_(on_done) {
    result_.requests.resize(options.prompts.size() * static_cast<size_t>(options.turns));
  }

  Result<LoadResult> run() {
    ErrorCode error;
    endpoints_ = Tcp::resolver(io_).resolve(target_.host, target_.port, error);
    if (error) return io("{}:{}: {}", target_.host, target_.port, error.message());
    begin_ = Clock::now();
    if (options_.rate > 0) {
      asio::co_spawn(io_, arrive(), asio::detached);
    } else {
      const int64_t streams = std::min(options_.streams, std::ssize(options_.prompts));
      for (int64_t i = 0; i < streams; ++i) asio::co_spawn(io_, stream(), asio::detached);
    }
    io_.run();
    if (is_cancelled_) return cancelled("the load was cancelled");
    for (const LoadRequest& r : result_.requests) result_.seconds = std::max(result_.seconds, r.last);
    return std::move(result_);
  }

 private:
  double now() const { return seconds_since(begin_); }

  asio::awaitable<void> stream() {
    while (next_ < options_.prompts.size() && !is_cancelled_) co_await converse(next_++);
  }

  asio::awaitable<void> arrive() {
    std::mt19937_64 random(options_.seed);
    std::exponential_distribution<double> gap(options_.rate);
    asio::steady_timer timer(io_);
    Clock::time_point at = begin_;
    while (next_ < options_.prompts.size() && !is_cancelled_) {
      asio::co_spawn(io_, converse(next_++), asio::detached);
      at += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(gap(random)));
      timer.expires_at(at);
      ErrorCode error;
      co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, error));
    }
  }

  asio::awaitable<void> converse(size_t index) {
    const std::string model = options_.models.empty() ? target_.model : options_.models[index % options_.models.size()];
    std::string prompt = options_.prompts[index];
    for (int64_t turn = 0; turn < options_.turns && !is_cancelled_; ++turn) {
      const size_t at = index * static_cast<size_t>(options_.turns) + static_cast<size_t>(turn);
      LoadRequest& r = result_.requests[at];
      const int64_t adapter = options_.adapters > 0 ? static_cast<int64_t>(index) % options_.adapters : 0;
      co_await request(request_text(prompt, model, adapter), r);
      prompt += fmt::format("{}\n{}", r.text, load_text(options_.turn_tokens, options_.seed + 31 * at));
    }
  }

  std::string request_text(const std::string& prompt, const std::string& model, int64_t adapter) const {
    Json body = {{"prompt", prompt}, {"max_tokens", options_.max_tokens},
                 {"temperature", 0}, {"ignore_eos", true},
                 {"stream", true},   {"stream_options", {{"include_usage", true}}}};
    if (!model.empty()) body["model"] = model;
    if (options_.adapters > 0) body["lora"] = {{{"id", adapter}, {"scale", 1.0}}};
    const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    const std::string key = target_.api_key.empty() ? "" : "Authorization: Bearer " + target_.api_key + "\r\n";
    return fmt::format(
        "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nConnection: close\r\n{}Content-Length: "
        "{}\r\n\r\n{}",
        target_.path, target_.host, target_.port, key, text.size(), text);
  }

  // Sends one request and reads its answer. `text` is passed by value, because coroutines outlive their callers'
  // temporaries.
  asio::awaitable<void> request(std::string text, LoadRequest& r) {
    r.sent = now();
    Tcp::socket socket(io_);
    ErrorCode error;
    co_await asio::async_connect(socket, endpoints_, asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      socket.set_option(Tcp::no_delay(true), error);
      co_await asio::async_write(socket, asio::buffer(text), asio::redirect_error(asio::use_awaitable, error));
    }
    beast::flat_buffer buffer;
    http::response_parser<http::string_body> parser;
    parser.body_limit(kMaxAnswerBytes);
    EventReader events;
    Status broken;
    constexpr size_t kShownBytes = 300;
    std::string beginning;  // beginning of the body, for the message of an error
    while (!error && !parser.is_done() && broken.ok()) {
      co_await http::async_read_some(socket, buffer, parser, asio::redirect_error(asio::use_awaitable, error));
      std::string& body = parser.get().body();
      if (beginning.size() < kShownBytes) beginning.append(body, 0, kShownBytes - beginning.size());
      broken = events.push(body, [&](std::string_view data) { take_event(data, r); });
      body.clear();
    }
    r.last = now();
    if (error) r.error = error.message();
    else if (!broken.ok()) r.error = broken.message();
    else if (parser.get().result_int() != 200)
      r.error = fmt::format("status {}: {}", parser.get().result_int(), beginning);
    else if (r.tokens == 0) r.error = "the answer has no tokens";
    if (on_done_ && !on_done_()) {
      is_cancelled_ = true;
      io_.stop();
    }
  }

  void take_event(std::string_view data, LoadRequest& r) const {
    const CompletionEvent event = parse_completion_event(data);
    if (event.usage) {
      r.prompt_tokens = event.usage->prompt_tokens;
      r.tokens = event.usage->tokens;
      r.cached_tokens = event.usage->cached_tokens;
    }
    if (event.text.empty()) return;
    const double at = now();
    r.text += event.text;
    if (r.first == 0) r.first = at;
    else r.gaps.push_back(at - last_text_[&r]);
    last_text_[&r] = at;
  }

  const ServeTarget& target_;
  const LoadOptions& options_;
  const std::function<bool()>& on_done_;
  asio::io_context io_{1};
  Tcp::resolver::results_type endpoints_;
  Clock::time_point begin_;
  size_t next_ = 0;
  bool is_cancelled_ = false;
  LoadResult result_;
  mutable std::map<const LoadRequest*, double> last_text_;
};

}  // namespace

Result<ServeTarget> parse_serve_url(const std::string& url) {
  constexpr std::string_view kScheme = "http://";
  if (!url.starts_with(kScheme)) return invalid_argument("\"{}\" is not a URL of the form http://HOST:PORT", url);
  std::string rest = url.substr(kScheme.size());
  ServeTarget target;
  if (const size_t slash = rest.find('/'); slash != std::string::npos) {
    std::string path = rest.substr(slash);
    rest.resize(slash);
    while (path.ends_with('/')) path.pop_back();
    target.path = path.empty() || path == "/v1" ? "/v1/completions" : path;
  }
  const size_t colon = rest.rfind(':');
  const bool has_port = colon != std::string::npos && rest.find(']', colon) == std::string::npos;
  target.port = has_port ? rest.substr(colon + 1) : "80";
  target.host = has_port ? rest.substr(0, colon) : rest;
  if (target.host.starts_with('[') && target.host.ends_with(']'))
    target.host = target.host.substr(1, target.host.size() - 2);
  if (target.host.empty() || target.port.empty()) return invalid_argument("\"{}\" names no host and port", url);
  return target;
}

Result<LoadResult> run_load(const ServeTarget& target, const LoadOptions& options,
                            const std::function<bool()>& on_done) {
  return Load(target, options, on_done).run();
}

double percentile(std::vector<double> values, double p) {
  if (values.empty()) return 0;
  const auto rank = static_cast<size_t>(std::ceil(p * static_cast<double>(values.size())));
  const size_t index = std::clamp<size_t>(rank, 1, values.size()) - 1;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(index), values.end());
  return values[index];
}

LoadSummary summarize(const LoadResult& result) {
  LoadSummary s;
  s.requests = std::ssize(result.requests);
  s.seconds = result.seconds;
  std::vector<double> firsts, gaps;
  for (const LoadRequest& r : result.requests) {
    if (!r.error.empty()) {
      ++s.failed;
      if (s.error.empty()) s.error = r.error;
      continue;
    }
    s.prompt_tokens += r.prompt_tokens;
    s.tokens += r.tokens;
    s.cached_tokens += r.cached_tokens;
    firsts.push_back(r.first - r.sent);
    gaps.insert(gaps.end(), r.gaps.begin(), r.gaps.end());
  }
  if (s.seconds > 0) {
    s.tokens_per_s = static_cast<double>(s.tokens) / s.seconds;
    s.requests_per_s = static_cast<double>(s.requests - s.failed) / s.seconds;
  }
  s.first_p50 = percentile(firsts, 0.5);
  s.first_p99 = percentile(firsts, 0.99);
  s.first_max = percentile(firsts, 1);
  s.gap_p50 = percentile(gaps, 0.5);
  s.gap_p99 = percentile(gaps, 0.99);
  s.gap_max = percentile(gaps, 1);
  return s;
}

std::string load_text(int64_t tokens, uint64_t seed) {
  static constexpr const char* kWords[] = {
      "the", "a",   "little", "girl",  "boy", "dog",   "cat", "went", "to",   "park",   "and",  "saw",  "big", "tree",
      "she", "was", "very",   "happy", "he",  "said",  "I",   "want", "play", "with",   "you",  "they", "had", "fun",
      "one", "day", "there",  "in",    "sun", "house", "mom", "his",  "her",  "friend", "ball", "red",  "but", "then"};
  constexpr uint64_t kCount = std::size(kWords);
  std::mt19937_64 random(seed);
  // The texts differ from the first token on, even if tokens are bytes. Otherwise short texts would share most of their
  // state.
  std::string text;
  for (int i = 0; i < 4; ++i) text += static_cast<char>((i == 0 ? 'A' : 'a') + random() % 26);
  for (int64_t i = 1; i < tokens; ++i) text += std::string(" ") + kWords[random() % kCount];
  return text;
}

}  // namespace redline::lab
