// Reads any bytes as the parts of an HTTP request other than its header: a multipart form with the boundary in its
// first line, the query of a URL, and a JSON body that a schema checks.
#include "fuzz_input.h"
#include "server/form.h"

using namespace redline;
using namespace redline::server;

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Field kItem = {"", kString, "", {}};
  static const Schema kSchema = {"fuzz",
                                 {{"a", kInteger | kNumber, "", {.min = 0, .max = 9}},
                                  {"b", kArray, "", {.max_items = 3, .items = &kItem}},
                                  {"c", kString, "", {.max_length = 5}},
                                  {"d", kBoolean | kObject, "", {}}}};
  const std::string_view text = fuzz_text(data, size);
  const size_t line = std::min(text.find('\n'), text.size());
  auto form = parse_form("multipart/form-data; boundary=" + std::string(text.substr(0, line)),
                         text.substr(std::min(line + 1, text.size())), kSchema);
  std::vector<std::string> ignored;
  if (form.ok()) {
    size_t bytes = 0;
    for (const FormFile& file : form->files) bytes += file.bytes.size();
    require(bytes <= size);
    Json fields = form->fields;
    (void)validate(kSchema, fields, ignored);
  }
  if (auto query = parse_query(text, kSchema); query.ok()) (void)validate(kSchema, *query, ignored);
  if (auto body = parse_json(text); body.ok()) {
    (void)validate(kSchema, *body, ignored);
    require(parse_json(to_text(*body)).ok());
  }
  return 0;
}
