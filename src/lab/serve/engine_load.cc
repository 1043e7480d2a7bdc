// A load that runs on an engine without a server. The difference to the time with a server is the cost of the server.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/elapsed.h"
#include "lab/serve/load.h"

namespace redline::lab {
namespace {

class EngineLoad {
 public:
  EngineLoad(TextEngine& engine, const LoadOptions& options, const std::function<bool()>& on_done)
      : engine_(engine), options_(options), on_done_(on_done) {
    result_.requests.resize(options.prompts.size() * static_cast<size_t>(options.turns));
  }

  Result<LoadResult> run() {
    begin_ = std::chrono::steady_clock::now();
    const int64_t streams = std::min(options_.streams, std::ssize(options_.prompts));
    std::vector<std::thread> threads;
    try {
      for (int64_t i = 0; i < streams; ++i) threads.emplace_back([this] { stream(); });
    } catch (const std::system_error& error) {
      is_cancelled_ = true;
      for (std::thread& thread : threads) thread.join();
      return out_of_memory("no thread for a stream: {}", error.what());
    }
    for (std::thread& thread : threads) thread.join();
    if (is_cancelled_) return cancelled("the load was cancelled");
    for (const LoadRequest& r : result_.requests) result_.seconds = std::max(result_.seconds, r.last);
    return std::move(result_);
  }

 private:
  double now() const { return seconds_since(begin_); }

  void stream() {
    for (size_t index; !is_cancelled_ && (index = next_++) < options_.prompts.size();) converse(index);
  }

  void converse(size_t index) {
    std::string prompt = options_.prompts[index];
    for (int64_t turn = 0; turn < options_.turns && !is_cancelled_; ++turn) {
      const size_t at = index * static_cast<size_t>(options_.turns) + static_cast<size_t>(turn);
      LoadRequest& r = result_.requests[at];
      const Status status = request(prompt, r);
      r.last = now();
      if (!status.ok()) r.error = status.message();
      if (on_done_) {
        const std::lock_guard lock(mutex_);
        if (!on_done_()) is_cancelled_ = true;
      }
      prompt += fmt::format("{}\n{}", r.text, load_text(options_.turn_tokens, options_.seed + 31 * at));
    }
  }

  Status request(const std::string& prompt, LoadRequest& r) {
    r.sent = now();
    GenerateRequest request;
    REDLINE_ASSIGN(request.prompt, engine_.encode(prompt, true));
    request.sampling.temperature = 0;
    request.max_tokens = options_.max_tokens;
    request.ignore_stop_tokens = true;
    double last = 0;
    REDLINE_ASSIGN(const auto generation, engine_.submit(request, [&](const TextPiece& piece) {
      if (piece.text.empty()) return true;
      const double at = now();
      if (r.first == 0) r.first = at;
      else r.gaps.push_back(at - last);
      last = at;
      return true;
    }));
    REDLINE_ASSIGN(GenerateResult result, generation->wait());
    r.prompt_tokens = result.prompt_tokens;
    r.cached_tokens = result.cached_tokens;
    r.tokens = std::ssize(result.tokens);
    r.text = std::move(result.text);
    return {};
  }

  TextEngine& engine_;
  const LoadOptions& options_;
  const std::function<bool()>& on_done_;
  std::chrono::steady_clock::time_point begin_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> is_cancelled_{false};
  std::mutex mutex_;  ///< guards on_done_
  LoadResult result_;
};

}  // namespace

Result<LoadResult> run_engine_load(TextEngine& engine, const LoadOptions& options,
                                   const std::function<bool()>& on_done) {
  return EngineLoad(engine, options, on_done).run();
}

}  // namespace redline::lab
