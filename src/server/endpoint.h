// The description of an endpoint. Its row routes requests to it, checks them and documents it in /openapi.json.
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
  /// The checked body or query, without nulls; null without a schema.
  Json body;
  std::vector<std::string> path_values;  ///< values of the {names} in the path
  ErrorShape shape = ErrorShape::kOpenAi;
  std::vector<FormFile> files = {};       ///< files of a form
  NamedConstraint constraint = {};        ///< constraint of the text; see generation_request()
  std::vector<std::string> ignored = {};  ///< fields for the header X-Redline-Ignored
};

using AnswerOr = Outcome<std::unique_ptr<Answer>>;

/// An answer that /openapi.json documents. Errors that any endpoint may give are added.
struct DocumentedAnswer {
  int status = 200;
  std::string description;
  const Schema* schema = nullptr;  ///< nullptr: no body, or a body that is not JSON
  std::string content_type = "application/json";
};

struct EndpointRules {
  const Schema* request = nullptr;  ///< schema of a JSON body; nullptr: no body
  /// Schema of the URL's query, if there is no body; nullptr: any query, without effect
  const Schema* query = nullptr;
  ErrorShape errors = ErrorShape::kOpenAi;
  bool takes_form = false;  ///< accepts multipart/form-data too
  bool needs_key = true;
  bool is_quick = false;                 ///< fast: it does not wait for slow requests
  bool needs_models = false;             ///< answers 503 while models are loaded or the server drains
  std::vector<int> error_statuses = {};  ///< 404 and other errors that this endpoint gives
};

/// An endpoint: its route, its documentation and its handler.
struct Endpoint {
  std::string method, path;  ///< "/v1/models/{model}"; a {name} at the end also takes slashes
  std::string tag, summary;
  std::vector<DocumentedAnswer> answers;
  AnswerOr (*handle)(Call&);
  EndpointRules rules = {};
};

/// Returns the endpoints of all files in endpoints/.
const std::vector<Endpoint>& endpoints();

/// Returns the description of all endpoints in OpenAPI 3.1. `asks_for_key`: API keys are set.
Json openapi(bool asks_for_key);

inline std::unique_ptr<Answer> json_answer(const Json& json, int status = 200) {
  return std::make_unique<FixedAnswer>(to_text(json), status);
}

}  // namespace redline::server
