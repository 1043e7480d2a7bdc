// The Python bindings of the structs of the C interface that a caller fills in.
#include "python/options.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>

namespace redline::python {
namespace {

using Memory = std::vector<std::shared_ptr<const void>>;

/// A field of a struct: its type in Python, its accessors, its offset, and the offset of its count (0: it has none).
struct Field {
  const char* name;
  const char* kind;  ///< kind that redline._convert checks, such as "int32"; empty: it checks nothing
  const char* type;
  const char* get_type;  ///< type of the value that the getter returns
  void (*set)(void* field, size_t* count, nb::handle value, Memory& memory);
  nb::object (*get)(const void* field, size_t count);
  size_t offset, count_offset;
};

template <class T>
T* keep(Memory& memory, T value) {
  auto kept = std::make_shared<T>(std::move(value));
  T* const result = kept.get();
  memory.push_back(std::move(kept));
  return result;
}

int64_t to_int(nb::handle value) {
  const int64_t number = PyLong_AsLongLong(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

uint64_t to_uint(nb::handle value) {
  const uint64_t number = PyLong_AsUnsignedLongLong(value.ptr());
  if (number == UINT64_MAX && PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

double to_double(nb::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  return number;
}

const char* keep_text(nb::handle value, Memory& memory) {
  if (value.is_none()) return nullptr;
  return keep(memory, nb::cast<nb::bytes>(value))->c_str();
}

/// Sets a list field. `read` converts each element of Python's list.
template <class T, class Read>
void set_list(const T*& field, size_t* count, nb::handle value, Memory& memory, const Read& read) {
  std::vector<T> elements;
  for (nb::handle item : value) elements.push_back(read(item));
  *count = elements.size();
  field = keep(memory, std::move(elements))->data();
}

template <class T, class Write>
nb::object get_list(const T* field, size_t count, const Write& write) {
  nb::list found;
  for (size_t i = 0; i < count; ++i) found.append(write(field[i]));
  return found;
}

nb::object text_object(const char* text) { return text == nullptr ? nb::none() : nb::object(nb::bytes(text)); }

/// Writes and reads a field of type T.
template <class T>
struct Access;

template <class T>
requires std::is_integral_v<T>
struct Access<T> {
  static constexpr const char* kKind = std::is_same_v<T, int32_t> ? "int32" : std::is_signed_v<T> ? "int64" : "uint64";
  static constexpr const char* kType = "int";
  static void set(T& field, size_t*, nb::handle value, Memory&) {
    if constexpr (std::is_signed_v<T>) {
      field = static_cast<T>(to_int(value));
    } else {
      field = to_uint(value);
    }
  }
  static nb::object get(const T& field, size_t) { return nb::int_(field); }
};

template <class T>
requires std::is_floating_point_v<T>
struct Access<T> {
  static constexpr const char* kKind = "real";
  static constexpr const char* kType = "float";
  static void set(T& field, size_t*, nb::handle value, Memory&) { field = static_cast<T>(to_double(value)); }
  static nb::object get(const T& field, size_t) { return nb::float_(field); }
};

template <>
struct Access<const char*> {
  static constexpr const char* kKind = "text";
  static constexpr const char* kType = "bytes | None";
  static void set(const char*& field, size_t*, nb::handle value, Memory& memory) { field = keep_text(value, memory); }
  static nb::object get(const char* field, size_t) { return text_object(field); }
};

template <>
struct Access<const char* const*> {
  static constexpr const char* kKind = "";
  static constexpr const char* kType = "list[bytes]";
  static void set(const char* const*& field, size_t* count, nb::handle value, Memory& memory) {
    set_list<const char*>(field, count, value, memory, [&](nb::handle item) { return keep_text(item, memory); });
  }
  static nb::object get(const char* const* field, size_t count) { return get_list(field, count, text_object); }
};

template <>
struct Access<const int32_t*> {
  static constexpr const char* kKind = "";
  static constexpr const char* kType = "list[int]";
  static void set(const int32_t*& field, size_t* count, nb::handle value, Memory& memory) {
    set_list(field, count, value, memory, [](nb::handle item) { return static_cast<int32_t>(to_int(item)); });
  }
  static nb::object get(const int32_t* field, size_t count) {
    return get_list(field, count, [](int32_t item) { return nb::int_(item); });
  }
};

template <class T>
requires std::is_floating_point_v<T>
struct Access<const T*> {
  static constexpr const char* kKind = "";
  static constexpr const char* kType = "list[float]";
  static void set(const T*& field, size_t* count, nb::handle value, Memory& memory) {
    set_list(field, count, value, memory, [](nb::handle item) { return static_cast<T>(to_double(item)); });
  }
  static nb::object get(const T* field, size_t count) {
    return get_list(field, count, [](T item) { return nb::float_(item); });
  }
};

template <>
struct Access<const redline_adapter*> {  // Python's tuple is (name or None, path, weight)
  static constexpr const char* kKind = "";
  static constexpr const char* kType = "list[tuple[bytes | None, bytes, float]]";
  static void set(const redline_adapter*& field, size_t* count, nb::handle value, Memory& memory) {
    set_list(field, count, value, memory, [&](nb::handle item) {
      return redline_adapter{keep_text(item[0], memory), keep_text(item[1], memory), to_double(nb::object(item[2]))};
    });
  }
  static nb::object get(const redline_adapter* field, size_t count) {
    return get_list(field, count, [](const redline_adapter& a) {
      return nb::make_tuple(text_object(a.name), text_object(a.path), a.weight);
    });
  }
};

template <>
struct Access<const redline_adapter_weight*> {
  static constexpr const char* kKind = "";
  static constexpr const char* kType = "list[tuple[bytes, float]]";
  static void set(const redline_adapter_weight*& field, size_t* count, nb::handle value, Memory& memory) {
    set_list(field, count, value, memory, [&](nb::handle item) {
      return redline_adapter_weight{keep_text(item[0], memory), to_double(nb::object(item[1]))};
    });
  }
  static nb::object get(const redline_adapter_weight* field, size_t count) {
    return get_list(field, count,
                    [](const redline_adapter_weight& a) { return nb::make_tuple(text_object(a.name), a.weight); });
  }
};

template <>
struct Access<redline_runtime*> {
  static constexpr const char* kKind = "";
  static constexpr const char* kType = "Runtime | None";
  static void set(redline_runtime*& field, size_t*, nb::handle value, Memory& memory) {
    if (value.is_none()) {
      field = nullptr;
      return;
    }
    field = nb::cast<const Runtime&>(*keep(memory, nb::borrow(value))).get();
  }
  static constexpr const char* kGetType = "bool";  // True if a runtime is set
  static nb::object get(redline_runtime* const& field, size_t) { return nb::bool_(field != nullptr); }
};

/// An array of Python, with the description to which the struct points.
struct FloatArray {
  nb::ndarray<const float, nb::c_contig, nb::device::cpu> memory;
  std::vector<int64_t> shape;
  redline_float_array array;
};
struct ImageArray {
  nb::ndarray<const uint8_t, nb::shape<-1, -1, 3>, nb::c_contig, nb::device::cpu> memory;
  redline_image image;
};

template <>
struct Access<const redline_float_array*> {
  static constexpr const char* kKind = "";
  static constexpr const char* kType = REDLINE_FLOATS;
  static void set(const redline_float_array*& field, size_t*, nb::handle value, Memory& memory) {
    auto* kept = keep(memory, FloatArray{nb::cast<decltype(FloatArray::memory)>(value, false), {}, {}});
    for (size_t axis = 0; axis < kept->memory.ndim(); ++axis)
      kept->shape.push_back(static_cast<int64_t>(kept->memory.shape(axis)));
    kept->array = {kept->memory.data(), kept->shape.data(), kept->shape.size()};
    field = &kept->array;
  }
  static constexpr const char* kGetType = "bool";
  static nb::object get(const redline_float_array* const& field, size_t) { return nb::bool_(field != nullptr); }
};

template <>
struct Access<const redline_image*> {
  static constexpr const char* kKind = "";
  static constexpr const char* kType = REDLINE_PIXELS;
  static void set(const redline_image*& field, size_t*, nb::handle value, Memory& memory) {
    auto* kept = keep(memory, ImageArray{nb::cast<decltype(ImageArray::memory)>(value, false), {}});
    kept->image = {static_cast<int64_t>(kept->memory.shape(1)), static_cast<int64_t>(kept->memory.shape(0)),
                   kept->memory.data()};
    field = &kept->image;
  }
  static constexpr const char* kGetType = "bool";
  static nb::object get(const redline_image* const& field, size_t) { return nb::bool_(field != nullptr); }
};

template <class T>
constexpr const char* get_type_of() {
  if constexpr (requires { Access<T>::kGetType; }) {
    return Access<T>::kGetType;
  } else {
    return Access<T>::kType;
  }
}

template <class T>
constexpr Field field_of(const char* name, size_t offset, size_t count_offset) {
  return {name,
          Access<T>::kKind,
          Access<T>::kType,
          get_type_of<T>(),
          [](void* field, size_t* count, nb::handle value, Memory& memory) {
            Access<T>::set(*static_cast<T*>(field), count, value, memory);
          },
          [](const void* field, size_t count) { return Access<T>::get(*static_cast<const T*>(field), count); },
          offset,
          count_offset};
}

#define REDLINE_FIELD(S, name) field_of<decltype(S::name)>(#name, offsetof(S, name), 0)
#define REDLINE_LIST(S, name, count) field_of<decltype(S::name)>(#name, offsetof(S, name), offsetof(S, count))

#define F(name) REDLINE_FIELD(redline_runtime_options, name)
constexpr Field kRuntimeFields[] = {F(threads), F(trace_file)};
#undef F

#define F(name) REDLINE_FIELD(redline_model_options, name)
constexpr Field kModelFields[] = {F(runtime),
                                  F(threads),
                                  F(device),
                                  F(dtype),
                                  F(context),
                                  F(max_batch_tokens),
                                  F(max_sequences),
                                  F(max_prefill_tokens),
                                  F(max_slowdown),
                                  F(cache_tokens),
                                  F(cache_memory),
                                  F(prefix_cache),
                                  F(cache_folder),
                                  F(cache_folder_bytes),
                                  F(batch_invariant),
                                  F(use_interpreter),
                                  F(trace_file),
                                  F(chat_template),
                                  REDLINE_LIST(redline_model_options, adapters, num_adapters),
                                  F(max_adapter_rank),
                                  F(gpu_layers),
                                  F(prompt_embeddings),
                                  F(speculate),
                                  F(num_speculative_tokens)};
#undef F

#define F(name) REDLINE_FIELD(redline_generate_options, name)
#define L(name, count) REDLINE_LIST(redline_generate_options, name, count)
constexpr Field kGenerateFields[] = {F(max_tokens),
                                     F(temperature),
                                     F(top_p),
                                     F(top_k),
                                     F(min_p),
                                     F(repetition_penalty),
                                     F(presence_penalty),
                                     F(frequency_penalty),
                                     F(has_seed),
                                     F(seed),
                                     L(stop, num_stop),
                                     F(ignore_eos),
                                     F(skip_special_tokens),
                                     F(add_bos),
                                     F(parse_special),
                                     F(logprobs),
                                     L(logit_bias_tokens, num_logit_bias),
                                     L(logit_bias_values, num_logit_bias),
                                     L(bad_words, num_bad_words),
                                     F(json_schema),
                                     F(regex),
                                     F(grammar),
                                     L(choices, num_choices),
                                     F(tool_calls),
                                     F(parallel_tool_calls),
                                     L(adapters, num_adapters),
                                     F(priority),
                                     F(timeout_ms),
                                     F(client),
                                     F(cache_salt),
                                     F(penalty_last_n),
                                     F(typical_p),
                                     F(top_n_sigma),
                                     F(xtc_probability),
                                     F(xtc_threshold),
                                     F(dry_multiplier),
                                     F(dry_base),
                                     F(dry_allowed_length),
                                     F(dry_penalty_last_n),
                                     L(dry_sequence_breakers, num_dry_sequence_breakers),
                                     F(mirostat),
                                     F(mirostat_tau),
                                     F(mirostat_eta),
                                     F(dynatemp_range),
                                     F(dynatemp_exponent),
                                     L(samplers, num_samplers),
                                     F(min_tokens),
                                     L(stop_token_ids, num_stop_token_ids),
                                     F(json_compact),
                                     F(json_additional_properties),
                                     F(json_relaxed),
                                     F(stop_in_reasoning)};
#undef L
#undef F

constexpr Field kLogitsFields[] = {REDLINE_LIST(redline_logits_options, adapters, num_adapters)};

#define F(name) REDLINE_FIELD(redline_embedding_options, name)
constexpr Field kEmbeddingFields[] = {F(runtime),    F(threads),          F(device),          F(dtype),     F(pooling),
                                      F(max_length), F(max_batch_tokens), F(use_interpreter), F(trace_file)};
#undef F

#define F(name) REDLINE_FIELD(redline_embed_options, name)
constexpr Field kEmbedFields[] = {F(prompt_name), F(truncate), F(normalize), F(dimensions)};
#undef F

#define F(name) REDLINE_FIELD(redline_image_pipeline_options, name)
constexpr Field kPipelineFields[] = {
    F(runtime),         F(threads),          F(device),
    F(dtype),           F(max_side),         F(max_batch),
    F(front_blocks),    F(tail_blocks),      F(vae_tile),
    F(use_interpreter), F(transformer_file), F(step_cache_file),
    F(vae_folder),      F(trace_file),       REDLINE_LIST(redline_image_pipeline_options, adapters, num_adapters),
    F(max_adapter_rank)};
#undef F

#define F(name) REDLINE_FIELD(redline_image_request, name)
constexpr Field kRequestFields[] = {REDLINE_LIST(redline_image_request, prompts, num_prompts),
                                    F(negative_prompt),
                                    F(width),
                                    F(height),
                                    F(num_inference_steps),
                                    F(guidance_scale),
                                    F(true_cfg_scale),
                                    F(guidance_begin),
                                    F(guidance_end),
                                    F(split_guidance),
                                    F(max_sequence_length),
                                    F(num_images),
                                    F(has_seed),
                                    F(seed),
                                    F(seed_each),
                                    F(scheduler),
                                    F(cache),
                                    F(quality),
                                    F(steps_budget),
                                    F(init_noise),
                                    F(prompt_embeds),
                                    F(pooled_embeds),
                                    F(init_image),
                                    F(mask),
                                    F(strength),
                                    F(keep_unmasked),
                                    F(keep_latents),
                                    F(negative_prompt_embeds),
                                    F(negative_pooled_embeds),
                                    F(skip_decode),
                                    F(resize)};
#undef F

#define F(name) REDLINE_FIELD(redline_network_options, name)
constexpr Field kNetworkFields[] = {F(runtime),     F(threads),          F(device),          F(dtype),
                                    F(max_batch),   F(max_latent_side),  F(max_text_tokens), F(front_blocks),
                                    F(tail_blocks), F(max_adapter_rank), F(vae_tile)};
#undef F

#define F(name) REDLINE_FIELD(redline_network_step, name)
constexpr Field kStepFields[] = {F(context),
                                 F(step),
                                 F(steps),
                                 F(sigma),
                                 F(next_sigma),
                                 F(step_size),
                                 REDLINE_LIST(redline_network_step, timesteps, num_timesteps)};
#undef F

/// Adds the class of a struct, with a property for each field, and kind(name), which returns the kind of value that a
/// field takes.
template <class S, size_t kCount>
nb::class_<Options<S>> add_struct(nb::module_& m, const char* name, const Field (&fields)[kCount]) {
  nb::class_<Options<S>> type(m, name);
  for (const Field& field : fields) {
    const std::string getter = std::string("def ") + field.name + "(self) -> " + field.get_type;
    const std::string setter = std::string("def ") + field.name + "(self, value: " + field.type + ", /) -> None";
    const Field* const f = &field;
    type.def_prop_rw(
        field.name,
        [f](const Options<S>& self) {
          const char* const begin = reinterpret_cast<const char*>(&self.value);
          return f->get(begin + f->offset,
                        f->count_offset == 0 ? 0 : *reinterpret_cast<const size_t*>(begin + f->count_offset));
        },
        [f](Options<S>& self, nb::handle value) {
          char* const begin = reinterpret_cast<char*>(&self.value);
          size_t none = 0;
          f->set(begin + f->offset, f->count_offset == 0 ? &none : reinterpret_cast<size_t*>(begin + f->count_offset),
                 value, self.memory);
        },
        nb::for_getter(nb::sig(getter.c_str())), nb::for_setter(nb::sig(setter.c_str())),
        nb::for_setter(nb::arg().none()));
  }
  type.def(
      "kind",
      [&fields](const Options<S>&, std::string_view name) {
        for (const Field& field : fields) {
          if (name == field.name) return field.kind;
        }
        throw nb::attribute_error("no such field");
      },
      nb::arg("name"));
  return type;
}

template <class S, void (*kInit)(S*, size_t), size_t kCount>
void add_struct_with_defaults(nb::module_& m, const char* name, const Field (&fields)[kCount]) {
  add_struct<S>(m, name, fields).def("__init__", [](Options<S>* self) {
    new (self) Options<S>();
    kInit(&self->value, sizeof self->value);
  });
}

}  // namespace

void add_options(nb::module_& m) {
  add_struct_with_defaults<redline_runtime_options, redline_runtime_options_init>(m, "RuntimeOptions", kRuntimeFields);
  add_struct_with_defaults<redline_model_options, redline_model_options_init>(m, "ModelOptions", kModelFields);
  add_struct_with_defaults<redline_logits_options, redline_logits_options_init>(m, "LogitsOptions", kLogitsFields);
  add_struct_with_defaults<redline_embedding_options, redline_embedding_options_init>(m, "EmbeddingOptions",
                                                                                      kEmbeddingFields);
  add_struct_with_defaults<redline_embed_options, redline_embed_options_init>(m, "EmbedOptions", kEmbedFields);
  add_struct_with_defaults<redline_image_pipeline_options, redline_image_pipeline_options_init>(
      m, "ImagePipelineOptions", kPipelineFields);
  add_struct_with_defaults<redline_network_options, redline_network_options_init>(m, "NetworkOptions", kNetworkFields);
  add_struct_with_defaults<redline_network_step, redline_network_step_init>(m, "NetworkStep", kStepFields);
  add_struct<redline_generate_options>(m, "GenerateOptions", kGenerateFields)
      .def(
          "__init__",
          [](GenerateOptions* self, nb::handle_t<Model> model) {
            new (self) GenerateOptions();
            redline_generate_options_init(&self->value, sizeof self->value, nb::cast<const Model&>(model).get());
            keep(self->memory, nb::borrow(model));  // keeps the model alive, which has the strings of the defaults
          },
          nb::arg("model"))
      .def("copy", [](const GenerateOptions& self) { return GenerateOptions(self); });
  add_struct<redline_image_request>(m, "ImageRequest", kRequestFields)
      .def(
          "__init__",
          [](ImageRequest* self, nb::handle_t<ImagePipeline> pipeline) {
            new (self) ImageRequest();
            redline_image_request_init(&self->value, sizeof self->value,
                                       nb::cast<const ImagePipeline&>(pipeline).get());
            keep(self->memory, nb::borrow(pipeline));
          },
          nb::arg("pipeline"));
}

}  // namespace redline::python
