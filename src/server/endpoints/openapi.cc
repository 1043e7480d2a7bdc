// GET /openapi.json.
#include "server/app.h"

namespace redline::server {
namespace {

const Schema openapi_document_schema{
    "OpenApiDocument", {{"openapi", kString, "the version", {.required = true}}}, true};

AnswerOr get_openapi(Call& call) { return json_answer(openapi(!call.app.keys().empty())); }

}  // namespace

std::vector<Endpoint> openapi_endpoints() {
  return {{"GET",
           "/openapi.json",
           "operations",
           "this description",
           {{200, "the description of all endpoints", &openapi_document_schema}},
           get_openapi,
           {.needs_key = false}}};
}

}  // namespace redline::server
