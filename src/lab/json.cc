#include "lab/json.h"

namespace redline::lab {

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace redline::lab
