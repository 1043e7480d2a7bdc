// Recorded traffic for the scheduler's simulator: a file of one JSON object per line and request.
//
//   {"at_ms": 1404, "prompt": 1107, "output": 122, "client": "a", "priority": 1, "prefix": 5, "shared": 900,
//    "timeout_ms": 0, "cancel_ms": 250}
//
// at_ms      arrival after the first request's; prompt, output: tokens. These are required, the others are not.
// prefix     requests with the same number begin with the same tokens, `shared` of them
// cancel_ms  after its arrival the client goes away; 0: it stays
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "llm/scheduler_simulator.h"

namespace redline::testing {

/// io: no such file. invalid_argument: a line that is not such an object, with its number.
inline Result<std::vector<SimulatedRequest>> read_traffic(const std::string& path) {
  std::ifstream file(path);
  if (!file) return io("{}: cannot be read", path);
  std::vector<SimulatedRequest> requests;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) return invalid_argument("{}:{}: no JSON object", path, number);
    SimulatedRequest r;
    for (const auto& [name, value] : json.items()) {
      if (name == "client" ? !value.is_string() : !value.is_number())
        return invalid_argument("{}:{}: \"{}\" is of the wrong type", path, number, name);
      if (name == "at_ms") r.arrival_ms = value;
      else if (name == "prompt") r.prompt = value;
      else if (name == "output") r.output = value;
      else if (name == "client") r.client = value;
      else if (name == "priority") r.priority = value;
      else if (name == "prefix") r.prefix = value;
      else if (name == "shared") r.shared = value;
      else if (name == "timeout_ms") r.timeout_ms = value;
      else if (name == "cancel_ms") r.cancel_ms = value;
      else return invalid_argument("{}:{}: \"{}\" is unknown", path, number, name);
    }
    if (!json.contains("at_ms") || r.prompt < 1 || r.output < 1 || r.arrival_ms < 0 || r.shared < 0)
      return invalid_argument("{}:{}: at_ms, prompt and output are needed, and none is negative", path, number);
    r.shared = std::min(r.shared, r.prompt);
    requests.push_back(std::move(r));
  }
  return requests;
}

}  // namespace redline::testing
