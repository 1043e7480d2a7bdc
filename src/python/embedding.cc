// The Python bindings of embedding models.
#include "python/options.h"

namespace redline::python {
namespace {

struct EmbeddingModel : Handle<redline_embedding_model, redline_embedding_model_release> {};
struct TokenStates : Handle<redline_token_states, redline_token_states_release> {};

/// Returns the options of a call, extended so that it handles signals between its steps.
redline_embed_options with_check(const EmbedOptions& options, StepCheck& check) {
  redline_embed_options given = options.value;
  given.on_step = StepCheck::on_step;
  given.user_data = &check;
  return given;
}

void embed(const EmbeddingModel& self, const nb::list& texts, const EmbedOptions& options, const Rows& values) {
  const Prompts prompts(texts);
  StepCheck check;
  const redline_embed_options given = with_check(options, check);
  check.call([&](redline_error** error) {
    return redline_embed(self.get(), prompts.data(), prompts.size(), &given, values.data(), values.size(), nullptr,
                         error);
  });
}

nb::list token_states(const EmbeddingModel& self, const nb::list& texts, const EmbedOptions& options) {
  const Prompts prompts(texts);
  StepCheck check;
  const redline_embed_options given = with_check(options, check);
  TokenStates states;
  check.call([&](redline_error** error) {
    return redline_embed_tokens(self.get(), prompts.data(), prompts.size(), &given, states.out(), error);
  });
  const redline_token_states* const found = states.get();
  const nb::object owner = nb::cast(std::move(states));
  nb::list arrays;
  for (size_t i = 0; i < prompts.size(); ++i) arrays.append(view(redline_token_states_of(found, i), owner));
  return arrays;
}

using Scores = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void rank(const EmbeddingModel& self, Text query, const std::vector<Text>& documents, const EmbedOptions& options,
          const Scores& scores) {
  std::vector<const char*> texts;
  texts.reserve(documents.size());
  for (const Text document : documents) texts.push_back(document.data);
  StepCheck check;
  const redline_embed_options given = with_check(options, check);
  check.call([&](redline_error** error) {
    return redline_rank(self.get(), query.data, texts.data(), texts.size(), &given, scores.data(), nullptr, error);
  });
}

}  // namespace

void add_embedding(nb::module_& m) {
  const nb::class_<TokenStates> states(m, "TokenStates");
  nb::class_<EmbeddingModel>(m, "EmbeddingModel")
      .def("describe",
           [](const EmbeddingModel& self) {
             return text_of([&](char** json, size_t*, redline_error** error) {
               return redline_embedding_model_describe(self.get(), json, error);
             });
           })
      .def_prop_ro("dimensions",
                   [](const EmbeddingModel& self) { return redline_embedding_model_dimensions(self.get()); })
      .def("embed", embed,
           nb::sig("def embed(self, texts: list[bytes | " REDLINE_TOKENS
                   "], options: EmbedOptions, values: " REDLINE_FLOATS ", /) -> None"))
      .def("token_states", token_states,
           nb::sig("def token_states(self, texts: list[bytes | " REDLINE_TOKENS
                   "], options: EmbedOptions, /) -> list[" REDLINE_FLOATS "]"))
      .def("rank", rank,
           nb::sig("def rank(self, query: bytes, documents: list[bytes], options: EmbedOptions, scores: " REDLINE_FLOATS
                   ", /) -> None"));
  m.def(
      "open_embedding_model",
      [](Text path, const EmbeddingOptions& options) {
        EmbeddingModel model;
        call([&](redline_error** error) {
          return redline_embedding_model_open(path.data, &options.value, model.out(), error);
        });
        return model;
      },
      nb::arg("path"), nb::arg("options"));
  m.def(
      "is_embedding_model", [](Text path) { return redline_is_embedding_model(path.data) != 0; }, nb::arg("path"));
}

}  // namespace redline::python
