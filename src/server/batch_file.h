// Batch files in OpenAI's format: each line is a request, and each gets a line with its answer.
//
//   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"messages": [...]}}
//   {"id": "batch_req_1f...", "custom_id": "a", "response": {"status_code": 200, "request_id": "...", "body": {...}},
//    "error": null}
//
// A line that is not such a request is answered too: {"custom_id": null, "response": null, "error": {"code", "message",
// "param", "line"}}. A request that the endpoint refuses has its status and its body in "response".
#pragma once

#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "server/api_error.h"

namespace redline::server {

/// One line of a batch file.
struct BatchLine {
  int64_t number = 0;     ///< line number in the file, from 1
  std::string_view text;  ///< a view into the file
  std::string custom_id;  ///< "": the line has none
  std::string model;      ///< model named in the body; "": none
  /// The error in the line itself; an empty message means none.
  ApiError problem;
  bool is_request() const { return problem.message.empty(); }
};

/// The requests of a file, in its order. Empty lines are skipped.
class BatchInput {
 public:
  /// Reads a file. Errors as MappedFile::open. invalid_argument: no line at all; two lines with the same custom_id,
  /// with both numbers.
  static Result<BatchInput> read(const std::string& path);
  static Result<BatchInput> read(std::shared_ptr<MappedFile> file);
  const std::vector<BatchLine>& lines() const { return lines_; }
  const MappedFile& file() const { return *file_; }

 private:
  std::shared_ptr<MappedFile> file_;
  std::vector<BatchLine> lines_;
};

/// The file of answers. It always ends with a whole line, so that a later run can keep the answers.
class BatchOutput {
 public:
  /// Creates the file, or keeps its existing answers to `input`; an incomplete last line is removed. `drops_failed`:
  /// existing answers that are errors are removed, to be computed again. invalid_argument: the file is the input, or
  /// not a regular file, or a line of it is not an answer to `input`. io: it cannot be written, or another process
  /// writes to it.
  static Result<BatchOutput> open(const std::string& path, const BatchInput& input, bool drops_failed);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  /// Removes the file if it is empty.
  ~BatchOutput();

  /// Returns true if the file had an answer to the line when it was opened.
  bool has(const BatchLine& line) const;
  /// Returns the number of answers that were kept when the file was opened.
  int64_t kept() const { return kept_; }
  /// Adds a line in one piece. io: a full disk; the part of the line that was written is removed.
  Status append(std::string_view line);
  /// Waits until the lines are on the disk, and closes the file.
  Status close();

 private:
  BatchOutput() = default;
  /// Reads the lines of an older run; those that are kept are appended to `kept`.
  Status keep(const MappedFile& file, const BatchInput& input, bool drops_failed, std::string& kept);
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0, kept_ = 0;             ///< bytes of all whole lines, and number of answers kept from earlier runs
  std::set<std::string, std::less<>> ids_;  ///< custom_ids of the kept answers
  std::set<int64_t> numbers_;               ///< line numbers of kept answers without a custom_id
};

}  // namespace redline::server
