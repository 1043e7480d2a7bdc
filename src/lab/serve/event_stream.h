// Server-sent events of a completions API, as the client of a load test reads them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline::lab {

/// Splits a stream into events, in linear time however it is cut. Fields other than "data" are left out.
class EventReader {
 public:
  static constexpr size_t kMaxEventBytes = size_t{16} << 20;
  /// Calls `on_data` with the data of each event that ends in `bytes`; several lines of data are joined by line breaks.
  /// invalid_argument: an event of more than kMaxEventBytes.
  Status push(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);

 private:
  void take_line(const std::function<void(std::string_view data)>& on_data);
  std::string line_, data_;
  bool has_data_ = false;
};

struct CompletionUsage {
  int64_t prompt_tokens = 0, tokens = 0, cached_tokens = 0;
};
/// What an event of a completion says. A server may send anything: values of other types than the API's count as absent.
struct CompletionEvent {
  std::optional<CompletionUsage> usage;
  std::string text;  ///< of the first choice
};
/// No usage and no text: it is not JSON, such as "[DONE]", or says neither.
CompletionEvent parse_completion_event(std::string_view data);

}  // namespace redline::lab
