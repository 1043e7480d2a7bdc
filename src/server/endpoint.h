// An endpoint describes itself: its row is what routes to it, checks its requests and documents it in /openapi.json.
//
// To add one: a file endpoints/NAME.cc that defines `std::vector<Endpoint> NAME_endpoints()`, and its test. The build
// finds the file.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/constraint_fields.h"
#include "server/form.h"
#include "server/http.h"
#include "server/schema.h"

namespace redline::server {

class App;

/// One request to an endpoint.
struct Call {
  App& app;
  const HttpRequest& http;
  Json body;                             ///< checked, without nulls: of the body, or of the query; null without schema
  std::vector<std::string> path_values;  ///< of the {names} in the path
  ErrorShape shape = ErrorShape::kOpenAi;
  std::vector<FormFile> files = {};       ///< of a form
  NamedConstraint constraint = {};        ///< of the text; see generation_request()
  std::vector<std::string> ignored = {};  ///< fields for the header X-Redline-Ignored
};

using AnswerOr = Outcome<std::unique_ptr<Answer>>;

/// An answer that /openapi.json promises. Errors that any endpoint may give are added to these.
struct DocumentedAnswer {
  int status = 200;
  std::string description;
  const Schema* schema = nullptr;  ///< nullptr: no body, or a body that is not JSON
  std::string content_type = "application/json";
};

struct EndpointRules {
  const Schema* request = nullptr;  ///< of a JSON body; nullptr: none
  const Schema* query = nullptr;    ///< of the URL's query, where there is no body; nullptr: any, without effect
  ErrorShape errors = ErrorShape::kOpenAi;
  bool takes_form = false;  ///< multipart/form-data too
  bool needs_key = true;
  bool is_quick = false;                 ///< takes no time: it is answered beside what does
  bool needs_models = false;             ///< answered with 503 while models are loaded or the server drains
  std::vector<int> error_statuses = {};  ///< 404 and others that this endpoint gives
};

struct Endpoint {
  std::string method, path;  ///< "/v1/models/{model}"; a {name} at the end also takes slashes
  std::string tag, summary;
  std::vector<DocumentedAnswer> answers;
  AnswerOr (*handle)(Call&);
  EndpointRules rules = {};
};

/// The endpoints of all files in endpoints/.
const std::vector<Endpoint>& endpoints();

/// The description of all endpoints, OpenAPI 3.1. `asks_for_key`: API keys are set.
Json openapi(bool asks_for_key);

inline std::unique_ptr<Answer> json_answer(const Json& json, int status = 200) {
  return std::make_unique<FixedAnswer>(to_text(json), status);
}

}  // namespace redline::server
