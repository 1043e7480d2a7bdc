#include "server/batch_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/ordered_json.h"
#include "base/output_file.h"
#include "base/output_path.h"
#include "server/schema.h"

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

/// Calls fn(line, next) for each line, until it returns an error. `line` has no line break. `next` is the offset of the
/// next line, or npos if the last line is incomplete: it has no line break in `text`.
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

/// Returns a member that is a string, or "".
std::string string_of(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Checks that a line is a request, and sets its custom_id and model. Returns the error, or nullopt.
std::optional<ApiError> check_line(BatchLine& line) {
  Outcome<Json> json = parse_json(line.text);
  if (!json.ok()) return json.error();
  if (!json->is_object()) return bad_request("", "the line is not a JSON object");
  line.custom_id = string_of(*json, "custom_id");
  std::vector<std::string> ignored;
  if (auto error = validate(request_schema, *json, ignored)) return error;
  // A response names unknown fields in a header. A line of a batch has no header, so they are errors.
  if (!ignored.empty())
    return bad_request(ignored[0], fmt::format("unknown field {} of the line", ignored[0]), "unknown_parameter");
  const Json& body = (*json)["body"];
  line.model = string_of(body, "model");
  if (const auto stream = body.find("stream"); stream != body.end() && *stream == true)
    return bad_request("body.stream", "body.stream is true, but the answers of a batch are whole; leave it out");
  return std::nullopt;
}

/// Returns true if an answer is an error: it has no response, or one without a status below 400.
bool has_failed(const Json& row) {
  const auto response = row.find("response");
  if (response == row.end() || !response->is_object()) return true;
  const auto status = response->find("status_code");
  return status == response->end() || !status->is_number_integer() || *status >= 400;
}

/// Returns the line number in the error of an answer; 0: none.
int64_t line_of(const Json& row) {
  const auto error = row.find("error");
  if (error == row.end() || !error->is_object()) return 0;
  const auto line = error->find("line");
  return line != error->end() && line->is_number_integer() ? line->get<int64_t>() : 0;
}

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
  REDLINE_TRY(output_path(path));  // refuses folders and devices
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
    REDLINE_TRY(write_file(path, kept));  // replaces the file; the next iteration opens the new one
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
    OrderedJsonBuilder builder;  // no limit of depth: an answer may contain parts of a request
    const bool is_json = builder.parse(text);
    const Json& row = builder.root();
    if (!is_json || !row.is_object() || !row.contains("custom_id") || !row.contains("response"))
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
      // If the incomplete line cannot be removed here, a later run does.
      [[maybe_unused]] const int cut = ::ftruncate(descriptor_, size_);
      return io("{}: writing failed: {}", path_, std::strerror(error));
    }
    done += static_cast<size_t>(n);
  }
  size_ += std::ssize(text);
  return {};
}

Status BatchOutput::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  int error = ::fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  if (::close(descriptor) != 0 && error == 0) error = errno;
  if (error != 0) return io("{}: writing failed: {}", path_, std::strerror(error));
  return {};
}

}  // namespace redline::server
