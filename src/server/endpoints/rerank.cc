// POST /v1/rerank and /rerank, in the shape that Jina, Cohere and vLLM share.
#include <algorithm>
#include <numeric>

#include "server/app.h"

namespace redline::server {
namespace {

constexpr size_t kMaxDocuments = 4096;

const Schema rerank_document_schema{"RerankDocument", {{"text", kString, "", {.required = true}}}};
const Field document_item{"", kString | kObject, "", {.object = &rerank_document_schema}};
const Schema rerank_schema{
    "RerankRequest",
    {{"model", kString, "a name from /v1/models; may be left out if there is one for embeddings", {.max_length = 1000}},
     {"query", kString, "", {.required = true}},
     {"documents",
      kArray,
      "texts, or objects with a text",
      {.required = true, .min_items = 1, .max_items = kMaxDocuments, .items = &document_item}},
     {"top_n", kInteger, "return the best ones only; default: all", {.min = 1, .max = kMaxJsonInteger}},
     {"return_documents", kBoolean, "true: the results have the texts; default: true"},
     {"truncate", kBoolean, "cut documents that are too long; default: false, they are an error"}}};
const Schema result_schema{"RerankResult",
                           {{"index", kInteger, "index of the document", {.required = true}},
                            {"relevance_score", kNumber, "higher is more relevant", {.required = true}},
                            {"document", kObject, "", {.object = &rerank_document_schema}}}};
const Field result_item{"", kObject, "", {.object = &result_schema}};
const Schema rerank_usage_schema{
    "RerankUsage",
    {{"prompt_tokens", kInteger, "", {.required = true}}, {"total_tokens", kInteger, "", {.required = true}}}};
const Schema rerank_answer_schema{
    "RerankAnswer",
    {{"id", kString, "", {.required = true}},
     {"model", kString, "", {.required = true}},
     {"results", kArray, "the most relevant first", {.required = true, .items = &result_item}},
     {"usage", kObject, "", {.required = true, .object = &rerank_usage_schema}}}};

struct Options {
  std::string id, model;
  size_t top_n;
  bool returns_documents;
};

std::string answer_body(const RankRequest& request, const Ranking& ranking, const Options& options) {
  std::vector<size_t> order(ranking.scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return ranking.scores[a] > ranking.scores[b]; });
  order.resize(std::min(order.size(), options.top_n));
  Json results = Json::array();
  for (const size_t i : order) {
    Json result = {{"index", i}, {"relevance_score", ranking.scores[i]}};
    if (options.returns_documents) result["document"] = {{"text", request.documents[i]}};
    results.push_back(std::move(result));
  }
  return to_text({{"id", options.id},
                  {"model", options.model},
                  {"results", std::move(results)},
                  {"usage", {{"prompt_tokens", ranking.tokens}, {"total_tokens", ranking.tokens}}}});
}

AnswerOr post_rerank(Call& call) {
  const Json& body = call.body;
  SERVER_ASSIGN(const auto model, call.app.embeddings().find(body.value("model", std::string())));
  RankRequest request;
  request.query = body["query"].get<std::string>();
  for (const Json& document : body["documents"])
    request.documents.push_back((document.is_string() ? document : document["text"]).get<std::string>());
  request.truncate = body.value("truncate", false);
  Options options = {"rerank-" + call.http.id, body.value("model", model->name()),
                     body.value("top_n", request.documents.size()), body.value("return_documents", true)};
  return EmbeddingModel::submit(
      model,
      [request = std::move(request), options = std::move(options)](
          EmbeddingEngine& engine, const std::function<bool()>& goes_on) mutable -> Outcome<EmbeddingModel::Result> {
        request.goes_on = goes_on;
        const auto ranking = engine.rank(request);
        if (!ranking.ok()) return api_error(ranking.status(), "documents");
        return EmbeddingModel::Result{answer_body(request, ranking.value(), options), ranking.value().tokens};
      },
      call.shape);
}

}  // namespace

std::vector<Endpoint> rerank_endpoints() {
  std::vector<Endpoint> all;
  for (const char* path : {"/v1/rerank", "/rerank", "/v1/reranking", "/reranking"})
    all.push_back({"POST",
                   path,
                   "embeddings",
                   "documents by their relevance for a query",
                   {{200, "the documents, the most relevant first", &rerank_answer_schema}},
                   post_rerank,
                   {.request = &rerank_schema, .needs_models = true, .error_statuses = {404}}});
  return all;
}

}  // namespace redline::server
