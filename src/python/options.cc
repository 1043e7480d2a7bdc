// The Python bindings of the structs of the C interface that a caller fills in.
#include "python/options.h"

#include <cstddef>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "redline/option_row.h"

namespace redline::python {
namespace {

using Memory = std::vector<std::shared_ptr<const void>>;

/// A field of a struct: its accessors, its offset, the offset of its count (0: it has none), and its row in the table
/// of options (without a name: it has none).
struct Field {
  const char* name;
  const char* kind;  ///< kind that redline._convert checks, such as "int32"; empty: it checks nothing
  void (*set)(void* field, size_t* count, nb::handle value, Memory& memory);
  nb::object (*get)(const void* field, size_t count);
  size_t offset, count_offset;
  OptionRow row = {};
  std::string_view default_value = {};  ///< default of the row as it is written there
};
using Fields = std::vector<Field>;

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
  static void set(T& field, size_t*, nb::handle value, Memory&) { field = static_cast<T>(to_double(value)); }
  static nb::object get(const T& field, size_t) { return nb::float_(field); }
};

template <>
struct Access<const char*> {
  static constexpr const char* kKind = "text";
  static void set(const char*& field, size_t*, nb::handle value, Memory& memory) { field = keep_text(value, memory); }
  static nb::object get(const char* field, size_t) { return text_object(field); }
};

template <>
struct Access<const char* const*> {
  static constexpr const char* kKind = "";
  static void set(const char* const*& field, size_t* count, nb::handle value, Memory& memory) {
    set_list<const char*>(field, count, value, memory, [&](nb::handle item) { return keep_text(item, memory); });
  }
  static nb::object get(const char* const* field, size_t count) { return get_list(field, count, text_object); }
};

template <>
struct Access<const int32_t*> {
  static constexpr const char* kKind = "";
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
struct Access<redline_runtime*> {  // True is read if a runtime is set
  static constexpr const char* kKind = "";
  static void set(redline_runtime*& field, size_t*, nb::handle value, Memory& memory) {
    if (value.is_none()) {
      field = nullptr;
      return;
    }
    field = nb::cast<const Runtime&>(*keep(memory, nb::borrow(value))).get();
  }
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
  static void set(const redline_float_array*& field, size_t*, nb::handle value, Memory& memory) {
    auto* kept = keep(memory, FloatArray{nb::cast<decltype(FloatArray::memory)>(value, false), {}, {}});
    for (size_t axis = 0; axis < kept->memory.ndim(); ++axis)
      kept->shape.push_back(static_cast<int64_t>(kept->memory.shape(axis)));
    kept->array = {kept->memory.data(), kept->shape.data(), kept->shape.size()};
    field = &kept->array;
  }
  static nb::object get(const redline_float_array* const& field, size_t) { return nb::bool_(field != nullptr); }
};

template <>
struct Access<const redline_image*> {
  static constexpr const char* kKind = "";
  static void set(const redline_image*& field, size_t*, nb::handle value, Memory& memory) {
    auto* kept = keep(memory, ImageArray{nb::cast<decltype(ImageArray::memory)>(value, false), {}});
    kept->image = {static_cast<int64_t>(kept->memory.shape(1)), static_cast<int64_t>(kept->memory.shape(0)),
                   kept->memory.data()};
    field = &kept->image;
  }
  static nb::object get(const redline_image* const& field, size_t) { return nb::bool_(field != nullptr); }
};

template <class T>
Field field_of(const char* name, size_t offset, size_t count_offset, OptionRow row = {},
               std::string_view default_value = {}) {
  return {name,
          Access<T>::kKind,
          [](void* field, size_t* count, nb::handle value, Memory& memory) {
            Access<T>::set(*static_cast<T*>(field), count, value, memory);
          },
          [](const void* field, size_t count) { return Access<T>::get(*static_cast<const T*>(field), count); },
          offset,
          count_offset,
          std::move(row),
          default_value};
}

#define REDLINE_FIELD(S, name) field_of<decltype(S::name)>(#name, offsetof(S, name), 0)
#define REDLINE_LIST(S, name, count) field_of<decltype(S::name)>(#name, offsetof(S, name), offsetof(S, count))
#define REDLINE_ROW(S, type_, name_, value_, meaning_, ...)   \
  field_of<decltype(S::name_)>(#name_, offsetof(S, name_), 0, \
                               {.name = #name_, .type = #type_, .meaning = (meaning_), __VA_ARGS__}, #value_),

// The fields of each struct: its rows, and the fields without a row that Python has.
const Fields& runtime_fields() {
  static const Fields fields = {REDLINE_FIELD(redline_runtime_options, threads),
                                REDLINE_FIELD(redline_runtime_options, trace_file)};
  return fields;
}

const Fields& model_fields() {
  static const Fields fields = {
#define REDLINE_OPTION(type, name, value, meaning, ...) \
  REDLINE_ROW(redline_model_options, type, name, value, meaning, __VA_ARGS__)
#include "redline/text_engine_options.inc"
      REDLINE_FIELD(redline_model_options, runtime), REDLINE_LIST(redline_model_options, adapters, num_adapters)};
  return fields;
}

const Fields& generate_fields() {
#define F(name) REDLINE_FIELD(redline_generate_options, name)
#define L(name, count) REDLINE_LIST(redline_generate_options, name, count)
  static const Fields fields = {
#define REDLINE_OPTION(type, name, value, meaning, ...) \
  REDLINE_ROW(redline_generate_options, type, name, value, meaning, __VA_ARGS__)
#define REDLINE_REQUEST_OPTION REDLINE_OPTION
#include "redline/generate_options.inc"
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
      L(dry_sequence_breakers, num_dry_sequence_breakers),
      L(samplers, num_samplers),
      L(stop_token_ids, num_stop_token_ids),
      F(json_compact),
      F(json_additional_properties),
      F(json_relaxed)};
#undef L
#undef F
  return fields;
}

const Fields& logits_fields() {
  static const Fields fields = {REDLINE_LIST(redline_logits_options, adapters, num_adapters)};
  return fields;
}

const Fields& embedding_fields() {
  static const Fields fields = {
#define REDLINE_OPTION(type, name, value, meaning, ...) \
  REDLINE_ROW(redline_embedding_options, type, name, value, meaning, __VA_ARGS__)
#include "redline/embedding_options.inc"
      REDLINE_FIELD(redline_embedding_options, runtime)};
  return fields;
}

const Fields& embed_fields() {
#define F(name) REDLINE_FIELD(redline_embed_options, name)
  static const Fields fields = {F(prompt_name), F(truncate), F(normalize), F(dimensions)};
#undef F
  return fields;
}

const Fields& pipeline_fields() {
  static const Fields fields = {
#define REDLINE_OPTION(type, name, value, meaning, ...) \
  REDLINE_ROW(redline_image_pipeline_options, type, name, value, meaning, __VA_ARGS__)
#include "redline/image_options.inc"
      REDLINE_FIELD(redline_image_pipeline_options, runtime),
      REDLINE_LIST(redline_image_pipeline_options, adapters, num_adapters)};
  return fields;
}

const Fields& request_fields() {
#define F(name) REDLINE_FIELD(redline_image_request, name)
  static const Fields fields = {
#define REDLINE_OPTION(type, name, value, meaning, ...) \
  REDLINE_ROW(redline_image_request, type, name, value, meaning, __VA_ARGS__)
#include "redline/image_request.inc"
      REDLINE_LIST(redline_image_request, prompts, num_prompts),
      F(num_images),
      F(has_seed),
      F(seed),
      F(scheduler),
      F(init_noise),
      F(prompt_embeds),
      F(pooled_embeds),
      F(init_image),
      F(mask),
      F(negative_prompt_embeds),
      F(negative_pooled_embeds)};
#undef F
  return fields;
}

const Fields& network_fields() {
  static const Fields fields = {
#define REDLINE_OPTION(type, name, value, meaning, ...) \
  REDLINE_ROW(redline_network_options, type, name, value, meaning, __VA_ARGS__)
#include "redline/network_options.inc"
      REDLINE_FIELD(redline_network_options, runtime)};
  return fields;
}

const Fields& step_fields() {
#define F(name) REDLINE_FIELD(redline_network_step, name)
  static const Fields fields = {F(context),
                                F(step),
                                F(steps),
                                F(sigma),
                                F(next_sigma),
                                F(step_size),
                                REDLINE_LIST(redline_network_step, timesteps, num_timesteps)};
#undef F
  return fields;
}

/// Finds a field. AttributeError: there is none.
const Field& find_field(const Fields& fields, std::string_view name) {
  for (const Field& field : fields)
    if (name == field.name) return field;
  throw nb::attribute_error(("no field " + std::string(name)).c_str());
}

nb::object read_field(const Field& field, const void* options) {
  const char* const begin = static_cast<const char*>(options);
  return field.get(begin + field.offset,
                   field.count_offset == 0 ? 0 : *reinterpret_cast<const size_t*>(begin + field.count_offset));
}

/// Returns the type of the keyword in Python for a type of redline/option_types.h.
const char* keyword_type(std::string_view type) {
  if (type == "BOOL") return "bool";
  if (type == "PATH") return "str | os.PathLike[str]";
  if (type == "FLOAT" || type == "DOUBLE") return "float";
  return type.starts_with("INT") ? "int" : "str";
}

/// Returns the rows of a struct's table, in the order of reading: (name, type, default, meaning, details, unset).
/// `defaults`: a struct with the defaults. None is the default of a text that is not set.
nb::list rows_of(const Fields& fields, const void* defaults) {
  std::vector<const Field*> ordered;
  for (const Field& field : fields)
    if (!field.row.name.empty())
      place_option(ordered, field.row.after, &field, [](const Field* f) { return f->row.name; });
  const auto text = [](std::string_view t) { return nb::str(t.data(), t.size()); };
  nb::list rows;
  for (const Field* field : ordered) {
    nb::object value = read_field(*field, defaults);
    // The C interface has NULL for the default of a text or a name.
    if (const std::string_view written = field->default_value; field->row.type == "PRECISION") value = text("auto");
    else if (field->row.type == "TEXT" && written.size() > 2 && value.is_none())
      value = text(written.substr(1, written.size() - 2));
    if (field->row.type == "BOOL") value = nb::bool_(PyObject_IsTrue(value.ptr()) == 1);
    rows.append(nb::make_tuple(text(field->row.name), keyword_type(field->row.type), value, text(field->row.meaning),
                               text(field->row.details), text(field->row.unset)));
  }
  return rows;
}

/// Adds the class of a struct. Its attributes are the fields. kind(name) returns the kind of value that a field takes,
/// fields() the names of all fields, and rows() their table. `init` is redline_X_init.
template <class S, class Init>
nb::class_<Options<S>> add_struct(nb::module_& m, const char* name, const Fields& fields, const Init& init) {
  nb::class_<Options<S>> type(m, name);
  type.def(
      "__getattr__",
      [&fields](const Options<S>& self, std::string_view field) -> nb::object {
        return read_field(find_field(fields, field), &self.value);
      },
      nb::arg("name"), nb::sig("def __getattr__(self, name: str, /) -> typing.Any"));
  type.def(
      "__setattr__",
      [&fields](Options<S>& self, std::string_view field, nb::handle value) {
        const Field& f = find_field(fields, field);
        char* const begin = reinterpret_cast<char*>(&self.value);
        size_t none = 0;
        f.set(begin + f.offset, f.count_offset == 0 ? &none : reinterpret_cast<size_t*>(begin + f.count_offset), value,
              self.memory);
      },
      nb::arg("name"), nb::arg("value").none(),
      nb::sig("def __setattr__(self, name: str, value: typing.Any, /) -> None"));
  type.def(
      "kind", [&fields](const Options<S>&, std::string_view field) { return find_field(fields, field).kind; },
      nb::arg("name"));
  type.def_static(
      "fields",
      [&fields] {
        nb::list names;
        for (const Field& field : fields) names.append(field.name);
        return names;
      },
      nb::sig("def fields() -> list[str]"));
  type.def_static(
      "rows",
      [&fields, init] {
        S defaults = {};
        init(&defaults);
        return rows_of(fields, &defaults);
      },
      nb::sig("def rows() -> list[tuple[str, str, typing.Any, str, str, str]]"));
  return type;
}

template <class S, void (*kInit)(S*, size_t)>
void add_struct_with_defaults(nb::module_& m, const char* name, const Fields& fields) {
  add_struct<S>(m, name, fields, [](S* value) { kInit(value, sizeof *value); }).def("__init__", [](Options<S>* self) {
    new (self) Options<S>();
    kInit(&self->value, sizeof self->value);
  });
}

}  // namespace

void add_options(nb::module_& m) {
  add_struct_with_defaults<redline_runtime_options, redline_runtime_options_init>(m, "RuntimeOptions",
                                                                                  runtime_fields());
  add_struct_with_defaults<redline_model_options, redline_model_options_init>(m, "ModelOptions", model_fields());
  add_struct_with_defaults<redline_logits_options, redline_logits_options_init>(m, "LogitsOptions", logits_fields());
  add_struct_with_defaults<redline_embedding_options, redline_embedding_options_init>(m, "EmbeddingOptions",
                                                                                      embedding_fields());
  add_struct_with_defaults<redline_embed_options, redline_embed_options_init>(m, "EmbedOptions", embed_fields());
  add_struct_with_defaults<redline_image_pipeline_options, redline_image_pipeline_options_init>(
      m, "ImagePipelineOptions", pipeline_fields());
  add_struct_with_defaults<redline_network_options, redline_network_options_init>(m, "NetworkOptions",
                                                                                  network_fields());
  add_struct_with_defaults<redline_network_step, redline_network_step_init>(m, "NetworkStep", step_fields());
  add_struct<redline_generate_options>(
      m, "GenerateOptions", generate_fields(),
      [](redline_generate_options* value) { redline_generate_options_init(value, sizeof *value, nullptr); })
      .def(
          "__init__",
          [](GenerateOptions* self, nb::handle_t<Model> model) {
            new (self) GenerateOptions();
            redline_generate_options_init(&self->value, sizeof self->value, nb::cast<const Model&>(model).get());
            keep(self->memory, nb::borrow(model));  // keeps the model alive, which has the strings of the defaults
          },
          nb::arg("model"))
      .def("copy", [](const GenerateOptions& self) { return GenerateOptions(self); });
  add_struct<redline_image_request>(
      m, "ImageRequest", request_fields(),
      [](redline_image_request* value) { redline_image_request_init(value, sizeof *value, nullptr); })
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
