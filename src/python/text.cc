// The Python bindings of language models: generation, logits, sequences.
#include "python/options.h"

namespace redline::python {
namespace {

struct ChatReader : Handle<redline_chat_reader, redline_chat_reader_release> {};
struct Sequence : Handle<redline_sequence, redline_sequence_release> {};

using Top = std::vector<std::tuple<int32_t, float>>;
Top top_tokens(const redline_token_logprob* top, size_t count) {
  Top found;
  found.reserve(count);
  for (size_t i = 0; i < count; ++i) found.emplace_back(top[i].token, top[i].logprob);
  return found;
}

/// A copy of a redline_piece, with memory of its own.
struct Piece {
  explicit Piece(const redline_piece& p)
      : index(p.index), text(to_str(p.text, p.length)), token(p.token), logprob(p.logprob),
        top(top_tokens(p.top, p.num_top)), is_last(p.is_last != 0) {}
  size_t index;
  nb::str text;
  int32_t token;
  float logprob;
  Top top;
  bool is_last;
};

/// A copy of a redline_completion, with memory of its own.
struct Completion {
  explicit Completion(const redline_completion& c) : value(c), text(to_str(c.text, c.length)) {
    for (size_t i = 0; i < c.num_tokens; ++i) {
      tokens.append(c.tokens[i]);
      if (c.logprobs == nullptr) continue;
      const size_t begin = c.top_offsets[i];
      logprobs.append(nb::make_tuple(c.logprobs[i], top_tokens(c.top + begin, c.top_offsets[i + 1] - begin)));
    }
  }
  redline_completion value;  ///< only its numbers are used, because its pointers may be invalid
  nb::str text;
  nb::list tokens, logprobs;
};

/// A generation and the function that gets its pieces. The function outlives the handle, because it is called until the
/// handle is released.
struct Generation {
  /// Calls the function on a thread of the model. An exception cannot reach a caller there, so it ends the text and is
  /// reported.
  static int32_t receive(const redline_piece* piece, void* data) {
    const Locked locked;
    // This reference keeps the function alive, which may drop the generation.
    const nb::object on_piece = static_cast<Generation*>(data)->on_piece;
    try {
      return nb::cast<bool>(on_piece(Piece(*piece))) ? 0 : 1;
    } catch (nb::python_error& error) {
      error.discard_as_unraisable("redline: on_piece");
    } catch (const std::exception& error) {
      PyErr_SetString(PyExc_RuntimeError, error.what());
      PyErr_WriteUnraisable(on_piece.ptr());
    }
    return 1;
  }

  redline_generation* get() const { return handle.get(); }

  nb::object on_piece;
  Handle<redline_generation, redline_generation_release> handle;
};

Model open_model(Text path, const ModelOptions& options) {
  Model model;
  call([&](redline_error** error) { return redline_model_open(path.data, &options.value, model.out(), error); });
  return model;
}

redline_model_info model_info(const Model& self) {
  redline_model_info info = {};
  info.struct_size = sizeof info;
  call([&](redline_error** error) { return redline_model_get_info(self.get(), &info, error); });
  return info;
}

nb::bytes token_bytes(const Model& self, int32_t token, bool special) {
  char* bytes = nullptr;
  size_t length = 0;
  call([&](redline_error** error) {
    return redline_model_token_bytes(self.get(), token, special, &bytes, &length, error);
  });
  const std::unique_ptr<char, void (*)(void*)> owner(bytes, redline_free);
  return nb::bytes(bytes, length);
}

nb::list encode(const Model& self, Text text, bool parse_special, bool add_bos) {
  int32_t* tokens = nullptr;
  size_t count = 0;
  call([&](redline_error** error) {
    return redline_model_encode(self.get(), text.data, text.size, parse_special, add_bos, &tokens, &count, error);
  });
  const std::unique_ptr<int32_t, void (*)(void*)> owner(tokens, redline_free);
  nb::list found;
  for (size_t i = 0; i < count; ++i) found.append(tokens[i]);
  return found;
}

PromptSpans new_prompt_spans() {
  PromptSpans spans;
  call([&](redline_error** error) { return redline_prompt_spans_create(spans.out(), error); });
  return spans;
}

void add_embeddings(const PromptSpans& self, const EmbeddingValues& values, uint64_t media_hash, int64_t media_offset,
                    int32_t placeholder, const std::optional<Positions>& positions,
                    const std::optional<LayerRows>& layer_rows) {
  redline_embedding_rows rows = {};
  redline_embedding_rows_init(&rows, sizeof rows);
  rows.values = values.data();
  rows.num_rows = values.shape(0);
  rows.hidden_size = static_cast<int64_t>(values.shape(1));
  rows.media_hash = media_hash;
  rows.media_offset = media_offset;
  rows.placeholder = placeholder;
  if (positions) {
    if (positions->shape(0) != values.shape(0))
      raise(REDLINE_INVALID_ARGUMENT, "positions: one row for each of values");
    rows.positions = positions->data();
    rows.num_axes = static_cast<int32_t>(positions->shape(1));
  }
  if (layer_rows) {
    if (layer_rows->shape(1) != values.shape(0) || layer_rows->shape(2) != values.shape(1))
      raise(REDLINE_INVALID_ARGUMENT, "layer_rows: the shape must be [layers, rows, hidden_size]");
    rows.layer_rows = layer_rows->data();
    rows.num_layer_rows = layer_rows->shape(0);
  }
  call([&](redline_error** error) { return redline_prompt_spans_add_embeddings(self.get(), &rows, error); });
}

/// Prompts as spans, if they are given so: all or none.
std::vector<const redline_prompt_spans*> spans_of(const nb::list& prompts) {
  std::vector<const redline_prompt_spans*> spans;
  if (prompts.empty() || !nb::isinstance<PromptSpans>(prompts[0])) return spans;
  for (nb::handle prompt : prompts) spans.push_back(nb::cast<const PromptSpans&>(prompt).get());
  return spans;
}

std::unique_ptr<Generation> submit(const Model& self, const nb::list& prompts, const nb::list& options,
                                   nb::object on_piece) {
  const std::vector<const redline_prompt_spans*> spans = spans_of(prompts);
  const Prompts given(spans.empty() ? prompts : nb::list());
  std::vector<const redline_generate_options*> each;
  each.reserve(options.size());
  for (nb::handle item : options) each.push_back(&nb::cast<const GenerateOptions&>(item).value);
  auto generation = std::make_unique<Generation>();
  const bool calls_back = !on_piece.is_none();
  generation->on_piece = std::move(on_piece);
  call([&](redline_error** error) {
    const redline_on_piece receive = calls_back ? Generation::receive : nullptr;
    if (!spans.empty())
      return redline_submit_spans(self.get(), spans.data(), spans.size(), each.data(), each.size(), receive,
                                  generation.get(), generation->handle.out(), error);
    return redline_submit(self.get(), given.data(), given.size(), each.data(), each.size(), receive, generation.get(),
                          generation->handle.out(), error);
  });
  return generation;
}

/// Returns the next piece; none at the end. Handles signals while it waits.
std::optional<Piece> next_piece(const Generation& self) {
  redline_piece piece = {};
  piece.struct_size = sizeof piece;
  for (;;) {
    int32_t what = 0;
    call([&](redline_error** error) { return redline_generation_next(self.get(), kPollMs, &what, &piece, error); });
    if (what == REDLINE_NEXT_PIECE) return Piece(piece);
    if (what == REDLINE_NEXT_END) return {};
    check_signals();
  }
}

void wait(const Generation& self) {
  for (int32_t is_done = 0; is_done == 0;) {
    call([&](redline_error** error) { return redline_generation_wait(self.get(), kPollMs, &is_done, error); });
    check_signals();
  }
}

Completion completion(const Generation& self, size_t index) {
  redline_completion found = {};
  found.struct_size = sizeof found;
  call([&](redline_error** error) { return redline_generation_completion(self.get(), index, &found, error); });
  return Completion(found);
}

}  // namespace

void add_text(nb::module_& m, nb::class_<Model>& model) {
  nb::class_<redline_model_info>(m, "ModelInfo")
      .def_ro("vocab_size", &redline_model_info::vocab_size)
      .def_ro("context", &redline_model_info::context)
      .def_prop_ro("has_chat_template", [](const redline_model_info& i) { return i.has_chat_template != 0; });

  nb::class_<Piece>(m, "Piece")
      .def_ro("index", &Piece::index)
      .def_ro("text", &Piece::text)
      .def_ro("token", &Piece::token)
      .def_ro("logprob", &Piece::logprob)
      .def_ro("top", &Piece::top)
      .def_ro("is_last", &Piece::is_last);

  nb::class_<Completion>(m, "Completion")
      .def_ro("text", &Completion::text)
      .def_ro("tokens", &Completion::tokens, nb::for_getter(nb::sig("def tokens(self) -> list[int]")))
      .def_ro("logprobs", &Completion::logprobs,
              nb::for_getter(nb::sig("def logprobs(self) -> list[tuple[float, list[tuple[int, float]]]]")))
      .def_prop_ro("finish_reason",
                   [](const Completion& c) { return redline_finish_reason_name(c.value.finish_reason); })
      .def_prop_ro("seed", [](const Completion& c) { return c.value.seed; })
      .def_prop_ro("prompt_tokens", [](const Completion& c) { return c.value.prompt_tokens; })
      .def_prop_ro("cached_tokens", [](const Completion& c) { return c.value.cached_tokens; })
      .def_prop_ro("drafted_tokens", [](const Completion& c) { return c.value.drafted_tokens; })
      .def_prop_ro("accepted_tokens", [](const Completion& c) { return c.value.accepted_tokens; })
      .def_prop_ro("first_token_ms", [](const Completion& c) { return c.value.first_token_ms; })
      .def_prop_ro("prefill_ms", [](const Completion& c) { return c.value.prefill_ms; })
      .def_prop_ro("decode_ms", [](const Completion& c) { return c.value.decode_ms; });

  nb::class_<Generation>(m, "Generation")
      .def("next", next_piece)
      .def("wait", wait)
      .def("cancel", [](const Generation& self) { redline_generation_cancel(self.get()); })
      .def("completion", completion, nb::arg("index"));

  nb::class_<ChatReader>(m, "ChatReader")
      .def(
          "push",
          [](const ChatReader& self, Text text, int32_t is_last) {
            return text_of([&](char** json, size_t*, redline_error** error) {
              return redline_chat_reader_push(self.get(), text.data, text.size, is_last, json, error);
            });
          },
          nb::arg("text"), nb::arg("is_last"));

  nb::class_<PromptSpans>(m, "PromptSpans")
      .def("__len__", [](const PromptSpans& self) { return redline_prompt_spans_length(self.get()); })
      .def(
          "add_tokens",
          [](const PromptSpans& self, const Tokens& tokens) {
            call([&](redline_error** error) {
              return redline_prompt_spans_add_tokens(self.get(), tokens.data(), tokens.size(), error);
            });
          },
          nb::sig("def add_tokens(self, tokens: " REDLINE_TOKENS ", /) -> None"))
      .def("add_embeddings", add_embeddings, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(),
           nb::arg().none(),
           nb::sig("def add_embeddings(self, values: " REDLINE_FLOATS ", media_hash: int, media_offset: int, "
                   "placeholder: int, positions: " REDLINE_POSITIONS " | None, layer_rows: " REDLINE_FLOATS
                   " | None, /) -> None"));
  m.def("new_prompt_spans", new_prompt_spans);

  nb::class_<Sequence>(m, "TokenSequence")
      .def("__len__", [](const Sequence& self) { return redline_sequence_length(self.get()); })
      .def(
          "append",
          [](const Sequence& self, const Tokens& tokens, const Rows& logits) {
            const size_t rows = logits.shape(0);
            call([&](redline_error** error) {
              return redline_sequence_append(self.get(), tokens.data(), tokens.size(), rows,
                                             rows == 0 ? nullptr : logits.data(), logits.size(), error);
            });
          },
          nb::sig("def append(self, tokens: " REDLINE_TOKENS ", logits: " REDLINE_FLOATS ", /) -> None"))
      .def(
          "append_spans",
          [](const Sequence& self, const PromptSpans& spans, const Rows& logits) {
            const size_t rows = logits.shape(0);
            call([&](redline_error** error) {
              return redline_sequence_append_spans(self.get(), spans.get(), rows, rows == 0 ? nullptr : logits.data(),
                                                   logits.size(), error);
            });
          },
          nb::sig("def append_spans(self, spans: PromptSpans, logits: " REDLINE_FLOATS ", /) -> None"))
      .def(
          "truncate",
          [](const Sequence& self, int64_t length) {
            int64_t left = 0;
            call([&](redline_error** error) { return redline_sequence_truncate(self.get(), length, &left, error); });
            return left;
          },
          nb::arg("length"))
      .def("fork", [](const Sequence& self) {
        Sequence fork;
        call([&](redline_error** error) { return redline_sequence_fork(self.get(), fork.out(), error); });
        return fork;
      });

  m.def("open_model", open_model, nb::arg("path"), nb::arg("options"));
  model.def_prop_ro("info", model_info)
      .def("describe",
           [](const Model& self) {
             return text_of([&](char** json, size_t*, redline_error** error) {
               return redline_model_describe(self.get(), json, error);
             });
           })
      .def("encode", encode,
           nb::sig("def encode(self, text: bytes, parse_special: bool, add_bos: bool, /) -> list[int]"))
      .def(
          "decode",
          [](const Model& self, const Tokens& tokens, bool special) {
            return text_of([&](char** text, size_t* length, redline_error** error) {
              return redline_model_decode(self.get(), tokens.data(), tokens.size(), special, text, length, error);
            });
          },
          nb::sig("def decode(self, tokens: " REDLINE_TOKENS ", special: bool, /) -> str"))
      .def("token_bytes", token_bytes, nb::sig("def token_bytes(self, token: int, special: bool, /) -> bytes"))
      .def(
          "render_chat",
          [](const Model& self, Text messages, const OptionalText& tools, const OptionalText& variables,
             bool add_generation_prompt) {
            return text_of([&](char** text, size_t* length, redline_error** error) {
              return redline_model_render_chat(self.get(), messages.data, c_str(tools), c_str(variables),
                                               add_generation_prompt, text, length, error);
            });
          },
          nb::arg("messages"), nb::arg("tools").none(), nb::arg("variables").none(), nb::arg("add_generation_prompt"))
      .def(
          "open_chat_reader",
          [](const Model& self, Text prompt, const OptionalText& tools) {
            ChatReader reader;
            call([&](redline_error** error) {
              return redline_chat_reader_open(self.get(), prompt.data, prompt.size, c_str(tools), reader.out(), error);
            });
            return reader;
          },
          nb::arg("prompt"), nb::arg("tools").none())
      .def(
          "load_adapter",
          [](const Model& self, Text name, Text path) {
            call([&](redline_error** error) {
              return redline_model_load_adapter(self.get(), name.data, path.data, error);
            });
          },
          nb::arg("name"), nb::arg("path"))
      .def(
          "unload_adapter",
          [](const Model& self, Text name) {
            call([&](redline_error** error) { return redline_model_unload_adapter(self.get(), name.data, error); });
          },
          nb::arg("name"))
      .def("submit", submit, nb::arg(), nb::arg(), nb::arg().none(),
           nb::sig("def submit(self, prompts: list[bytes | " REDLINE_TOKENS
                   "] | list[PromptSpans], options: list[GenerateOptions], "
                   "on_piece: collections.abc.Callable[[Piece], bool] | None, /) -> Generation"))
      .def(
          "logits",
          [](const Model& self, const Tokens& tokens, const LogitsOptions& options, const Rows& logits) {
            StepCheck check;
            redline_logits_options given = options.value;
            given.on_step = StepCheck::on_step;
            given.user_data = &check;
            check.call([&](redline_error** error) {
              return redline_model_logits(self.get(), tokens.data(), tokens.size(), &given, logits.shape(0),
                                          logits.data(), logits.size(), error);
            });
          },
          nb::sig("def logits(self, tokens: " REDLINE_TOKENS ", options: LogitsOptions, logits: " REDLINE_FLOATS
                  ", /) -> None"))
      .def(
          "open_sequence",
          [](const Model& self, const LogitsOptions& options) {
            Sequence sequence;
            call([&](redline_error** error) {
              return redline_sequence_open(self.get(), options.value.adapters, options.value.num_adapters,
                                           sequence.out(), error);
            });
            return sequence;
          },
          nb::arg("options"));
}

}  // namespace redline::python
