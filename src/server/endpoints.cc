#include "server/endpoint.h"

namespace redline::server {

#define REDLINE_ENDPOINTS(name) std::vector<Endpoint> name##_endpoints();
#include <endpoint_files.inc>  // of the build: one row per file in endpoints/
#undef REDLINE_ENDPOINTS

const std::vector<Endpoint>& endpoints() {
  static const std::vector<Endpoint> table = [] {
    std::vector<Endpoint> all;
#define REDLINE_ENDPOINTS(name) \
  for (const Endpoint& endpoint : name##_endpoints()) all.push_back(endpoint);
#include <endpoint_files.inc>  // of the build: one row per file in endpoints/
#undef REDLINE_ENDPOINTS
    return all;
  }();
  return table;
}

}  // namespace redline::server
