// GET /v1/engine: what the engines do, for the page's engine room. Counters are totals since the start.
#include "base/utc_time.h"
#include "server/app.h"

namespace redline::server {
namespace {

const Schema counts_schema{"FinishCounts", {}, true};
const Schema machine_schema{"EngineMachine",
                            {{"isa", kString, "instruction set of the kernels", {.required = true}},
                             {"threads", kInteger, "", {.required = true}}}};
const Schema engine_model_schema{
    "EngineModel",
    {{"id", kString, "", {.required = true}},
     {"running", kInteger, "requests whose state is in the cache", {.required = true}},
     {"waiting", kInteger, "requests that wait for a place in it", {.required = true}},
     {"max_running", kInteger, "", {.required = true}},
     {"preemptions", kInteger, "", {.required = true}},
     {"prompt_tokens", kInteger, "", {.required = true}},
     {"cached_prompt_tokens", kInteger, "prompt tokens whose state was reused", {.required = true}},
     {"generated_tokens", kInteger, "", {.required = true}},
     {"drafted_tokens", kInteger, "drafted tokens that steps have verified", {.required = true}},
     {"accepted_tokens", kInteger, "drafted tokens that were accepted", {.required = true}},
     {"steps", kInteger, "", {.required = true}},
     {"step_seconds", kNumber, "time in steps", {.required = true}},
     {"bound_seconds", kNumber,
      "minimum time of the steps since the first request of this report, at the machine's own limits"},
     {"requests_finished", kObject, "number of ended requests by reason", {.required = true, .object = &counts_schema}},
     {"cache_pages_used", kInteger, "pages of running requests", {.required = true}},
     {"cache_pages_stored", kInteger, "pages that only the prefix cache holds", {.required = true}},
     {"cache_pages", kInteger, "", {.required = true}},
     {"page_tokens", kInteger, "", {.required = true}}}};
const Field engine_model_item{"", kObject, "", {.object = &engine_model_schema}};
const Schema engine_schema{"Engine",
                           {{"object", kString, "", {.required = true, .choices = {"engine"}}},
                            {"time", kNumber, "seconds since 1970", {.required = true}},
                            {"uptime_s", kNumber, "", {.required = true}},
                            {"machine", kObject, "", {.object = &machine_schema}},
                            {"models", kArray, "those in memory", {.required = true, .items = &engine_model_item}}}};

/// Returns the report of a model, which the caller keeps loaded.
Json engine_model_json(const ServedModel& model) {
  const EngineStats s = model.stats();
  Json finished = Json::object();
  for (size_t i = 0; i < s.requests_finished.size(); ++i)
    finished[std::string(finish_reason_name(static_cast<FinishReason>(i)))] = s.requests_finished[i];
  Json json = {{"id", model.name()},
               {"running", s.running},
               {"waiting", s.waiting},
               {"max_running", model.engine().batch_limits().sequences},
               {"preemptions", s.preemptions},
               {"prompt_tokens", s.prompt_tokens},
               {"cached_prompt_tokens", s.cached_prompt_tokens},
               {"generated_tokens", s.generated_tokens},
               {"drafted_tokens", s.drafted_tokens},
               {"accepted_tokens", s.accepted_tokens},
               {"steps", s.steps},
               {"step_seconds", s.step_seconds},
               {"requests_finished", std::move(finished)},
               {"cache_pages_used", s.cache_pages_used},
               {"cache_pages_stored", s.cache_pages_stored},
               {"cache_pages", s.cache_pages},
               {"page_tokens", s.page_tokens}};
  if (s.bound_seconds > 0) json["bound_seconds"] = s.bound_seconds;
  return json;
}

AnswerOr get_engine(Call& call) {
  Json json = {{"object", "engine"}, {"time", unix_now()}, {"uptime_s", call.app.uptime_s()}};
  json["models"] = Json::array();
  for (const auto& model : call.app.models().all()) {
    const auto use = call.app.residency().use(*model, false);
    if (!use) continue;
    if (const MachineLimitsOf& limits = call.app.options().machine_limits)
      profile_of(model->engine()).count_bounds(limits);
    json["machine"] = {{"isa", model->info().isa}, {"threads", model->info().threads}};
    json["models"].push_back(engine_model_json(*model));
  }
  return json_answer(json);
}

}  // namespace

std::vector<Endpoint> engine_endpoints() {
  return {{"GET",
           "/v1/engine",
           "operations",
           "what the engines do: running and waiting requests, steps, tokens, cache pages",
           {{200, "totals since the start", &engine_schema}},
           get_engine}};
}

}  // namespace redline::server
