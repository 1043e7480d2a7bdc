#include "server/keep_alive.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "server/app.h"

namespace redline::server {
namespace {

/// Parses keep_alive: a number of seconds, or a duration in Go's notation: "1h30m", "90s", "1.5h", "-1".
Outcome<double> keep_alive_seconds(const Json& keep_alive) {
  if (keep_alive.is_number()) return keep_alive.get<double>();
  const std::string text = keep_alive;
  const ApiError error = bad_request(
      "keep_alive", "keep_alive is \"" + text.substr(0, 64) + "\"; it must be seconds, or as \"5m\"", "invalid_value");
  const char* at = text.c_str();
  const bool is_negative = *at == '-';
  if (is_negative) ++at;
  double seconds = 0;
  do {
    if (!std::isdigit(static_cast<unsigned char>(*at))) return error;
    char* end = nullptr;
    const double number = std::strtod(at, &end);
    const std::string_view unit = std::string_view(end).substr(0, std::strcspn(end, "0123456789."));
    constexpr std::pair<std::string_view, double> kUnits[] = {{"h", 3600}, {"m", 60}, {"s", 1}, {"ms", 1e-3}, {"", 1}};
    const auto* known =
        std::find_if(std::begin(kUnits), std::end(kUnits), [&](const auto& u) { return u.first == unit; });
    if (known == std::end(kUnits) || !std::isfinite(number)) return error;
    seconds += number * known->second;
    at = end + unit.size();
  } while (*at);
  return is_negative ? -seconds : seconds;
}

}  // namespace

const Field& keep_alive_field() {
  static const Field field{
      "keep_alive",
      kString | kNumber,
      "how long the model stays loaded without requests: seconds, or as \"5m\"; 0: it is unloaded, negative: it stays",
      {.max_length = 100}};
  return field;
}

Outcome<std::optional<double>> keep_alive_of(Call& call) {
  const auto found = call.body.find("keep_alive");
  if (found == call.body.end()) return std::optional<double>();
  SERVER_ASSIGN(const double seconds, keep_alive_seconds(*found));
  if (call.app.residency().options().unloads()) return std::optional(seconds);
  call.ignored.emplace_back("keep_alive");
  return std::optional<double>();
}

}  // namespace redline::server
