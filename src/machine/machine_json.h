// Converts the machine's peaks and state to the JSON of `devices` and `bench`.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>

#include "machine/machine_state.h"
#include "machine/peaks.h"

namespace redline {

inline nlohmann::ordered_json peak_json(const Peak& c) {
  nlohmann::ordered_json json = {{"unit", c.unit}, {"per_thread", c.per_thread}, {"all", c.all}, {"spread", c.spread}};
  if (!c.isa.empty()) json["isa"] = c.isa;
  if (!c.instruction.empty()) json["instruction"] = c.instruction;
  return json;
}

/// Returns the best instruction of each type under its name ("f32", "int8"), and all instructions under "instructions".
inline nlohmann::ordered_json peaks_json(const MachinePeaks& peaks) {
  nlohmann::ordered_json json = {{"isa", peaks.isa}, {"threads", peaks.threads}};
  json["read_bytes"] =
      peaks.read_bytes > 0 ? nlohmann::ordered_json(peaks.read_bytes) : nlohmann::ordered_json(nullptr);
  nlohmann::ordered_json instructions = nlohmann::ordered_json::array();
  for (const Peak& c : peaks.rows) {
    std::string key = c.name;
    std::replace(key.begin(), key.end(), ' ', '_');
    if (&c == peaks.find(c.name)) json[key] = peak_json(c);
    if (c.instruction.empty()) continue;
    nlohmann::ordered_json row = {{"type", c.name}};
    row.update(peak_json(c));
    instructions.push_back(std::move(row));
  }
  json["instructions"] = std::move(instructions);
  const auto latency = [](double value) {
    return value > 0 ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  };
  json["ping_pong_ns"] = latency(peaks.ping_pong_ns);
  json["ping_pong_worst_ns"] = latency(peaks.ping_pong_worst_ns);
  json["wake_up_us"] = latency(peaks.wake_up_us);
  return json;
}

inline nlohmann::ordered_json state_json(const MachineState& state) {
  return {{"read_gb_per_s", state.read_gb_s},
          {"f32_gop_per_s", state.f32_gop_s},
          {"ping_pong_ns",
           state.ping_pong_ns > 0 ? nlohmann::ordered_json(state.ping_pong_ns) : nlohmann::ordered_json(nullptr)}};
}

}  // namespace redline
