// Batch files in OpenAI's format: a request in each line, and a line of answer for each.
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

struct BatchLine {
  int64_t number = 0;     ///< in the file, from 1
  std::string_view text;  ///< in the memory of the file
  std::string custom_id;  ///< "": the line gives none
  std::string model;      ///< of the body; "": none
  /// What is wrong with the line itself; without a message: nothing.
  ApiError problem;
  bool is_request() const { return problem.message.empty(); }
};

/// The requests of a file, in its order. Empty lines are skipped.
class BatchInput {
 public:
  /// As MappedFile::open. invalid_argument: no line at all; two lines with the same custom_id, with both numbers.
  static Result<BatchInput> read(const std::string& path);
  static Result<BatchInput> read(std::shared_ptr<MappedFile> file);
  const std::vector<BatchLine>& lines() const { return lines_; }
  const MappedFile& file() const { return *file_; }

 private:
  std::shared_ptr<MappedFile> file_;
  std::vector<BatchLine> lines_;
};

/// The file of answers. Only whole lines are ever left in it, so that a later run can keep them.
class BatchOutput {
 public:
  /// Creates the file, or keeps the answers to `input` that it has; a last line that is not complete is cut off.
  /// `drops_failed`: those that are errors are dropped, to be computed again.
  /// invalid_argument: it is the input, or not a regular file, or a line of it is not an answer to `input`. io: it
  /// cannot be written, or another process writes to it.
  static Result<BatchOutput> open(const std::string& path, const BatchInput& input, bool drops_failed);
  BatchOutput(BatchOutput&& other) noexcept;
  BatchOutput& operator=(BatchOutput&&) = delete;
  /// Removes the file if it is empty.
  ~BatchOutput();

  bool has(const BatchLine& line) const;
  int64_t kept() const { return kept_; }
  /// Adds a line in one piece. io: a full disk; what was written of the line is removed again.
  Status append(std::string_view line);
  /// Waits until the lines are on the disk.
  Status close();

 private:
  BatchOutput() = default;
  /// Reads the lines of an older run; those that stay are appended to `kept`.
  Status keep(const MappedFile& file, const BatchInput& input, bool drops_failed, std::string& kept);
  std::string path_;
  int descriptor_ = -1;
  int64_t size_ = 0, kept_ = 0;
  std::set<std::string, std::less<>> ids_;
  std::set<int64_t> numbers_;  ///< of lines without a custom_id
};

}  // namespace redline::server
