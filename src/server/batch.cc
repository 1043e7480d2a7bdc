#include "server/batch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/elapsed.h"
#include "base/output_file.h"
#include "base/output_path.h"
#include "server/generation.h"

namespace redline::server {
namespace {

const Schema request_schema{
    "BatchRequest",
    {{"custom_id",
      kString,
      "a name of your own for the request, by which its answer is found",
      {.required = true, .min_length = 1}},
     {"method", kString, "POST", {.required = true, .choices = {"POST"}}},
     {"url",
      kString,
      "the path of the endpoint",
      {.required = true,
       .choices = {"/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses", "/v1/rerank"}}},
     {"body", kObject, "the request as it is sent to that path", {.required = true}}}};

/// Calls fn(line, next) for each line without its end, until that returns an error; `next`: where the next line begins,
/// or npos after a line without an end.
template <class F>
Status for_each_line(std::string_view text, const F& fn) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    std::string_view line = text.substr(begin, end == std::string_view::npos ? end : end - begin);
    begin = end == std::string_view::npos ? end : end + 1;
    if (line.ends_with('\r')) line.remove_suffix(1);
    REDLINE_TRY(fn(line, begin));
  }
  return {};
}

std::string string_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Checks a line, and takes its parts.
std::optional<ApiError> check_line(BatchLine& line) {
  Outcome<Json> json = parse_json(line.text);
  if (!json.ok()) return json.error();
  if (!json->is_object()) return bad_request("", "the line is not a JSON object");
  line.custom_id = string_of(*json, "custom_id");
  std::vector<std::string> ignored;
  if (auto error = validate(request_schema, *json, ignored)) return error;
  if (!ignored.empty())  // a line has no header to name it in
    return bad_request(ignored[0], fmt::format("unknown field {} of the line", ignored[0]), "unknown_parameter");
  const Json& body = (*json)["body"];
  line.model = string_of(body, "model");
  if (const auto stream = body.find("stream"); stream != body.end() && *stream == true)
    return bad_request("body.stream", "body.stream is true, but the answers of a batch are whole; leave it out");
  return std::nullopt;
}

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

/// The body is text already, which is not parsed again.
std::string answer_row(const BatchLine& line, int status, const std::string& request_id, std::string body) {
  for (char& c : body)
    if (c == '\n' || c == '\r') c = ' ';  // between values; in strings they are escaped
  return fmt::format(
      R"({{"id":{},"custom_id":{},"response":{{"status_code":{},"request_id":{},"body":{}}},"error":null}})",
      to_text(Json(new_id("batch_req_"))), to_text(Json(line.custom_id)), status, to_text(Json(request_id)), body);
}

bool has_failed(const Json& row) {
  const auto response = row.find("response");
  if (response == row.end() || !response->is_object()) return true;
  const auto status = response->find("status_code");
  return status == response->end() || !status->is_number_integer() || status->get<int>() >= 400;
}

/// The line that an error row is about; 0: none.
int64_t line_of(const Json& row) {
  const auto error = row.find("error");
  if (error == row.end() || !error->is_object()) return 0;
  const auto line = error->find("line");
  return line != error->end() && line->is_number_integer() ? line->get<int64_t>() : 0;
}

/// Which answers have something new, from any thread.
class Ready {
 public:
  void push(size_t place) {
    const std::lock_guard lock(mutex_);
    places_.push_back(place);
    changed_.notify_one();
  }
  /// nullopt: nothing in a tenth of a second.
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
    Json json = Json::parse(line.text);  // once more, rather than holding the requests of the whole file
    p.http = {};
    p.http.method = "POST";
    p.http.path = json["url"].get<std::string>();
    p.http.body = to_text(json["body"]);
    p.http.headers = {{"content-type", "application/json"}};
    p.http.id = new_request_id();
    listen(place, app_.handle(p.http));
    return take(place);  // what is known at once, such as a refusal
  }

  void listen(size_t place, std::unique_ptr<Answer> answer) {
    pending_[place].body.clear();
    pending_[place].answer = std::move(answer);
    pending_[place].answer->on_ready([ready = ready_, place] { ready->push(place); });
  }

  Status take(size_t place) {
    Pending& p = pending_[place];
    if (!p.line) return {};  // woken for output that was polled already
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
    const std::string message = error != json.end() && error->is_object() ? string_of(*error, "message") : "";
    return message.empty() ? fmt::format("status {}", status) : message;
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
  const std::shared_ptr<Ready> ready_ = std::make_shared<Ready>();  // outlives what an answer may still wake
  std::vector<Pending> pending_;
  std::vector<size_t> free_;  ///< places without a request
  BatchSummary summary_;
};

}  // namespace

Result<BatchInput> BatchInput::read(const std::string& path) {
  REDLINE_ASSIGN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
  return read(std::move(file));
}

Result<BatchInput> BatchInput::read(std::shared_ptr<MappedFile> file) {
  BatchInput input;
  input.file_ = std::move(file);
  const std::string& path = input.file_->path();
  std::unordered_map<std::string, int64_t> first;
  int64_t number = 0;
  REDLINE_TRY(for_each_line(input.file_->text(), [&](std::string_view text, size_t) -> Status {
    ++number;
    if (text.find_first_not_of(" \t") == std::string_view::npos) return {};
    BatchLine line{.number = number, .text = text, .custom_id = "", .model = "", .problem = {}};
    if (const std::optional<ApiError> error = check_line(line)) line.problem = *error;
    if (!line.custom_id.empty())
      if (const auto [at, is_first] = first.emplace(line.custom_id, number); !is_first)
        return invalid_argument(
            "{}: the custom_id \"{}\" is on the lines {} and {}; answers are found by it, so it must be unique", path,
            line.custom_id, at->second, number);
    input.lines_.push_back(std::move(line));
    return {};
  }));
  if (input.lines_.empty())
    return invalid_argument("{}: there is no request in it; each line is one, such as {}", path,
                            R"({"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {...}})");
  return input;
}

BatchOutput::BatchOutput(BatchOutput&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_),
      kept_(other.kept_), ids_(std::move(other.ids_)), numbers_(std::move(other.numbers_)) {}

BatchOutput::~BatchOutput() {
  if (descriptor_ < 0) return;
  struct stat now {};
  if (::fstat(descriptor_, &now) == 0 && now.st_size == 0) ::unlink(path_.c_str());
  ::close(descriptor_);
}

Result<BatchOutput> BatchOutput::open(const std::string& path, const BatchInput& input, bool drops_failed) {
  BatchOutput output;
  output.path_ = path;
  REDLINE_TRY(output_path(path));  // no folder and no device
  for (;;) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (descriptor < 0) return io("{}: cannot be written: {}", path, std::strerror(errno));
    if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      ::close(descriptor);
      return io("{}: another process writes to it; wait for it, or name another file", path);
    }
    output.descriptor_ = descriptor;
    REDLINE_ASSIGN(const std::shared_ptr<MappedFile> file, MappedFile::open(path));
    if (file->same_file(input.file())) return invalid_argument("{}: is the input itself; name another file", path);
    std::string kept;
    REDLINE_TRY(output.keep(*file, input, drops_failed, kept));
    if (!drops_failed) break;
    drops_failed = false;
    if (kept.size() == file->text().size()) break;
    REDLINE_TRY(write_file(path, kept));  // another file under the name, which is opened then
    ::close(std::exchange(output.descriptor_, -1));
    output.ids_.clear();
    output.numbers_.clear();
    output.kept_ = 0;
  }
  if (::ftruncate(output.descriptor_, output.size_) != 0) return io("{}: {}", path, std::strerror(errno));
  return output;
}

Status BatchOutput::keep(const MappedFile& file, const BatchInput& input, bool drops_failed, std::string& kept) {
  std::set<std::string_view> asked;
  std::set<int64_t> broken;
  for (const BatchLine& line : input.lines()) {
    if (line.custom_id.empty()) broken.insert(line.number);
    else asked.insert(line.custom_id);
  }
  int64_t number = 0;
  size_ = 0;
  return for_each_line(file.text(), [&](std::string_view text, size_t next) -> Status {
    ++number;
    if (next == std::string_view::npos) return {};
    size_ = static_cast<int64_t>(next);
    const Json row = Json::parse(text, nullptr, false);
    if (!row.is_object() || !row.contains("custom_id") || !row.contains("response"))
      return invalid_argument("{}:{}: is not an answer of a batch; name another file, or remove this one", path_,
                              number);
    const std::string id = string_of(row, "custom_id");
    if (!id.empty() && !asked.contains(id))
      return invalid_argument("{}:{}: answers \"{}\", which {} does not contain; name another file, or remove this one",
                              path_, number, id, input.file().path());
    if (drops_failed && has_failed(row)) return {};
    kept.append(text).push_back('\n');
    ++kept_;
    if (!id.empty()) ids_.insert(id);
    else if (const int64_t line = line_of(row); broken.contains(line)) numbers_.insert(line);
    return {};
  });
}

bool BatchOutput::has(const BatchLine& line) const {
  return line.custom_id.empty() ? numbers_.contains(line.number) : ids_.contains(line.custom_id);
}

Status BatchOutput::append(std::string_view line) {
  const std::string text = fmt::format("{}\n", line);
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::write(descriptor_, text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = errno;
      [[maybe_unused]] const int cut = ::ftruncate(descriptor_, size_);  // a later run would cut it off too
      return io("{}: writing failed: {}", path_, std::strerror(error));
    }
    done += static_cast<size_t>(n);
  }
  size_ += std::ssize(text);
  return {};
}

Status BatchOutput::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  const bool is_synced = ::fsync(descriptor) == 0 || errno == EINVAL;
  if (const int error = errno; ::close(descriptor) != 0 || !is_synced)
    return io("{}: writing failed: {}", path_, std::strerror(error));
  return {};
}

Result<BatchSummary> run_batch(App& app, const BatchInput& input, BatchOutput& output, const BatchOptions& options) {
  return BatchRun(app, input, output, options).run();
}

}  // namespace redline::server
