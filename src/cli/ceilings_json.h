// The machine's ceilings as `devices` and `bench` report them.
#pragma once

#include "cli/json.h"
#include "runtime/ceilings.h"

namespace redline::cli {

inline Json ceilings_json(const Ceilings& ceilings) {
  Json json = {{"isa", ceilings.isa}, {"threads", ceilings.threads}};
  for (const Ceiling& c : ceilings.rows)
    json[c.name] = {{"unit", c.unit}, {"per_thread", c.per_thread}, {"all", c.all}, {"spread", c.spread}};
  return json;
}

}  // namespace redline::cli
