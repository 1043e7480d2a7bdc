#include "base/json_text.h"

#include <algorithm>

#include "base/ordered_json.h"

namespace redline {

Status check_json_bounds(std::string_view text, std::string_view name, const JsonBounds& bounds) {
  const auto error = [&](size_t at, std::string_view what) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    return invalid_argument("{}: at byte {} (line {}): {}", name, at, line, what);
  };
  int depth = 0;
  int64_t values = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i)
          if (text[i] == '\\') ++i;
        break;
      case '[':
      case '{':
        if (++depth > bounds.depth) return error(i, fmt::format("JSON nested more than {} levels deep", bounds.depth));
        ++values;
        break;
      case ']':
      case '}': --depth; break;
      case ',': ++values; break;
      case '\0': return error(i, "a zero byte in JSON");
      default: break;
    }
    if (values > bounds.values) return error(i, fmt::format("JSON of more than {} values", bounds.values));
  }
  return {};
}

template <>
nlohmann::ordered_json parse_json_or_discard<nlohmann::ordered_json>(std::string_view text) {
  using Json = nlohmann::ordered_json;
  if (!check_json_bounds(text, "").ok()) return Json(Json::value_t::discarded);
  OrderedJsonBuilder builder;
  return builder.parse(text) ? std::move(builder.root()) : Json(Json::value_t::discarded);
}

}  // namespace redline
