// /v1/embeddings, /v1/rerank and Ollama's /api/embed, over a tiny random encoder.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "base/base64.h"
#include "server/answers.h"
#include "support/temporary_folder.h"

namespace redline::server {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class EmbeddingServer : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new testing::TemporaryFolder();
    for (const char* file : {"config.json", "model.safetensors"})
      fs::create_symlink(std::string(REDLINE_GOLDEN_DIR) + "/encoders/bert/" + file, folder_->path() + "/" + file);
    fs::create_symlink(std::string(REDLINE_SOURCE_DIR) + "/tests/golden/tokenizers/bert.json",
                       folder_->path() + "/tokenizer.json");
    app_ = new App({});
    const auto open = [path = folder_->path()] {
      return EmbeddingEngine::open(path, {.threads = 1, .dtype = Precision::kF32});
    };
    const auto model = std::make_shared<EmbeddingModel>("bert", open, 4);
    app_->embeddings().add(model, 0);
    const auto loaded = app_->residency().load_if_it_fits(*model);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    app_->set_ready();
  }
  static void TearDownTestSuite() {
    delete std::exchange(app_, nullptr);
    delete std::exchange(folder_, nullptr);
  }

  static std::pair<int, Json> post(const std::string& path, const Json& body) {
    auto call = make_request("POST", path, body.dump());
    const auto answer = app_->handle(call);
    std::string text = body_of(*answer);
    return {answer->status, Json::parse(text)};
  }
  static Json good(const std::string& path, const Json& body) {
    auto [status, json] = post(path, body);
    EXPECT_EQ(status, 200) << json.dump();
    return json;
  }
  static std::vector<float> vector_of(const Json& list) { return list.get<std::vector<float>>(); }

  static inline App* app_ = nullptr;
  static inline testing::TemporaryFolder* folder_ = nullptr;
};

TEST_F(EmbeddingServer, TakesEveryShapeOfInput) {
  const Json one = good("/v1/embeddings", {{"model", "bert"}, {"input", "Once upon a time"}});
  EXPECT_EQ(one["object"], "list");
  EXPECT_EQ(one["model"], "bert");
  ASSERT_EQ(one["data"].size(), 1u);
  EXPECT_EQ(one["data"][0]["object"], "embedding");
  EXPECT_EQ(one["data"][0]["index"], 0);
  const std::vector<float> vector = vector_of(one["data"][0]["embedding"]);
  ASSERT_EQ(vector.size(), 32u);
  EXPECT_EQ(one["usage"]["prompt_tokens"], one["usage"]["total_tokens"]);
  const Json two = good("/v1/embeddings", {{"input", {"a fox", "Once upon a time"}}});
  ASSERT_EQ(two["data"].size(), 2u);
  EXPECT_EQ(vector_of(two["data"][1]["embedding"]), vector);
  const std::vector<int32_t> ids = app_->embeddings().all()[0]->engine().encode("Once upon a time").value();
  EXPECT_EQ(one["usage"]["prompt_tokens"], ids.size());
  EXPECT_EQ(vector_of(good("/v1/embeddings", {{"input", ids}})["data"][0]["embedding"]), vector);
  const Json lists = good("/v1/embeddings", {{"input", {ids, {5, 6}}}});
  EXPECT_EQ(vector_of(lists["data"][0]["embedding"]), vector);
  EXPECT_EQ(lists["usage"]["total_tokens"], ids.size() + 2);
}

TEST_F(EmbeddingServer, EncodesAsBase64AndCutsDimensions) {
  const Json plain = good("/v1/embeddings", {{"input", "a fox"}, {"dimensions", 8}});
  const std::vector<float> want = vector_of(plain["data"][0]["embedding"]);
  ASSERT_EQ(want.size(), 8u);
  EXPECT_NEAR(std::inner_product(want.begin(), want.end(), want.begin(), 0.0), 1, 1e-6);
  const Json coded = good("/v1/embeddings", {{"input", "a fox"}, {"dimensions", 8}, {"encoding_format", "base64"}});
  const auto bytes = from_base64(coded["data"][0]["embedding"].get<std::string>());
  ASSERT_TRUE(bytes);
  std::vector<float> got(8);
  ASSERT_EQ(bytes->size(), 32u);
  std::memcpy(got.data(), bytes->data(), 32);
  EXPECT_EQ(got, want) << "the decimal digits tell every float";
}

TEST_F(EmbeddingServer, NamesWhatIsWrong) {
  const auto error = [](const Json& body, int status, const char* param) {
    auto [got, json] = post("/v1/embeddings", body);
    EXPECT_EQ(got, status) << body.dump() << json.dump();
    EXPECT_EQ(json["error"]["param"], param) << json.dump();
    return json["error"]["message"].get<std::string>();
  };
  error(Json::object(), 400, "input");
  error({{"input", Json::array()}}, 400, "input");
  error({{"input", {{"a", 1}}}}, 400, "input");
  error({{"input", {"a", 1}}}, 400, "input[1]");
  error({{"input", {1, "a"}}}, 400, "input[1]");
  error({{"input", {1, -1}}}, 400, "input[1]");
  error({{"input", {{1, 2}, "a"}}}, 400, "input[1]");
  error({{"input", {{1, 2.5}}}}, 400, "input[0][1]");
  EXPECT_THAT(error({{"input", {1, 300}}}, 400, "input"), HasSubstr("300"));
  EXPECT_THAT(error({{"input", "a"}, {"dimensions", 33}}, 400, "input"), HasSubstr("33"));
  error({{"input", "a"}, {"dimensions", 0}}, 400, "dimensions");
  error({{"input", "a"}, {"encoding_format", "hex"}}, 400, "encoding_format");
  error({{"input", "a"}, {"modle", "bert"}}, 400, "modle");
  EXPECT_THAT(error({{"input", "a"}, {"model", "bret"}}, 404, "model"), HasSubstr("did you mean \"bert\""));
  std::string text;
  for (int i = 0; i < 70; ++i) text += "a ";
  const std::string message = error({{"input", text}}, 400, "input");
  EXPECT_THAT(message, HasSubstr("72"));
  EXPECT_THAT(message, HasSubstr("64"));
  EXPECT_EQ(good("/v1/embeddings", {{"input", text}, {"truncate", true}})["usage"]["total_tokens"], 64);
}

// llama.cpp's server answers a list, and each embedding is a list of vectors: one, if the model pools its tokens.
TEST_F(EmbeddingServer, SpeaksLlamaCppsApi) {
  const std::vector<float> want = vector_of(good("/v1/embeddings", {{"input", "a fox"}})["data"][0]["embedding"]);
  const std::vector<int32_t> ids = app_->embeddings().all()[0]->engine().encode("a fox").value();
  const auto expect_near = [&](const Json& vector) {
    const std::vector<float> got = vector_of(vector);
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], 1e-6);
  };
  for (const char* path : {"/embedding", "/embeddings"}) {
    for (const char* field : {"content", "input"}) {
      for (const Json& text : {Json("a fox"), Json::array({"a fox"}), Json(ids), Json::array({ids})}) {
        const Json answer = good(path, {{field, text}});
        ASSERT_TRUE(answer.is_array()) << answer;
        ASSERT_EQ(answer.size(), 1u) << text;
        EXPECT_EQ(answer[0]["index"], 0);
        ASSERT_EQ(answer[0]["embedding"].size(), 1u);
        expect_near(answer[0]["embedding"][0]);
      }
      const Json two = good(path, {{field, {"the dog", "a fox"}}, {"model", "bert"}});
      ASSERT_EQ(two.size(), 2u);
      EXPECT_EQ(two[1]["index"], 1);
      expect_near(two[1]["embedding"][0]);
      EXPECT_EQ(post(path, {{field, {"a", 1}}}).second["error"]["param"], std::string(field) + "[1]");
      std::string text;
      for (int i = 0; i < 70; ++i) text += "a ";
      const auto [status, json] = post(path, {{field, text}});
      EXPECT_EQ(status, 400);
      EXPECT_EQ(json["error"]["param"], field);
    }
    EXPECT_EQ(post(path, Json::object()).first, 400);
    EXPECT_EQ(post(path, {{"content", "a"}, {"input", "a"}}).second["error"]["param"], "content");
  }
}

TEST_F(EmbeddingServer, LlamaCppsNormsAreItsFormulas) {
  const auto vector = [](const Json& norm) {
    Json body = {{"content", "a fox"}};
    if (!norm.is_null()) body["embd_normalize"] = norm;
    return vector_of(good("/embedding", body)[0]["embedding"][0]);
  };
  const auto length = [](const std::vector<float>& v, double p) {
    double sum = 0;
    for (const float x : v) sum += std::pow(std::abs(double{x}), p);
    return std::pow(sum, 1 / p);
  };
  const std::vector<float> plain = vector(-1);
  EXPECT_GT(std::abs(length(plain, 2) - 1), 1e-3) << "else the rest tells nothing";
  EXPECT_EQ(vector(nullptr), vector(2));
  for (const int p : {1, 2, 3, 7}) {
    const std::vector<float> v = vector(p);
    EXPECT_NEAR(length(v, p), 1, 1e-5) << p;
    for (size_t i = 0; i < v.size(); ++i) EXPECT_NEAR(v[i], plain[i] / length(plain, p), 1e-5) << p;
  }
  const std::vector<float> scaled = vector(0);
  EXPECT_NEAR(std::abs(*std::max_element(scaled.begin(), scaled.end(),
                                         [](float a, float b) { return std::abs(a) < std::abs(b); })),
              32760, 1e-2);
  for (const Json& wrong : {Json(-2), Json(1001), Json(1.5), Json("2")})
    EXPECT_EQ(post("/embedding", {{"content", "a"}, {"embd_normalize", wrong}}).second["error"]["param"],
              "embd_normalize")
        << wrong;
}

/// Answers of a model with prompts, as sentence-transformers' folders have them.
class EmbeddingFields : public EmbeddingServer {
 protected:
  EmbeddingFields() {
    for (const char* file : {"config.json", "model.safetensors", "tokenizer.json"})
      fs::create_symlink(fs::canonical(fs::path(EmbeddingServer::folder_->path()) / file),
                         fs::path(own_.path()) / file);
    std::ofstream(own_.path() + "/config_sentence_transformers.json")
        << R"({"prompts": {"query": "the fox ", "document": "a dog "}})";
    model_ = std::make_shared<EmbeddingModel>(
        "prompts",
        [path = own_.path()] { return EmbeddingEngine::open(path, {.threads = 1, .dtype = Precision::kF32}); }, 4);
    fields_app_.embeddings().add(model_, 0);
    EXPECT_TRUE(fields_app_.residency().load_if_it_fits(*model_).ok());
    fields_app_.set_ready();
  }
  std::vector<float> vector(const Json& with, const char* ignored = "") {
    Json body = {{"input", "a fox"}};
    body.update(with);
    auto call = make_request("POST", "/v1/embeddings", body.dump());
    const auto answer = fields_app_.handle(call);
    const std::string text = body_of(*answer);
    EXPECT_EQ(answer->status, 200) << text;
    EXPECT_EQ(header_of(*answer, "X-Redline-Ignored"), ignored) << body;
    if (answer->status != 200) return {};
    const Json embedding = Json::parse(text)["data"][0]["embedding"];
    if (!embedding.is_string()) return vector_of(embedding);
    const auto bytes = from_base64(embedding.get<std::string>());
    std::vector<float> values(bytes->size() / sizeof(float));
    std::memcpy(values.data(), bytes->data(), bytes->size());
    return values;
  }
  void refused(const std::string& field, const Json& value) {
    auto call = make_request("POST", "/v1/embeddings", Json{{"input", "a fox"}, {field, value}}.dump());
    const auto answer = fields_app_.handle(call);
    const Json error = error_of(*answer);
    EXPECT_EQ(answer->status, 400) << field << value;
    EXPECT_EQ(error["param"], field) << error;
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(field));
  }
  testing::TemporaryFolder own_;
  App fields_app_{{}};
  std::shared_ptr<EmbeddingModel> model_;
};

TEST_F(EmbeddingFields, KindsOfTextsChooseAPrompt) {
  const std::vector<float> plain = vector(Json::object()), query = vector({{"prompt_name", "query"}}),
                           document = vector({{"prompt_name", "document"}});
  EXPECT_NE(query, plain);
  EXPECT_NE(document, query);
  for (const char* kind : {"query", "search_query", "retrieval.query", "RETRIEVAL_QUERY"})
    for (const char* field : {"input_type", "task", "task_type"}) EXPECT_EQ(vector({{field, kind}}), query) << kind;
  for (const char* kind : {"passage", "document", "search_document", "retrieval.passage", "RETRIEVAL_DOCUMENT"})
    EXPECT_EQ(vector({{"input_type", kind}}), document) << kind;
  EXPECT_EQ(vector({{"input_type", "classification"}}, "input_type"), plain) << "the model has no such prompt";
  EXPECT_EQ(vector({{"task", "text-matching"}}, "task"), plain);
  EXPECT_EQ(vector({{"prompt_name", "document"}, {"input_type", "query"}}, "input_type"), document);
  EXPECT_EQ(vector({{"input_type", nullptr}}), plain);
}

TEST_F(EmbeddingFields, TextsAreCutAsTheRequestSays) {
  std::string text;
  for (int i = 0; i < 70; ++i) text += "a ";
  const auto with = [&](const char* field, const Json& value) { return Json{{"input", text}, {field, value}}; };
  const std::vector<float> cut = vector(with("truncate", true));
  for (const Json& value : {Json("END"), Json("end")}) EXPECT_EQ(vector(with("truncate", value)), cut) << value;
  for (const Json& value : {Json(-1), Json(64), Json(1000)})
    EXPECT_EQ(vector(with("truncate_prompt_tokens", value)), cut) << value;
  for (const Json& value : {Json(false), Json("NONE"), Json("none")}) {
    auto call = make_request("POST", "/v1/embeddings", with("truncate", value).dump());
    const auto answer = fields_app_.handle(call);
    EXPECT_EQ(error_of(*answer)["param"], "input") << value;
    EXPECT_EQ(answer->status, 400);
  }
  refused("truncate", "START");
  refused("truncate", 3);
  refused("truncate_prompt_tokens", 10);
  refused("truncate_prompt_tokens", -2);
}

TEST_F(EmbeddingFields, VectorsAreAsTheRequestSays) {
  const std::vector<float> plain = vector(Json::object()), raw = vector({{"normalize", false}});
  EXPECT_NE(raw, plain);
  for (const char* field : {"normalized", "embedding_normalize"}) {
    EXPECT_EQ(vector({{field, false}}), raw) << field;
    EXPECT_EQ(vector({{field, true}}), plain) << field;
  }
  EXPECT_EQ(vector({{"embd_normalize", -1}}), raw);
  EXPECT_EQ(vector({{"embd_normalize", 2}}), plain);
  refused("embd_normalize", 1);
  EXPECT_EQ(vector({{"encoding_format", "base64"}}), plain);
  EXPECT_EQ(vector({{"embedding_types", {"base64"}}}), plain);
  EXPECT_EQ(vector({{"embedding_types", {"float"}}}), plain);
  EXPECT_EQ(vector({{"output_dtype", "float"}}), plain);
  const std::vector<float> few = vector({{"dimensions", 5}});
  EXPECT_EQ(few.size(), 5u);
  for (const char* field : {"output_dimension", "output_dimensions", "outputDimensionality"})
    EXPECT_EQ(vector({{field, 5}}), few) << field;
  refused("encoding_format", "int8");
  refused("embedding_types", {"int8"});
  refused("output_dtype", "binary");
  refused("late_chunking", true);
  EXPECT_EQ(vector({{"late_chunking", false}}), plain);
  for (const char* field : {"user", "metadata", "priority", "modality", "add_special_tokens"})
    EXPECT_EQ(vector({{field, "a"}}, field), plain);
}

TEST_F(EmbeddingServer, RanksDocuments) {
  const Json body = {{"query", "a fox"}, {"documents", {"12345", "a fox", {{"text", "the fox"}}}}};
  for (const char* path : {"/v1/rerank", "/rerank"}) {
    const Json all = good(path, body);
    ASSERT_EQ(all["results"].size(), 3u);
    EXPECT_EQ(all["results"][0]["index"], 1);
    EXPECT_NEAR(all["results"][0]["relevance_score"].get<double>(), 1, 1e-6);
    EXPECT_EQ(all["results"][0]["document"]["text"], "a fox");
    for (size_t i = 1; i < 3; ++i)
      EXPECT_GE(all["results"][i - 1]["relevance_score"], all["results"][i]["relevance_score"]);
  }
  Json some = body;
  some["top_n"] = 1;
  some["return_documents"] = false;
  const Json first = good("/rerank", some);
  ASSERT_EQ(first["results"].size(), 1u);
  EXPECT_FALSE(first["results"][0].contains("document"));
  EXPECT_EQ(post("/rerank", {{"query", "a"}, {"documents", Json::array()}}).first, 400);
  EXPECT_EQ(post("/rerank", {{"query", "a"}, {"documents", {1}}}).first, 400);
}

TEST_F(EmbeddingServer, SpeaksOllamasApi) {
  const std::vector<float> want = vector_of(good("/v1/embeddings", {{"input", "a fox"}})["data"][0]["embedding"]);
  const Json one = good("/api/embed", {{"model", "bert:latest"}, {"input", "a fox"}, {"options", {{"num_ctx", 1}}}});
  EXPECT_EQ(vector_of(one["embeddings"][0]), want);
  EXPECT_GT(one["prompt_eval_count"], 0);
  EXPECT_EQ(good("/api/embed", {{"model", "bert"}, {"input", {"a", "b"}}})["embeddings"].size(), 2u);
  EXPECT_EQ(good("/api/embed", {{"model", "bert"}, {"input", Json::array()}})["embeddings"].size(), 0u);
  EXPECT_EQ(vector_of(good("/api/embeddings", {{"model", "bert"}, {"prompt", "a fox"}})["embedding"]), want);
  std::string text;
  for (int i = 0; i < 70; ++i) text += "a ";
  EXPECT_EQ(good("/api/embed", {{"model", "bert"}, {"input", text}})["prompt_eval_count"], 64);
  const auto [status, json] = post("/api/embed", {{"model", "bert"}, {"input", text}, {"truncate", false}});
  EXPECT_EQ(status, 400);
  EXPECT_THAT(json["error"].get<std::string>(), HasSubstr("72"));
  auto tags = make_request("GET", "/api/tags");
  EXPECT_EQ(Json::parse(body_of(*app_->handle(tags)))["models"][0]["name"], "bert");
  EXPECT_EQ(good("/api/show", {{"model", "bert"}})["capabilities"][0], "embedding");
}

TEST_F(EmbeddingServer, ListsItsModel) {
  auto list = make_request("GET", "/v1/models");
  const Json all = Json::parse(body_of(*app_->handle(list)));
  ASSERT_EQ(all["data"].size(), 1u);
  EXPECT_EQ(all["data"][0]["id"], "bert");
  EXPECT_EQ(all["data"][0]["capabilities"][0], "embedding");
  auto one = make_request("GET", "/v1/models/bert");
  EXPECT_EQ(Json::parse(body_of(*app_->handle(one)))["meta"]["pooling"], "mean");
}

TEST_F(EmbeddingServer, AFullQueueIsRefused) {
  const auto model = std::make_shared<EmbeddingModel>(
      "small", [] { return EmbeddingEngine::open(folder_->path(), {.threads = 1}); }, 1);
  ASSERT_TRUE(model->load().ok());
  std::mutex gate;
  std::unique_lock closed(gate);
  const auto wait = [&](EmbeddingEngine&, const std::function<bool()>&) -> Outcome<EmbeddingModel::Result> {
    const std::lock_guard lock(gate);
    return EmbeddingModel::Result{"done", 3};
  };
  std::vector<std::unique_ptr<Answer>> answers;
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    auto answer = EmbeddingModel::submit(model, wait, ErrorShape::kOpenAi);
    if (answer.ok()) answers.push_back(std::move(*answer));
    else if (answer.error().status == 429) ++refused;
  }
  EXPECT_GE(refused, 3);
  answers.pop_back();  // a client that is gone
  closed.unlock();
  for (const auto& answer : answers) EXPECT_EQ(body_of(*answer), "done");
  EXPECT_EQ(answers.front()->facts.prompt_tokens, 3);
  model->close();  // the request of the client that is gone may still hold it
}

TEST_F(EmbeddingServer, RequestsThatWaitAreComputedTogether) {
  const auto model = std::make_shared<EmbeddingModel>(
      "busy", [] { return EmbeddingEngine::open(folder_->path(), {.threads = 1, .dtype = Precision::kF32}); }, 8);
  ASSERT_TRUE(model->load().ok());
  std::mutex gate;
  std::unique_lock closed(gate);
  const auto wait = [&](EmbeddingEngine&, const std::function<bool()>&) -> Outcome<EmbeddingModel::Result> {
    const std::lock_guard lock(gate);
    return EmbeddingModel::Result{"done", 3};
  };
  auto first = EmbeddingModel::submit(model, wait, ErrorShape::kOpenAi);
  ASSERT_TRUE(first.ok());
  std::vector<std::string> order;
  const auto embed = [&](const std::string& text, int64_t dimensions) {
    auto answer = EmbeddingModel::embed(
        model, {.texts = {text}, .dimensions = dimensions},
        [&order, text](const Result<Embeddings>& result) -> Outcome<EmbeddingModel::Result> {
          order.push_back(text);
          if (!result.ok()) return api_error(result.status(), "input");
          if (text == "throws") throw std::runtime_error("no body");
          return EmbeddingModel::Result{std::to_string(result.value().dimensions), 1};
        },
        ErrorShape::kOpenAi);
    EXPECT_TRUE(answer.ok());
    return std::move(*answer);
  };
  const auto a = embed("a", 0), bad = embed("b", 1000), gone = embed("gone", 0), c = embed("c", 8);
  const auto last = EmbeddingModel::submit(model, wait, ErrorShape::kOpenAi);
  ASSERT_TRUE(last.ok());
  const auto d = embed("d", 4), thrown = embed("throws", 0), after = embed("after", 0);
  closed.unlock();
  EXPECT_EQ(body_of(*a), "32");
  EXPECT_EQ(body_of(*c), "8");
  EXPECT_EQ(body_of(*d), "4") << "before the ranking that came first";
  EXPECT_EQ(error_of(*bad)["param"], "input");
  EXPECT_EQ(bad->status, 400);
  EXPECT_EQ(error_of(*thrown)["message"], "no body");
  EXPECT_EQ(thrown->status, 500);
  body_of(*after);  // an answer, or the same error: it was computed with the one before
  model->close();
}

TEST_F(EmbeddingServer, KeepAliveOfOllama) {
  // Without --keep-alive and --memory models stay, which the answer says.
  for (const char* path : {"/api/embed", "/api/embeddings"}) {
    Json body = {{"model", "bert"}, {"keep_alive", "5m"}};
    body[std::string(path) == "/api/embed" ? "input" : "prompt"] = "a fox";
    auto call = make_request("POST", path, body.dump());
    const auto answer = app_->handle(call);
    EXPECT_EQ(answer->status, 200) << body_of(*answer);
    EXPECT_EQ(header_of(*answer, "X-Redline-Ignored"), "keep_alive") << path;
    body_of(*answer);
    body["keep_alive"] = "soon";
    EXPECT_EQ(post(path, body).first, 400) << path;
  }
  App app({.residency = {.keep_alive_s = 3600}});
  const auto model = std::make_shared<EmbeddingModel>(
      "bert", [] { return EmbeddingEngine::open(folder_->path(), {.threads = 1}); }, 4);
  app.embeddings().add(model, 0);
  app.set_ready();
  const auto ask = [&](const Json& keep_alive) {
    const Json body = {{"model", "bert"}, {"input", "a fox"}, {"keep_alive", keep_alive}};
    auto call = make_request("POST", "/api/embed", body.dump());
    const auto answer = whole(app.handle(call));
    const std::string text = body_of(*answer);
    EXPECT_EQ(answer->status, 200) << text;
  };
  ask("10m");
  EXPECT_NEAR(app.residency().entry(*model).expires_in_s.value_or(0), 600, 60);
  ask(-1);
  EXPECT_FALSE(app.residency().entry(*model).expires_in_s.has_value());
  ask(0);
  for (int i = 0; i < 6000 && app.residency().entry(*model).state != Residency::State::kUnloaded; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(app.residency().entry(*model).state, Residency::State::kUnloaded);
}

TEST_F(EmbeddingServer, AModelIsLoadedWhenARequestNamesIt) {
  const auto model = std::make_shared<EmbeddingModel>(
      "later", [] { return EmbeddingEngine::open(folder_->path(), {.threads = 1}); }, 4);
  Residency residency;
  EmbeddingModels models(residency);
  models.add(model, 0);
  EXPECT_FALSE(model->known_info().has_value());
  const auto first = models.find("later");
  ASSERT_FALSE(first.ok());
  const auto load = first.error().load;
  ASSERT_NE(load, nullptr);
  std::promise<void> ready;
  load->on_ready([&] { ready.set_value(); });
  ready.get_future().wait();
  ASSERT_TRUE(load->status().ok());
  auto second = models.find("later");
  ASSERT_TRUE(second.ok());
  EXPECT_EQ((*second)->engine().info().dimensions, model->known_info()->dimensions);
}

}  // namespace
}  // namespace redline::server
