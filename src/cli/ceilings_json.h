// The machine's ceilings and state as `devices` and `bench` report them.
#pragma once

#include <algorithm>

#include "cli/json.h"
#include "runtime/ceilings.h"
#include "runtime/machine_state.h"

namespace redline::cli {

inline Json ceiling_json(const Ceiling& c) {
  Json json = {{"unit", c.unit}, {"per_thread", c.per_thread}, {"all", c.all}, {"spread", c.spread}};
  if (!c.isa.empty()) json["isa"] = c.isa;
  if (!c.instruction.empty()) json["instruction"] = c.instruction;
  return json;
}

/// Under a type's name ("f32", "int8") its best instruction; every instruction in "instructions".
inline Json ceilings_json(const Ceilings& ceilings) {
  Json json = {{"isa", ceilings.isa}, {"threads", ceilings.threads}};
  Json instructions = Json::array();
  for (const Ceiling& c : ceilings.rows) {
    std::string key = c.name;
    std::replace(key.begin(), key.end(), ' ', '_');
    if (&c == ceilings.find(c.name)) json[key] = ceiling_json(c);
    if (c.instruction.empty()) continue;
    Json row = {{"type", c.name}};
    row.update(ceiling_json(c));
    instructions.push_back(std::move(row));
  }
  json["instructions"] = std::move(instructions);
  const auto latency = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  json["ping_pong_ns"] = latency(ceilings.ping_pong_ns);
  json["ping_pong_worst_ns"] = latency(ceilings.ping_pong_worst_ns);
  json["wake_up_us"] = latency(ceilings.wake_up_us);
  return json;
}

inline Json state_json(const MachineState& state) {
  return {{"read_gb_per_s", state.read_gb_s},
          {"f32_gop_per_s", state.f32_gop_s},
          {"ping_pong_ns", state.ping_pong_ns > 0 ? Json(state.ping_pong_ns) : Json(nullptr)}};
}

}  // namespace redline::cli
