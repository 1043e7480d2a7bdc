#include "server/endpoint.h"

namespace redline::server {

#define REDLINE_ROW(rows) std::vector<Endpoint> rows();
#include <endpoints.inc>  // of the build: one row per file in endpoints/
#undef REDLINE_ROW

const std::vector<Endpoint>& endpoints() {
  static const std::vector<Endpoint> table = [] {
    std::vector<Endpoint> all;
#define REDLINE_ROW(rows) \
  for (const Endpoint& endpoint : rows()) all.push_back(endpoint);
#include <endpoints.inc>
#undef REDLINE_ROW
    return all;
  }();
  return table;
}

}  // namespace redline::server
