// Parses the server-sent events of a completions API, for the client of a load test.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace redline::lab {

/// Splits a stream into events, in linear time whatever the sizes of its pieces. A line ends with CR, LF or CR LF.
/// Fields other than "data" are ignored.
class EventReader {
 public:
  /// Maximum bytes of an event: its data so far and the current line.
  static constexpr size_t kMaxEventBytes = size_t{16} << 20;
  /// Adds the next piece of the stream. Calls `on_data` with the data of each event that ends in it; several lines of
  /// data are joined by line breaks. invalid_argument: an event of more than kMaxEventBytes.
  Status push(std::string_view bytes, const std::function<void(std::string_view data)>& on_data);

 private:
  /// Adds the data in line_ to data_. An empty line ends the event.
  void take_line(const std::function<void(std::string_view data)>& on_data);
  std::string line_, data_;  ///< the current line, and the data of the current event
  bool ended_with_cr_ =
      false;               ///< the last byte was a carriage return, so a line feed now belongs to the same line end
  bool has_data_ = false;  ///< the event has a line of data, which may be empty
};

/// Token counts that the server reports; 0: not reported. `tokens` were generated; `cached_tokens` are part of the
/// prompt.
struct CompletionUsage {
  int64_t prompt_tokens = 0, tokens = 0, cached_tokens = 0;
};
/// The contents of one event of a completion. A server may send anything: values of other types than the API's count as
/// absent.
struct CompletionEvent {
  std::optional<CompletionUsage> usage;
  std::string text;  ///< text of the first choice; "": none
};
/// Parses the data of an event. Returns neither usage nor text if the data has none, or is not JSON, such as "[DONE]".
CompletionEvent parse_completion_event(std::string_view data);

}  // namespace redline::lab
