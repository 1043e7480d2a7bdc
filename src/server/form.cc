#include "server/form.h"

#include <algorithm>

#include "base/ascii.h"
#include "server/http.h"

namespace redline::server {
namespace {

constexpr size_t kMaxParts = 1000;

ApiError malformed(const std::string& what) {
  return bad_request("", "malformed multipart/form-data: " + what, "malformed_request");
}

/// Returns the value of a parameter of a header ("form-data; name=\"a\""). nullopt: there is no such parameter.
std::optional<std::string> parameter(std::string_view header, std::string_view wanted) {
  size_t at = header.find(';');
  while (at < header.size()) {
    at = header.find_first_not_of("; \t", at);
    if (at == std::string::npos) break;
    const size_t equals = header.find('=', at);
    if (equals == std::string::npos) break;
    const std::string name = ascii_lower(header.substr(at, equals - at));
    std::string value;
    at = equals + 1;
    if (at < header.size() && header[at] == '"') {
      for (++at; at < header.size() && header[at] != '"'; ++at) {
        if (header[at] == '\\' && at + 1 < header.size()) ++at;
        value += header[at];
      }
      ++at;
    } else {
      const size_t end = std::min(header.find(';', at), header.size());
      value = header.substr(at, end - at);
      while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.pop_back();
      at = end;
    }
    if (name == wanted) return value;
  }
  return std::nullopt;
}

/// Converts text to a value of the field's types. Text that is not such a value stays a string, which the check of the
/// schema reports.
Json value_of(std::string text, unsigned types) {
  if (types & kString) return text;
  if (types == kAny) return text;
  auto parsed = parse_json(text);
  return parsed.ok() && !parsed->is_string() ? std::move(*parsed) : Json(std::move(text));
}

/// Adds a field. A second field of the same name makes the value an array.
void add_field(Json& fields, std::string name, std::string text, const Schema& schema) {
  const bool is_list = name.ends_with("[]");
  if (is_list) name.resize(name.size() - 2);
  const auto field =
      std::find_if(schema.fields.begin(), schema.fields.end(), [&](const Field& f) { return f.name == name; });
  const unsigned types = field == schema.fields.end() ? kString : field->types;
  const unsigned item = field != schema.fields.end() && field->rules.items ? field->rules.items->types : kString;
  Json value = value_of(std::move(text), is_list ? item : types);
  const auto before = fields.find(name);
  if (before == fields.end()) fields[name] = is_list ? Json::array({std::move(value)}) : std::move(value);
  else if (before->is_array()) before->push_back(std::move(value));
  else *before = Json::array({*before, std::move(value)});
}

struct Part {
  std::string disposition;
  std::string_view body;
};

Outcome<Part> parse_part(std::string_view text) {
  Part part;
  while (true) {
    const size_t end = text.find("\r\n");
    if (end == std::string::npos) return malformed("a part without an empty line after its headers");
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 2);
    if (line.empty()) break;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) return malformed("a part's header without a colon");
    if (ascii_lower(line.substr(0, colon)) == "content-disposition") part.disposition = line.substr(colon + 1);
  }
  part.body = text;
  return part;
}

}  // namespace

bool is_form(std::string_view content_type) {
  return ascii_lower(content_type.substr(0, content_type.find(';'))) == "multipart/form-data";
}

Outcome<Form> parse_form(std::string_view content_type, std::string_view body, const Schema& schema) {
  const std::optional<std::string> boundary = parameter(content_type, "boundary");
  if (!boundary || boundary->empty() || boundary->size() > 70) return malformed("the Content-Type has no boundary");
  const std::string border = "\r\n--" + *boundary;
  Form form;
  // The first border may begin the body, without a line break.
  size_t at = 0;
  if (body.starts_with(std::string_view(border).substr(2))) {
    at = border.size() - 2;
  } else {
    at = body.find(border);
    if (at == std::string::npos) return malformed("the boundary does not occur in the body");
    at += border.size();
  }
  for (size_t parts = 0; !body.substr(at).starts_with("--"); ++parts) {
    if (parts == kMaxParts) return malformed("too many parts");
    const size_t line_end = body.find("\r\n", at);
    const size_t end = line_end == std::string::npos ? std::string::npos : body.find(border, line_end);
    if (end == std::string::npos) return malformed("the last boundary is missing");
    if (end == line_end) return malformed("a part without an empty line after its headers");
    SERVER_ASSIGN(const Part part, parse_part(body.substr(line_end + 2, end - line_end - 2)));
    const std::optional<std::string> named = parameter(part.disposition, "name");
    if (!named) return malformed("a part without a name");
    std::string name = *named;
    if (const auto file = parameter(part.disposition, "filename")) {
      if (name.ends_with("[]")) name.resize(name.size() - 2);
      form.files.push_back({std::move(name), *file, std::string(part.body)});
    } else {
      add_field(form.fields, std::move(name), std::string(part.body), schema);
    }
    at = end + border.size();
  }
  return form;
}

Outcome<Json> parse_query(std::string_view query, const Schema& schema) {
  Json fields = Json::object();
  std::string spaced(query);
  std::replace(spaced.begin(), spaced.end(), '+', ' ');
  for (std::string_view rest = spaced; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::string_view name = pair.substr(0, pair.find('='));
    if (name.empty()) continue;
    std::string key, value;
    if (!percent_decode(name, key) || !percent_decode(pair.substr(std::min(pair.size(), name.size() + 1)), value))
      return bad_request("", "malformed percent-encoding in the query", "malformed_request");
    add_field(fields, std::move(key), std::move(value), schema);
  }
  return fields;
}

}  // namespace redline::server
