// Reads any bytes as JSON. The bounds that are checked before a parser runs must hold for its result, and the scanner
// that builds no tree must accept every text that the parser accepts.
#include "base/json_text.h"

#include <nlohmann/json.hpp>

#include "formats/json_scanner.h"
#include "fuzz_input.h"
#include "text/json_infinities.h"
#include "text/json_reader.h"

using namespace redline;

namespace {

int depth_of(const Json& value) {
  int deepest = 0;
  if (value.is_structured())
    for (const Json& each : value) deepest = std::max(deepest, depth_of(each));
  return deepest + (value.is_structured() ? 1 : 0);
}

int64_t values_of(const Json& value) {
  int64_t count = 1;
  if (value.is_structured())
    for (const Json& each : value) count += values_of(each);
  return count;
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz_text(data, size);
  const JsonBounds bounds{.depth = 8, .values = 100};
  const auto parsed = parse_json(text, "x.json");
  if (!parsed.ok()) require(!parsed.status().message().empty());
  else require(depth_of(*parsed) <= kMaxJsonDepth && !spell(*parsed).empty());
  if (parsed.ok() && check_json_bounds(text, "x", bounds).ok())
    require(depth_of(*parsed) <= bounds.depth && values_of(*parsed) <= bounds.values);
  require(parse_json_or_discard<Json>(text).is_discarded() == !parsed.ok() || !parsed.ok());

  const std::string path = "x.json";
  JsonScanner scanner(path, text);
  const bool is_scanned = scanner.skip().ok() && scanner.end().ok();
  if (parsed.ok()) require(is_scanned);
  (void)parse_json(without_infinities(text), "x.json");
  return 0;
}
