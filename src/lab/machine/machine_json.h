// Converts the machine's peaks and state to the JSON of `devices` and `bench`.
#pragma once

#include <algorithm>

#include "lab/json.h"
#include "lab/machine/machine_state.h"
#include "lab/machine/peaks.h"

namespace redline::lab {

inline Json peak_json(const Peak& c) {
  Json json = {{"unit", c.unit}, {"per_thread", c.per_thread}, {"all", c.all}, {"spread", c.spread}};
  if (!c.isa.empty()) json["isa"] = c.isa;
  if (!c.instruction.empty()) json["instruction"] = c.instruction;
  return json;
}

/// Returns the best instruction of each type under its name ("f32", "int8"), and all instructions under "instructions".
inline Json peaks_json(const MachinePeaks& peaks) {
  Json json = {{"isa", peaks.isa}, {"threads", peaks.threads}};
  json["read_bytes"] = peaks.read_bytes > 0 ? Json(peaks.read_bytes) : Json(nullptr);
  Json instructions = Json::array();
  for (const Peak& c : peaks.rows) {
    std::string key = c.name;
    std::replace(key.begin(), key.end(), ' ', '_');
    if (&c == peaks.find(c.name)) json[key] = peak_json(c);
    if (c.instruction.empty()) continue;
    Json row = {{"type", c.name}};
    row.update(peak_json(c));
    instructions.push_back(std::move(row));
  }
  json["instructions"] = std::move(instructions);
  const auto latency = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  json["ping_pong_ns"] = latency(peaks.ping_pong_ns);
  json["ping_pong_worst_ns"] = latency(peaks.ping_pong_worst_ns);
  json["wake_up_us"] = latency(peaks.wake_up_us);
  return json;
}

inline Json state_json(const MachineState& state) {
  return {{"read_gb_per_s", state.read_gb_s},
          {"f32_gop_per_s", state.f32_gop_s},
          {"ping_pong_ns", state.ping_pong_ns > 0 ? Json(state.ping_pong_ns) : Json(nullptr)}};
}

}  // namespace redline::lab
