#include "server/batch.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "base/elapsed.h"
#include "server/generation.h"
#include "server/ids.h"

namespace redline::server {
namespace {

Json error_row(const BatchLine& line) {
  const ApiError& e = line.problem;
  return {{"id", new_id("batch_req_")},
          {"custom_id", line.custom_id.empty() ? Json(nullptr) : Json(line.custom_id)},
          {"response", nullptr},
          {"error",
           {{"code", e.code.empty() ? "invalid_request" : e.code},
            {"message", fmt::format("line {}: {}", line.number, e.message)},
            {"param", e.param.empty() ? Json(nullptr) : Json(e.param)},
            {"line", line.number}}}};
}

/// Returns the line of an answer. The body is JSON text already and is inserted without parsing it.
std::string answer_row(const BatchLine& line, int status, const std::string& request_id, std::string body) {
  for (char& c : body)
    if (c == '\n' || c == '\r') c = ' ';  // line breaks between values; those in strings are escaped
  return fmt::format(
      R"({{"id":{},"custom_id":{},"response":{{"status_code":{},"request_id":{},"body":{}}},"error":null}})",
      to_text(Json(new_id("batch_req_"))), to_text(Json(line.custom_id)), status, to_text(Json(request_id)), body);
}

/// A queue of the answers that have new output. Thread-safe.
class Ready {
 public:
  void push(size_t place) {
    const std::lock_guard lock(mutex_);
    places_.push_back(place);
    changed_.notify_one();
  }
  /// Waits for an answer with new output. nullopt: there was none for a tenth of a second.
  std::optional<size_t> pop() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::milliseconds(100), [&] { return !places_.empty(); })) return std::nullopt;
    const size_t place = places_.front();
    places_.pop_front();
    return place;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<size_t> places_;
};

class BatchRun {
 public:
  BatchRun(App& app, const BatchInput& input, BatchOutput& output, const BatchOptions& options)
      : app_(app), output_(output), options_(options), next_(input.lines().begin()), end_(input.lines().end()),
        pending_(static_cast<size_t>(std::max<int64_t>(1, options.requests_at_once))) {
    free_.reserve(pending_.size());
    for (size_t place = pending_.size(); place > 0; --place) free_.push_back(place - 1);
  }

  Result<BatchSummary> run() {
    const auto begin = std::chrono::steady_clock::now();
    while (options_.goes_on()) {
      while (next_ != end_ && output_.has(*next_)) ++next_;
      if (next_ != end_ && !free_.empty()) {
        REDLINE_TRY(start(*next_++));
        continue;
      }
      if (free_.size() == pending_.size()) break;
      if (const std::optional<size_t> place = ready_->pop()) REDLINE_TRY(take(*place));
    }
    summary_.seconds = seconds_since(begin);
    return std::move(summary_);
  }

 private:
  struct Pending {
    const BatchLine* line = nullptr;  ///< null: the place is free
    HttpRequest http;
    std::string body;
    std::unique_ptr<Answer> answer;
  };

  Status start(const BatchLine& line) {
    if (!line.is_request()) return finish(line, to_text(error_row(line)), line.problem.message);
    const size_t place = free_.back();
    free_.pop_back();
    Pending& p = pending_[place];
    p.line = &line;
    // parsed again, so that the requests of the whole file need not be in memory
    Outcome<Json> read = parse_json(line.text);
    REDLINE_CHECK(read.ok());  // it was valid when the file was read
    Json& json = *read;
    p.http = {};
    p.http.method = "POST";
    p.http.path = json["url"].get<std::string>();
    p.http.body = to_text(json["body"]);
    p.http.headers = {{"content-type", "application/json"}};
    p.http.id = new_request_id();
    listen(place, app_.handle(p.http));
    return take(place);  // takes output that is available at once, such as a refusal
  }

  void listen(size_t place, std::unique_ptr<Answer> answer) {
    pending_[place].body.clear();
    pending_[place].answer = std::move(answer);
    pending_[place].answer->on_ready([ready = ready_, place] { ready->push(place); });
  }

  Status take(size_t place) {
    Pending& p = pending_[place];
    if (!p.line) return {};  // the output has been polled already
    Progress progress = Progress::kMore;
    while (progress == Progress::kMore) progress = p.answer->poll(p.body);
    if (progress != Progress::kDone) return {};
    if (const auto go_on = p.answer->continuation()) {
      listen(place, go_on());
      return take(place);
    }
    const AnswerFacts& facts = p.answer->facts;
    summary_.prompt_tokens += facts.prompt_tokens;
    summary_.cached_tokens += facts.cached_tokens;
    summary_.generated_tokens += facts.generated_tokens;
    const BatchLine& line = *std::exchange(p.line, nullptr);
    const std::string problem = p.answer->status < 400 ? "" : problem_of(p.body, p.answer->status);
    const std::string row = answer_row(line, p.answer->status, p.http.id, std::move(p.body));
    p.answer.reset();
    free_.push_back(place);
    return finish(line, row, problem);
  }

  static std::string problem_of(const std::string& body, int status) {
    const Json json = Json::parse(body, nullptr, false);
    const auto error = json.is_object() ? json.find("error") : json.end();
    if (error != json.end() && error->is_object())
      if (const auto message = error->find("message"); message != error->end() && message->is_string())
        return message->get<std::string>();
    return fmt::format("status {}", status);
  }

  Status finish(const BatchLine& line, const std::string& row, const std::string& problem) {
    REDLINE_TRY(output_.append(row));
    ++summary_.answered;
    if (!problem.empty()) {
      ++summary_.failed;
      if (summary_.first_failure.empty()) summary_.first_failure = fmt::format("line {}: {}", line.number, problem);
    }
    options_.on_answer();
    return {};
  }

  App& app_;
  BatchOutput& output_;
  const BatchOptions& options_;
  std::vector<BatchLine>::const_iterator next_;
  const std::vector<BatchLine>::const_iterator end_;
  const std::shared_ptr<Ready> ready_ = std::make_shared<Ready>();  // shared, because answers may call it later
  std::vector<Pending> pending_;
  std::vector<size_t> free_;  ///< places without a request
  BatchSummary summary_;
};

}  // namespace

Result<BatchSummary> run_batch(App& app, const BatchInput& input, BatchOutput& output, const BatchOptions& options) {
  return BatchRun(app, input, output, options).run();
}

}  // namespace redline::server
