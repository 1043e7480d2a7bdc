// Bodies of type multipart/form-data (RFC 7578), in which OpenAI's clients send images, and queries of URLs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/schema.h"

namespace redline::server {

struct FormFile {
  std::string field, name;
  std::string bytes;
};

struct Form {
  Json fields = Json::object();  ///< the fields in the form of a JSON body
  std::vector<FormFile> files;
};

bool is_form(std::string_view content_type);
/// Parses a form. Text fields get the types that `schema` gives them; "name[]", and a name that occurs more than once,
/// become arrays. Parts with a file name are files. invalid_request_error: no boundary, or a malformed part.
Outcome<Form> parse_form(std::string_view content_type, std::string_view body, const Schema& schema);
/// Parses the query "a=1&b[]=x" of a URL by the same rules. invalid_request_error: malformed percent-encoding.
Outcome<Json> parse_query(std::string_view query, const Schema& schema);

}  // namespace redline::server
